//! A machine: files and, for some, persistent memory, that die at the same moment.
//!
//! 1. A death of one is a death of both: a death at a file operation captures the memory at that
//!    moment; a death at a store or fence halts the files there. So recovery sees the remains of
//!    one cut through both.
//! 2. After a kill, unsynced data is still not durable: a later power cut may take it.

use crate::model::Death;
use crate::setup::Setup;
use firn_base::checksum::crc32c;
use firn_base::seed::{Seed, mix};
use firn_fs::SimFs;
use firn_pm::sim::{Cut, Mode, SimRegion};
use firndb::Profile;
use std::sync::{Arc, Mutex};

/// Bytes of a pool, enough for the two halves of the log's buffer.
const POOL_BYTES: u64 = 40 << 10;
/// Additional bytes for level 0, its hot buffer, and logs.
const TREES_BYTES: u64 = 64 << 10;
/// Bytes for lists in profile `tlsm`, beside two write buffers.
const LISTS_BYTES: u64 = 128 << 10;
/// Bytes for sorted tables in profile `blade`, beside four write buffers.
const SORTED_BYTES: u64 = 160 << 10;

/// Bytes for write buffers in profile `pmdb`, and trees, for which there is not always room.
const BUFFERS_BYTES: u64 = 192 << 10;

/// Files and memory.
#[derive(Clone)]
pub struct Machine {
    /// The files.
    pub fs: SimFs,
    /// The memory under a pool.
    pub memory: Option<SimRegion>,
    /// The memory at the moment of death.
    cut: Arc<Mutex<Option<Cut>>>,
}

impl Machine {
    /// A machine with no contents.
    pub fn new(setup: &Setup, seed: u64) -> Machine {
        let modes = [Mode::Adr, Mode::TornAdr, Mode::Eadr];
        let more = match setup.profile {
            Profile::Lab => TREES_BYTES,
            // Too small for all, so that lists leave for files.
            Profile::Tlsm => LISTS_BYTES + 2 * setup.write_buffer_bytes,
            Profile::Blade => SORTED_BYTES + 4 * setup.write_buffer_bytes,
            Profile::Pmdb => BUFFERS_BYTES,
            _ => 0,
        };
        let memory = setup
            .pool
            .then(|| SimRegion::new(POOL_BYTES + more, modes[(mix(seed) % 3) as usize]));
        Machine::of(setup.file_system(seed), memory)
    }

    /// A machine made of these parts.
    pub fn of(fs: SimFs, memory: Option<SimRegion>) -> Machine {
        let cut = Arc::new(Mutex::new(None));
        if let Some(memory) = memory.clone() {
            let slot = cut.clone();
            fs.at_death(move || {
                slot.lock()
                    .expect("no panic under the lock")
                    .get_or_insert_with(|| memory.cut());
            });
        }
        Machine { fs, memory, cut }
    }

    /// Makes it die at the `count`-th mutating file operation from now.
    pub fn crash_after(&self, count: u64) {
        self.fs.crash_after(count);
    }

    /// Makes it die just before the `count`-th store or fence from now.
    pub fn crash_after_stores(&self, count: u64) {
        let (fs, slot) = (self.fs.clone(), self.cut.clone());
        if let Some(memory) = &self.memory {
            memory.cut_after(count, move |cut| {
                *slot.lock().expect("no panic under the lock") = Some(cut);
                fs.halt();
            });
        }
    }

    /// Makes it die within `reach` operations of its files or, with a pool, within `2 * reach` of
    /// its memory.
    pub fn arm(&self, reach: u64, random: &mut Seed) {
        match self.memory.is_some() && random.one_in(2) {
            true => self.crash_after_stores(1 + random.below(2 * reach)),
            false => self.crash_after(1 + random.below(reach)),
        }
    }

    /// Flips a bit of the memory of a machine that died. Data that was not durable there may be
    /// lost by this.
    pub fn flip_memory(&mut self, at: usize, bit: u8) {
        let Some(memory) = &self.memory else { return };
        let mut image = memory.cut().image(1);
        image[at] ^= 1 << bit;
        *self = Machine::of(
            self.fs.clone(),
            Some(SimRegion::from_image(image, memory.mode())),
        );
    }

    /// Kills it now, if it is still alive. Returns the machine as it is after a restart.
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

    /// A copy with the same contents. The original stays usable.
    pub fn duplicate(&self) -> Machine {
        let memory = self.memory.as_ref().map(|memory| memory.cut().killed());
        Machine::of(self.fs.duplicate(), memory)
    }
}

/// A hash over all files and the memory of a machine.
pub fn fingerprint(machine: &Machine) -> u64 {
    let memory = machine
        .memory
        .as_ref()
        .map_or(0, |memory| u64::from(crc32c(&memory.cut().image(1))));
    machine.fs.files().iter().fold(memory, |hash, (path, len)| {
        let bytes = machine.fs.read_file(path).unwrap_or_default();
        let name = u64::from(crc32c(path.to_string_lossy().as_bytes()));
        mix(hash ^ mix(name) ^ mix(u64::from(crc32c(&bytes)) << 20 ^ len))
    })
}
