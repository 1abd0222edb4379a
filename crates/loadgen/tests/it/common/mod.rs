//! Runs the built tool against the built server.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The server: `ROWHOUSE_BIN`, or what lies in the target directory, built if there is none.
pub(crate) fn server() -> &'static Path {
    static SERVER: OnceLock<PathBuf> = OnceLock::new();
    SERVER.get_or_init(|| {
        // Relative paths are meant from where the test was started, which cargo changes.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let given = std::env::var_os("ROWHOUSE_BIN").map(|path| root.join(path));
        if let Some(path) = given.filter(|path| path.exists()) {
            return path;
        }
        let profile = Path::new(env!("CARGO_BIN_EXE_loadgen")).parent().expect("it is in a folder");
        let target = profile.parent().expect("profiles are in the target directory");
        let found = [profile.join("rowhouse"), target.join("release/rowhouse")];
        if let Some(path) = found.iter().find(|path| path.exists()) {
            return path.clone();
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo).args(["build", "-p", "rowhouse-cli"]).status();
        assert!(built.is_ok_and(|status| status.success()), "the server can be built");
        target.join("debug/rowhouse")
    })
}

/// Runs the tool with a directory of its own. Returns what it printed, after checking that it was content.
pub(crate) fn loadgen(arguments: &str) -> String {
    run(arguments, false)
}

/// The same for a command with aims, which a busy machine or a slow build may miss.
pub(crate) fn loadgen_with_aims(arguments: &str) -> String {
    let table = run(arguments, true);
    for line in table.lines().filter(|line| line.contains("errors  ")) {
        assert!(line.ends_with(" met"), "{table}");
    }
    table
}

fn run(arguments: &str, may_miss: bool) -> String {
    let work = tempfile::tempdir().expect("a temporary directory can be made");
    // PostgreSQL runs as a user of its own, who has to reach its directory.
    let reachable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(work.path(), reachable).expect("it is ours");
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .args(arguments.split_whitespace())
        .arg("--work")
        .arg(work.path())
        .arg("--server")
        .arg(server())
        .output()
        .expect("the tool can be started");
    let stdout = String::from_utf8(stdout).expect("it prints text");
    let stderr = String::from_utf8_lossy(&stderr);
    let content = status.success() || may_miss && stderr.contains(" aims were missed");
    assert!(content, "loadgen {arguments}: {status}\n{stdout}\n{stderr}");
    stdout
}
