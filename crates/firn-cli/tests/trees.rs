//! Directory trees, loaded into a database and exported again.

mod firn;

use firn::Firn;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Every file below `root` with its bytes.
fn files(root: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
            let (path, sort) = (entry.path(), entry.file_type().expect("a type"));
            if sort.is_dir() {
                pending.push(path);
            } else if sort.is_file() {
                let name = path
                    .strip_prefix(root)
                    .expect("below")
                    .as_os_str()
                    .as_bytes()
                    .to_vec();
                found.insert(name, std::fs::read(path).expect("bytes"));
            }
        }
    }
    found
}

#[test]
fn odd_names_and_sizes_come_back() {
    let firn = Firn::new();
    for (index, name) in [
        "a",
        "a.b",
        "d/x",
        "d/e/f",
        "with space/ü",
        "-dash",
        "new\nline",
        "quote\"'\\",
    ]
    .iter()
    .enumerate()
    {
        firn.write(
            Path::new("tree").join(name),
            vec![index as u8; index * 1000],
        );
    }
    firn.write(
        Path::new("tree").join(OsStr::from_bytes(b"raw-\xff\xfe/\x80")),
        b"not UTF-8",
    );
    firn.write("tree/large", vec![7; 3 << 20]);
    let loaded = firn.run("load", ["--tree", "tree"]);
    assert!(
        loaded.text().starts_with("loaded 10 records"),
        "{}",
        loaded.text()
    );
    assert!(!loaded.text().contains("skipped"));
    firn.run("verify", [""; 0]);
    assert!(
        firn.run("export", ["--tree", "out"])
            .text()
            .starts_with("exported 10 files")
    );
    assert_eq!(files(&firn.path("tree")), files(&firn.path("out")));
    // A load after a complete one starts from the beginning.
    assert!(
        firn.run("load", ["--tree", "tree"])
            .text()
            .starts_with("loaded 10 records")
    );
}

#[test]
fn what_is_no_file_is_named_and_left_out() {
    let firn = Firn::new();
    firn.write("tree/file", "x");
    std::fs::create_dir_all(firn.path("tree/empty")).expect("a directory");
    symlink("/etc", firn.path("tree/link")).expect("a link");
    let _listener =
        std::os::unix::net::UnixListener::bind(firn.path("tree/socket")).expect("a socket");
    let loaded = firn.run("load", ["--tree", "tree", "--json"]);
    for line in [
        "\"loaded\": 1",
        "\"symbolic_links\": 1",
        "\"special_files\": 1",
        "\"empty_directories\": 1",
    ] {
        assert!(loaded.text().contains(line), "{line} in {}", loaded.text());
    }
    for name in ["empty/", "link", "socket"] {
        assert!(
            loaded.stderr.contains(&format!("left out: {name} is")),
            "{name} in {}",
            loaded.stderr
        );
    }
    assert_eq!(firn.run("scan", ["--keys-only", "--all"]).text(), "file\n");
}

#[test]
fn a_file_too_large_is_named_and_fails_the_load() {
    let firn = Firn::new();
    firn.write("tree/a", "x");
    let large = firn.write("tree/large", "");
    std::fs::File::options()
        .write(true)
        .open(large)
        .expect("a file")
        .set_len((256 << 20) + 1)
        .expect("room");
    firn.write("tree/z", "x");
    let loaded = firn.try_run("load", ["--tree", "tree"]);
    assert_eq!(loaded.code, 1);
    assert!(
        loaded.stderr.contains("not stored: large"),
        "{}",
        loaded.stderr
    );
    assert_eq!(firn.run("scan", ["--keys-only"]).text(), "a\nz\n");
}

#[test]
fn a_tree_that_holds_the_database_is_refused() {
    let firn = Firn::new();
    firn.put("k", "v");
    assert_eq!(firn.try_run("load", ["--tree", "."]).code, 3);
    assert_eq!(firn.try_run("export", ["--tree", "db/out"]).code, 3);
    assert_eq!(firn.try_run("export", ["--tree", "db"]).code, 3);
}

#[test]
fn keys_that_lead_elsewhere_are_refused_by_name() {
    let firn = Firn::new();
    let mut lines = String::new();
    for key in [
        "/abs",
        "../up",
        "a/../../b",
        "dot/./x",
        "dot/../y",
        "dup//x",
        "end/",
        "both",
        "both/below",
        "good/file",
    ] {
        lines += &format!("{{\"key\":\"{key}\",\"value\":\"{key}\"}}\n");
    }
    lines += "{\"key\":\"nul\\u0000x\",\"value\":\"v\"}\n";
    firn.run_with(
        "load",
        &["--jsonl", "-", "--value", "value"],
        lines.as_bytes(),
    );
    symlink(firn.path("elsewhere"), {
        std::fs::create_dir_all(firn.path("out")).expect("a directory");
        std::fs::create_dir_all(firn.path("elsewhere")).expect("a directory");
        firn.path("out/link")
    })
    .expect("a link");
    firn.put("link/file", "x");
    let exported = firn.try_run("export", ["--tree", "out"]);
    assert_eq!(exported.code, 3);
    for name in [
        "/abs",
        "../up",
        "a/../../b",
        "dot/./x",
        "dot/../y",
        "dup//x",
        "end/",
        "both",
        "nul\\x00x",
        "link/file",
    ] {
        assert!(
            exported.stderr.contains(&format!("not exported: {name}: ")),
            "{name} in {}",
            exported.stderr
        );
    }
    let names: Vec<Vec<u8>> = files(&firn.path("out")).into_keys().collect();
    assert_eq!(names, [b"both/below".to_vec(), b"good/file".to_vec()]);
    assert!(files(&firn.path("elsewhere")).is_empty());
    assert!(exported.text().contains("exported 2 files") && exported.text().contains("refused 10"));
}

#[test]
fn existing_files_are_overwritten_only_by_force() {
    let firn = Firn::new();
    firn.put("file", "new");
    firn.write("out/file", "old");
    let refused = firn.try_run("export", ["--tree", "out"]);
    assert_eq!(refused.code, 3);
    assert!(refused.stderr.contains("--force"));
    assert_eq!(std::fs::read(firn.path("out/file")).expect("bytes"), b"old");
    firn.run("export", ["--tree", "out", "--force"]);
    assert_eq!(std::fs::read(firn.path("out/file")).expect("bytes"), b"new");
}
