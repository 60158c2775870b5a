//! get, put, del, scan and dump, as a shell sees them.

mod firn;

use firn::Firn;

#[test]
fn what_was_put_is_got_until_it_is_deleted() {
    let firn = Firn::new();
    firn.put("snow", "falls");
    assert_eq!(firn.run("get", ["snow"]).stdout, b"falls");
    firn.put("snow", "melts");
    assert_eq!(firn.run("get", ["snow"]).stdout, b"melts");
    assert_eq!(
        firn.run("get", ["snow", "--json"])
            .text()
            .replace(char::is_whitespace, ""),
        r#"{"key":"snow","value":"melts"}"#
    );
    firn.run("del", ["snow"]);
    let gone = firn.try_run("get", ["snow"]);
    assert_eq!((gone.code, gone.stdout.len()), (1, 0));
    assert!(gone.stderr.contains("snow"));
}

#[test]
fn any_bytes_by_hex_and_by_file() {
    let firn = Firn::new();
    firn.run("put", ["--hex", "00ff", "0d0a80"]);
    assert_eq!(firn.run("get", ["--hex", "00FF"]).text(), "0d0a80\n");
    let bytes: Vec<u8> = (0..=255).collect();
    firn.write("value", &bytes);
    firn.run("put", ["file", "--file", "value"]);
    assert_eq!(firn.run("get", ["file"]).stdout, bytes);
    firn.run_with("put", &["stdin", "--file", "-"], b"");
    assert_eq!(firn.run("get", ["stdin"]).stdout, b"");
    assert_eq!(firn.try_run("put", ["--hex", "0", "00"]).code, 2);
    assert_eq!(
        firn.run("get", ["--json", "--hex", "00ff"])
            .text()
            .matches("0d0a80")
            .count(),
        1
    );
}

#[test]
fn scan_within_bounds_in_both_directions() {
    let firn = Firn::new();
    firn.run_with(
        "load",
        &["--csv", "-"],
        b"key,value\na1,1\na2,2\na3,3\nb1,4\nb2,5\n",
    );
    let scan = |arguments: &[&str]| {
        let ran = firn.run("scan", arguments);
        ran.lines()
            .iter()
            .map(|line| line.split('\t').next().unwrap_or("").to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(scan(&[]), "a1 a2 a3 b1 b2");
    assert_eq!(scan(&["--reverse"]), "b2 b1 a3 a2 a1");
    assert_eq!(scan(&["--from", "a2", "--to", "b1"]), "a2 a3");
    assert_eq!(scan(&["--prefix", "a"]), "a1 a2 a3");
    assert_eq!(scan(&["--prefix", "a", "--from", "a3", "--to", "c"]), "a3");
    assert_eq!(
        scan(&["--prefix", "a", "--reverse", "--limit", "2"]),
        "a3 a2"
    );
    assert_eq!(scan(&["--from", "b", "--to", "a"]), "");
    assert_eq!(scan(&["--count", "--prefix", "b"]), "2");
    assert_eq!(
        firn.run("scan", ["--keys-only", "--limit", "1"]).text(),
        "a1\n"
    );
    assert_eq!(firn.run("scan", ["--limit", "1"]).text(), "a1\t1\n");
    assert_eq!(
        firn.run("scan", ["--limit", "1", "--json"]).text(),
        "{\"key\":\"a1\",\"value\":\"1\"}\n"
    );
    assert_eq!(
        firn.run("scan", ["--limit", "1", "--hex", "--from", "6132"])
            .text(),
        "6132\t32\n"
    );
}

#[test]
fn what_is_not_text_is_escaped() {
    let firn = Firn::new();
    firn.run("put", ["--hex", "c3a900", "ff0a"]);
    assert_eq!(firn.run("scan", [""; 0]).text(), "é\\x00\t\\xff\\n\n");
    assert_eq!(
        firn.run("dump", [""; 0]).text(),
        "é\\x00 (2 bytes) = \\xff\\n\n"
    );
    assert_eq!(
        firn.run("dump", ["--hex"]).text(),
        "c3a900 (2 bytes) = ff0a\n"
    );
    assert!(
        firn.run("dump", ["--json"])
            .text()
            .contains("{\"hex\":\"ff0a\"}")
    );
}

#[test]
fn reserved_keys_are_refused() {
    let firn = Firn::new();
    let refused = firn.try_run("put", ["--hex", "006669726e2f78", "00"]);
    assert_eq!(refused.code, 3);
    assert!(refused.stderr.contains("reserved"));
}

#[test]
fn a_database_that_is_not_there_is_not_made_by_reading() {
    let firn = Firn::new();
    for verb in ["scan", "dump", "stats", "verify", "compact"] {
        assert_eq!(firn.try_run(verb, [""; 0]).code, 8, "{verb}");
    }
    // A script must be able to tell this from a missing key.
    assert_eq!(firn.try_run("get", ["x"]).code, 8);
    assert!(!firn.db().exists());
}

#[test]
fn a_pipe_that_closes_is_no_error() {
    let firn = Firn::new();
    let lines: String = (0..20_000).map(|i| format!("key-{i},value\n")).collect();
    firn.run_with(
        "load",
        &["--csv", "-", "--key", "0", "--value", "1"],
        lines.as_bytes(),
    );
    let mut child = firn.start("scan", &[]);
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("firn ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
