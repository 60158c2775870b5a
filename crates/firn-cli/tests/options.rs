//! Where options come from, and how wrong ones are refused.

mod firn;

use firn::Firn;

#[test]
fn an_unknown_key_of_a_file_is_named() {
    let firn = Firn::new();
    firn.write("firn.toml", "memory_limit = \"64M\"\nmemory_limt = \"64M\"\n");
    let refused = firn.try_run("put", ["k", "v"]);
    assert_eq!(refused.code, 3);
    assert!(refused.stderr.contains("memory_limt") && refused.stderr.contains("firn.toml"), "{}", refused.stderr);
    assert!(!firn.db().exists());
    firn.write("other.toml", "memory_limit = \"64M\"\n");
    firn.run("put", ["k", "v", "--config", "other.toml"]);
    assert_eq!(firn.try_run("put", ["k", "v", "--config", "none.toml"]).code, 8);
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let firn = Firn::new();
    // Too little memory is refused by the engine: so it shows which one was taken.
    firn.write("firn.toml", "memory_limit = 1\n");
    assert_eq!(firn.try_run("put", ["k", "v"]).code, 3);
    let with = |environment: &str, flag: &[&str]| {
        let mut command = firn.command("put");
        firn.try_command(command.env("FIRN_MEMORY_LIMIT", environment).args(["db", "k", "v"]).args(flag)).code
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
    assert_eq!(firn.try_run("put", ["k", "v", "--durability", "never"]).code, 2);
    assert_eq!(firn.try_run("put", ["k", "v", "--pm-size", "1G"]).code, 2);
    assert_eq!(firn.try_run("put", ["", "v"]).code, 3);
    let help = firn.try_command(&mut firn.command("--help"));
    assert_eq!(help.code, 0);
    assert!(help.text().contains("Exit codes:") && help.text().contains("5  locked"), "{}", help.text());
}
