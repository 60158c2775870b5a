//! A killed load continues from its position; and a second opener is refused meanwhile.

mod firn;

use firn::Firn;
use std::io::Write;

/// A record of about 1 KiB, so that a batch is 1,000 records, just under 1 MiB.
fn line(number: usize) -> String {
    format!(
        "{{\"key\":\"key-{number:06}\",\"pad\":\"{}\"}}\n",
        "x".repeat(960)
    )
}

#[test]
fn killed_half_way_and_resumed() {
    let firn = Firn::new();
    let mut child = firn.start("load", &["--jsonl", "-"]);
    let mut stdin = child.stdin.take().expect("stdin");
    let half: String = (0..3500).map(line).collect();
    stdin.write_all(half.as_bytes()).expect("firn reads");
    stdin.flush().expect("firn reads");
    // Three batches are written. The fourth waits for more input, which does not come.
    while firn.db_bytes() < 2_900_000 {
        assert!(
            child.try_wait().expect("a state").is_none(),
            "the load ended by itself"
        );
        std::thread::yield_now();
    }
    let locked = firn.try_run("put", ["other", "value"]);
    assert_eq!(locked.code, 5, "{}", locked.stderr);
    // A reader needs no lock.
    assert_eq!(firn.try_run("get", ["key-000000"]).code, 0);
    child.kill().expect("killed");
    child.wait().expect("it ends");
    drop(stdin);

    let left = firn
        .run("scan", ["--count"])
        .text()
        .trim()
        .parse::<usize>()
        .expect("a count");
    assert!((1000..3500).contains(&left), "{left}");
    assert_eq!(
        firn.run("scan", ["--count", "--prefix", "key-"])
            .text()
            .trim(),
        left.to_string()
    );
    let mut other = firn.start("load", &["--jsonl", "-"]);
    let mut stdin = other.stdin.take().expect("stdin");
    // The load may be refused before everything is read.
    let _may_be_closed = stdin.write_all((1..5000).map(line).collect::<String>().as_bytes());
    drop(stdin);
    assert_eq!(
        other.wait().expect("it ends").code(),
        Some(3),
        "other records, taken for those of before"
    );
    let all: String = (0..5000).map(line).collect();
    let resumed = firn.run_with("load", &["--jsonl", "-"], all.as_bytes());
    assert!(
        resumed.text().contains(&format!("skipped {left} ")),
        "{} after {left}",
        resumed.text()
    );
    assert!(
        resumed
            .text()
            .starts_with(&format!("loaded {} records", 5000 - left)),
        "{}",
        resumed.text()
    );
    assert_eq!(firn.run("scan", ["--count", "--all"]).text().trim(), "5000");
    assert_eq!(
        firn.run("get", ["key-004999"]).stdout,
        line(4999).trim().as_bytes()
    );
    firn.run("verify", [""; 0]);
}

#[test]
fn a_tree_resumes_after_its_last_key() {
    let firn = Firn::new();
    for number in 0..3000 {
        firn.write(
            format!("tree/{}/{number:04}", number % 7),
            [number as u8; 700],
        );
    }
    let before = firn.db_bytes();
    let mut child = firn.start("load", &["--tree", "tree"]);
    while firn.db_bytes() < before + 800_000 && child.try_wait().expect("a state").is_none() {
        std::thread::yield_now();
    }
    child.kill().expect("killed, or ended");
    child.wait().expect("it ends");
    let left: u64 = firn
        .run("scan", ["--count"])
        .text()
        .trim()
        .parse()
        .expect("a count");
    let cut_short = firn.run("scan", ["--count", "--all"]).text().trim() != left.to_string();
    let resumed = firn.run("load", ["--tree", "tree", "--json"]);
    // A load that had finished starts again from the beginning; an interrupted one continues.
    let expected = if cut_short { left } else { 0 };
    assert!(
        resumed
            .text()
            .contains(&format!("\"skipped\": {expected},")),
        "{} after {left}",
        resumed.text()
    );
    assert_eq!(firn.run("scan", ["--count", "--all"]).text().trim(), "3000");
    firn.run("export", ["--tree", "out"]);
    for number in [0, 1234, 2999] {
        let bytes =
            std::fs::read(firn.path(format!("out/{}/{number:04}", number % 7))).expect("bytes");
        assert_eq!(bytes, [number as u8; 700]);
    }
}

/// Loads with files of at most `kib` KiB, so that the log is full before everything is loaded.
fn load_into_little(firn: &Firn, kib: usize, rest: &str) -> firn::Ran {
    let script = format!("ulimit -f {kib}; trap '' XFSZ; exec \"$0\" load db {rest}");
    let mut command = std::process::Command::new("bash");
    let program = firn.command("load").get_program().to_owned();
    firn.try_command(
        command
            .args(["-c", &script])
            .arg(program)
            .current_dir(firn.path(".")),
    )
}

#[test]
fn a_tree_that_changed_before_the_last_key_is_refused() {
    for (change, is_refused) in [
        ("grown", true),
        ("new", true),
        ("gone", true),
        ("later", false),
    ] {
        let firn = Firn::new();
        for number in 0..2500 {
            firn.write(format!("tree/{number:04}"), "x".repeat(100));
        }
        let cut = load_into_little(&firn, 250, "--tree tree");
        assert_eq!(cut.code, 7, "{}", cut.stderr);
        assert!(
            cut.stderr
                .contains(" files are in: start the same load again"),
            "{}",
            cut.stderr
        );
        match change {
            "grown" => drop(firn.write("tree/0003", "y".repeat(101))),
            "new" => drop(firn.write("tree/0003-new", "y")),
            "gone" => std::fs::remove_file(firn.path("tree/0003")).expect("removed"),
            _ => drop(firn.write("tree/later", "y")),
        }
        let again = firn.try_run("load", ["--tree", "tree"]);
        if is_refused {
            assert_eq!(again.code, 3, "{change}: {}", again.stderr);
            assert!(
                again.stderr.contains("--restart") && again.stderr.contains("tree"),
                "{}",
                again.stderr
            );
            assert_eq!(firn.run("load", ["--tree", "tree", "--restart"]).code, 0);
        } else {
            assert_eq!(again.code, 0, "{change}: {}", again.stderr);
            assert!(
                again.text().contains("skipped 1000 ") || again.text().contains("skipped 2000 ")
            );
        }
    }
}

#[test]
fn a_load_that_fills_the_disk_says_how_to_go_on() {
    let firn = Firn::new();
    let script = "mkdir small && mount -t tmpfs -o size=3m none small || exit 99
        \"$0\" load small/db --csv data --key 0 --value 1; echo $?
        mount -o remount,size=64m small && \"$0\" load small/db --csv data --key 0 --value 1 && \"$0\" verify small/db";
    let value = "x".repeat(1000);
    firn.write(
        "data",
        (0..10_000)
            .map(|i| format!("{i:05},{value}\n"))
            .collect::<String>(),
    );
    let mut command = std::process::Command::new("unshare");
    let program = firn.command("load").get_program().to_owned();
    command
        .args(["-rm", "sh", "-c", script])
        .arg(program)
        .current_dir(firn.path("."));
    let ran = command
        .output()
        .ok()
        .filter(|output| output.status.code() != Some(99) && !output.stdout.is_empty());
    let Some(output) = ran else {
        return println!("skipped: no file system of its own can be mounted here");
    };
    let (text, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success() && text.starts_with("6\n"),
        "{text}{stderr}"
    );
    assert!(
        stderr.contains("records are in: free some space, and start the same load again"),
        "{stderr}"
    );
    assert!(
        text.contains("10000 lines read = 10000 records + 0 passed over"),
        "{text}{stderr}"
    );
}
