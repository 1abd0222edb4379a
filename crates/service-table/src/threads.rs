//! Work that may take longer than a task of the runtime may hold a thread, on threads of their own.
//!
//! Planning a filter takes as long as the filter and the indexes are large, and so does evaluating one on the names of many
//! tables. Whatever is small is done where it is asked for: a switch of threads costs more than that. What is large waits for one of a few
//! places, in the order of arrival, until its deadline. Requests that come here are admitted as scans, so one account does
//! not fill the queue.

use crate::TableError;
use rowhouse_store::StoreError;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;

/// Work up to this is done at once. A unit is one condition for one property of an index, or evaluated on one table: 10 ns to a
/// little more than a microsecond, so this is seldom a millisecond and never three.
pub(crate) const INLINE_UNITS_MAX: usize = 2_000;

/// Threads for long work.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    places: Arc<Semaphore>,
}

impl Threads {
    /// As many as leave half of the processors to the rest of the server; at least one.
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { places: Arc::new(Semaphore::new((processors / 2).max(1))) }
    }

    /// Does work of about so many units: here if it is little, otherwise on another thread. Fails with [`TableError::Busy`] if
    /// no thread was free before the deadline.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        units: usize,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TableError> {
        if units <= INLINE_UNITS_MAX {
            return Ok(work());
        }
        let place = Arc::clone(&self.places).acquire_owned();
        let place = match tokio::time::timeout_at(deadline.into(), place).await {
            Ok(place) => place.map_err(StoreError::unavailable)?,
            Err(_) => return Err(TableError::Busy),
        };
        let working = tokio::task::spawn_blocking(move || {
            // Held until the work is done, even if nobody waits for it any more.
            let _place = place;
            work()
        });
        Ok(working.await.map_err(StoreError::unavailable)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn little_work_stays_and_much_goes_elsewhere() {
        let threads = Threads::new();
        let here = std::thread::current().id();
        let soon = Instant::now() + Duration::from_mins(1);
        let at = || std::thread::current().id();
        assert_eq!(threads.work(INLINE_UNITS_MAX, soon, at).await.unwrap(), here);
        assert_ne!(threads.work(INLINE_UNITS_MAX + 1, soon, at).await.unwrap(), here);
    }

    #[tokio::test]
    async fn a_deadline_ends_the_waiting() {
        let threads = Threads { places: Arc::new(Semaphore::new(1)) };
        let _held = Arc::clone(&threads.places).acquire_owned().await.unwrap();
        let soon = Instant::now() + Duration::from_millis(5);
        let refused = threads.work(usize::MAX, soon, || ()).await;
        assert!(matches!(refused, Err(TableError::Busy)));
    }
}
