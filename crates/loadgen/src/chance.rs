//! Random choices that repeat: the same seed asks for the same keys in the same order.

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below the bound, which is not zero. The bias is below anything that could be measured.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let mixed = mixed ^ (mixed >> 31);
        ((u128::from(mixed) * u128::from(bound)) >> 64) as u64
    }
}
