//! The arrows between our crates point one way.
//!
//! The compiler refuses a circle; this test refuses every edge that the architecture does not list, so
//! that a new one is a decision and not an accident. Development dependencies are free.

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Which crate may use which; `service-*` stands for every crate that starts so.
const MAY_USE: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("query", &["types"]),
    ("wire", &["types"]),
    ("auth", &["types"]),
    ("env", &["types"]),
    ("store", &["types", "query", "env"]),
    ("store-*", &["store", "query", "types", "env"]),
    ("service-*", &["store", "query", "types", "env"]),
    ("http", &["service-*", "wire", "auth", "query", "types", "env"]),
    ("server", &["http", "service-*", "store", "store-*", "auth", "types", "env"]),
    ("cli", &["server", "client", "types"]),
    ("client", &["wire", "auth", "query", "types", "env"]),
    ("fuzzing", &["service-backup", "wire", "auth", "query", "types"]),
    ("loadgen", &["store-postgres", "store", "wire", "auth", "types", "env", "testkit"]),
    (
        "testkit",
        &[
            "types",
            "query",
            "wire",
            "auth",
            "env",
            "store",
            "store-*",
            "service-*",
            "http",
            "server",
            "client",
        ],
    ),
];

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

#[test]
fn every_edge_is_in_the_table() {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo knows the workspace");
    let mut edges = 0;
    let mut offences = Vec::new();
    for package in &metadata.packages {
        let Some(package_name) = package.name.strip_prefix("rowhouse-") else { continue };
        let Some((_, allowed)) = MAY_USE.iter().find(|(pattern, _)| fits(pattern, package_name))
        else {
            offences.push(format!("{package_name} is not in the table"));
            continue;
        };
        for dependency in &package.dependencies {
            let Some(used) = dependency.name.strip_prefix("rowhouse-") else { continue };
            if dependency.kind == DependencyKind::Development {
                continue;
            }
            edges += 1;
            if !allowed.iter().any(|pattern| fits(pattern, used)) {
                offences.push(format!("{package_name} must not use {used}"));
            }
        }
    }
    assert!(offences.is_empty(), "{}", offences.join("\n"));
    assert!(edges > 0, "the workspace was found");
}
