//! Links of the documentation lead to files that are there, and to headings that they have.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is there")
}

/// Every page of the repository, except of what was built or installed into it.
fn pages() -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut open: Vec<_> =
        ["docs", "deploy", "crates", "fuzz", "tests"].map(|name| root().join(name)).into();
    for entry in fs::read_dir(root()).expect("it can be read") {
        all.push(entry.expect("it can be read").path());
    }
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            let foreign = ["node_modules", "target"].iter().any(|name| path.ends_with(name));
            if path.is_dir() && !path.is_symlink() && !foreign {
                open.push(path);
            } else {
                all.push(path);
            }
        }
    }
    all.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    all
}

/// The text without what is code.
fn prose(text: &str) -> String {
    let outside = text.split("```").step_by(2).collect::<String>();
    outside.split('`').step_by(2).collect()
}

/// Where the links of a text lead.
fn links(text: &str) -> Vec<String> {
    let targets = prose(text);
    let targets = targets.split("](").skip(1);
    targets.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// The names by which headings can be reached.
fn anchors(text: &str) -> BTreeSet<String> {
    let outside = text.split("```").step_by(2).collect::<String>();
    let headings = outside.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

/// Lower case, blanks become hyphens, and everything but letters, digits and hyphens is left out.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// What is wrong with a link, if anything is.
fn problem(page: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let file = match file {
        "" => page.to_owned(),
        file => page.parent().expect("a page is in a directory").join(file),
    };
    if !file.exists() {
        return Some("there is no such file".to_owned());
    }
    if heading.is_empty() {
        return None;
    }
    let text = fs::read_to_string(&file).unwrap_or_default();
    (!anchors(&text).contains(heading)).then(|| "there is no such heading".to_owned())
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    let mut followed = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page is text");
        for target in links(&text) {
            followed += 1;
            if let Some(problem) = problem(&page, &target) {
                wrong.push(format!("{}: {target}: {problem}", page.display()));
            }
        }
    }
    assert!(40 < followed, "{followed} links");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_and_headings_are_found() {
    let text = "# A page: with `code`, 3 words\n[a](b.md#c) and [d](#e)\n```\n# no [x](y)\n```\n`[z](z)`\n";
    assert_eq!(links(text), ["b.md#c", "#e"]);
    assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), ["a-page-with-code-3-words"]);
}
