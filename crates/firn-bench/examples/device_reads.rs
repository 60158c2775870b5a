//! Measures a device without any engine: threads that read blocks of 4 KiB at uniform offsets of a
//! new file of 1 GiB, past the page cache, and work for a given time before each read. It tells how
//! much of the tail of an engine's reads is the device's.
//! Prints a table in Markdown, or with `--json` one object per line.
//!
//! `device_reads [DIR] [SECONDS] [THREADS]`: the system's temporary directory, 10 for each row, and
//! 4 by default. The file is removed at the end.

use firn_base::clock::Clock;
use firn_base::exec;
use firn_base::seed::Seed;
use firn_base::{Error, Result};
use firn_bench::Latencies;
use firn_fs::{File, Fs, IoBuf, OpenMode, OsFs};
use std::path::PathBuf;
use std::sync::Arc;

const FILE_BYTES: u64 = 1 << 30;
const WRITE_BYTES: usize = 1 << 20;
const BLOCK_BYTES: usize = 4096;
/// The work of a thread between two reads, in microseconds.
const WORK_US: [u64; 5] = [0, 10, 20, 30, 50];

fn main() -> Result<()> {
    let (flags, arguments): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .partition(|text| text.starts_with('-'));
    let as_json = match flags.as_slice() {
        [] => false,
        [flag] if flag == "--json" => true,
        _ => return Err(Error::invalid("the only option is --json")),
    };
    if arguments.len() > 3 {
        return Err(Error::invalid(
            "device_reads [DIR] [SECONDS] [THREADS] [--json]",
        ));
    }
    let dir = arguments
        .first()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds = number(arguments.get(1), 10)?;
    let threads = number(arguments.get(2), 4)?;

    let folder = tempfile::tempdir_in(&dir)
        .map_err(|error| Error::from_io("create a directory in", &dir, error))?;
    let folder_handle = OsFs::new().open_dir(folder.path())?;
    let file = folder_handle.open("blocks", OpenMode::CreateDirect)?;
    fill(&*file)?;
    if !as_json {
        println!("{threads} threads, {seconds} s a row\n");
        println!("| work between reads, us | reads/s | p50, ms | p99, ms | p99.9, ms |");
        println!("|---|---|---|---|---|");
    }
    for work_us in WORK_US {
        let latencies = read(&file, threads, seconds, work_us * 1000)?;
        let rate = latencies.count() as f64 / seconds as f64;
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| latencies.at(quantile) / 1e3);
        if as_json {
            println!(
                "{{\"work_us\":{work_us},\"threads\":{threads},\"reads_per_second\":{rate:.0},\
                 \"p50_ms\":{p50:.3},\"p99_ms\":{p99:.3},\"p99_9_ms\":{p999:.3}}}"
            );
        } else {
            println!("| {work_us} | {rate:.0} | {p50:.2} | {p99:.2} | {p999:.2} |");
        }
    }
    Ok(())
}

/// The number that `text` is, or `default` without one. At least 1.
fn number(text: Option<&String>, default: u64) -> Result<u64> {
    let Some(text) = text else {
        return Ok(default);
    };
    let parsed = text.parse().ok().filter(|number| *number > 0);
    parsed.ok_or_else(|| Error::invalid(format!("{text} is not a number from 1 on")))
}

/// Writes all of `file`, because a device may answer reads of holes by itself.
fn fill(file: &dyn File) -> Result<()> {
    let mut bytes = vec![0; WRITE_BYTES];
    Seed::new(0).fill(&mut bytes);
    let mut buf = IoBuf::with_capacity(WRITE_BYTES);
    buf.push(&bytes);
    (0..FILE_BYTES)
        .step_by(WRITE_BYTES)
        .try_for_each(|offset| file.write(offset, &[buf.bytes()]))
}

/// The latencies of the reads that `threads` threads do in `seconds`, each after `work_ns` of work.
fn read(file: &Arc<dyn File>, threads: u64, seconds: u64, work_ns: u64) -> Result<Latencies> {
    let clock = Clock::system();
    let end_ns = clock
        .now_ns()
        .saturating_add(seconds.saturating_mul(1_000_000_000));
    let mut running = Vec::new();
    for thread in 0..threads {
        let (file, clock) = (file.clone(), clock.clone());
        let body = move || -> Result<Latencies> {
            let mut latencies = Latencies::new()?;
            let mut seed = Seed::new(thread);
            let mut buf = IoBuf::with_capacity(BLOCK_BYTES);
            let mut began_ns = clock.now_ns();
            while began_ns < end_ns {
                while clock.now_ns() < began_ns + work_ns {
                    std::hint::spin_loop();
                }
                let offset = seed.below(FILE_BYTES / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
                let asked_ns = clock.now_ns();
                file.read(offset, BLOCK_BYTES, &mut buf)?;
                began_ns = clock.now_ns();
                latencies.record(began_ns - asked_ns);
            }
            Ok(latencies)
        };
        let handle = exec::spawn("device-reads", body)
            .map_err(|error| Error::invalid(format!("cannot start a thread: {error}")))?;
        running.push(handle);
    }
    let mut all = Latencies::new()?;
    for thread in running {
        let latencies = thread.join();
        let latencies = latencies.map_err(|_| Error::invalid("a thread panicked"))?;
        all.add(&latencies?)?;
    }
    Ok(all)
}
