//! Suite pm_align, the memory: every alignment times every payload, by every way of writing, byte for byte.

use super::*;
use firn_base::site::TEST;

fn region() -> Region {
    Region::volatile(1 << 14).unwrap()
}

#[test]
fn every_alignment() {
    let payload: Vec<u8> = (0..192u32).map(|i| (i * 31 + 1) as u8).collect();
    let mut flushing = region();
    // Plain memory, with the instructions that a medium would need.
    flushing.how = arch::best_flush();
    for region in [&region(), &flushing] {
        for offset in 0..64u64 {
            for len in 0..=192usize {
                let bytes = &payload[..len];
                for way in 0..3 {
                    region.store(0, &[0xcc; 512]).unwrap();
                    match way {
                        0 => region.store(64 + offset, bytes).unwrap(),
                        1 => region.stream(64 + offset, &[bytes]).unwrap(),
                        _ => {
                            let (a, b) = bytes.split_at(len / 3);
                            region.stream(64 + offset, &[a, &[], b]).unwrap();
                        }
                    }
                    region.flush(&TEST, 64 + offset, len as u64).unwrap();
                    region.fence(&TEST);
                    let mut all = [0u8; 512];
                    region.read(0, &mut all).unwrap();
                    let (start, end) = (64 + offset as usize, 64 + offset as usize + len);
                    assert_eq!(&all[start..end], bytes, "way {way} offset {offset} len {len}");
                    assert!(all[..start].iter().chain(&all[end..]).all(|&b| b == 0xcc), "way {way} {offset}+{len}");
                    let mut part = vec![0u8; len];
                    region.read(64 + offset, &mut part).unwrap();
                    assert_eq!(part, bytes);
                }
            }
        }
    }
}

#[test]
fn nothing_outside() {
    let region = region();
    for (at, len) in [(1 << 14, 1), ((1 << 14) - 1, 2), (u64::MAX, 1), (u64::MAX - 3, 8), (1 << 40, 64)] {
        let mut out = vec![0u8; len];
        assert_eq!(region.read(at, &mut out).unwrap_err().kind(), ErrorKind::Corruption);
        assert_eq!(region.store(at, &out).unwrap_err().kind(), ErrorKind::Corruption);
        assert!(region.borrow(at, len as u64).is_err());
    }
    assert!(region.load_u64((1 << 14) - 4).is_err());
    assert!(region.load_u64(12).is_err(), "unaligned");
    assert!(region.store_u64(12, 1).is_err(), "unaligned");
}

#[test]
fn words_are_atomic() {
    let region = region();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20_000u64 {
                region.store_u64(128, round | round << 32).unwrap();
            }
        });
        for _ in 0..20_000 {
            let word = region.load_u64(128).unwrap();
            assert_eq!(word as u32, (word >> 32) as u32);
        }
    });
}

#[test]
fn growing_keeps_what_was_borrowed() {
    let region = region();
    region.store(4096, b"snow").unwrap();
    let before = region.borrow(4096, 4).unwrap();
    region.grow(1 << 20).unwrap();
    assert_eq!(region.len(), 1 << 20);
    assert_eq!(before, b"snow");
    assert_eq!(region.borrow(4096, 4).unwrap(), b"snow");
    assert_ne!(before.as_ptr(), region.borrow(4096, 4).unwrap().as_ptr());
    region.store((1 << 20) - 8, &[1; 8]).unwrap();
}
