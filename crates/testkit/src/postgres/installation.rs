//! The PostgreSQL of this machine: where its programs are, and the user they run as.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The oldest version that is supported.
const VERSION_MIN: u32 = 15;
/// Where Debian puts each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// The user that Debian's package makes. A server refuses to run as root.
const USER: &str = "postgres";

/// The programs of one version.
#[derive(Debug)]
pub(super) struct Installation {
    programs: PathBuf,
    /// Who stands in for us, if we are root.
    owner: Option<Owner>,
}

#[derive(Debug)]
struct Owner {
    uid: u32,
    gid: u32,
}

impl Installation {
    /// That on the `PATH`, or else Debian's newest.
    pub(super) fn get() -> &'static Self {
        static FOUND: OnceLock<Installation> = OnceLock::new();
        FOUND.get_or_init(|| {
            let programs = on_path().or_else(newest_of_debian).unwrap_or_else(|| {
                panic!("no PostgreSQL {VERSION_MIN} or later: run `scripts/setup postgres`")
            });
            let root = id(&["-u"]) == Some(0);
            Self { programs, owner: root.then(Owner::find) }
        })
    }

    /// Where a program is.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// What to tell a shell so that a program runs as the right user.
    pub(super) fn command_line(&self, program: &str, arguments: &[String]) -> String {
        let mut words = Vec::new();
        if let Some(Owner { uid, gid }) = self.owner {
            words.extend(["setpriv".to_owned(), "--clear-groups".to_owned()]);
            words.extend([format!("--reuid={uid}"), format!("--regid={gid}")]);
        }
        words.push(self.program(program).display().to_string());
        words.extend_from_slice(arguments);
        let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
        quoted.collect::<Vec<_>>().join(" ")
    }

    /// The user that the programs run as, if it is not us.
    pub(super) fn owner(&self) -> Option<String> {
        self.owner.as_ref().map(|Owner { uid, gid }| format!("{uid}:{gid}"))
    }
}

impl Owner {
    fn find() -> Self {
        let missing = format!("PostgreSQL refuses to run as root, and there is no user {USER}");
        let (uid, gid) = (id(&["-u", USER]), id(&["-g", USER]));
        Self { uid: uid.expect(&missing), gid: gid.expect(&missing) }
    }
}

/// What the command `id` answers.
fn id(arguments: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(arguments).output().expect("id can be run");
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

/// Links are followed: a folder of links seldom has all programs.
fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter_map(|folder| folder.join("postgres").canonicalize().ok())
        .filter_map(|program| Some(program.parent()?.to_owned()))
        .find(|programs| supported(programs).is_some())
}

fn newest_of_debian() -> Option<PathBuf> {
    let versions = fs::read_dir(DEBIAN).ok()?.flatten();
    let folders = versions.map(|version| version.path().join("bin"));
    folders.filter(|programs| supported(programs).is_some()).max_by_key(|found| supported(found))
}

/// The version of the server in a folder, if we support it and can make a database with it.
fn supported(programs: &Path) -> Option<u32> {
    let output = Command::new(programs.join("postgres")).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, `17beta1` before a release.
    let word = text.split_whitespace().nth(2)?;
    let major = word.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    (VERSION_MIN <= major && programs.join("initdb").exists()).then_some(major)
}
