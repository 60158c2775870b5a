//! The arrows between crates: base <- pm, fs <- table <- engine <- bench, cli, sim. Never
//! backwards, not even in tests.

use super::Finding;
use crate::tree::Tree;

/// The crates from the base upwards. A crate may depend on a prefix of this list.
const UPWARDS: [&str; 7] = [
    "firn-base",
    "firn-pm",
    "firn-fs",
    "firn-table",
    "firndb",
    "firn-bench",
    "firn-cli",
];

/// The crates that `package` may depend on; `None` if the graph does not contain `package`.
fn allowed(package: &str) -> Option<&'static [&'static str]> {
    match package {
        "firn-base" | "xtask" => Some(&[]),
        "firn-pm" | "firn-fs" => Some(&UPWARDS[..1]),
        "firn-table" => Some(&UPWARDS[..3]),
        "firndb" => Some(&UPWARDS[..4]),
        "firn-bench" | "firn-sim" => Some(&UPWARDS[..5]),
        "firn-cli" => Some(&UPWARDS[..6]),
        "firn-peers" => Some(&UPWARDS),
        _ => None,
    }
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in tree.packages() {
        let manifest = format!("{folder}/Cargo.toml");
        let package = folder.trim_start_matches("crates/");
        let Some(allowed) = allowed(package) else {
            findings.push(Finding::new(
                &manifest,
                1,
                "this crate is not in the graph of xtask/src/tidy/arrows.rs",
            ));
            continue;
        };
        for (line, name) in dependencies(&tree.texts[&manifest]) {
            let ours = name.starts_with("firn-") || name == "firndb";
            // A crate's tests may ask for more of itself.
            if ours && name != package && !allowed.contains(&name.as_str()) {
                let message =
                    format!("{package} must not depend on {name}: arrows go from the base upwards");
                findings.push(Finding::new(&manifest, line, message));
            }
        }
    }
    findings
}

/// The package names of all dependencies of a manifest, of every kind, with their lines.
fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_dependencies = false;
    for (line, text) in manifest.lines().enumerate().map(|(i, t)| (i + 1, t.trim())) {
        if let Some(section) = text.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            in_dependencies = section.ends_with("dependencies");
            if let Some((_, name)) = section.split_once("dependencies.") {
                found.push((line, name.to_owned()));
            }
        } else if in_dependencies && let Some((key, value)) = text.split_once('=') {
            let key = key.trim().split('.').next().unwrap_or("").trim_matches('"');
            found.push((line, renamed(value).unwrap_or(key).to_owned()));
        }
    }
    found.retain(|(_, name)| !name.starts_with('#'));
    found
}

/// The name in `package = "name"`, if `value` contains one.
fn renamed(value: &str) -> Option<&str> {
    let (_, after) = value.split_once("package")?;
    after.trim_start().strip_prefix('=')?.split('"').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrow_back_is_found() {
        let tree = Tree::planted(&[
            (
                "crates/firn-fs/Cargo.toml",
                "[dependencies]\nfirn-base.workspace = true\nfirndb.workspace = true\n",
            ),
            (
                "crates/firndb/Cargo.toml",
                "[dependencies]\nfirn-table.workspace = true\n",
            ),
        ]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!(
            (findings[0].file.as_str(), findings[0].line),
            ("crates/firn-fs/Cargo.toml", 3)
        );
    }

    #[test]
    fn tests_renames_and_tables_do_not_hide_it() {
        let manifest = "[dev-dependencies]\nx = { package = \"firn-sim\", path = \"..\" }\n\
                        [target.'cfg(unix)'.dependencies.firn-cli]\nworkspace = true\n";
        let tree = Tree::planted(&[("crates/firndb/Cargo.toml", manifest)]);
        assert_eq!(
            check(&tree).iter().map(|f| f.line).collect::<Vec<_>>(),
            [2, 3]
        );
    }

    #[test]
    fn an_unknown_crate_is_found() {
        let tree = Tree::planted(&[(
            "crates/firn-extra/Cargo.toml",
            "[package]\nname = \"firn-extra\"\n",
        )]);
        assert_eq!(check(&tree).len(), 1);
    }
}
