//! Power cuts: what was not forced to disk is gone.
//!
//! Killing a process loses nothing that it wrote, because the operating system still has it. Two ways to
//! lose what a power cut would lose:
//!
//! - [`Image`], the real thing as far as a running kernel allows: an ext4 file system on a loop device is
//!   shut down without flushing. Data and directory entries that were not synced are gone. Needs root.
//! - [`HeldBack`], for everybody: a library between the server and the C library remembers what each write
//!   replaced until the file is synced; at the cut that is put back, all of it or any mixture of sectors.
//!
//! The same library turns fsync into nothing when told to ([`Liar`]). With it both must lose what was
//! acknowledged: a test of durability that cannot fail proves nothing.
//!
//! Neither models a drive that lies about its own cache.

mod held_back;
mod image;

use crate::load::Cutoff;
use crate::server::TestServer;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub use held_back::HeldBack;
pub use image::Image;

/// A place for data from which a power cut takes what was not synced.
pub trait Disk {
    /// How it does that, in a few words.
    fn method(&self) -> &'static str;

    /// Where the data goes.
    fn directory(&self) -> &Path;

    /// What a server on it must have in its environment.
    fn variables(&self) -> Vec<(&'static str, OsString)>;

    /// Cuts the power: the server is dead, and the directory is what a machine would find that starts again.
    /// Sets the cutoff if the server lives on for a moment without its disk.
    fn cut(&mut self, server: &mut TestServer, cutoff: &Cutoff);
}

/// Makes fsync do nothing, from a moment on.
#[derive(Debug)]
pub struct Liar {
    library: Library,
    flag: PathBuf,
}

impl Liar {
    /// Or why there cannot be one here.
    pub fn new() -> Result<Self, String> {
        let library = Library::build()?;
        let flag = library.directory.path().join("lie");
        Ok(Self { library, flag })
    }

    /// What a server must have in its environment to be lied to.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        vec![("LD_PRELOAD", self.library.path().into()), ("DISK_LIE", self.flag.clone().into())]
    }

    /// From now on fsync reports success and does nothing.
    pub fn begin(&self) {
        fs::write(&self.flag, "").expect("a file can be made");
    }

    /// From now on it is honest again.
    pub fn end(&self) {
        fs::remove_file(&self.flag).expect("the file was made by `begin`");
    }
}

/// The library between the server and the C library, built.
#[derive(Debug)]
struct Library {
    directory: TempDir,
}

impl Library {
    fn build() -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let library = Self { directory };
        compile("disk.c", &["-shared", "-fPIC", "-pthread"], &library.path())?;
        Ok(library)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("disk.so")
    }
}

fn compile(source: &str, flags: &[&str], output: &Path) -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Err("this needs Linux".to_owned());
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/power").join(source);
    let mut cc = Command::new("cc");
    run(cc.args(["-O1", "-Wall", "-Werror"]).args(flags).arg("-o").arg(output).arg(source))
}

/// Runs a command; what it printed is the error.
fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", said.lines().next().unwrap_or("failed")))
}
