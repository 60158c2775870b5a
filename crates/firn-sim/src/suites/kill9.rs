//! Suite kill9: real processes on real files. A child writes with four threads and records each
//! acknowledgement in a file. It is killed after some number of them, or ends itself at a site,
//! possibly during its recovery. Every acknowledged write must then exist.
//!
//! The child is the program `kill9_child`; the caller of the suite sets its path with
//! [`set_child`]. With `FIRN_DAX`, a directory on real DAX, everything is placed there and pools
//! use the backend `dax`.
#![allow(clippy::unwrap_used, reason = "a suite stops at the first surprise")]

use crate::mutants::sites;
use crate::setup::kind;
use crate::tally::Tally;
use firn_base::exec;
use firn_base::seed::{Seed, mix};
use firn_base::site;
use firndb::{Backend, Db, Durability, Options, PmConfig, Profile, WriteBatch, WriteOptions};
use std::collections::HashMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

const THREADS: u64 = 4;
/// The number of writes after which a thread writes its keys again.
const KEYS: u64 = 5000;
const KILLS: u64 = 5;
const DAX: &str = "FIRN_DAX";

/// A profile, and whether it has a pool.
type Kind = (Profile, bool);

static CHILD: OnceLock<PathBuf> = OnceLock::new();

/// Sets the path of the program `kill9_child`.
pub fn set_child(path: impl Into<PathBuf>) {
    CHILD.get_or_init(|| path.into());
}

/// Kills several processes, one after the other, on one database. If a write is missing, the
/// directory stays, because the seed does not decide how far real threads come.
pub(crate) fn kill9(seed: u64) -> Tally {
    let root = std::env::var_os(DAX)
        .map_or_else(tempfile::tempdir, tempfile::tempdir_in)
        .unwrap();
    let killed = catch_unwind(AssertUnwindSafe(|| kill_in(&root, seed)));
    // The panic that ends here has been printed.
    killed.unwrap_or_else(|_| panic!("the files are kept in {}", root.keep().display()))
}

fn kill_in(root: &TempDir, seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    let kind = kind(&mut random);
    for round in 0..KILLS {
        let before = acknowledged(root.path()).values().sum::<u64>();
        let status = match random.one_in(2) {
            true => at_a_site(root.path(), kind, &mut random),
            false => at_an_acknowledgement(root.path(), kind, before, &mut random),
        };
        if status.is_some_and(|status| status.success()) {
            continue;
        }
        tally.kills += 1;
        let known = acknowledged(root.path());
        let db = Db::open(root.path().join("db"), options(kind, root.path())).unwrap();
        check(&db, &known);
        if round % 4 == 0 {
            db.verify().unwrap();
        }
        tally.recovered(mix(seed ^ mix(round)));
    }
    tally
}

fn spawn(dir: &Path, (profile, pool): Kind, site: Option<(&str, u64)>) -> Child {
    let mut command = Command::new(
        CHILD
            .get()
            .expect("whoever runs the suite says where its child is"),
    );
    command
        .arg(dir)
        .arg(profile.to_string())
        .arg(pool.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some((name, count)) = site {
        command.arg(name).arg(count.to_string());
    }
    command.spawn().unwrap()
}

/// The child ends itself at a site, sometimes at the first pass, which is during its recovery.
fn at_a_site(dir: &Path, kind: Kind, random: &mut Seed) -> Option<ExitStatus> {
    let all = sites();
    let site = all[random.below(all.len() as u64) as usize];
    let reach = 1 << random.below(10);
    let mut child = spawn(dir, kind, Some((site.name(), 1 + random.below(reach))));
    Some(child.wait().unwrap())
}

/// The child is killed at a number of acknowledgements, not at a time; sometimes at none, during
/// its recovery.
fn at_an_acknowledgement(
    dir: &Path,
    kind: Kind,
    before: u64,
    random: &mut Seed,
) -> Option<ExitStatus> {
    let mut child = spawn(dir, kind, None);
    let target = before
        + if random.one_in(4) {
            0
        } else {
            random.below(3000)
        };
    while acknowledged(dir).values().sum::<u64>() < target {
        assert!(
            child.try_wait().unwrap().is_none(),
            "the child ended by itself"
        );
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// The main function of the child: `DIR PROFILE POOL [SITE COUNT]`. Each thread continues after the
/// last acknowledgement of the previous process, until it has written enough.
pub fn kill9_child(arguments: &[String]) {
    const USAGE: &str = "kill9_child DIR PROFILE POOL [SITE COUNT]";
    let [dir, profile, pool, site @ ..] = arguments else {
        panic!("usage: {USAGE}")
    };
    let (dir, kind) = (Path::new(dir), (profile.parse().unwrap(), pool == "true"));
    if let [name, count] = site {
        let site = sites()
            .into_iter()
            .find(|site| site.name() == name)
            .expect("a site of this name");
        site::die_at(site, count.parse().unwrap());
    }
    let db = Db::open(dir.join("db"), options(kind, dir)).unwrap();
    let known = acknowledged(dir);
    let start = |thread: u64| {
        let (db, dir) = (db.clone(), dir.to_owned());
        let from = known.get(&thread).map_or(0, |last| last + 1);
        // With a site the process ends by itself, either there or once it has written enough.
        let until = if site.is_empty() {
            u64::MAX
        } else {
            from + 300
        };
        exec::spawn(&format!("writer-{thread}"), move || {
            write(&db, &dir, thread, from..until)
        })
        .unwrap()
    };
    let writers: Vec<_> = (0..THREADS).map(start).collect();
    writers
        .into_iter()
        .for_each(|writer| writer.join().unwrap());
}

fn write(db: &Db, dir: &Path, thread: u64, numbers: std::ops::Range<u64>) {
    let path = dir.join(format!("acks{thread}"));
    let mut acks = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    for number in numbers {
        let mut batch = WriteBatch::new();
        for key in keys(thread, number) {
            batch.put(key, value(thread, number));
        }
        let durability = if number % 7 == 0 {
            Durability::Power
        } else {
            Durability::Process
        };
        db.write(&batch, &WriteOptions::new().durability(durability))
            .unwrap();
        acks.write_all(&number.to_le_bytes()).unwrap();
    }
}

fn options((profile, pool): Kind, dir: &Path) -> Options {
    let backend = if std::env::var_os(DAX).is_some() {
        Backend::Dax
    } else {
        Backend::Emulated
    };
    let pm = pool.then(|| PmConfig::at(dir.join("pool"), backend, 256 << 10));
    let mut options = Options::tiny().profile(profile).pm(pm);
    // In profile `lab` every memtable goes into the trees in half of the processes.
    options.tuning.lab.reuse_min *= f64::from(std::process::id() % 2);
    options
}

fn keys(thread: u64, number: u64) -> [Vec<u8>; 2] {
    ["a", "b"].map(|name| format!("{thread}/{:08}/{name}", number % KEYS).into_bytes())
}

fn value(thread: u64, number: u64) -> Vec<u8> {
    let mut value = vec![0; 20 + (number % 300) as usize];
    Seed::new(thread << 40 | number).fill(&mut value);
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

/// The last acknowledgement of each thread.
fn acknowledged(dir: &Path) -> HashMap<u64, u64> {
    let last = |thread: u64| {
        let bytes = std::fs::read(dir.join(format!("acks{thread}"))).ok()?;
        let whole = bytes.len() / 8 * 8;
        let last = bytes.get(whole.checked_sub(8)?..whole)?;
        Some((thread, u64::from_le_bytes(last.try_into().ok()?)))
    };
    (0..THREADS).filter_map(last).collect()
}

/// Checks the contents. The write after the last acknowledged one may exist or not, but whole. All
/// writes before it must exist.
fn check(db: &Db, known: &HashMap<u64, u64>) {
    for (&thread, &last) in known {
        for number in last.saturating_sub(KEYS - 1)..=last {
            let [a, b] =
                keys(thread, number).map(|key| db.get(key).unwrap().map(|value| value.to_vec()));
            assert_eq!(a, b, "half a batch: thread {thread}, write {number}");
            let found = a
                .as_ref()
                .map(|value| u64::from_be_bytes(value[..8].try_into().unwrap()));
            let overwritten = found == Some(last + 1) && (last + 1) % KEYS == number % KEYS;
            assert!(
                found == Some(number) || overwritten,
                "thread {thread}: write {number} of {last} reads {found:?}"
            );
            assert!(
                overwritten || a == Some(value(thread, number)),
                "thread {thread}: write {number} is damaged"
            );
        }
    }
}
