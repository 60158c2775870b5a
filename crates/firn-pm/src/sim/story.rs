//! A counterexample in words: the fate of each store that was not durable at the cut.

use super::images::Delta;
use super::tracker::{CrashPoint, PendingLine, Version};

/// One sentence for each line that the cut could lose.
pub(super) fn story(point: &CrashPoint, delta: &Delta) -> Vec<String> {
    point
        .lines
        .iter()
        .map(|pending| sentence(pending, delta))
        .collect()
}

fn sentence(pending: &PendingLine, delta: &Delta) -> String {
    let line = pending.line;
    let (kept, lost) = match delta.iter().find(|(at, _)| *at == line) {
        None => (0, &pending.versions[..]),
        Some((_, bytes)) => match pending
            .versions
            .iter()
            .rposition(|version| version.bytes == *bytes)
        {
            Some(index) => (index + 1, &pending.versions[index + 1..]),
            None => {
                return format!(
                    "line {line:#x}: torn; of {} some words persisted",
                    stores(&pending.versions)
                );
            }
        },
    };
    let mut words = format!("line {line:#x}:");
    if kept > 0 {
        words += &format!(" {} persisted", stores(&pending.versions[..kept]));
    }
    if !lost.is_empty() {
        words += &format!("{} {} lost", if kept > 0 { "," } else { "" }, stores(lost));
    }
    words
}

fn stores(versions: &[Version]) -> String {
    let name = |version: &Version| {
        let store = version.store;
        format!(
            "store {} (operation {}, {} bytes at {:#x})",
            store.number, store.operation, store.len, store.at
        )
    };
    versions.iter().map(name).collect::<Vec<_>>().join(" and ")
}
