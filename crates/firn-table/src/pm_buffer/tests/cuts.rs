//! Power cuts: groups come back whole or not at all, notes and lines are old or new, and nothing
//! that was not committed comes alive.

use super::*;
use firn_pm::sim::{CrashImage, Explorer};

const BYTES: u64 = 64 << 10;

fn opened(sim: &SimRegion) -> Result<Arc<Pool>> {
    let pool = Arc::new(Pool::open_simulated(sim, UUID)?);
    pool.finish_recovery()?;
    Ok(pool)
}

/// Runs `script`, and `check` on the images of each cut; at every store too if `at_every_store`.
fn explore(
    at_every_store: bool,
    script: impl Fn(&SimRegion) -> Result<()>,
    check: impl Fn(&CrashImage<'_>) -> Result<(), String>,
) {
    for (mode, seed) in [(Mode::Adr, 1), (Mode::TornAdr, 2), (Mode::Eadr, 3)] {
        let explorer = Explorer {
            mode,
            seed,
            at_every_store,
            lint: false,
            ..Explorer::new(BYTES)
        };
        let report = explorer
            .run(&script, &check)
            .unwrap_or_else(|failure| panic!("{mode:?}, {failure}"));
        assert!(report.images > 10, "{mode:?}: {report:?}");
    }
}

/// The groups of [`script`]: the numbers that the first and the second buffer get.
const GROUPS: [[std::ops::RangeInclusive<u64>; 2]; 4] = [
    [1..=3, 4..=5],
    [6..=6, 7..=9],
    [12..=14, 10..=11],
    [15..=15, 16..=16],
];

/// The last number of the first `groups` groups.
fn last_of(groups: usize) -> u64 {
    let ends = GROUPS.iter().take(groups).flatten().map(|part| *part.end());
    ends.max().unwrap_or(0)
}

/// Creates a directory and two buffers, one operation, and commits the groups, one each. Every
/// buffer is noted after the second group.
fn script(sim: &SimRegion) -> Result<()> {
    let directory = BufferDirectory::create(&opened(sim)?, 4, SeqNo(0))?;
    let buffers = [named(&directory, 7, 1)?, named(&directory, 8, 1)?];
    sim.end_operation();
    for (number, [first, second]) in GROUPS.into_iter().enumerate() {
        group(&directory, &[(&buffers[0], first), (&buffers[1], second)])?;
        sim.end_operation();
        if number == 1 {
            let note = |buffer: &PmBuffer| Note {
                line: buffer.line(),
                id: buffer.id(),
                through: SeqNo(last_of(2)),
                end: buffer.end(),
                is_final: false,
            };
            directory.note(&buffers.each_ref().map(note))?;
        }
    }
    Ok(())
}

/// Checks that each buffer has exactly the groups up to the committed number, and returns the
/// number of these groups.
fn whole_groups(world: &World) -> Result<usize, String> {
    let told = |error: Error| error.to_string();
    let committed = world.directory.committed().map_err(told)?.0;
    let Some(groups) = (0..=GROUPS.len()).find(|&groups| last_of(groups) == committed) else {
        return Err(format!("{committed} is inside a group"));
    };
    for named in world.directory.named().map_err(told)? {
        let named = named.map_err(told)?;
        let part = named.id.0 as usize - 7;
        let wanted = GROUPS[..groups]
            .iter()
            .flat_map(|group| group[part].clone());
        let (found, end) = walked(world, &named).map_err(told)?;
        if found != wanted.collect::<Vec<u64>>() || end < named.end {
            return Err(format!(
                "{found:?} in buffer {} of {groups} groups",
                named.id
            ));
        }
        // A walk from the noted end misses nothing above the noted number.
        let (found, _) = walked_from(world, &named, named.end).map_err(told)?;
        let above = |number: &u64| SeqNo(*number) > named.through;
        let found: Vec<u64> = found
            .into_iter()
            .map(|(number, _)| number)
            .filter(above)
            .collect();
        let wanted = GROUPS[..groups]
            .iter()
            .flat_map(|group| group[part].clone());
        if found != wanted.filter(above).collect::<Vec<u64>>() {
            return Err(format!("{found:?} above {} in {}", named.through, named.id));
        }
    }
    Ok(groups)
}

fn check(image: &CrashImage<'_>) -> Result<(), String> {
    let told = |error: Error| error.to_string();
    let acknowledged = (image.operations as usize).saturating_sub(1);
    let pool = Arc::new(Pool::open_simulated(image.sim, UUID).map_err(told)?);
    if BufferDirectory::find(&pool).map_err(told)?.is_none() {
        return match image.operations {
            0 => Ok(()),
            _ => Err("the directory is lost".to_owned()),
        };
    }
    drop(pool);
    let world = reopened(image.sim.clone()).map_err(told)?;
    let named = world.directory.named().map_err(told)?;
    if image.operations > 0 && named.len() != 2 {
        return Err(format!("{} buffers", named.len()));
    }
    let groups = whole_groups(&world)?;
    if !(acknowledged..=acknowledged + 1).contains(&groups) {
        return Err(format!("{groups} groups, of {acknowledged} acknowledged"));
    }
    next_session(world, groups)
}

/// Notes every end as final, then commits all the numbers that a cut group may have left behind, in
/// another buffer. Nothing of that group may come alive.
fn next_session(world: World, groups: usize) -> Result<(), String> {
    let told = |error: Error| error.to_string();
    let directory = &world.directory;
    let committed = directory.committed().map_err(told)?;
    let mut notes = Vec::new();
    for named in directory.named().map_err(told)? {
        let named = named.map_err(told)?;
        let (_, end) = walked(&world, &named).map_err(told)?;
        notes.push(final_note(&named, committed, end));
    }
    directory.note(&notes).map_err(told)?;
    directory
        .commit(committed, &Fenced::nothing())
        .map_err(told)?;
    let buffer = named(directory, 99, 1).map_err(told)?;
    let next = committed.0 + 1;
    group(directory, &[(&buffer, next..=next + 9)]).map_err(told)?;
    for named in directory.named().map_err(told)? {
        let named = named.map_err(told)?;
        let (found, _) = walked(&world, &named).map_err(told)?;
        let wanted: Vec<u64> = match named.id.0 {
            99 => (next..=next + 9).collect(),
            id => {
                let groups = GROUPS[..groups].iter();
                groups
                    .flat_map(|group| group[id as usize - 7].clone())
                    .collect()
            }
        };
        if found != wanted {
            return Err(format!("{found:?} came alive in buffer {}", named.id));
        }
    }
    Ok(())
}

#[test]
fn a_group_is_committed_in_all_buffers_or_in_none() {
    explore(false, script, check);
    explore(true, script, check);
}

/// Without final notes the numbers of a cut group would be believed once they are committed: the
/// test above can fail.
#[test]
fn without_a_final_end_a_cut_group_would_come_alive() {
    let world = World::new(BYTES);
    let buffer = world.buffer(7, 1);
    world.group(&[(&buffer, 1..=3)]);
    let (_, flushed) = buffer.append(&mut staged(4..=5), SeqNo(4)).unwrap();
    let _fenced = world.pool.fence(&TEST, flushed);
    let again = world.killed();
    let old = all_named(&again.directory)[0];
    let (before, end) = walked(&again, &old).unwrap();
    assert_eq!(before, [1, 2, 3]);
    let other = again.buffer(8, 1);
    again.group(&[(&other, 4..=5)]);
    assert_eq!(walked(&again, &old).unwrap().0, [1, 2, 3, 4, 5]);
    let note = final_note(&old, SeqNo(3), end);
    again.directory.note(&[note]).unwrap();
    let old = all_named(&again.directory)[0];
    assert_eq!(walked(&again, &old).unwrap(), (vec![1, 2, 3], end));
}

/// An open after a cut group is cut itself, at every store, and repeated.
#[test]
fn an_open_that_is_cut_is_repeated() {
    let world = World::new(BYTES);
    let buffers = [world.buffer(7, 1), world.buffer(8, 1)];
    world.group(&[(&buffers[0], 1..=3), (&buffers[1], 4..=5)]);
    let (_, first) = buffers[0].append(&mut staged(6..=6), SeqNo(6)).unwrap();
    let (_, second) = buffers[1].append(&mut staged(7..=9), SeqNo(7)).unwrap();
    let _fenced = world.pool.fence(&TEST, [first, second]);
    let start = world.sim.durable();
    for (mode, seed) in [(Mode::Adr, 1), (Mode::TornAdr, 2), (Mode::Eadr, 3)] {
        let explorer = Explorer {
            mode,
            seed,
            at_every_store: true,
            lint: false,
            start: Some(start.clone()),
            ..Explorer::new(BYTES)
        };
        let open = |sim: &SimRegion| {
            next_session(reopened(sim.clone())?, 1).map_err(Error::invalid)?;
            sim.end_operation();
            Ok(())
        };
        let told = |error: Error| error.to_string();
        let check = |image: &CrashImage<'_>| {
            let world = reopened(image.sim.clone()).map_err(told)?;
            let committed = world.directory.committed().map_err(told)?.0;
            if committed != 15 && (committed != 5 || image.operations > 0) {
                return Err(format!("{committed} is committed"));
            }
            for named in world.directory.named().map_err(told)? {
                let named = named.map_err(told)?;
                let wanted: Vec<u64> = match named.id.0 {
                    7 => (1..=3).collect(),
                    8 => (4..=5).collect(),
                    _ => (6..=committed).collect(),
                };
                let (found, _) = walked(&world, &named).map_err(told)?;
                if found != wanted {
                    return Err(format!("{found:?} in buffer {}", named.id));
                }
            }
            match committed {
                5 if all_named(&world.directory).len() == 2 => next_session(world, 1),
                _ => Ok(()),
            }
        };
        let report = explorer
            .run(open, check)
            .unwrap_or_else(|failure| panic!("{mode:?}, {failure}"));
        assert!(report.images > 20, "{mode:?}: {report:?}");
    }
}

/// Names buffers with two ids in turn in one extent and line. Removing the first is an operation.
fn in_turn(sim: &SimRegion) -> Result<()> {
    let directory = BufferDirectory::create(&opened(sim)?, 1, SeqNo(0))?;
    let first = named(&directory, 7, 1)?;
    group(&directory, &[(&first, 1..=4)])?;
    sim.end_operation();
    directory.remove(&[first.line()])?;
    first.free()?;
    sim.end_operation();
    let second = named(&directory, 8, 1)?;
    sim.end_operation();
    group(&directory, &[(&second, 5..=6)])?;
    sim.end_operation();
    Ok(())
}

#[test]
fn a_line_is_free_or_whole_and_a_removed_one_stays_free() {
    let told = |error: Error| error.to_string();
    let check = |image: &CrashImage<'_>| {
        if image.operations == 0 {
            return Ok(());
        }
        let world = reopened(image.sim.clone()).map_err(told)?;
        let mut found = Vec::new();
        for named in world.directory.named().map_err(told)? {
            let named = named.map_err(told)?;
            found.push((named.id.0, walked(&world, &named).map_err(told)?.0));
        }
        let (gone, first) = (vec![], vec![(7, vec![1, 2, 3, 4])]);
        let (second, full) = (vec![(8, vec![])], vec![(8, vec![5, 6])]);
        let allowed = match image.operations {
            1 => [first, gone],
            2 => [gone, second],
            3 => [second, full],
            _ => [full.clone(), full],
        };
        match allowed.contains(&found) {
            true => Ok(()),
            false => Err(format!("{found:?} after {}", image.operations)),
        }
    };
    explore(true, in_turn, check);
}

#[test]
fn a_cut_note_leaves_no_end_with_an_older_number() {
    let script = |sim: &SimRegion| {
        let directory = BufferDirectory::create(&opened(sim)?, 1, SeqNo(0))?;
        let buffers = [named(&directory, 7, 1)?, named(&directory, 8, 1)?];
        group(&directory, &[(&buffers[0], 1..=4), (&buffers[1], 5..=6)])?;
        sim.end_operation();
        let note = |buffer: &PmBuffer| Note {
            line: buffer.line(),
            id: buffer.id(),
            through: SeqNo(6),
            end: buffer.end(),
            is_final: true,
        };
        directory.note(&buffers.each_ref().map(note))?;
        sim.end_operation();
        Ok(())
    };
    let seen = std::cell::RefCell::new(std::collections::BTreeSet::new());
    let told = |error: Error| error.to_string();
    let check = |image: &CrashImage<'_>| {
        if image.operations == 0 {
            return Ok(());
        }
        let world = reopened(image.sim.clone()).map_err(told)?;
        for named in world.directory.named().map_err(told)? {
            let named = named.map_err(told)?;
            let (numbers, end) = walked(&world, &named).map_err(told)?;
            if numbers.is_empty() {
                return Err("committed entries are lost".to_owned());
            }
            let (is_noted, is_final) = (named.through == SeqNo(6), named.is_final);
            let is_right = match is_final {
                true => is_noted && named.end == end,
                false => named.end == 0,
            };
            if !is_right || (image.operations == 2 && !is_final) {
                return Err(format!("{named:?}"));
            }
            seen.borrow_mut().insert((is_noted, is_final));
        }
        Ok(())
    };
    explore(true, script, check);
    let wanted = [(false, false), (true, false), (true, true)];
    assert_eq!(seen.into_inner().into_iter().collect::<Vec<_>>(), wanted);
}
