//! Databases of profile `pmdb` for the tests of its rows.

use super::Rig;
use firn_pm::sim::{Mode, SimRegion};
use firndb::{Options, PmConfig, PmdbStats, PmdbTuning};

/// Stacks of four tables, and ranges of two. Nothing is merged at rest.
pub(crate) fn stacks(options: &mut Options) {
    options.limits.level0_rest = 100;
    options.tuning.pmdb = PmdbTuning {
        max_io: 4,
        range_tables: 2,
        ..PmdbTuning::default()
    };
}

pub(crate) fn pmdb(rig: &Rig) -> PmdbStats {
    rig.stats().design.pmdb.unwrap()
}

/// Stacks as [`stacks`] has them, with a simulated pool of `bytes`.
pub(crate) fn with_pool(bytes: u64) -> impl Fn(&mut Options) {
    move |options| {
        stacks(options);
        options.pm = Some(PmConfig::volatile(0));
        options.environment.memory = Some(SimRegion::new(bytes, Mode::Adr));
        options.tuning.pmdb.buffer_bytes = Some(16 << 10);
    }
}
