//! [`Stats`] as the text that Prometheus reads (exposition format 0.0.4).

use crate::api::stats::{CauseStats, GrainStats, LevelStats, PmStats};
use crate::{BladeStats, LabStats, Stats, TlsmStats};
use std::fmt::{Display, Write};

/// Families of samples, one after another.
#[derive(Default)]
struct Text(String);

/// The labels that distinguish samples of a family, such as `{level="1"}`, and the value.
type Sample = (String, f64);

impl Text {
    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        // Writing to a string cannot fail.
        let _ok = writeln!(
            self.0,
            "# HELP firn_{name} {help}\n# TYPE firn_{name} {kind}"
        );
        for (labels, value) in samples {
            let _ok = writeln!(self.0, "firn_{name}{labels} {value}");
        }
    }

    /// Writes a value that only grows while the database is open.
    fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.counters(name, help, [(String::new(), value)]);
    }

    fn counters(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) {
        self.family(name, "counter", help, samples);
    }

    /// Writes a value that may go up and down.
    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauges(name, help, [(String::new(), value)]);
    }

    fn gauges(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) {
        self.family(name, "gauge", help, samples);
    }
}

fn label(name: &str, value: impl Display) -> String {
    format!("{{{name}=\"{value}\"}}")
}

impl Stats {
    /// The counters and sizes as Prometheus text (exposition format 0.0.4).
    pub fn to_prometheus(&self) -> String {
        let mut text = Text::default();
        self.traffic(&mut text);
        self.levels(&mut text);
        self.running(&mut text);
        if let Some(lab) = &self.design.lab {
            lab.write_to(&mut text);
        }
        if let Some(tlsm) = &self.design.tlsm {
            tlsm.write_to(&mut text);
        }
        if let Some(blade) = &self.design.blade {
            blade.write_to(&mut text);
        }
        text.0
    }

    /// Writes the users' operations, and the bytes that they cost.
    fn traffic(&self, text: &mut Text) {
        let causes = |pick: fn(&CauseStats) -> u64| {
            self.ssd
                .iter()
                .map(move |cause| (label("cause", cause.cause), pick(cause) as f64))
        };
        let owners = |pick: fn(&PmStats) -> u64| {
            self.pm
                .iter()
                .map(move |owner| (label("owner", &owner.owner), pick(owner) as f64))
        };
        text.counter(
            "writes_total",
            "Operations written.",
            self.user.writes as f64,
        );
        text.counter(
            "user_written_bytes_total",
            "Bytes written by users.",
            self.user.written_bytes as f64,
        );
        text.counter("gets_total", "Keys looked up.", self.user.gets as f64);
        let hits = self.user.hits.iter();
        text.counters(
            "hits_total",
            "Keys found by gets, by the layer that had the value.",
            hits.map(|(layer, count)| (label("layer", layer), *count as f64)),
        );
        text.counters(
            "ssd_read_bytes_total",
            "Bytes read from the SSD.",
            causes(|cause| cause.read_bytes),
        );
        text.counters(
            "ssd_reads_total",
            "Reads from the SSD.",
            causes(|cause| cause.reads),
        );
        text.counters(
            "ssd_written_bytes_total",
            "Bytes written to the SSD.",
            causes(|cause| cause.written_bytes),
        );
        if self.pm.is_empty() {
            return;
        }
        text.gauges(
            "pm_live_bytes",
            "Bytes of extents in persistent memory.",
            owners(|pm| pm.live_bytes),
        );
        text.counters(
            "pm_read_bytes_total",
            "Bytes read from persistent memory.",
            owners(|pm| pm.read_bytes),
        );
        text.counters(
            "pm_written_bytes_total",
            "Bytes written to persistent memory.",
            owners(|pm| pm.written_bytes),
        );
        text.counters("pm_fences_total", "Fences.", owners(|pm| pm.fences));
    }

    fn levels(&self, text: &mut Text) {
        text.gauge(
            "partitions",
            "Key ranges whose tables are compacted on their own.",
            self.partitions.len() as f64,
        );
        let levels = |pick: fn(&LevelStats) -> f64| {
            self.levels
                .iter()
                .map(move |level| (label("level", level.level), pick(level)))
        };
        text.gauges(
            "level_tables",
            "Tables per level.",
            levels(|level| level.tables as f64),
        );
        text.gauges(
            "level_bytes",
            "Bytes per level.",
            levels(|level| level.bytes as f64),
        );
        let dead = levels(|level| level.dead_bytes as f64);
        text.gauges(
            "level_dead_bytes",
            "Bytes in no live block, per level.",
            dead,
        );
        let appended = levels(|level| level.growth.block_grained as f64);
        text.counters(
            "block_grained_total",
            "Tables that took keys by an append.",
            appended,
        );
        let anew = levels(|level| level.growth.table_grained as f64);
        text.counters(
            "table_grained_total",
            "Tables written anew by choice.",
            anew,
        );
        let grain = |grain: &GrainStats| {
            let name = if grain.block_grained {
                "block"
            } else {
                "table"
            };
            (
                format!("{{grain=\"{name}\",rule=\"{}\"}}", grain.rule),
                grain.count as f64,
            )
        };
        let grains = self.background.grains.iter().map(grain);
        text.counters(
            "grains_total",
            "Choices of an append or a new table, by the rule that decided.",
            grains,
        );
        let seconds = levels(|level| level.compaction_seconds);
        text.counters(
            "compaction_seconds_total",
            "Seconds of compaction.",
            seconds,
        );
    }

    /// Writes the I/O of compactions.
    fn compaction_io(&self, text: &mut Text) {
        let io = &self.background.io;
        text.gauge(
            "compaction_io_in_flight",
            "Reads and writes of compactions in flight.",
            io.in_flight as f64,
        );
        text.counter(
            "compaction_io_total",
            "Reads and writes of compactions that ended.",
            io.ended as f64,
        );
        let seconds = [
            ("io", io.busy_seconds),
            ("worker", io.worker_seconds),
            ("cpu", io.worker_cpu_seconds),
        ];
        let help = "Seconds with a read or write of a compaction in flight, that workers spent on sub-tasks, \
                    and of processor time that they used meanwhile.";
        let seconds = seconds.map(|(of, seconds)| (label("of", of), seconds));
        text.counters("compaction_io_seconds_total", help, seconds);
        let writes = [("admitted", io.admitted_writes), ("refused", io.refusals)];
        let help =
            "Writes that flush coroutines submitted, and how often there was no room for one.";
        let writes = writes.map(|(result, count)| (label("result", result), count as f64));
        text.counters("compaction_writes_total", help, writes);
    }

    /// Writes background work, memory and write stalls.
    fn running(&self, text: &mut Text) {
        let (background, memory) = (&self.background, &self.memory);
        let help = "Cached blocks that compaction made obsolete.";
        text.counter(
            "invalidated_blocks_total",
            help,
            background.invalidated_blocks as f64,
        );
        text.counter("flushes_total", "Flushes.", background.flushes as f64);
        text.gauge(
            "buffer_bytes",
            "Bytes used in write buffers.",
            memory.buffer_bytes as f64,
        );
        text.gauge(
            "buffer_dram_bytes",
            "Bytes of DRAM that write buffers take, and that was borrowed from the block cache.",
            memory.buffer_dram_bytes as f64,
        );
        text.gauge(
            "held_value_bytes",
            "Bytes of the values that readers hold.",
            memory.held_value_bytes as f64,
        );
        text.counter(
            "cache_hits_total",
            "Block cache hits.",
            memory.cache_hits as f64,
        );
        text.counter(
            "cache_misses_total",
            "Block cache misses.",
            memory.cache_misses as f64,
        );
        text.gauge(
            "cache_bytes",
            "Bytes in the block cache.",
            memory.cache_bytes as f64,
        );
        text.gauge(
            "cache_bytes_max",
            "The most bytes that the block cache may have now.",
            memory.cache_bytes_max as f64,
        );
        text.gauge(
            "debt_bytes",
            "Bytes by which levels exceed their targets.",
            background.debt_bytes as f64,
        );
        let help = "Seconds that compactions slept, nothing being urgent.";
        text.counter(
            "compaction_slept_seconds_total",
            help,
            background.slept_seconds,
        );
        self.compaction_io(text);
        let stalls = self
            .stalls
            .seconds
            .iter()
            .map(|(reason, seconds)| (label("reason", reason), *seconds));
        text.counters(
            "stall_seconds_total",
            "Seconds that writers waited.",
            stalls,
        );
        let steps = self
            .recovery
            .steps
            .iter()
            .map(|(step, seconds)| (label("step", step), *seconds));
        text.gauges(
            "recovery_seconds",
            "Seconds that the open took, by step.",
            steps,
        );
    }
}

impl LabStats {
    fn write_to(&self, text: &mut Text) {
        let pair =
            |name: &str, of: [(&str, f64); 2]| of.map(|(what, value)| (label(name, what), value));
        let trees = [
            ("mutable", self.mutable_entries as f64),
            ("immutable", self.immutable_entries as f64),
        ];
        text.gauges("tree_entries", "Entries of level 0.", pair("tree", trees));
        text.gauge(
            "tree_occupancy",
            "The share of the trees' memory in use, 0 to 1.",
            self.occupancy,
        );
        text.gauge(
            "tree_leaf_bytes",
            "Bytes of leaves.",
            self.leaf_bytes as f64,
        );
        text.gauge(
            "tree_index_bytes",
            "Bytes of DRAM for inner nodes.",
            self.index_bytes as f64,
        );
        text.gauge(
            "tree_side_versions",
            "Replaced versions that snapshots see.",
            self.retained_versions as f64,
        );
        let hits = self
            .hits
            .iter()
            .map(|(structure, count)| (label("structure", structure), *count as f64));
        text.counters(
            "lab_hits_total",
            "Gets that found their key in level 0, by the structure that had it.",
            hits,
        );
        let help = "Write buffers that became tables of level 0 instead of going into the trees.";
        text.counter("buffers_past_trees_total", help, self.buffers_past as f64);
        // Saturating, because the two were not counted at one moment.
        let by_leaf = self.chunks.saturating_sub(self.chunks_by_log);
        let chunks = [
            ("leaves", by_leaf as f64),
            ("log", self.chunks_by_log as f64),
        ];
        text.counters(
            "chunks_total",
            "Chunks moved to level 1, by what they were made of.",
            pair("by", chunks),
        );
        let help = "Chunks that ended within a leaf, where a table of level 1 begins.";
        text.counter("chunk_edges_total", help, self.chunk_edges as f64);
        text.counter(
            "chunk_entries_total",
            "Entries in all chunks.",
            self.chunk_entries as f64,
        );
        let help = "Those of them that went no further, as they were replaced meanwhile.";
        text.counter(
            "chunk_entries_replaced_total",
            help,
            self.chunk_entries_replaced as f64,
        );
        let logs = [
            ("live", self.log_live_bytes as f64),
            ("held", self.log_file_bytes as f64),
        ];
        let help = "Bytes of values in logs that level 0 points to, and of those logs.";
        text.gauges("value_log_bytes", help, pair("bytes", logs));
        let Some(hot) = &self.hot else { return };
        let bytes = [("used", hot.used_bytes as f64), ("all", hot.bytes as f64)];
        text.gauges(
            "hot_bytes",
            "Bytes of the hot buffer.",
            pair("bytes", bytes),
        );
        text.gauge("hot_values", "Values in the hot buffer.", hot.values as f64);
        text.counter(
            "hot_written_total",
            "Values written to the hot buffer instead of the log.",
            hot.written as f64,
        );
        let help = "Values of hot keys that went to the log, as there was no room.";
        text.counter("hot_turned_away_total", help, hot.turned_away as f64);
    }
}

impl BladeStats {
    fn write_to(&self, text: &mut Text) {
        let tables = [
            ("unsorted", self.unsorted_tables),
            ("sorted", self.sorted_tables),
        ];
        text.gauges(
            "pm_tables",
            "Sorted tables in persistent memory: as they were flushed, and merged.",
            tables.map(|(kind, count)| (label("kind", kind), count as f64)),
        );
        let help = "Bytes that sorted tables may take in persistent memory, and take.";
        let bytes = [("capacity", self.capacity_bytes), ("used", self.used_bytes)];
        let bytes = bytes.map(|(bytes, count)| (label("bytes", bytes), count as f64));
        text.gauges("pm_table_bytes", help, bytes);
        let written = [
            ("flush", self.flushed_bytes),
            ("internal", self.internal_bytes),
            ("major", self.major_bytes),
        ];
        let help = "Bytes of tables written by flushes, and by compactions within persistent memory \
                    and out of it.";
        let written = written.map(|(cause, count)| (label("cause", cause), count as f64));
        text.counters("pm_table_written_bytes_total", help, written);
        let jobs = [
            ("internal", self.internal_compactions),
            ("major", self.major_compactions),
            ("spilled", self.spilled),
        ];
        let help =
            "Compactions within persistent memory and out of it, and jobs that found no room.";
        let jobs = jobs.map(|(job, count)| (label("job", job), count as f64));
        text.counters("pm_table_jobs_total", help, jobs);
        let help = "Searches of gets in sorted tables in persistent memory.";
        text.counter("pm_table_searches_total", help, self.searches as f64);
        let help = "Cache lines of persistent memory that these searches read.";
        text.counter(
            "pm_table_search_lines_total",
            help,
            self.search_lines as f64,
        );
    }
}

impl TlsmStats {
    fn write_to(&self, text: &mut Text) {
        let samples = |name: &str, of: &[(&str, u64)]| -> Vec<Sample> {
            of.iter()
                .map(|&(what, value)| (label(name, what), value as f64))
                .collect()
        };
        let lists = self.lists.iter().enumerate();
        text.gauges(
            "lists",
            "Tables in persistent memory, per level.",
            lists.map(|(level, count)| (label("level", level), *count as f64)),
        );
        let help = "Bytes that lists may take in persistent memory.";
        text.gauge("list_capacity_bytes", help, self.capacity_bytes as f64);
        let bytes = [
            ("nodes", self.node_bytes),
            ("chunks", self.chunk_bytes),
            ("live", self.live_bytes),
            ("garbage", self.garbage_bytes),
            ("buried", self.buried_bytes),
        ];
        let help = "Bytes of lists: nodes and chunks, the live and the other entries in chunks, and \
                    what only readers or jobs still have.";
        text.gauges("list_bytes", help, samples("bytes", &bytes));
        text.counter(
            "list_linked_total",
            "Entries that compactions linked.",
            self.linked as f64,
        );
        let copied = [
            ("flush", self.flushed_bytes),
            ("promotion", self.promoted_bytes),
            ("relocation", self.relocated_bytes),
            ("compaction", self.copied_bytes),
        ];
        let help = "Bytes of entries copied into persistent memory, by cause.";
        text.counters("list_copied_bytes_total", help, samples("cause", &copied));
        let jobs = [
            (
                "eviction_down",
                self.evictions.saturating_sub(self.evictions_in_place),
            ),
            ("eviction_in_place", self.evictions_in_place),
            ("relocation", self.relocations),
            ("spilled", self.spilled),
            ("resumed", self.resumed),
            ("discarded", self.discarded),
        ];
        let help = "Compactions that evicted or relocated lists, jobs that found no room and made \
                    files, and compactions cut by a crash that went on or began again.";
        text.counters("list_jobs_total", help, samples("job", &jobs));
        text.counter(
            "list_searches_total",
            "Searches of gets in lists whose filter did not rule the key out.",
            self.searches.count as f64,
        );
        text.counter(
            "list_searched_lines_total",
            "Cache lines of persistent memory that these read.",
            self.searches.lines as f64,
        );
    }
}
