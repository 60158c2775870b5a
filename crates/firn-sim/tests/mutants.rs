//! Suites pm_mutants and fs_mutants: each site that is switched off is noticed. A separate program,
//! because it silences panics.

use firn_sim::{Verdict, hunt, sites};
use std::io::Write;

#[test]
fn each_site_that_is_off_is_noticed() {
    // `FIRN_SITE=log` selects the sites whose names start with `log`.
    let wanted = std::env::var("FIRN_SITE").unwrap_or_default();
    let which: Vec<_> = sites()
        .into_iter()
        .filter(|site| site.name().starts_with(&wanted))
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
    let late: Vec<String> = verdicts
        .iter()
        .filter(|verdict| verdict.is_late && verdict.noticed_by.is_some())
        .map(|verdict| format!("{} by {:?}", verdict.site.name(), verdict.noticed_by))
        .collect();
    let named = |wanted: fn(&Verdict) -> bool| -> Vec<&str> {
        let verdicts = verdicts.iter().filter(|verdict| wanted(verdict));
        verdicts.map(|verdict| verdict.site.name()).collect()
    };
    let unnoticed = named(|verdict| verdict.noticed_by.is_none());
    // Bypasses the capture of test output, so that the total is visible even on success.
    let _unseen = writeln!(
        std::io::stdout(),
        "suite mutants: {} of {count} sites noticed; only in the long last round: {late:?}",
        count - unnoticed.len(),
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
