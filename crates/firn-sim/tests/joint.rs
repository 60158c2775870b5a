//! One cut anywhere through the whole engine, under every invariant of testing.md, section 3.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firn_sim::{Tally, Tier, each_seed, joint};
use std::sync::{Arc, Mutex};

#[test]
fn a_cut_anywhere_loses_nothing_that_was_promised() {
    let total = Arc::new(Mutex::new(Tally::default()));
    let into = total.clone();
    let seeds = Tier::get().scale(1000);
    each_seed("joint", seeds, move |seed| {
        let tally = joint(seed);
        into.lock().unwrap().add(tally);
    });
    // It found the id of a log that a power cut took away used again.
    joint(2902);
    let total = total.lock().unwrap();
    println!("joint: {} recoveries of {} distinct images", total.recoveries, total.images.len());
}
