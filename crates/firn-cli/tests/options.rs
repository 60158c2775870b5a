//! The sources of options, and how wrong ones are refused.

mod firn;

use firn::Firn;

#[test]
fn an_unknown_key_of_a_file_is_named() {
    let firn = Firn::new();
    firn.write(
        "firn.toml",
        "memory_limit = \"64M\"\nmemory_limt = \"64M\"\n",
    );
    let refused = firn.try_run("put", ["k", "v"]);
    assert_eq!(refused.code, 3);
    assert!(
        refused.stderr.contains("memory_limt") && refused.stderr.contains("firn.toml"),
        "{}",
        refused.stderr
    );
    assert!(!firn.db().exists());
    firn.write("other.toml", "memory_limit = \"64M\"\n");
    firn.run("put", ["k", "v", "--config", "other.toml"]);
    assert_eq!(
        firn.try_run("put", ["k", "v", "--config", "none.toml"])
            .code,
        8
    );
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let firn = Firn::new();
    // The engine refuses too little memory, which shows which source was used.
    firn.write("firn.toml", "memory_limit = 1\n");
    assert_eq!(firn.try_run("put", ["k", "v"]).code, 3);
    let with = |environment: &str, flag: &[&str]| {
        let mut command = firn.command("put");
        firn.try_command(
            command
                .env("FIRN_MEMORY_LIMIT", environment)
                .args(["db", "k", "v"])
                .args(flag),
        )
        .code
    };
    assert_eq!(with("64M", &[]), 0);
    assert_eq!(with("64M", &["--memory-limit", "1"]), 3);
    assert_eq!(with("1", &["--memory-limit", "64M"]), 0);
    assert_eq!(with("64 apples", &[]), 2);
}

#[test]
fn wrong_usage_is_2_and_help_lists_the_codes() {
    let firn = Firn::new();
    assert_eq!(firn.try_run("frobnicate", [""; 0]).code, 2);
    assert_eq!(
        firn.try_run("put", ["k", "v", "--durability", "never"])
            .code,
        2
    );
    assert_eq!(firn.try_run("put", ["k", "v", "--pm-size", "1G"]).code, 2);
    assert_eq!(firn.try_run("put", ["", "v"]).code, 3);
    let help = firn.try_command(&mut firn.command("--help"));
    assert_eq!(help.code, 0);
    assert!(
        help.text().contains("Exit codes:") && help.text().contains("5  locked"),
        "{}",
        help.text()
    );
}

#[test]
fn a_database_is_opened_with_its_own_profile() {
    for profile in ["classic", "block", "lab", "tlsm"] {
        let firn = Firn::new();
        firn.run("put", ["k", "v", "--profile", profile]);
        assert_eq!(firn.run("get", ["k"]).text(), "v");
        firn.run("put", ["k", "w"]);
        let stats: serde_json::Value =
            serde_json::from_slice(&firn.run("stats", ["--json"]).stdout).expect("JSON");
        assert_eq!(stats["profile"], profile);
        // The manifest also decides for a copy without OPTIONS.
        firn.run("checkpoint", ["copy"]);
        assert!(!firn.path("copy/OPTIONS").exists());
        assert_eq!(
            firn.try_command(firn.command("get").args(["copy", "k"]))
                .text(),
            "w"
        );
        let other = if profile == "lab" { "block" } else { "lab" };
        let refused = firn.try_run("get", ["k", "--profile", other]);
        assert!(
            refused.code == 3 && refused.stderr.contains(&format!("has profile {profile}")),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn a_database_is_opened_with_its_own_pool() {
    let firn = Firn::new();
    let pool = [
        "--profile",
        "lab",
        "--pm-backend",
        "file",
        "--pm-path",
        "pool",
        "--pm-size",
        "64M",
    ];
    firn.run("put", [&["k", "v"], &pool[..]].concat());
    assert_eq!(firn.run("get", ["k"]).text(), "v");
    firn.run("put", ["k", "w"]);
    firn.run("compact", [""; 0]);
    assert_eq!(firn.run("scan", [""; 0]).text(), "k\tw\n");
    assert_eq!(
        firn.try_run("get", ["k", "--pm-backend", "none"]).code,
        3,
        "the pool was taken though it was declined"
    );
    // The pool does not belong to a copy of the directory: writing to it would damage the original.
    let copied = std::process::Command::new("cp")
        .args(["-a", "db", "copy"])
        .current_dir(firn.path("."))
        .status();
    assert!(copied.expect("cp").success());
    let refused = firn.try_command(firn.command("put").args(["copy", "k", "x"]));
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("copy/OPTIONS") && refused.stderr.contains("--pm-path"),
        "{}",
        refused.stderr
    );
    // A moved database keeps its pool.
    std::fs::rename(firn.db(), firn.path("moved")).expect("moved");
    assert_eq!(
        firn.try_command(firn.command("get").args(["moved", "k"]))
            .text(),
        "w"
    );
    std::fs::rename(firn.path("pool"), firn.path("elsewhere")).expect("moved");
    let refused = firn.try_command(firn.command("get").args(["moved", "k"]));
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("moved/OPTIONS names the pool")
            && refused.stderr.contains("not there")
    );
    let given = [
        "moved",
        "k",
        "--pm-backend",
        "file",
        "--pm-path",
        "elsewhere",
        "--pm-size",
        "64M",
    ];
    assert_eq!(
        firn.try_command(firn.command("get").args(given)).text(),
        "w"
    );
}

/// A pool named in `OPTIONS` must not be ignored because the file cannot be read.
#[test]
fn an_options_file_that_cannot_be_read_is_reported() {
    let firn = Firn::new();
    firn.run("put", ["k", "v"]);
    firn.write("db/OPTIONS", "pm_backend = ");
    let refused = firn.try_run("get", ["k"]);
    assert_eq!(refused.code, 4);
    assert!(
        refused.stderr.contains("OPTIONS") && refused.stderr.contains("--pm-backend none"),
        "{}",
        refused.stderr
    );
    assert_eq!(firn.try_run("get", ["k", "--pm-backend", "none"]).code, 0);
    std::fs::remove_file(firn.db().join("OPTIONS")).unwrap();
    assert_eq!(firn.try_run("get", ["k"]).code, 0);
}
