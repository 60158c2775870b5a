//! CSV, TSV and JSON Lines, loaded into a database and exported again.

mod firn;

use firn::Firn;

/// A database with keys and values of every byte, and of everything that a text format must handle
/// specially.
fn odd_entries(firn: &Firn, binary: bool) -> usize {
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for text in [
        "plain",
        "comma,semi;",
        "quo\"te",
        "\"",
        "tab\tx",
        "line\nbreak",
        "cr\rlf\r\n",
        "é雪",
        " space ",
        "\\n",
    ] {
        pairs.push((text.as_bytes().to_vec(), text.as_bytes().to_vec()));
    }
    pairs.push((b"empty".to_vec(), Vec::new()));
    if binary {
        pairs.extend((0..=255u8).map(|byte| (vec![byte, b'k'], vec![byte, 0, 255, byte])));
    }
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let mut lines = String::from("key,value\n");
    for (key, value) in &pairs {
        lines += &format!("{},{}\n", hex(key), hex(value));
    }
    firn.run_with(
        "load",
        &["--csv", "-", "--encoding", "hex"],
        lines.as_bytes(),
    );
    pairs.len()
}

/// Exports, and loads into another database: both must have the same dump.
fn round_trip(format: &str, encoding: &str, binary: bool, rest: &[&str]) {
    let firn = Firn::new();
    let count = odd_entries(&firn, binary);
    let file = firn.path("file");
    let file = file.to_str().expect("text");
    let out = firn.run(
        "export",
        [&[format, file, "--encoding", encoding], rest].concat(),
    );
    assert!(
        out.text().contains(&format!("exported {count} records")),
        "{}",
        out.text()
    );
    let value: &[&str] = if format == "--jsonl" {
        &["--value", "value"]
    } else {
        &[]
    };
    let mut load = firn.command("load");
    load.arg("copy")
        .args([format, file, "--encoding", encoding])
        .args(value)
        .args(rest);
    let loaded = firn.try_command(&mut load);
    assert_eq!(loaded.code, 0, "{}", loaded.stderr);
    let copy = firn.try_command(firn.command("dump").args(["copy", "--hex", "--all"]));
    assert_eq!(
        firn.run("dump", ["--hex", "--all"]).text(),
        copy.text(),
        "{format} {encoding}"
    );
    // The same on stdout, which must contain nothing else.
    let on_stdout = firn.run(
        "export",
        [&[format, "-", "--encoding", encoding], rest].concat(),
    );
    assert_eq!(on_stdout.stdout, std::fs::read(file).expect("bytes"));
    assert_eq!(
        firn.try_run("export", [format, file]).code,
        3,
        "overwritten without --force"
    );
}

#[test]
fn text_comes_back_raw() {
    for format in ["--csv", "--jsonl"] {
        round_trip(format, "raw", false, &[]);
    }
    round_trip("--tsv", "raw", false, &["--quote"]);
}

#[test]
fn tsv_without_quotes_refuses_what_it_cannot_hold() {
    let firn = Firn::new();
    odd_entries(&firn, false);
    let refused = firn.try_run("export", ["--tsv", "-"]);
    assert_eq!(refused.code, 3);
    assert!(refused.stderr.contains("--quote"), "{}", refused.stderr);
    firn.run("del", ["tab\tx", "line\nbreak", "cr\rlf\r\n"]);
    let exported = firn.run("export", ["--tsv", "-"]);
    assert!(
        exported.text().contains("\n\"\t\"\n") && exported.text().contains("\nquo\"te\tquo\"te\n")
    );
    let before = firn.run("dump", [""; 0]).text().to_owned();
    firn.run_with("load", &["--tsv", "-"], &exported.stdout);
    assert_eq!(firn.run("dump", [""; 0]).text(), before);
}

#[test]
fn any_byte_comes_back_encoded() {
    for format in ["--csv", "--tsv", "--jsonl"] {
        round_trip(format, "hex", true, &[]);
        round_trip(format, "base64", true, &[]);
    }
}

#[test]
fn raw_refuses_what_is_not_text() {
    let firn = Firn::new();
    odd_entries(&firn, true);
    for format in ["--csv", "--jsonl"] {
        let refused = firn.try_run("export", [format, "-"]);
        assert_eq!(refused.code, 3);
        assert!(refused.stderr.contains("--encoding"), "{}", refused.stderr);
    }
}

#[test]
fn a_bad_line_stops_with_its_place_and_can_be_corrected() {
    let firn = Firn::new();
    let file = firn.write("data.csv", "id,text\n1,one\n2\n3,three\n");
    let load = ["--csv", "data.csv", "--key", "id", "--value", "text"];
    let stopped = firn.try_run("load", load);
    assert_eq!(stopped.code, 3);
    assert!(
        stopped.stderr.contains("data.csv:3: there is no column 1"),
        "{}",
        stopped.stderr
    );
    assert_eq!(firn.run("scan", [""; 0]).text(), "1\tone\n");
    assert!(firn.run("scan", ["--all", "--count"]).text() == "2\n");
    std::fs::write(file, "id,text\n1,one\n2,two\n3,three\n").expect("a file");
    let resumed = firn.run("load", load);
    assert!(
        resumed.text().starts_with("loaded 2 records") && resumed.text().contains("skipped 1 "),
        "{}",
        resumed.text()
    );
    assert_eq!(
        firn.run("scan", ["--all"]).text(),
        "1\tone\n2\ttwo\n3\tthree\n"
    );
}

#[test]
fn a_file_that_changed_before_the_place_is_refused() {
    let firn = Firn::new();
    firn.write("data.jsonl", "{\"key\":\"a\"}\n{\"key\":\"b\"}\nbad\n");
    assert_eq!(firn.try_run("load", ["--jsonl", "data.jsonl"]).code, 3);
    firn.write("data.jsonl", "{\"key\":\"a\"}\n{\"key\":\"c\"}\n");
    let refused = firn.try_run("load", ["--jsonl", "data.jsonl"]);
    assert_eq!(refused.code, 3);
    assert!(refused.stderr.contains("--restart"), "{}", refused.stderr);
    firn.run("load", ["--jsonl", "data.jsonl", "--restart"]);
    assert_eq!(
        firn.run("scan", ["--keys-only", "--all"]).text(),
        "a\nb\nc\n"
    );
}

#[test]
fn bad_lines_may_be_passed_over() {
    let firn = Firn::new();
    let lines =
        b"{\"key\":\"a\",\"value\":1}\nnonsense\n{\"key\":\"\",\"value\":1}\n{\"key\":\"b\",\"value\":[1, 2]}\n";
    let arguments = ["--jsonl", "-", "--value", "value", "--skip-bad"];
    let loaded = firn.run_with("load", &arguments, lines);
    assert!(loaded.text().contains("2 bad lines"), "{}", loaded.text());
    assert!(
        loaded.stderr.contains("-:2: ") && loaded.stderr.contains("-:3: the key is empty"),
        "{}",
        loaded.stderr
    );
    assert_eq!(firn.run("scan", [""; 0]).text(), "a\t1\nb\t[1, 2]\n");
}

#[test]
fn columns_by_number_and_a_column_that_is_not_there() {
    let firn = Firn::new();
    firn.run_with(
        "load",
        &["--tsv", "-", "--key", "2", "--value", "0"],
        b"v1\tx\tk1\nv2\tx\tk2\n",
    );
    assert_eq!(firn.run("scan", [""; 0]).text(), "k1\tv1\nk2\tv2\n");
    firn.write("data.csv", "a,b\n1,2\n");
    let refused = firn.try_run("load", ["--csv", "data.csv", "--key", "c"]);
    assert_eq!(refused.code, 3);
    assert!(
        refused.stderr.contains("no column is called c") && refused.stderr.contains("a, b"),
        "{}",
        refused.stderr
    );
    assert_eq!(
        firn.try_run("load", ["--csv", "data.csv", "--tree", "."])
            .code,
        2
    );
}
