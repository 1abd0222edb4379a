//! Pages in the order of properties that no index has, read piece by piece in one transaction at one snapshot.

use super::through::{all, indexes};
use super::{Draft, SNAPSHOT, Source, steps};
use crate::fault::Fault;
use crate::index::lookup::{self, Through};
use crate::pool::Session;
use rowhouse_store::{First, Sort, WalkPage};
use rowhouse_types::limits;
use std::time::{Duration, Instant};
use tokio::time::timeout_at;

/// Entities that are asked for at first, when nobody knows how large they are.
const FIRST_ENTITIES: usize = 64;
/// How much longer than there is time a statement may take, so that it ends even if nobody is there to end it.
const GRACE: Duration = Duration::from_millis(100);

/// Reads one page; none if there was not enough time.
pub(crate) async fn sort(
    session: &Session,
    source: Source<'_>,
    sort: &Sort,
) -> Result<Option<WalkPage>, Fault> {
    let time = sort.deadline.saturating_duration_since(Instant::now()) + GRACE;
    let begin = format!("{SNAPSHOT}; SET LOCAL statement_timeout = {}", time.as_millis());
    session.begin(&begin).await?;
    let through = sort.through.as_deref().map(Through::new);
    if let Some(parts) = &sort.through
        && let Err(fault) = lookup::ready(session, source, &indexes(parts)).await
    {
        session.roll_back().await;
        return Err(fault);
    }
    let mut first = First::new(sort);
    let gathering = gather(session, source, sort, through.as_ref(), &mut first);
    // What is under way when the time is over is not worth reading: the connection is closed.
    let gathered = match timeout_at((sort.deadline + GRACE).into(), gathering).await {
        Ok(Err(Fault::Cancelled(_))) if sort.deadline <= Instant::now() => return Ok(None),
        Ok(gathered) => gathered?,
        Err(_) => return Ok(None),
    };
    match gathered {
        Gathered::All => {
            session.end("COMMIT").await?;
            Ok(Some(first.finish()))
        }
        Gathered::TooLate => Ok(None),
    }
}

/// How much was read.
enum Gathered {
    All,
    /// A part, until the time was over.
    TooLate,
}

async fn gather(
    session: &Session,
    source: Source<'_>,
    sort: &Sort,
    through: Option<&Through<'_>>,
    first: &mut First<'_>,
) -> Result<Gathered, Fault> {
    let mut piece = sort.piece();
    piece.limit = FIRST_ENTITIES;
    loop {
        let mut draft = Draft::new(&piece);
        if through.is_some() {
            // All that is judged is sent.
            (draft.through, draft.most) = (through, draft.wanted());
        }
        let steps = through.map_or_else(|| steps(&piece), |through| all(&piece, through));
        // What was asked for and is not wanted is read before the next piece.
        draft.run_all(session, source, steps).await?;
        let page = draft.page;
        first.take(&page)?;
        let Some(next) = page.next else { return Ok(Gathered::All) };
        if sort.deadline <= Instant::now() {
            return Ok(Gathered::TooLate);
        }
        // As many as will fit, so that little is sent for nothing; larger ones may follow small ones.
        let each = page.rows.byte_len() / page.rows.len().max(1);
        let most = limits::PAGE_ITEMS_MAX.min(4 * piece.limit);
        piece.limit = (piece.max_bytes / each.max(1)).clamp(1, most);
        piece.ranges = sort.rest(&next);
    }
}
