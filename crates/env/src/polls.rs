//! How long a task holds its thread: the processor time of every poll.
//!
//! Whoever waits on the same thread waits that long. Tests watch futures with [`watched`], and so does a server that is
//! started with [`WATCH_POLLS`]; it logs a poll that took too long, and tests look for that line.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Longest time that a poll may work. Code that is not optimised is allowed more.
pub const POLL_CPU_MAX: Duration =
    Duration::from_millis(if cfg!(debug_assertions) { 50 } else { 10 });
/// Set in the environment of a server, it watches the tasks of its connections. For tests.
pub const WATCH_POLLS: &str = "ROWHOUSE_WATCH_POLLS";
/// What such a server logs.
pub const LONG_POLL: &str = "a task held its thread for too long";

/// The processor time that this thread has used; zero on systems other than Linux.
pub fn thread_time() -> Duration {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap_or_default()
    }
    #[cfg(not(target_os = "linux"))]
    Duration::ZERO
}

/// A future, and what is called with the time of each poll that takes longer than [`POLL_CPU_MAX`].
pub struct Watched<F, O> {
    future: Pin<Box<F>>,
    over: O,
}

/// Watches every poll of a future.
pub fn watched<F: Future, O: FnMut(Duration)>(future: F, over: O) -> Watched<F, O> {
    Watched { future: Box::pin(future), over }
}

impl<F, O> fmt::Debug for Watched<F, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl<F: Future, O: FnMut(Duration) + Unpin> Future for Watched<F, O> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let before = thread_time();
        let polled = self.future.as_mut().poll(cx);
        let took = thread_time().saturating_sub(before);
        if POLL_CPU_MAX < took {
            (self.over)(took);
        }
        polled
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::{Wake, Waker};
    use std::time::Instant;

    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    fn polls_over(work: impl Fn()) -> usize {
        let mut over = 0;
        let mut future = watched(async { work() }, |_| over += 1);
        let waker = Waker::from(Arc::new(Nobody));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_ready());
        drop(future);
        over
    }

    #[test]
    fn only_work_counts() {
        assert_eq!(polls_over(|| std::thread::sleep(2 * POLL_CPU_MAX)), 0);
        let busy = || {
            let began = thread_time();
            let give_up = Instant::now() + Duration::from_secs(30);
            while thread_time().saturating_sub(began) < 2 * POLL_CPU_MAX && Instant::now() < give_up
            {
            }
        };
        assert_eq!(polls_over(busy), 1);
    }
}
