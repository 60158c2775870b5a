//! Replays every input worth keeping through its target: seeds and the corpus of `fuzz/`, both
//! unchanged and mended.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firn_sim::decoders::{TARGETS, Target};
use firn_sim::{Test, each_seed};
use std::path::{Path, PathBuf};

fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target.name);
    let files = std::fs::read_dir(&folder).map_or_else(|_| Vec::new(), |files| files.collect());
    let paths: Vec<PathBuf> = files.into_iter().map(|file| file.unwrap().path()).collect();
    paths
        .iter()
        .map(|path| (path.display().to_string(), std::fs::read(path).unwrap()))
        .collect()
}

#[test]
fn every_input_is_decoded_or_refused() {
    let mut inputs = Vec::new();
    for target in &TARGETS {
        let mut own = corpus(target);
        let found = own.len();
        assert!(
            found > 0,
            "{} has no corpus; run `fuzz/run {0} 60` and `fuzz/run minimise {0}`",
            target.name
        );
        own.extend(
            (target.seeds)()
                .into_iter()
                .map(|seed| (format!("a seed of {}", target.name), seed)),
        );
        println!(
            "corpus: {} has {found} inputs and {} seeds",
            target.name,
            own.len() - found
        );
        inputs.extend(own.into_iter().map(|(name, input)| (target, name, input)));
    }
    let test = Test {
        file: "corpus",
        name: "every_input_is_decoded_or_refused",
    };
    each_seed(test, inputs.len() as u64, move |number| {
        let (target, name, input) = &inputs[number as usize];
        let mut mended = input.clone();
        (target.mend)(&mut mended);
        for input in [input, &mended] {
            let run = std::panic::AssertUnwindSafe(|| (target.run)(input));
            assert!(
                std::panic::catch_unwind(run).is_ok(),
                "{name} broke the contract of {}",
                target.name
            );
        }
    });
}

/// The mender knows the formats: bytes written by the engine already have the checksums that it
/// would set.
#[test]
fn mending_leaves_real_bytes_alone() {
    for target in &TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for (number, seed) in seeds.into_iter().enumerate() {
            let mut mended = seed.clone();
            (target.mend)(&mut mended);
            assert!(mended == seed, "seed {number} of {} is mended", target.name);
        }
    }
}
