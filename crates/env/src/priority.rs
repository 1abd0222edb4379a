//! Work that can wait steps back behind work that somebody waits for.

/// How far a thread steps back, as `nice` counts: beside others that are busy it gets a tenth of what they get.
#[cfg(target_os = "linux")]
const STEPS: i32 = 10;
/// Nobody can step back further.
#[cfg(target_os = "linux")]
const LAST: i32 = 19;

/// From now on the calling thread lets others go first. Where a thread has no priority of its own, nothing changes.
pub fn step_back() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        let now = getpriority_process(None).unwrap_or(0);
        // If the system refuses, everything works as it would without.
        let _ = setpriority_process(None, now.saturating_add(STEPS).min(LAST));
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::process::getpriority_process;

    #[test]
    fn only_the_calling_thread_steps_back() {
        let before = getpriority_process(None).unwrap();
        let behind = std::thread::spawn(|| {
            step_back();
            getpriority_process(None).unwrap()
        });
        assert_eq!(behind.join().unwrap(), (before + STEPS).min(LAST));
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
