//! The header page: what is accepted, and what each refusal says.

use super::*;

const UUID: [u8; 16] = [7; 16];

fn page() -> Vec<u8> {
    let mut page = vec![0u8; 4096];
    page[..64].copy_from_slice(encode_header(&UUID, 1 << 16).as_bytes());
    let session = Session {
        clean: true,
        unsafe_shutdowns: 3,
        generation_low: 9,
    };
    page[64..72].copy_from_slice(&session.encode(&UUID).to_le_bytes());
    page
}

fn refusal(page: &[u8]) -> Error {
    decode_header(page, &UUID, "pool").unwrap_err()
}

#[test]
fn a_header_round_trips() {
    let session = Session {
        clean: true,
        unsafe_shutdowns: 3,
        generation_low: 9,
    };
    assert_eq!(
        decode_header(&page(), &UUID, "pool").unwrap(),
        HeaderState::Complete { session }
    );
}

#[test]
fn every_bit_of_header_and_session_is_guarded() {
    for bit in 0..72 * 8 {
        let mut bytes = page();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let error = refusal(&bytes);
        assert!(
            matches!(
                error.kind(),
                ErrorKind::Corruption | ErrorKind::Incompatible
            ),
            "bit {bit}: {error:?}"
        );
    }
}

#[test]
fn each_refusal_is_its_own() {
    let mut other = page();
    other[8] = 2;
    assert!(refusal(&other).to_string().contains("pool format 2"));
    let error = decode_header(&page(), &[8; 16], "pool").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("its own pool path"), "{error}");
    let error = refusal(&[b'x'; 4096]);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("not a FirnDB pool"), "{error}");
    assert_eq!(refusal(&[0; 10]).kind(), ErrorKind::Corruption);
}

#[test]
fn a_blank_page_is_an_unfinished_creation() {
    assert_eq!(
        decode_header(&[0; 4096], &UUID, "pool").unwrap(),
        HeaderState::Unfinished
    );
    let mut cut = page();
    cut[..8].fill(0);
    assert_eq!(
        decode_header(&cut, &UUID, "pool").unwrap(),
        HeaderState::Unfinished
    );
}

#[test]
fn unsafe_shutdowns_are_counted_and_saturate() {
    let clean = Session {
        clean: true,
        unsafe_shutdowns: 0,
        generation_low: 1,
    };
    let open = clean.next_open();
    assert_eq!((open.clean, open.unsafe_shutdowns), (false, 0));
    assert_eq!(open.next_open().unsafe_shutdowns, 1);
    let full = Session {
        clean: false,
        unsafe_shutdowns: 0x7fff,
        generation_low: 0,
    };
    assert_eq!(
        Session::decode(full.next_open().encode(&UUID), &UUID)
            .unwrap()
            .unsafe_shutdowns,
        0x7fff
    );
}
