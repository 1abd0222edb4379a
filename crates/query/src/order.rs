//! `$orderby`: the order of an answer, by keys or by one property.
//!
//! An extension: the original service has none.

use rowhouse_types::{Direction, check_property_name};

/// An order of entities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// That of the keys.
    Keys {
        /// Which end of the keys comes first.
        direction: Direction,
        /// Only the RowKey is named: that is the order of keys within one partition, and in no larger part of a table.
        within_partition: bool,
    },
    /// That of the values of a property, as an index of it has them.
    Property {
        /// Which property.
        name: Box<str>,
        /// Which end of the values comes first.
        direction: Direction,
    },
}

/// Why a text is not an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// It is no list of names, each alone or with `asc` or `desc`.
    #[error("The order is not a list of properties, each alone or followed by 'asc' or 'desc'.")]
    Syntax,
    /// It names several properties, or both keys in two directions.
    #[error(
        "Entities can be ordered by PartitionKey, by PartitionKey and RowKey in one direction, within one \
         partition by RowKey, and by one property."
    )]
    Several,
}

impl Order {
    /// Parses a decoded `$orderby`. None for a blank text: no order.
    pub fn parse(text: &str) -> Result<Option<Self>, OrderError> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let terms: Vec<_> = text.split(',').map(term).collect::<Result<_, _>>()?;
        let keys = |direction, within_partition| Self::Keys { direction, within_partition };
        Ok(Some(match terms[..] {
            [("PartitionKey", direction)] => keys(direction, false),
            [("RowKey", direction)] => keys(direction, true),
            [(name, direction)] => match check_property_name(name) {
                Ok(()) => Self::Property { name: name.into(), direction },
                Err(_) => return Err(OrderError::Syntax),
            },
            [("PartitionKey", direction), ("RowKey", other)] if direction == other => {
                keys(direction, false)
            }
            _ => return Err(OrderError::Several),
        }))
    }

    /// Which end comes first.
    pub fn direction(&self) -> Direction {
        match self {
            Self::Keys { direction, .. } | Self::Property { direction, .. } => *direction,
        }
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
    use OrderError::{Several, Syntax};

    #[test]
    fn orders() {
        let of =
            |direction, within_partition| Ok(Some(Order::Keys { direction, within_partition }));
        let by = |name: &str, direction| Ok(Some(Order::Property { name: name.into(), direction }));
        let cases = [
            ("", Ok(None)),
            (" ", Ok(None)),
            ("PartitionKey", of(Ascending, false)),
            ("PartitionKey desc", of(Descending, false)),
            (" PartitionKey  asc , RowKey", of(Ascending, false)),
            ("PartitionKey desc,RowKey desc", of(Descending, false)),
            ("RowKey desc", of(Descending, true)),
            ("RowKey", of(Ascending, true)),
            ("PartitionKey desc,RowKey", Err(Several)),
            ("RowKey,PartitionKey", Err(Several)),
            ("PartitionKey,RowKey,Name", Err(Several)),
            ("Name", by("Name", Ascending)),
            ("Timestamp desc", by("Timestamp", Descending)),
            ("partitionkey", by("partitionkey", Ascending)),
            ("Name,Age", Err(Several)),
            ("PartitionKey,Name", Err(Several)),
            ("a-b", Err(Syntax)),
            ("1", Err(Syntax)),
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
