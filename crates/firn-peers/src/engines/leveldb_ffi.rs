//! The part of LevelDB's C interface (`leveldb/c.h` of version 1.23) that the adapter uses, and a
//! safe handle on it.
//!
//! 1. A [`Database`] owns the objects it was opened with (options, cache, filter) until it is
//!    closed, because LevelDB keeps pointers to them.
//! 2. Every array that LevelDB returns is copied or shown, then freed with `leveldb_free`.
//! 3. LevelDB's handles may be used by several threads at once, except iterators, which never leave
//!    one call here.
//!
//! Tests: `tests/engines.rs`, with the feature `leveldb`.
#![allow(unsafe_code)]

use firn_bench::Change;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::slice;

/// An object of LevelDB that is only used through pointers.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

/// Receives the text of an error from LevelDB. The caller frees it.
type ErrorOut = *mut *mut c_char;

// SAFETY: the declarations of `leveldb/c.h`, whose opaque types are all pointed to as `Opaque`;
// `tests/engines.rs`.
unsafe extern "C" {
    fn leveldb_open(options: *const Opaque, name: *const c_char, error: ErrorOut) -> *mut Opaque;
    fn leveldb_close(db: *mut Opaque);
    fn leveldb_put(
        db: *mut Opaque,
        options: *const Opaque,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
        error: ErrorOut,
    );
    fn leveldb_delete(
        db: *mut Opaque,
        options: *const Opaque,
        key: *const c_char,
        key_bytes: usize,
        error: ErrorOut,
    );
    fn leveldb_write(db: *mut Opaque, options: *const Opaque, batch: *mut Opaque, error: ErrorOut);
    fn leveldb_writebatch_create() -> *mut Opaque;
    fn leveldb_writebatch_destroy(batch: *mut Opaque);
    fn leveldb_writebatch_put(
        batch: *mut Opaque,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
    );
    fn leveldb_writebatch_delete(batch: *mut Opaque, key: *const c_char, key_bytes: usize);
    fn leveldb_get(
        db: *mut Opaque,
        options: *const Opaque,
        key: *const c_char,
        key_bytes: usize,
        value_bytes: *mut usize,
        error: ErrorOut,
    ) -> *mut c_char;
    fn leveldb_property_value(db: *mut Opaque, name: *const c_char) -> *mut c_char;
    fn leveldb_compact_range(
        db: *mut Opaque,
        start: *const c_char,
        start_bytes: usize,
        limit: *const c_char,
        limit_bytes: usize,
    );
    fn leveldb_free(pointer: *mut c_void);

    fn leveldb_create_iterator(db: *mut Opaque, options: *const Opaque) -> *mut Opaque;
    fn leveldb_iter_destroy(iter: *mut Opaque);
    fn leveldb_iter_valid(iter: *const Opaque) -> u8;
    fn leveldb_iter_seek_to_first(iter: *mut Opaque);
    fn leveldb_iter_seek(iter: *mut Opaque, key: *const c_char, key_bytes: usize);
    fn leveldb_iter_next(iter: *mut Opaque);
    fn leveldb_iter_key(iter: *const Opaque, bytes: *mut usize) -> *const c_char;
    fn leveldb_iter_value(iter: *const Opaque, bytes: *mut usize) -> *const c_char;
    fn leveldb_iter_get_error(iter: *const Opaque, error: ErrorOut);

    fn leveldb_options_create() -> *mut Opaque;
    fn leveldb_options_destroy(options: *mut Opaque);
    fn leveldb_options_set_create_if_missing(options: *mut Opaque, yes: u8);
    fn leveldb_options_set_write_buffer_size(options: *mut Opaque, bytes: usize);
    fn leveldb_options_set_block_size(options: *mut Opaque, bytes: usize);
    fn leveldb_options_set_max_open_files(options: *mut Opaque, count: c_int);
    fn leveldb_options_set_compression(options: *mut Opaque, kind: c_int);
    fn leveldb_options_set_cache(options: *mut Opaque, cache: *mut Opaque);
    fn leveldb_options_set_filter_policy(options: *mut Opaque, filter: *mut Opaque);
    fn leveldb_cache_create_lru(bytes: usize) -> *mut Opaque;
    fn leveldb_cache_destroy(cache: *mut Opaque);
    fn leveldb_filterpolicy_create_bloom(bits: c_int) -> *mut Opaque;
    fn leveldb_filterpolicy_destroy(filter: *mut Opaque);
    fn leveldb_readoptions_create() -> *mut Opaque;
    fn leveldb_readoptions_destroy(options: *mut Opaque);
    fn leveldb_readoptions_set_verify_checksums(options: *mut Opaque, yes: u8);
    fn leveldb_writeoptions_create() -> *mut Opaque;
    fn leveldb_writeoptions_destroy(options: *mut Opaque);
    fn leveldb_writeoptions_set_sync(options: *mut Opaque, yes: u8);
}

const NO_COMPRESSION: c_int = 0;

/// The options of a database.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tuning {
    pub(super) write_buffer_bytes: usize,
    pub(super) cache_bytes: usize,
    /// Bits per key; 0 for no filter.
    pub(super) filter_bits: i32,
    pub(super) block_bytes: usize,
    pub(super) open_files_max: i32,
}

/// An open database; closed when dropped.
#[derive(Debug)]
pub(super) struct Database {
    db: *mut Opaque,
    options: *mut Opaque,
    cache: *mut Opaque,
    filter: *mut Opaque,
    read: *mut Opaque,
    synced: *mut Opaque,
    buffered: *mut Opaque,
}

// SAFETY: LevelDB's handles are not bound to a thread (invariant 3); `writers_and_readers_at_once`.
unsafe impl Send for Database {}
// SAFETY: as above. `leveldb/db.h` promises that a DB is safe for concurrent use, and the options
// are only read.
unsafe impl Sync for Database {}

impl Database {
    /// Opens or creates the database in `directory`. An error is LevelDB's text.
    pub(super) fn open(directory: &Path, tuning: Tuning) -> Result<Self, String> {
        let name = CString::new(directory.as_os_str().as_encoded_bytes())
            .map_err(|error| error.to_string())?;
        // SAFETY: each object is created once and freed once, by `drop`, which accepts null for a
        // database that did not open; `name` outlives the call; `what_cannot_be_opened_says_why`.
        unsafe {
            let mut this = Self {
                db: ptr::null_mut(),
                options: leveldb_options_create(),
                cache: leveldb_cache_create_lru(tuning.cache_bytes),
                filter: leveldb_filterpolicy_create_bloom(tuning.filter_bits),
                read: leveldb_readoptions_create(),
                synced: leveldb_writeoptions_create(),
                buffered: leveldb_writeoptions_create(),
            };
            leveldb_options_set_create_if_missing(this.options, 1);
            leveldb_options_set_write_buffer_size(this.options, tuning.write_buffer_bytes);
            leveldb_options_set_block_size(this.options, tuning.block_bytes);
            leveldb_options_set_max_open_files(this.options, tuning.open_files_max);
            leveldb_options_set_compression(this.options, NO_COMPRESSION);
            leveldb_options_set_cache(this.options, this.cache);
            if tuning.filter_bits > 0 {
                leveldb_options_set_filter_policy(this.options, this.filter);
            }
            leveldb_readoptions_set_verify_checksums(this.read, 1);
            leveldb_writeoptions_set_sync(this.synced, 1);
            let mut error = ptr::null_mut();
            this.db = leveldb_open(this.options, name.as_ptr(), &mut error);
            take_error(error)?;
            Ok(this)
        }
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8], synced: bool) -> Result<(), String> {
        let (mut error, options) = (ptr::null_mut(), self.write_options(synced));
        let (key_bytes, value_bytes) = (key.len(), value.len());
        let (key, value) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: both slices outlive the call, which copies them; handles live as long as `self`;
        // `engines_do_as_the_model`.
        unsafe {
            leveldb_put(
                self.db,
                options,
                key,
                key_bytes,
                value,
                value_bytes,
                &mut error,
            );
            take_error(error)
        }
    }

    pub(super) fn delete(&self, key: &[u8], synced: bool) -> Result<(), String> {
        let (mut error, options) = (ptr::null_mut(), self.write_options(synced));
        // SAFETY: as in `put`; `engines_do_as_the_model`.
        unsafe {
            leveldb_delete(self.db, options, key.as_ptr().cast(), key.len(), &mut error);
            take_error(error)
        }
    }

    /// Makes all changes of `batch` or none.
    pub(super) fn write(&self, batch: &[Change<'_>], synced: bool) -> Result<(), String> {
        let (mut error, options) = (ptr::null_mut(), self.write_options(synced));
        // SAFETY: the batch is freed before this returns; it copies keys and values, which outlive
        // the calls; handles live as long as `self`; `engines_do_as_the_model`.
        unsafe {
            let changes = Batch(leveldb_writebatch_create());
            for change in batch {
                match *change {
                    Change::Put { key, value } => {
                        let (key_bytes, value_bytes) = (key.len(), value.len());
                        let (key, value) = (key.as_ptr().cast(), value.as_ptr().cast());
                        leveldb_writebatch_put(changes.0, key, key_bytes, value, value_bytes);
                    }
                    Change::Delete { key } => {
                        leveldb_writebatch_delete(changes.0, key.as_ptr().cast(), key.len());
                    }
                }
            }
            leveldb_write(self.db, options, changes.0, &mut error);
            take_error(error)
        }
    }

    /// Passes the value of `key` to `see`; false if there is none.
    pub(super) fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        let (mut error, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: the result is null or an array of `bytes` bytes that we own until it is freed
        // (invariant 2), even if `see` panics; `engines_do_as_the_model`.
        unsafe {
            let value = Array(leveldb_get(
                self.db,
                self.read,
                key.as_ptr().cast(),
                key.len(),
                &mut bytes,
                &mut error,
            ));
            take_error(error)?;
            if !value.0.is_null() {
                see(slice::from_raw_parts(value.0.cast(), bytes));
            }
            Ok(!value.0.is_null())
        }
    }

    /// Passes up to `count` entries from `from` on to `see`.
    pub(super) fn scan(
        &self,
        from: &[u8],
        count: usize,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), String> {
        // SAFETY: the iterator is freed before this returns or unwinds, so before the database. Key
        // and value are valid until it moves, which is after `see`; `engines_do_as_the_model`.
        unsafe {
            let iter = Iter(leveldb_create_iterator(self.db, self.read));
            if from.is_empty() {
                leveldb_iter_seek_to_first(iter.0);
            } else {
                leveldb_iter_seek(iter.0, from.as_ptr().cast(), from.len());
            }
            for _ in 0..count {
                if leveldb_iter_valid(iter.0) == 0 {
                    break;
                }
                let (mut key_bytes, mut value_bytes) = (0, 0);
                let key = leveldb_iter_key(iter.0, &mut key_bytes);
                let value = leveldb_iter_value(iter.0, &mut value_bytes);
                see(
                    slice::from_raw_parts(key.cast(), key_bytes),
                    slice::from_raw_parts(value.cast(), value_bytes),
                );
                leveldb_iter_next(iter.0);
            }
            let mut error = ptr::null_mut();
            leveldb_iter_get_error(iter.0, &mut error);
            take_error(error)
        }
    }

    /// Flushes the memtable and waits for it. This is the first step of compacting a range, here a
    /// range without any key.
    pub(super) fn flush(&self) {
        let nothing: *const c_char = c"".as_ptr();
        // SAFETY: non-null pointers with length 0 are empty bounds, not missing ones; `settle` in
        // `counters_count_and_settings_are_told`.
        unsafe { leveldb_compact_range(self.db, nothing, 0, nothing, 0) };
    }

    /// The text of a property, if LevelDB knows it.
    pub(super) fn property(&self, name: &CStr) -> Option<String> {
        // SAFETY: the result is null or a text that ends in 0 and is owned by us until freed;
        // `statistics_are_read`.
        unsafe {
            let text = Array(leveldb_property_value(self.db, name.as_ptr()));
            (!text.0.is_null()).then(|| CStr::from_ptr(text.0).to_string_lossy().into_owned())
        }
    }

    fn write_options(&self, synced: bool) -> *const Opaque {
        if synced { self.synced } else { self.buffered }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the database is closed first, because it points to the others (invariant 1); all
        // were created by `open`; `engines_do_as_the_model` reopens.
        unsafe {
            if !self.db.is_null() {
                leveldb_close(self.db);
            }
            leveldb_options_destroy(self.options);
            leveldb_cache_destroy(self.cache);
            leveldb_filterpolicy_destroy(self.filter);
            leveldb_readoptions_destroy(self.read);
            leveldb_writeoptions_destroy(self.synced);
            leveldb_writeoptions_destroy(self.buffered);
        }
    }
}

/// An array allocated by LevelDB and owned by us.
struct Array(*mut c_char);

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: null, or returned by LevelDB for us to free, once (invariant 2);
        // `engines_do_as_the_model`.
        unsafe { leveldb_free(self.0.cast()) };
    }
}

/// An iterator, freed at the end of its scope.
struct Iter(*mut Opaque);

impl Drop for Iter {
    fn drop(&mut self) {
        // SAFETY: created by `leveldb_create_iterator`, freed once; `engines_do_as_the_model`.
        unsafe { leveldb_iter_destroy(self.0) };
    }
}

/// A batch, freed at the end of its scope.
struct Batch(*mut Opaque);

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: created by `leveldb_writebatch_create`, freed once; `engines_do_as_the_model`.
        unsafe { leveldb_writebatch_destroy(self.0) };
    }
}

/// Converts LevelDB's error. REQUIRES: null, or a text of LevelDB's that is ours to free.
unsafe fn take_error(error: *mut c_char) -> Result<(), String> {
    let error = Array(error);
    if error.0.is_null() {
        return Ok(());
    }
    // SAFETY: not null, so a text that ends in 0, ours until `error` is dropped;
    // `what_cannot_be_opened_says_why`.
    Err(unsafe { CStr::from_ptr(error.0) }
        .to_string_lossy()
        .into_owned())
}
