//! What the server keeps its data in, over the admin API.

use super::answer::{Problem, json};
use super::body::Response;
use http::StatusCode;
use rowhouse_types::cluster::{ClusterStatus, Skew};
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;

/// Finds out what the server keeps its data in; if it cannot, a sentence that says why.
pub type ClusterSource = Arc<dyn Fn() -> ClusterAnswer + Send + Sync>;
/// What a [`ClusterSource`] promises.
pub type ClusterAnswer = Pin<Box<dyn Future<Output = Result<ClusterStatus, String>> + Send>>;

/// The status, and what it amounts to.
#[derive(Debug, Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    status: &'a ClusterStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    skew: Option<Skew>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

pub(super) async fn show(source: &ClusterSource) -> Result<Response, Problem> {
    let status = &source().await.map_err(Problem::unavailable)?;
    let (skew, hint) = match status {
        ClusterStatus::Citus(cluster) => (Some(cluster.skew()), cluster.hint()),
        ClusterStatus::Embedded { .. } | ClusterStatus::Postgres(_) => (None, None),
    };
    Ok(json(StatusCode::OK, &Body { status, skew, hint }))
}
