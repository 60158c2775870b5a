//! Runs a target of `firn_sim::decoders` under libFuzzer, with a mutator that repairs checksums.
//!
//! Three of four mutations are repaired, so both the checks of checksums and the code after them
//! are reached.

pub use libfuzzer_sys::{fuzz_mutator, fuzz_target};

use firn_sim::decoders::{Target, target};

/// Makes a binary for the target of this name.
#[macro_export]
macro_rules! fuzz {
    ($name:literal) => {
        $crate::fuzz_target!(|input: &[u8]| $crate::run($name, input));
        $crate::fuzz_mutator!(|data: &mut [u8], size: usize, size_max: usize, seed: u32| {
            $crate::mutate($name, data, size, size_max, seed)
        });
    };
}

fn named(name: &str) -> &'static Target {
    target(name).expect("a binary has the name of a target")
}

/// Decodes an input.
pub fn run(name: &str, input: &[u8]) {
    (named(name).run)(input);
}

/// Mutates the first `size` bytes of `data`, which has room for `size_max`. Returns the new size.
pub fn mutate(name: &str, data: &mut [u8], size: usize, size_max: usize, seed: u32) -> usize {
    let size = libfuzzer_sys::fuzzer_mutate(data, size, size_max);
    if seed % 4 == 0 {
        return size;
    }
    let mut mended = data[..size].to_vec();
    (named(name).mend)(&mut mended);
    mended.truncate(size_max);
    data[..mended.len()].copy_from_slice(&mended);
    mended.len()
}
