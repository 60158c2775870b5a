//! Rotten bits: each is noticed or harmless. Bytes of other buffers are never taken for entries.

use super::*;

/// A pool with one buffer of nine entries, noted up to the fifth, and its image.
fn image() -> (Vec<u8>, NamedBuffer) {
    let world = World::new(64 << 10);
    let buffer = world.buffer(7, 1);
    world.group(&[(&buffer, 1..=5)]);
    let note = Note {
        line: buffer.line(),
        id: buffer.id(),
        through: SeqNo(5),
        end: buffer.end(),
        is_final: false,
    };
    world.directory.note(&[note]).unwrap();
    world.group(&[(&buffer, 6..=9)]);
    world.sim.assert_clean();
    (world.sim.durable(), all_named(&world.directory)[0])
}

fn with_bit(image: &[u8], at: usize, bit: u32) -> SimRegion {
    let mut image = image.to_vec();
    image[at] ^= 1 << bit;
    SimRegion::from_image(image, Mode::Adr)
}

fn directory_at(image: &[u8]) -> usize {
    let sim = SimRegion::from_image(image.to_vec(), Mode::Adr);
    let pool = Pool::open_simulated(&sim, UUID).unwrap();
    let entry = pool.root().find(Owner::WriteBuffer, 0).copied();
    entry.unwrap().extent.unwrap().offset.get() as usize
}

fn find(sim: &SimRegion) -> BufferDirectory {
    let pool = Arc::new(Pool::open_simulated(sim, UUID).unwrap());
    BufferDirectory::find(&pool).unwrap().unwrap()
}

#[test]
fn a_rotten_bit_in_one_committed_word_loses_nothing_and_in_both_is_noticed() {
    let (image, _) = image();
    let at = directory_at(&image);
    let mut generous = image.clone();
    for bit in 0..64usize {
        for line in [0, 64] {
            let sim = with_bit(&image, at + line + bit / 8, bit as u32 % 8);
            assert_eq!(find(&sim).committed().unwrap(), SeqNo(9), "bit {bit}");
        }
        generous[at + bit / 8] ^= 1 << (bit % 8);
        let other = (bit * 7 + 3) % 64;
        let sim = with_bit(&generous, at + 64 + other / 8, other as u32 % 8);
        let error = find(&sim).committed().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        let place = format!("directory in the pool is damaged at byte {at}");
        assert!(error.to_string().contains(&place), "{error}");
        generous[at + bit / 8] ^= 1 << (bit % 8);
    }
    // Each word is tied to its line.
    let mut swapped = image.clone();
    swapped.copy_within(at..at + 64, at + 64);
    swapped[at..at + 64].copy_from_slice(&image[at + 64..at + 128]);
    let sim = SimRegion::from_image(swapped, Mode::Adr);
    assert!(find(&sim).committed().is_err());
}

#[test]
fn every_rotten_bit_of_a_line_is_noticed_or_harmless() {
    let (image, whole) = image();
    let at = directory_at(&image) + 2 * 64;
    let (mut noticed, mut harmless) = (0, 0);
    // The buffer's line, and the free one after it.
    for bit in 0..1024usize {
        let directory = find(&with_bit(&image, at + bit / 8, bit as u32 % 8));
        let named = directory.named().unwrap();
        let errors: Vec<&Error> = named.iter().filter_map(|one| one.as_ref().err()).collect();
        match errors[..] {
            [] => {
                assert_eq!(all_named(&directory), [whole]);
                harmless += 1;
            }
            [error] => {
                assert_eq!(error.kind(), ErrorKind::Corruption);
                let line = format!("damaged at byte {}", at + bit / 512 * 64);
                assert!(error.to_string().contains(&line), "{error}");
                noticed += 1;
            }
            _ => panic!("{named:?}"),
        }
    }
    // Only the reserved bytes, and the rest of a free line.
    assert_eq!((noticed, harmless), (512 - 128 + 64, 128 + 448));
}

#[test]
fn every_rotten_bit_of_an_entry_is_noticed_or_ends_the_buffer() {
    let (image, named) = image();
    let base = named.extent.offset.get() as usize;
    let world = reopened(SimRegion::from_image(image.clone(), Mode::Adr)).unwrap();
    let (entries, end) = walked_from(&world, &named, 0).unwrap();
    assert_eq!(entries.len(), 9);
    let ends = entries.iter().skip(1).map(|(_, at)| *at).chain([end]);
    for (&(number, at), next) in entries.iter().zip(ends) {
        let (_, key, value) = entry(number);
        let value_at = at as usize + ENTRY_HEADER_BYTES + key.len();
        for bit in 0..(next - at) as usize * 8 {
            let place = at as usize + bit / 8;
            let sim = with_bit(&image, base + place, bit as u32 % 8);
            let world = reopened(sim).unwrap();
            if place < value_at {
                match walked(&world, &named) {
                    // Below the noted end there are committed entries.
                    Err(error) => {
                        assert!(number <= 5, "{error}");
                        assert_eq!(error.kind(), ErrorKind::Corruption);
                        assert!(error.to_string().contains("write buffer 7"), "{error}");
                    }
                    Ok((found, end)) => {
                        assert_eq!((found, end), ((1..number).collect(), at));
                        assert!(number > 5);
                    }
                }
                continue;
            }
            assert_eq!(walked(&world, &named).unwrap().0.len(), 9);
            let (id, line, extent) = (named.id, named.line, named.extent);
            let buffer = PmBuffer::new(world.pool.clone(), id, line, extent, end).unwrap();
            match buffer.value(at, SeqNo(number)) {
                Ok(read) => {
                    assert_eq!(read, value);
                    assert!(place >= value_at + value.len(), "only padding is harmless");
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption),
            }
        }
    }
}

/// The number of an entry, and its value if that is whole.
type Salvaged = (u64, Option<Vec<u8>>);

/// The numbers and the values of the entries that a salvage finds, and the damaged parts.
fn salvaged(world: &World, named: &NamedBuffer) -> (Vec<Salvaged>, Vec<(u64, u64)>) {
    let (mut found, mut damaged) = (Vec::new(), Vec::new());
    let done = salvage(&world.pool, named, SeqNo(9), |part| {
        match part {
            Ok(entry) => {
                let value = named.read_value(&world.pool, &entry).ok();
                found.push((entry.tag.seqno().0, value));
            }
            Err(part) => {
                let place = named.extent.offset.get() + part.range.start;
                let place = format!("write buffer 7 in the pool is damaged at byte {place}");
                assert!(part.error.to_string().contains(&place), "{}", part.error);
                damaged.push((part.range.start, part.range.end));
            }
        }
        Ok(())
    });
    done.unwrap();
    (found, damaged)
}

#[test]
fn a_salvage_loses_the_entry_with_the_rotten_bit_and_no_other() {
    let (image, named) = image();
    let base = named.extent.offset.get() as usize;
    let world = reopened(SimRegion::from_image(image.clone(), Mode::Adr)).unwrap();
    let all: Vec<_> = (1..=9)
        .map(|number| (number, Some(entry(number).2)))
        .collect();
    assert_eq!(salvaged(&world, &named), (all.clone(), Vec::new()));
    let (entries, end) = walked_from(&world, &named, 0).unwrap();
    let ends = entries.iter().skip(1).map(|(_, at)| *at).chain([end]);
    for (&(number, at), next) in entries.iter().zip(ends) {
        let (_, key, value) = entry(number);
        let value_at = at as usize + ENTRY_HEADER_BYTES + key.len();
        for place in at as usize..value_at + value.len() {
            let world = reopened(with_bit(&image, base + place, place as u32 % 8)).unwrap();
            let (found, damaged) = salvaged(&world, &named);
            let mut left = all.clone();
            if place >= value_at {
                left[number as usize - 1].1 = None;
                assert_eq!((found, damaged), (left, Vec::new()));
                continue;
            }
            left.remove(number as usize - 1);
            // Rot in the last entry, above the noted end, looks like the end.
            let told = if number == 9 {
                vec![]
            } else {
                vec![(at, next)]
            };
            assert_eq!((found, damaged), (left, told), "byte {place}");
        }
    }
}

#[test]
fn a_damaged_line_tells_what_it_still_has() {
    let (image, whole) = image();
    let at = directory_at(&image) + 2 * 64;
    // The mark, the id, the extent, its checksum, the number, the end.
    for (byte, is_known, has_end) in [
        (0, true, true),
        (1, false, false),
        (9, false, false),
        (17, false, false),
        (24, false, false),
        (33, true, true),
        (42, true, false),
    ] {
        let directory = find(&with_bit(&image, at + byte, 4));
        let lines = directory.salvage_lines().unwrap();
        let [Err(damaged)] = &lines[..] else {
            panic!("byte {byte}: {lines:?}");
        };
        assert_eq!(damaged.line, whole.line);
        let found = damaged.buffer;
        assert_eq!(found.is_some(), is_known, "byte {byte}");
        let Some((found, end_is_known)) = found else {
            continue;
        };
        assert_eq!(end_is_known, has_end, "byte {byte}");
        assert_eq!((found.id, found.extent), (whole.id, whole.extent));
        let end = if has_end { whole.end } else { 0 };
        assert_eq!((found.end, found.is_final), (end, false));
    }
}

#[test]
fn each_damaged_committed_word_is_told() {
    let (image, _) = image();
    let at = directory_at(&image);
    let whole = find(&SimRegion::from_image(image.clone(), Mode::Adr));
    whole.check_committed(None).unwrap();
    whole.check_committed(Some(SeqNo(9))).unwrap();
    assert!(whole.check_committed(Some(SeqNo(8))).is_err());
    for line in [0, 64] {
        let directory = find(&with_bit(&image, at + line + 3, 1));
        let error = directory.check_committed(None).unwrap_err();
        let place = format!("damaged at byte {}", at + line);
        assert!(error.to_string().contains(&place), "{error}");
    }
}

#[test]
fn rotten_lengths_do_not_lead_out_of_a_buffer() {
    let (image, named) = image();
    let base = named.extent.offset.get() as usize;
    let world = reopened(SimRegion::from_image(image.clone(), Mode::Adr)).unwrap();
    let (entries, end) = walked_from(&world, &named, 0).unwrap();
    let (number, at) = entries[7];
    // The lengths of value and key.
    for bit in 16 * 8..22 * 8 {
        let place = base + at as usize + bit / 8;
        let world = reopened(with_bit(&image, place, bit as u32 % 8)).unwrap();
        let (id, line, extent) = (named.id, named.line, named.extent);
        let buffer = PmBuffer::new(world.pool.clone(), id, line, extent, end).unwrap();
        let error = buffer.value(at, SeqNo(number)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains("write buffer 7"), "{error}");
    }
}

/// The bytes of a buffer of entries 1 to 3 that `seal` changed after they were completed.
fn lying(change: impl Fn(&mut layout::EntryHeader)) -> Result<u64> {
    let world = World::new(64 << 10);
    let buffer = world.buffer(7, 1);
    world.group(&[(&buffer, 1..=1)]);
    let (at, mut bytes) = (buffer.end(), staged(2..=2));
    let salt = layout::EntrySalt::new(&UUID, FileId(7));
    let mut bytes = bytes.complete(salt, at, SeqNo(2)).to_vec();
    let mut header = layout::EntryHeader::decode(&bytes).unwrap();
    change(&mut header);
    bytes[..ENTRY_HEADER_BYTES].copy_from_slice(&header.encode());
    salt.seal(at, &mut bytes[..header.head_bytes()]);
    let mut image = world.sim.durable();
    let place = (all_named(&world.directory)[0].extent.offset.get() + at) as usize;
    image[place..place + bytes.len()].copy_from_slice(&bytes);
    let world = reopened(SimRegion::from_image(image, Mode::Adr)).unwrap();
    let named = all_named(&world.directory)[0];
    walk(&world.pool, &named, 0, SeqNo(9), |_| Ok(()))
}

#[test]
fn an_entry_that_lies_under_a_right_checksum_is_damage() {
    let whole = lying(|_| {}).unwrap();
    assert!(whole > 0);
    let refused = |change: fn(&mut layout::EntryHeader)| {
        let error = lying(change).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains("of a known kind"), "{error}");
    };
    refused(|header| header.tag = Tag(2 << 8 | 77));
    refused(|header| header.tag = Tag(1));
    refused(|header| header.zero = 1);
    refused(|header| header.value_len = 5000);
    refused(|header| header.value_len = u32::MAX);
}

#[test]
fn bytes_of_another_buffer_are_no_entries() {
    let world = World::new(64 << 10);
    let first = world.buffer(7, 1);
    world.group(&[(&first, 1..=9)]);
    let extent = all_named(&world.directory)[0].extent;
    world.directory.remove(&[first.line()]).unwrap();
    first.free().unwrap();
    let second = world.buffer(8, 1);
    let named = all_named(&world.directory)[0];
    assert_eq!(
        (named.id, named.extent),
        (FileId(8), extent),
        "the same place"
    );
    assert_eq!(walked(&world, &named).unwrap(), (Vec::new(), 0));
    // An entry of the same length as the first that was there, before the others.
    let mut entries = StagedEntries::default();
    let (_, key, value) = entry(1);
    entries.add(Kind::Put, &key, &value);
    let (_, flushed) = second.append(&mut entries, SeqNo(1)).unwrap();
    let fenced = world.pool.fence(&TEST, flushed);
    second.reveal(&fenced);
    assert_eq!(walked(&world, &named).unwrap(), (vec![1], second.end()));
    // The old id would still find the others: only the ids tell them apart.
    let old = NamedBuffer {
        id: FileId(7),
        ..named
    };
    let (found, _) = walked_from(&world, &old, second.end()).unwrap();
    assert_eq!(found.len(), 8);
    // The same bytes at another place, or in the pool of another database, are no entries either.
    let salt = layout::EntrySalt::new(&UUID, FileId(7));
    let mut entries = staged(1..=1);
    let head = entries.complete(salt, 64, SeqNo(1));
    let head = &head[..ENTRY_HEADER_BYTES + entry(1).1.len()];
    assert!(salt.is_entry(64, head) && !salt.is_entry(128, head));
    for byte in 0..16 {
        let mut uuid = UUID;
        uuid[byte] ^= 1;
        assert!(!layout::EntrySalt::new(&uuid, FileId(7)).is_entry(64, head));
    }
}

#[test]
fn a_final_end_stops_a_walk_and_one_that_lies_is_noticed() {
    let (image, named) = image();
    let world = reopened(SimRegion::from_image(image, Mode::Adr)).unwrap();
    let (entries, end) = walked_from(&world, &named, 0).unwrap();
    let noted = |note_end: u64| {
        let note = final_note(&named, SeqNo(9), note_end);
        world.directory.note(&[note]).unwrap();
        let named = all_named(&world.directory)[0];
        assert!(named.is_final && named.end == note_end);
        walked(&world, &named)
    };
    for (count, &(_, at)) in entries.iter().enumerate() {
        let wanted: Vec<u64> = (1..=count as u64).collect();
        assert_eq!(noted(at).unwrap(), (wanted, at));
    }
    assert_eq!(noted(end).unwrap().0.len(), 9);
    for wrong in [end + 8, entries[3].1 + 8, G] {
        let error = noted(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
    // An end outside the extent is no end.
    let note = final_note(&named, SeqNo(9), G + 8);
    world.directory.note(&[note]).unwrap();
    let error = world.directory.named().unwrap().remove(0).unwrap_err();
    assert!(error.to_string().contains("inside its extent"), "{error}");
}

#[test]
fn a_line_with_an_extent_outside_the_pool_is_an_error_in_its_place() {
    let world = World::new(64 << 10);
    let first = world.buffer(7, 1);
    let line = layout::Line {
        id: FileId(9),
        extent: Extent::new(32 << 10, 64 << 10),
        through: SeqNo(0),
        end: 0,
        is_final: false,
    };
    let mut image = world.sim.durable();
    let at = directory_at(&image) + 2 * 64 + 64;
    image[at..at + 8].copy_from_slice(&layout::id_word(FileId(9)).to_le_bytes());
    image[at + 8..at + 64].copy_from_slice(&line.payload(&UUID, 1));
    let directory = find(&SimRegion::from_image(image, Mode::Adr));
    let named = directory.named().unwrap();
    assert_eq!(named.len(), 2);
    assert_eq!(named[0].as_ref().unwrap().id, first.id());
    let error = named[1].as_ref().unwrap_err();
    assert!(error.to_string().contains("inside the pool"), "{error}");
    // The line is not free, and can be removed.
    let extent = Extent::new(48 << 10, G);
    assert_eq!(
        directory.name(FileId(10), extent, SeqNo(0)).unwrap(),
        Some(2)
    );
    directory.remove(&[1]).unwrap();
    assert_eq!(
        directory.name(FileId(11), extent, SeqNo(0)).unwrap(),
        Some(1)
    );
}
