//! Latencies in buckets whose width grows with the value.
//!
//! A quantile is off by less than one hundredth of itself, whatever the size. Recording is an addition to
//! an array, and histograms of several runs add up.

use std::time::Duration;

/// Sub-buckets per power of two, as a power of two: 128 of them, so that a bucket is under 0.8 % wide.
const SUB_BITS: u32 = 7;
/// Longer times than this, in nanoseconds (18 minutes), share the last bucket.
const LONGEST: u64 = (1 << 40) - 1;

/// Counts of latencies.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    largest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; bucket(LONGEST) + 1], total: 0, largest: 0 }
    }
}

impl Histogram {
    /// Counts one latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST).min(LONGEST);
        self.counts[bucket(nanoseconds)] += 1;
        self.total += 1;
        self.largest = self.largest.max(nanoseconds);
    }

    /// Counts everything that another histogram has counted.
    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.largest = self.largest.max(other.largest);
    }

    /// The latency that this share of all (0 to 1) do not exceed. Zero if there are none.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let wanted = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(upper_edge(index).min(self.largest));
            }
        }
        Duration::from_nanos(self.largest)
    }

    /// The longest latency, exactly.
    pub(crate) fn largest(&self) -> Duration {
        Duration::from_nanos(self.largest)
    }
}

/// Below 256 a value is its own bucket; above, the highest eight bits and the exponent decide.
fn bucket(value: u64) -> usize {
    let exponent = (u64::BITS - value.leading_zeros()).saturating_sub(SUB_BITS + 1);
    ((u64::from(exponent) << SUB_BITS) + (value >> exponent)) as usize
}

/// The largest value of a bucket.
fn upper_edge(index: usize) -> u64 {
    let index = index as u64;
    let exponent = (index >> SUB_BITS).saturating_sub(1);
    ((index - (exponent << SUB_BITS) + 1) << exponent) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_of_known_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        for microseconds in 1..=1000 {
            histogram.record(Duration::from_micros(microseconds));
        }
        let mut twice = histogram.clone();
        twice.add(&histogram);
        for (share, expected) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            for counted in [&histogram, &twice] {
                let found = counted.quantile(share).as_secs_f64() * 1e6;
                assert!((found / expected - 1.0).abs() < 0.01, "{share}: {found}");
            }
        }
        assert_eq!(histogram.largest(), Duration::from_millis(1));
    }

    #[test]
    fn a_very_long_time_is_counted_too() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::MAX);
        assert_eq!(histogram.quantile(0.5), Duration::from_nanos(LONGEST));
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_value_and_is_narrow(value in 0..LONGEST) {
            let index = bucket(value);
            let edge = upper_edge(index);
            prop_assert!(value <= edge);
            prop_assert!(edge - value <= value / 128);
            prop_assert_eq!(bucket(edge), index);
            prop_assert_eq!(bucket(edge + 1), index + 1);
        }
    }
}
