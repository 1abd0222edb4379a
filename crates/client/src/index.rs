//! What Rowhouse has beyond the protocol and people ask for by hand: secondary indexes, and how queries are read.

use crate::client::{Call, Client, path_of};
use crate::error::ClientError;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An index to be declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewIndex {
    /// Its name; without, the server makes one of the properties.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of which properties.
    pub properties: Vec<String>,
    /// No two entities may have the same values.
    pub unique: bool,
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Its name.
    pub name: String,
    /// Of which properties.
    pub properties: Vec<String>,
    /// No two entities have the same values.
    pub unique: bool,
    /// Whether it is used.
    pub state: IndexState,
    /// How many of the entities that were there before it have been looked at.
    pub examined: u64,
    /// About how many those are, if the server knows.
    pub of: Option<u64>,
}

/// Whether an index is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IndexState {
    /// What was there before it is still being entered.
    Building,
    /// It is.
    Ready,
    /// It was to be unique, and values repeat.
    NotUnique,
}

/// Queries of one shape that looked at far more than they found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostlyQuery {
    /// The filter with `?` for every value; empty without one.
    pub filter: String,
    /// The order, if it was by a property.
    pub order: Option<String>,
    /// How the last of them was read.
    pub plan: String,
    /// How many there were.
    pub count: u64,
    /// How many entities or entries they looked at.
    pub examined: u64,
    /// How many entities they found.
    pub returned: u64,
    /// Commands that would make them cheap.
    pub commands: Vec<String>,
}

/// A query to be explained.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// `$filter`
    pub filter: Option<String>,
    /// `$orderby`
    pub order: Option<String>,
    /// `$top`
    pub top: Option<usize>,
}

#[derive(Deserialize)]
struct List<T> {
    value: Vec<T>,
}

impl Client {
    /// The indexes of a table, in the order in which they were declared.
    pub async fn indexes(&self, table: &str) -> Result<Vec<Index>, ClientError> {
        let call = Call::new(Method::GET, path_of(table)).query("comp", Some("index"));
        let answer = self.ask(call).await?;
        Ok(self.read::<List<Index>>(&answer)?.value)
    }

    /// Declares an index of a table; it is built in the background.
    pub async fn create_index(&self, table: &str, new: &NewIndex) -> Result<Index, ClientError> {
        let body = serde_json::json!(new).to_string();
        let call = Call::new(Method::PUT, path_of(table)).query("comp", Some("index")).body(body);
        let answer = self.ask(call).await?;
        self.read(&answer)
    }

    /// Drops an index; false if the table has none of that name.
    pub async fn drop_index(&self, table: &str, name: &str) -> Result<bool, ClientError> {
        let call = Call::new(Method::DELETE, path_of(table))
            .query("comp", Some("index"))
            .query("name", Some(name));
        match self.ask(call).await {
            Err(error) if error.code() == "IndexNotFound" => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }

    /// How the server reads a query, as it says it.
    pub async fn explain(&self, table: &str, asked: &Asked) -> Result<Value, ClientError> {
        let call = Call::new(Method::GET, path_of(table) + "()")
            .query("$explain", Some("true"))
            .query("$filter", asked.filter.clone())
            .query("$orderby", asked.order.clone())
            .query("$top", asked.top.map(|top| top.to_string()));
        let answer = self.ask(call).await?;
        self.read(&answer)
    }

    /// The queries of a table that looked at far more than they found, since the server started.
    pub async fn costly_queries(&self, table: &str) -> Result<Vec<CostlyQuery>, ClientError> {
        let call = Call::new(Method::GET, path_of(table)).query("comp", Some("queries"));
        let answer = self.ask(call).await?;
        Ok(self.read::<List<CostlyQuery>>(&answer)?.value)
    }
}
