//! Pages of the documentation, followed to the letter: each command is run, and must print what the page shows.
//!
//! In a page a fenced block without a language, or of the language `console`, is what a terminal shows:
//!
//! - `$ COMMAND` is given to `sh`; a line that ends in `\` goes on in the next. The lines up to the next command are
//!   what it prints, both of its outputs together. It fails exactly if a line is shown that begins with the name of
//!   the program and a colon.
//! - `cat FILE` of a file that is not there yet makes it, with what is shown.
//! - `^C` ends the command that was the last to run on. What is shown behind it, if anything, is what that printed then.
//!
//! Comments before a block say more about it:
//!
//! - `<!-- runs on -->`: its last command has a terminal of its own, where it runs on once it has printed what is shown.
//! - `<!-- file: NAME -->`: the block, of any language, is a file.
//! - `<!-- not run: WHY -->`: the block is passed over.
//!
//! In what is shown, `...` stands for anything within a line, and on a line of its own for any lines.
//! [`Terminal`] runs all this in an empty directory.

mod expectation;
mod terminal;

pub use expectation::fits;
pub use terminal::Terminal;

use std::iter::Peekable;
use std::str::Lines;

/// What somebody who follows a page does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Saves a file.
    File {
        /// Its name.
        name: String,
        /// Everything in it.
        content: String,
    },
    /// Types a command and sees what it prints.
    Run {
        /// The command.
        command: String,
        /// Whether it runs on.
        on: bool,
        /// The lines that are shown.
        shown: Vec<String>,
    },
    /// Ends the command that was the last to run on.
    Interrupt {
        /// The lines that are shown; nothing is said if there are none.
        shown: Vec<String>,
    },
}

/// What the comment before a block says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mark {
    RunsOn,
    File(String),
    NotRun,
}

impl Mark {
    fn parse(line: &str) -> Option<Self> {
        let text = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
        match text.split_once(": ") {
            None if text == "runs on" => Some(Self::RunsOn),
            Some(("file", name)) => Some(Self::File(name.to_owned())),
            Some(("not run", _)) => Some(Self::NotRun),
            _ => panic!("a comment that is none of page.rs: {line}"),
        }
    }
}

/// Everything that a page asks its reader to do, in order.
pub fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = page.lines().peekable();
    let mut mark = None;
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let block = block(&mut lines);
            read_block(&mut steps, language, &block, mark.take());
        } else if line.starts_with("<!--") {
            assert_eq!(mark, None, "a comment belongs to the block behind it: {line}");
            mark = Mark::parse(line);
        } else {
            assert!(mark.is_none() || line.is_empty(), "a block follows its comment: {line}");
        }
    }
    assert_eq!(mark, None, "a comment belongs to the block behind it");
    steps
}

/// The lines up to the end of the block.
fn block<'a>(lines: &mut Peekable<Lines<'a>>) -> Vec<&'a str> {
    let mut block = Vec::new();
    loop {
        match lines.next().expect("a block has an end") {
            "```" => return block,
            line => block.push(line),
        }
    }
}

fn read_block(steps: &mut Vec<Step>, language: &str, block: &[&str], mark: Option<Mark>) {
    let is_terminal = ["", "console"].contains(&language)
        && block.first().is_some_and(|line| line.starts_with("$ ") || *line == "^C");
    match mark {
        Some(Mark::NotRun) => {}
        Some(Mark::File(name)) => {
            steps.push(Step::File { name, content: format!("{}\n", block.join("\n")) });
        }
        mark if is_terminal => {
            let before = steps.len();
            read_terminal(steps, block);
            if mark == Some(Mark::RunsOn) {
                let Some(Step::Run { on, .. }) = steps[before..].last_mut() else {
                    panic!("only a command can run on: {block:?}");
                };
                *on = true;
            }
        }
        Some(Mark::RunsOn) => panic!("a block that runs on is of a terminal: {block:?}"),
        None => assert_ne!(language, "console", "a terminal begins with a command: {block:?}"),
    }
}

fn read_terminal(steps: &mut Vec<Step>, block: &[&str]) {
    let mut lines = block.iter();
    while let Some(&line) = lines.next() {
        if let Some(first) = line.strip_prefix("$ ") {
            let mut command = first.to_owned();
            while command.ends_with('\\') {
                command.push('\n');
                command.push_str(lines.next().expect("a command goes on"));
            }
            steps.push(Step::Run { command, on: false, shown: Vec::new() });
        } else if line == "^C" {
            steps.push(Step::Interrupt { shown: Vec::new() });
        } else {
            match steps.last_mut() {
                Some(Step::Run { shown, .. } | Step::Interrupt { shown }) => {
                    shown.push(line.to_owned());
                }
                _ => unreachable!("a block begins with a command"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_what_its_reader_does() {
        let page = "\
Text with `$ code`.

<!-- file: a.py -->
```python
$ not a command
```

<!-- runs on -->
```console
$ echo 1
1
$ rowhouse serve \\
      --quiet

Ready
```

```
$ ls
a.py
^C
stopped
```

<!-- not run: there is no network -->
```console
$ git clone
```

```toml
a = 1
```
";
        let run = |command: &str, on, shown: &[&str]| Step::Run {
            command: command.to_owned(),
            on,
            shown: shown.iter().map(|&line| line.to_owned()).collect(),
        };
        let expected = [
            Step::File { name: "a.py".to_owned(), content: "$ not a command\n".to_owned() },
            run("echo 1", false, &["1"]),
            run("rowhouse serve \\\n      --quiet", true, &["", "Ready"]),
            run("ls", false, &["a.py"]),
            Step::Interrupt { shown: vec!["stopped".to_owned()] },
        ];
        assert_eq!(steps(page), expected);
    }

    #[test]
    fn what_would_be_passed_over_by_mistake_is_refused() {
        for wrong in [
            "```console\nls\n```\n",
            "<!-- runs no -->\n```console\n$ ls\n```\n",
            "<!-- runs on -->\nText\n",
            "<!-- runs on -->\n```toml\na = 1\n```\n",
            "<!-- runs on -->\n",
            "```console\n$ ls\n",
        ] {
            assert!(std::panic::catch_unwind(|| steps(wrong)).is_err(), "{wrong}");
        }
    }
}
