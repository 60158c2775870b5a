//! Help, completions and manual pages: complete, and no wider than the terminal.

mod firn;

use firn::Firn;

fn help(firn: &Firn, arguments: &[&str], columns: &str) -> String {
    let mut command = firn.command(arguments[0]);
    let ran = firn.try_command(command.args(&arguments[1..]).env("COLUMNS", columns));
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
    ran.text().to_owned()
}

const VERBS: [&str; 13] = [
    "get",
    "put",
    "del",
    "scan",
    "dump",
    "stats",
    "verify",
    "repair",
    "compact",
    "checkpoint",
    "load",
    "export",
    "bench",
];

#[test]
fn help_fits_the_terminal() {
    let firn = Firn::new();
    for verb in VERBS {
        for columns in [60, 80] {
            let text = help(&firn, &[verb, "--help"], &columns.to_string());
            let widest = text.lines().map(|line| line.chars().count()).max();
            let usage = text
                .lines()
                .filter(|line| line.starts_with("Usage:"))
                .map(|line| line.chars().count())
                .max();
            assert!(
                widest <= Some(columns) || widest == usage,
                "{widest:?} columns in\n{text}"
            );
        }
    }
}

#[test]
fn options_of_the_engine_are_a_topic_of_their_own() {
    let firn = Firn::new();
    let options = help(&firn, &["help", "options"], "80");
    for option in [
        "--config",
        "--profile",
        "--memory-limit",
        "--pm-backend",
        "FIRN_DURABILITY",
        "firn.toml",
    ] {
        assert!(options.contains(option), "{option} in\n{options}");
    }
    assert!(
        options.lines().all(|line| line.chars().count() <= 80),
        "{options}"
    );
    for verb in VERBS {
        let text = help(&firn, &[verb, "--help"], "80");
        assert!(
            !text.contains("--block-cache") && text.contains("firn help options"),
            "{text}"
        );
        assert_eq!(text, help(&firn, &["help", verb], "80"));
    }
    // Hidden options still work, on either side of the verb.
    firn.run("put", ["k", "v", "--memory-limit", "64M"]);
    assert!(
        help(&firn, &["load", "--help"], "80")
            .contains("Every line of a file is a record or passed over")
    );
    assert!(help(&firn, &["help", "bench", "quick"], "80").contains("--power-ops"));
    let wrong = firn.try_command(firn.command("help").arg("frobnicate"));
    assert!(
        wrong.code == 2 && wrong.stderr.contains("frobnicate"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn completions_for_every_shell() {
    let firn = Firn::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = help(&firn, &["completions", shell], "80");
        assert!(
            script.contains("checkpoint") && script.contains("skip-bad"),
            "{shell}"
        );
    }
    firn.write("completions", help(&firn, &["completions", "bash"], "80"));
    let checked = std::process::Command::new("bash")
        .arg("-n")
        .arg(firn.path("completions"))
        .output()
        .expect("bash");
    assert!(checked.status.success() && checked.stderr.is_empty());
    assert_eq!(
        firn.try_command(firn.command("completions").arg("cmd"))
            .code,
        2
    );
}

#[test]
fn manual_pages_of_every_verb() {
    let firn = Firn::new();
    assert!(help(&firn, &["man"], "80").contains(".TH FIRN 1"));
    assert!(help(&firn, &["man", "load"], "80").contains("skip\\-bad"));
    assert!(help(&firn, &["man", "options"], "80").contains("memory\\-limit"));
    std::fs::create_dir(firn.path("man1")).expect("a directory");
    help(&firn, &["man", "--dir", "man1"], "80");
    for verb in VERBS {
        let page =
            std::fs::read_to_string(firn.path(format!("man1/firn-{verb}.1"))).expect("a page");
        assert!(page.contains(".SH SYNOPSIS"), "{verb}");
    }
    assert!(firn.path("man1/firn.1").exists() && firn.path("man1/firn-options.1").exists());
}
