//! kill -9: a child process writes with four threads and notes each acknowledgement; it is killed at a random moment,
//! and what it was told must be there.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firn_base::seed::Seed;
use firndb::{Backend, Db, Durability, Options, PmConfig, WriteBatch, WriteOptions};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const THREADS: u64 = 4;
const DIR: &str = "FIRN_KILL9_DIR";
const POOL: &str = "FIRN_KILL9_POOL";

fn options(pool: bool, dir: &Path) -> Options {
    let pm = pool.then(|| PmConfig::at(dir.join("pool"), Backend::Emulated, 256 << 10));
    Options { pm, ..Options::tiny() }
}

fn keys(thread: u64, i: u64) -> [Vec<u8>; 2] {
    [format!("{thread}/{:08}/a", i % 5000).into_bytes(), format!("{thread}/{:08}/b", i % 5000).into_bytes()]
}

fn value(thread: u64, i: u64) -> Vec<u8> {
    let mut value = vec![0; 20 + (i % 300) as usize];
    Seed::new(thread << 40 | i).fill(&mut value);
    value[..8].copy_from_slice(&i.to_be_bytes());
    value
}

/// Not a test by itself: what the killed process runs. Each thread goes on from where the last process was told.
#[test]
fn child() {
    let Ok(dir) = std::env::var(DIR).map(PathBuf::from) else { return };
    let db = Db::open(dir.join("db"), options(std::env::var(POOL).is_ok(), &dir)).unwrap();
    let known = acknowledged(&dir);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, dir, from) = (&db, &dir, known.get(&thread).map_or(0, |i| i + 1));
            scope.spawn(move || {
                let path = dir.join(format!("acks{thread}"));
                let mut acks = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
                for i in from.. {
                    let mut batch = WriteBatch::new();
                    for key in keys(thread, i) {
                        batch.put(key, value(thread, i));
                    }
                    let durability = if i % 7 == 0 { Durability::Power } else { Durability::Process };
                    db.write(batch, &WriteOptions { durability }).unwrap();
                    acks.write_all(&i.to_le_bytes()).unwrap();
                }
            });
        }
    });
}

/// The last acknowledgement of each thread.
fn acknowledged(dir: &Path) -> HashMap<u64, u64> {
    let last = |thread: u64| {
        let bytes = std::fs::read(dir.join(format!("acks{thread}"))).ok()?;
        let whole = bytes.len() / 8 * 8;
        let last = bytes.get(whole.checked_sub(8)?..whole)?;
        Some((thread, u64::from_le_bytes(last.try_into().unwrap())))
    };
    (0..THREADS).filter_map(last).collect()
}

fn check(db: &Db, known: &HashMap<u64, u64>) {
    for (&thread, &last) in known {
        // The write after the last acknowledged one may be there or not; those before it must.
        for i in last.saturating_sub(4999)..=last {
            let [a, b] = keys(thread, i).map(|key| db.get(key).unwrap().map(|v| v.to_vec()));
            assert_eq!(a, b, "half a batch: thread {thread}, write {i}");
            let found = a.map(|v| u64::from_be_bytes(v[..8].try_into().unwrap()));
            let overwritten = found == Some(last + 1) && (last + 1) % 5000 == i % 5000;
            assert!(found == Some(i) || overwritten, "thread {thread}: write {i} of {last} reads {found:?}");
            if found == Some(i) {
                assert_eq!(db.get(&keys(thread, i)[0]).unwrap().unwrap(), value(thread, i));
            }
        }
    }
}

fn kill_and_check(rounds: u64, pool: bool) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let mut seed = Seed::new(u64::from(pool));
    for round in 0..rounds {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "--exact", "--nocapture"]).env(DIR, dir);
        if pool {
            command.env(POOL, "1");
        }
        let before: u64 = acknowledged(dir).values().sum();
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        // At a number of acknowledgements, not at a time: now and then at none, which is in the recovery.
        let target = before + if seed.one_in(4) { 0 } else { seed.below(3000) };
        while acknowledged(dir).values().sum::<u64>() < target {
            assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let known = acknowledged(dir);
        let db = Db::open(dir.join("db"), options(pool, dir)).unwrap();
        check(&db, &known);
        if round % 4 == 0 {
            db.verify().unwrap();
        }
        drop(db);
    }
}

fn rounds() -> u64 {
    if std::env::var("FIRN_TESTS").is_ok_and(|tier| tier == "ci") { 60 } else { 6 }
}

#[test]
fn what_was_acknowledged_survives() {
    kill_and_check(rounds(), false);
}

#[test]
fn what_was_acknowledged_survives_with_a_pool() {
    kill_and_check(rounds(), true);
}
