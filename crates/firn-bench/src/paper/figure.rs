//! The figures that experiments compare.

mod medium;

use crate::cell::Cell;
use crate::latency::Percentiles;
use crate::report::{Counted, PhaseReport};

pub(super) use medium::MediumFigure;

/// A figure measured in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Seconds to zero compaction debt; less is better.
    SettledSeconds,
    /// Bytes written for tables, without the log, per byte of user data; less is better.
    TableWriteAmplification,
    /// Bytes of storage at the end per byte loaded; less is better.
    SpaceAmplification,
    /// Operations per second; more is better.
    OperationsPerSecond,
    /// Latency in microseconds that 99.9 % of the operations did not exceed; less is better.
    P999,
    /// Bytes written to the SSD as counted by the kernel, because not every engine counts them;
    /// less is better.
    WrittenBytes,
    /// Blocks that were not in the block cache, per operation; less is better.
    CacheMisses,
    /// Total seconds of compactions; less is better.
    CompactionSeconds,
    /// Total seconds of compactions out of level 0; less is better.
    Level0Seconds,
    /// Bytes of the logs that hold the values of level 0, when the last operation ended; less is
    /// better.
    LogBytes,
    /// Seconds to reopen the database after the workload; less is better.
    OpeningSeconds,
    /// Operations in the slowest second divided by those in the median second; more is better.
    SlowestSecond,
    /// Mean latency of an operation in microseconds; less is better.
    MicrosPerOperation,
    /// Mean latency of an insert of the load in microseconds; less is better.
    LoadMicros,
    /// Inserts of the load per second; more is better.
    LoadOperationsPerSecond,
    /// Seconds in inserts of the load that took longer than 0.5 ms, by the histogram of their
    /// latencies, because not every engine counts its stalls; less is better.
    StallSeconds,
    /// Bytes written for tables while loading, to all media: by compactions and by flushes, because
    /// LevelDB counts both together. The log is left out. An engine that counts nothing has the
    /// kernel's bytes, log included; less is better.
    CompactionBytes,
    /// Mean age in seconds of the tables of this level that compactions replaced while loading.
    TableSeconds(Depth),
    /// Bytes that a kind of job wrote into tables. Only profile `blade` tells them apart; less is
    /// better.
    JobBytes(TableJob),
    /// Bytes written to the SSD for tables by all workloads, without the log, or the kernel's with
    /// it if the engine does not count them; less is better.
    SsdTableBytes,
    /// Bytes of persistent memory that the last workload freed; more is better.
    FreedBytes,
    /// The share of the bytes taken before that the last workload freed; more is better.
    FreedShare,
    /// The share of the keys found by gets that the levels in persistent memory had; more is
    /// better.
    PmHitShare,
    /// Mean latency in microseconds of one kind of call; less is better.
    CallMicros(Call),
    /// Latency in microseconds that 99.9 % of the calls of a kind did not exceed; less is better.
    CallP999(Call),
    /// Mean latency of reads in the last workload divided by that in the one before it; less is
    /// better.
    ReadMicrosRise,
    /// The same for the latency that 99.9 % of the reads did not exceed; less is better.
    ReadP999Rise,
    /// Seconds from the start of the last workload to its last acknowledgement; less is better.
    Seconds,
    /// The same for each GB that major compactions wrote meanwhile, because not every run moves as
    /// much; less is better.
    SecondsPerMajorGb,
    /// Processor time of the process divided by the time of this number of cores; more is better.
    CpuBusy(u32),
    /// The rest of their time; less is better.
    CpuIdle(u32),
    /// The share of the time in which compactions had a read or write in flight; more is better.
    DeviceBusy,
    /// The rest of the time; less is better.
    DeviceIdle,
    /// Mean duration in microseconds of a read or write of a compaction; less is better.
    IoMicros,
    /// Traffic or space of one medium; less is better.
    Medium(MediumFigure),
}

/// A kind of job of profile `blade` that writes tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableJob {
    /// A flush of a write buffer.
    Flush,
    /// A compaction within persistent memory.
    Internal,
}

impl TableJob {
    fn name(self) -> &'static str {
        match self {
            TableJob::Flush => "flush",
            TableJob::Internal => "internal",
        }
    }
}

/// A kind of call to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A get.
    Read,
    /// A put, or a batch.
    Write,
    /// A scan.
    Scan,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Call::Read => "read",
            Call::Write => "write",
            Call::Scan => "scan",
        }
    }

    fn latency(self, phase: &PhaseReport) -> Option<&Percentiles> {
        phase.latency_by_sort.get(self.name())
    }
}

/// The levels of profile `blade` in persistent memory.
const PM_LEVELS: [&str; 2] = ["level0", "level1"];

/// A level of the tables whose ages are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Level 0.
    Zero,
    /// Level 1.
    One,
    /// Level 2.
    Two,
    /// Level 3.
    Three,
}

impl Figure {
    /// Its name and unit.
    pub fn name(self) -> &'static str {
        match self {
            Figure::SettledSeconds => "seconds until settled",
            Figure::TableWriteAmplification => "bytes written per byte, without the log",
            Figure::SpaceAmplification => "space per byte loaded",
            Figure::OperationsPerSecond => "operations/s",
            Figure::P999 => "p99.9 in us",
            Figure::WrittenBytes => "bytes written (kernel)",
            Figure::CacheMisses => "block-cache misses per operation",
            Figure::CompactionSeconds => "seconds of compactions",
            Figure::Level0Seconds => "seconds of compactions out of level 0",
            Figure::LogBytes => "bytes of logs",
            Figure::OpeningSeconds => "seconds to open",
            Figure::SlowestSecond => "slowest second by the median one",
            Figure::MicrosPerOperation => "us/operation",
            Figure::LoadMicros => "us/insert",
            Figure::LoadOperationsPerSecond => "inserts/s",
            Figure::StallSeconds => "seconds in inserts above 0.5 ms",
            Figure::CompactionBytes => "bytes written for tables, all media",
            Figure::TableSeconds(Depth::Zero) => "age of replaced tables of level 0 in s",
            Figure::TableSeconds(Depth::One) => "age of replaced tables of level 1 in s",
            Figure::TableSeconds(Depth::Two) => "age of replaced tables of level 2 in s",
            Figure::TableSeconds(Depth::Three) => "age of replaced tables of level 3 in s",
            Figure::JobBytes(TableJob::Flush) => "bytes written by flushes",
            Figure::JobBytes(TableJob::Internal) => "bytes written by internal compactions",
            Figure::SsdTableBytes => "bytes written to the SSD for tables",
            Figure::FreedBytes => "bytes of persistent memory freed",
            Figure::FreedShare => "share of persistent memory freed",
            Figure::PmHitShare => "share of hits in persistent memory",
            Figure::CallMicros(Call::Read) => "us/read",
            Figure::CallMicros(Call::Write) => "us/write",
            Figure::CallMicros(Call::Scan) => "us/scan",
            Figure::CallP999(Call::Read) => "p99.9 of reads in us",
            Figure::CallP999(Call::Write) => "p99.9 of writes in us",
            Figure::CallP999(Call::Scan) => "p99.9 of scans in us",
            Figure::ReadMicrosRise => "us/read by that before",
            Figure::ReadP999Rise => "p99.9 of reads by that before",
            Figure::Seconds => "seconds",
            Figure::SecondsPerMajorGb => "seconds for each GB written",
            Figure::CpuBusy(_) => "share of processor time used",
            Figure::CpuIdle(_) => "share of processor time idle",
            Figure::DeviceBusy => "share of time with I/O in flight",
            Figure::DeviceIdle => "share of time without I/O in flight",
            Figure::IoMicros => "us/read or write of compactions",
            Figure::Medium(figure) => figure.name(),
        }
    }

    /// True if it is a figure of the load that the run begins with, so that a run can go on with
    /// another workload for another figure.
    pub fn is_of_load(self) -> bool {
        match self {
            Figure::LoadMicros
            | Figure::LoadOperationsPerSecond
            | Figure::StallSeconds
            | Figure::CompactionBytes
            | Figure::TableSeconds(_) => true,
            Figure::Medium(figure) => figure.is_of_load(),
            _ => false,
        }
    }

    /// The phase of `cell` that it is a figure of, if the cell completed all workloads.
    pub(super) fn phase_of(self, cell: &Cell) -> Option<&PhaseReport> {
        let phase = if self.is_of_load() {
            cell.phases.first()
        } else {
            cell.phases.last()
        };
        phase.filter(|_| cell.phases.len() == cell.config.workloads.len())
    }

    /// The figure in `phase` of `cell`; `None` if the engine, or the kernel, does not report it.
    pub(super) fn of(self, cell: &Cell, phase: &PhaseReport) -> Option<f64> {
        let tables = || {
            let is_counted = !phase.engine.traffic.is_empty();
            is_counted.then(|| phase.engine.written("ssd", |cause| cause != "log") as f64)
        };
        Some(match self {
            Figure::SettledSeconds => phase.settled_seconds(),
            Figure::TableWriteAmplification => tables()? / phase.user_bytes.max(1) as f64,
            Figure::SpaceAmplification => phase.space_amplification(cell.config.loaded_bytes()),
            Figure::OperationsPerSecond | Figure::LoadOperationsPerSecond => {
                phase.operations_per_second
            }
            Figure::P999 => phase.latency.p99_9_us,
            Figure::WrittenBytes => phase.written_bytes_by(Counted::Kernel)? as f64,
            Figure::CacheMisses => phase.cache_misses_per_operation()?,
            Figure::CompactionSeconds => phase.engine.compaction_seconds?,
            Figure::Level0Seconds => phase.engine.level0_seconds?,
            Figure::LogBytes => phase.engine.log_bytes? as f64,
            Figure::OpeningSeconds => phase.engine.opening.as_ref()?.seconds,
            Figure::SlowestSecond => phase.timeline.min as f64 / phase.timeline.median as f64,
            Figure::MicrosPerOperation | Figure::LoadMicros => phase.latency.mean_us,
            Figure::StallSeconds => phase.latency_by_sort.get("write")?.slow_seconds?,
            Figure::CompactionBytes => match tables() {
                Some(files) => files + phase.engine.written("pm", is_of_lists) as f64,
                None => phase.written_bytes_by(Counted::Kernel)? as f64,
            },
            Figure::TableSeconds(depth) => {
                let seconds = phase.engine.table_seconds.get(depth as usize);
                *seconds.filter(|seconds| **seconds > 0.0)?
            }
            Figure::JobBytes(job) => *phase.engine.job_bytes.get(job.name())? as f64,
            Figure::SsdTableBytes => {
                let bytes = |phase: &PhaseReport| match phase.engine.traffic.is_empty() {
                    false => Some(phase.engine.written("ssd", |cause| cause != "log")),
                    true => phase.written_bytes_by(Counted::Kernel),
                };
                cell.phases.iter().map(bytes).sum::<Option<u64>>()? as f64
            }
            Figure::FreedBytes => {
                let held = |phase: &PhaseReport| Some(phase.engine.pm_table_bytes? as f64);
                held(before(cell)?)? - held(phase)?
            }
            Figure::FreedShare => {
                let freed = Figure::FreedBytes.of(cell, phase)?;
                freed / before(cell)?.engine.pm_table_bytes? as f64
            }
            Figure::PmHitShare => phase.engine.hit_share(&PM_LEVELS)?,
            Figure::CallMicros(call) => call.latency(phase)?.mean_us,
            Figure::CallP999(call) => call.latency(phase)?.p99_9_us,
            Figure::ReadMicrosRise => {
                Call::Read.latency(phase)?.mean_us / Call::Read.latency(before(cell)?)?.mean_us
            }
            Figure::ReadP999Rise => {
                Call::Read.latency(phase)?.p99_9_us / Call::Read.latency(before(cell)?)?.p99_9_us
            }
            Figure::Seconds => phase.seconds,
            Figure::SecondsPerMajorGb => {
                phase.seconds * 1e9 / *phase.engine.job_bytes.get("major")? as f64
            }
            Figure::CpuBusy(cores) => cpu_busy(phase, cores),
            Figure::CpuIdle(cores) => 1.0 - cpu_busy(phase, cores),
            Figure::DeviceBusy => device_busy(phase)?,
            Figure::DeviceIdle => 1.0 - device_busy(phase)?,
            Figure::IoMicros => {
                let io = phase.engine.compaction_io;
                io.filter(|io| io.ended > 0)?.mean_us
            }
            Figure::Medium(figure) => figure.of(phase)?,
        })
        .filter(|figure| figure.is_finite())
    }
}

/// The phase before the last one.
fn before(cell: &Cell) -> Option<&PhaseReport> {
    cell.phases.iter().rev().nth(1)
}

/// Processor time per second of each of `cores`.
fn cpu_busy(phase: &PhaseReport, cores: u32) -> f64 {
    phase.cpu_seconds / (phase.settled_seconds() * f64::from(cores))
}

/// The share of the time in which compactions had I/O in flight.
fn device_busy(phase: &PhaseReport) -> Option<f64> {
    Some(phase.engine.compaction_io?.busy_seconds / phase.settled_seconds())
}

/// True if `owner` of persistent memory holds tables of profile `tlsm`.
fn is_of_lists(owner: &str) -> bool {
    ["skiplist", "payload"].contains(&owner)
}
