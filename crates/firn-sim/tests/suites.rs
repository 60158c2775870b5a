//! Each suite of the table, at the size of its tier; and a test that a run is a function of its
//! seed.

use std::io::Write;
use std::sync::Once;

use firn_sim::{Draw, SUITES, Suite, Tally, Test, Tier, each_seed, trace};

static ORIGIN: Once = Once::new();

fn suite(name: &str) -> Tally {
    let suite = Suite::named(name).unwrap_or_else(|| panic!("no suite {name}"));
    // These lines bypass the capture of test output, so that they are visible even on success.
    ORIGIN.call_once(|| {
        if Tier::get() == Tier::Ci {
            let _unseen = writeln!(std::io::stdout(), "suites: {}", Draw::origin());
        }
    });
    let report = suite.test();
    let _unseen = writeln!(std::io::stdout(), "suite {name}: {report}");
    report.tally
}

#[test]
fn joint() {
    suite("joint");
}

#[test]
fn partitions() {
    let tally = suite("partitions");
    let all = tally.divided > 0 && tally.joined > 0 && tally.partitions_most == 32;
    assert!(
        all || std::env::var("FIRN_SEED").is_ok(),
        "some borders did not change: {tally}"
    );
}

#[test]
fn block_append() {
    suite("block_append");
}

#[test]
fn block_io() {
    suite("block_io");
}

#[test]
fn block_checkpoint_cut() {
    suite("block_checkpoint_cut");
}

#[test]
fn block_recovery_cut() {
    suite("block_recovery_cut");
}

#[test]
fn lab_joint() {
    let tally = suite("lab_joint");
    let all = [tally.past_trees, tally.chunks, tally.edges, tally.replaced]
        .iter()
        .all(|&count| count > 0);
    assert!(
        all || std::env::var("FIRN_SEED").is_ok(),
        "one way of a flush or an eviction was not taken: {tally}"
    );
}

#[test]
fn tlsm_joint() {
    let tally = suite("tlsm_joint");
    let all = [tally.linked, tally.resumed, tally.evicted_lists]
        .iter()
        .all(|&count| count > 0);
    assert!(
        all || std::env::var("FIRN_SEED").is_ok(),
        "one way of a compaction was not taken: {tally}"
    );
}

#[test]
fn tlsm_link_cut() {
    let tally = suite("tlsm_link_cut");
    assert!(
        tally.resumed > 0 || std::env::var("FIRN_SEED").is_ok(),
        "no compaction went on: {tally}"
    );
}

#[test]
fn tlsm_io() {
    suite("tlsm_io");
}

#[test]
fn tlsm_checkpoint_cut() {
    suite("tlsm_checkpoint_cut");
}

#[test]
fn tlsm_recovery_cut() {
    suite("tlsm_recovery_cut");
}

#[test]
fn tlsm_creation_cut() {
    suite("tlsm_creation_cut");
}

#[test]
fn blade_joint() {
    let tally = suite("blade_joint");
    let all = [tally.internal, tally.major].iter().all(|&count| count > 0);
    assert!(
        all || std::env::var("FIRN_SEED").is_ok(),
        "one way of a merge was not taken: {tally}"
    );
}

#[test]
fn blade_io() {
    suite("blade_io");
}

#[test]
fn blade_checkpoint_cut() {
    suite("blade_checkpoint_cut");
}

#[test]
fn blade_recovery_cut() {
    suite("blade_recovery_cut");
}

#[test]
fn blade_creation_cut() {
    suite("blade_creation_cut");
}

#[test]
fn pmdb_joint() {
    let tally = suite("pmdb_joint");
    let all = [
        tally.stash_merges,
        tally.range_merges,
        tally.divided,
        tally.joined,
    ];
    assert!(
        all.iter().all(|&count| count > 0) || std::env::var("FIRN_SEED").is_ok(),
        "a merge or a border did not come: {tally}"
    );
}

#[test]
fn pmdb_io() {
    suite("pmdb_io");
}

#[test]
fn pmdb_checkpoint_cut() {
    suite("pmdb_checkpoint_cut");
}

#[test]
fn pmdb_recovery_cut() {
    suite("pmdb_recovery_cut");
}

#[test]
fn lab_io() {
    suite("lab_io");
}

#[test]
fn lab_checkpoint_cut() {
    suite("lab_checkpoint_cut");
}

#[test]
fn lab_recovery_cut() {
    suite("lab_recovery_cut");
}

#[test]
fn lab_creation_cut() {
    suite("lab_creation_cut");
}

#[test]
fn creation_cut() {
    suite("creation_cut");
}

#[test]
fn recovery_cut() {
    suite("recovery_cut");
}

#[test]
fn dir_exhaust() {
    suite("dir_exhaust");
}

#[test]
fn unsynced_ends() {
    suite("unsynced_ends");
}

#[test]
fn io_countdown() {
    suite("io_countdown");
}

#[test]
fn io_several() {
    suite("io_several");
}

#[test]
fn fsync_fail() {
    suite("fsync_fail");
}

#[test]
fn disk_cap() {
    suite("disk_cap");
}

#[test]
fn read_faults() {
    suite("read_faults");
}

#[test]
fn bit_exhaust() {
    suite("bit_exhaust");
}

#[test]
fn cut_extend() {
    suite("cut_extend");
}

#[test]
fn model() {
    suite("model");
}

#[test]
fn pm_seq_pool() {
    suite("pm_seq_pool");
}

#[test]
fn pm_torn_pool() {
    suite("pm_torn_pool");
}

#[test]
fn pm_eadr_pool() {
    suite("pm_eadr_pool");
}

#[test]
fn pm_init_pool() {
    suite("pm_init_pool");
}

#[test]
fn pm_double_pool() {
    suite("pm_double_pool");
}

#[test]
fn pm_lint_pool() {
    suite("pm_lint_pool");
}

#[test]
fn pm_seq_shelf() {
    suite("pm_seq_shelf");
}

#[test]
fn pm_torn_shelf() {
    suite("pm_torn_shelf");
}

#[test]
fn pm_eadr_shelf() {
    suite("pm_eadr_shelf");
}

#[test]
fn pm_init_shelf() {
    suite("pm_init_shelf");
}

#[test]
fn pm_double_shelf() {
    suite("pm_double_shelf");
}

#[test]
fn pm_lint_shelf() {
    suite("pm_lint_shelf");
}

#[test]
fn pm_seq_trees() {
    suite("pm_seq_trees");
}

#[test]
fn pm_torn_trees() {
    suite("pm_torn_trees");
}

#[test]
fn pm_eadr_trees() {
    suite("pm_eadr_trees");
}

#[test]
fn pm_init_trees() {
    suite("pm_init_trees");
}

#[test]
fn pm_double_trees() {
    suite("pm_double_trees");
}

#[test]
fn pm_lint_trees() {
    suite("pm_lint_trees");
}

#[test]
fn trees_damage() {
    suite("trees_damage");
}

#[test]
fn pm_seq_lists() {
    suite("pm_seq_lists");
}

#[test]
fn pm_torn_lists() {
    suite("pm_torn_lists");
}

#[test]
fn pm_eadr_lists() {
    suite("pm_eadr_lists");
}

#[test]
fn pm_init_lists() {
    suite("pm_init_lists");
}

#[test]
fn pm_double_lists() {
    suite("pm_double_lists");
}

#[test]
fn pm_lint_lists() {
    suite("pm_lint_lists");
}

#[test]
fn lists_damage() {
    suite("lists_damage");
}

#[test]
fn pm_seq_tables() {
    suite("pm_seq_tables");
}

#[test]
fn pm_torn_tables() {
    suite("pm_torn_tables");
}

#[test]
fn pm_eadr_tables() {
    suite("pm_eadr_tables");
}

#[test]
fn pm_init_tables() {
    suite("pm_init_tables");
}

#[test]
fn pm_double_tables() {
    suite("pm_double_tables");
}

#[test]
fn pm_lint_tables() {
    suite("pm_lint_tables");
}

#[test]
fn tables_damage() {
    suite("tables_damage");
}

#[test]
fn pm_seq_if_trees() {
    suite("pm_seq_if_trees");
}

#[test]
fn pm_torn_if_trees() {
    suite("pm_torn_if_trees");
}

#[test]
fn pm_eadr_if_trees() {
    suite("pm_eadr_if_trees");
}

#[test]
fn pm_init_if_trees() {
    suite("pm_init_if_trees");
}

#[test]
fn pm_double_if_trees() {
    suite("pm_double_if_trees");
}

#[test]
fn pm_lint_if_trees() {
    suite("pm_lint_if_trees");
}

#[test]
fn if_trees_damage() {
    suite("if_trees_damage");
}

#[test]
fn pm_seq_buffers() {
    suite("pm_seq_buffers");
}

#[test]
fn pm_torn_buffers() {
    suite("pm_torn_buffers");
}

#[test]
fn pm_eadr_buffers() {
    suite("pm_eadr_buffers");
}

#[test]
fn pm_init_buffers() {
    suite("pm_init_buffers");
}

#[test]
fn pm_double_buffers() {
    suite("pm_double_buffers");
}

#[test]
fn pm_lint_buffers() {
    suite("pm_lint_buffers");
}

#[test]
fn buffers_damage() {
    suite("buffers_damage");
}

#[test]
fn pm_seq_log() {
    suite("pm_seq_log");
}

#[test]
fn pm_torn_log() {
    suite("pm_torn_log");
}

#[test]
fn pm_eadr_log() {
    suite("pm_eadr_log");
}

#[test]
fn pm_init_log() {
    suite("pm_init_log");
}

#[test]
fn pm_double_log() {
    suite("pm_double_log");
}

#[test]
fn pm_lint_log() {
    suite("pm_lint_log");
}

#[test]
fn pm_seq_hot() {
    suite("pm_seq_hot");
}

#[test]
fn pm_torn_hot() {
    suite("pm_torn_hot");
}

#[test]
fn pm_eadr_hot() {
    suite("pm_eadr_hot");
}

#[test]
fn pm_double_hot() {
    suite("pm_double_hot");
}

#[test]
fn pm_lint_hot() {
    suite("pm_lint_hot");
}

#[test]
fn pm_seq_placed() {
    suite("pm_seq_placed");
}

#[test]
fn pm_torn_placed() {
    suite("pm_torn_placed");
}

#[test]
fn pm_double_placed() {
    suite("pm_double_placed");
}

#[test]
fn pm_lint_placed() {
    suite("pm_lint_placed");
}

#[test]
fn pm_align() {
    suite("pm_align");
}

#[test]
fn checkpoint_cut() {
    suite("checkpoint_cut");
}

#[test]
fn repair_cut() {
    suite("repair_cut");
}

#[test]
fn two_media() {
    suite("two_media");
}

#[test]
fn pm_cap() {
    suite("pm_cap");
}

#[test]
fn metamorphic() {
    let tally = suite("metamorphic");
    // A single replayed seed may have none.
    assert!(
        tally.grown_tables > 0 || std::env::var("FIRN_SEED").is_ok(),
        "no table of profile block grew"
    );
}

#[test]
fn pm_file() {
    suite("pm_file");
}

#[test]
fn kill9() {
    firn_sim::set_child(env!("CARGO_BIN_EXE_kill9_child"));
    suite("kill9");
}

/// One seed gives one trace: every operation, with its bytes and its outcome.
#[test]
fn one_seed_one_run() {
    let test = Test {
        file: "suites",
        name: "one_seed_one_run",
    };
    each_seed(test, 20, |seed| {
        assert_eq!(
            trace(seed),
            trace(seed),
            "the run depends on more than its seed"
        );
    });
}

/// Every seed that ever found a bug.
#[test]
fn what_was_found_stays_mended() {
    let found = [
        ("creation_cut", 849_151_962_935),
        ("pm_file", 849_151_966_716),
        ("repair_cut", 480),
        ("repair_cut", 108_998_779_178),
        ("repair_cut", 108_998_779_761),
        ("repair_cut", 251_153_196_918),
        ("joint", 723),
        ("joint", 1321),
        ("joint", 2902),
        ("joint", 4755),
        ("joint", 19_543),
        ("io_several", 4123),
        ("io_several", 7000),
        ("io_several", 10_288),
        ("tlsm_io", 174_210_172_944),
        ("lab_io", 225_261_298_326),
        ("model", 372_725_976_667),
        ("model", 372_725_980_183),
        ("joint", 935),
        ("pmdb_joint", 11),
        ("pmdb_joint", 901_601_516_029),
        ("repair_cut", 315_385_489_377),
    ];
    for (name, seed) in found {
        (Suite::named(name).expect("a suite of this name").run)(seed);
    }
}

/// Every suite of the table has a test in this file.
#[test]
fn no_suite_is_forgotten() {
    let source = include_str!("suites.rs");
    for suite in SUITES {
        assert!(
            source.contains(&format!("suite(\"{}\")", suite.name)),
            "no test runs suite {}",
            suite.name
        );
    }
}
