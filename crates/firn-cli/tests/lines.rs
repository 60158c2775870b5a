//! A load loses no line: each is a record, is counted as skipped, or stops the load with its place.

mod firn;

use firn::{Firn, Ran};
use serde_json::Value;

fn json(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

/// Loads `text` in `format` with the arguments `rest`. The counts of the result must add up.
fn load(firn: &Firn, format: &str, text: &[u8], rest: &[&str]) -> Value {
    firn.write("data", text);
    let result = json(&firn.run("load", [&[format, "data", "--json"], rest].concat()));
    let count = |name: &str| {
        result[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} in {result}"))
    };
    assert_eq!(
        count("lines_read"),
        count("records") + count("passed_over"),
        "{result}"
    );
    let breaks = text.iter().filter(|byte| **byte == b'\n').count() as u64;
    let cut = u64::from(text.last().is_some_and(|byte| *byte != b'\n'));
    assert_eq!(
        count("lines_read") + count("quoted_line_breaks"),
        breaks + cut,
        "{result}"
    );
    result
}

fn scanned(firn: &Firn) -> String {
    firn.run("scan", [""; 0]).text().to_owned()
}

const BY_NUMBER: [&str; 4] = ["--key", "0", "--value", "1"];

#[test]
fn quotes_mean_nothing_in_tsv() {
    let firn = Firn::new();
    let text = b"1\t\"The\n2\t5\" pipe\n3\tsaid \"no\"\n4\t\"whole\"\n";
    assert_eq!(load(&firn, "--tsv", text, &BY_NUMBER)["records"], 4);
    assert_eq!(
        scanned(&firn),
        "1\t\"The\n2\t5\" pipe\n3\tsaid \"no\"\n4\t\"whole\"\n"
    );
    let quoted = Firn::new();
    let quote = [&BY_NUMBER[..], &["--quote"]].concat();
    assert_eq!(
        load(&quoted, "--tsv", b"1\t\"a\tb\n\"\"c\"\n", &quote)["quoted_line_breaks"],
        1
    );
    assert_eq!(scanned(&quoted), "1\ta\\tb\\n\"c\n");
}

#[test]
fn a_quote_out_of_place_is_a_bad_line_and_no_other_is_lost() {
    for (line, reason) in [
        ("2,\"open", "never closed"),
        ("2,5\" pipe", "within a field"),
        ("2,\"a\"b", "follows a closing quote"),
        ("\"2,x", "never closed"),
    ] {
        let firn = Firn::new();
        let rest: String = (3..3000).map(|number| format!("{number},x\n")).collect();
        let text = format!("1,x\n{line}\n{rest}");
        firn.write("data", &text);
        let stopped = firn.try_run("load", [&["--csv", "data"], &BY_NUMBER[..]].concat());
        assert_eq!(stopped.code, 3, "{line}");
        assert!(
            stopped.stderr.contains("data:2: ") && stopped.stderr.contains(reason),
            "{}",
            stopped.stderr
        );
        assert!(
            stopped.stderr.contains("1 records are in") && stopped.stderr.contains("the same load")
        );
        let passed = load(
            &firn,
            "--csv",
            text.as_bytes(),
            &[&BY_NUMBER[..], &["--skip-bad"]].concat(),
        );
        assert_eq!(
            (&passed["bad_lines"], &passed["records"]),
            (&1.into(), &2998.into()),
            "{line}"
        );
        assert_eq!(firn.run("scan", ["--count"]).text(), "2998\n");
    }
}

#[test]
fn a_quote_that_another_line_closes_costs_one_line() {
    let firn = Firn::new();
    let skip = [&BY_NUMBER[..], &["--skip-bad"]].concat();
    let passed = load(&firn, "--csv", b"1,\"open\n2,x\n3,\"y\"\n", &skip);
    assert_eq!(
        (&passed["bad_lines"], &passed["records"]),
        (&1.into(), &2.into())
    );
    assert_eq!(scanned(&firn), "2\tx\n3\ty\n");
}

#[test]
fn quotes_that_enclose_other_records_are_found_by_the_header() {
    let firn = Firn::new();
    let text = b"id,text,place\n1,\"Foo,here\n2,x,there\n3,Bar\"\n4,\"two\nlines\",here\n";
    firn.write("data", text);
    let stopped = firn.try_run("load", ["--csv", "data", "--key", "id", "--value", "text"]);
    assert!(
        stopped
            .stderr
            .contains("data:2: a quote is opened and closed lines later"),
        "{}",
        stopped.stderr
    );
    let result = load(
        &firn,
        "--csv",
        text,
        &["--key", "id", "--value", "text", "--skip-bad"],
    );
    assert_eq!(
        (&result["records"], &result["bad_lines"]),
        (&2.into(), &2.into()),
        "{result}"
    );
    assert_eq!(scanned(&firn), "2\tx\n4\ttwo\\nlines\n");
}

#[test]
fn line_ends_of_every_kind() {
    let marks = Firn::new();
    load(
        &marks,
        "--csv",
        b"\xef\xbb\xbfkey,value\r\na,1\r\n\r\n\nb,2",
        &[],
    );
    assert_eq!(scanned(&marks), "a\t1\nb\t2\n");
    for format in ["--csv", "--tsv"] {
        let old = Firn::new();
        old.write(
            "data",
            if format == "--csv" {
                "a,1\rb,2\rc,3\r"
            } else {
                "a\t1\rb\t2\rc\t3\r"
            },
        );
        let refused = old.try_run("load", [&[format, "data"], &BY_NUMBER[..]].concat());
        assert_eq!(refused.code, 3);
        assert!(
            refused.stderr.contains("data:1: a carriage return"),
            "{}",
            refused.stderr
        );
    }
    let wide = Firn::new();
    for mark in [b"\xff\xfea\0", b"\xfe\xff\0a"] {
        wide.write("data", mark);
        for format in ["--csv", "--jsonl"] {
            let refused = wide.try_run("load", [format, "data"]);
            assert_eq!(refused.code, 3);
            assert!(refused.stderr.contains("UTF-16"), "{}", refused.stderr);
        }
    }
    let lines = Firn::new();
    let result = load(
        &lines,
        "--jsonl",
        b"\xef\xbb\xbf{\"key\":1}\r\n\r\n  \t\n{\"key\":2}",
        &[],
    );
    assert_eq!(
        (&result["records"], &result["empty_lines"]),
        (&2.into(), &2.into())
    );
}

#[test]
fn files_with_hardly_anything_in_them() {
    let firn = Firn::new();
    assert_eq!(load(&firn, "--csv", b"key,value\n", &[])["header_lines"], 1);
    assert_eq!(load(&firn, "--csv", b"", &BY_NUMBER)["lines_read"], 0);
    // A file with only a byte order mark has no lines.
    firn.write("data", b"\xef\xbb\xbf");
    let marked = firn.run("load", [&["--csv", "data"], &BY_NUMBER[..]].concat());
    assert!(
        marked
            .text()
            .contains("0 lines read = 0 records + 0 passed over"),
        "{}",
        marked.text()
    );
    assert_eq!(load(&firn, "--jsonl", b"\n \n", &[])["passed_over"], 2);
    assert_eq!(load(&firn, "--tsv", b"\0\t\0\n", &BY_NUMBER)["records"], 1);
    assert_eq!(firn.run("scan", ["--hex"]).text(), "00\t00\n");
    for text in ["", "\n\n"] {
        firn.write("data", text);
        let refused = firn.try_run("load", ["--csv", "data"]);
        assert_eq!(refused.code, 3);
        assert!(
            refused.stderr.contains("data: the file has no header line"),
            "{}",
            refused.stderr
        );
    }
    firn.write("data", "   \n");
    let blank = firn.try_run("load", [&["--csv", "data"], &BY_NUMBER[..]].concat());
    assert!(
        blank.stderr.contains("data:1: there is no column 1"),
        "{}",
        blank.stderr
    );
}

#[test]
fn columns_that_cannot_be_told_apart() {
    let firn = Firn::new();
    firn.write("data", "id,text,text\n1,a,b\n");
    let refused = firn.try_run("load", ["--csv", "data", "--key", "id", "--value", "text"]);
    assert_eq!(refused.code, 3);
    assert!(
        refused
            .stderr
            .contains("data: more than one column is called text"),
        "{}",
        refused.stderr
    );
    assert!(
        refused.stderr.contains("--header") && refused.stderr.contains("1 or 2"),
        "{}",
        refused.stderr
    );
    firn.run(
        "load",
        ["--csv", "data", "--key", "0", "--value", "2", "--header"],
    );
    assert_eq!(scanned(&firn), "1\tb\n");
    // The duplicated column was not requested.
    firn.write("data", "id,x,x,text\n1,a,b,c\n");
    firn.run("load", ["--csv", "data", "--key", "id", "--value", "text"]);
    firn.write("data", "id,\"text\n1,a\n");
    let refused = firn.try_run("load", ["--csv", "data", "--key", "id", "--skip-bad"]);
    assert_eq!(refused.code, 3);
    assert!(
        refused.stderr.contains("data:1: in the header line"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_field_beyond_the_header_is_not_dropped() {
    let firn = Firn::new();
    firn.write("data", "key,value\na,one\nb,one, two\n");
    let refused = firn.try_run("load", ["--csv", "data"]);
    assert!(
        refused
            .stderr
            .contains("data:3: the record has 3 fields, the header line 2"),
        "{}",
        refused.stderr
    );
}

#[test]
fn json_that_can_be_read_in_two_ways() {
    let firn = Firn::new();
    for (line, reason) in [
        (
            &b"{\"key\":\"a\",\"key\":\"b\"}"[..],
            "\"key\" is there twice",
        ),
        (
            b"{\"key\":\"a\",\"\\u006bey\":\"b\"}",
            "\"key\" is there twice",
        ),
        (b"{\"key\":\"a\"} {\"key\":\"b\"}", "trailing characters"),
        (b"{\"key\":\"a\"},", "trailing characters"),
        (b"{\"key\":\"\xff\"}", "not UTF-8"),
        (b"{\"key\":\"a\",\"x\":\"\xff\"}", "not UTF-8"),
        (b"\0", "expected value"),
        (b"{\"key\":null}", "is null"),
    ] {
        firn.write("data", line);
        let refused = firn.try_run("load", ["--jsonl", "data"]);
        assert_eq!(refused.code, 3);
        assert!(
            refused.stderr.contains("data:1: ") && refused.stderr.contains(reason),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn a_key_that_comes_twice_can_be_a_bad_line() {
    let firn = Firn::new();
    firn.put("there", "0");
    let mut lines = vec![
        "there,1".to_owned(),
        "a,1".to_owned(),
        "a,2".to_owned(),
        "a,1".to_owned(),
    ];
    // In a different batch from the first.
    lines.extend((0..3000).map(|number| format!("{number:05},x")));
    lines.extend(["00001,x".to_owned(), "00001,y".to_owned()]);
    let text = lines.join("\n") + "\n";
    let skip = [&BY_NUMBER[..], &["--no-overwrite", "--skip-bad"]].concat();
    let result = load(&firn, "--csv", text.as_bytes(), &skip);
    assert_eq!(
        (&result["records"], &result["bad_lines"]),
        (&3003.into(), &3.into())
    );
    assert_eq!(firn.run("get", ["a"]).text(), "1");
    assert_eq!(
        (
            firn.run("get", ["00001"]).text(),
            firn.run("get", ["there"]).text()
        ),
        ("x", "0")
    );
    firn.write("data", "a,3\n");
    let refused = firn.try_run(
        "load",
        [&["--csv", "data", "--no-overwrite"], &BY_NUMBER[..]].concat(),
    );
    assert!(
        refused
            .stderr
            .contains("data:1: the key a is there already, with another value"),
        "{}",
        refused.stderr
    );
    // Without the option the last record wins.
    load(&firn, "--csv", b"a,3\na,4\n", &BY_NUMBER);
    assert_eq!(firn.run("get", ["a"]).text(), "4");
}

#[test]
fn every_byte_before_the_position_is_compared() {
    let firn = Firn::new();
    let lines: String = (0..5000)
        .map(|number| format!("{{\"key\":\"{number:05}\"}}\n"))
        .collect();
    let file = firn.write("data", format!("{lines}bad\n"));
    assert_eq!(firn.try_run("load", ["--jsonl", "data"]).code, 3);
    // The same length as before, and far from the position.
    let changed = lines.replacen("00003", "99993", 1);
    std::fs::write(&file, format!("{changed}{{\"key\":\"x\"}}\n")).expect("a file");
    let refused = firn.try_run("load", ["--jsonl", "data"]);
    assert_eq!(refused.code, 3);
    assert!(
        refused.stderr.contains("has changed before line 5001"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("--restart"), "{}", refused.stderr);
    std::fs::write(&file, "{\"key\":\"00000\"}\n").expect("a file");
    assert_eq!(
        firn.try_run("load", ["--jsonl", "data"]).code,
        3,
        "a file that has become shorter"
    );
    // Appended and corrected lines do not count as changes.
    std::fs::write(
        &file,
        format!("{lines}{{\"key\":\"good\"}}\n{{\"key\":\"more\"}}\n"),
    )
    .expect("a file");
    let resumed = firn.run("load", ["--jsonl", "data"]);
    assert!(
        resumed.text().starts_with("loaded 2 records"),
        "{}",
        resumed.text()
    );
    assert!(
        resumed
            .text()
            .contains("5002 lines read = 5002 records + 0 passed over"),
        "{}",
        resumed.text()
    );
}

#[test]
fn a_resumed_load_counts_the_lines_of_both_runs() {
    let firn = Firn::new();
    let file = firn.write("data", "key,value\r\n\r\na,1\r\n\"b\nb\",2\r\nc\r\n");
    assert_eq!(firn.try_run("load", ["--csv", "data"]).code, 3);
    std::fs::write(file, "key,value\r\n\r\na,1\r\n\"b\nb\",2\r\nc,3\r\nd,4").expect("a file");
    let resumed = json(&firn.run("load", ["--csv", "data", "--json"]));
    for (name, count) in [
        ("loaded", 2),
        ("skipped", 2),
        ("records", 4),
        ("lines_read", 6),
        ("passed_over", 2),
        ("quoted_line_breaks", 1),
    ] {
        assert_eq!(resumed[name], count, "{name} in {resumed}");
    }
}
