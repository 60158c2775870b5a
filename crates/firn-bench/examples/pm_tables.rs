//! Measures building and searching one table (PM-Blade, Fig. 6): groups and an array in persistent
//! memory, and a file with all of its blocks cached. Prints a table in Markdown, or with `--json`
//! one object per line.
//!
//! `pm_tables [MEBIBYTES] [KEY BYTES] [VALUE BYTES]`: 32, 120 and 16 by default, which are the
//! entries of an index. Persistent memory is DRAM without delays.

use firn_base::Result;
use firn_bench::{Entries, Structure, index_keys};

const GETS: u64 = 1_000_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let as_json = arguments.iter().any(|argument| argument == "--json");
    let number = |at: usize, default: usize| {
        let numbers = arguments.iter().filter(|argument| *argument != "--json");
        let found = numbers.skip(at).find_map(|text| text.parse().ok());
        found.unwrap_or(default)
    };
    let (mebibytes, key_bytes, value_bytes) = (number(0, 32), number(1, 120), number(2, 16));
    let count = (mebibytes << 20) / (key_bytes + value_bytes);
    let entries = Entries {
        keys: index_keys(count as u64, key_bytes),
        value: vec![7; value_bytes],
        filter_bits: 10,
        tables: 1,
        gets: GETS,
    };
    if !as_json {
        println!(
            "{} entries of {key_bytes} + {value_bytes} bytes, {GETS} gets\n",
            entries.keys.len()
        );
        println!("| structure | build, s | bytes an entry | get, us | lines of PM a get |");
        println!("|---|---|---|---|---|");
    }
    for structure in [Structure::Array, Structure::Groups, Structure::CachedFile] {
        let built = entries.measure(structure, &std::env::temp_dir(), None)?;
        let (name, entry) = (
            structure.name(),
            built.bytes as f64 / entries.keys.len() as f64,
        );
        let (build, get, lines) = (built.build_seconds, built.get_micros, built.lines);
        if as_json {
            println!(
                "{{\"structure\":\"{name}\",\"build_seconds\":{build:.4},\"entry_bytes\":{entry:.1},\
                 \"get_micros\":{get:.3},\"lines\":{lines:.1}}}"
            );
        } else {
            println!("| {name} | {build:.3} | {entry:.1} | {get:.3} | {lines:.1} |");
        }
    }
    Ok(())
}
