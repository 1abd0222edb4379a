//! A clock for leases.

use std::time::Duration;

/// How long the machine has been up, including the time that it was suspended. Never goes back.
///
/// A lease needs this clock: the other side goes on counting while this machine, or the virtual machine that it is,
/// is suspended. [`std::time::Instant`] stands still then on Linux.
pub fn boot_time() -> Duration {
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, clock_gettime};
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
    }
    #[cfg(not(target_os = "linux"))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::Command;

    const VARIABLE: &str = "ROWHOUSE_TEST_TIME_NAMESPACE";
    const SUSPENDED: Duration = Duration::from_hours(24);

    /// In a namespace where the clock that goes on while a machine is suspended is a day ahead of the one that does not.
    #[test]
    fn boot_time_includes_the_time_that_the_machine_was_suspended() {
        let text = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = text.split(' ').next().unwrap().parse().unwrap();
        let difference = (boot_time().as_secs_f64() - uptime).abs();
        assert!(difference < 5.0, "{difference}");
        if let Ok(before) = std::env::var(VARIABLE) {
            let passed = boot_time().as_secs_f64() - before.parse::<f64>().unwrap();
            assert!((passed - SUSPENDED.as_secs_f64()).abs() < 60.0, "{passed}");
            return;
        }
        let this_test = "boot::tests::boot_time_includes_the_time_that_the_machine_was_suspended";
        let offset = SUSPENDED.as_secs().to_string();
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--time", "--boottime", &offset, "--"]);
        if !command.arg("true").output().is_ok_and(|output| output.status.success()) {
            println!("suspended machine: NOT VERIFIED, no time namespace can be made here");
            return;
        }
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--time", "--boottime", &offset, "--"]);
        command.arg(std::env::current_exe().unwrap()).args(["--exact", this_test]);
        command.env(VARIABLE, boot_time().as_secs_f64().to_string());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}
