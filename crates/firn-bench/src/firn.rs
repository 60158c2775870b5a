//! FirnDB as an engine under test, one per profile.

use crate::engine::{Compression, Engine, Setup};
use crate::store::Store;
use firn_base::{Error, Result};
use firn_pm::{Backend, Latency, PmConfig};
use firndb::{
    Arrangement, BladeModels, BladeTuning, BlockTuning, Codec, Concurrency, Db, GrainLimits,
    LabTuning, Limits, LogPlacement, Options, PmdbTuning, Profile, Seeks, Tiering, TlsmBuild,
    TlsmTuning, TlsmVictim,
};
use std::collections::BTreeMap;
use std::sync::Arc;

mod store;

pub use store::FirnStore;

/// A profile of FirnDB.
#[derive(Debug)]
pub struct Firn(Profile);

/// Options that only FirnDB has.
const EXTRA: [&str; 58] = [
    "background_workers",
    "compaction_concurrency",
    "compaction_io_depth",
    "write_buffer_bytes",
    "block_cache_bytes",
    "row_cache",
    "filter_bits",
    "max_open_files",
    "level_base_bytes",
    "table_bytes",
    "block_bytes",
    "level0_rest",
    "level0_trigger",
    "level0_slow",
    "level0_stop",
    "partitions_max",
    "partition_bytes",
    "pm_bytes",
    "pm_read_ns",
    "pm_write_ns",
    "lab_tree_bytes",
    "lab_reuse_min",
    "lab_leaf_bytes",
    "lab_evict_share",
    "lab_log_share_max",
    "lab_log_bytes_max",
    "lab_by_log_share",
    "lab_hot_bytes",
    "pm_log_buffer_bytes",
    "lab_log_placement",
    "lab_hot_writes",
    "block_grain_limits",
    "block_scan_bytes",
    "block_filter_reserve_middle",
    "block_filter_reserve_last",
    "lab_block_grained",
    "tlsm_tiering",
    "tlsm_victim",
    "tlsm_build",
    "tlsm_capacity_bytes",
    "tlsm_unit_bytes",
    "tlsm_evict_share",
    "tlsm_garbage_share_max",
    "blade_group_entries",
    "blade_table_bytes",
    "blade_capacity_bytes",
    "blade_unsorted_max",
    "blade_evict_share",
    "blade_internal",
    "blade_sieve",
    "blade_models",
    "blade_arrangement",
    "pmdb_max_io",
    "pmdb_range_tables",
    "pmdb_table_bytes",
    "pmdb_buffer_bytes",
    "pmdb_invalid_share",
    "pmdb_seeks",
];

/// The pool of an engine, if it has one: 0 bytes are none.
fn pool_of(setup: &Setup) -> Result<Option<PmConfig>> {
    let Some(pm) = &setup.pm else {
        return Ok(None);
    };
    let bytes = setup.extra("pm_bytes")?.unwrap_or(pm.bytes);
    let latency = Latency {
        read_ns: setup.extra("pm_read_ns")?.unwrap_or(0),
        write_ns: setup.extra("pm_write_ns")?.unwrap_or(0),
    };
    let pool = PmConfig {
        latency: Some(latency).filter(|latency| *latency != Latency::default()),
        ..PmConfig::at(pm.directory.join("firn.pool"), Backend::Emulated, bytes)
    };
    Ok(Some(pool).filter(|_| bytes > 0))
}

/// Sets the sizes and counts that all profiles have.
fn limits(setup: &Setup, mut limits: Limits) -> Result<Limits> {
    limits.level_base_bytes = setup
        .extra("level_base_bytes")?
        .unwrap_or(limits.level_base_bytes);
    limits.table_bytes = setup.extra("table_bytes")?.unwrap_or(limits.table_bytes);
    limits.block_bytes = setup.extra("block_bytes")?.unwrap_or(limits.block_bytes);
    limits.level0_trigger = setup
        .extra("level0_trigger")?
        .unwrap_or(limits.level0_trigger);
    limits.level0_rest = setup.extra("level0_rest")?.unwrap_or(limits.level0_rest);
    limits.level0_slow = setup.extra("level0_slow")?.unwrap_or(limits.level0_slow);
    limits.level0_stop = setup.extra("level0_stop")?.unwrap_or(limits.level0_stop);
    limits.partitions_max = setup
        .extra("partitions_max")?
        .unwrap_or(limits.partitions_max);
    limits.partition_bytes = setup
        .extra("partition_bytes")?
        .unwrap_or(limits.partition_bytes);
    limits.pm_log_buffer_bytes = setup
        .extra("pm_log_buffer_bytes")?
        .unwrap_or(limits.pm_log_buffer_bytes);
    Ok(limits)
}

/// Sets the parameters of profile `lab`.
fn set_lab(setup: &Setup, lab: &mut LabTuning) -> Result<()> {
    lab.tree_bytes = setup.extra("lab_tree_bytes")?.or(lab.tree_bytes);
    lab.reuse_min = setup.extra("lab_reuse_min")?.unwrap_or(lab.reuse_min);
    lab.leaf_bytes = setup.extra("lab_leaf_bytes")?.unwrap_or(lab.leaf_bytes);
    lab.evict_share = setup.extra("lab_evict_share")?.unwrap_or(lab.evict_share);
    lab.log_share_max = setup
        .extra("lab_log_share_max")?
        .unwrap_or(lab.log_share_max);
    lab.by_log_share = setup.extra("lab_by_log_share")?.unwrap_or(lab.by_log_share);
    lab.hot_bytes = setup.extra("lab_hot_bytes")?.or(lab.hot_bytes);
    let placements = [
        ("ssd", LogPlacement::Ssd),
        ("rest", LogPlacement::Rest),
        ("pm", LogPlacement::Pm),
    ];
    lab.log_placement =
        one_of(setup, "lab_log_placement", &placements)?.unwrap_or(lab.log_placement);
    lab.hot_writes = setup.extra("lab_hot_writes")?.unwrap_or(lab.hot_writes);
    lab.block_grained = setup
        .extra("lab_block_grained")?
        .unwrap_or(lab.block_grained);
    lab.log_bytes_max = setup
        .extra("lab_log_bytes_max")?
        .unwrap_or(lab.log_bytes_max);
    Ok(())
}

/// Sets the parameters of profile `pmdb`. Scans that have a range merged are `cost`, `off` or a
/// number of them.
fn set_pmdb(setup: &Setup, pmdb: &mut PmdbTuning) -> Result<()> {
    pmdb.max_io = setup.extra("pmdb_max_io")?.unwrap_or(pmdb.max_io);
    pmdb.range_tables = setup
        .extra("pmdb_range_tables")?
        .unwrap_or(pmdb.range_tables);
    pmdb.table_bytes = setup.extra("pmdb_table_bytes")?.unwrap_or(pmdb.table_bytes);
    pmdb.buffer_bytes = setup.extra("pmdb_buffer_bytes")?.or(pmdb.buffer_bytes);
    pmdb.invalid_share = setup
        .extra("pmdb_invalid_share")?
        .unwrap_or(pmdb.invalid_share);
    pmdb.seeks = match setup.extra::<String>("pmdb_seeks")?.as_deref() {
        None => pmdb.seeks,
        Some("cost") => Seeks::Cost,
        Some("off") => Seeks::Off,
        Some(_) => setup.extra("pmdb_seeks")?.map_or(pmdb.seeks, Seeks::Count),
    };
    Ok(())
}

/// Sets the parameters of profile `blade`.
fn set_blade(setup: &Setup, blade: &mut BladeTuning) -> Result<()> {
    let group = setup.extra("blade_group_entries")?;
    blade.group_entries = group.unwrap_or(blade.group_entries);
    blade.table_bytes = setup.extra("blade_table_bytes")?.or(blade.table_bytes);
    blade.capacity_bytes = setup
        .extra("blade_capacity_bytes")?
        .or(blade.capacity_bytes);
    let unsorted_max = setup.extra("blade_unsorted_max")?;
    blade.unsorted_max = unsorted_max.unwrap_or(blade.unsorted_max);
    let evict_share = setup.extra("blade_evict_share")?;
    blade.evict_share = evict_share.unwrap_or(blade.evict_share);
    blade.internal = setup.extra("blade_internal")?.unwrap_or(blade.internal);
    blade.sieve = setup.extra("blade_sieve")?.unwrap_or(blade.sieve);
    let models = [
        ("off", BladeModels::Off),
        ("paper", BladeModels::Paper),
        ("costs", BladeModels::Costs),
    ];
    blade.models = one_of(setup, "blade_models", &models)?.unwrap_or(blade.models);
    let arrangements = [
        ("array", Arrangement::Array),
        ("grouped", Arrangement::Grouped),
    ];
    let arrangement = one_of(setup, "blade_arrangement", &arrangements)?;
    blade.arrangement = arrangement.unwrap_or(blade.arrangement);
    Ok(())
}

/// Sets the parameters of profile `tlsm`. A tiering is `none`, `lru` or the deepest level in
/// persistent memory.
fn set_tlsm(setup: &Setup, tlsm: &mut TlsmTuning) -> Result<()> {
    let levels: [(&str, Tiering); 8] = [
        ("none", Tiering::None),
        ("lru", Tiering::Lru),
        ("0", Tiering::Leveled(0)),
        ("1", Tiering::Leveled(1)),
        ("2", Tiering::Leveled(2)),
        ("3", Tiering::Leveled(3)),
        ("4", Tiering::Leveled(4)),
        ("5", Tiering::Leveled(5)),
    ];
    tlsm.tiering = one_of(setup, "tlsm_tiering", &levels)?.unwrap_or(tlsm.tiering);
    let victims = [
        ("oldest", TlsmVictim::Oldest),
        ("least-used", TlsmVictim::LeastUsed),
    ];
    tlsm.victim = one_of(setup, "tlsm_victim", &victims)?.unwrap_or(tlsm.victim);
    let builds = [
        ("ps", TlsmBuild::Skiplists),
        ("ps+bac", TlsmBuild::Linking),
        ("ps+bac+pb", TlsmBuild::Full),
    ];
    tlsm.build = one_of(setup, "tlsm_build", &builds)?.unwrap_or(tlsm.build);
    tlsm.capacity_bytes = setup.extra("tlsm_capacity_bytes")?.or(tlsm.capacity_bytes);
    tlsm.unit_bytes = setup.extra("tlsm_unit_bytes")?.or(tlsm.unit_bytes);
    tlsm.evict_share = setup.extra("tlsm_evict_share")?.unwrap_or(tlsm.evict_share);
    tlsm.garbage_share_max = setup
        .extra("tlsm_garbage_share_max")?
        .unwrap_or(tlsm.garbage_share_max);
    Ok(())
}

/// The value among `choices` that option `name` selects, if the option is set.
fn one_of<T: Copy>(setup: &Setup, name: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
    let Some(given) = setup.extra::<String>(name)? else {
        return Ok(None);
    };
    let found = choices
        .iter()
        .find(|(choice, _)| *choice == given)
        .map(|(_, value)| *value);
    let names = || {
        choices
            .iter()
            .map(|(choice, _)| *choice)
            .collect::<Vec<_>>()
            .join(" and ")
    };
    found
        .map(Some)
        .ok_or_else(|| Error::invalid(format!("{name}={given}: there are {}", names())))
}

/// Numbers of the profile `block` that can be varied.
type BlockNumber = (&'static str, fn(&mut BlockTuning) -> &mut f64);
const BLOCK: [BlockNumber; 8] = [
    ("block_live_tables_max_middle", |tuning| {
        &mut tuning.live_tables_max.middle
    }),
    ("block_live_tables_max_last", |tuning| {
        &mut tuning.live_tables_max.last
    }),
    ("block_live_share_min_middle", |tuning| {
        &mut tuning.live_share_min.middle
    }),
    ("block_live_share_min_last", |tuning| {
        &mut tuning.live_share_min.last
    }),
    ("block_dirty_share_max_middle", |tuning| {
        &mut tuning.dirty_share_max.middle
    }),
    ("block_dirty_share_max_last", |tuning| {
        &mut tuning.dirty_share_max.last
    }),
    ("block_saving_min", |tuning| &mut tuning.saving_min),
    ("block_dead_share_max", |tuning| &mut tuning.dead_share_max),
];

impl Firn {
    /// An engine for every profile.
    pub fn all() -> Vec<Box<dyn Engine>> {
        Profile::ALL
            .into_iter()
            .map(|profile| Box::new(Firn(profile)) as Box<dyn Engine>)
            .collect()
    }

    fn options(&self, setup: &Setup) -> Result<Options> {
        let known: Vec<&str> = EXTRA
            .into_iter()
            .chain(BLOCK.map(|(name, _)| name))
            .collect();
        setup.refuse_unknown(&known)?;
        let default = Options::default();
        let mut tuning = default.tuning.clone();
        for (name, number) in BLOCK {
            if let Some(given) = setup.extra(name)? {
                *number(&mut tuning.block) = given;
            }
        }
        tuning.block.grain_limits = one_of(
            setup,
            "block_grain_limits",
            &[
                ("cost", GrainLimits::Cost),
                ("constants", GrainLimits::Constants),
            ],
        )?
        .unwrap_or(tuning.block.grain_limits);
        tuning.block.scan_bytes = setup
            .extra("block_scan_bytes")?
            .unwrap_or(tuning.block.scan_bytes);
        let reserve = &mut tuning.block.filter_reserve_percent;
        reserve.middle = setup
            .extra("block_filter_reserve_middle")?
            .unwrap_or(reserve.middle);
        reserve.last = setup
            .extra("block_filter_reserve_last")?
            .unwrap_or(reserve.last);
        let limits = limits(setup, default.limits.clone())?;
        let pm = pool_of(setup)?;
        set_lab(setup, &mut tuning.lab)?;
        set_tlsm(setup, &mut tuning.tlsm)?;
        set_blade(setup, &mut tuning.blade)?;
        set_pmdb(setup, &mut tuning.pmdb)?;
        Ok(Options::default()
            .profile(self.0)
            .durability(setup.durability)
            .tuning(tuning)
            .memory_limit_bytes(setup.memory_bytes)
            .write_buffer_bytes(setup.extra("write_buffer_bytes")?)
            .block_cache_bytes(setup.extra("block_cache_bytes")?)
            .row_cache(setup.extra("row_cache")?.unwrap_or(default.row_cache))
            .filter_bits(setup.extra("filter_bits")?.unwrap_or(default.filter_bits))
            .max_open_files(
                setup
                    .extra("max_open_files")?
                    .unwrap_or(default.max_open_files),
            )
            .compression(match setup.compression {
                Compression::None => Codec::None,
                Compression::Lz4 => Codec::Lz4,
            })
            .background_workers(
                setup
                    .extra("background_workers")?
                    .unwrap_or(setup.background_threads),
            )
            .compaction_concurrency(setup.extra::<Concurrency>("compaction_concurrency")?)
            .compaction_io_depth(
                setup
                    .extra("compaction_io_depth")?
                    .unwrap_or(default.compaction_io_depth),
            )
            .direct_io(setup.direct_io)
            .pm(pm)
            .limits(limits))
    }
}

impl Engine for Firn {
    fn name(&self) -> String {
        format!("firn:{}", self.0)
    }

    fn about(&self) -> String {
        format!("FirnDB {}, profile {}", env!("CARGO_PKG_VERSION"), self.0)
    }

    fn settings(&self, setup: &Setup) -> BTreeMap<String, String> {
        let Ok(options) = self.options(setup) else {
            return BTreeMap::new();
        };
        let or_derived = |bytes: Option<u64>| {
            bytes.map_or_else(|| "from memory_limit_bytes".to_owned(), |b| b.to_string())
        };
        let pairs = [
            ("memory_limit_bytes", options.memory_limit_bytes.to_string()),
            ("write_buffer_bytes", or_derived(options.write_buffer_bytes)),
            ("block_cache_bytes", or_derived(options.block_cache_bytes)),
            ("row_cache", options.row_cache.to_string()),
            ("compression", setup.compression.to_string()),
            ("filter_bits", options.filter_bits.to_string()),
            ("table_bytes", options.limits.table_bytes.to_string()),
            (
                "level_base_bytes",
                options.limits.level_base_bytes.to_string(),
            ),
            ("direct_io", options.direct_io.to_string()),
            ("background_workers", options.background_workers.to_string()),
            (
                "pm",
                options.pm.map_or_else(
                    || "none".to_owned(),
                    |pm| {
                        let delays = pm.latency.map_or_else(String::new, |latency| {
                            let (read, write) = (latency.read_ns, latency.write_ns);
                            format!(", {read} ns a line read, {write} ns a line written")
                        });
                        format!("{:?}, {} bytes{delays}", pm.backend, pm.size_bytes)
                    },
                ),
            ),
        ];
        pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn open(&self, setup: &Setup) -> Result<Arc<dyn Store>> {
        let db = Db::open(&setup.directory, self.options(setup)?)?;
        Ok(Arc::new(FirnStore::new(&db, &setup.directory)))
    }
}
