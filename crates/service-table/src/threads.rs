//! Work that may take longer than a task of the runtime may hold a thread, on threads of their own.
//!
//! Parsing and planning a filter takes as long as the filter and the indexes are large, and so does
//! evaluating one on the names of many tables. The task itself does what is little work: a switch of
//! threads costs more than that. Long work waits for one of a few threads, in the order of arrival,
//! until its deadline. Requests that come here are admitted as scans, which bounds how many wait, and
//! one account does not fill the queue.
//!
//! The threads have a low priority for ever: point reads, and whatever else the runtime does, go
//! first. That is why they are not threads of Tokio's pool, which others use too.

use crate::TableError;
use rowhouse_store::StoreError;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;
use tokio::sync::{Semaphore, oneshot};

/// Work up to this is done at once. A unit is one condition for one property of an index, or evaluated on one table: 10 ns to a
/// little more than a microsecond, so this is seldom a millisecond and never three.
pub(crate) const INLINE_UNITS_MAX: usize = 2_000;

thread_local! {
    /// Whether this thread is one of [`Threads`].
    static IS_LONG: Cell<bool> = const { Cell::new(false) };
}

/// Lets others have the processor, unless this is a thread of the runtime: a thread goes on for
/// up to 4 ms otherwise, also while one with a higher priority waits.
pub(crate) fn give_way() {
    if IS_LONG.get() {
        thread::yield_now();
    }
}

/// Threads for long work. They end with the last copy of this.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    /// As many as there are threads, so no job that has one waits for a thread.
    places: Arc<Semaphore>,
    pool: Arc<Pool>,
}

type Job = Box<dyn FnOnce() + Send>;

/// The threads, started when they are needed.
struct Pool {
    most: usize,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    closed: bool,
}

impl Threads {
    /// As many as leave half of the processors to the rest of the server; at least one.
    pub(crate) fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self::with((processors / 2).max(1))
    }

    fn with(most: usize) -> Self {
        let pool = Pool { most, queue: Arc::default() };
        Self { places: Arc::new(Semaphore::new(most)), pool: Arc::new(pool) }
    }

    /// Does work of about so many units: here if it is little, otherwise on another thread. Fails with [`TableError::Busy`] if
    /// no thread was free before the deadline.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        units: usize,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TableError> {
        if units <= INLINE_UNITS_MAX { Ok(work()) } else { self.long_work(deadline, work).await }
    }

    /// Does work on another thread. Fails with [`TableError::Busy`] if none was free before the
    /// deadline.
    pub(crate) async fn long_work<T: Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TableError> {
        let place = Arc::clone(&self.places).acquire_owned();
        let place = match tokio::time::timeout_at(deadline.into(), place).await {
            Ok(place) => place.map_err(StoreError::unavailable)?,
            Err(_) => return Err(TableError::Busy),
        };
        let (reply, answer) = oneshot::channel();
        self.pool.start(Box::new(move || {
            if reply.is_closed() {
                return;
            }
            // The place is held until the work is done, even if nobody waits for it any more. It is
            // free before the answer is there: the next work of the same request finds it.
            let done = work();
            drop(place);
            let _ = reply.send(done);
        }))?;
        Ok(answer.await.map_err(|_| StoreError::unavailable("long work panicked"))?)
    }
}

impl Pool {
    /// Has a thread do a job, a new one if all are busy and there may be more.
    fn start(&self, job: Job) -> Result<(), StoreError> {
        let mut state = self.queue.lock();
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < self.most {
            let queue = Arc::clone(&self.queue);
            let started =
                thread::Builder::new().name("rowhouse-filter".to_owned()).spawn(move || {
                    rowhouse_env::step_back();
                    IS_LONG.set(true);
                    queue.work();
                });
            match started {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    state.jobs.clear();
                    return Err(StoreError::unavailable(error));
                }
                // One that is busy takes the job later.
                Err(_) => {}
            }
        }
        drop(state);
        self.queue.changed.notify_one();
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    /// Does jobs until the pool is gone. A panic costs its caller the answer, but no thread.
    fn work(&self) {
        while let Some(job) = self.take() {
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn take(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    #[tokio::test]
    async fn little_work_stays_and_much_goes_elsewhere() {
        let threads = Threads::new();
        let here = thread::current().id();
        let at = || thread::current().id();
        assert_eq!(threads.work(INLINE_UNITS_MAX, soon(), at).await.unwrap(), here);
        assert_ne!(threads.work(INLINE_UNITS_MAX + 1, soon(), at).await.unwrap(), here);
        assert_ne!(threads.long_work(soon(), at).await.unwrap(), here);
    }

    #[tokio::test]
    async fn a_deadline_ends_the_waiting() {
        let threads = Threads::with(1);
        let _held = Arc::clone(&threads.places).acquire_owned().await.unwrap();
        let soon = Instant::now() + Duration::from_millis(5);
        let refused = threads.work(usize::MAX, soon, || ()).await;
        assert!(matches!(refused, Err(TableError::Busy)));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn long_work_lets_others_go_first() {
        let nice = || -> i64 {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let (_, after_name) = stat.rsplit_once(") ").unwrap();
            after_name.split(' ').nth(16).unwrap().parse().unwrap()
        };
        let threads = Threads::with(1);
        let here = nice();
        for _ in 0..2 {
            assert_eq!(threads.long_work(soon(), nice).await.unwrap(), (here + 10).min(19));
        }
        assert_eq!(threads.work(1, soon(), nice).await.unwrap(), here);
    }

    #[tokio::test]
    async fn there_are_few_threads_and_they_end() {
        let threads = Threads::with(2);
        let queue = Arc::downgrade(&threads.pool.queue);
        let mut working = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let threads = threads.clone();
            working.spawn(async move {
                let work = || thread::sleep(Duration::from_millis(1));
                threads.long_work(soon(), work).await
            });
        }
        while let Some(done) = working.join_next().await {
            done.unwrap().unwrap();
        }
        assert!(threads.pool.queue.lock().threads <= 2);
        drop(threads);
        while queue.upgrade().is_some() {
            assert!(Instant::now() < soon());
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[tokio::test]
    async fn a_panic_costs_no_thread() {
        let threads = Threads::with(1);
        let failed = threads.long_work(soon(), || panic!("on purpose")).await;
        assert!(matches!(failed, Err(TableError::Unavailable(_))), "{failed:?}");
        assert_eq!(threads.long_work(soon(), || 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_begun() {
        let threads = Threads { places: Arc::new(Semaphore::new(2)), ..Threads::with(1) };
        let (go, begun) = std::sync::mpsc::channel::<()>();
        let first = threads.long_work(soon(), move || begun.recv());
        let begins = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&begins);
        let left = threads.long_work(soon(), move || noted.store(true, Ordering::SeqCst));
        let mut first = std::pin::pin!(first);
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut first).await.is_err());
        assert!(tokio::time::timeout(Duration::from_millis(5), left).await.is_err());
        go.send(()).unwrap();
        first.await.unwrap().unwrap();
        assert_eq!(threads.long_work(soon(), || 7).await.unwrap(), 7);
        assert!(!begins.load(Ordering::SeqCst));
    }
}
