//! The workloads of the benchmark in a row stay within `memory_limit_bytes` and a tenth, whatever
//! the sizes of the values: by an allocator that counts, and by the memory that the system says is
//! resident.
//!
//! Each case runs in its own process, which reports both peaks of each workload. A cache that had
//! rows of 1 KiB and then blocks of 4 KiB once grew to 1.5 times its limit, because freed pieces of
//! one size are of no use for another.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::memory::{ALLOCATED, Counting, PROCESS_BYTES, reset_resident_peak, resident_peak};
use self::rig::{PROCESS, is_ci};
use firn_base::seed::{Seed, mix};
use firndb::{Codec, Db, Options, Profile, Value};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The environment variable that gives a child its case.
const CASE: &str = "FIRN_WORKLOADS";
const LIMIT: u64 = 64 << 20;
const THREADS: u64 = 3;

/// The sizes of values: all the same, or drawn anew for each write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sizes {
    Fixed(usize),
    Changing,
}

impl Sizes {
    const ALL: [Sizes; 4] = [
        Sizes::Fixed(100),
        Sizes::Fixed(1 << 10),
        Sizes::Fixed(100 << 10),
        Sizes::Changing,
    ];

    fn draw(self, seed: &mut Seed) -> usize {
        match self {
            Sizes::Fixed(bytes) => bytes,
            // From 8 bytes to 32 KiB, each power of two as likely as the others.
            Sizes::Changing => 8 << seed.below(12) | seed.below(8) as usize,
        }
    }

    fn mean(self) -> u64 {
        match self {
            Sizes::Fixed(bytes) => bytes as u64,
            Sizes::Changing => 5 << 10,
        }
    }
}

/// A database, and the number of its keys.
struct Run {
    db: Db,
    sizes: Sizes,
    records: AtomicU64,
}

/// An operation of a workload.
#[derive(Clone, Copy)]
enum Op {
    Get,
    Put,
    Insert,
    Scan,
    ReadAndPut,
}

impl Run {
    /// A key, the first ones far more often than others.
    fn key(&self, seed: &mut Seed) -> [u8; 8] {
        let records = self.records.load(Ordering::Relaxed);
        let share = seed.below(1 << 20) as f64 / (1 << 20) as f64;
        mix((records as f64 * share.powi(4)) as u64).to_be_bytes()
    }

    fn put(&self, key: [u8; 8], seed: &mut Seed) {
        let value = vec![key[7]; self.sizes.draw(seed)];
        self.db.put_with(key, value, &PROCESS).unwrap();
    }

    fn get(&self, key: [u8; 8]) -> Option<Value> {
        let value = self.db.get(key).unwrap();
        assert!(
            value
                .iter()
                .flat_map(|value| value.iter())
                .all(|byte| *byte == key[7])
        );
        value
    }

    fn perform(&self, op: Op, seed: &mut Seed) {
        let key = self.key(seed);
        match op {
            Op::Get => _ = self.get(key),
            Op::Put => self.put(key, seed),
            Op::Insert => {
                let number = self.records.fetch_add(1, Ordering::Relaxed);
                self.put(mix(number).to_be_bytes(), seed);
            }
            Op::Scan => {
                let mut cursor = self.db.cursor().unwrap();
                cursor.seek(key).unwrap();
                for _ in 0..seed.below(100) {
                    cursor.next().unwrap();
                }
            }
            Op::ReadAndPut => {
                let held = self.get(key);
                self.put(key, seed);
                drop(held);
            }
        }
    }

    /// Performs `count` operations on several threads, one in `every` of them `rare`, and reports
    /// the peaks.
    fn phase(&self, name: &str, count: u64, (usual, rare, every): (Op, Op, u64)) {
        reset_resident_peak();
        ALLOCATED.reset_peak();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let mut seed = Seed::new(thread ^ mix(count));
                    for i in 0..count / THREADS {
                        let op = if i % every == 0 { rare } else { usual };
                        self.perform(op, &mut seed);
                    }
                });
            }
        });
        self.db.wait_idle().unwrap();
        let stats = self.db.stats().memory;
        assert!(
            stats.cache_bytes <= stats.cache_bytes_max,
            "{name}: {stats:?}"
        );
        println!("phase {name} {} {}", resident_peak(), ALLOCATED.peak());
    }

    /// Runs all phases, in the child.
    fn all(&self, records: u64) {
        let gets = records.max(2_000);
        self.phase("load", records, (Op::Insert, Op::Insert, 1));
        self.phase("a", gets, (Op::Get, Op::Put, 2));
        self.phase("b", gets, (Op::Get, Op::Put, 20));
        self.phase("c", 2 * gets, (Op::Get, Op::Get, 1));
        self.phase("d", gets, (Op::Get, Op::Insert, 20));
        self.phase("e", gets / 20, (Op::Scan, Op::Insert, 20));
        self.phase("f", gets, (Op::Get, Op::ReadAndPut, 2));
        self.phase("u", gets, (Op::Put, Op::Put, 1));
        self.phase("c-again", 2 * gets, (Op::Get, Op::Get, 1));
        self.phase("e-again", gets / 20, (Op::Scan, Op::Scan, 1));
        self.phase("a-again", gets, (Op::Get, Op::Put, 2));
    }
}

fn check(profile: Profile, sizes: Sizes) {
    let dir = tempfile::tempdir().unwrap();
    let at = Sizes::ALL.iter().position(|one| *one == sizes).unwrap();
    let case = format!("{profile} {at} {}", dir.path().display());
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child
        .args(["child", "--exact", "--nocapture"])
        .env(CASE, &case)
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {told}\n{complaint}");
    let most = LIMIT + LIMIT / 10;
    // Each thread has the value that it writes, and the one that it read.
    let of_child = PROCESS_BYTES + 2 * THREADS * 2 * sizes.mean();
    let mut phases = 0;
    for phase in told.lines().filter_map(|line| line.split_once("phase ")) {
        let parts: Vec<&str> = phase.1.split(' ').collect();
        let [resident, allocated] = [1, 2].map(|i| parts[i].parse::<u64>().unwrap());
        println!(
            "{profile} {sizes:?} {}: {} and {} MiB of {}",
            parts[0],
            resident >> 20,
            allocated >> 20,
            most >> 20
        );
        for bytes in [resident, allocated] {
            assert!(
                bytes <= most + of_child,
                "{profile} {sizes:?} {}: {bytes} bytes, {most} are allowed",
                parts[0]
            );
        }
        phases += 1;
    }
    assert_eq!(phases, 11, "{told}");
}

#[test]
fn child() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    let parts: Vec<&str> = case.split(' ').collect();
    let is_it = |profile: &Profile| profile.to_string() == parts[0];
    let profile = Profile::ALL.into_iter().find(is_it).unwrap();
    let sizes = Sizes::ALL[parts[1].parse::<usize>().unwrap()];
    let options = Options::default()
        .profile(profile)
        .memory_limit_bytes(LIMIT)
        .compression(Codec::None);
    let db = Db::open(Path::new(parts[2]).join("db"), options).unwrap();
    let records = AtomicU64::new(0);
    let run = Run { db, sizes, records };
    // More than the cache can hold.
    run.all(LIMIT / (sizes.mean() + 8));
    run.db.close().unwrap();
}

#[test]
fn all_workloads_stay_within_the_limit() {
    if is_ci() {
        let fixed = Sizes::ALL
            .into_iter()
            .filter(|sizes| *sizes != Sizes::Changing);
        fixed.for_each(|sizes| check(Profile::Classic, sizes));
        Profile::ALL
            .into_iter()
            .for_each(|profile| check(profile, Sizes::Changing));
    } else {
        check(Profile::Classic, Sizes::Changing);
    }
}
