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

/// Gives up the processor for the shortest time that the system knows, about a twentieth of a millisecond. For work that
/// would otherwise go on for as long as the system lets it, while others wait for the processor: to be called once in a
/// fraction of a millisecond.
pub fn breathe() {
    std::thread::sleep(std::time::Duration::from_nanos(1));
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
