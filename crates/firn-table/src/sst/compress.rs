//! Block compression. A block is stored compressed only if that saves at least an eighth of its
//! size.

use firn_base::{Error, Result};
use firn_fs::LARGE_BYTES;

/// An allocation of this many bytes always comes fresh from the system. It is zeroed without
/// writing to it, and untouched pages take no memory. (glibc keeps at most 32 MiB for reuse.)
const FRESH_BYTES: usize = (32 << 20) + 1;

/// The encoding of a block's bytes. The numbers are on media.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Codec {
    /// Uncompressed.
    #[default]
    None = 0,
    /// LZ4: fast, saves about half on text.
    Lz4 = 1,
    /// Zstandard, level 3: slower, saves more. Needs the feature `zstd`.
    Zstd = 2,
}

impl Codec {
    /// The codec with this number.
    pub fn from_byte(byte: u8) -> Option<Codec> {
        match byte {
            0 => Some(Codec::None),
            1 => Some(Codec::Lz4),
            2 => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// Rejects a codec that this build does not have.
    ///
    /// # Errors
    /// `Invalid` for [`Codec::Zstd`] without the feature `zstd`.
    pub fn check(self) -> Result<()> {
        if self == Codec::Zstd && !cfg!(feature = "zstd") {
            return Err(Error::invalid(
                "this build has no zstd: build with the feature `zstd`, or choose lz4 or none",
            ));
        }
        Ok(())
    }

    /// Compresses `raw` into `out` if it pays. Returns the codec to store.
    pub(super) fn compress(self, raw: &[u8], out: &mut Vec<u8>) -> Codec {
        out.clear();
        let packed = match self {
            Codec::None => return Codec::None,
            Codec::Lz4 => {
                let most = lz4_flex::block::get_maximum_output_size(raw.len());
                if raw.len() >= LARGE_BYTES {
                    *out = vec![0; most.max(FRESH_BYTES)];
                } else {
                    out.resize(most, 0);
                }
                lz4_flex::block::compress_into(raw, out).ok()
            }
            Codec::Zstd => zstd_compress(raw, out),
        };
        match packed {
            Some(len) if len < raw.len() - raw.len() / 8 => {
                out.truncate(len);
                self
            }
            _ => Codec::None,
        }
    }

    /// True if samples of a large `value` suggest that compression pays. Trying it on the whole
    /// value would take as much memory again.
    pub(super) fn pays_for(self, value: &[u8]) -> bool {
        const SAMPLES: usize = 8;
        const SAMPLE_BYTES_MAX: usize = 8 << 10;
        let bytes = (value.len() / SAMPLES).clamp(1, SAMPLE_BYTES_MAX);
        let samples: Vec<u8> = value
            .chunks((value.len() / SAMPLES).max(1))
            .flat_map(|part| &part[..bytes.min(part.len())])
            .copied()
            .collect();
        self.compress(&samples, &mut Vec::new()) != Codec::None
    }

    /// The most bytes to which `stored_len` bytes can decompress. Bounds the allocation before they
    /// are decoded.
    pub(super) fn raw_bytes_max(self, stored_len: u64) -> u64 {
        let factor = match self {
            Codec::None => 1,
            // A byte of a length stands for at most 255.
            Codec::Lz4 => 255,
            // A block of 128 KiB of one repeated byte takes four bytes.
            Codec::Zstd => 32 << 10,
        };
        stored_len.saturating_mul(factor)
    }

    /// Decompresses `stored` to `raw_len` bytes; `None` if it is damaged.
    pub(super) fn decompress(self, stored: &[u8], raw_len: usize) -> Option<Box<[u8]>> {
        match self {
            Codec::None => (stored.len() == raw_len).then(|| stored.into()),
            Codec::Lz4 => {
                let mut raw = vec![0; raw_len];
                let len = lz4_flex::block::decompress_into(stored, &mut raw).ok()?;
                (len == raw_len).then(|| raw.into_boxed_slice())
            }
            Codec::Zstd => zstd_decompress(stored, raw_len),
        }
    }
}

#[cfg(feature = "zstd")]
fn zstd_compress(raw: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    const LEVEL: i32 = 3;
    *out = zstd::bulk::compress(raw, LEVEL).ok()?;
    Some(out.len())
}

#[cfg(not(feature = "zstd"))]
fn zstd_compress(_: &[u8], _: &mut Vec<u8>) -> Option<usize> {
    None
}

#[cfg(feature = "zstd")]
fn zstd_decompress(stored: &[u8], raw_len: usize) -> Option<Box<[u8]>> {
    let raw = zstd::bulk::decompress(stored, raw_len).ok()?;
    (raw.len() == raw_len).then(|| raw.into_boxed_slice())
}

#[cfg(not(feature = "zstd"))]
fn zstd_decompress(_: &[u8], _: usize) -> Option<Box<[u8]>> {
    None
}
