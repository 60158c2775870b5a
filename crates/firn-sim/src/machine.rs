//! A machine: files and, for some, persistent memory, that die at one moment.
//!
//! 1. Whatever kills one kills both: a death at a file operation takes the memory as it is at that moment; one at a
//!    store or fence halts the files there. So what comes back is what one cut leaves of both.
//! 2. After a kill what was not durable still is not: a power cut later may take it.

use crate::model::Death;
use crate::setup::Setup;
use firn_base::checksum::crc32c;
use firn_base::seed::{Seed, mix};
use firn_fs::SimFs;
use firn_pm::sim::{Cut, Mode, SimRegion};
use firndb::Profile;
use std::sync::{Arc, Mutex};

/// Enough for the log's two halves.
const POOL_BYTES: u64 = 40 << 10;
/// What level 0 takes beside it, its hot buffer, and logs.
const TREES_BYTES: u64 = 64 << 10;

/// Files and memory.
#[derive(Clone)]
pub struct Machine {
    /// The files.
    pub fs: SimFs,
    /// The memory under a pool.
    pub memory: Option<SimRegion>,
    /// What the memory was at death.
    cut: Arc<Mutex<Option<Cut>>>,
}

impl Machine {
    /// A machine with nothing on it.
    pub fn new(setup: &Setup, seed: u64) -> Machine {
        let modes = [Mode::Adr, Mode::TornAdr, Mode::Eadr];
        let trees = if setup.profile == Profile::Lab { TREES_BYTES } else { 0 };
        let memory = setup.pool.then(|| SimRegion::new(POOL_BYTES + trees, modes[(mix(seed) % 3) as usize]));
        Machine::of(setup.file_system(seed), memory)
    }

    /// A machine of these parts.
    pub fn of(fs: SimFs, memory: Option<SimRegion>) -> Machine {
        let cut = Arc::new(Mutex::new(None));
        if let Some(memory) = memory.clone() {
            let slot = cut.clone();
            fs.at_death(move || {
                slot.lock().expect("no panic under the lock").get_or_insert_with(|| memory.cut());
            });
        }
        Machine { fs, memory, cut }
    }

    /// It dies at the `count`-th mutating file operation from now.
    pub fn crash_after(&self, count: u64) {
        self.fs.crash_after(count);
    }

    /// It dies just before the `count`-th store or fence from now.
    pub fn crash_after_stores(&self, count: u64) {
        let (fs, slot) = (self.fs.clone(), self.cut.clone());
        if let Some(memory) = &self.memory {
            memory.cut_after(count, move |cut| {
                *slot.lock().expect("no panic under the lock") = Some(cut);
                fs.halt();
            });
        }
    }

    /// It dies within `reach` operations of its files or, with a pool, of its memory.
    pub fn arm(&self, reach: u64, random: &mut Seed) {
        match self.memory.is_some() && random.one_in(2) {
            true => self.crash_after_stores(1 + random.below(2 * reach)),
            false => self.crash_after(1 + random.below(reach)),
        }
    }

    /// Flips a bit of the memory of a machine that died. What was not durable there may be gone after that.
    pub fn flip_memory(&mut self, at: usize, bit: u8) {
        let Some(memory) = &self.memory else { return };
        let mut image = memory.cut().image(1);
        image[at] ^= 1 << bit;
        *self = Machine::of(self.fs.clone(), Some(SimRegion::from_image(image, memory.mode())));
    }

    /// It dies now, if it has not yet; returns what is there when it starts again.
    pub fn die(&self, death: Death, random: &mut Seed) -> Machine {
        if !self.fs.crashed() {
            self.fs.halt();
        }
        let cut = self.cut.lock().expect("no panic under the lock").take();
        match death {
            Death::Kill => Machine::of(self.fs.kill(), cut.map(|cut| cut.killed())),
            Death::Power => {
                let fs = self.fs.power_cut(random.next_u64());
                Machine::of(fs, cut.map(|cut| cut.power_cut(random.next_u64())))
            }
        }
    }

    /// Another with the same contents; this one goes on.
    pub fn duplicate(&self) -> Machine {
        let memory = self.memory.as_ref().map(|memory| memory.cut().killed());
        Machine::of(self.fs.duplicate(), memory)
    }
}

/// A hash over all files and the memory of a machine.
pub fn fingerprint(machine: &Machine) -> u64 {
    let memory = machine.memory.as_ref().map_or(0, |memory| u64::from(crc32c(&memory.cut().image(1))));
    machine.fs.files().iter().fold(memory, |hash, (path, len)| {
        let bytes = machine.fs.read_file(path).unwrap_or_default();
        let name = u64::from(crc32c(path.to_string_lossy().as_bytes()));
        mix(hash ^ mix(name) ^ mix(u64::from(crc32c(&bytes)) << 20 ^ len))
    })
}
