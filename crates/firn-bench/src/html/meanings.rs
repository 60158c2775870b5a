//! The meaning of a table's columns, and the source of their figures.

const MEANINGS: [(&str, &str); 14] = [
    (
        "operations/s",
        "Operations acknowledged by the seconds from the start to the last acknowledgement, by the benchmark's clock.",
    ),
    (
        "ratio to the first",
        "Operations/s over that of the first engine in the same round; the median over the rounds. Called the same \
         within 2 %, and unclear if some rounds are above 1 and some below.",
    ),
    (
        "in calls",
        "Operations by the seconds that a thread spent in them on average, without the generation and the check of \
         the benchmark.",
    ),
    (
        "p50, p99, p99.9, p99.99",
        "What so many percent of the operations did not exceed, by the benchmark's histogram of three digits over all \
         threads. With a rate, latency counts from when the operation should have begun. Below p99.9 is its ratio to \
         the first engine's.",
    ),
    (
        "settled",
        "Seconds from the start until no compaction was left to do. Below is its ratio to the first engine's.",
    ),
    (
        "written, SSD",
        "Bytes written to the SSD until then, by the engine's own count, or by the kernel's for an engine that does \
         not count all; a dash if neither says. The plots have the kernel's and the device's counts beside it, and \
         persistent memory. Below is its ratio to the first engine's, both counted alike.",
    ),
    (
        "write amp.",
        "Bytes written to the SSD, counted likewise, per byte of keys and values that the workload wrote.",
    ),
    (
        "read",
        "Bytes read from storage by the kernel's count for the process: reads from its page cache are none.",
    ),
    (
        "space amp.",
        "Bytes of storage in use at the end, by the file system's count, per byte of the records loaded, or of \
         those kept if the database has grown.",
    ),
    (
        "CPU/op",
        "CPU time of the process by its operations, all threads together, the benchmark's own work included.",
    ),
    (
        "peak memory",
        "The largest resident set of the process by the kernel's count, less what the check of the answers takes.",
    ),
    (
        "stalls",
        "Seconds that writers were held back, by the engine's own count; a dash if it does not say.",
    ),
    (
        "first, second, …",
        "Engines run one after the other in each round, each in a process of its own.",
    ),
    (
        "▲ ▼",
        "More or less than the first engine; whether that is good is said beside it.",
    ),
];

/// All meanings as a definition list.
pub(super) fn meanings() -> String {
    let one = |(name, meaning): &(&str, &str)| format!("<dt>{name}</dt><dd>{meaning}</dd>\n");
    format!(
        "<dl class=\"meanings\">\n{}</dl>\n",
        MEANINGS.iter().map(one).collect::<String>()
    )
}
