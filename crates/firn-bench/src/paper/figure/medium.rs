//! The traffic and the space of one medium: the SSD, or persistent memory.

use crate::counters::Traffic;
use crate::report::{Counted, PhaseReport};

/// The owner of the trees over the blocks of tables, in profile `pmdb`.
const INDEX: &str = "if_tree";
/// The causes of reads that gets and scans wait for: blocks, and the indexes and filters of tables
/// that they open.
const READS: [&str; 2] = ["user_read", "index_filter"];

/// A figure of one medium. Less is better for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediumFigure {
    /// Bytes written to the SSD while loading, logs included, as counted by the kernel, because not
    /// every engine counts them by medium.
    LoadSsdBytes,
    /// Bytes written to persistent memory while loading.
    LoadPmBytes,
    /// The part of them that is in indexes. Only profile `pmdb` has them.
    LoadPmIndexBytes,
    /// Reads of the SSD per operation: of blocks, and of the indexes and filters of tables that are
    /// opened. An engine that does not count them has the blocks that were not in its cache.
    SsdReads,
    /// Bytes read from persistent memory per operation.
    PmReadBytes,
    /// Cache lines of persistent memory that searches read per operation, write buffers excluded.
    PmLines,
    /// Bytes of the database's files.
    SsdSpace,
    /// Bytes of persistent memory in use.
    PmSpace,
    /// The part of them that is in indexes. Only profile `pmdb` has them.
    PmIndexSpace,
}

impl MediumFigure {
    pub(super) fn name(self) -> &'static str {
        match self {
            MediumFigure::LoadSsdBytes => "bytes written to the SSD by inserts (kernel)",
            MediumFigure::LoadPmBytes => "bytes written to persistent memory by inserts",
            MediumFigure::LoadPmIndexBytes => "bytes of indexes written to persistent memory",
            MediumFigure::SsdReads => "reads of the SSD per operation",
            MediumFigure::PmReadBytes => "bytes of persistent memory read per operation",
            MediumFigure::PmLines => "lines of persistent memory searched per operation",
            MediumFigure::SsdSpace => "bytes on the SSD",
            MediumFigure::PmSpace => "bytes of persistent memory in use",
            MediumFigure::PmIndexSpace => "bytes of indexes in persistent memory",
        }
    }

    /// True if it is a figure of the load that the run begins with.
    pub(super) fn is_of_load(self) -> bool {
        matches!(
            self,
            MediumFigure::LoadSsdBytes | MediumFigure::LoadPmBytes | MediumFigure::LoadPmIndexBytes
        )
    }

    /// The figure in `phase`; `None` if the engine, or the kernel, does not report it.
    pub(super) fn of(self, phase: &PhaseReport) -> Option<f64> {
        let engine = &phase.engine;
        let each = |amount: u64| amount as f64 / phase.operations.max(1) as f64;
        Some(match self {
            MediumFigure::LoadSsdBytes => phase.written_bytes_by(Counted::Kernel)? as f64,
            MediumFigure::LoadPmBytes => engine.total_of("pm", |t| t.written_bytes)? as f64,
            MediumFigure::LoadPmIndexBytes => {
                let mut indexes = engine.traffic.iter().filter(|t| is_of_index(t));
                indexes.next()?.written_bytes as f64
            }
            MediumFigure::SsdReads => each(ssd_reads(phase).or(engine.cache_misses)?),
            MediumFigure::PmReadBytes => each(engine.total_of("pm", |t| t.read_bytes)?),
            MediumFigure::PmLines => each(engine.pm_search_lines?),
            MediumFigure::SsdSpace => engine.space_bytes as f64,
            MediumFigure::PmSpace => {
                let bytes = engine.pm_bytes.values();
                (!engine.pm_bytes.is_empty()).then(|| bytes.sum::<u64>() as f64)?
            }
            MediumFigure::PmIndexSpace => *engine.pm_bytes.get(INDEX)? as f64,
        })
    }
}

fn is_of_index(traffic: &Traffic) -> bool {
    traffic.medium == "pm" && traffic.cause == INDEX
}

/// The reads that gets and scans waited for, if the engine counts them.
fn ssd_reads(phase: &PhaseReport) -> Option<u64> {
    let is_read = |t: &&Traffic| READS.contains(&&*t.cause) && t.reads.is_some();
    let mut reads = phase.engine.traffic.iter().filter(is_read).peekable();
    reads.peek()?;
    reads.map(|t| t.reads).sum()
}
