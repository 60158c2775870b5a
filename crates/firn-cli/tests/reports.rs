//! stats, verify, repair, compact, checkpoint and the benchmarks: programs can read their output.

mod firn;

use firn::{Firn, Ran};
use serde_json::Value;

fn json(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

fn filled() -> Firn {
    let firn = Firn::new();
    let lines: String = (0..3000)
        .map(|i| format!("key-{i:05},value-{i}\n"))
        .collect();
    firn.run_with(
        "load",
        &["--csv", "-", "--key", "0", "--value", "1"],
        lines.as_bytes(),
    );
    firn
}

#[test]
fn stats_in_three_forms() {
    let firn = filled();
    let stats = json(&firn.run("stats", ["--json"]));
    // Facts from the manifest are present even if nothing was done since the open.
    for field in [
        "tables",
        "live_bytes",
        "dead_bytes",
        "small_blocks",
        "append_share",
        "filter_left",
        "index_bytes",
    ] {
        assert!(stats["levels"][0][field].is_number(), "{field}: {stats}");
    }
    assert!(
        stats["disk_bytes"].as_u64() > stats["table_bytes"].as_u64(),
        "{stats}"
    );
    assert!(
        stats["entries_about"].as_u64() >= Some(3000) && stats["advice"].is_string(),
        "{stats}"
    );
    assert!(firn.run("stats", ["--all"]).lines().len() > 50);
    assert!(
        firn.run("stats", ["--prometheus"])
            .text()
            .contains("# TYPE firn")
    );
}

fn assert_fits_a_screen(screen: &str) {
    assert!(
        screen.lines().count() <= 24 && screen.lines().all(|line| line.chars().count() <= 80),
        "{screen}"
    );
}

#[test]
fn stats_show_the_lists_of_each_level() {
    let firn = Firn::new();
    let pool = firn.path("pool").display().to_string();
    let lines: String = (0..3000).map(|i| format!("k{i},v\n")).collect();
    firn.write("data", lines);
    let csv = ["--csv", "data", "--key", "0", "--value", "1"];
    let place = ["--pm-path", &pool, "--pm-backend", "emulated"];
    let more = ["--pm-size", "128M", "--profile", "tlsm"];
    firn.run("load", [&csv[..], &place, &more].concat());
    firn.run("compact", [""; 0]);
    let screen = firn.run("stats", [""; 0]);
    assert_fits_a_screen(screen.text());
    let used = screen
        .lines()
        .iter()
        .any(|line| line.starts_with("in PM    ") && line.ends_with("is garbage"));
    assert!(
        used && screen.text().contains("tables   in PM"),
        "{}",
        screen.text()
    );
    let stats = json(&firn.run("stats", ["--json"]));
    assert_eq!(stats["tlsm"]["lists"], serde_json::json!([0, 1]), "{stats}");
    let text = firn.run("stats", ["--prometheus"]);
    assert!(
        text.text().contains("firn_lists{level=\"1\"} 1\n"),
        "{}",
        text.text()
    );
}

#[test]
fn stats_fit_one_screen() {
    for profile in ["classic", "block", "lab", "tlsm"] {
        let firn = Firn::new();
        let lines: String = (0..3000)
            .map(|i| format!("key-{i:05},value-{i}\n"))
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
                "--profile",
                profile,
            ],
        );
        let ran = firn.run("stats", [""; 0]);
        let screen = ran.text();
        assert_fits_a_screen(screen);
        for words in [
            profile,
            "entries  about 3,00",
            "on disk  ",
            "memory   ",
            "debt     none",
        ] {
            assert!(screen.contains(words), "{words} in\n{screen}");
        }
        assert!(
            ran.lines().last().is_some_and(|line| line.ends_with('.')),
            "{screen}"
        );
        // Only levels that contain something are shown.
        let levels = ran
            .lines()
            .iter()
            .filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
            .count();
        assert!(
            levels == 1 || (profile == "lab" && screen.contains("levels   all empty")),
            "{screen}"
        );
    }
    let firn = Firn::new();
    let deep = "deep/".repeat(30);
    std::fs::create_dir_all(firn.path(&deep)).expect("directories");
    firn.try_command(
        firn.command("put")
            .arg(firn.path(&deep).join("db"))
            .args(["k", "v"]),
    );
    let ran = firn.try_command(firn.command("stats").arg(firn.path(&deep).join("db")));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_fits_a_screen(ran.text());
}

#[test]
fn stats_and_verify_beside_the_process_that_has_it_open() {
    for profile in ["classic", "block", "lab"] {
        let firn = Firn::new();
        firn.run("put", ["k", "v", "--profile", profile]);
        let mut holder = firn.start("load", &["--jsonl", "-"]);
        let mut stdin = holder.stdin.take().expect("stdin");
        let lines: String = (0..2500)
            .map(|i| format!("{{\"key\":\"{i:05}\"}}\n"))
            .collect();
        std::io::Write::write_all(&mut stdin, lines.as_bytes()).expect("firn reads");
        while firn.db_bytes() < 20_000 {
            assert!(
                holder.try_wait().expect("a state").is_none(),
                "the load ended by itself"
            );
            std::thread::yield_now();
        }
        assert_eq!(firn.try_run("put", ["k", "w"]).code, 5, "it is not open");
        assert!(
            firn.run("stats", [""; 0])
                .text()
                .contains("the load that was cut short"),
            "the position is not seen"
        );
        assert_eq!(json(&firn.run("verify", ["--json"]))["ok"], true);
        drop(stdin);
        assert!(holder.wait().expect("it ends").success());
    }
}

#[test]
fn verify_finds_damage() {
    let firn = filled();
    firn.run("compact", [""; 0]);
    let sound = json(&firn.run("verify", ["--json"]));
    assert!(
        sound["ok"] == true
            && sound["damages"] == serde_json::json!([])
            && sound["entries"] == 3000,
        "{sound}"
    );
    assert!(
        firn.run("verify", [""; 0])
            .text()
            .starts_with("ok: 3,000 entries in 1 tables")
    );
    let tables = std::fs::read_dir(firn.db())
        .expect("a directory")
        .flatten()
        .map(|entry| entry.path());
    let table = tables
        .filter(|path| path.extension().is_some_and(|e| e == "sst"))
        .max()
        .expect("a table");
    let mut bytes = std::fs::read(&table).expect("bytes");
    bytes[100] ^= 1;
    std::fs::write(&table, bytes).expect("written");
    let found = firn.try_run("verify", [""; 0]);
    assert_eq!(found.code, 4, "{}", found.stderr);
    let name = table
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    assert!(
        found.stderr.contains(&name) && found.stderr.contains("Nothing was changed"),
        "{}",
        found.stderr
    );
    assert!(
        found.text().starts_with("damaged: ") && found.text().contains(&name),
        "{}",
        found.text()
    );
    let found = firn.try_run("verify", ["--json"]);
    assert_eq!((found.code, &json(&found)["ok"]), (4, &false.into()));
    assert!(
        json(&found)["damages"][0]["what"]
            .as_str()
            .is_some_and(|text| text.contains(&name))
    );
    // A database that cannot be opened is damaged as well.
    std::fs::write(firn.db().join("CURRENT"), "nonsense").expect("written");
    let found = firn.try_run("verify", ["--json"]);
    assert_eq!(found.code, 4, "{}", found.stderr);
    assert!(
        json(&found)["damages"][0]["what"]
            .as_str()
            .is_some_and(|text| text.contains("CURRENT"))
    );
}

#[test]
fn a_checkpoint_is_a_database_of_its_own() {
    let firn = filled();
    let target = firn.path("copy");
    firn.run("checkpoint", [&target]);
    firn.run("del", ["key-00000"]);
    let copy = firn.try_command(firn.command("scan").arg(&target).arg("--count"));
    assert_eq!(copy.text().trim(), "3000");
    assert_eq!(firn.run("scan", ["--count"]).text().trim(), "2999");
}

#[test]
fn repair_of_a_whole_database_loses_nothing() {
    let firn = filled();
    firn.run("compact", [""; 0]);
    assert!(json(&firn.run("repair", ["--json"])).is_object());
    assert_eq!(firn.run("scan", ["--count"]).text().trim(), "3000");
}

#[test]
fn quick_leaves_nothing_behind() {
    let firn = Firn::new();
    std::fs::create_dir(firn.path("place")).expect("a directory");
    let mut command = firn.command("bench");
    let few = [
        "quick",
        "--records",
        "3000",
        "--ops",
        "3000",
        "--power-ops",
        "50",
    ];
    command.args(few).args(["--dir", "place", "--json"]);
    let ran = firn.try_command(&mut command);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let report = json(&ran);
    assert_eq!(report["phases"].as_array().map(Vec::len), Some(4));
    for phase in report["phases"].as_array().expect("phases") {
        assert!(
            phase["operations"].as_u64() > Some(0)
                && phase["latency"]["p99_us"].as_f64() > Some(0.0),
            "{phase}"
        );
    }
    assert!(report["written_per_byte"].as_f64() > Some(0.5), "{report}");
    assert!(
        report["verdict"]["ok"].is_boolean() && report["verdict"]["findings"].is_array(),
        "{report}"
    );
    let mut command = firn.command("bench");
    let text = firn.try_command(command.args(few).args(["--dir", "place"]));
    assert!(
        text.lines()
            .last()
            .is_some_and(|line| line.starts_with("verdict: ")),
        "{}",
        text.text()
    );
    assert_eq!(
        std::fs::read_dir(firn.path("place"))
            .expect("a directory")
            .count(),
        0
    );
    let mut command = firn.command("bench");
    let full =
        firn.try_command(command.args(["quick", "--dir", "place", "--records", "1000000000000"]));
    assert_eq!(full.code, 6, "{}", full.stderr);
    assert!(full.stderr.contains("--dir"), "{}", full.stderr);
}

/// `firn bench ycsb` on a few small records.
fn ycsb(firn: &Firn, rest: &[&str]) -> Ran {
    let few = [
        "--dir",
        ".",
        "--records",
        "2000",
        "--ops",
        "2000",
        "--threads",
        "2",
        "--value-size",
        "100",
    ];
    let mut command = firn.command("bench");
    let few = few
        .chunks(2)
        .filter(|pair| !rest.contains(&pair[0]))
        .flatten();
    firn.try_command(command.arg("ycsb").args(few).args(rest))
}

#[test]
fn a_report_is_shown_again_in_other_forms() {
    let firn = Firn::new();
    let two = [
        "--engines",
        "firn:classic,firn:block",
        "--workloads",
        "load,c",
    ];
    let ran = ycsb(&firn, &[&two[..], &["--json", "report.json"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let report = |rest: &[&str]| {
        let mut command = firn.command("bench");
        firn.try_command(command.args(["report", "report.json"]).args(rest))
    };
    assert_eq!(report(&[]).lines().first(), ran.lines().first());
    let turned = ["--engines", "firn:block,firn:classic"];
    let files = ["--svg", "r.svg", "--html", "r.html", "--brief", "r.json"];
    let ran = report(&[&turned[..], &files[..]].concat());
    assert_eq!((ran.code, ran.text().trim()), (0, ""), "{}", ran.stderr);
    let read = |name| std::fs::read_to_string(firn.path(name)).expect("text");
    assert!(read("r.svg").contains("Throughput beside firn:block"));
    assert!(read("r.html").starts_with("<!DOCTYPE html>"));
    let brief: Value = serde_json::from_str(&read("r.json")).expect("JSON");
    assert_eq!(brief["cells"].as_array().map(Vec::len), Some(0));
    assert_eq!(brief["engines"][0]["name"], "firn:block");
    let absent = report(&["--engines", "rocksdb"]);
    assert_eq!(absent.code, 3, "{}", absent.stderr);
    std::fs::write(firn.path("report.json"), "{}").expect("a file");
    let other = report(&[]);
    assert!(
        other.code == 3 && other.stderr.contains("report.json"),
        "{}",
        other.stderr
    );
}

#[test]
fn the_gets_of_a_run_are_written_to_a_file() {
    let firn = Firn::new();
    let gets = |engines: &str| {
        let rest = ["--workloads", "load,c", "--gets-file", "gets.txt"];
        ycsb(&firn, &[&["--engines", engines], &rest[..]].concat())
    };
    let two = gets("firn:classic,firn:block");
    assert!(
        two.code == 3 && two.stderr.contains("--engines"),
        "{}",
        two.stderr
    );
    let ran = gets("firn:classic");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let text = std::fs::read_to_string(firn.path("gets.txt")).expect("text");
    let keys: std::collections::HashSet<u64> = text
        .lines()
        .map(|line| {
            let (hash, bytes) = line.split_once(' ').expect("two words");
            assert_eq!(bytes, "116");
            u64::from_str_radix(hash, 16).expect("a hash")
        })
        .collect();
    assert!(text.lines().count() >= 2000 && (100..=2000).contains(&keys.len()));
    let again = gets("firn:classic");
    assert!(
        again.code == 3 && again.stderr.contains("gets.txt"),
        "{}",
        again.stderr
    );
}

#[test]
fn every_workload_runs_in_rounds() {
    let firn = Firn::new();
    let ran = ycsb(
        &firn,
        &[
            "--workloads",
            "load,a,b,c,d,e,f,u,o",
            "--rounds",
            "2",
            "--json",
            "report.json",
        ],
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.text().contains("p99.99"));
    let report: Value =
        serde_json::from_slice(&std::fs::read(firn.path("report.json")).expect("bytes"))
            .expect("JSON");
    assert_eq!(report["schema"], "firn-bench/1");
    assert_eq!(report["cells"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        report["cells"][1]["phases"].as_array().map(Vec::len),
        Some(9)
    );
    assert_eq!(report["cells"][0]["phases"][0]["operations"], 2000);
    assert_eq!(report["config"]["durability"], "process");
    let open_loop = ycsb(
        &firn,
        &["--workloads", "c", "--rate", "20000", "--json", "-"],
    );
    assert!(json(&open_loop)["cells"][0]["phases"][0]["seconds"].as_f64() > Some(0.09));
    assert_eq!(
        std::fs::read_dir(firn.path("."))
            .expect("a directory")
            .count(),
        1,
        "only the report is left"
    );
}

#[test]
fn retail_runs_on_several_engines_in_rounds() {
    let firn = Firn::new();
    let retail = |rest: &[&str]| {
        let few = ["--orders", "40", "--transactions", "400", "--threads", "2"];
        let mut command = firn.command("bench");
        let command = command.arg("retail").args(few).args(["--dir", "."]);
        firn.try_command(command.args(rest))
    };
    let two = ["--engines", "firn:classic,firn:blade", "--rounds", "2"];
    let files = ["--json", "r.json", "--html", "r.html"];
    let ran = retail(&[&two[..], &files].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for words in [
        "index query",
        "written, retail-load, firn:blade: ",
        "every value that was read was checked",
    ] {
        assert!(ran.text().contains(words), "{words} in {}", ran.text());
    }
    let text = std::fs::read(firn.path("r.json")).expect("bytes");
    let report: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(report["config"]["retail"]["orders"], 40);
    assert_eq!(report["cells"].as_array().map(Vec::len), Some(4));
    assert_eq!(report["cells"][3]["phases"][1]["operations"], 400);
    let latency = &report["summary"]["workloads"][3]["latency_by_sort"]["write"];
    assert!(
        latency["p99_us"]["median"].as_f64() > Some(0.0),
        "{latency}"
    );
    let page = std::fs::read_to_string(firn.path("r.html")).expect("a page");
    assert!(
        page.contains("40 orders: ")
            && page.contains("scan of lines")
            && page.contains("retail-load")
    );
    let mut command = firn.command("bench");
    let again = firn.try_command(command.args(["report", "r.json"]));
    assert_eq!(again.lines(), ran.lines());
    let mut command = firn.command("bench");
    let few = firn.try_command(command.args(["retail", "--orders", "1", "--threads", "2"]));
    let text = "the number of orders must be 2";
    assert!(few.code == 3 && few.stderr.contains(text), "{}", few.stderr);
    let mut command = firn.command("bench");
    let many = firn.try_command(command.args(["retail", "--orders", "10000000000000"]));
    let text = "(one a thread) to 16777216";
    assert!(
        many.code == 3 && many.stderr.contains(text),
        "{}",
        many.stderr
    );
    let other = ycsb(&firn, &["--workloads", "retail"]);
    assert!(
        other.code == 3 && other.stderr.contains("firn bench retail"),
        "{}: {}",
        other.code,
        other.stderr
    );
}

#[test]
fn cells_that_are_done_are_not_run_again() {
    let firn = Firn::new();
    let kept = ["--workloads", "load,c", "--cells", "cells", "--json", "-"];
    let (first, again) = (json(&ycsb(&firn, &kept)), json(&ycsb(&firn, &kept)));
    assert_eq!(first["cells"], again["cells"]);
    let more = json(&ycsb(&firn, &[&kept[..], &["--rounds", "2"]].concat()));
    assert_eq!(more["cells"][0], first["cells"][0]);
    assert_ne!(more["cells"][1]["phases"], first["cells"][0]["phases"]);
    let other = json(&ycsb(&firn, &[&kept[..], &["--theta", "0.5"]].concat()));
    assert_ne!(
        other["cells"][0]["phases"], first["cells"][0]["phases"],
        "what was not asked for was taken"
    );
}

/// Reads after the reopen are checked against everything acknowledged before it.
#[test]
fn a_database_is_opened_again_with_what_its_log_has() {
    let firn = Firn::new();
    let report = json(&ycsb(
        &firn,
        &[
            "--engines",
            "firn:lab",
            "--workloads",
            "load,reopen,c",
            "--json",
            "-",
        ],
    ));
    let phases = &report["cells"][0]["phases"];
    let opening = &phases[1]["engine"]["opening"];
    assert!(phases[0]["engine"]["opening"].is_null() && phases[2]["engine"]["opening"].is_null());
    assert!(
        opening["seconds"].as_f64() > Some(0.0) && phases[1]["settle_seconds"].is_null(),
        "{opening}"
    );
    let steps = opening["steps"].as_array().expect("steps").iter();
    let logs = steps
        .filter(|step| step["step"] == "logs")
        .filter_map(|step| step["seconds"].as_f64())
        .sum::<f64>();
    assert!(
        logs > 0.0 && Some(logs) < opening["seconds"].as_f64(),
        "{opening}"
    );
}

#[test]
fn a_papers_experiments_stand_beside_its_figures() {
    let firn = Firn::new();
    let paper = |rest: &[&str]| {
        let mut command = firn.command("bench");
        firn.try_command(command.args(["paper"]).args(rest))
    };
    // Both sides are the same engine here, because the test is about the framework.
    let same = [
        "--engine",
        "firn:classic",
        "--baseline",
        "firn:classic",
        "--scale",
        "20000",
        "--dir",
        ".",
    ];
    let ran = paper(
        &[
            &["block", "--experiments", "fig7,fig12", "--json"],
            &same[..],
        ]
        .concat(),
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows = json(&ran)["rows"].as_array().cloned().expect("rows");
    assert_eq!(rows.len(), 2 + 5);
    assert_eq!(rows[0]["variant"], "40 M");
    assert!(
        rows[0]["baseline_cpu_us"]["median"].as_f64() > Some(0.0),
        "{}",
        rows[0]
    );
    assert!(
        rows[0]["baseline"]["median"].as_f64() > Some(0.9),
        "{}",
        rows[0]
    );
    assert!(
        rows[0]["paper"]
            .as_str()
            .is_some_and(|text| text.contains("-22.7 %"))
    );
    assert!(
        paper(&["block", "--experiments", "help"])
            .text()
            .contains("fig18")
    );
    for (arguments, code, word) in [
        (&["matrixkv"][..], 3, "block, lab, tlsm, blade, pmdb"),
        (
            &[
                "tlsm",
                "--baseline",
                "firn:classic",
                "--experiments",
                "fig5a",
            ],
            2,
            "--pm-dir",
        ),
        (&["block", "--experiments", "fig99"], 2, "fig5"),
        (&["lab"], 3, "rocksdb-pm"),
    ] {
        let ran = paper(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn a_design_is_compared_with_itself_and_tables_with_each_other() {
    let firn = Firn::new();
    let blade = |rest: &[&str]| {
        let mut command = firn.command("bench");
        let place = [
            "--dir",
            ".",
            "--pm-dir",
            "pm",
            "--pm-bytes",
            "64M",
            "--json",
        ];
        let command = command.args(["paper", "blade", "--scale", "2000"]);
        firn.try_command(command.args(place).args(rest))
    };
    let rows = |ran: &Ran| json(ran)["rows"].as_array().cloned().expect("rows");
    // None of these needs the paper's baseline, which this program does not have.
    let ran = blade(&[
        "--experiments",
        "tab5,tab4-share,fig9",
        "--pm-latency",
        "0/1",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows_of = rows(&ran);
    assert_eq!(rows_of.len(), 6 + 5 + 4 * 15);
    for row in &rows_of {
        let is_alone = row["is_alone"] == true;
        assert_eq!(is_alone, row["experiment"] == "tab4-share", "{row}");
        assert_eq!(row["baseline_cpu_us"].is_null(), is_alone, "{row}");
        assert!(row["our_cpu_us"]["median"].as_f64() > Some(0.0), "{row}");
    }
    let ran = blade(&["--experiments", "tab1,fig2a"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(rows(&ran).len(), 12 + 7);
    for (arguments, code, word) in [
        (&["--experiments", "fig12"][..], 3, "rocksdb"),
        (&["--experiments", "fig1"], 2, "fig10-read"),
        (&["--pm-latency", "fast"], 2, "300/100"),
    ] {
        let ran = blade(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn an_experiment_has_its_own_size_of_persistent_memory() {
    let firn = Firn::new();
    let pmdb = |rest: &[&str]| {
        let mut command = firn.command("bench");
        let command = command.args(["paper", "pmdb", "--scale", "10000", "--dir", "."]);
        firn.try_command(command.args(rest))
    };
    let place = ["--pm-dir", "pm", "--pm-bytes", "1M", "--json"];
    let chosen = ["--experiments", "parts,fig11b,max_io-scan8"];
    let ran = pmdb(&[&place[..], &chosen[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows = json(&ran)["rows"].as_array().cloned().expect("rows");
    assert_eq!(rows.len(), 1 + 2 + 2);
    for row in &rows {
        assert!(row["ratio"]["median"].as_f64() > Some(0.0), "{row}");
    }
    let both = ["--experiments", "fig8c", "--baseline", "firn:classic"];
    let ran = pmdb(&[&place[..], &both[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows = json(&ran)["rows"].as_array().cloned().expect("rows");
    let read = rows[0]["ours"]["median"].as_f64();
    assert!(read > Some(0.0), "{}", rows[0]);
    let ran = pmdb(&both);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("--pm-dir"), "{}", ran.stderr);
}

#[test]
fn two_configurations_of_an_engine_run_side_by_side() {
    let firn = Firn::new();
    let labels = [
        "--engines",
        "firn:classic,firn:classic@small",
        "--set",
        "firn:classic@small.write_buffer_bytes=65536",
        "--workloads",
        "fillzipf,u,compact",
        "--json",
        "-",
    ];
    let ran = ycsb(&firn, &labels);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let report = json(&ran);
    let engines = report["engines"].as_array().expect("engines");
    assert_eq!(engines[1]["name"], "firn:classic@small");
    assert_eq!(engines[1]["settings"]["write_buffer_bytes"], "65536");
    assert_ne!(engines[0]["settings"]["write_buffer_bytes"], "65536");
    for cell in report["cells"].as_array().expect("cells") {
        let compact = &cell["phases"][2]["latency_by_sort"]["compaction"];
        assert_eq!(compact["operations"], 1, "{cell}");
    }
}

#[test]
fn what_cannot_be_compared_is_said_before_it_starts() {
    let firn = Firn::new();
    for (arguments, code, word) in [
        (&["--engines", "rockdb"][..], 3, "firn:classic"),
        (&["--workloads", "load,z"], 3, "there are load"),
        (&["--key-size", "3"], 3, "key size"),
        (&["--value-size", "8"], 3, "value size"),
        (&["--theta", "1.5"], 3, "theta"),
        (&["--write-buffer", "1M"], 2, "--set"),
        (&["--set", "rocksdb.block_bytes=4096"], 3, "does not run"),
        (&["--set", "nonsense"], 2, "block_bytes"),
        (&["--memory-limit", "1000T"], 3, "--memory-limit"),
        (&["--records", "1000000000000"], 6, "--dir"),
    ] {
        let ran = ycsb(&firn, arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{arguments:?}: {}", ran.stderr);
    }
    // An option that an engine refuses fails its cell.
    let refused = ycsb(
        &firn,
        &["--set", "firn:classic.colour=blue", "--workloads", "load"],
    );
    assert_eq!(refused.code, 1);
    assert!(
        refused.text().contains("option colour"),
        "{}",
        refused.text()
    );
}

#[test]
fn an_interrupted_benchmark_removes_what_it_wrote() {
    let firn = Firn::new();
    let place = firn.path("place");
    std::fs::create_dir(&place).expect("a directory");
    let entries = || std::fs::read_dir(&place).expect("a directory").count();
    let mut command = firn.command("bench");
    let mut child = command
        .args(["quick", "--dir", "place", "--ops", "100000000"])
        .spawn()
        .expect("firn starts");
    while entries() == 0
        || !place
            .read_dir()
            .expect("entries")
            .flatten()
            .any(|entry| entry.path().join("db").exists())
    {
        assert!(
            child.try_wait().expect("a state").is_none(),
            "it ended by itself"
        );
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("interrupted");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert_eq!(entries(), 0);
}
