//! The shared parts of the tests of the designs' rows: a database on simulated files with a map of
//! its expected contents, and a mechanism that is switched off.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test stops at the first surprise, and needs not all of it"
)]

pub(crate) mod lists;
pub(crate) mod ranges;

use firn_base::clock::Clock;
use firn_base::exec::Inline;
use firn_base::seed::Seed;
use firn_base::site::{self, Site};
use firn_fs::SimFs;
use firn_pm::sim::{Mode, SimRegion};
use firndb::{
    BlockTuning, ByLevel, Codec, Db, Durability, Environment, Event, EventListener, GrainLimits,
    LabStats, LabTuning, Limits, Options, PmConfig, Profile, Stats,
};
use std::collections::BTreeMap;
use std::panic::{UnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const DIR: &str = "/db";

/// Checks that `show` succeeds, and that with the mechanism of `site` switched off its assertion
/// with `message` fails. Any other failure is one of the engine.
pub(crate) fn row(site: &'static Site, message: &str, show: fn()) {
    show();
    expect(message, site.name(), || site::without(site, show));
}

/// Like [`row`], for a mechanism that an option switches: `show` is called with true, then with
/// false.
pub(crate) fn row_of_option(message: &str, show: fn(bool)) {
    show(true);
    expect(message, "its option", || show(false));
}

fn expect(message: &str, what: &str, show: impl FnOnce() + UnwindSafe) {
    let Err(panic) = catch_unwind(show) else {
        panic!("it shows the same without {what}");
    };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("a panic without a message");
    assert!(
        text.contains(message),
        "without {what} another assertion failed than {message:?}: {text}"
    );
}

/// Runs `show` with each mechanism switched off whose name starts with `prefix`. Returns the number
/// of these.
pub(crate) fn without_each(prefix: &str, show: impl Fn()) -> usize {
    let all = firndb::mechanisms::ALL
        .iter()
        .chain(firn_table::mechanisms::ALL)
        .filter(|site| site.name().starts_with(prefix));
    all.map(|site| site::without(site, &show)).count()
}

#[derive(Default)]
pub(crate) struct Events(pub(crate) Mutex<Vec<Event>>);

impl EventListener for Events {
    fn on_event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// A database on simulated files, and its expected contents.
pub(crate) struct Rig {
    pub(crate) fs: SimFs,
    pub(crate) options: Options,
    pub(crate) events: Arc<Events>,
    pub(crate) inline: Arc<Inline>,
    pub(crate) db: Db,
    pub(crate) model: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) random: Seed,
    pub(crate) puts: u64,
}

/// Tables of 16 KiB with blocks of half a KiB, and levels ten times as large as the level above, as
/// in the paper.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::tiny();
    limits.level_fan_out = 10;
    limits
}

impl Rig {
    pub(crate) fn new(profile: Profile, change: impl FnOnce(&mut Options)) -> Rig {
        let fs = SimFs::new(7);
        let (events, inline) = (Arc::new(Events::default()), Arc::new(Inline::new()));
        let mut options = Options::tiny()
            .profile(profile)
            .memory_limit_bytes(16 << 20)
            .write_buffer_bytes(Some(32 << 10))
            .block_cache_bytes(Some(8 << 20))
            .compression(Codec::None)
            .durability(Durability::Process)
            .listener(events.clone())
            .limits(limits())
            .environment(Environment {
                fs: Some(Arc::new(fs.clone())),
                clock: Some(Clock::manual()),
                executor: Some(inline.clone()),
                memory: None,
            });
        change(&mut options);
        let db = Db::open(DIR, options.clone()).unwrap();
        Rig {
            fs,
            options,
            events,
            inline,
            db,
            model: BTreeMap::new(),
            random: Seed::new(11),
            puts: 0,
        }
    }

    /// A database of `count` records, with keys in random order.
    pub(crate) fn loaded(profile: Profile, count: u64, change: impl FnOnce(&mut Options)) -> Rig {
        let mut rig = Rig::new(profile, change);
        rig.put(count, 1_000_000);
        rig
    }

    pub(crate) fn put(&mut self, count: u64, keys: u64) {
        for _ in 0..count {
            let key = format!("key{:07}", self.random.below(keys)).into_bytes();
            self.put_one(key);
        }
        self.settle();
    }

    /// Deletes one key in three.
    pub(crate) fn delete_some(&mut self) {
        for key in self.model.keys().step_by(3).cloned().collect::<Vec<_>>() {
            self.db.delete(&key).unwrap();
            self.model.remove(&key);
        }
    }

    /// Waits until nothing is left to do, and retries on errors.
    pub(crate) fn settle(&self) {
        let mut failed = None;
        for _ in 0..100 {
            match (self.db.wait_idle(), &self.options.environment.clock) {
                (Err(error), Some(clock)) => {
                    failed = Some(error);
                    clock.advance(Duration::from_millis(300));
                    self.inline.run();
                }
                (done, _) => return done.unwrap(),
            }
        }
        panic!("it fails for ever: {failed:?}");
    }

    pub(crate) fn put_one(&mut self, key: Vec<u8>) {
        let mut value = vec![0; 100 + self.random.below(40) as usize];
        self.random.fill(&mut value);
        while self.db.put(&key, &value).is_err() {
            self.settle();
        }
        self.model.insert(key, value);
        self.puts += 1;
        // Otherwise the single thread would flush and never compact.
        if self.puts.is_multiple_of(300) {
            self.settle();
        }
    }

    pub(crate) fn check(&self) {
        let mut iter = self.db.cursor().unwrap();
        iter.first().unwrap();
        for (key, value) in &self.model {
            assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
            assert_eq!(self.db.get(key).unwrap().as_deref(), Some(&value[..]));
            iter.next().unwrap();
        }
        assert!(!iter.valid());
        self.db.verify().unwrap();
    }

    /// Kills its process and opens it again.
    pub(crate) fn killed(self) -> Rig {
        let Rig {
            fs,
            mut options,
            events,
            inline,
            db,
            model,
            random,
            puts,
        } = self;
        let fs = fs.kill();
        options.environment.fs = Some(Arc::new(fs.clone()));
        options.environment.memory = options
            .environment
            .memory
            .as_ref()
            .map(|memory| memory.cut().killed());
        drop(db);
        let db = Db::open(DIR, options.clone()).unwrap();
        Rig {
            fs,
            options,
            events,
            inline,
            db,
            model,
            random,
            puts,
        }
    }

    /// Closes it and opens it again.
    pub(crate) fn reopened(self) -> Rig {
        let Rig {
            fs,
            options,
            events,
            inline,
            db,
            model,
            random,
            puts,
        } = self;
        db.close().unwrap();
        let db = Db::open(DIR, options.clone()).unwrap();
        Rig {
            fs,
            options,
            events,
            inline,
            db,
            model,
            random,
            puts,
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.db.stats()
    }
}

/// Limits under which tables almost always grow.
pub(crate) fn looser(options: &mut Options) {
    loose(options);
    options.tuning.block.filter_reserve_percent = ByLevel {
        middle: 1000,
        last: 1000,
    };
    options.tuning.block.dead_share_max = 10.0;
}

/// Limits under which tables grow whenever that saves anything.
pub(crate) fn loose(options: &mut Options) {
    options.tuning.block = BlockTuning {
        grain_limits: GrainLimits::Constants,
        live_tables_max: ByLevel {
            middle: 100.0,
            last: 100.0,
        },
        live_share_min: ByLevel {
            middle: 0.05,
            last: 0.05,
        },
        dirty_share_max: ByLevel {
            middle: 1.0,
            last: 1.0,
        },
        filter_reserve_share_max: 1.0,
        ..BlockTuning::default()
    };
}

pub(crate) fn tables_of(stats: &Stats) -> usize {
    stats.levels.iter().map(|level| level.tables).sum()
}

pub(crate) fn tables_on_disk(fs: &SimFs) -> usize {
    fs.list(Path::new(DIR))
        .unwrap()
        .iter()
        .filter(|name| name.ends_with(".sst"))
        .count()
}

/// Trees of about 800 entries, in simulated persistent memory or, without it, in memory that is
/// rebuilt.
pub(crate) fn trees(with_memory: bool) -> impl FnOnce(&mut Options) {
    move |options| {
        let log_share_max = 10.0;
        options.tuning.lab = LabTuning {
            tree_bytes: Some(32 << 10),
            leaf_bytes: 512,
            log_share_max,
            reuse_min: 0.0,
            rest_share: 1.0,
            // Off by default, because rows are tested one by one.
            hot_bytes: Some(0),
            ..LabTuning::default()
        };
        if with_memory {
            options.pm = Some(PmConfig::volatile(0));
            options.environment.memory = Some(SimRegion::new(256 << 10, Mode::Adr));
        }
    }
}

pub(crate) fn lab_stats(rig: &Rig) -> LabStats {
    rig.stats().design.lab.unwrap()
}

pub(crate) fn flush(rig: &Rig) {
    rig.db.flush().unwrap();
    rig.settle();
}

/// Gets by where they found their key: memtables, rows, the mutable tree, retained versions, the
/// immutable tree, the hot buffer, tables.
pub(crate) fn hits(rig: &Rig) -> Vec<u64> {
    let stats = rig.stats();
    let of = |name: &str| {
        let named = stats
            .user
            .hits
            .iter()
            .filter(|(layer, _)| layer.starts_with(name));
        named.map(|(_, hits)| hits).sum()
    };
    let trees = stats
        .design
        .lab
        .iter()
        .flat_map(|lab| &lab.hits)
        .map(|(_, hits)| *hits);
    let above = [of("memtables"), of("rows")];
    above
        .into_iter()
        .chain(trees)
        .chain([of("level")])
        .collect()
}
