//! Directories that do not hold a database, and damaged databases: side effects, messages and exit
//! codes of `firn`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn firn(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firn"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file());
    files
        .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
        .collect()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn no_verb_touches_a_directory_of_something_else() {
    let root = tempfile::tempdir().unwrap();
    let theirs = root.path().join("theirs");
    std::fs::create_dir(&theirs).unwrap();
    for (name, bytes) in [
        ("CURRENT", "MANIFEST-000003\n"),
        ("MANIFEST-000003", "x"),
        ("000123.log", "s"),
        ("OPTIONS", "o"),
    ] {
        std::fs::write(theirs.join(name), bytes).unwrap();
    }
    let before = contents(&theirs);
    let db = text(&theirs);
    let verbs: [&[&str]; 6] = [
        &["put", db, "k", "v"],
        &["get", db, "k"],
        &["repair", db],
        &["repair", "--dry-run", db],
        &["verify", db],
        &["compact", db],
    ];
    for verb in verbs {
        let output = firn(verb);
        assert_eq!(
            output.status.code(),
            Some(3),
            "{verb:?}: {}",
            error(&output)
        );
        assert!(
            error(&output).contains("no FirnDB database"),
            "{verb:?}: {}",
            error(&output)
        );
        assert_eq!(contents(&theirs), before, "{verb:?}");
    }
}

#[test]
fn parents_are_made_when_that_is_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let db = root.path().join("a/b");
    let output = firn(&["put", text(&db), "k", "v"]);
    assert_eq!(output.status.code(), Some(8), "{}", error(&output));
    assert!(
        error(&output).contains("--create-parents"),
        "{}",
        error(&output)
    );
    assert!(!root.path().join("a").exists());
    assert!(
        firn(&["put", "--create-parents", text(&db), "k", "v"])
            .status
            .success()
    );
    assert_eq!(firn(&["get", text(&db), "k"]).stdout, b"v");
}

/// `verify` lists each damaged block with its keys. A dry run changes nothing. The exit code of a
/// repair says that not everything was recovered, and its message says where the rest is.
#[test]
fn damage_is_listed_and_a_repair_says_what_it_set_aside() {
    let root = tempfile::tempdir().unwrap();
    let db = root.path().join("db");
    {
        let open = firndb::Db::open(&db, firndb::Options::default()).unwrap();
        (0..2_000_u32).for_each(|i| open.put(format!("key{i:05}"), [i as u8; 500]).unwrap());
        open.flush().unwrap();
        open.close().unwrap();
    }
    let table = contents(&db)
        .into_keys()
        .find(|path| path.extension().is_some_and(|kind| kind == "sst"))
        .unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    let (one, other) = (bytes.len() / 4, bytes.len() / 2);
    bytes[one] ^= 1;
    bytes[other] ^= 1;
    std::fs::write(&table, &bytes).unwrap();
    let output = firn(&["verify", text(&db)]);
    assert_eq!(output.status.code(), Some(4), "{}", error(&output));
    let listed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        listed
            .lines()
            .filter(|line| line.contains("keys from key"))
            .count(),
        2,
        "{listed}"
    );

    let before = contents(&db);
    let output = firn(&["repair", "--dry-run", text(&db)]);
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    assert!(error(&output).contains("would be"), "{}", error(&output));
    assert_eq!(contents(&db), before);

    let output = firn(&["repair", text(&db)]);
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    let name = table.file_name().unwrap().to_str().unwrap();
    assert!(
        error(&output).contains(name) && error(&output).contains("lost"),
        "{}",
        error(&output)
    );
    assert_eq!(std::fs::read(db.join("lost").join(name)).unwrap(), bytes);
    assert!(firn(&["verify", text(&db)]).status.success());
    assert!(
        firn(&["repair", text(&db)]).status.success(),
        "nothing is lost any more"
    );
}

/// While another process has the database open, `verify` finds no damage in a sound one, and a
/// checkpoint is a consistent copy.
#[test]
fn verify_and_checkpoint_beside_a_writer() {
    let root = tempfile::tempdir().unwrap();
    let db = root.path().join("db");
    let options = firndb::Options::default().write_buffer_bytes(Some(256 << 10));
    let open = firndb::Db::open(&db, options).unwrap();
    let put = |from: u32, to: u32| {
        (from..to).for_each(|i| open.put(format!("{i:06}"), [i as u8; 300]).unwrap())
    };
    put(0, 1_000);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                put(round % 10 * 1_000, (round % 10 + 1) * 1_000);
                open.compact().unwrap();
            }
        });
        for round in 0..5 {
            let output = firn(&["verify", text(&db)]);
            // Data that is no longer available is reported as changed, never as damaged.
            assert_ne!(output.status.code(), Some(4), "{}", error(&output));
            let copy = root.path().join(format!("copy{round}"));
            let output = firn(&["checkpoint", text(&db), text(&copy)]);
            if output.status.success() {
                let copied = firndb::Db::open(&copy, firndb::Options::default()).unwrap();
                copied.verify().unwrap();
                assert_eq!(copied.get(b"000999").unwrap().unwrap(), [231; 300]);
            } else {
                assert!(error(&output).contains("try again"), "{}", error(&output));
                assert!(!copy.exists(), "a checkpoint that failed leaves nothing");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
