//! Work side by side, so many pieces at a time.

use tokio::task::JoinSet;

/// After the first failure nothing is begun any more; what is under way is finished.
#[derive(Debug)]
pub(crate) struct Lanes<E> {
    running: JoinSet<Result<(), E>>,
    most: usize,
    outcome: Result<(), E>,
}

impl<E: Send + 'static> Lanes<E> {
    pub(crate) fn new(most: usize) -> Self {
        Self { running: JoinSet::new(), most: most.max(1), outcome: Ok(()) }
    }

    /// Begins it when there is room. False if something has failed: then it is not begun.
    pub(crate) async fn begin(
        &mut self,
        piece: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> bool {
        while self.running.len() >= self.most {
            self.wait_for_one().await;
        }
        if self.outcome.is_ok() {
            self.running.spawn(piece);
        }
        self.outcome.is_ok()
    }

    /// Waits for all, and tells the first failure.
    pub(crate) async fn finish(mut self) -> Result<(), E> {
        while !self.running.is_empty() {
            self.wait_for_one().await;
        }
        self.outcome
    }

    async fn wait_for_one(&mut self) {
        if let Some(done) = self.running.join_next().await {
            let done = done.expect("a piece of a transfer does not panic");
            if self.outcome.is_ok() {
                self.outcome = done;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::task::yield_now;

    #[tokio::test]
    async fn what_is_under_way_is_finished() {
        let (begun, finished) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut lanes = Lanes::new(3);
        for number in 0..10 {
            let (begun, finished) = (begun.clone(), finished.clone());
            let more = lanes.begin(async move {
                begun.fetch_add(1, Ordering::Relaxed);
                for _ in 0..number * 10 {
                    yield_now().await;
                }
                finished.fetch_add(1, Ordering::Relaxed);
                if number == 2 { Err("two") } else { Ok(()) }
            });
            if !more.await {
                break;
            }
        }
        assert_eq!(lanes.finish().await, Err("two"));
        let (begun, finished) = (begun.load(Ordering::Relaxed), finished.load(Ordering::Relaxed));
        assert!(begun < 10 && begun == finished, "{begun} begun, {finished} finished");
    }
}
