//! The manifest: an edit, a whole manifest, and CURRENT.

use super::patch::{clamp_u32, clamp_u64, put_u32};
use super::{Target, check_refusal, no_checksum, real};
use firn_base::FileId;
use firn_base::checksum::{crc32c, crc32c_salted};
use firn_base::coding::get_u32;
use firndb::proof;

/// The manifest number of all inputs.
const ID: u64 = 1;
const RECORD_HEADER: usize = 16;

/// A record's payload.
pub(super) const EDIT: Target = Target {
    name: "manifest_edit",
    bytes_max: 2 << 10,
    run: proof::edit,
    seeds: edit_seeds,
    mend: no_checksum,
};

/// A manifest.
pub(super) const MANIFEST: Target = Target {
    name: "manifest",
    bytes_max: 8 << 10,
    run: run_manifest,
    seeds: manifest_seeds,
    mend: mend_manifest,
};

/// The contents of CURRENT.
pub(super) const CURRENT: Target = Target {
    name: "current",
    bytes_max: 64,
    run: run_current,
    seeds: current_seeds,
    mend: mend_current,
};

/// The payloads of a manifest's records.
fn edit_seeds() -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    for manifest in manifest_seeds() {
        let mut rest = &manifest[..];
        while let Some(len) = get_u32(rest, 0) {
            let Some(record) = rest.get(..RECORD_HEADER + len as usize) else {
                break;
            };
            payloads.push(record[RECORD_HEADER..].to_vec());
            rest = &rest[record.len()..];
        }
    }
    payloads
}

/// CURRENT, naming [`ID`].
fn naming() -> Vec<u8> {
    let mut named = b"MANIFEST-000001 ".to_vec();
    mend_current(&mut named);
    named
}

fn run_manifest(bytes: &[u8]) {
    if let Err(error) = proof::read_manifest(&naming(), FileId(ID), bytes) {
        check_refusal(&error, "a manifest");
    }
}

fn manifest_seeds() -> Vec<Vec<u8>> {
    let mut manifests = real::files("MANIFEST-");
    manifests.iter_mut().for_each(mend_manifest);
    manifests
}

fn mend_manifest(bytes: &mut Vec<u8>) {
    mend_records(bytes, ID);
}

/// Mends the records of manifest `id`.
pub(super) fn mend_records(bytes: &mut [u8], id: u64) {
    let mut at = 0;
    while let Some(room) = bytes.len().checked_sub(at + RECORD_HEADER) {
        let len = clamp_u32(bytes, at, room);
        clamp_u64(bytes, at + 8, at);
        let crc = crc32c_salted(id, at as u64, &[&bytes[at + 8..at + RECORD_HEADER + len]]);
        put_u32(bytes, at + 4, crc);
        at += RECORD_HEADER + len;
    }
}

fn run_current(bytes: &[u8]) {
    let Some(manifest) = manifest_seeds().into_iter().next() else {
        return;
    };
    match proof::read_manifest(bytes, FileId(ID), &manifest) {
        Ok(read) => assert_eq!(
            (read, bytes),
            (Some(FileId(ID)), &naming()[..]),
            "CURRENT has one form"
        ),
        Err(error) => check_refusal(&error, "CURRENT"),
    }
}

fn current_seeds() -> Vec<Vec<u8>> {
    let mut seeds = real::files("CURRENT");
    seeds.push(naming());
    seeds
}

/// Appends the checksum of the name.
pub(super) fn mend_current(bytes: &mut Vec<u8>) {
    let name: Vec<u8> = bytes
        .split(|&byte| byte == b' ')
        .next()
        .unwrap_or_default()
        .to_vec();
    let crc = crc32c(&name);
    *bytes = name;
    bytes.extend_from_slice(format!(" {crc:08x}\n").as_bytes());
}
