//! What is in `deploy/` can be read, names only what is there, and uses options that exist.
//!
//! The compose files are held to a small part of YAML, which this file reads: maps and lists of scalars by indentation, comments on
//! lines of their own, scalars plain or in double quotes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a compose file says at one place.
#[derive(Debug)]
enum Node {
    Nothing,
    Scalar(String),
    List(Vec<String>),
    Map(BTreeMap<String, Node>),
}

impl Node {
    fn map(&self) -> &BTreeMap<String, Self> {
        match self {
            Self::Map(map) => map,
            other => panic!("a map is expected, not {other:?}"),
        }
    }

    /// The members of a list, or the names in a map.
    fn names(&self) -> Vec<&str> {
        match self {
            Self::List(list) => list.iter().map(String::as_str).collect(),
            Self::Map(map) => map.keys().map(String::as_str).collect(),
            other => panic!("a list is expected, not {other:?}"),
        }
    }

    fn at(&self, name: &str) -> Option<&Self> {
        self.map().get(name)
    }

    /// The names at a member that may be missing.
    fn names_at(&self, name: &str) -> Vec<&str> {
        self.at(name).map_or_else(Vec::new, Self::names)
    }

    fn text_at(&self, name: &str) -> &str {
        match self.at(name) {
            Some(Self::Scalar(text)) => text,
            other => panic!("{name} should be a scalar, not {other:?}"),
        }
    }
}

/// A line that is no comment: its indentation and its text.
type Line<'a> = (usize, &'a str);

fn parse(text: &str) -> Node {
    let mut lines = Vec::new();
    for line in text.lines() {
        assert!(!line.contains('\t') && line == line.trim_end(), "white space: {line:?}");
        let content = line.trim_start();
        if !content.is_empty() && !content.starts_with('#') {
            lines.push((line.len() - content.len(), content));
        }
    }
    let mut rest = lines.as_slice();
    let node = block(&mut rest, 0);
    assert!(rest.is_empty(), "the indentation is wrong: {:?}", rest.first());
    node
}

/// Everything at this indentation.
fn block(lines: &mut &[Line<'_>], indent: usize) -> Node {
    let is_list = lines.first().is_some_and(|(_, text)| text.starts_with("- "));
    let (mut list, mut map) = (Vec::new(), BTreeMap::new());
    while let Some(&(at, text)) = lines.first()
        && at == indent
    {
        *lines = &lines[1..];
        if is_list {
            list.push(scalar(text.strip_prefix("- ").expect("a list has only members")));
            continue;
        }
        let (name, value) = text.split_once(':').expect("a map has only members");
        let value = match value.strip_prefix(' ') {
            Some(value) => Node::Scalar(scalar(value)),
            None if !value.is_empty() => panic!("a space is missing: {text}"),
            None if lines.first().is_some_and(|(next, _)| *next == indent + 2) => {
                block(lines, indent + 2)
            }
            None => Node::Nothing,
        };
        assert!(map.insert(name.to_owned(), value).is_none(), "twice: {name}");
    }
    if is_list { Node::List(list) } else { Node::Map(map) }
}

fn scalar(text: &str) -> String {
    if let Some(quoted) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        assert!(!quoted.contains(['"', '\\']), "not simple: {text}");
        return quoted.to_owned();
    }
    let special = text.starts_with(|c| "\"'{}[]&*!|>%@`#,?:".contains(c) || c == ' ');
    assert!(!special && !text.contains(": ") && !text.contains(" #"), "needs quotes: {text}");
    text.to_owned()
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(deploy().join(name)).expect("the file is there")
}

fn compose_files() -> [(&'static str, Node); 2] {
    ["embedded.yml", "postgres.yml"].map(|name| (name, parse(&read(name))))
}

/// Every word of the help that starts with two dashes or is a variable.
fn options_of_serve() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_rowhouse"))
        .args(["serve", "--help"])
        .output()
        .expect("it can be started");
    let help = String::from_utf8(output.stdout).expect("the help is text");
    let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    help.split(|c| !word(c)).map(str::to_owned).collect()
}

#[test]
fn files_name_only_what_is_there() {
    const SERVICE: [&str; 18] = [
        "build",
        "cap_add",
        "cap_drop",
        "command",
        "depends_on",
        "environment",
        "healthcheck",
        "image",
        "mem_limit",
        "ports",
        "read_only",
        "restart",
        "secrets",
        "security_opt",
        "stop_grace_period",
        "tmpfs",
        "user",
        "volumes",
    ];
    for (file, content) in compose_files() {
        for name in content.names() {
            let known = ["name", "services", "volumes", "secrets"].contains(&name);
            assert!(known, "{file}: {name}");
        }
        let services = content.at("services").expect("there are services");
        let (volumes, secrets) = (content.names_at("volumes"), content.names_at("secrets"));
        for (name, service) in services.map() {
            let place = format!("{file}, {name}");
            assert!(service.names().iter().all(|member| SERVICE.contains(member)), "{place}");
            assert!(service.at("build").is_some() != service.at("image").is_some(), "{place}");
            if let Some(build) = service.at("build") {
                let dockerfile =
                    deploy().join(build.text_at("context")).join(build.text_at("dockerfile"));
                assert!(dockerfile.exists(), "{place}");
            }
            for needed in service.names_at("depends_on") {
                assert!(services.at(needed).is_some(), "{place}: {needed}");
            }
            for secret in service.names_at("secrets") {
                assert!(secrets.contains(&secret), "{place}: {secret}");
            }
            for mounted in service.names_at("volumes") {
                let source = mounted.split(':').next().expect("a source");
                let found = if source.starts_with("./") {
                    deploy().join(source).exists()
                } else {
                    volumes.contains(&source)
                };
                assert!(found, "{place}: {mounted}");
            }
        }
    }
}

#[test]
fn servers_are_started_with_options_and_secrets_that_they_have() {
    let options = options_of_serve();
    let mut started = 0;
    for (file, content) in compose_files() {
        for (name, service) in content.at("services").expect("there are services").map() {
            let command = service.names_at("command");
            if command.first() != Some(&"serve") {
                continue;
            }
            started += 1;
            for argument in &command[1..] {
                let (flag, value) = argument.split_once('=').unwrap_or((argument, ""));
                assert!(
                    flag.starts_with("--") && options.contains(flag),
                    "{file}, {name}: {argument}"
                );
                if let Some(secret) = value.strip_prefix("/run/secrets/") {
                    assert!(
                        service.names_at("secrets").contains(&secret),
                        "{file}, {name}: {secret}"
                    );
                }
            }
        }
    }
    assert_eq!(started, 3);
    assert!(read("Dockerfile").contains("ENV ROWHOUSE_DATA=") && options.contains("ROWHOUSE_DATA"));
}

/// What a program that was taken over could do is little: no container gains privileges, changes its own files or takes all memory.
#[test]
fn containers_are_confined() {
    for (file, content) in compose_files() {
        for (name, service) in content.at("services").expect("there are services").map() {
            let place = format!("{file}, {name}");
            assert_eq!(service.names_at("cap_drop"), ["ALL"], "{place}");
            assert_eq!(service.names_at("security_opt"), ["no-new-privileges:true"], "{place}");
            assert_eq!(service.text_at("read_only"), "true", "{place}");
            assert!(!service.text_at("mem_limit").is_empty(), "{place}");
            let is_ours = service.at("build").is_some();
            assert!(!is_ours || service.names_at("cap_add").is_empty(), "{place}");
            let command = service.names_at("command").join(" ");
            assert!(!is_ours || command.contains("--trusted-proxies="), "{place}");
        }
    }
    let proxy = read("nginx.conf");
    assert!(!proxy.contains("X-Forwarded-Proto $scheme"), "TLS may end before nginx");
    assert!(!read("README.md").contains("chmod 444"), "secrets that everybody can read");
}

/// Settings of the unit that leave a program that was taken over with little to do.
#[test]
fn the_unit_is_confined() {
    let yes = [
        "LockPersonality",
        "MemoryDenyWriteExecute",
        "NoNewPrivileges",
        "PrivateDevices",
        "PrivateTmp",
        "PrivateUsers",
        "ProtectClock",
        "ProtectControlGroups",
        "ProtectHome",
        "ProtectHostname",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
    ];
    for name in yes {
        assert_eq!(of_unit(name), ["yes"], "{name}");
    }
    assert_eq!(of_unit("SystemCallFilter"), ["@system-service"]);
    assert_eq!(of_unit("ProtectProc"), ["invisible"]);
    assert_eq!(of_unit("ProtectSystem"), ["strict"]);
    assert_eq!(of_unit("CapabilityBoundingSet"), [""]);
}

/// Servers of one database need the same master key, and the load balancer all of them.
#[test]
fn servers_behind_the_load_balancer_are_alike() {
    let content = parse(&read("postgres.yml"));
    let services = content.at("services").expect("there are services");
    let balancer = read("nginx.conf");
    let mut commands = BTreeSet::new();
    for (name, service) in services.map() {
        let command = service.names_at("command");
        if command.first() == Some(&"serve") {
            for port in [10001, 10002] {
                assert!(balancer.contains(&format!("server {name}:{port} ")), "{name} {port}");
            }
            commands.insert(command.join(" "));
        }
    }
    assert_eq!(commands.len(), 1, "{commands:?}");
    assert!(commands.iter().all(|command| command.contains("--master-key-file=")));
}

/// The values of a setting of the unit.
fn of_unit(name: &str) -> Vec<String> {
    let values = read("rowhouse.service");
    let values = values.lines().filter_map(|line| line.split_once('='));
    values.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).collect()
}

#[test]
fn the_unit_starts_a_server_with_options_that_it_has() {
    let options = options_of_serve();
    let [command] = of_unit("ExecStart").try_into().expect("one command");
    let mut words = command.split(' ');
    assert_eq!(words.next(), Some("/usr/local/bin/rowhouse"));
    assert_eq!(words.next(), Some("serve"));
    let flags: Vec<_> = words.filter(|word| word.starts_with("--")).collect();
    assert!(flags.iter().all(|flag| options.contains(*flag)), "{flags:?}");
    assert_eq!(of_unit("StateDirectory"), ["rowhouse"], "the data of rowhouse.toml");
    let config = read("rowhouse.toml");
    assert!(config.contains("data = \"/var/lib/rowhouse\"\n"), "{config}");
    let settings = config.lines().filter_map(|line| line.split_once(" = "));
    for (name, _) in settings {
        let name = name.trim_start_matches("# ");
        assert!(options.contains(&format!("--{name}")), "{name}");
    }
}

/// A server reads the configuration of the unit; only its files are elsewhere.
#[test]
fn the_configuration_of_the_unit_is_understood() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let path = directory.path().join("rowhouse.toml");
    let elsewhere =
        |text: String| text.replace("\"/", &format!("\"{}/", directory.path().display()));
    let all = read("rowhouse.toml").replace("# host", "host").replace("# tls", "tls");
    for config in [read("rowhouse.toml"), all.replace("# keep", "keep")] {
        std::fs::write(&path, elsewhere(config)).expect("it can be written");
        let output = Command::new(env!("CARGO_BIN_EXE_rowhouse"))
            .args(["serve", "--table-port=0", "--admin-port=0", "--config"])
            .arg(&path)
            .output()
            .expect("it can be started");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        // Everything else was accepted before the key is looked for.
        assert!(text.contains("cannot read the master key file"), "{text}");
    }
}

#[test]
fn the_unit_is_one_for_systemd() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let path = directory.path().join("rowhouse.service");
    let unit = read("rowhouse.service");
    let unit = unit.replace("/usr/local/bin/rowhouse", env!("CARGO_BIN_EXE_rowhouse"));
    std::fs::write(&path, unit).expect("it can be written");
    let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(&path).output() else {
        println!("rowhouse.service: NOT VERIFIED, there is no systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let about_it: Vec<_> = said.lines().filter(|line| line.contains("rowhouse")).collect();
    assert!(output.status.success() && about_it.is_empty(), "{said}");
}

#[test]
fn what_is_not_understood_is_refused() {
    for wrong in
        ["a: 1\na: 2", "a:\n    b: 1", "a: [1]", "a: b: c", "- a\nb: 1", "a: 'b'", "a:1", "a: b "]
    {
        let parsed = std::panic::catch_unwind(|| parse(wrong));
        assert!(parsed.is_err(), "{wrong:?}: {parsed:?}");
    }
}
