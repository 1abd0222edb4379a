//! When to ask again, and how long to wait before.
//!
//! As the SDKs do: on lost connections, on 408 and 429, and on 500, 502, 503 and 504; waits double, vary by
//! chance so that many clients do not come back together, and last at least as long as the service asks.

use rowhouse_env::Random;
use std::time::Duration;

/// Attempts in all. The waits between them add up to about a minute.
pub(crate) const ATTEMPTS: u32 = 9;
/// Attempts where nobody has ever answered: more likely the address is wrong.
pub(crate) const ATTEMPTS_UNANSWERED: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// Whether an answer with this status may be different the next time.
pub(crate) fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// The wait after so many attempts: between half of the doubled one and all of it.
pub(crate) fn wait(attempts: u32, asked: Option<Duration>, random: &dyn Random) -> Duration {
    let whole =
        FIRST_WAIT.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(LONGEST_WAIT);
    let mut byte = [0];
    random.fill(&mut byte);
    let varied = whole / 2 + whole.mul_f64(f64::from(byte[0]) / 510.0);
    varied.max(asked.unwrap_or_default().min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_env::SeededRandom;

    #[test]
    fn waits_double_up_to_the_longest() {
        let random = SeededRandom::new(1);
        for attempts in 1..40 {
            let whole = Duration::from_millis(200 << (attempts - 1).min(16)).min(LONGEST_WAIT);
            let found = wait(attempts, None, &random);
            assert!(whole / 2 <= found && found <= whole, "{attempts}: {found:?}");
        }
        assert!(wait(1, Some(Duration::from_secs(3)), &random) >= Duration::from_secs(3));
        assert!(wait(1, Some(Duration::from_mins(50)), &random) <= LONGEST_WAIT);
    }
}
