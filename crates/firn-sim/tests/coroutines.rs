//! The rows of PM-Blade about coroutines (docs/design/coroutines.md), for every profile: a
//! compaction in parts, of which a worker runs several at a time.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use firn_base::checksum::crc32c;
use firn_fs::{Fs, IoBuf, OpKind, OpenMode, open_file};
use firn_pm::sim::{Mode, SimRegion};
use firndb::{
    BladeTuning, CompactionIoStats, Concurrency, Options, PmConfig, Profile, TlsmTuning, mechanisms,
};
use rig::{DIR, Rig, loose, row, row_of_option};
use std::path::Path;

/// The profiles whose compactions are tested, each with the setting that makes them differ.
const KINDS: [(&str, Profile); 7] = [
    ("classic", Profile::Classic),
    ("block", Profile::Block),
    ("lab", Profile::Lab),
    ("tlsm", Profile::Tlsm),
    ("blade", Profile::Blade),
    ("blade without a pool", Profile::Blade),
    ("pmdb", Profile::Pmdb),
];

/// A database whose compactions run as `concurrency`, with I/O that completes when the seed says
/// so.
fn loaded(
    (name, profile): (&str, Profile),
    concurrency: Concurrency,
    change: impl FnOnce(&mut Options),
) -> Rig {
    let mut rig = Rig::new(profile, |options| {
        options.compaction_concurrency = Some(concurrency);
        options.limits.table_bytes = 8 << 10;
        if name == "block" {
            loose(options);
        }
        if matches!(name, "tlsm" | "blade") {
            options.tuning.tlsm = TlsmTuning {
                unit_bytes: Some(4 << 10),
                ..TlsmTuning::default()
            };
            options.tuning.blade = BladeTuning {
                table_bytes: Some(16 << 10),
                ..BladeTuning::default()
            };
            options.pm = Some(PmConfig::volatile(0));
            options.environment.memory = Some(SimRegion::new(512 << 10, Mode::Adr));
        }
        change(options);
    });
    rig.fs.defer();
    rig.put(5_000, 1_000_000);
    rig.delete_some();
    rig.put(1_000, 1_000_000);
    rig.db.compact().unwrap();
    rig
}

/// The checksums of all tables' bytes between header and footer, which name the table.
fn tables(rig: &Rig) -> Vec<(u32, usize)> {
    let dir = rig.fs.open_dir(Path::new(DIR)).unwrap();
    let names = dir.list().unwrap();
    let tables = names.iter().filter(|name| name.ends_with(".sst"));
    let mut sums: Vec<(u32, usize)> = tables
        .map(|name| {
            let path = Path::new(DIR).join(name);
            let file = open_file(&rig.fs, &path, OpenMode::Read).unwrap();
            let mut buf = IoBuf::default();
            file.read(0, 1 << 30, &mut buf).unwrap();
            let inner = 64..buf.len() - 128;
            (crc32c(&buf.bytes()[inner.clone()]), inner.len())
        })
        .collect();
    sums.sort_unstable();
    sums
}

fn io(rig: &Rig) -> CompactionIoStats {
    rig.stats().background.io
}

/// Tables are the same bytes, whoever makes them and in whichever order I/O completes; and nothing
/// in a part blocks.
#[test]
fn blade_08_tables_do_not_depend_on_who_writes_them() {
    for kind in KINDS {
        let by_threads = loaded(kind, Concurrency::Threads, |_| {});
        let wanted = tables(&by_threads);
        assert!(wanted.len() > 20, "{} tables of {}", wanted.len(), kind.0);
        by_threads.check();
        for concurrency in [Concurrency::Coroutines, Concurrency::FlushCoroutine] {
            let rig = loaded(kind, concurrency, |_| {});
            assert_eq!(tables(&rig), wanted, "{} by {concurrency}", kind.0);
            let blocked = rig.fs.blocked();
            let of_tables = |(kind, path): &(OpKind, std::path::PathBuf)| {
                path.extension().is_some_and(|kind| kind == "sst")
                    && matches!(kind, OpKind::Read | OpKind::Write | OpKind::Sync)
            };
            let blocked = blocked.iter().filter(|one| of_tables(one)).count();
            assert_eq!(
                blocked, 0,
                "calls that blocked in {} by {concurrency}",
                kind.0
            );
            rig.check();
            rig.killed().check();
        }
    }
}

#[test]
fn blade_08_one_coroutine_submits_all_writes() {
    row_of_option("writes by the flush coroutine", |on| {
        let concurrency = match on {
            true => Concurrency::FlushCoroutine,
            false => Concurrency::Coroutines,
        };
        let rig = loaded(KINDS[4], concurrency, |_| {});
        let (io, stats) = (io(&rig), rig.stats());
        let tables = stats
            .levels
            .iter()
            .map(|level| level.tables as u64)
            .sum::<u64>();
        assert!(
            io.admitted_writes > tables,
            "writes by the flush coroutine: {} of {tables} tables",
            io.admitted_writes
        );
    });
}

#[test]
fn blade_09_writes_leave_room_for_reads() {
    row(&mechanisms::BLADE_ADMISSION, "writes in flight", || {
        let rig = loaded(KINDS[5], Concurrency::FlushCoroutine, |options| {
            options.compaction_io_depth = 3;
        });
        let io = io(&rig);
        assert!(io.admitted_writes > 100, "{io:?}");
        assert!(
            io.admitted_most <= 3,
            "writes in flight: {}",
            io.admitted_most
        );
        assert!(io.refusals > 0, "{io:?}");
        rig.check();
    });
}

#[test]
fn blade_10_a_worker_runs_as_many_parts_as_the_depth_allows() {
    row_of_option("parts at a time", |on| {
        let depth = if on { 5 } else { 1 };
        let rig = loaded(KINDS[0], Concurrency::Coroutines, |options| {
            options.compaction_io_depth = depth;
        });
        let (most, io) = (rig.stats().background.sub_tasks_most, io(&rig));
        assert_eq!(most, 5, "parts at a time");
        assert_eq!(io.coroutines, depth);
        rig.check();
    });
}
