//! Commands that are told so that they can be typed.

use std::path::Path;

/// A path as it can be typed, in quotes if a shell would take it for something else.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain =
        |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c) || (cfg!(windows) && c == '\\');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_can_be_typed() {
        for (path, expected) in [
            ("./restored", "./restored"),
            ("/größe/a-b_c", "/größe/a-b_c"),
            ("my data", "'my data'"),
            ("a$b", "'a$b'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(quoted(Path::new(path)), expected);
        }
    }
}
