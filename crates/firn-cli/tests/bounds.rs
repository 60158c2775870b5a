//! All inputs are bounded before they are read. A record that is too large is a bad line, or a file
//! that is listed.

mod firn;

use firn::Firn;
use std::process::Command;

/// The minimum memory limit is 256 KiB. With this one a batch has 1 MiB and a value may have almost
/// as much.
const LITTLE: [&str; 2] = ["--memory-limit", "4M"];
const MIB: usize = 1 << 20;

/// Limits the process of `command` to 2 GiB of address space.
fn bounded(command: &Command) -> Command {
    let mut bounded = Command::new("sh");
    bounded
        .args(["-c", "ulimit -v 2097152; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        bounded.current_dir(directory);
    }
    bounded
}

#[test]
fn a_line_without_end_is_a_bad_line() {
    let firn = Firn::new();
    for format in ["--csv", "--tsv", "--jsonl"] {
        let mut command = firn.command("load");
        command.args([
            "db",
            format,
            "/dev/zero",
            "--key",
            "0",
            "--value",
            "1",
            "--memory-limit",
            "64M",
        ]);
        let refused = firn.try_command(&mut bounded(&command));
        assert_eq!(refused.code, 3, "{format}: {}", refused.stderr);
        assert!(
            refused
                .stderr
                .contains("/dev/zero:1: the record does not end within"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn a_line_of_endless_fields_is_a_bad_line() {
    let firn = Firn::new();
    firn.write(
        "data",
        [b"a,1\n", &vec![b','; 3 * MIB][..], b"\nb,2\n"].concat(),
    );
    let load = ["--csv", "data", "--key", "0", "--value", "1", "--skip-bad"];
    let loaded = firn.run("load", [&load[..], &LITTLE].concat());
    assert!(loaded.stderr.contains("data:2: "), "{}", loaded.stderr);
    assert!(
        loaded
            .text()
            .contains("3 lines read = 2 records + 1 passed over (1 bad lines)"),
        "{}",
        loaded.text()
    );
    // The number of columns in a header is limited too.
    firn.write("header", vec![b','; 2 * MIB]);
    let refused = firn.try_run("load", ["--csv", "header"]);
    assert!(
        refused
            .stderr
            .contains("in the header line, there are more than 65536 columns"),
        "{}",
        refused.stderr
    );
}

#[test]
fn files_without_end_are_refused() {
    let firn = Firn::new();
    let mut put = firn.command("put");
    put.args(["db", "k", "--file", "/dev/zero", "--memory-limit", "64M"]);
    let refused = firn.try_command(&mut bounded(&put));
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(
        refused
            .stderr
            .contains("/dev/zero has more than 16.0 MiB, a quarter of the memory limit")
    );
    assert!(!firn.db().exists());
    let refused = firn.try_run("put", ["k", "v", "--config", "/dev/zero"]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(
        refused
            .stderr
            .contains("/dev/zero: the file has more than 1 MiB"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_record_too_large_is_a_bad_line() {
    let firn = Firn::new();
    let line = |key: &str, bytes: usize| {
        format!(
            "{{\"key\":\"{key}\",\"value\":\"{}\"}}\n",
            "x".repeat(bytes)
        )
    };
    let lines = [
        line("a", 10),
        line("b", MIB / 2),
        // Just above the limit, and far above it.
        line("c", MIB),
        line("d", 6 * MIB),
        line(&"k".repeat(70_000), 1),
        line("e", MIB - 4096),
    ];
    firn.write("data", lines.concat());
    let load = ["--jsonl", "data", "--value", "value"];
    let stopped = firn.try_run("load", [&load[..], &LITTLE].concat());
    assert_eq!(stopped.code, 3);
    assert!(stopped.stderr.contains("data:3: "), "{}", stopped.stderr);
    assert!(
        stopped.stderr.contains("2 records are in")
            && stopped.stderr.contains("memory_limit_bytes")
    );
    let passed = firn.run("load", [&load[..], &["--skip-bad"], &LITTLE].concat());
    for place in ["data:3: ", "data:4: ", "data:5: the key has 70000 bytes"] {
        assert!(
            passed.stderr.contains(place),
            "{place} in {}",
            passed.stderr
        );
    }
    assert!(
        passed
            .text()
            .contains("6 lines read = 3 records + 3 passed over (3 bad lines)"),
        "{}",
        passed.text()
    );
    assert_eq!(firn.run("scan", ["--keys-only"]).text(), "a\nb\ne\n");
}

#[test]
fn a_file_about_as_large_as_the_limit_stops_no_tree() {
    let firn = Firn::new();
    firn.write("tree/a", "x");
    // The limit applies to the batch, including its overhead per value. So some of these fit and
    // others do not.
    for less in [0, 1, 20, 60, 100, 200, 4096] {
        firn.write(format!("tree/large-{less}"), vec![b'x'; MIB - less]);
    }
    firn.write("tree/larger", vec![b'x'; MIB + 1]);
    firn.write("tree/z", "x");
    let loaded = firn.try_run("load", [&["--tree", "tree"], &LITTLE[..]].concat());
    assert_eq!(loaded.code, 1, "{}", loaded.stderr);
    for name in ["larger", "large-0"] {
        assert!(
            loaded.stderr.contains(&format!("not stored: {name} ")),
            "{name} in {}",
            loaded.stderr
        );
    }
    let keys = firn.run("scan", ["--keys-only"]).text().to_owned();
    for key in ["a", "large-200", "large-4096", "z"] {
        assert!(keys.lines().any(|line| line == key), "{key} in {keys}");
    }
    let refused = loaded.stderr.matches("not stored: ").count();
    assert_eq!(keys.lines().count() + refused, 10, "{keys}");
    assert!(!loaded.stderr.contains("not stored: large-200 "));
}

#[test]
fn a_file_that_ends_before_its_size_is_no_complete_load() {
    // The metadata of a sysfs file says one page, but less can be read, as for a file that is
    // truncated while it is read.
    let short = "/sys/devices/system/cpu/online";
    if !std::fs::metadata(short).is_ok_and(|metadata| metadata.len() > 1024) {
        return println!("skipped: there is no {short} of a page");
    }
    let firn = Firn::new();
    let cut = firn.try_run("load", ["--csv", short, "--key", "0", "--value", "0"]);
    assert_eq!(cut.code, 7, "{}", cut.stderr);
    assert!(
        cut.stderr
            .contains("has lost bytes while it was read: it had 4096"),
        "{}",
        cut.stderr
    );
    assert!(cut.stderr.contains("1 records are in"), "{}", cut.stderr);
}

#[test]
fn batches_fit_the_least_memory() {
    let firn = Firn::new();
    let lines: String = (0..2000)
        .map(|number| format!("{number:05},{}\n", "x".repeat(900)))
        .collect();
    firn.write("data", lines);
    firn.run(
        "load",
        [
            "--csv",
            "data",
            "--key",
            "0",
            "--value",
            "1",
            "--memory-limit",
            "1M",
        ],
    );
    assert_eq!(firn.run("scan", ["--count"]).text(), "2000\n");
}
