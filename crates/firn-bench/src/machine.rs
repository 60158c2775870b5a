//! Information from the operating system about this process and its disk.
//!
//! A value that is not available (no `/proc`, no permission) is 0 or `None` in a report, never a
//! failure of the run.

use crate::report::Moved;
use firn_base::clock::Clock;
use firn_base::{Error, Result};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// CPU seconds used by this process, in user and kernel mode.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes that this process caused to be written to storage, as counted by the kernel.
pub(crate) fn written_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/self/io").ok()?, "write_bytes:")
}

/// Bytes that this process caused to be read from storage, as counted by the kernel.
pub(crate) fn read_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/self/io").ok()?, "read_bytes:")
}

/// The largest resident set so far, in bytes, or since [`reset_peak`] where that is permitted.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    Some(field(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")? * 1024)
}

/// Resets the largest resident set, so that the next phase has its own.
pub(crate) fn reset_peak() {
    // If this is not permitted the peak is that of the whole run, which is still an upper bound.
    let _refused = fs::write("/proc/self/clear_refs", "5");
}

/// Bytes written to and read from the block device under `directory` since it was attached, by any
/// process.
pub fn device_bytes(directory: &Path) -> Option<Moved> {
    const SECTOR_BYTES: u64 = 512;
    let device = fs::metadata(directory).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let mut fields = stat
        .split_whitespace()
        .map(|field| field.parse::<u64>().ok());
    let (read, written) = (fields.nth(2)??, fields.nth(3)??);
    Some(Moved {
        written_bytes: written * SECTOR_BYTES,
        read_bytes: read * SECTOR_BYTES,
    })
}

/// Memory available to this process in bytes: that of the machine or of its control group,
/// whichever is less.
pub(crate) fn memory_bytes() -> Option<u64> {
    let machine = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")? * 1024;
    let limits = [
        "memory:/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ":/sys/fs/cgroup/memory.max",
    ];
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = |limit: &str| {
        let (controller, path) = limit.split_once(':')?;
        let (root, file) = path.rsplit_once('/')?;
        let own = group.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.split_once(':')
                .filter(|(controllers, _)| controllers.split(',').any(|c| c == controller))
        });
        let own = own.map_or("", |(_, own)| own);
        fs::read_to_string(format!("{root}{own}/{file}"))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    Some(limits.into_iter().filter_map(limit).fold(machine, u64::min))
}

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor.
    pub cpu: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Memory of the machine or of the control group, in bytes.
    pub memory_bytes: Option<u64>,
    /// The operating system and its version.
    pub os: String,
    /// The file system under the databases, and its device.
    pub device: String,
    /// The commit of the sources, if the current directory is in a repository.
    pub commit: Option<String>,
}

impl Machine {
    /// This machine, with databases in `directory`.
    pub fn here(directory: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| Some(line.strip_prefix("model name")?.to_owned()));
        let text = |bytes: &std::ffi::CStr| bytes.to_string_lossy().into_owned();
        let system = rustix::system::uname();
        let git = std::process::Command::new("git")
            .args(["rev-parse", "HEAD"])
            .output()
            .ok();
        let commit = git.filter(|output| output.status.success());
        Self {
            cpu: cpu
                .unwrap_or_default()
                .trim_start_matches([' ', '\t', ':'])
                .to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get()),
            memory_bytes: memory_bytes(),
            os: format!("{} {}", text(system.sysname()), text(system.release())),
            device: mount_of(&read("/proc/self/mountinfo"), directory).unwrap_or_default(),
            commit: commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        }
    }
}

/// Type and source of the mount that contains `directory`, from the text of `mountinfo`.
fn mount_of(mounts: &str, directory: &Path) -> Option<String> {
    let directory = fs::canonicalize(directory).ok()?;
    let mount = |line: &str| {
        let (place, device) = line.split_once(" - ")?;
        let point = place.split(' ').nth(4)?.to_owned();
        let mut device = device.split(' ');
        directory.starts_with(&point).then(|| {
            Some((
                point.len(),
                format!("{} on {}", device.next()?, device.next()?),
            ))
        })?
    };
    mounts
        .lines()
        .filter_map(mount)
        .max_by_key(|(len, _)| *len)
        .map(|(_, device)| device)
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Free space for an ordinary user in the file system of `directory`, in bytes.
///
/// # Errors
/// The error of the operating system.
pub fn free_bytes(directory: &Path) -> Result<u64> {
    let stats = rustix::fs::statvfs(directory)
        .map_err(|e| Error::from_io("ask for the free space of", directory, e.into()))?;
    Ok(stats.f_bavail.saturating_mul(stats.f_frsize))
}

/// Disk space of all files in and below `directory`, in bytes.
pub fn directory_bytes(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    let bytes_of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_gone) => 0,
    };
    entries.flatten().map(bytes_of).sum()
}

/// Time to append 4 KiB to a file in `directory` and sync it, in nanoseconds: the median of
/// `rounds`.
///
/// # Errors
/// The operating system's error if the file cannot be created, written or removed.
pub fn sync_ns(directory: &Path, rounds: usize, clock: &Clock) -> Result<u64> {
    let path = directory.join("sync-time.tmp");
    let failed = |verb: &'static str| {
        let path = path.clone();
        move |e| Error::from_io(verb, &path, e)
    };
    let mut file = fs::File::create_new(&path).map_err(failed("create"))?;
    let mut took = Vec::with_capacity(rounds);
    for round in 0..rounds.max(1) {
        let page = [round as u8; 4096];
        let start = clock.now_ns();
        file.write_all(&page).map_err(failed("write"))?;
        file.sync_data().map_err(failed("sync"))?;
        took.push(clock.now_ns() - start);
    }
    drop(file);
    fs::remove_file(&path).map_err(failed("remove"))?;
    took.sort_unstable();
    Ok(took[took.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        assert_eq!(
            field("rchar: 1\nwrite_bytes: 4096\n", "write_bytes:"),
            Some(4096)
        );
        assert_eq!(field("VmHWM:\t  12 kB\n", "VmHWM:"), Some(12));
        assert_eq!(field("VmHWM:\t", "VmHWM:"), None);
    }

    #[test]
    fn a_directory_has_space_and_a_sync_time() {
        let directory = tempfile::tempdir().unwrap();
        assert!(free_bytes(directory.path()).unwrap() > 0);
        sync_ns(directory.path(), 2, &Clock::system()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(free_bytes(Path::new("/nowhere/at/all")).is_err());
    }
}
