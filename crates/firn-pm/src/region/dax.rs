//! Linux's interfaces to DAX: the size of a `/dev/dax` device, and the attribute that turns DAX on
//! for a file.
//!
//! 1. A device is mapped at its own size, which is a multiple of its alignment (commonly 2 MiB).
//!    The kernel would refuse a shorter length, and a longer one would end the process with SIGBUS.
//! 2. The attribute takes effect when the inode is loaded. Set it while the file is empty, close
//!    every handle, and open the file again.

use firn_base::{Error, ErrorKind, Result};
use rustix::fs::{Dev, IFlags, major, minor};
use std::fs::File;
use std::path::Path;

/// `FS_DAX_FL` of linux/fs.h.
const DAX_ATTRIBUTE: u32 = 0x0200_0000;
/// A huge page. A smaller allocation cannot be mapped as one, so each of its 4 KiB pages faults
/// separately.
pub(crate) const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The size of the character device `device`, opened at `path`, in bytes. `sysfs` is the mount
/// point of sysfs.
///
/// # Errors
/// `Invalid` if it is not a `/dev/dax` device; `Io` if its size cannot be read.
pub(crate) fn device_bytes(sysfs: &Path, device: Dev, path: &Path) -> Result<u64> {
    let directory = sysfs.join(format!("dev/char/{}:{}", major(device), minor(device)));
    let number = |name: &str| {
        let text = std::fs::read_to_string(directory.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let (Some(bytes), align) = (number("size"), number("align").unwrap_or(HUGE_PAGE_BYTES)) else {
        return match directory.join("size").exists() {
            true => Err(Error::new(
                ErrorKind::Io,
                format!(
                    "cannot read the size of {} in {}",
                    path.display(),
                    directory.display()
                ),
            )),
            false => Err(Error::invalid(format!(
                "{} is a character device, but no /dev/dax device ({} has no size): a pool is a file, or a /dev/dax \
                 device for backend = \"dax\"",
                path.display(),
                directory.display()
            ))),
        };
    };
    match align.is_power_of_two() {
        true => Ok(bytes & !(align - 1)),
        false => Err(Error::new(
            ErrorKind::Io,
            format!(
                "{} says that {} is aligned to {align} bytes",
                directory.display(),
                path.display()
            ),
        )),
    }
}

/// Asks the file system to map the empty `file` with DAX, which ext4 and XFS mounted with
/// `dax=inode` (the default) need. A file system without support leaves the file unchanged and
/// refuses the mapping later.
pub(crate) fn ask_for_dax(file: &File) {
    let asked = rustix::fs::ioctl_getflags(file).and_then(|flags| {
        rustix::fs::ioctl_setflags(file, flags | IFlags::from_bits_retain(DAX_ATTRIBUTE))
    });
    if let Err(error) = asked {
        tracing::debug!(%error, "the DAX attribute cannot be set");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;

    /// A directory that mimics sysfs with the device 250:7 of `size` and `align`.
    fn sysfs(size: &str, align: Option<&str>) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("dev/char/250:7");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("size"), size).unwrap();
        if let Some(align) = align {
            std::fs::write(device.join("align"), align).unwrap();
        }
        dir
    }

    fn ask(sysfs: &Path) -> Result<u64> {
        device_bytes(sysfs, makedev(250, 7), Path::new("/dev/dax0.0"))
    }

    #[test]
    fn a_device_has_the_size_that_sysfs_says() {
        assert_eq!(
            ask(sysfs("528482304\n", Some("2097152\n")).path()).unwrap(),
            528_482_304
        );
        assert_eq!(
            ask(sysfs("4194305", None).path()).unwrap(),
            4 << 20,
            "whole pages of 2 MiB unless it says more"
        );
        assert_eq!(
            ask(sysfs("1610612736", Some("1073741824")).path()).unwrap(),
            1 << 30
        );
    }

    #[test]
    fn another_device_is_refused() {
        let error = ask(tempfile::tempdir().unwrap().path()).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Invalid && error.to_string().contains("no /dev/dax device"),
            "{error}"
        );
        for (size, align) in [("many", "4096"), ("8192", "3")] {
            assert_eq!(
                ask(sysfs(size, Some(align)).path()).unwrap_err().kind(),
                ErrorKind::Io
            );
        }
    }
}
