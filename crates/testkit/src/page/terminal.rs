//! Somebody who follows a page: an empty directory, the built binary on the `PATH`, and the ports that are free.

use super::{Step, fits};
use crate::client::{DEV_ACCOUNT, DEV_KEY};
use crate::server::binary;
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a command may take, even on a busy machine.
const WITHIN: Duration = Duration::from_mins(2);
const EVERY: Duration = Duration::from_millis(5);

/// Where the services and the admin API are, on every page.
const TABLE_PORT: u16 = 10_002;
const QUEUE_PORT: u16 = 10_001;
const ADMIN_PORT: u16 = 10_003;
/// The ports that pages give to a second server.
const MORE_PORTS: [u16; 3] = [10_011, 10_012, 10_013];

/// Each command has a shell of its own: it finds what the one before has left, and leaves it to the next.
const FIND: &str = r#"[ ! -e "$HOME/left" ] || . "$HOME/left""#;
const LEAVE: &str =
    r#"trap 'code=$?; { export -p; echo "cd \"$PWD\""; } > "$HOME/left"; exit $code' EXIT"#;

/// For pages that need the superuser, who has no need of it.
const SUDO: &str = "#!/bin/sh\nexec \"$@\"\n";

/// Runs the steps of a page. What still runs is killed when it is dropped, and what was mounted is unmounted.
#[derive(Debug)]
pub struct Terminal {
    home: TempDir,
    /// Ports of pages, and those that stand for them here.
    ports: Vec<(u16, u16)>,
    variables: Vec<(String, OsString)>,
    running: Vec<Running>,
}

/// A command in a terminal of its own.
#[derive(Debug)]
struct Running {
    command: String,
    child: Child,
    printed: PathBuf,
    /// What it had printed when somebody looked last, in lines.
    seen: usize,
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

impl Terminal {
    /// In a new directory, with nothing of ours in the environment but what leads to the free ports.
    pub fn new() -> Self {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        for name in ["bin", "here"] {
            fs::create_dir(home.path().join(name)).expect("a directory can be made");
        }
        symlink(binary(), home.path().join("bin/rowhouse")).expect("a link can be made");
        // As on a terminal, where it shows no progress in the middle of what it got.
        fs::write(home.path().join(".curlrc"), "silent\nshow-error\n").expect("it can be written");
        let mut terminal =
            Self { home, ports: free_ports(), variables: Vec::new(), running: Vec::new() };
        let [table, queue, admin] = [0, 1, 2].map(|index| terminal.ports[index].1);
        terminal.set("ROWHOUSE_TABLE_PORT", table.to_string());
        terminal.set("ROWHOUSE_QUEUE_PORT", queue.to_string());
        terminal.set("ROWHOUSE_ADMIN_PORT", admin.to_string());
        terminal.set("ROWHOUSE_ADMIN", format!("http://127.0.0.1:{admin}"));
        terminal.set("ROWHOUSE_CONNECTION", development(table));
        terminal
    }

    /// The directory in which the page is followed.
    pub fn here(&self) -> PathBuf {
        self.home.path().join("here")
    }

    /// Sets a variable of the environment.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.variables.push((name.to_owned(), value.into()));
    }

    /// Lets another port stand for one of the page.
    pub fn map_port(&mut self, page: u16, here: u16) {
        self.ports.push((page, here));
    }

    /// Lets `sudo` do what it is told, for the superuser.
    pub fn allow_sudo(&self) {
        let path = self.home.path().join("bin/sudo");
        fs::write(&path, SUDO).expect("a program can be written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode can be set");
    }

    /// Does what a step says, or says what is not as the page has it.
    pub fn follow(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::File { name, content } => {
                self.save(name, content);
                Ok(())
            }
            Step::Run { command, on: false, shown } => self.run(command, shown),
            Step::Run { command, on: true, shown } => self.start(command, shown),
            Step::Interrupt { shown } => self.interrupt(shown),
        }
    }

    fn save(&self, name: &str, content: &str) {
        fs::write(self.here().join(name), self.to_here(content)).expect("a file can be written");
    }

    fn run(&self, command: &str, shown: &[String]) -> Result<(), String> {
        if let Some(name) = command.strip_prefix("cat ")
            && !self.here().join(name).exists()
        {
            self.save(name, &format!("{}\n", shown.join("\n")));
        }
        let mut running = self.spawn(command, false);
        let status = running.wait()?;
        let text = self.printed_by(&running);
        if !fits(shown, &text.lines().collect::<Vec<_>>(), false) {
            return Err(differs(command, shown, &text));
        }
        let fails = shown.iter().any(|line| line.starts_with(&format!("{}: ", program(command))));
        if status == fails {
            let done = if status { "succeeds" } else { "fails" };
            return Err(format!("$ {command}\n{done}, which the page does not show:\n{text}"));
        }
        Ok(())
    }

    /// Starts a command, and comes back when it has printed what is shown.
    fn start(&mut self, command: &str, shown: &[String]) -> Result<(), String> {
        let mut running = self.spawn(command, true);
        let began = Instant::now();
        loop {
            // Asked first: what it printed before its end is then all there is.
            let ended = running.child.try_wait().expect("a command can be asked").is_some();
            let text = self.printed_by(&running);
            let lines: Vec<_> = text.lines().collect();
            if text.ends_with('\n') && fits(shown, &lines, true) {
                running.seen = lines.len();
                self.running.push(running);
                return Ok(());
            }
            if ended || WITHIN < began.elapsed() {
                running.kill();
                return Err(differs(command, shown, &text));
            }
            std::thread::sleep(EVERY);
        }
    }

    fn interrupt(&mut self, shown: &[String]) -> Result<(), String> {
        let mut running = self.running.pop().ok_or("^C: no command runs on")?;
        running.signal("INT");
        running.wait()?;
        let text = self.printed_by(&running);
        let lines: Vec<_> = text.lines().skip(running.seen).collect();
        if shown.is_empty() || fits(shown, &lines, false) {
            return Ok(());
        }
        Err(differs(&format!("{} (after ^C)", running.command), shown, &lines.join("\n")))
    }

    /// A shell with the directory and the exported variables that the commands before have left.
    fn spawn(&self, command: &str, on: bool) -> Running {
        let home = self.home.path();
        // Those that run on keep their files.
        let printed = home.join(format!("printed-{}", self.running.len()));
        let _ = fs::remove_file(&printed);
        let file = File::create(&printed).expect("a file can be made");
        let leave = if on { "" } else { LEAVE };
        let script = format!("{FIND}\n{leave}\n{}\n", self.to_here(command));
        // Ctrl-C works in a terminal, whatever those who run the tests ignore.
        let mut shell = Command::new("env");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ROWHOUSE_") {
                shell.env_remove(name);
            }
        }
        let child = shell
            .args(["--default-signal=INT", "sh", "-c", &script])
            .current_dir(self.here())
            .env("HOME", home)
            .env("LC_ALL", "C.UTF-8")
            .env("PATH", path_with(&home.join("bin")))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a file handle can be copied"))
            .stderr(file)
            .process_group(0)
            .spawn()
            .expect("there is a shell");
        Running { command: command.to_owned(), child, printed, seen: 0 }
    }

    /// What it has printed, as the page would have it.
    fn printed_by(&self, running: &Running) -> String {
        let bytes = fs::read(&running.printed).expect("what it prints can be read");
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        for (page, here) in &self.ports {
            text = replace_number(&text, *here, *page);
        }
        text
    }

    fn to_here(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (page, here) in &self.ports {
            text = replace_number(&text, *page, *here);
        }
        text
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        for running in &mut self.running {
            running.kill();
        }
        for process in processes_in(self.home.path()) {
            let _ = Command::new("kill").args(["-s", "KILL", &process]).status();
        }
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| Path::new(place).starts_with(self.home.path())) {
            let _ = Command::new("umount").args(["-l", place]).status();
        }
    }
}

impl Running {
    /// Its end, and whether it succeeded.
    fn wait(&mut self) -> Result<bool, String> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a command can be asked") {
                return Ok(status.success());
            }
            if WITHIN < began.elapsed() {
                self.kill();
                let printed = fs::read_to_string(&self.printed).unwrap_or_default();
                return Err(format!("$ {}\ndoes not end:\n{printed}", self.command));
            }
            std::thread::sleep(EVERY);
        }
    }

    /// To everything that runs in its terminal.
    fn signal(&self, name: &str) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-s", name, "--", &group]).status();
    }

    fn kill(&mut self) {
        self.signal("KILL");
        let _ = self.child.wait();
    }
}

fn differs(command: &str, shown: &[String], text: &str) -> String {
    format!("$ {command}\nthe page shows:\n{}\nit prints:\n{text}", shown.join("\n"))
}

/// The processes that work in a directory: what commands have left in the background.
fn processes_in(directory: &Path) -> Vec<String> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let works_here = |process: &fs::DirEntry| {
        fs::read_link(process.path().join("cwd")).is_ok_and(|place| place.starts_with(directory))
    };
    let here = all.filter(works_here).filter_map(|process| process.file_name().into_string().ok());
    here.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

/// The name of the program that a command runs.
fn program(command: &str) -> &str {
    let is_name = |word: &&str| *word != "sudo" && !word.contains('=');
    let word = command.split_whitespace().find(is_name).unwrap_or_default();
    word.rsplit('/').next().unwrap_or_default()
}

/// The connection string of the development account.
fn development(port: u16) -> String {
    format!(
        "AccountName={DEV_ACCOUNT};AccountKey={DEV_KEY};\
         TableEndpoint=http://127.0.0.1:{port}/{DEV_ACCOUNT}"
    )
}

/// A free port for each of those that pages use, all held until all are known.
fn free_ports() -> Vec<(u16, u16)> {
    let pages = [TABLE_PORT, QUEUE_PORT, ADMIN_PORT].into_iter().chain(MORE_PORTS);
    let held: Vec<_> = pages
        .map(|page| (page, TcpListener::bind("127.0.0.1:0").expect("there is a free port")))
        .collect();
    let port = |listener: &TcpListener| listener.local_addr().expect("it has an address").port();
    held.iter().map(|(page, listener)| (*page, port(listener))).collect()
}

/// Replaces a number where it is not part of a longer one.
fn replace_number(text: &str, old: u16, new: u16) -> String {
    let (old, new) = (old.to_string(), new.to_string());
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(&old) {
        let (before, after) = (&rest[..at], &rest[at + old.len()..]);
        out.push_str(before);
        let is_part = out.ends_with(|c: char| c.is_ascii_digit())
            || after.starts_with(|c: char| c.is_ascii_digit());
        out.push_str(if is_part { &old } else { &new });
        rest = after;
    }
    out.push_str(rest);
    out
}

fn path_with(directory: &Path) -> OsString {
    let old = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&old));
    std::env::join_paths(all).expect("directories have no colons")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_replaced() {
        let cases = [
            ("http://127.0.0.1:10002/a", "http://127.0.0.1:45678/a"),
            ("10002 10002", "45678 45678"),
            ("110002 100020 10002", "110002 100020 45678"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(replace_number(text, 10_002, 45_678), expected);
        }
    }

    #[test]
    fn programs_have_names() {
        let cases = [
            ("rowhouse serve", "rowhouse"),
            ("./rowhouse export", "rowhouse"),
            ("sudo mount -t tmpfs", "mount"),
            ("KEY=1 venv/bin/python a.py", "python"),
        ];
        for (command, expected) in cases {
            assert_eq!(program(command), expected);
        }
    }

    /// Every way in which a page can be wrong is noticed.
    #[test]
    fn a_page_is_followed() {
        let mut terminal = Terminal::new();
        let mut follow = |page: &str| -> Result<(), String> {
            super::super::steps(page).iter().try_for_each(|step| terminal.follow(step))
        };
        let right = "\
<!-- file: a.txt -->
```text
one
two
```

```console
$ cat a.txt
one
...
$ cat b.txt
made
$ export NAME='a value' && mkdir sub && cd sub
$ echo \"$NAME\"; pwd; ls ..
a value
.../sub
a.txt
b.txt
sub
$ ls absent
ls: ...absent...: No such file or directory
```

<!-- runs on -->
```console
$ trap 'echo end; exit' INT; echo begin; while :; do sleep 0.01; done
begin
```

```console
^C
end
```
";
        assert_eq!(follow(right), Ok(()));
        for wrong in ["$ echo 1\n2", "$ echo 1", "$ false", "$ true\ntrue: no", "^C", "$ exit 3"] {
            assert!(follow(&format!("```console\n{wrong}\n```\n")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_is_left_in_the_background() {
        let mut terminal = Terminal::new();
        let home = terminal.home.path().to_owned();
        for step in super::super::steps("```console\n$ sleep 600 &\n```\n") {
            assert_eq!(terminal.follow(&step), Ok(()));
        }
        assert_eq!(processes_in(&home).len(), 1);
        drop(terminal);
        let began = Instant::now();
        while !processes_in(&home).is_empty() {
            assert!(began.elapsed() < Duration::from_secs(10), "it is killed");
            std::thread::sleep(EVERY);
        }
    }
}
