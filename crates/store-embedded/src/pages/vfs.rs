//! The layer below SQLite that writes and verifies the checksums of pages.
//!
//! SQLite calls it instead of the operating system's layer (its "VFS") for the database and the
//! write-ahead log, and it calls that one. Only four calls do more than pass on what they got:
//! opening a file, reading from it, mapping a part of it and writing to it. This is the one place
//! of the engine with `unsafe` code: SQLite's interface is one of C.
//!
//! What holds for every function below: SQLite calls it with a file that [`open`] has set up, from
//! one thread at a time for each file, and with buffers that are as long as it says.
#![expect(unsafe_code, reason = "the interface between SQLite and its files is one of C")]

use super::log_sums::LogSums;
use super::{Damage, PAGE_BYTES, SUM_BYTES, note, sum};
use rusqlite::Connection;
use rusqlite::ffi::{
    self, SQLITE_IOERR, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs,
};
use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{mem, ptr, slice};

const NAME: &CStr = c"rowhouse";
/// A page that leads to others and that this connection verified no longer ago than this is not
/// verified again: every lookup passes some of them.
const VERIFIED_FOR: Duration = Duration::from_millis(10);
/// How many such pages a connection remembers.
const REMEMBERED: usize = 64;

/// What SQLite gets for a damaged page. To `SQLITE_CORRUPT` alone it would react by refusing the commit of everything
/// else, which has nothing to do with the page: what met it is taken back by the committer.
const DAMAGED: c_int = ffi::SQLITE_CORRUPT | 64 << 8;

/// The layer below ours.
static BELOW: AtomicPtr<sqlite3_vfs> = AtomicPtr::new(ptr::null_mut());

/// A file as SQLite holds it. The file of the layer below lies right behind it.
#[repr(C)]
struct Layer {
    base: sqlite3_file,
    state: *mut State,
}

/// The pages that were verified last, by number, and when.
type Recent = [Cell<Option<(u32, Instant)>>; REMEMBERED];

enum State {
    Database {
        /// Whether its pages have checksums.
        is_sealed: Cell<bool>,
        recent: Box<Recent>,
    },
    Log(Arc<LogSums>),
}

/// The name of the layer, which SQLite knows from the first call on.
pub(crate) fn vfs() -> Result<&'static CStr, rusqlite::Error> {
    static REGISTERED: OnceLock<c_int> = OnceLock::new();
    match *REGISTERED.get_or_init(register) {
        SQLITE_OK => Ok(NAME),
        code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
    }
}

fn register() -> c_int {
    // SAFETY: SQLite initialises itself first, and its own layer lives as long as the process.
    let below = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
    if below.is_null() {
        return SQLITE_IOERR;
    }
    BELOW.store(below, Ordering::Release);
    // SAFETY: `below` is a layer that SQLite knows; its copy differs in what is set here. Names and
    // functions that are not about files work with the copy, because it has the same data.
    let layer = unsafe {
        let mut layer = ptr::read(below);
        layer.pNext = ptr::null_mut();
        layer.zName = NAME.as_ptr();
        layer.szOsFile += c_int::try_from(mem::size_of::<Layer>()).unwrap_or(0);
        layer.xOpen = Some(open);
        layer
    };
    // SAFETY: it is never freed, as SQLite demands.
    unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(layer)), 0) }
}

/// Gives the pages of a new database room for their checksums, before there is anything in it.
pub(crate) fn reserve(conn: &Connection) -> Result<(), rusqlite::Error> {
    let mut bytes = c_int::try_from(SUM_BYTES).unwrap_or(0);
    // SAFETY: the connection is open, and the operation takes a pointer to an int.
    let code = unsafe {
        ffi::sqlite3_file_control(
            conn.handle(),
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_RESERVE_BYTES,
            ptr::from_mut(&mut bytes).cast(),
        )
    };
    match code {
        SQLITE_OK => Ok(()),
        code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
    }
}

/// What the file of the layer below can do.
unsafe fn methods(inner: *mut sqlite3_file) -> &'static sqlite3_io_methods {
    // SAFETY: an open file has methods, which are static.
    unsafe { &*(*inner).pMethods }
}

/// The file of the layer below.
unsafe fn inner(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: `szOsFile` makes room for both, and the size of a layer is a multiple of its alignment.
    unsafe { file.cast::<Layer>().add(1).cast() }
}

/// What we know of a file.
unsafe fn state<'a>(file: *mut sqlite3_file) -> &'a State {
    // SAFETY: set by `open`, freed by `close`, and SQLite uses no file after that.
    unsafe { &*(*file.cast::<Layer>()).state }
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let below = BELOW.load(Ordering::Acquire);
    // SAFETY: `below` is SQLite's own layer, which can open files; the file has room for ours and its own.
    unsafe {
        let Some(open_below) = (*below).xOpen else { return SQLITE_IOERR };
        if flags & (ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL) == 0 {
            return open_below(below, name, file, flags, out_flags);
        }
        (*file).pMethods = ptr::null();
        let inner = inner(file);
        (*inner).pMethods = ptr::null();
        let code = open_below(below, name, inner, flags, out_flags);
        if (*inner).pMethods.is_null() {
            return if code == SQLITE_OK { SQLITE_IOERR } else { code };
        }
        // The log needs shared memory (since version 2), and readers a mapping (since version 3).
        let code = if methods(inner).iVersion < 3 { ffi::SQLITE_CANTOPEN } else { code };
        let state = if code == SQLITE_OK { new_state(inner, name, flags) } else { Err(code) };
        match state {
            Ok(state) => {
                (*file.cast::<Layer>()).state = Box::into_raw(Box::new(state));
                (*file).pMethods = &raw const METHODS;
                SQLITE_OK
            }
            Err(code) => {
                if let Some(close) = methods(inner).xClose {
                    close(inner);
                }
                code
            }
        }
    }
}

unsafe fn new_state(
    inner: *mut sqlite3_file,
    name: *const c_char,
    flags: c_int,
) -> Result<State, c_int> {
    if flags & ffi::SQLITE_OPEN_WAL != 0 {
        if name.is_null() {
            return Err(ffi::SQLITE_CANTOPEN);
        }
        // SAFETY: SQLite's names end with a zero.
        let name = unsafe { CStr::from_ptr(name) };
        return Ok(State::Log(LogSums::of(path(name))));
    }
    let mut header = [0_u8; 100];
    let (Some(size), Some(read)) =
        // SAFETY: the file is open.
        (unsafe { (methods(inner).xFileSize, methods(inner).xRead) })
    else {
        return Err(SQLITE_IOERR);
    };
    let mut bytes = 0;
    // SAFETY: the file is open, and the buffers are as long as said.
    unsafe {
        let code = size(inner, &raw mut bytes);
        if code != SQLITE_OK {
            return Err(code);
        }
        if bytes > 0 {
            let code = read(inner, header.as_mut_ptr().cast(), 100, 0);
            if code != SQLITE_OK && code != ffi::SQLITE_IOERR_SHORT_READ {
                return Err(code);
            }
        }
    }
    // Whoever makes a database through this layer gives it checksums.
    let is_sealed = Cell::new(bytes == 0 || sum::is_reserved(&header));
    Ok(State::Database { is_sealed, recent: Box::new([const { Cell::new(None) }; REMEMBERED]) })
}

#[cfg(unix)]
fn path(name: &CStr) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

#[cfg(not(unix))]
fn path(name: &CStr) -> &Path {
    // SQLite's names are UTF-8 there.
    Path::new(OsStr::new(name.to_str().unwrap_or_default()))
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: the file is open, and nobody uses it afterwards.
    unsafe {
        let inner = inner(file);
        let code = match methods(inner).xClose {
            Some(close) => close(inner),
            None => SQLITE_IOERR,
        };
        let state = mem::replace(&mut (*file.cast::<Layer>()).state, ptr::null_mut());
        if !state.is_null() {
            drop(Box::from_raw(state));
        }
        code
    }
}

/// The number of the page at an offset, if that is where a page begins.
fn page_at(offset: sqlite3_int64) -> Option<u32> {
    let offset = u64::try_from(offset).ok()?;
    if !offset.is_multiple_of(PAGE_BYTES as u64) {
        return None;
    }
    u32::try_from(offset / PAGE_BYTES as u64 + 1).ok()
}

/// Whether SQLite may have these bytes of the database.
fn is_intact(state: &State, offset: sqlite3_int64, bytes: &[u8]) -> bool {
    let State::Database { is_sealed, recent } = state else { return true };
    if !is_sealed.get() {
        return true;
    }
    // Before it reads pages SQLite looks into the header, which is verified with the first page.
    if offset < 100 && bytes.len() <= 100 {
        return true;
    }
    let Some(number) = page_at(offset).filter(|_| bytes.len() == PAGE_BYTES) else {
        // A damaged header says that pages are larger or smaller.
        note(Damage::Page(1));
        return false;
    };
    let interior = sum::is_interior(number, bytes);
    let slot = &recent[number as usize % REMEMBERED];
    let now = interior.then(Instant::now);
    if let (Some(now), Some((verified, when))) = (now, slot.get())
        && verified == number
        && now.duration_since(when) < VERIFIED_FOR
    {
        return true;
    }
    if !sum::is_intact(number, bytes) {
        note(Damage::Page(number));
        return false;
    }
    if let Some(now) = now {
        slot.set(Some((number, now)));
    }
    true
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    buffer: *mut c_void,
    amount: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: the file is open, and the buffer has `amount` bytes, all written when the read went well.
    unsafe {
        let inner = inner(file);
        let Some(read) = methods(inner).xRead else { return SQLITE_IOERR };
        let code = read(inner, buffer, amount, offset);
        if code != SQLITE_OK {
            return code;
        }
        let bytes = slice::from_raw_parts(
            buffer.cast::<u8>().cast_const(),
            usize::try_from(amount).unwrap_or(0),
        );
        let intact = match state(file) {
            state @ State::Database { .. } => is_intact(state, offset, bytes),
            State::Log(sums) => match sums.read(offset.cast_unsigned(), bytes) {
                Ok(()) => true,
                Err(frame) => {
                    note(Damage::Frame(frame));
                    false
                }
            },
        };
        if intact { SQLITE_OK } else { DAMAGED }
    }
}

unsafe extern "C" fn fetch(
    file: *mut sqlite3_file,
    offset: sqlite3_int64,
    amount: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the file is open; what the layer below mapped has `amount` bytes until it is let go.
    unsafe {
        let inner = inner(file);
        let Some(fetch) = methods(inner).xFetch else { return SQLITE_IOERR };
        let code = fetch(inner, offset, amount, out);
        if code != SQLITE_OK || (*out).is_null() {
            return code;
        }
        let bytes =
            slice::from_raw_parts((*out).cast::<u8>(), usize::try_from(amount).unwrap_or(0));
        if is_intact(state(file), offset, bytes) {
            return SQLITE_OK;
        }
        if let Some(unfetch) = methods(inner).xUnfetch {
            unfetch(inner, offset, *out);
        }
        *out = ptr::null_mut();
        DAMAGED
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    buffer: *const c_void,
    amount: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: the file is open, and the buffer has `amount` bytes.
    unsafe {
        let inner = inner(file);
        let Some(write) = methods(inner).xWrite else { return SQLITE_IOERR };
        let bytes =
            slice::from_raw_parts(buffer.cast::<u8>(), usize::try_from(amount).unwrap_or(0));
        match state(file) {
            State::Database { is_sealed, recent } if is_sealed.get() => {
                let (Some(number), Ok(page)) =
                    (page_at(offset), <&[u8; PAGE_BYTES]>::try_from(bytes))
                else {
                    return SQLITE_IOERR;
                };
                // Without room for a checksum it would overwrite what is stored.
                if number == 1 && !sum::is_reserved(page) {
                    return SQLITE_IOERR;
                }
                recent[number as usize % REMEMBERED].set(None);
                let mut page = *page;
                sum::seal(number, &mut page);
                write(inner, page.as_ptr().cast(), amount, offset)
            }
            State::Database { .. } => write(inner, buffer, amount, offset),
            State::Log(sums) => {
                let code = write(inner, buffer, amount, offset);
                if code == SQLITE_OK {
                    sums.wrote(offset.cast_unsigned(), bytes);
                }
                code
            }
        }
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    // SAFETY: the file is open.
    unsafe {
        let inner = inner(file);
        if let State::Log(sums) = state(file) {
            sums.cut(size.cast_unsigned());
        }
        methods(inner).xTruncate.map_or(SQLITE_IOERR, |truncate| truncate(inner, size))
    }
}

/// A call that the layer below answers as it is.
macro_rules! pass {
    ($name:ident, $method:ident, ($($argument:ident: $type:ty),*)) => {
        unsafe extern "C" fn $name(file: *mut sqlite3_file $(, $argument: $type)*) -> c_int {
            // SAFETY: the file is open, and the arguments are what SQLite meant for the layer below.
            unsafe {
                let inner = inner(file);
                methods(inner).$method.map_or(SQLITE_IOERR, |call| call(inner $(, $argument)*))
            }
        }
    };
}

pass!(sync, xSync, (flags: c_int));
pass!(file_size, xFileSize, (size: *mut sqlite3_int64));
pass!(lock, xLock, (level: c_int));
pass!(unlock, xUnlock, (level: c_int));
pass!(check_reserved_lock, xCheckReservedLock, (out: *mut c_int));
pass!(file_control, xFileControl, (operation: c_int, argument: *mut c_void));
pass!(sector_size, xSectorSize, ());
pass!(shm_map, xShmMap, (page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void));
pass!(shm_lock, xShmLock, (offset: c_int, count: c_int, flags: c_int));
pass!(shm_unmap, xShmUnmap, (delete: c_int));
pass!(unfetch, xUnfetch, (offset: sqlite3_int64, mapped: *mut c_void));

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: the file is open.
    unsafe {
        let inner = inner(file);
        let of_device = methods(inner).xDeviceCharacteristics.map_or(0, |call| call(inner));
        // Parts of pages cannot be verified, so SQLite must ask for whole ones.
        of_device & !ffi::SQLITE_IOCAP_SUBPAGE_READ
    }
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: the file is open.
    unsafe {
        let inner = inner(file);
        if let Some(barrier) = methods(inner).xShmBarrier {
            barrier(inner);
        }
    }
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 3,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};
