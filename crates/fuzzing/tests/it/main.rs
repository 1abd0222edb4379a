//! Replays the seeds of every fuzz target, and a fixed number of mutations of them.
//!
//! The mutations are the same on every machine and in every run, so a failure is never a matter of
//! luck. They find what random input finds quickly; long searches are libFuzzer's (`scripts/fuzz`).
//! An input that fails is saved to `fuzz/artifacts/<target>`, and replayed from there until it is
//! deleted.

mod mutate;

use mutate::Mutator;
use std::fmt::Write as _;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

/// Of each target. They take 0.1 to 1.5 seconds in a dev build.
const MUTATIONS: u64 = 10_000;

/// As for libFuzzer in `scripts/fuzz`. An input of a few kilobytes takes milliseconds.
const SLOWEST_RUN: Duration = Duration::from_secs(10);

/// How much of a failing input is printed; the file has all of it.
const SHOWN_BYTES: usize = 256;

macro_rules! targets {
    ($($name:ident)*) => {
        const TARGETS: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                replay(stringify!($name), rowhouse_fuzzing::$name);
            }
        )*
    };
}

targets!(auth backup batch entity filter header message path queue record xml);

/// Seeds without a target would never be replayed, and a target without seeds would test nothing.
#[test]
fn every_target_has_seeds_and_a_wrapper() {
    assert_eq!(entries("seeds"), TARGETS, "directories of fuzz/seeds");
    let wrappers: Vec<_> = TARGETS.iter().map(|target| format!("{target}.rs")).collect();
    assert_eq!(entries("targets"), wrappers, "files of fuzz/targets");
    for target in TARGETS {
        assert!(!entries(&format!("seeds/{target}")).is_empty(), "fuzz/seeds/{target} is empty");
    }
    for words in entries("words") {
        assert!(TARGETS.contains(&words.as_str()), "fuzz/words/{words} belongs to no target");
    }
}

fn replay(name: &str, target: fn(&[u8])) {
    let mut seeds = Vec::new();
    for folder in ["seeds", "artifacts"] {
        for file in entries(&format!("{folder}/{name}")) {
            let path = format!("fuzz/{folder}/{name}/{file}");
            let data = fs::read(root().join(&path)).expect("the file can be read");
            if let Err(fault) = run(target, &data) {
                panic!("{path}: {fault}; {}", hex(&data));
            }
            if folder == "seeds" {
                seeds.push(data);
            }
        }
    }
    let words = fs::read_to_string(root().join(format!("fuzz/words/{name}"))).unwrap_or_default();
    let mutator = Mutator::new(seeds, &words);
    for seed in 0..MUTATIONS {
        let data = mutator.input(seed);
        if let Err(fault) = run(target, &data) {
            let path = save(name, seed, &data);
            panic!(
                "mutation {seed} of fuzz/seeds/{name}: {fault}; saved as {path}; {}",
                hex(&data)
            );
        }
    }
}

/// The test program prints the panic itself, with its place in the code.
fn run(target: fn(&[u8]), data: &[u8]) -> Result<(), String> {
    let began = Instant::now();
    catch_unwind(|| target(data)).map_err(|_| "the target panicked".to_owned())?;
    let taken = began.elapsed();
    if SLOWEST_RUN < taken {
        return Err(format!("the target took {taken:?}"));
    }
    Ok(())
}

fn save(name: &str, seed: u64, data: &[u8]) -> String {
    let path = format!("fuzz/artifacts/{name}/mutation-{seed}");
    let file = root().join(&path);
    let folder = file.parent().expect("it has a directory");
    match fs::create_dir_all(folder).and_then(|()| fs::write(&file, data)) {
        Ok(()) => path,
        Err(error) => format!("nothing ({path}: {error})"),
    }
}

fn hex(data: &[u8]) -> String {
    let shown = &data[..data.len().min(SHOWN_BYTES)];
    let mut text = format!("{} bytes: ", data.len());
    for byte in shown {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
    }
    if shown.len() < data.len() {
        text.push_str("...");
    }
    text
}

/// Sorted names in a directory of `fuzz`; none if the directory does not exist.
fn entries(folder: &str) -> Vec<String> {
    let Ok(found) = fs::read_dir(root().join("fuzz").join(folder)) else { return Vec::new() };
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("the name is UTF-8");
    let mut names: Vec<_> =
        found.map(|entry| name(entry.expect("the directory can be read"))).collect();
    names.sort();
    names
}

/// Of the repository. Cargo sets the variable when it runs the test, so a moved tree works.
fn root() -> PathBuf {
    let own = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.ancestors().nth(2).map(Path::to_path_buf).expect("the crate is in crates/fuzzing")
}
