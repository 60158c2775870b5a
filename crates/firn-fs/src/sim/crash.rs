//! The two kinds of crash, and the state after each.

use super::disk::Disk;
use super::names::InodeId;
use super::system::SimFs;
use firn_base::seed::{Seed, mix};
use std::collections::BTreeMap;

/// How much unsynced data survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Everything, as if the power had failed a minute later.
    All,
    /// Any part of it, chosen by the seed.
    Some,
    /// Nothing.
    Nothing,
}

/// The choice among the states that a power cut may leave.
#[derive(Debug, Clone, Copy)]
pub struct CrashPlan {
    /// Decides everything that the other fields leave open.
    pub seed: u64,
    /// The fate of file contents.
    pub data: Keep,
    /// The pending directory operations that survive, bit `i` for the `i`-th; `None` leaves the
    /// choice to the seed.
    pub names: Option<u64>,
}

impl CrashPlan {
    /// Everything chosen by the seed: mostly an arbitrary part, sometimes all or nothing.
    pub fn seeded(seed: u64) -> Self {
        let (data, names) = match mix(seed) % 8 {
            0 => (Keep::All, None),
            1 => (Keep::Nothing, Some(0)),
            2 => (Keep::Nothing, None),
            3 => (Keep::Some, Some(u64::MAX)),
            _ => (Keep::Some, None),
        };
        Self { seed, data, names }
    }
}

impl SimFs {
    /// Cuts the power and returns the state chosen by the seed. May be called again with other
    /// seeds, for other states that the same moment may leave.
    pub fn power_cut(&self, seed: u64) -> SimFs {
        self.power_cut_with(CrashPlan::seeded(seed))
    }

    /// Cuts the power and returns the state chosen by the plan.
    pub fn power_cut_with(&self, plan: CrashPlan) -> SimFs {
        let mut disk = self.disk.lock();
        disk.dead = true;
        disk.locks.clear();
        let mut seed = Seed::new(mix(plan.seed));
        let mut after = successor(&disk, seed.next_u64());
        after.names = disk.names.survivor(|i| match plan.names {
            Some(u64::MAX) => true,
            Some(mask) => i < 64 && mask >> i & 1 == 1,
            None => seed.one_in(2),
        });
        let named: BTreeMap<InodeId, ()> = after.names.seen.values().map(|id| (*id, ())).collect();
        for id in named.into_keys() {
            if let Some(inode) = disk.inodes.get(&id) {
                let mut seed = Seed::new(mix(plan.seed) ^ mix(id));
                after
                    .inodes
                    .insert(id, inode.survivor(plan.data, &mut seed));
            }
        }
        SimFs::over(after)
    }

    /// Ends the process. Everything written is still there; unsynced data remains unsynced.
    pub fn kill(&self) -> SimFs {
        let mut disk = self.disk.lock();
        disk.dead = true;
        disk.locks.clear();
        SimFs::over(duplicate(&disk))
    }

    /// A copy with the same files, synced and unsynced as they are here. The original stays usable.
    pub fn duplicate(&self) -> SimFs {
        SimFs::over(duplicate(&self.disk.lock()))
    }

    /// Sets the seed of all later random choices of faults and cuts.
    pub fn reseed(&self, seed: u64) {
        self.disk.lock().seed = Seed::new(mix(seed));
    }

    /// The number of directory operations that a power cut may undo.
    pub fn pending_names(&self) -> usize {
        self.disk.lock().names.pending()
    }
}

/// An empty disk with the same settings, without faults.
fn successor(disk: &Disk, seed: u64) -> Disk {
    Disk {
        direct: disk.direct,
        defers: disk.defers,
        next_inode: disk.next_inode,
        cap_bytes: disk.cap_bytes,
        ..Disk::new(seed)
    }
}

fn duplicate(disk: &Disk) -> Disk {
    let mut after = successor(disk, disk.seed.clone().next_u64());
    after.names = disk.names.clone();
    after.inodes = disk.inodes.clone();
    for inode in after.inodes.values_mut() {
        inode.handles = 0;
    }
    after.sweep();
    after
}
