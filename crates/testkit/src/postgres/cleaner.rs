//! The process that drops databases on a server that is not ours, once the tests have ended.

use super::installation::Installation;
use super::watchdog::without_settings;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Reads names until there will be no more, which the system sees to when the process of the tests dies.
const SCRIPT: &str = r#"
    while read -r name; do names="$names $name"; done
    for name in $names; do
        "$0" --no-psqlrc --quiet --dbname "$1" --command "DROP DATABASE IF EXISTS $name WITH (FORCE)"
    done"#;

/// Remembers databases, and drops them when this process has ended.
#[derive(Debug)]
pub(super) struct Cleaner(Mutex<Child>);

impl Cleaner {
    /// For the server of this URL.
    pub(super) fn start(url: &str) -> Self {
        let child = without_settings(Command::new("sh"))
            .args(["-c", SCRIPT])
            .arg(Installation::get().program("psql"))
            .arg(url)
            // Whatever is sent to the group of the test, such as Ctrl-C, does not reach it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell can be started");
        Self(Mutex::new(child))
    }

    /// A database that is to be dropped, if it is there by then.
    pub(super) fn remember(&self, name: &str) {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let names = child.stdin.as_mut().expect("it is piped");
        writeln!(names, "{name}").expect("the shell reads");
    }
}
