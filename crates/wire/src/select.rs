//! `$select`: which properties a query returns.

use rowhouse_types::limits;

/// A selection of properties; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    names: Vec<Box<str>>,
}

/// Why a text is not a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// More than [`limits::SELECT_NAMES_MAX`] names.
    #[error("too many names")]
    TooMany,
    /// Nothing between two commas.
    #[error("a name is empty")]
    EmptyName,
}

impl Select {
    /// Parses names with commas between them. Nothing means all: `*` among the names, or no name.
    ///
    /// A name given twice is kept once. Names need not be legal: one that no entity has selects nothing.
    pub fn parse(text: &str) -> Result<Option<Self>, SelectError> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let mut names: Vec<Box<str>> = Vec::new();
        let mut all = false;
        for (index, name) in text.split(',').map(str::trim).enumerate() {
            if index == limits::SELECT_NAMES_MAX {
                return Err(SelectError::TooMany);
            }
            if name.is_empty() {
                return Err(SelectError::EmptyName);
            }
            all |= name == "*";
            if !names.iter().any(|known| **known == *name) {
                names.push(name.into());
            }
        }
        Ok((!all).then_some(Self { names }))
    }

    /// The names in the order in which they were given.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// True if the name is selected.
    pub fn contains(&self, name: &str) -> bool {
        self.names.iter().any(|known| **known == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn selections() {
        let cases: &[(&str, Option<&[&str]>)] = &[
            ("", None),
            ("  ", None),
            ("*", None),
            ("a,*", None),
            ("a", Some(&["a"])),
            ("b, a ,b", Some(&["b", "a"])),
            ("PartitionKey,x-y", Some(&["PartitionKey", "x-y"])),
        ];
        for (text, expected) in cases {
            let select = Select::parse(text).unwrap();
            let names = select.as_ref().map(|s| s.names().iter().map(|n| &**n).collect::<Vec<_>>());
            assert_eq!(names.as_deref(), *expected, "{text}");
        }
        for bad in [",", "a,", ",a", "a,,b"] {
            assert_eq!(Select::parse(bad), Err(SelectError::EmptyName), "{bad}");
        }
    }

    #[test]
    fn limit_on_both_sides() {
        let names = |count: usize| (0..count).map(|n| format!("p{n}")).collect::<Vec<_>>();
        let most = names(limits::SELECT_NAMES_MAX).join(",");
        let select = Select::parse(&most).unwrap().unwrap();
        assert_eq!(select.names().len(), limits::SELECT_NAMES_MAX);
        assert_eq!(Select::parse(&format!("{most},x")), Err(SelectError::TooMany));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "\\PC{0,40}|[a,* ]{0,20}") {
            let _ = Select::parse(&text);
        }
    }
}
