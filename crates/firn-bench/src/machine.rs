//! What the operating system says about this process and the disk under it.
//!
//! What cannot be had (no `/proc`, no permission) is 0 or `None` in a report, never a failure of the run.

use firn_base::clock::Clock;
use firn_base::{Error, Result};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Seconds of CPU that this process has used, in user and in kernel mode.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes that this process has caused to be written to storage, by the kernel's count.
pub(crate) fn written_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/self/io").ok()?, "write_bytes:")
}

/// Bytes that this process has caused to be read from storage, by the kernel's count.
pub(crate) fn read_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/self/io").ok()?, "read_bytes:")
}

/// The largest resident set so far, in bytes, or since [`reset_peak`] where that is allowed.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    Some(field(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")? * 1024)
}

/// Forgets the largest resident set, so that the next phase has its own.
pub(crate) fn reset_peak() {
    // Where it is not allowed the peak is that of the whole run, which is still an upper bound.
    let _refused = fs::write("/proc/self/clear_refs", "5");
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes that an ordinary user may still write in the file system of `directory`.
///
/// # Errors
/// What the operating system says.
pub fn free_bytes(directory: &Path) -> Result<u64> {
    let stats =
        rustix::fs::statvfs(directory).map_err(|e| Error::from_io("ask for the free space of", directory, e.into()))?;
    Ok(stats.f_bavail.saturating_mul(stats.f_frsize))
}

/// Bytes that the files in `directory` take on the disk, whatever they are for.
pub(crate) fn directory_bytes(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

/// Nanoseconds that appending 4 KiB to a file in `directory` and syncing it takes: the median of `rounds`.
///
/// # Errors
/// What the operating system says when the file cannot be made, written or removed.
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
        assert_eq!(field("rchar: 1\nwrite_bytes: 4096\n", "write_bytes:"), Some(4096));
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
