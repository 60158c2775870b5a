//! The operating system's files: see [`OsFs`].

mod direct;
mod directory;
mod pool;
#[cfg(target_os = "linux")]
mod ring;
mod system;
#[cfg(test)]
mod tests;

pub use system::{IoBackend, OsFs, handles_max, thread_cpu_ns};
