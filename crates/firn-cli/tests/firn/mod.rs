//! Runs the real `firn` in a new temporary directory.
#![allow(dead_code, reason = "each test file uses a part")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

pub(crate) struct Firn {
    home: TempDir,
}

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("stdout is text")
    }

    pub(crate) fn lines(&self) -> Vec<&str> {
        self.text().lines().collect()
    }
}

impl Firn {
    pub(crate) fn new() -> Self {
        Self {
            home: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// The path of the database used by every test.
    pub(crate) fn db(&self) -> PathBuf {
        self.home.path().join("db")
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(&path, bytes).expect("a file");
        path
    }

    pub(crate) fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firn"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FIRN_"))
        {
            command.env_remove(name);
        }
        command
            .current_dir(self.home.path())
            .arg(verb)
            .stdin(Stdio::null());
        command
    }

    /// Runs `firn VERB DB ARGUMENTS` and returns any exit code.
    pub(crate) fn try_run<A: AsRef<OsStr>>(
        &self,
        verb: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Ran {
        self.try_command(self.command(verb).arg("db").args(arguments))
    }

    pub(crate) fn try_command(&self, command: &mut Command) -> Ran {
        ran(command.output().expect("firn runs"))
    }

    /// Like `try_run`, but the exit code must be 0.
    pub(crate) fn run<A: AsRef<OsStr>>(
        &self,
        verb: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Ran {
        let ran = self.try_run(verb, arguments);
        assert_eq!(ran.code, 0, "firn {verb}: {}", ran.stderr);
        ran
    }

    /// Like `run`, with `input` on stdin.
    pub(crate) fn run_with(&self, verb: &str, arguments: &[&str], input: &[u8]) -> Ran {
        let mut child = self.start(verb, arguments);
        let mut stdin = child.stdin.take().expect("stdin");
        stdin.write_all(input).expect("firn reads");
        drop(stdin);
        let ran = ran(child.wait_with_output().expect("firn ends"));
        assert_eq!(ran.code, 0, "firn {verb}: {}", ran.stderr);
        ran
    }

    /// Starts a verb with stdin, stdout and stderr as pipes.
    pub(crate) fn start(&self, verb: &str, arguments: &[&str]) -> Child {
        let mut command = self.command(verb);
        command
            .arg("db")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect("firn starts")
    }

    pub(crate) fn put(&self, key: &str, value: &str) {
        self.run("put", [key, value]);
    }

    /// Total bytes of all files in the database's directory.
    pub(crate) fn db_bytes(&self) -> u64 {
        let Ok(entries) = std::fs::read_dir(self.db()) else {
            return 0;
        };
        entries
            .flatten()
            .filter_map(|entry| Some(entry.metadata().ok()?.len()))
            .sum()
    }
}

fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
