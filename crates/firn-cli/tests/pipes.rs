//! Streams as sources and targets, and loads ended by a signal.

mod firn;

use firn::Firn;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::path::PathBuf;

fn fifo(firn: &Firn) -> PathBuf {
    let path = firn.path("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a FIFO");
    path
}

/// Runs `script` in bash, with the command as `$0`.
fn bash(firn: &Firn, script: &str) -> firn::Ran {
    let mut command = std::process::Command::new("bash");
    let program = firn.command("load").get_program().to_owned();
    firn.try_command(
        command
            .args(["-c", script])
            .arg(program)
            .current_dir(firn.path(".")),
    )
}

#[test]
fn streams_of_every_kind_are_loaded() {
    for source in ["<(printf 'key,value\\na,1\\nb,2\\n')", "/dev/stdin", "-"] {
        let firn = Firn::new();
        let loaded = bash(
            &firn,
            &format!("printf 'key,value\\na,1\\nb,2\\n' | \"$0\" load db --csv {source}"),
        );
        assert_eq!(loaded.code, 0, "{source}: {}", loaded.stderr);
        assert_eq!(firn.run("scan", [""; 0]).text(), "a\t1\nb\t2\n");
    }
    let firn = Firn::new();
    firn.write("data", "key,value\na,1\n");
    assert_eq!(
        bash(&firn, "\"$0\" load db --csv /dev/stdin < data").code,
        0
    );
    assert_eq!(bash(&firn, "\"$0\" put db c --file <(printf 3)").code, 0);
    assert_eq!(firn.run("scan", [""; 0]).text(), "a\t1\nc\t3\n");
    let refused = firn.try_run("load", ["--csv", "."]);
    assert!(
        refused.code == 3 && refused.stderr.contains("--tree"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_stream_goes_on_when_it_is_given_again() {
    let firn = Firn::new();
    let path = fifo(&firn);
    let load = |text: &'static str| {
        let path = path.clone();
        let writer = std::thread::spawn(move || {
            // The load may end before it has read everything.
            let _may_be_closed = std::fs::write(path, text);
        });
        let ran = firn.try_run("load", ["--csv", "fifo"]);
        writer.join().expect("a writer");
        ran
    };
    assert_eq!(load("key,value\na,1\nb\nc,3\n").code, 3);
    let other = load("key,value\na,2\nb,2\nc,3\n");
    assert_eq!(other.code, 3, "{}", other.stderr);
    assert!(
        other.stderr.contains("fifo does not begin with the bytes"),
        "{}",
        other.stderr
    );
    assert!(
        other.stderr.contains("--restart") && !other.stderr.contains("seek"),
        "{}",
        other.stderr
    );
    let resumed = load("key,value\na,1\nb,2\nc,3\n");
    assert_eq!(resumed.code, 0, "{}", resumed.stderr);
    assert!(
        resumed.text().starts_with("loaded 2 records"),
        "{}",
        resumed.text()
    );
    assert_eq!(firn.run("scan", [""; 0]).text(), "a\t1\nb\t2\nc\t3\n");
}

#[test]
fn an_export_goes_into_a_stream() {
    let firn = Firn::new();
    firn.put("a", "1");
    assert_eq!(
        bash(&firn, "\"$0\" export db --csv /dev/stdout | cat > out").code,
        0
    );
    assert!(
        std::fs::read_to_string(firn.path("out"))
            .expect("text")
            .starts_with("key,value\na,1\n")
    );
    assert_eq!(
        bash(
            &firn,
            "\"$0\" export db --csv >(cat > out2) && wait $! && cat out2"
        )
        .code,
        0
    );
}

#[test]
fn a_reader_that_ends_early_is_an_error_of_a_named_pipe() {
    let firn = Firn::new();
    let lines: String = (0..20_000).map(|i| format!("key-{i},value\n")).collect();
    firn.run_with(
        "load",
        &["--csv", "-", "--key", "0", "--value", "1"],
        lines.as_bytes(),
    );
    let cut = bash(&firn, "\"$0\" export db --csv >(exec true)");
    assert_eq!(cut.code, 7, "{}", cut.stderr);
    assert!(cut.stderr.contains("/dev/fd/"), "{}", cut.stderr);
    let full = firn.try_run("export", ["--csv", "/dev/full"]);
    assert!(
        full.code == 6 && full.stderr.contains("/dev/full"),
        "{} {}",
        full.code,
        full.stderr
    );
}

/// Ends a load with `signal` while it waits for input, and resumes it.
fn interrupted(signal: Signal) {
    let firn = Firn::new();
    let mut child = firn.start("load", &["--jsonl", "-"]);
    let mut stdin = child.stdin.take().expect("stdin");
    let lines = |count: usize| {
        (0..count)
            .map(|i| format!("{{\"key\":\"{i:05}\"}}\n"))
            .collect::<String>()
    };
    stdin.write_all(lines(2500).as_bytes()).expect("firn reads");
    stdin.flush().expect("firn reads");
    // A batch is written, so the load has been running for a while.
    while firn.db_bytes() < 20_000 {
        assert!(
            child.try_wait().expect("a state").is_none(),
            "the load ended by itself"
        );
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), signal).expect("a signal");
    let output = child.wait_with_output().expect("it ends");
    drop(stdin);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    let left = firn.run("scan", ["--count"]).text().trim().to_owned();
    assert!(
        stderr.contains(&format!(
            "interrupted; {left} records are in: start the same load again"
        )),
        "{stderr}"
    );
    let resumed = firn.run_with("load", &["--jsonl", "-"], lines(3000).as_bytes());
    assert!(
        resumed.text().contains(&format!("skipped {left} ")),
        "{}",
        resumed.text()
    );
    assert_eq!(firn.run("scan", ["--count", "--all"]).text().trim(), "3000");
}

#[test]
fn an_interrupted_load_says_how_much_is_in() {
    interrupted(Signal::INT);
    interrupted(Signal::TERM);
}

#[test]
fn an_interrupted_tree_goes_on_after_its_last_file() {
    let firn = Firn::new();
    for number in 0..4000 {
        firn.write(format!("tree/{number:04}"), "x".repeat(100));
    }
    let child = firn.start("load", &["--tree", "tree"]);
    while firn.db_bytes() < 100_000 {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("a signal");
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let left = firn.run("scan", ["--count"]).text().trim().to_owned();
    // All files may have been loaded before the signal arrived.
    if left != "4000" {
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        assert!(
            stderr.contains(&format!(
                "interrupted; {left} files are in: start the same load again"
            )),
            "{stderr}"
        );
        let resumed = firn.run("load", ["--tree", "tree"]);
        assert!(
            resumed.text().contains(&format!("skipped {left} ")),
            "{}",
            resumed.text()
        );
    }
    assert_eq!(firn.run("scan", ["--count", "--all"]).text().trim(), "4000");
}

#[test]
fn a_load_ends_with_everything_in_tables() {
    let lines: String = (0..3000)
        .map(|i| format!("{{\"key\":\"{i:05}\"}}\n"))
        .collect();
    let stats = |arguments: &[&str]| -> serde_json::Value {
        let firn = Firn::new();
        firn.run_with(
            "load",
            &[&["--jsonl", "-"], arguments].concat(),
            lines.as_bytes(),
        );
        serde_json::from_slice(&firn.run("stats", ["--json"]).stdout).expect("JSON")
    };
    let ended = stats(&[]);
    assert_eq!(ended["recovery"]["replayed_entries"], 0, "{ended}");
    assert_eq!(ended["background"]["debt_bytes"], 0, "{ended}");
    assert_eq!(
        stats(&["--no-wait"])["recovery"]["replayed_entries"]
            .as_u64()
            .map(|entries| entries > 0),
        Some(true)
    );
}
