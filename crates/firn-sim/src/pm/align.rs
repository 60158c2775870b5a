//! Suite pm_align: a durable copy at every alignment and of every length up to three lines. The
//! acknowledged bytes are present, and their neighbours unchanged, whatever the cut.

use crate::tally::Tally;
use firn_base::site::Site;
use firn_base::{Error, Result};
use firn_pm::sim::{CrashImage, Explorer, Mode, SimRegion};
use firn_pm::{GRANULE_BYTES, LINE_BYTES, MIN_POOL_BYTES, Owner, Pool};

const UUID: [u8; 16] = [3; 16];
const LEN_MAX: u64 = 3 * LINE_BYTES;
const BEFORE: u8 = 0xee;

static COPY: Site = Site::new("proof.copy");

/// One alignment; all lengths.
pub(crate) fn align(seed: u64) -> Tally {
    let (alignment, mut tally) = (seed % LINE_BYTES, Tally::default());
    for len in 0..=LEN_MAX {
        let bytes: Vec<u8> = (1..=len as u8).collect();
        // Independent words give thousands of images, so this is done for one length in sixteen.
        let torn = (len + alignment).is_multiple_of(16);
        for mode in [Mode::Adr, Mode::TornAdr]
            .into_iter()
            .take(1 + usize::from(torn))
        {
            let explorer = Explorer {
                mode,
                ..Explorer::new(MIN_POOL_BYTES + GRANULE_BYTES)
            };
            let explored = explorer.run(
                |sim| copy(sim, alignment, &bytes),
                |image| check(image, alignment, &bytes, &mut tally),
            );
            explored.unwrap_or_else(|failure| {
                panic!("{len} bytes at alignment {alignment}, {mode:?}: {failure}")
            });
        }
    }
    tally
}

/// Two operations: old bytes all over an extent, then the copy.
fn copy(sim: &SimRegion, alignment: u64, bytes: &[u8]) -> Result<()> {
    let pool = Pool::open_simulated(sim, UUID)?;
    pool.finish_recovery()?;
    let extent = pool.alloc(GRANULE_BYTES, Owner::Test)?;
    let _durable =
        pool.write_durable(&COPY, extent.offset, &[&[BEFORE; GRANULE_BYTES as usize]])?;
    sim.end_operation();
    let at = extent
        .at(LINE_BYTES + alignment)
        .ok_or_else(|| Error::invalid("a place outside the extent"))?;
    let (a, b) = bytes.split_at(bytes.len() / 3);
    let _durable = pool.write_durable(&COPY, at, &[a, b])?;
    sim.end_operation();
    Ok(())
}

fn check(
    image: &CrashImage<'_>,
    alignment: u64,
    bytes: &[u8],
    tally: &mut Tally,
) -> Result<(), String> {
    if image.operations == 0 {
        return Ok(());
    }
    tally.recovered(image.fingerprint ^ alignment);
    let memory = image.sim.durable();
    let start = (firn_pm::DATA_START + LINE_BYTES + alignment) as usize;
    let end = start + bytes.len();
    let around = [
        &memory[firn_pm::DATA_START as usize..start],
        &memory[end..end + LINE_BYTES as usize],
    ];
    if around
        .iter()
        .any(|part| part.iter().any(|&byte| byte != BEFORE))
    {
        return Err("a neighbour changed".to_owned());
    }
    match image.operations == 2 && memory[start..end] != *bytes {
        true => Err("what was acknowledged is not there".to_owned()),
        false => Ok(()),
    }
}
