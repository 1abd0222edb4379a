//! Watches the memory of a server while something else is being measured.

use crate::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);

/// A thread that remembers the most anonymous memory that it has seen.
#[derive(Debug)]
pub(crate) struct Sampler {
    pid: u32,
    most: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    pub(crate) fn watch(pid: u32) -> Self {
        let (most, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, told) = (Arc::clone(&most), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !told.load(Relaxed) {
                seen.fetch_max(process::anonymous_memory(pid), Relaxed);
                std::thread::sleep(PAUSE);
            }
        });
        Self { pid, most, stop, thread: Some(thread) }
    }

    /// The most since the start or the last call, in bytes.
    pub(crate) fn take(&self) -> u64 {
        self.most.swap(0, Relaxed).max(process::anonymous_memory(self.pid))
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
