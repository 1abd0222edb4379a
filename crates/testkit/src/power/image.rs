//! An ext4 file system on a loop device, shut down without flushing.

use super::{Disk, compile, run};
use crate::load::Cutoff;
use crate::server::TestServer;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Sparse: it takes what is written.
const IMAGE_BYTES: u64 = 256 * 1024 * 1024;
/// The server lives on without a disk for this long, to see that it survives that.
const WITHOUT_DISK: Duration = Duration::from_millis(30);

const UNMOUNT_WITHIN: Duration = Duration::from_secs(5);

/// A mounted image. Unmounted and removed when dropped.
#[derive(Debug)]
pub struct Image {
    directory: TempDir,
    mount: PathBuf,
    mounted: bool,
}

impl Image {
    /// A new file system, or why there cannot be one here.
    pub fn new() -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mount = directory.path().join("mount");
        let mut image = Self { directory, mount, mounted: false };
        compile("shutdown.c", &[], &image.file("shutdown"))?;
        let file = File::create(image.file("image")).map_err(|error| error.to_string())?;
        file.set_len(IMAGE_BYTES).map_err(|error| error.to_string())?;
        fs::create_dir(&image.mount).map_err(|error| error.to_string())?;
        run(tool("mkfs.ext4").args(["-q", "-F"]).arg(image.file("image")))?;
        image.mount()?;
        Ok(image)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn mount(&mut self) -> Result<(), String> {
        run(tool("mount").args(["-o", "loop"]).arg(self.file("image")).arg(&self.mount))?;
        self.mounted = true;
        Ok(())
    }

    /// Others may look at a new file system for a moment, so this is patient.
    fn unmount(&mut self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match run(tool("umount").arg(&self.mount)) {
                Ok(()) => {
                    self.mounted = false;
                    return Ok(());
                }
                Err(error) if UNMOUNT_WITHIN < began.elapsed() => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// Tools of the system are not always where the search of an ordinary user goes.
fn tool(name: &str) -> Command {
    let place = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().map(Path::new);
    let found = place.map(|place| place.join(name)).find(|path| path.exists());
    Command::new(found.unwrap_or_else(|| name.into()))
}

impl Disk for Image {
    fn method(&self) -> &'static str {
        "ext4 on a loop device, shut down without flushing"
    }

    fn directory(&self) -> &Path {
        &self.mount
    }

    fn variables(&self) -> Vec<(&'static str, OsString)> {
        Vec::new()
    }

    fn cut(&mut self, server: &mut TestServer, cutoff: &Cutoff) {
        // An fsync under way while ext4 shuts down may report success for data that is gone. No machine
        // lives to hear that from a disk without power, so what is acknowledged from now on does not count.
        cutoff.set();
        run(Command::new(self.file("shutdown")).arg(&self.mount)).expect("the power can be cut");
        std::thread::sleep(WITHOUT_DISK);
        server.kill();
        self.unmount().expect("nobody uses it any more");
        self.mount().expect("the journal is recovered");
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.mounted && self.unmount().is_err() {
            // A server that a failed test left behind holds it: it goes when that one goes.
            let _ = run(tool("umount").arg("--lazy").arg(&self.mount));
        }
    }
}
