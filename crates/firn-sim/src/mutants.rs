//! Mutants: with each site switched off in turn, some suite must notice. A site whose absence goes
//! unnoticed is not needed, or not tested.

use crate::suite::Suite;
use crate::tier::spread;
use firn_base::site::{self, Site};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// The suites in which mutants are hunted, cheap ones first, and the number of seeds of each. The
/// lint is not among them.
const HUNT: &[(&str, u64)] = &[
    ("pm_seq_pool", 73),
    ("pm_init_pool", 9),
    ("pm_torn_pool", 9),
    ("pm_seq_trees", 73),
    ("pm_torn_trees", 9),
    ("trees_damage", 16),
    ("pm_seq_lists", 8),
    ("lists_damage", 16),
    ("pm_seq_tables", 8),
    ("tables_damage", 16),
    ("pm_seq_if_trees", 8),
    ("if_trees_damage", 16),
    ("pm_seq_buffers", 31),
    ("buffers_damage", 16),
    ("pm_file", 60),
    ("creation_cut", 100),
    ("bit_exhaust", 400),
    ("cut_extend", 128),
    ("recovery_cut", 12),
    ("pm_seq_log", 10),
    ("pm_torn_log", 10),
    ("dir_exhaust", 60),
    ("repair_cut", 100),
    ("checkpoint_cut", 200),
    ("joint", 600),
    ("block_append", 8),
    ("lab_joint", 60),
    ("tlsm_joint", 60),
    ("blade_joint", 60),
    ("pmdb_joint", 60),
    ("tlsm_link_cut", 300),
    ("pm_seq_hot", 12),
    ("pm_seq_placed", 7),
    ("model", 10),
];

/// A seed that noticed each site. Changed formats make some of them stale, and then others are
/// looked for. If that takes long, `cargo xtask soak --site` finds a new one.
const KNOWN: &[(&str, &str, u64)] = &[
    ("btree.create.fence", "pm_seq_trees", 0),
    ("btree.leaf.check", "bit_exhaust", 6),
    ("btree.leaf.fence", "pm_seq_trees", 1),
    ("btree.word.fence", "pm_seq_trees", 1),
    ("btree.word.flush", "trees_damage", 0),
    ("buffer.entries.fence", "pmdb_joint", 40),
    ("checkpoint.copy.sync", "checkpoint_cut", 4),
    ("current.check", "bit_exhaust", 51),
    ("current.name.sync", "recovery_cut", 0),
    ("current.rename", "creation_cut", 0),
    ("current.reopen.sync", "creation_cut", 5500),
    ("current.sync", "recovery_cut", 0),
    ("hot.seqno.check", "lab_joint", 24),
    ("hot.value.fence", "pm_seq_hot", 2),
    ("if_tree.fence", "pm_seq_if_trees", 1),
    ("if_tree.files.check", "if_trees_damage", 0),
    ("if_tree.group.check", "if_trees_damage", 0),
    ("if_tree.header.check", "if_trees_damage", 0),
    ("list.entry.check", "bit_exhaust", 6),
    ("list.fence", "pm_seq_lists", 23),
    ("list.next.fence", "pm_seq_lists", 23),
    ("list.next.flush", "lists_damage", 1),
    ("list.segment.check", "bit_exhaust", 6),
    ("lock.name.sync", "creation_cut", 24),
    ("lock.sync", "creation_cut", 2),
    ("log.buffered_header.sync", "pm_seq_log", 0),
    ("log.drain.sync", "checkpoint_cut", 6),
    ("log.flush.sync", "lab_joint", 27),
    ("log.frame.check", "bit_exhaust", 4),
    ("log.frame.fence", "checkpoint_cut", 2),
    ("log.frame_part.fence", "lab_joint", 24),
    ("log.half.check", "bit_exhaust", 3),
    ("log.half.fence", "pm_seq_log", 1),
    ("log.header.check", "bit_exhaust", 0),
    ("log.keys.check", "bit_exhaust", 0),
    ("log.names.sync", "lab_joint", 1),
    ("log.next_header.sync", "repair_cut", 4),
    ("log.placed.fence", "pm_seq_placed", 1),
    ("log.sealed.sync", "joint", 236),
    ("log.settle.sync", "lab_joint", 0),
    ("log.sync", "recovery_cut", 0),
    ("log.value.check", "bit_exhaust", 0),
    ("manifest.check", "bit_exhaust", 0),
    ("manifest.reopen.sync", "joint", 577),
    ("manifest.sync", "recovery_cut", 0),
    ("options.rename", "creation_cut", 0),
    ("pm.claim.flush", "tlsm_link_cut", 79),
    ("pm.create.fence", "pm_seq_pool", 0),
    ("pm.create.flush", "pm_seq_pool", 0),
    ("pm.create.sync", "pm_file", 2),
    ("pm.edge.flush", "lists_damage", 1),
    ("pm.header.check", "bit_exhaust", 258),
    ("pm.magic.check", "bit_exhaust", 2),
    ("pm.persist.sync", "pm_file", 1),
    ("pm.reopen.flush", "pm_seq_trees", 0),
    ("pm.root.check", "pm_seq_if_trees", 1),
    ("pm.root.fence", "pm_seq_log", 0),
    ("pm.root.sync", "pm_file", 0),
    ("pm.session.check", "bit_exhaust", 514),
    ("pm.session.fence", "lists_damage", 0),
    ("pm.session.flush", "pm_seq_trees", 0),
    ("pm.session.sync", "pm_file", 0),
    ("pm.space.sync", "pm_file", 0),
    ("pm_buffer.commit.fence", "joint", 7),
    ("pm_buffer.commit.flush", "joint", 7),
    ("pm_buffer.create.fence", "pm_seq_buffers", 0),
    ("pm_buffer.end.fence", "buffers_damage", 0),
    ("pm_buffer.end.flush", "buffers_damage", 0),
    ("pm_buffer.entry.check", "pm_seq_buffers", 0),
    ("pm_buffer.line.check", "buffers_damage", 9),
    ("pm_buffer.line.fence", "pm_torn_buffers", 8),
    ("pm_buffer.line.flush", "joint", 7),
    ("pm_buffer.name.fence", "joint", 470),
    ("pm_buffer.name.flush", "joint", 7),
    ("pm_buffer.remove.fence", "pm_seq_buffers", 9),
    ("pm_buffer.remove.flush", "pm_seq_buffers", 9),
    ("pm_buffer.through.fence", "pm_torn_buffers", 8),
    ("pm_buffer.through.flush", "pm_torn_buffers", 8),
    ("pm_buffer.value.check", "buffers_damage", 0),
    ("pm_buffer.word.check", "buffers_damage", 1),
    ("pm_table.fence", "pm_seq_tables", 1),
    ("pm_table.group.check", "bit_exhaust", 6),
    ("pm_table.header.check", "tables_damage", 0),
    ("pm_table.search.check", "bit_exhaust", 7),
    ("pm_table.value.check", "bit_exhaust", 6),
    ("repair.copy.sync", "repair_cut", 0),
    ("repair.lost.sync", "repair_cut", 0),
    ("rows.replace", "checkpoint_cut", 0),
    ("snapshot.name.sync", "joint", 577),
    ("snapshot.sync", "recovery_cut", 0),
    ("sst.append.sync", "block_append", 3),
    ("sst.block.check", "bit_exhaust", 0),
    ("sst.footer.check", "bit_exhaust", 212),
    ("sst.names.sync", "recovery_cut", 0),
    ("sst.section.check", "bit_exhaust", 0),
    ("sst.sync", "recovery_cut", 0),
    ("sst.writes.wait", "block_append", 0),
];

/// The first round takes so many times fewer seeds of each suite, at least one.
const FEW: u64 = 8;
/// The maximum number of seeds of a suite to try among those that pass a site.
const TRIES: usize = 1500;
/// The suites that most quickly notice a check that is off.
const DAMAGE: [&str; 2] = ["bit_exhaust", "cut_extend"];

/// All sites of the engine.
pub fn sites() -> Vec<&'static Site> {
    [
        firn_pm::sites::ALL,
        firn_table::sites::ALL,
        firndb::sites::ALL,
    ]
    .concat()
}

/// The suite that noticed that a site was off.
#[derive(Debug)]
pub struct Verdict {
    /// The site.
    pub site: &'static Site,
    /// The suite and the seed; `None` if no suite noticed.
    pub noticed_by: Option<(&'static str, u64)>,
    /// The number of seeds tried, all of which pass the site.
    pub tried: u64,
    /// True if neither the known seed nor the few of the second round sufficed.
    pub is_late: bool,
}

/// The seeds that pass each site, in the order in which they are tried.
type Passing = BTreeMap<&'static str, Vec<(&'static Suite, u64)>>;

/// Switches each site of `which` off in turn, spread over threads. Calls `tell` with each verdict
/// once it is known.
///
/// A site is first tried with the seed that noticed it before, then with a few seeds of each suite,
/// because to find out which seeds pass which sites costs more than all verdicts. Only the sites
/// that these do not notice are tried with all seeds.
pub fn hunt(which: Vec<&'static Site>, tell: impl Fn(&Verdict)) -> Vec<Verdict> {
    let (mut left, mut verdicts) = (which, Vec::new());
    for round in [Round::Known, Round::Few, Round::All] {
        let last = round == Round::All;
        let judged = if left.is_empty() {
            Vec::new()
        } else {
            judge_all(left, passing(round))
        };
        let (mut known, unknown): (Vec<_>, Vec<_>) = judged
            .into_iter()
            .partition(|verdict| last || verdict.noticed_by.is_some());
        for verdict in &mut known {
            verdict.is_late = last;
            tell(verdict);
        }
        left = unknown.iter().map(|verdict| verdict.site).collect();
        verdicts.extend(known);
    }
    verdicts
}

/// The seeds with which sites are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// The seeds in [`KNOWN`].
    Known,
    /// One in [`FEW`] of the seeds in [`HUNT`].
    Few,
    /// All of these.
    All,
}

fn judge_all(which: Vec<&'static Site>, passing: Passing) -> Vec<Verdict> {
    let (count, verdicts) = (which.len() as u64, Arc::new(Mutex::new(Vec::new())));
    let into = verdicts.clone();
    let index = move |index| (index < count).then_some(index);
    spread("mutants", index, move |index| {
        let site = which[index as usize];
        let verdict = judge(site, passing.get(site.name()).map_or(&[], Vec::as_slice));
        into.lock().expect("no panic under the lock").push(verdict);
        true
    });
    std::mem::take(&mut *verdicts.lock().expect("no panic under the lock"))
}

/// Runs the seeds of a round with all sites on, to find out which of them pass which sites.
fn passing(round: Round) -> Passing {
    let hunted = |one_in: u64| -> Vec<(&str, u64)> {
        let seeds = |&(name, seeds): &(&'static str, u64)| {
            (0..seeds.div_ceil(one_in)).map(move |seed| (name, seed))
        };
        HUNT.iter().flat_map(seeds).collect()
    };
    let wanted = match round {
        Round::Known => {
            let known: BTreeSet<_> = KNOWN.iter().map(|of| (of.1, of.2)).collect();
            known.into_iter().collect()
        }
        Round::Few => hunted(FEW),
        Round::All => hunted(1),
    };
    let suites = wanted.into_iter();
    let all: Vec<(&'static Suite, u64)> = suites
        .filter_map(|(name, seed)| Suite::named(name).map(|suite| (suite, seed)))
        .collect();
    let (runs, found) = (
        all.clone(),
        Arc::new(Mutex::new(vec![Vec::new(); all.len()])),
    );
    let into = found.clone();
    let count = all.len() as u64;
    let index = move |index| (index < count).then_some(index);
    spread("passing", index, move |index| {
        let (suite, seed) = runs[index as usize];
        let (_tally, counts) = site::counted(|| (suite.run)(seed));
        into.lock().expect("no panic under the lock")[index as usize] =
            counts.into_keys().collect();
        true
    });
    let mut passing = Passing::new();
    for (run, names) in all
        .into_iter()
        .zip(found.lock().expect("no panic under the lock").iter())
    {
        let is_for =
            |name: &str| round != Round::Known || KNOWN.contains(&(name, run.0.name, run.1));
        for name in names.iter().filter(|name| is_for(name)) {
            let runs: &mut Vec<(&'static Suite, u64)> = passing.entry(name).or_default();
            if runs
                .iter()
                .filter(|(suite, _)| suite.name == run.0.name)
                .count()
                < TRIES
            {
                runs.push(run);
            }
        }
    }
    passing
}

fn judge(site: &'static Site, runs: &[(&'static Suite, u64)]) -> Verdict {
    // Tries a few seeds of each suite, then a few more, so that no site has to wait for all seeds
    // of a suite that cannot notice it.
    let mut ranks: BTreeMap<&str, usize> = BTreeMap::new();
    let finds_soonest = |suite: &str| site.name().ends_with(".check") && DAMAGE.contains(&suite);
    let mut rank = |suite: &'static Suite| {
        let rank = ranks.entry(suite.name).or_default();
        *rank += 1;
        match finds_soonest(suite.name) {
            true => *rank / 16,
            false => *rank,
        }
    };
    let mut ranked: Vec<_> = runs
        .iter()
        .map(|&(suite, seed)| (rank(suite), suite, seed))
        .collect();
    ranked.sort_by_key(|(rank, ..)| *rank);
    let mut tried = 0;
    for (_, suite, seed) in ranked {
        tried += 1;
        if catch_unwind(AssertUnwindSafe(|| {
            site::without(site, || (suite.run)(seed))
        }))
        .is_err()
        {
            return Verdict {
                site,
                noticed_by: Some((suite.name, seed)),
                tried,
                is_late: false,
            };
        }
    }
    Verdict {
        site,
        noticed_by: None,
        tried,
        is_late: false,
    }
}
