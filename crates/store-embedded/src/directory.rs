//! The data directory: who may use it, and whether what is inside is ours.
//!
//! Nothing is opened as a database before its header says that it is one of ours in a format that
//! this release knows, so a refusal changes nothing. A new database is made under another name and
//! renamed when it is whole: there is never half of one.

use crate::catalogue::LoadError;
use crate::pages::{self, Damage};
use crate::schema;
use crate::store::Durability;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const DATABASE: &str = "rowhouse.db";
const LOCK: &str = "rowhouse.lock";
/// A database in the making is named as the database with this behind it, and what SQLite may have left beside it as follows.
const UNFINISHED: [&str; 4] = [".new", ".new-journal", ".new-wal", ".new-shm"];
/// Behind the name of the database: a file that says which frame of the log a server found to be damaged.
const DAMAGED_LOG: &str = "-wal.damaged";

/// Why a data directory cannot be opened. Each says what is wrong and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error(
        "the data directory {} is in use by another process{}: stop that one first, or choose \
         another directory",
        .directory.display(),
        .holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Locked {
        /// The directory.
        directory: PathBuf,
        /// The process that wrote itself into the lock file.
        holder: Option<u32>,
    },
    /// Written by a release with another format.
    #[error(
        "the database {} has format {found}, and this release knows formats up to {known}: use the \
         release that wrote it, or a newer one",
        .path.display()
    )]
    UnknownFormat {
        /// The database.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// A file of the database's name that is something else.
    #[error(
        "the file {} is not a Rowhouse database: move it away, or choose another data directory",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// There is nothing to check.
    #[error("there is no database in {}: check the path of the data directory", .directory.display())]
    Missing {
        /// The directory.
        directory: PathBuf,
    },
    /// The path leads to something else.
    #[error("{} is not a directory: choose another path for the data", .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A file or directory cannot be created, read or written.
    #[error(
        "cannot use {} ({source}): check that it exists, who owns it and whether the disk is full",
        .path.display()
    )]
    Unwritable {
        /// What was touched.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What is stored cannot be understood.
    #[error(
        "the database {} is damaged ({detail}): restore a backup, or recover what is left with the \
         sqlite3 tool",
        .path.display()
    )]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What was noticed.
        detail: String,
    },
    /// SQLite refused for another reason.
    #[error(
        "the database {} cannot be opened ({source}): check the disk and the rights of the data \
         directory",
        .path.display()
    )]
    Database {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
}

/// A directory that no other process uses. Dropping it lets others in.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The database. If it is a link, what that leads to: SQLite keeps the log there.
    database: PathBuf,
    _lock: Option<File>,
}

impl Directory {
    /// Takes possession, creating directory and database if need be.
    pub(crate) fn open(path: &Path, durability: Durability) -> Result<Self, OpenError> {
        create_private(path)?;
        // Before anything is touched, and again when nobody else can change it.
        inspect(&path.join(DATABASE))?;
        let lock = lock(path)?;
        let directory = Self { database: real(path), _lock: Some(lock) };
        directory.discard_unfinished()?;
        if !inspect(&directory.database())? {
            directory.create_database(durability)?;
        }
        Ok(directory)
    }

    /// Takes possession without changing or creating anything.
    pub(crate) fn open_existing(path: &Path) -> Result<Self, OpenError> {
        if path.exists() && !path.is_dir() {
            return Err(OpenError::NotADirectory { path: path.to_owned() });
        }
        if !inspect(&path.join(DATABASE))? {
            return Err(OpenError::Missing { directory: path.to_owned() });
        }
        let lock_path = path.join(LOCK);
        let lock = match File::open(&lock_path) {
            Ok(file) => Some(try_lock(file, path)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(OpenError::Unwritable { path: lock_path, source }),
        };
        Ok(Self { database: real(path), _lock: lock })
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.database.clone()
    }

    /// The write-ahead log.
    pub(crate) fn log(&self) -> PathBuf {
        beside(&self.database, "-wal")
    }

    fn create_database(&self, durability: Durability) -> Result<(), OpenError> {
        let unfinished = self.begin_database()?;
        schema::create(&unfinished, durability).map_err(|error| explain(&unfinished, error))?;
        self.finish_database(&unfinished, durability)
    }

    /// An empty file for a database in the making.
    pub(crate) fn begin_database(&self) -> Result<PathBuf, OpenError> {
        let unfinished = beside(&self.database, UNFINISHED[0]);
        // SQLite gives the files beside the database the rights of the database.
        private().create_new(true).open(&unfinished).map_err(touched(&unfinished))?;
        Ok(unfinished)
    }

    /// Removes what is left of a database in the making.
    pub(crate) fn discard_unfinished(&self) -> Result<(), OpenError> {
        UNFINISHED.iter().try_for_each(|name| remove(&beside(&self.database, name)))
    }

    /// Puts a database that is whole, and on the disk, in the place of the one that is there. That one must have no log.
    pub(crate) fn finish_database(
        &self,
        unfinished: &Path,
        durability: Durability,
    ) -> Result<(), OpenError> {
        remove(&self.log())?;
        remove(&beside(&self.database, "-shm"))?;
        fs::rename(unfinished, self.database()).map_err(touched(unfinished))?;
        // Elsewhere directories cannot be opened, and renaming is durable by itself.
        if cfg!(unix) && durability != Durability::Ephemeral {
            let path = self.database.parent().unwrap_or(Path::new("."));
            let directory = File::open(path).map_err(touched(path))?;
            directory.sync_all().map_err(touched(path))?;
        }
        Ok(())
    }
}

/// The database of a directory, behind a link if it is one.
fn real(directory: &Path) -> PathBuf {
    let path = directory.join(DATABASE);
    if path.is_symlink() { fs::canonicalize(&path).unwrap_or(path) } else { path }
}

/// A file beside the database, named as it is with something behind.
fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    database.with_file_name(name)
}

/// Leaves word for the next start that the log is damaged: what SQLite would make of it then is not what was acknowledged.
/// Removed by whoever wants to do without what was lost.
pub(crate) fn leave_word(database: &Path, damage: Damage) {
    let path = beside(database, DAMAGED_LOG);
    let written = File::create(&path).and_then(|mut file| {
        writeln!(file, "{damage}")?;
        file.sync_all()
    });
    if let Err(error) = written {
        tracing::error!(%error, "the next start will not know that the log is damaged");
    }
}

/// What a server that ran before said of the log, if that is still there.
pub(crate) fn word(database: &Path) -> Option<String> {
    let path = beside(database, DAMAGED_LOG);
    let text = fs::read_to_string(&path).ok()?;
    let log_is_there = fs::metadata(beside(database, "-wal")).is_ok_and(|log| log.len() > 0);
    log_is_there.then(|| {
        let (what, path) = (text.trim(), path.display());
        format!("{what}, as the last server found; to do without what was lost remove {path}")
    })
}

fn touched(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Unwritable { path, source }
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> Result<(), OpenError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(touched(path)(error)),
        _ => Ok(()),
    }
}

/// Tells a damaged file, a full disk and everything else apart.
pub(crate) fn explain(path: &Path, error: impl Into<LoadError>) -> OpenError {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseCorrupt, DiskFull, NotADatabase, ReadOnly, SystemIoFailure,
    };
    let path = path.to_owned();
    let source = match error.into() {
        LoadError::Damaged(detail) => return OpenError::Corrupt { path, detail },
        LoadError::Sqlite(source) => source,
    };
    match source.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => {
            let detail = pages::take_last().map_or_else(|| source.to_string(), |it| it.to_string());
            OpenError::Corrupt { path, detail }
        }
        Some(DiskFull | ReadOnly | CannotOpen) => {
            OpenError::Unwritable { path, source: io::Error::other(source) }
        }
        // A database that was closed needs room for the log and its index before it can even be read.
        Some(SystemIoFailure) if is_failed_write(&source) => {
            OpenError::Unwritable { path, source: io::Error::other(source) }
        }
        _ => OpenError::Database { path, source },
    }
}

/// Whether SQLite could not write or enlarge a file.
fn is_failed_write(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{
        SQLITE_IOERR_FSYNC, SQLITE_IOERR_SHMMAP, SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_SHMSIZE,
        SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE,
    };
    error.sqlite_error().is_some_and(|error| {
        matches!(
            error.extended_code,
            SQLITE_IOERR_WRITE
                | SQLITE_IOERR_FSYNC
                | SQLITE_IOERR_TRUNCATE
                | SQLITE_IOERR_SHMOPEN
                | SQLITE_IOERR_SHMSIZE
                | SQLITE_IOERR_SHMMAP
        )
    })
}

/// Whether there is a database, by its header alone; an error if it is not one that we may open.
fn inspect(path: &Path) -> Result<bool, OpenError> {
    let mut header = Vec::new();
    match File::open(path).and_then(|file| file.take(100).read_to_end(&mut header)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(OpenError::Unwritable { path: path.to_owned(), source }),
    }
    let foreign = || OpenError::Foreign { path: path.to_owned() };
    let field = |at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?))
    };
    let (Some(version), Some(application)) = (field(60), field(68)) else {
        return Err(foreign());
    };
    if !header.starts_with(b"SQLite format 3\0") || application != schema::APPLICATION_ID {
        return Err(foreign());
    }
    check_version(path, version)?;
    if schema::CHECKSUMS_SINCE <= version && !pages::is_reserved(&header) {
        // Without room for checksums nothing would be verified.
        let detail = Damage::Page(1).to_string();
        return Err(OpenError::Corrupt { path: path.to_owned(), detail });
    }
    Ok(true)
}

/// Refuses formats that this release does not know.
pub(crate) fn check_version(path: &Path, found: u32) -> Result<(), OpenError> {
    let known = schema::VERSION;
    if (1..=known).contains(&found) {
        return Ok(());
    }
    Err(OpenError::UnknownFormat { path: path.to_owned(), found, known })
}

/// Creates the directory and those above it that are not there, each made durable in the one above: a file
/// that is synced in a directory that is not would vanish with it.
fn create_private(path: &Path) -> Result<(), OpenError> {
    if path.is_dir() {
        return Ok(());
    }
    if path.exists() {
        return Err(OpenError::NotADirectory { path: path.to_owned() });
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        create_private(above)?;
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let above = above.unwrap_or(Path::new("."));
    builder
        .create(path)
        .and_then(|()| File::open(above)?.sync_all())
        .map_err(|source| OpenError::Unwritable { path: path.to_owned(), source })
}

/// How files that only the owner may read are opened.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Locks the directory for this process and writes who we are into the file, for the next one's message.
fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(LOCK);
    let unwritable = |source| OpenError::Unwritable { path: path.clone(), source };
    let file = private().create(true).truncate(false).open(&path).map_err(unwritable)?;
    let mut file = try_lock(file, directory)?;
    file.set_len(0).map_err(unwritable)?;
    writeln!(file, "{}", std::process::id()).map_err(unwritable)?;
    Ok(file)
}

fn try_lock(mut file: File, directory: &Path) -> Result<File, OpenError> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let holder = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            Err(OpenError::Locked { directory: directory.to_owned(), holder })
        }
        Err(TryLockError::Error(source)) => {
            Err(OpenError::Unwritable { path: directory.join(LOCK), source })
        }
    }
}
