//! The files that tidy checks: the whole repository, or a few planted files in a test.
//!
//! Paths are relative to the root, with `/`. Build output and hidden directories are excluded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::source::Source;

const TEXT_EXTENSIONS: [&str; 5] = ["rs", "md", "toml", "txt", "sh"];

/// The repository as tidy sees it.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Every file, text or not.
    pub(crate) paths: BTreeSet<String>,
    /// The contents of text files.
    pub(crate) texts: BTreeMap<String, String>,
    /// The Rust files, scanned.
    pub(crate) sources: BTreeMap<String, Source>,
}

impl Tree {
    /// Reads the repository at `root`.
    pub(crate) fn load(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        let mut pending = vec![PathBuf::new()];
        while let Some(folder) = pending.pop() {
            for entry in fs::read_dir(root.join(&folder))? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = folder.join(&name);
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    if !name.starts_with('.') && name != "target" {
                        pending.push(path);
                    }
                } else if kind.is_file() {
                    tree.load_file(root, &path)?;
                }
            }
        }
        Ok(tree)
    }

    fn load_file(&mut self, root: &Path, path: &Path) -> io::Result<()> {
        let name = path.to_string_lossy().into_owned();
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        if TEXT_EXTENSIONS.contains(&extension) {
            let text = String::from_utf8_lossy(&fs::read(root.join(path))?).into_owned();
            self.add(&name, &text);
        } else {
            self.paths.insert(name);
        }
        Ok(())
    }

    /// Adds a text file.
    pub(crate) fn add(&mut self, path: &str, text: &str) {
        self.paths.insert(path.to_owned());
        if path.ends_with(".rs") {
            self.sources.insert(path.to_owned(), Source::scan(text));
        }
        self.texts.insert(path.to_owned(), text.to_owned());
    }

    /// A tree of only these files.
    #[cfg(test)]
    pub(crate) fn planted(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.add(path, text);
        }
        tree
    }

    /// The folders of packages: `crates/NAME` and `xtask`, without the slash.
    pub(crate) fn packages(&self) -> Vec<&str> {
        let manifests = self
            .paths
            .iter()
            .filter_map(|p| p.strip_suffix("/Cargo.toml"));
        manifests
            .filter(|p| {
                *p == "xtask" || p.strip_prefix("crates/").is_some_and(|n| !n.contains('/'))
            })
            .collect()
    }
}

/// True if the file's path says that all of it is tests.
pub(crate) fn is_test_path(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// `folder/name`, with `.` and `..` in `name` resolved.
pub(crate) fn join(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// The folder of `path`; empty for a file at the root.
pub(crate) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The nearest folder, from the current one upwards, whose Cargo.toml is a workspace.
pub(crate) fn workspace_root() -> io::Result<PathBuf> {
    let start = env::current_dir()?;
    let is_workspace = |f: &&Path| {
        fs::read_to_string(f.join("Cargo.toml"))
            .is_ok_and(|t| t.lines().any(|l| l == "[workspace]"))
    };
    let found = start.ancestors().find(is_workspace).map(Path::to_path_buf);
    found
        .ok_or_else(|| io::Error::other("no workspace here or above; run it inside the repository"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_resolve() {
        assert_eq!(join("docs/format", "../perf.md"), "docs/perf.md");
        assert_eq!(join("", "./README.md"), "README.md");
        assert_eq!(folder("docs/perf.md"), "docs");
        assert_eq!(folder("README.md"), "");
        assert!(is_test_path("crates/firndb/src/write/tests.rs"));
        assert!(!is_test_path("crates/firndb/src/write.rs"));
    }

    #[test]
    fn packages_are_crates_and_xtask() {
        let tree = Tree::planted(&[
            ("Cargo.toml", ""),
            ("crates/firndb/Cargo.toml", ""),
            ("fuzz/Cargo.toml", ""),
        ]);
        assert_eq!(tree.packages(), ["crates/firndb"]);
    }
}
