//! Runs the log's decoders over arbitrary bytes, for [`crate::proof`].

use super::frames::Frames;
use super::layout::put_key_record;
use super::old::encode;
use super::write::{Place, encode_head};
use super::{LogSource, PmLogBuffer, Replay};
use crate::memtable::proof::Group;
use firn_base::coding::{Reader, get_u32};
use firn_base::count::IoCounters;
use firn_base::{FileId, Result, SeqNo};
use firn_fs::{OpenMode, SimFs};
use firn_pm::Pool;
use std::path::Path;
use std::sync::Arc;

/// Decodes one frame's header and key section, as found at `offset` of log `log_id`, of each
/// version.
///
/// # Panics
/// If the decoded parts would not be encoded the same way.
pub fn frame(bytes: &[u8], log_id: FileId, offset: u64) {
    for frames in Frames::ALL {
        let Some((header, len)) = frames.header(bytes, log_id, offset) else {
            continue;
        };
        let (read, rest) = bytes.split_at(len);
        let mut again = Vec::new();
        match frames {
            Frames::Current => header.put(&mut again, log_id, offset),
            Frames::Old => {
                let unread = get_u32(read, len - 4).unwrap_or_default();
                again.extend_from_slice(&encode::frame_header(&header, unread, log_id, offset));
            }
        }
        assert_eq!(read, again, "a header has one form");
        let mut reader = Reader::new(rest);
        again.clear();
        while let Some(record) = frames.key_record(&mut reader) {
            match frames {
                Frames::Old => encode::put_key_record(&mut again, &record),
                Frames::Current => put_key_record(&mut again, &record),
            }
            assert_eq!(rest[..again.len()], again, "a key record has one form");
        }
    }
}

/// Replays a log whose file contains `file`, overlaid with the contents of the log buffer in
/// `pool`. Returns the number of entries; `any` selects `Replay::open_any`.
///
/// # Errors
/// `Corruption`.
///
/// # Panics
/// If the log ends after its bytes.
pub fn replay_log(
    file: &[u8],
    pool: Option<&Pool>,
    log_id: FileId,
    uuid: &[u8; 16],
    any: bool,
) -> Result<u64> {
    let (fs, path) = (SimFs::new(1), Path::new("/log"));
    fs.write_file(path, file);
    let mut source = LogSource::new(
        fs.open(path, OpenMode::Read)?,
        Arc::new(IoCounters::default()),
    )?;
    if let Some(pool) = pool {
        source.lay_over(PmLogBuffer::overlay(pool, uuid, log_id)?, None)?;
    }
    let len = source.len();
    let mut replay = if any {
        Replay::open_any(source, log_id, uuid)?
    } else {
        Replay::open(source, log_id, uuid)?
    };
    let mut entries = 0;
    while replay.next(|entry| {
        assert!(entry.value.len() as u64 <= len && entry.key.len() as u64 <= len);
        entries += 1;
        Ok(())
    })? {}
    let end = replay.end(0)?;
    assert!(
        end.at <= len || entries == 0,
        "a log of {len} bytes ends at {}",
        end.at
    );
    Ok(entries)
}

/// Encodes into `head` the part of a frame that precedes the values of `group`. Returns the bytes
/// of the whole frame.
///
/// # Errors
/// `Invalid` if the keys exceed 4 GiB.
pub fn frame_head(head: &mut Vec<u8>, group: &Group) -> Result<u64> {
    let place = Place {
        log_id: FileId(1),
        offset: 4096,
        first_seqno: SeqNo(1),
        synced_through: 0,
        named: true,
    };
    Ok(encode_head(head, &group.0, &[], &place, |_| ())?.frame_bytes)
}
