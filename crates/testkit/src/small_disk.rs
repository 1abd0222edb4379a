//! A file system that is soon full.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const BALLAST: &str = "ballast";

/// A small file system in memory, which only the superuser can mount. Unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    /// Where it is mounted.
    _parent: TempDir,
    path: PathBuf,
}

impl SmallDisk {
    /// An empty one of that size; nothing where it cannot be mounted, which the test must report as NOT VERIFIED.
    pub fn mount(mebibytes: usize) -> Option<Self> {
        let parent = tempfile::tempdir().ok()?;
        let path = parent.path().join("small");
        fs::create_dir(&path).ok()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "rowhouse-test"])
            .arg(&path)
            .stderr(Stdio::null())
            .status();
        let disk = Self { _parent: parent, path };
        mounted.is_ok_and(|status| status.success()).then_some(disk)
    }

    /// Its root.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes room away until no more than so many KiB are left.
    pub fn fill(&self, leave_kib: usize) {
        let mut ballast = self.ballast();
        while ballast.write_all(&[1; 4096]).is_ok() {}
        let length = ballast.metadata().expect("a file has a length").len();
        ballast.set_len(length.saturating_sub(1024 * leave_kib as u64)).expect("it can be cut");
    }

    /// Gives the room back that was taken.
    pub fn make_room(&self) {
        fs::remove_file(self.path.join(BALLAST)).expect("there is ballast");
    }

    fn ballast(&self) -> File {
        let options = File::options().create(true).append(true).open(self.path.join(BALLAST));
        options.expect("ballast can be made")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // One that was not mounted is none of ours.
        let _ = Command::new("umount").arg("-l").arg(&self.path).stderr(Stdio::null()).status();
    }
}
