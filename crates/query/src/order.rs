//! `$orderby`: the order of an answer, as far as the order of keys can give it.
//!
//! An extension: the original service has none.

use rowhouse_types::Direction;

/// An order of entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Which end of the keys comes first.
    pub direction: Direction,
    /// Only the RowKey is named: that is the order of keys within one partition, and in no larger part of a table.
    pub within_partition: bool,
}

/// Why a text is not an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// It is no list of names, each alone or with `asc` or `desc`.
    #[error("The order is not a list of properties, each alone or followed by 'asc' or 'desc'.")]
    Syntax,
    /// It names properties that entities are not kept in the order of, or both keys in two directions.
    #[error(
        "Entities can be ordered by PartitionKey, by PartitionKey and RowKey in one direction, and within one \
         partition by RowKey."
    )]
    NotOfKeys,
}

impl Order {
    /// Parses a decoded `$orderby`. None for a blank text: no order.
    pub fn parse(text: &str) -> Result<Option<Self>, OrderError> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let terms: Vec<_> = text.split(',').map(term).collect::<Result<_, _>>()?;
        let (direction, within_partition) = match terms[..] {
            [("PartitionKey", direction)] => (direction, false),
            [("RowKey", direction)] => (direction, true),
            [("PartitionKey", direction), ("RowKey", other)] if direction == other => {
                (direction, false)
            }
            _ => return Err(OrderError::NotOfKeys),
        };
        Ok(Some(Self { direction, within_partition }))
    }
}

fn term(text: &str) -> Result<(&str, Direction), OrderError> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or(OrderError::Syntax)?;
    let direction = match words.next() {
        None | Some("asc") => Direction::Ascending,
        Some("desc") => Direction::Descending,
        Some(_) => return Err(OrderError::Syntax),
    };
    match words.next() {
        None => Ok((name, direction)),
        Some(_) => Err(OrderError::Syntax),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Ascending, Descending};
    use OrderError::{NotOfKeys, Syntax};

    #[test]
    fn orders() {
        let of = |direction, within_partition| Ok(Some(Order { direction, within_partition }));
        let cases = [
            ("", Ok(None)),
            (" ", Ok(None)),
            ("PartitionKey", of(Ascending, false)),
            ("PartitionKey desc", of(Descending, false)),
            (" PartitionKey  asc , RowKey", of(Ascending, false)),
            ("PartitionKey desc,RowKey desc", of(Descending, false)),
            ("RowKey desc", of(Descending, true)),
            ("RowKey", of(Ascending, true)),
            ("PartitionKey desc,RowKey", Err(NotOfKeys)),
            ("RowKey,PartitionKey", Err(NotOfKeys)),
            ("PartitionKey,RowKey,Name", Err(NotOfKeys)),
            ("Name", Err(NotOfKeys)),
            ("partitionkey", Err(NotOfKeys)),
            ("PartitionKey DESC", Err(Syntax)),
            ("PartitionKey asc desc", Err(Syntax)),
            ("PartitionKey,", Err(Syntax)),
            (",", Err(Syntax)),
        ];
        for (text, expected) in cases {
            assert_eq!(Order::parse(text), expected, "{text:?}");
        }
    }
}
