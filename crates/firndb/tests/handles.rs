//! A process with few file handles and many threads: no read or write fails for lack of a handle.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::PROCESS;
use firndb::{Db, Options, Profile};
use std::path::Path;
use std::process::Command;

const CHILD: &str = "FIRN_TEST_FEW_HANDLES";
const READERS: u64 = 400;
const WRITERS: u64 = 4;
const KEYS: u64 = 4000;

/// Runs itself again with 256 handles.
#[test]
fn hundreds_of_readers_with_256_handles() {
    if let Some(dir) = std::env::var_os(CHILD) {
        Profile::ALL
            .into_iter()
            .for_each(|profile| share(Path::new(&dir), profile));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let me = std::env::current_exe().unwrap();
    let ran = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 256 && exec \"$0\" --exact hundreds_of_readers_with_256_handles --nocapture",
        ])
        .arg(me)
        .env(CHILD, dir.path())
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Readers of many small tables, of which only a few may be open at once, beside writers that
/// create more.
fn share(dir: &Path, profile: Profile) {
    let options = Options::default()
        .profile(profile)
        .memory_limit_bytes(64 << 20)
        .write_buffer_bytes(Some(256 << 10));
    let db = Db::open(dir.join(profile.to_string()), options).unwrap();
    let write = |from: u64, round: u64| {
        (from..KEYS).step_by(WRITERS as usize).for_each(|number| {
            let value = [number.to_be_bytes(), round.to_be_bytes()]
                .concat()
                .repeat(32);
            db.put_with(key(number), value, &PROCESS).unwrap();
        });
    };
    (0..WRITERS).for_each(|writer| write(writer, 0));
    db.flush().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let write = &write;
            scope.spawn(move || (1..6).for_each(|round| write(writer, round)));
        }
        for reader in 0..READERS {
            let db = &db;
            scope.spawn(move || {
                for i in 0..50 {
                    let number = (reader * 31 + i * 97) % KEYS;
                    let value = db.get(key(number)).unwrap().unwrap();
                    assert_eq!(value[..8], key(number));
                }
                let keys: Vec<[u8; 8]> = (0..20)
                    .map(|i| key((reader * 7 + i * 191) % KEYS))
                    .collect();
                assert!(db.multi_get(&keys).unwrap().iter().all(Option::is_some));
                let mut iter = db.cursor().unwrap();
                iter.seek(key(reader * 9)).unwrap();
                for number in (reader * 9)..KEYS.min(reader * 9 + 50) {
                    assert_eq!(iter.key(), key(number));
                    iter.next().unwrap();
                }
            });
        }
    });
    db.verify().unwrap();
    db.close().unwrap();
}
