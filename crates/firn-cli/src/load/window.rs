//! The bytes of a text that were read but not yet processed, and a hash of all bytes before them.
//!
//! 1. Memory is bounded: at most `record_bytes_max` and one chunk are held, however long a line is.
//! 2. Every byte before [`Window::place`] is in the hash, once and in order.

use super::rows::Place;
use crate::byte_size::ByteSize;
use crate::exit::{Failure, Outcome};
use firndb::Error;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use xxhash_rust::xxh3::Xxh3Default;

const CHUNK_BYTES: usize = 256 << 10;
/// The maximum number of bytes of one line that may be skipped. A longer line is an error.
const PASSED_BYTES_MAX: u64 = 1 << 30;

pub(super) struct Window {
    source: PathBuf,
    input: Box<dyn Read>,
    buffer: Vec<u8>,
    /// The first unprocessed byte in `buffer`.
    begin: usize,
    has_ended: bool,
    record_bytes_max: usize,
    passed_bytes_max: u64,
    place: Place,
    last_byte: Option<u8>,
    hash: Xxh3Default,
}

/// The outcome of a search. Offsets are relative to [`Window::place`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    At(usize),
    /// The text ends here without a match.
    End(usize),
    /// There is no match within the maximum size of a record.
    TooFar,
}

impl Window {
    /// Reads `input` from its first byte. `source` is its name in errors.
    pub(super) fn new(source: PathBuf, input: Box<dyn Read>, record_bytes_max: usize) -> Self {
        Self {
            source,
            input,
            buffer: Vec::new(),
            begin: 0,
            has_ended: false,
            record_bytes_max,
            passed_bytes_max: PASSED_BYTES_MAX,
            place: Place::START,
            last_byte: None,
            hash: Xxh3Default::new(),
        }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn source(&self) -> std::path::Display<'_> {
        self.source.display()
    }

    /// Notes that the place is the start of a line.
    pub(super) fn begin_line(&mut self) {
        self.last_byte = None;
    }

    /// The hash of all bytes before the place.
    pub(super) fn hash(&self) -> u64 {
        self.hash.digest()
    }

    /// The number of lines before the place, including a last one without a line break.
    pub(super) fn lines(&self) -> u64 {
        let is_cut = self.last_byte.is_some_and(|byte| byte != b'\n');
        self.place.line - 1 + u64::from(is_cut)
    }

    /// The bytes at the place that are already read.
    pub(super) fn view(&self) -> &[u8] {
        &self.buffer[self.begin..]
    }

    pub(super) fn record_bytes_max(&self) -> usize {
        self.record_bytes_max
    }

    /// The byte `at` bytes after the place; `None` beyond the end.
    pub(super) fn byte(&mut self, at: usize) -> Outcome<Option<u8>> {
        while self.view().len() <= at && self.read_more()? {}
        Ok(self.view().get(at).copied())
    }

    /// Finds the first byte at or after `from` that is `wanted`.
    pub(super) fn find(&mut self, from: usize, wanted: impl Fn(u8) -> bool) -> Outcome<Found> {
        let mut from = from;
        loop {
            let view = self.view();
            let rest = view.get(from..).unwrap_or_default();
            if let Some(at) = rest.iter().position(|byte| wanted(*byte)) {
                return Ok(Found::At(from + at));
            }
            from = view.len().max(from);
            if from > self.record_bytes_max {
                return Ok(Found::TooFar);
            }
            if !self.read_more()? {
                return Ok(Found::End(from));
            }
        }
    }

    /// Moves the place forward by `bytes` bytes, all of which are in the view.
    pub(super) fn pass(&mut self, bytes: usize) {
        let passed = &self.buffer[self.begin..self.begin + bytes];
        self.hash.update(passed);
        let breaks = passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.last_byte = passed.last().copied().or(self.last_byte);
        self.place = Place {
            byte: self.place.byte + bytes as u64,
            line: self.place.line + breaks,
        };
        self.begin += bytes;
    }

    /// Moves the place to the next line, however long this line is, up to [`PASSED_BYTES_MAX`].
    pub(super) fn pass_line(&mut self) -> Outcome<()> {
        let start = self.place;
        loop {
            if let Some(at) = self.view().iter().position(|byte| *byte == b'\n') {
                self.pass(at + 1);
                return Ok(());
            }
            self.pass(self.view().len());
            if self.place.byte - start.byte > self.passed_bytes_max {
                let (source, line, max) = (
                    self.source.display(),
                    start.line,
                    ByteSize(self.passed_bytes_max),
                );
                return Err(Failure::invalid(format!(
                    "{source}:{line}: the line does not end within {max}: this is no text of records"
                )));
            }
            if !self.read_more()? {
                return Ok(());
            }
        }
    }

    /// Moves the place to `byte`, where a line starts, and calls `step` with each place on the way.
    /// Returns false if the text ends earlier.
    pub(super) fn pass_to(&mut self, byte: u64, mut step: impl FnMut(u64)) -> Outcome<bool> {
        while self.place.byte < byte {
            let left = usize::try_from(byte - self.place.byte).unwrap_or(usize::MAX);
            self.pass(left.min(self.view().len()));
            step(self.place.byte);
            if self.place.byte < byte && !self.read_more()? {
                return Ok(false);
            }
        }
        self.begin_line();
        Ok(true)
    }

    /// Reads a chunk. Returns false at the end.
    fn read_more(&mut self) -> Outcome<bool> {
        if self.has_ended {
            return Ok(false);
        }
        self.buffer.drain(..self.begin);
        self.begin = 0;
        let held = self.buffer.len();
        if self.buffer.capacity() - held < CHUNK_BYTES {
            self.buffer.reserve_exact(CHUNK_BYTES.max(held / 2));
        }
        self.buffer.resize(held + CHUNK_BYTES, 0);
        let read = loop {
            match self.input.read(&mut self.buffer[held..]) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(held + *read.as_ref().unwrap_or(&0));
        let bytes = read.map_err(|e| Error::from_io("read", &self.source, e))?;
        self.has_ended = bytes == 0;
        Ok(bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &'static [u8], record_bytes_max: usize) -> Window {
        Window::new("text".into(), Box::new(text), record_bytes_max)
    }

    #[test]
    fn a_place_has_the_hash_of_all_before_it() {
        let text = b"one\ntwo\nthree";
        let mut by_steps = window(text, 100);
        assert_eq!(
            by_steps.find(0, |byte| byte == b'\n').unwrap(),
            Found::At(3)
        );
        by_steps.pass(4);
        by_steps.pass_line().unwrap();
        assert_eq!(
            (by_steps.place(), by_steps.lines()),
            (Place { byte: 8, line: 3 }, 2)
        );
        let mut at_once = window(text, 100);
        assert!(at_once.pass_to(8, |_| {}).unwrap());
        assert_eq!(
            (at_once.place(), at_once.hash()),
            (by_steps.place(), by_steps.hash())
        );
        let mut other = window(b"One\ntwo\nthree", 100);
        assert!(other.pass_to(8, |_| {}).unwrap());
        assert_ne!(other.hash(), by_steps.hash());
        assert!(!other.pass_to(14, |_| {}).unwrap());
        assert_eq!(other.lines(), 3);
    }

    #[test]
    fn a_search_ends_at_the_bound() {
        let mut endless = Window::new("zero".into(), Box::new(std::io::repeat(0)), 1 << 20);
        assert_eq!(
            endless.find(0, |byte| byte == b'\n').unwrap(),
            Found::TooFar
        );
        assert!(endless.view().len() <= (1 << 20) + CHUNK_BYTES);
        endless.passed_bytes_max = 4 << 20;
        assert!(endless.pass_line().is_err());
        let mut short = window(b"abc", 1);
        assert_eq!(short.find(0, |byte| byte == b'x').unwrap(), Found::TooFar);
        assert_eq!(
            window(b"abc", 3).find(0, |byte| byte == b'x').unwrap(),
            Found::End(3)
        );
        assert_eq!(window(b"abc", 3).byte(3).unwrap(), None);
    }
}
