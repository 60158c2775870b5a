//! `memory_limit_bytes` with values that are large compared with it, measured by the system. Each
//! case runs in its own process, which reports the peak resident memory of each phase.
//!
//! The allowance is `memory_limit_bytes` and a tenth, or and two values if that is more
//! (docs/memory.md). It once took 1,100 to 1,500 MiB under a limit of 64: a compaction had up to
//! four blocks of each of its tables in memory, a cursor had one, and freed memory stayed with the
//! allocator.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::memory::{PROCESS_BYTES, reset_resident_peak, resident_peak};
use self::rig::{PROCESS, is_ci};
use firn_base::seed::mix;
use firndb::{Codec, Db, Options, Profile};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// The environment variable that gives a child its case.
const CASE: &str = "FIRN_LARGE_VALUES";
const MIB: u64 = 1 << 20;

#[derive(Clone, Copy)]
struct Case {
    profile: Profile,
    limit: u64,
    value_bytes: u64,
    writes: u64,
    keys: u64,
    codec: Codec,
}

/// Runs `work` and reports the peak resident bytes.
fn phase<T>(name: &str, work: impl FnOnce() -> T) -> T {
    reset_resident_peak();
    let start = std::time::Instant::now();
    let made = work();
    println!(
        "phase {name} {} {:.1}",
        resident_peak(),
        start.elapsed().as_secs_f64()
    );
    made
}

impl Case {
    fn options(&self) -> Options {
        let (profile, memory_limit_bytes, compression) = (self.profile, self.limit, self.codec);
        let mut options = Options::default()
            .profile(profile)
            .memory_limit_bytes(memory_limit_bytes)
            .compression(compression);
        if self.codec == Codec::None {
            // All of it goes into the trees, and is evicted from there.
            options.tuning.lab.reuse_min = 0.0;
        }
        options
    }

    /// A value that does not compress, or that compresses to almost nothing if compression is on.
    fn value(&self) -> Vec<u8> {
        let word = |i: u64| if self.codec == Codec::None { mix(i) } else { 7 };
        (0..self.value_bytes.div_ceil(8))
            .flat_map(|i| word(i).to_le_bytes())
            .collect()
    }

    fn put(&self, db: &Db, numbers: std::ops::Range<u64>, value: &mut [u8]) {
        for i in numbers {
            value[..8].copy_from_slice(&i.to_le_bytes());
            db.put_with((mix(i) % self.keys).to_be_bytes(), &*value, &PROCESS)
                .unwrap();
        }
    }

    fn read(&self, db: &Db) {
        phase("backwards", || {
            let mut iter = db.cursor().unwrap();
            iter.last().unwrap();
            let mut count = 0;
            while iter.valid() {
                assert_eq!(
                    iter.value().len() as u64,
                    self.value_bytes.next_multiple_of(8)
                );
                count += 1;
                iter.prev().unwrap();
            }
            assert!(count > self.keys / 2 && count <= self.keys);
        });
        phase("gets", || {
            (0..self.keys).for_each(|key| drop(db.get(key.to_be_bytes()).unwrap()))
        });
        phase("forwards", || {
            let mut iter = db.cursor().unwrap();
            iter.first().unwrap();
            while iter.valid() {
                iter.next().unwrap();
            }
        });
    }

    /// Runs the phases, in the child.
    fn run(&self, dir: &Path) {
        let mut value = self.value();
        let db = phase("open", || Db::open(dir, self.options()).unwrap());
        phase("load", || self.put(&db, 0..self.writes, &mut value));
        phase("wait_idle", || db.wait_idle().unwrap());
        phase("compact", || db.compact().unwrap());
        phase("more", || {
            self.put(&db, self.writes..self.writes * 5 / 4, &mut value)
        });
        self.read(&db);
        phase("last", || self.put(&db, 0..3, &mut value));
        // The reopen replays its logs.
        phase("drop", || drop(db));
        let db = phase("reopen", || Db::open(dir, self.options()).unwrap());
        self.read(&db);
        phase("close", || db.close().unwrap());
    }

    /// Runs the case in a child and checks its report.
    fn check(&self) {
        let dir = tempfile::tempdir().unwrap();
        let Case {
            profile,
            limit,
            value_bytes,
            writes,
            keys,
            codec,
        } = *self;
        let case = format!(
            "{profile} {limit} {value_bytes} {writes} {keys} {} {}",
            codec as u8,
            dir.path().display()
        );
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child
            .args(["child", "--exact", "--nocapture"])
            .env(CASE, &case)
            .stdout(Stdio::piped());
        let output = child.output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{case}: {told}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // The value that the child writes, and the one that a get or a cursor returned, do not
        // belong to the database. A value that compresses is in memory once more while a flush and
        // a compaction of such values run at the same time.
        let values = if codec == Codec::None { 2 } else { 3 };
        let of_child = 2 * value_bytes + PROCESS_BYTES;
        let most = limit + (limit / 10).max(values * value_bytes) + of_child;
        let phases = told
            .lines()
            .filter_map(|line| line.split_once("phase "))
            .map(|(_, phase)| phase);
        for phase in phases {
            let parts: Vec<&str> = phase.split(' ').collect();
            let peak: u64 = parts[1].parse().unwrap();
            println!(
                "{case}: {}: {} MiB of {} in {} s",
                parts[0],
                peak / MIB,
                most / MIB,
                parts[2]
            );
            assert!(
                peak <= most,
                "{case}: {peak} bytes were resident in phase {}, {most} are allowed",
                parts[0]
            );
        }
        assert!(told.contains("phase close"), "{told}");
    }
}

#[test]
fn child() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    let parts: Vec<&str> = case.split(' ').collect();
    let number = |i: usize| parts[i].parse::<u64>().unwrap();
    let profile = Profile::ALL
        .into_iter()
        .find(|profile| profile.to_string() == parts[0])
        .unwrap();
    let codec = if number(5) == 0 {
        Codec::None
    } else {
        Codec::Lz4
    };
    let (limit, value_bytes, writes, keys) = (number(1), number(2), number(3), number(4));
    Case {
        profile,
        limit,
        value_bytes,
        writes,
        keys,
        codec,
    }
    .run(Path::new(parts[6]));
}

/// The cases of `profile`: those of every change, and with `all` those of CI.
fn cases(profile: Profile, all: bool) -> Vec<Case> {
    let large = Case {
        profile,
        limit: 64 * MIB,
        value_bytes: 14_000_000,
        writes: 40,
        keys: 15,
        codec: Codec::None,
    };
    let small = Case {
        value_bytes: 1_000_000,
        writes: 300,
        keys: 120,
        ..large
    };
    let mut cases = vec![large, small];
    if all {
        let codec = Codec::Lz4;
        cases.extend([Case { codec, ..large }, Case { codec, ..small }]);
        cases.push(Case {
            limit: 512 * MIB,
            value_bytes: 100_000_000,
            writes: 14,
            keys: 6,
            ..large
        });
    }
    cases
}

/// Two children run at a time, because each measures itself.
#[test]
fn stays_within_the_limit() {
    let ci = is_ci();
    let profiles = if ci {
        &Profile::ALL[..]
    } else {
        &[Profile::Classic]
    };
    let cases = profiles.iter().flat_map(|&profile| cases(profile, ci));
    let queue = Mutex::new(cases);
    let work = || {
        loop {
            let case = queue.lock().unwrap().next();
            let Some(case) = case else { return };
            case.check();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}
