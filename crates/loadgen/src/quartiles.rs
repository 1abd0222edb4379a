//! Median and quartiles of a few figures.

/// Smaller differences between ratios come from the representation of numbers.
pub(crate) const ROUNDING: f64 = 1e-9;

/// The middle half of a series.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Quartiles {
    pub(crate) q1: f64,
    pub(crate) median: f64,
    pub(crate) q3: f64,
}

impl Quartiles {
    /// Quartiles between two figures are interpolated. Without any figure they are not numbers.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
            let position = share * last as f64;
            let (lower, upper) = (position.floor() as usize, position.ceil() as usize);
            // Equal ends are not interpolated: the difference of two infinities is not a number.
            if sorted[lower].total_cmp(&sorted[upper]).is_eq() {
                return sorted[lower];
            }
            sorted[lower] + (sorted[upper] - sorted[lower]) * position.fract()
        };
        Self { q1: at(0.25), median: at(0.5), q3: at(0.75) }
    }

    /// The distance between the first and the third quartile.
    pub(crate) fn spread(self) -> f64 {
        self.q3 - self.q1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_odd_even_and_single_series() {
        let cases: &[(&[f64], [f64; 3])] = &[
            (&[7.0], [7.0, 7.0, 7.0]),
            (&[2.0, 1.0], [1.25, 1.5, 1.75]),
            (&[3.0, 1.0, 2.0], [1.5, 2.0, 2.5]),
            (&[4.0, 3.0, 2.0, 1.0], [1.75, 2.5, 3.25]),
            (&[5.0, 1.0, 4.0, 2.0, 3.0], [2.0, 3.0, 4.0]),
            (&[1.0, 1.0, 1.0, 100.0], [1.0, 1.0, 25.75]),
        ];
        for (figures, [q1, median, q3]) in cases {
            let quartiles = Quartiles::of(figures.iter().copied());
            assert_eq!(quartiles, Quartiles { q1: *q1, median: *median, q3: *q3 }, "{figures:?}");
        }
    }

    #[test]
    fn twelve_rounds() {
        let quartiles = Quartiles::of((1..=12).map(f64::from));
        assert_eq!(quartiles, Quartiles { q1: 3.75, median: 6.5, q3: 9.25 });
        assert!((quartiles.spread() - 5.5).abs() < 1e-12);
    }

    #[test]
    fn figures_that_are_missing_or_infinite() {
        assert!(Quartiles::of([]).median.is_nan());
        let infinite = Quartiles::of([f64::INFINITY, f64::INFINITY]);
        assert!(infinite.median.is_infinite() && infinite.spread().is_nan());
    }
}
