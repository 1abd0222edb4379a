//! Secondary indexes: declared, listed and dropped, with the key of the account only.

use crate::{Caller, TableError, TableService};
use rowhouse_query::index::IndexKeys;
use rowhouse_store::{Built, Conflict, Index, IndexState, StoreError, TableId};
use rowhouse_types::{Access, IndexName, TableName};

/// An index to be declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIndex {
    /// Its name; without, one is made of the properties.
    pub name: Option<IndexName>,
    /// Names of properties: at least one, at most [`rowhouse_types::limits::INDEX_PROPERTIES_MAX`], none twice.
    pub properties: Vec<Box<str>>,
    /// No two entities may have the same values.
    pub unique: bool,
}

/// An index and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexView {
    /// Its name.
    pub name: IndexName,
    /// What it is of.
    pub properties: Vec<Box<str>>,
    /// No two entities have the same values.
    pub unique: bool,
    /// Whether it is used.
    pub state: IndexState,
    /// How many of the entities that were there before it have been looked at.
    pub examined: u64,
    /// About how many those are, if somebody knows.
    pub of: Option<u64>,
}

impl TableService {
    /// The indexes of a table, in the order in which they were declared.
    pub async fn indexes(
        &self,
        caller: Caller<'_>,
        table: &TableName,
    ) -> Result<Vec<IndexView>, TableError> {
        caller.grant.check(Access::TableSettings, Some(table))?;
        let table = self.table(caller, table).await?;
        let mut views = Vec::with_capacity(table.indexes.len());
        for index in &table.indexes {
            match self.view(table.id, index).await {
                Ok(view) => views.push(view),
                // Dropped since the table was looked up.
                Err(StoreError::Rejected { reason: Conflict::IndexNotFound, .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(views)
    }

    /// Declares an index. It is kept from now on, and used once everything that is there has been entered.
    pub async fn create_index(
        &self,
        caller: Caller<'_>,
        table: &TableName,
        new: NewIndex,
    ) -> Result<IndexView, TableError> {
        caller.grant.check(Access::TableSettings, Some(table))?;
        let table = self.table(caller, table).await?;
        let NewIndex { name, properties, unique } = new;
        let name = name.unwrap_or_else(|| default_name(&properties));
        let keys = IndexKeys { properties, unique };
        let index = self.store.create_index(table.id, &name, keys).await?;
        Ok(self.view(table.id, &index).await?)
    }

    /// Drops an index: nothing uses it any more.
    pub async fn drop_index(
        &self,
        caller: Caller<'_>,
        table: &TableName,
        name: &IndexName,
    ) -> Result<(), TableError> {
        caller.grant.check(Access::TableSettings, Some(table))?;
        let table = self.table(caller, table).await?;
        let index = table.indexes.iter().find(|index| index.name == *name);
        let index = index.ok_or(TableError::IndexNotFound)?;
        Ok(self.store.drop_index(table.id, index.id).await?)
    }

    async fn view(&self, table: TableId, index: &Index) -> Result<IndexView, StoreError> {
        let Built { state, examined, of } = self.store.built(table, index.id).await?;
        Ok(IndexView {
            name: index.name.clone(),
            properties: index.keys.properties.clone(),
            unique: index.keys.unique,
            state,
            examined,
            of,
        })
    }
}

/// The properties joined by hyphens where that is a legal name, and something short made of them elsewhere.
fn default_name(properties: &[Box<str>]) -> IndexName {
    let joined = properties.join("-");
    IndexName::new(joined.as_str()).unwrap_or_else(|_| {
        let name = format!("index-{:016x}", fingerprint(joined.as_bytes()));
        IndexName::new(name).expect("letters, digits and a hyphen")
    })
}

/// FNV-1a: two lists of names that nobody made to collide get two names.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_indexes_without_one() {
        let name = |properties: &[&str]| {
            let properties: Vec<Box<str>> = properties.iter().map(|&name| name.into()).collect();
            default_name(&properties).as_str().to_owned()
        };
        assert_eq!(name(&["Email"]), "Email");
        assert_eq!(name(&["City", "Age"]), "City-Age");
        let (long, other) = ("a".repeat(64), "b".repeat(64));
        for odd in ["_x", "größe", long.as_str()] {
            assert!(name(&[odd]).starts_with("index-"), "{odd}");
        }
        assert_ne!(name(&[&long]), name(&[&other]));
        assert_eq!(fingerprint(b""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(fingerprint(b"a"), 0xAF63_DC4C_8601_EC8C);
    }
}
