//! The frames of all versions that are read, by the version in a log's header.

use super::layout::{FRAME_HEADER_BYTES_MAX, FrameHeader, KeyRecord, LogHeader, VERSION};
use super::{layout, old};
use firn_base::FileId;
use firn_base::coding::Reader;

const _: () = assert!(old::FRAME_HEADER_BYTES <= FRAME_HEADER_BYTES_MAX);

/// The layout of a log's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frames {
    /// That of versions 2 and 3.
    Old,
    Current,
}

impl Frames {
    /// The layouts, all of which a log without a readable header may have.
    pub(super) const ALL: [Frames; 2] = [Frames::Current, Frames::Old];

    /// The layout of the frames after `header`.
    pub(super) fn after(header: &LogHeader) -> Frames {
        if header.version == VERSION {
            Frames::Current
        } else {
            Frames::Old
        }
    }

    /// Decodes the frame header at the start of `bytes`, read at `offset` of log `log_id`, and
    /// returns it and its length; `None` if it is not a header written there. It has at most
    /// [`FRAME_HEADER_BYTES_MAX`] bytes.
    #[inline]
    pub(super) fn header(
        self,
        bytes: &[u8],
        log_id: FileId,
        offset: u64,
    ) -> Option<(FrameHeader, usize)> {
        match self {
            Frames::Old => old::decode_frame_header(bytes, log_id, offset)
                .map(|header| (header, old::FRAME_HEADER_BYTES)),
            Frames::Current => FrameHeader::decode(bytes, log_id, offset),
        }
    }

    /// The next record of a key section; `None` if it is incomplete or unknown.
    #[inline]
    pub(super) fn key_record<'a>(self, reader: &mut Reader<'a>) -> Option<KeyRecord<'a>> {
        match self {
            Frames::Old => old::key_record(reader),
            Frames::Current => layout::key_record(reader),
        }
    }
}
