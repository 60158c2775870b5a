//! Suites pm_mutants and fs_mutants: each site that is switched off is noticed. A separate program,
//! because it silences panics.

use firn_sim::{Draw, Tier, hunt, sites};
use std::io::Write;

#[test]
fn each_site_that_is_off_is_noticed() {
    // CI takes half of the sites, the quick tier a sixteenth. In CI the commit decides which, so
    // that runs add up. `cargo xtask soak --mutants` takes all.
    let step = if Tier::get() == Tier::Ci { 2 } else { 16 };
    // `FIRN_SITE=log` selects all sites whose names start with `log`.
    let wanted = std::env::var("FIRN_SITE").unwrap_or_default();
    let step = if wanted.is_empty() { step } else { 1 };
    let which: Vec<_> = sites()
        .into_iter()
        .filter(|site| site.name().starts_with(&wanted))
        .skip(Draw::get().below(step) as usize)
        .step_by(step as usize)
        .collect();
    let count = which.len();
    std::panic::set_hook(Box::new(|_| ()));
    let verdicts = hunt(which, |verdict| {
        println!(
            "{:28} {:?} after {} runs",
            verdict.site.name(),
            verdict.noticed_by,
            verdict.tried
        );
    });
    let _silencing_hook = std::panic::take_hook();
    let unnoticed: Vec<_> = verdicts
        .iter()
        .filter(|verdict| verdict.noticed_by.is_none())
        .map(|verdict| verdict.site.name())
        .collect();
    // Bypasses the capture of test output, so that the total is visible even on success.
    let _unseen = writeln!(
        std::io::stdout(),
        "suite mutants: {} of {count} sites noticed, one in {step}, {}",
        count - unnoticed.len(),
        Draw::origin()
    );
    assert_eq!(verdicts.len(), count, "a verdict is missing");
    if let Some(site) = unnoticed.first() {
        panic!(
            "no suite notices {unnoticed:?}; replay: \
             FIRN_SITE={site} cargo test --test mutants -- --nocapture"
        );
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = sites().iter().map(|site| site.name()).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}
