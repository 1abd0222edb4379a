//! Watches the memory of a server, or another figure, while something else is being measured.

use crate::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);

type Figure = dyn Fn() -> u64 + Send + Sync;

/// A thread that remembers the most that it has seen of a figure.
pub(crate) struct Sampler {
    figure: Arc<Figure>,
    most: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Watches the anonymous memory of a process, in bytes.
    pub(crate) fn watch(pid: u32) -> Self {
        Self::of(move || process::anonymous_memory(pid))
    }

    /// Watches any figure.
    pub(crate) fn of(figure: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let figure: Arc<Figure> = Arc::new(figure);
        let (most, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (look, seen, told) = (Arc::clone(&figure), Arc::clone(&most), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !told.load(Relaxed) {
                seen.fetch_max(look(), Relaxed);
                std::thread::sleep(PAUSE);
            }
        });
        Self { figure, most, stop, thread: Some(thread) }
    }

    /// The most since the start or the last call.
    pub(crate) fn take(&self) -> u64 {
        self.most.swap(0, Relaxed).max((self.figure)())
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
