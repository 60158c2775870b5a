//! The options that a database stores with its data, so that a tool need not be given them again.
//!
//! 1. The profile is in the manifest, which is authoritative.
//! 2. The pool is in the file `OPTIONS`: lines of TOML after a comment for people. The engine
//!    itself reads nothing from that file, because only its user knows that a pool is still in the
//!    same place.

use crate::lifecycle::owner;
use crate::manifest;
use crate::options::{Options, Profile};
use firn_base::count::IoCounters;
use firn_base::{ErrorKind, Result};
use firn_fs::{Fs, OsFs};
use std::path::Path;
use std::sync::Arc;

/// The profile of the database at `path`; `None` if there is no database, or if this version does
/// not know its profile.
///
/// # Errors
/// `Corruption` if the manifest is damaged; `Io`.
pub fn profile_at(path: impl AsRef<Path>, options: &Options) -> Result<Option<Profile>> {
    let fs: Arc<dyn Fs> = options
        .environment
        .fs
        .clone()
        .unwrap_or_else(|| Arc::new(OsFs::new()));
    let dir = match fs.open_dir(path.as_ref()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if owner::find(&*dir, &dir.list()?)?.is_none() {
        return Ok(None);
    }
    let found = manifest::read(&*dir, &IoCounters::default())?;
    Ok(found.and_then(|(_, version)| Profile::from_number(version.profile)))
}

/// The contents of `OPTIONS` for the database in `dir`.
pub(crate) fn options_text(options: &Options, dir: &Path) -> String {
    let mut text = format!(
        "# FirnDB {}: options at the last open\n",
        env!("CARGO_PKG_VERSION")
    );
    for line in format!("{options:#?}").lines() {
        text += &format!("# {line}\n");
    }
    text += &format!(
        "\n# The firn command takes these if it is not told otherwise.\nprofile = \"{}\"\n",
        options.profile
    );
    let Some(pm) = &options.pm else { return text };
    let absolute = |path: &Path| {
        std::path::absolute(path)
            .ok()
            .and_then(|path| path.to_str().map(quoted))
    };
    let lines = match pm.path.as_deref().map(absolute) {
        None => Some(String::new()),
        Some(path) => path.map(|path| format!("pm_path = {path}\n")),
    };
    // A path that is not valid UTF-8 cannot be stored here.
    if let Some((lines, directory)) = lines.zip(absolute(dir)) {
        let (backend, size) = (pm.backend.name(), pm.size_bytes);
        text += &format!(
            "directory = {directory}\npm_backend = \"{backend}\"\n{lines}pm_size = {size}\n"
        );
    }
    text
}

/// `text` as a TOML basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::{Backend, Db, PmConfig};

    #[test]
    fn the_profile_is_known_before_an_open() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(profile_at(dir.path(), &Options::default()).unwrap(), None);
        Db::open(
            dir.path(),
            Options {
                profile: Profile::Block,
                ..Options::tiny()
            },
        )
        .unwrap()
        .close()
        .unwrap();
        assert_eq!(
            profile_at(dir.path(), &Options::default()).unwrap(),
            Some(Profile::Block)
        );
    }

    #[test]
    fn the_pool_is_in_the_text() {
        let pm = PmConfig::at("/pm/a \"pool\"\n", Backend::File, 4096);
        let text = options_text(
            &Options {
                pm: Some(pm),
                ..Options::default()
            },
            Path::new("/db"),
        );
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .collect();
        let path = "pm_path = \"/pm/a \\\"pool\\\"\\u000A\"";
        assert_eq!(
            lines,
            [
                "profile = \"classic\"",
                "directory = \"/db\"",
                "pm_backend = \"file\"",
                path,
                "pm_size = 4096"
            ]
        );
        assert!(!options_text(&Options::default(), Path::new("/db")).contains("pm_"));
    }
}
