//! The arrows between the rooms of the engine's crate: a room may use the rooms before it in the
//! list, never a later one. Tests may use any room, and so may the crate's root.
//!
//! `engine` is the hub: it holds the parts of all rooms in one struct, and each room may add
//! methods to it. It therefore has no place in their order; it may hold their parts and nothing
//! else.

use super::{Finding, modules};
use crate::source::name_after;
use crate::tree::Tree;

const PACKAGE: &str = "crates/firndb";
const HUB: &str = "engine";

/// All rooms, from the bottom up.
const ROOMS: [&str; 22] = [
    "mechanisms",
    "sites",
    "gate",
    "files",
    "event",
    "options",
    "read_points",
    "memtable",
    "log",
    "manifest",
    "lab",
    "upper",
    "read",
    "write",
    "tlsm",
    "blade",
    "pmdb",
    "compaction",
    "lifecycle",
    "api",
    "proof",
    "interleave",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let place = |room: &str| ROOMS.iter().position(|known| *known == room);
    let source_folder = format!("{PACKAGE}/src/");
    let mut findings = Vec::new();
    for (path, test_only) in modules::reached(tree, PACKAGE) {
        let room = path
            .strip_prefix(&source_folder)
            .and_then(|path| path.split('/').next())
            .unwrap_or_default();
        let room = room.trim_end_matches(".rs");
        if test_only || room == "lib" || room == HUB {
            continue;
        }
        let Some(here) = place(room) else {
            findings.push(Finding::new(
                &path,
                1,
                "this room is not in the list of xtask/src/tidy/rooms.rs",
            ));
            continue;
        };
        let source = &tree.sources[&path];
        for at in source.words("crate::").filter(|&at| !source.in_test(at)) {
            let used = name_after(&source.code, at + "crate::".len());
            // A proof-only file inside a room belongs to `proof`.
            let is_proof = path.ends_with("/proof.rs");
            if place(used).is_some_and(|used| used > here) && !is_proof {
                let message = format!(
                    "room `{room}` must not use room `{used}`: see xtask/src/tidy/rooms.rs"
                );
                findings.push(Finding::new(&path, source.line(at), message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let root = (
            "crates/firndb/src/lib.rs",
            "mod api;\nmod log;\nmod read;\n#[cfg(test)]\nmod proof;\n",
        );
        let tree = Tree::planted(&[&[root], files].concat());
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_arrow_back_is_found() {
        let api = (
            "crates/firndb/src/api.rs",
            "use crate::read::Part;\nuse crate::engine::Engine;\n",
        );
        let log = (
            "crates/firndb/src/log.rs",
            "//! See crate::read.\nuse crate::files::Files;\n",
        );
        let read = (
            "crates/firndb/src/read.rs",
            "use crate::log::Log;\n#[cfg(test)]\nmod tests { use crate::api; }\n",
        );
        assert_eq!(found(&[api, log, read]), [""; 0]);
        let back = (
            "crates/firndb/src/log.rs",
            "use crate::files::Files;\nuse crate::read::Part;\n",
        );
        let message = "crates/firndb/src/log.rs:2: room `log` must not use room `read`: see xtask/src/tidy/rooms.rs";
        assert_eq!(found(&[api, back, read]), [message]);
    }

    #[test]
    fn a_room_that_nobody_listed_is_found() {
        let log = ("crates/firndb/src/log.rs", "");
        let tree = Tree::planted(&[
            ("crates/firndb/src/lib.rs", "mod attic;\n"),
            ("crates/firndb/src/attic.rs", ""),
            log,
        ]);
        assert_eq!(check(&tree).len(), 1);
    }
}
