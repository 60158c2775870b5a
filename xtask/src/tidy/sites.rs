//! Sites: every flush, fence, sync and rename goes through a function that takes one, so the
//! compiler enforces it. This rule checks that nothing bypasses those functions, that every
//! declared site is used and has a unique name, that no checksum is compared without
//! `checksum::matches`, and that the shipped `firn` cannot switch sites off.

use super::Finding;
use crate::source::Source;
use crate::tree::{Tree, is_test_path};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Calls that make something durable or ordered, and the paths in which they are allowed: below the
/// seams.
const RAW_CALLS: [&str; 7] = [
    "sync_all",
    "sync_data",
    "fsync",
    "fdatasync",
    "fs::rename",
    "arch::fence",
    "_mm_sfence",
];
const AT_HOME: [&str; 6] = [
    "crates/firn-fs/src/os",
    "crates/firn-pm/src/region",
    "crates/firn-pm/src/arch",
    "crates/firn-bench/",
    "crates/firn-cli/",
    "xtask/",
];
/// Paths in which checksums are computed for formats that are not ours.
const CHECKSUMS_AT_HOME: [&str; 3] = [
    "crates/firn-base/src/checksum",
    "crates/firn-fs/src/sim",
    "crates/firn-sim/",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.sources.iter().filter(|(path, _)| !is_test_path(path)) {
        findings.extend(raw_calls(path, source));
        findings.extend(compared(path, source));
    }
    findings.extend(declared(tree));
    findings
}

fn begins_with_one_of(path: &str, homes: &[&str]) -> bool {
    homes.iter().any(|home| path.starts_with(home))
}

fn raw_calls(path: &str, source: &Source) -> Vec<Finding> {
    if begins_with_one_of(path, &AT_HOME) {
        return Vec::new();
    }
    let places = RAW_CALLS
        .iter()
        .flat_map(|call| source.words(call).map(move |at| (*call, at)));
    let places = places.filter(|(_, at)| !source.in_test(*at));
    let finding = |(call, at)| {
        Finding::new(
            path,
            source.line(at),
            format!("`{call}` without a site: go through Fs, File or Pool"),
        )
    };
    places.map(finding).collect()
}

fn compared(path: &str, source: &Source) -> Vec<Finding> {
    if begins_with_one_of(path, &CHECKSUMS_AT_HOME) {
        return Vec::new();
    }
    let computed = ["crc32c", "crc32c_salted"]
        .into_iter()
        .flat_map(|name| source.words(name));
    let is_compared = |at: &usize| {
        let line = source.code[..*at].rfind('\n').map_or(0, |end| end + 1);
        let code = source.code[line..].lines().next().unwrap_or("");
        !source.in_test(*at) && (code.contains("==") || code.contains("!="))
    };
    let finding = |at| {
        Finding::new(
            path,
            source.line(at),
            "a checksum compared without a site: use `checksum::matches`",
        )
    };
    computed.filter(is_compared).map(finding).collect()
}

/// Checks that each declared site, and each switch of a design's row, is used in its crate, and
/// that names are unique.
fn declared(tree: &Tree) -> Vec<Finding> {
    let (mut findings, mut names) = (Vec::new(), BTreeMap::new());
    let module = |path: &str| {
        ["sites", "rows"]
            .into_iter()
            .find(|module| path.ends_with(&format!("/src/{module}.rs")))
    };
    for (path, source, module) in tree
        .sources
        .iter()
        .filter_map(|(path, source)| Some((path, source, module(path)?)))
    {
        let package = path.trim_end_matches(&format!("{module}.rs"));
        for (line, id, name) in declarations(&source.text) {
            if let Some(other) = names.insert(name.clone(), path.clone()) {
                findings.push(Finding::new(
                    path,
                    line,
                    format!("`{name}` is a site of {other} too"),
                ));
            }
            let word = format!("{module}::{id}");
            let inside =
                |other: &str| other.starts_with(package) && other != path && !is_test_path(other);
            let mut sources = tree.sources.iter().filter(|(other, _)| inside(other));
            if !sources.any(|(_, source)| source.words(&word).any(|at| !source.in_test(at))) {
                findings.push(Finding::new(
                    path,
                    line,
                    format!("{id} is declared and stands for nothing"),
                ));
            }
        }
    }
    findings
}

/// `ID = "name";`, with its line.
fn declarations(text: &str) -> Vec<(usize, String, String)> {
    let line = |(index, text): (usize, &str)| {
        let (id, rest) = text.trim().split_once(" = \"")?;
        let is_id = !id.is_empty()
            && id
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        Some((
            index + 1,
            is_id.then(|| id.to_owned())?,
            rest.strip_suffix("\";")?.to_owned(),
        ))
    };
    text.lines().enumerate().filter_map(line).collect()
}

/// Checks that the shipped program does not contain sites that can be switched off.
pub(super) fn check_shipped(root: &Path) -> Vec<Finding> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let line = "tree -p firn-cli -e normal,features --prefix none";
    let manifest = "crates/firn-cli/Cargo.toml";
    let features = match Command::new(cargo)
        .args(line.split(' '))
        .current_dir(root)
        .output()
    {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Ok(output) => {
            let message = format!(
                "`cargo {line}` failed: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            return vec![Finding::new(manifest, 1, message)];
        }
        Err(error) => {
            return vec![Finding::new(
                manifest,
                1,
                format!("`cargo {line}` cannot run: {error}"),
            )];
        }
    };
    switchable(&features)
        .map(|line| Finding::new(manifest, 1, format!("the shipped `firn` has {line}")))
        .collect()
}

/// The lines of a feature tree that name the switches.
fn switchable(features: &str) -> impl Iterator<Item = &str> {
    features
        .lines()
        .filter(|line| line.contains("feature \"proof\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::planted(files))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn what_goes_past_a_site_is_found() {
        for call in RAW_CALLS {
            let text = format!("fn f() {{ {call}(1); }}\n");
            assert_eq!(
                messages(&[("crates/firndb/src/a.rs", &text)]).len(),
                1,
                "{call}"
            );
            assert!(
                messages(&[("crates/firn-fs/src/os/a.rs", &text)]).is_empty(),
                "{call}"
            );
        }
        let compared = "fn f() {\n    g(crc32c(b) == c);\n    let d = crc32c(b);\n}\n";
        assert_eq!(messages(&[("crates/firndb/src/a.rs", compared)]).len(), 1);
    }

    #[test]
    fn a_site_is_used_and_has_its_own_name() {
        let sites = (
            "crates/firndb/src/sites.rs",
            "sites! {\n    A = \"a\";\n    B = \"b\";\n}\n",
        );
        let user = ("crates/firndb/src/user.rs", "fn f() { g(&sites::A); }\n");
        let found = messages(&[sites, user]);
        assert!(
            matches!(&found[..], [one] if one.contains(":3: B is declared")),
            "{found:?}"
        );
        let other = ("crates/firn-pm/src/sites.rs", "    C = \"a\";\n");
        let user = ("crates/firn-pm/src/user.rs", "fn f() { g(&sites::C); }\n");
        assert!(
            messages(&[sites, other, user])
                .iter()
                .any(|message| message.contains("is a site of"))
        );
    }

    #[test]
    fn the_shipped_program_lacks_the_switches() {
        let root = crate::tree::workspace_root().unwrap();
        assert_eq!(check_shipped(&root), []);
        assert_eq!(
            switchable("firn-base v1\nfirn-base feature \"proof\"\n").count(),
            1
        );
    }
}
