//! Tests headers and records: each has one form, and anything else is rejected.

use super::*;
use proptest::prelude::*;

const LOG: FileId = FileId(0x0123_4567);
const OFFSET: u64 = 0x8765_4321;

const TYPICAL: FrameHeader = FrameHeader {
    key_bytes: 19,
    entries: 1,
    named: true,
    value_bytes: 108,
    first_seqno: SeqNo(8_000_000),
    synced_through: 1 << 25,
    key_crc: 0x5a5a_0ff0,
};

fn encoded(header: &FrameHeader) -> Vec<u8> {
    let mut out = Vec::new();
    header.put(&mut out, LOG, OFFSET);
    out
}

/// A header at [`OFFSET`] of [`LOG`] with these bytes after its checksum, which matches them.
fn with_checksum(fields: &[u8]) -> Vec<u8> {
    let mut out = FRAME_MAGIC.to_le_bytes().to_vec();
    out.extend_from_slice(&crc32c_salted(LOG.0, OFFSET, &[fields]).to_le_bytes());
    out.extend_from_slice(fields);
    out
}

/// Headers with all combinations of extreme and usual numbers.
fn headers() -> Vec<FrameHeader> {
    let words = [0, 1, 0x7f, 0x80, u32::MAX];
    let longs = [0, 0x7f, 0x80, 1 << 56, u64::MAX];
    let mut all = Vec::new();
    for (key_bytes, entries) in words.iter().flat_map(|&a| words.map(|b| (a, b))) {
        for (value_bytes, first) in longs.iter().flat_map(|&a| longs.map(|b| (a, b))) {
            for synced_through in longs {
                all.push(FrameHeader {
                    key_bytes,
                    entries,
                    named: first & 1 == 0,
                    value_bytes,
                    first_seqno: SeqNo(first),
                    synced_through,
                    key_crc: key_bytes ^ 0xff00_ff00,
                });
            }
        }
    }
    all
}

#[test]
fn headers_round_trip() {
    let mut lens = Vec::new();
    for header in headers() {
        let mut bytes = encoded(&header);
        let len = bytes.len();
        lens.push(len);
        assert_eq!(
            FrameHeader::decode(&bytes, LOG, OFFSET),
            Some((header, len))
        );
        // Bytes after it are not part of it.
        bytes.extend_from_slice(&[0xff; 20]);
        assert_eq!(
            FrameHeader::decode(&bytes, LOG, OFFSET),
            Some((header, len))
        );
        assert_eq!(FrameHeader::decode(&bytes, LOG, OFFSET + 1), None);
        assert_eq!(FrameHeader::decode(&bytes, LOG.next(), OFFSET), None);
    }
    assert_eq!(lens.iter().min(), Some(&15));
    assert_eq!(lens.iter().max(), Some(&FRAME_HEADER_BYTES_MAX));
    assert_eq!(encoded(&TYPICAL).len(), 21);
}

#[test]
fn a_cut_header_is_rejected() {
    for header in headers() {
        let bytes = encoded(&header);
        for len in 0..bytes.len() {
            assert_eq!(FrameHeader::decode(&bytes[..len], LOG, OFFSET), None);
        }
    }
}

/// A flipped bit may change the length of a number, and so of the header.
#[test]
fn a_flipped_bit_is_rejected() {
    let all = headers();
    for header in all.iter().step_by(7).chain([&TYPICAL]) {
        let bytes = encoded(header);
        for after in [[0x00; 16], [0x81; 16], [0x7f; 16]] {
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                flipped.extend_from_slice(&after);
                assert_eq!(
                    FrameHeader::decode(&flipped, LOG, OFFSET),
                    None,
                    "bit {bit} of {header:?}"
                );
            }
        }
    }
}

/// A number that is longer than it must be, or too large, is rejected although the checksum fits.
#[test]
fn a_header_has_one_form() {
    let crc = TYPICAL.key_crc.to_le_bytes();
    let fields = |numbers: [&[u8]; 5]| with_checksum(&[&crc[..], &numbers.concat()].concat());
    let usual: [&[u8]; 5] = [&[19], &[3], &[108], &[9], &[0]];
    let decode = |bytes: &[u8]| FrameHeader::decode(bytes, LOG, OFFSET);
    assert!(decode(&fields(usual)).is_some());
    for i in 0..5 {
        let mut numbers = usual;
        let overlong = [usual[i][0] | 0x80, 0];
        numbers[i] = &overlong;
        assert_eq!(decode(&fields(numbers)), None, "number {i} in two bytes");
        let endless = [0xff; 11];
        numbers[i] = &endless;
        assert_eq!(decode(&fields(numbers)), None, "number {i} without an end");
    }
    for (i, past) in [(0, 1 << 32), (1, 1 << 33)] {
        for (value, fits) in [(past - 1, true), (past, false)] {
            let (mut number, mut numbers) = (Vec::new(), usual);
            put_varint(&mut number, value);
            numbers[i] = &number;
            assert_eq!(decode(&fields(numbers)).is_some(), fits, "{value} as {i}");
        }
    }
}

#[test]
fn a_record_with_a_keyspace_is_rejected() {
    let mut bytes = Vec::new();
    let record = KeyRecord {
        kind: Kind::Put as u8,
        key: b"key",
        value_len: 7,
        slot: None,
    };
    put_key_record(&mut bytes, &record);
    assert_eq!(bytes, [&[1, 3][..], b"key", &[7]].concat());
    assert!(key_record(&mut Reader::new(&bytes)).is_some());
    bytes[0] |= KEYSPACE_BIT;
    assert!(key_record(&mut Reader::new(&bytes)).is_none());
}

/// The headers of files of versions 3 and 4 differ in the version alone, and those of others are
/// not read.
#[test]
fn file_headers_tell_their_version() {
    let previous = LogEnd {
        log_id: FileId(3),
        end: 5000,
        synced_through: 400,
    };
    for version in 0..8 {
        let header = LogHeader {
            version,
            uuid: [9; 16],
            previous: Some(previous),
        };
        let bytes = header.encode(LOG);
        let is_read = [old::VERSION_3, VERSION].contains(&version);
        assert_eq!(
            LogHeader::decode(&bytes, LOG),
            is_read.then_some(header),
            "version {version}"
        );
        assert_eq!(LogHeader::decode(&bytes, LOG.next()), None);
    }
}

proptest! {
    /// Arbitrary bytes with a matching checksum are a header in its one form, or none.
    #[test]
    fn arbitrary_headers(fields in prop::collection::vec(any::<u8>(), 0..60)) {
        for len in 0..=fields.len() {
            let bytes = with_checksum(&fields[..len]);
            if let Some((header, len)) = FrameHeader::decode(&bytes, LOG, OFFSET) {
                prop_assert_eq!(&encoded(&header)[..], &bytes[..len]);
                prop_assert!(len <= FRAME_HEADER_BYTES_MAX);
            }
        }
    }
}
