//! Suite pm_align for the memory: every alignment and payload length, by every way of writing, byte
//! for byte.

use super::*;
use firn_base::site::TEST;

fn region() -> Region {
    Region::volatile(1 << 14).unwrap()
}

#[test]
fn every_alignment() {
    let payload: Vec<u8> = (0..192u32).map(|i| (i * 31 + 1) as u8).collect();
    let mut flushing = region();
    // Plain memory, with the instructions that a persistent medium would need.
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
                    assert_eq!(
                        &all[start..end],
                        bytes,
                        "way {way} offset {offset} len {len}"
                    );
                    assert!(
                        all[..start].iter().chain(&all[end..]).all(|&b| b == 0xcc),
                        "way {way} {offset}+{len}"
                    );
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
    for (at, len) in [
        (1 << 14, 1),
        ((1 << 14) - 1, 2),
        (u64::MAX, 1),
        (u64::MAX - 3, 8),
        (1 << 40, 64),
    ] {
        let mut out = vec![0u8; len];
        assert_eq!(
            region.read(at, &mut out).unwrap_err().kind(),
            ErrorKind::Corruption
        );
        assert_eq!(
            region.store(at, &out).unwrap_err().kind(),
            ErrorKind::Corruption
        );
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

#[test]
fn where_fallocate_is_not_supported_zeros_are_written() {
    use std::os::unix::fs::MetadataExt;
    let file = tempfile::tempfile().unwrap();
    file_with(&file, b"kept");
    let len = (1 << 20) + (3 << 12);
    open::allocate_as(
        Err(rustix::io::Errno::OPNOTSUPP),
        &crate::sites::PM_SPACE_SYNC,
        &file,
        len,
    )
    .unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.len(), len);
    assert!(
        metadata.blocks() * 512 >= len,
        "a hole of a full disk is a signal, not an error"
    );
    let mut start = [1; 8];
    Backing::read_at(&file, 0, &mut start).unwrap();
    assert_eq!(&start, b"kept\0\0\0\0");
    let full = open::allocate_as(
        Err(rustix::io::Errno::NOSPC),
        &crate::sites::PM_SPACE_SYNC,
        &file,
        2 * len,
    );
    assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(file.metadata().unwrap().len(), len);
}

fn file_with(file: &std::fs::File, bytes: &[u8]) {
    Backing::write_at(file, 0, bytes).unwrap();
}

/// A medium that cannot return the page at `bad`.
#[derive(Debug)]
struct Unreadable {
    bad: u64,
}

impl Backing for Unreadable {
    fn read_at(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        match (at..at + out.len() as u64).contains(&self.bad) {
            true => Err(rustix::io::Errno::IO.into()),
            false => Ok(()),
        }
    }

    fn write_at(&self, _at: u64, _bytes: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn extend(&self, _site: &'static Site, _len: u64) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_media_error_under_header_or_roots_is_an_error_that_says_where() {
    for bad in [0u64, 4096, 8192] {
        let error = open::probe(&Unreadable { bad }, Path::new("/mnt/pmem/pool")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(
            error.to_string().contains(&format!(
                "/mnt/pmem/pool is damaged at byte {bad}: the medium"
            )),
            "{error}"
        );
        // The file backend does not map the file, and reports the same error.
        let image = Region::file_image(
            Box::new(Unreadable { bad }),
            Path::new("/mnt/pool"),
            1 << 14,
        )
        .unwrap();
        assert_eq!(
            image.load_from_file(0, 3 << 12).unwrap_err().kind(),
            ErrorKind::Corruption
        );
    }
    open::probe(&Unreadable { bad: 12288 }, Path::new("/mnt/pmem/pool")).unwrap();
}

#[test]
fn a_device_does_not_grow() {
    let mut region = region();
    region.is_fixed = true;
    region.grow(1 << 14).unwrap();
    let error = region.grow(1 << 15).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error
            .to_string()
            .contains("is a device of 16384 bytes: no pool of 32768"),
        "{error}"
    );
}

#[test]
fn a_file_on_dax_is_zeros_in_whole_huge_pages() {
    use std::os::unix::fs::MetadataExt;
    let file = tempfile::tempfile().unwrap();
    let len = open::file_bytes(Kind::Dax, (2 << 20) + 4096);
    assert_eq!(
        (len, open::file_bytes(Kind::Emulated, 4096)),
        (4 << 20, 4096)
    );
    open::extend(&file, len, Kind::Dax, "the file").unwrap();
    let metadata = file.metadata().unwrap();
    assert!(metadata.len() == len && metadata.blocks() * 512 >= len);
}
