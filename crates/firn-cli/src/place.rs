//! Resolution of a path whose last components may not exist yet.

use std::path::{Path, PathBuf};

/// `path` without symbolic links and `..` as far as it exists; the rest is unchanged.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for ancestor in absolute.ancestors() {
        if let Ok(found) = ancestor.canonicalize() {
            return absolute
                .strip_prefix(ancestor)
                .map_or(found.clone(), |rest| found.join(rest));
        }
    }
    absolute
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_and_what_is_missing_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        assert_eq!(resolved(&root.join("link/a/b")), root.join("real/a/b"));
        assert_eq!(resolved(&root.join("link")), root.join("real"));
    }
}
