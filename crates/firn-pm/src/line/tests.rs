//! Suite pm_align, the arithmetic: every alignment times every payload, against a byte-by-byte
//! definition.

use super::*;
use std::collections::BTreeSet;

#[test]
fn every_alignment_and_payload_touches_exactly_its_lines() {
    for offset in 0..LINE_BYTES * 2 {
        for len in 0..=192 {
            let expected: BTreeSet<u64> =
                (offset..offset + len).map(|byte| byte / 64 * 64).collect();
            let got: Vec<u64> = line_range(offset, len).collect();
            assert_eq!(
                got,
                expected.into_iter().collect::<Vec<_>>(),
                "offset {offset} len {len}"
            );
            assert_eq!(line_range(offset, len).count_lines(), got.len() as u64);
        }
    }
}

#[test]
fn the_last_line_of_the_address_space_does_not_wrap() {
    assert_eq!(line_range(u64::MAX - 70, 71).count_lines(), 2);
    assert_eq!(line_range(u64::MAX, u64::MAX).count_lines(), 1);
}
