//! Opening and creating.
//!
//! 1. Creation is crash-safe: root slots and header without magic, fence; magic and session word,
//!    fence. An interrupted creation has no magic and is created again. A header page that holds
//!    anything else is refused, not overwritten.
//! 2. An open writes one word, which says that the session is not closed. Everything else was only
//!    read and checked. It is made durable together with everything the root names, because a
//!    killed process may have left it in the cache, and recovery must see the same bytes every
//!    time.

use super::commit::write_session;
use super::{Created, Pool};
use crate::config::{Backend, PmConfig};
use crate::counters::Counters;
use crate::extents::ExtentMap;
use crate::header::{HeaderState, Session, decode_header, encode_header};
use crate::latency::Delays;
use crate::layout::{DATA_START, MAGIC_AT, MIN_POOL_BYTES, PAGE_BYTES, POOL_MAGIC, SESSION_AT};
use crate::region::{
    Backing, Kind, Region, allocate, ask_for_dax, device_bytes, extend, file_bytes, is_still_named,
    lock_file, sync_parent, whole_granules,
};
use crate::root::{Root, newest_root, slot_offset};
use crate::sim::SimRegion;
use crate::sites;
use firn_base::clock::Clock;
use firn_base::{Error, ErrorKind, Result};
use parking_lot::{Mutex, RwLock};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zerocopy::IntoBytes;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Pool {
    /// Opens the pool of the database `db_uuid`, or creates it if there is none. The pool is then
    /// in recovery: claim everything that [`Pool::root`] reaches, then call
    /// [`Pool::finish_recovery`].
    ///
    /// # Errors
    /// `Locked` if it is already open; `Incompatible` if it belongs to another database, has
    /// another version, or the medium cannot provide what the backend needs; `Invalid` if the path
    /// holds something else or the size is too small; `Corruption` if it is damaged.
    pub fn open_or_create(config: &PmConfig, db_uuid: [u8; 16]) -> Result<Self> {
        let path = match (config.backend, &config.path) {
            (Backend::Volatile, None) => {
                let bytes = whole_granules(config.size_bytes)?;
                return Self::over(
                    Arc::new(Region::volatile(bytes)?),
                    db_uuid,
                    Some(bytes),
                    config,
                );
            }
            (Backend::Volatile, Some(_)) => {
                return Err(Error::invalid(
                    "backend = \"volatile\" has no path: leave pm.path out, or say backend = \"file\" or \"dax\"",
                ));
            }
            (backend, None) => {
                return Err(Error::invalid(format!(
                    "backend = \"{backend}\" needs a pm.path"
                )));
            }
            (_, Some(path)) => path,
        };
        let (file, is_made_here) = open_or_make(path, config.backend)
            .map_err(|source| Error::from_io("open", path, source))?;
        // Held until a refused file has been removed again.
        let lock = lock_file(&file, path)?;
        let (len, is_device) = length(&file, path, config)?;
        let is_new = len == 0 && !is_device;
        let created = match (is_new, is_made_here) {
            (true, true) => Some(Created::File(path.clone())),
            (true, false) => Some(Created::Length(path.clone())),
            (false, _) => None,
        };
        match Self::over_file(file, path, len, is_new, db_uuid, config) {
            Ok(mut pool) => {
                pool.lock = Mutex::new(Some(lock));
                pool.created = created.or(pool.created);
                Ok(pool)
            }
            Err(error) => {
                // Removes a file that was created and then refused. A file that existed before
                // stays.
                if let Some(Err(error)) = created.as_ref().map(Created::undo) {
                    tracing::warn!(%error, "the file of a pool that was refused stays");
                }
                Err(error)
            }
        }
    }

    /// Undoes the creation if this open created the pool. For a database that was then refused. The
    /// pool must not be used afterwards.
    ///
    /// # Errors
    /// The error of removing or writing the file; the pool then still belongs to that database.
    pub fn undo_creation(&self) -> Result<()> {
        match &self.created {
            Some(Created::Contents) => self.erase(),
            Some(created) => {
                let lock = self.lock.lock();
                let is_it = lock.as_ref().is_some_and(|lock| created.is_at(&lock.0));
                let undone = if is_it { created.undo() } else { Ok(()) };
                undone.map_err(|source| {
                    Error::from_io("remove", Path::new(self.region.place()), source)
                })
            }
            None => Ok(()),
        }
    }

    /// Turns the pool into an unfinished creation: first the roots become those of an empty pool,
    /// then the magic is cleared. A crash in between leaves a pool of this database with an empty
    /// root.
    fn erase(&self) -> Result<()> {
        let _one_at_a_time = self.committing.lock();
        let mut slots = Root::empty(self.root().pool_bytes).encode(&self.uuid)?;
        slots.resize(2 * PAGE_BYTES as usize, 0);
        self.region.stream(PAGE_BYTES, &[&slots])?;
        self.region
            .flush(&sites::PM_CREATE_FLUSH, PAGE_BYTES, slots.len() as u64)?;
        self.region.fence(&sites::PM_CREATE_FENCE);
        self.region.store_u64(MAGIC_AT, 0)?;
        self.region.flush(&sites::PM_CREATE_FLUSH, MAGIC_AT, 8)?;
        self.region.fence(&sites::PM_CREATE_FENCE);
        self.region.sync(&sites::PM_CREATE_SYNC, &[(0, DATA_START)])
    }

    /// Releases the pool's lock. REQUIRES: no thread reads or writes the pool from now on.
    pub fn release(&self) {
        drop(self.lock.lock().take());
    }

    /// Opens without a lock, writes nothing, and refuses every verb that would. The effects of a
    /// live writer may be seen half done.
    ///
    /// # Errors
    /// `NotFound` if there is no complete pool; otherwise those of [`Pool::open_or_create`].
    pub fn open_read_only(config: &PmConfig, db_uuid: [u8; 16]) -> Result<Self> {
        let Some(path) = &config.path else {
            return Err(Error::invalid(
                "a volatile pool lives in its process only: it cannot be opened read-only",
            ));
        };
        let file = File::open(path).map_err(|source| Error::from_io("open", path, source))?;
        let (len, _is_device) = length(&file, path, config)?;
        refuse_short(path, len)?;
        let region = Region::mapped_file(kind(config.backend), file, path, len, false)?;
        Self::over(Arc::new(region), db_uuid, None, config)
    }

    /// Opens or creates a pool in simulated memory.
    ///
    /// # Errors
    /// The errors of [`Pool::open_or_create`].
    pub fn open_simulated(sim: &SimRegion, db_uuid: [u8; 16]) -> Result<Self> {
        let region = sim.region()?;
        let bytes = whole_granules(region.len())?;
        Self::over(region, db_uuid, Some(bytes), &PmConfig::volatile(bytes))
    }

    /// Like [`Pool::open_read_only`], for simulated memory.
    ///
    /// # Errors
    /// The errors of [`Pool::open_read_only`].
    pub fn open_simulated_read_only(sim: &SimRegion, db_uuid: [u8; 16]) -> Result<Self> {
        let region = sim.region()?.reader()?;
        let config = PmConfig::volatile(region.len());
        Self::over(Arc::new(region), db_uuid, None, &config)
    }

    /// Opens or creates a pool of the `file` backend in a test's own file, extended to `len` bytes
    /// if `is_new`.
    ///
    /// # Errors
    /// The errors of [`Pool::open_or_create`].
    pub fn open_backed(
        file: Box<dyn Backing>,
        len: u64,
        is_new: bool,
        db_uuid: [u8; 16],
    ) -> Result<Self> {
        let path = Path::new("the simulated file");
        if is_new {
            file.extend(&sites::PM_SPACE_SYNC, len)
                .map_err(|source| Error::from_io("allocate", path, source))?;
        }
        let region = Region::file_image(file, path, len)?;
        region.load_from_file(0, DATA_START)?;
        Self::over(
            Arc::new(region),
            db_uuid,
            Some(len),
            &PmConfig::volatile(len),
        )
    }

    fn over_file(
        file: File,
        path: &Path,
        mut len: u64,
        is_new: bool,
        uuid: [u8; 16],
        config: &PmConfig,
    ) -> Result<Self> {
        if is_new {
            let kind = kind(config.backend);
            len = file_bytes(kind, whole_granules(config.size_bytes)?);
            make_space(&file, path, len, kind)?;
        }
        refuse_short(path, len)?;
        let region = match config.backend {
            Backend::File => Region::file_image(Box::new(file), path, len)?,
            backend => Region::mapped_file(kind(backend), file, path, len, true)?,
        };
        region.load_from_file(0, DATA_START)?;
        Self::over(Arc::new(region), uuid, Some(config.size_bytes), config)
    }

    /// Reads the pool that `region` holds, or creates one of `create_bytes` if it holds none.
    fn over(
        region: Arc<Region>,
        uuid: [u8; 16],
        create_bytes: Option<u64>,
        config: &PmConfig,
    ) -> Result<Self> {
        let mut pages = vec![0u8; DATA_START as usize];
        region.read(0, &mut pages)?;
        let page =
            |index: usize| &pages[index * PAGE_BYTES as usize..(index + 1) * PAGE_BYTES as usize];
        let state = decode_header(page(0), &uuid, region.place())?;
        let newest = newest_root(page(1), page(2), &uuid, region.place())?;
        let mut created = None;
        let (session, root) = match (state, newest, create_bytes) {
            (HeaderState::Complete { session }, Some(root), _) => (session, root),
            (HeaderState::Complete { .. }, None, _) => {
                return Err(Error::corruption(
                    region.place(),
                    PAGE_BYTES,
                    "a valid root in one of the two slots",
                ));
            }
            (HeaderState::Unfinished, Some(root), _) if root.generation > 1 => {
                return Err(Error::corruption(
                    region.place(),
                    0,
                    "the magic number of the pool whose roots are here",
                ));
            }
            (HeaderState::Unfinished, _, None) => {
                let message = format!(
                    "{} holds no pool yet: open it for writing to create one",
                    region.place()
                );
                return Err(Error::new(ErrorKind::NotFound, message));
            }
            (HeaderState::Unfinished, _, Some(bytes)) => {
                created = Some(Created::Contents);
                create(&region, &uuid, whole_granules(bytes)?)?
            }
        };
        if root.pool_bytes > region.len() {
            let expected = format!(
                "{} bytes of pool, the file was cut to {}",
                root.pool_bytes,
                region.len()
            );
            return Err(Error::corruption(region.place(), region.len(), expected));
        }
        if session.clean && session.generation_low != root.generation as u16 {
            return Err(Error::corruption(
                region.place(),
                slot_offset(root.generation + 1),
                format!(
                    "the root at which the pool was closed, found only generation {}",
                    root.generation
                ),
            ));
        }
        let mut pool = Self::begin(region, uuid, session, root, config)?;
        pool.created = created;
        Ok(pool)
    }

    fn begin(
        region: Arc<Region>,
        uuid: [u8; 16],
        session: Session,
        root: Root,
        config: &PmConfig,
    ) -> Result<Self> {
        let map = Arc::new(ExtentMap::new(root.pool_bytes, region.place()));
        let next = if region.is_read_only() {
            session
        } else {
            session.next_open()
        };
        let pool = Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            uuid,
            region,
            map,
            root: RwLock::new(Arc::new(root)),
            committing: Mutex::new(()),
            unsafe_shutdowns: next.unsafe_shutdowns,
            was_clean: session.clean,
            is_closed: AtomicBool::new(false),
            counters: Counters::default(),
            delays: Delays::new(config.latency, &Clock::system()),
            created: None,
            lock: Mutex::new(None),
        };
        for entry in &pool.root().entries {
            if let Some(extent) = entry.extent {
                pool.claim(extent, entry.owner)?;
            }
        }
        if !pool.is_read_only() {
            // A process that was killed before its fence may have written these bytes. They are
            // trusted from now on, so they must be durable first. For a new pool this includes the
            // magic. (If the pool is a file, the session word's sync covers all of it.)
            pool.region.flush(&sites::PM_REOPEN_FLUSH, 0, DATA_START)?;
            if !session.clean {
                for extent in pool.root().entries.iter().filter_map(|entry| entry.extent) {
                    pool.region
                        .flush(&sites::PM_REOPEN_FLUSH, extent.offset.get(), extent.len)?;
                }
            }
            write_session(&pool.region, next, &uuid)?;
        }
        if pool.region.kind() == Kind::Emulated {
            tracing::warn!(
                place = pool.region.place(),
                "EMULATED persistent memory: what survives a power loss is chance"
            );
        }
        if pool.region.kind() != Kind::Simulated {
            tracing::info!(
                backend = pool.backend_name(),
                place = pool.region.place(),
                bytes = pool.size_bytes(),
                clean = pool.was_clean,
                generation = pool.root().generation,
                "pool opened"
            );
        }
        Ok(pool)
    }
}

impl Created {
    /// True if the path still refers to `file`. The working directory may have changed since.
    fn is_at(&self, file: &File) -> bool {
        match self {
            Created::File(path) | Created::Length(path) => is_still_named(file, path),
            Created::Contents => true,
        }
    }

    fn undo(&self) -> std::io::Result<()> {
        match self {
            Created::File(path) => std::fs::remove_file(path),
            Created::Length(path) => OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|file| file.set_len(0)),
            Created::Contents => Ok(()),
        }
    }
}

/// Gives a new file its length and space. DURABLE AFTER: both, and its name.
fn make_space(file: &File, path: &Path, len: u64, kind: Kind) -> Result<()> {
    match kind {
        Kind::Dax => {
            Region::refuse_without_dax(file, path)?;
            extend(file, len, kind, &path.display().to_string())?;
        }
        _ => allocate(&sites::PM_SPACE_SYNC, file, len)
            .map_err(|source| Error::from_io("allocate", path, source))?,
    }
    sync_parent(path).map_err(|source| Error::from_io("sync the directory of", path, source))
}

/// Opens the file at `path`. The flag is true if this call created it.
fn open_or_make(path: &Path, backend: Backend) -> std::io::Result<(File, bool)> {
    let open = || OpenOptions::new().read(true).write(true).open(path);
    match open() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        opened => return opened.map(|file| (file, false)),
    }
    match OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
    {
        // Another process created it first.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            open().map(|file| (file, false))
        }
        Ok(made) if backend == Backend::Dax => {
            ask_for_dax(&made);
            // The attribute takes effect when the inode is loaded again, which an open handle would
            // prevent.
            drop(made);
            open().map(|file| (file, true))
        }
        made => made.map(|file| (file, true)),
    }
}

/// Writes a new pool of `bytes`, with the magic last.
fn create(region: &Region, uuid: &[u8; 16], bytes: u64) -> Result<(Session, Root)> {
    region.grow(bytes)?;
    let root = Root::empty(bytes);
    let session = Session {
        clean: true,
        unsafe_shutdowns: 0,
        generation_low: 1,
    };
    let mut slots = root.encode(uuid)?;
    slots.resize(2 * PAGE_BYTES as usize, 0);
    region.stream(PAGE_BYTES, &[&slots])?;
    let mut header = encode_header(uuid, bytes);
    header.magic = 0.into();
    region.store(0, header.as_bytes())?;
    region.store_u64(SESSION_AT, session.encode(uuid))?;
    region.flush(&sites::PM_CREATE_FLUSH, 0, SESSION_AT + 8)?;
    region.fence(&sites::PM_CREATE_FENCE);
    region.sync(&sites::PM_CREATE_SYNC, &[(0, DATA_START)])?;

    // Made durable with the session word, which every open writes next. A crash before that finds
    // an unfinished creation.
    region.store_u64(MAGIC_AT, POOL_MAGIC)?;
    Ok((session, root))
}

fn kind(backend: Backend) -> Kind {
    match backend {
        Backend::Dax => Kind::Dax,
        Backend::File => Kind::File,
        Backend::Volatile => Kind::Volatile,
        Backend::Emulated => Kind::Emulated,
    }
}

/// The length of the file in whole granules, or of the device, and true if it is a device.
fn length(file: &File, path: &Path, config: &PmConfig) -> Result<(u64, bool)> {
    let metadata = file
        .metadata()
        .map_err(|source| Error::from_io("read the length of", path, source))?;
    let kind = metadata.file_type();
    if !kind.is_char_device() && !kind.is_file() {
        let found = if kind.is_block_device() {
            "a block device"
        } else {
            "no regular file"
        };
        return Err(Error::invalid(format!(
            "{} is {found}: a pool is a file, on a DAX file system for backend = \"dax\", or a /dev/dax device",
            path.display()
        )));
    }
    if kind.is_char_device() && config.backend == Backend::File {
        let text = format!(
            "{} is a device, which only backend = \"dax\" can use",
            path.display()
        );
        return Err(Error::invalid(text));
    }
    match kind.is_char_device() {
        true => Ok((
            whole_granules(device_bytes(Path::new("/sys"), metadata.rdev(), path)?)?,
            true,
        )),
        false if metadata.len() < PAGE_BYTES => Ok((metadata.len(), false)),
        false => Ok((metadata.len() & !(PAGE_BYTES - 1), false)),
    }
}

fn refuse_short(path: &Path, len: u64) -> Result<()> {
    match len < MIN_POOL_BYTES {
        true => Err(Error::corruption(
            path.display(),
            len,
            format!(
                "a pool of at least {MIN_POOL_BYTES} bytes, the file has {len}: it was cut short, or is no pool"
            ),
        )),
        false => Ok(()),
    }
}
