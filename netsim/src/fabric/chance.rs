//! Seeded chance: the same seed gives the same lab.

/// A generator of pseudo-random numbers (xorshift64*, Vigna 2016): small, fast, and good enough to drop packets by.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        // Any state but zero will do; the multiplication keeps neighbouring seeds apart.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from 0 to, not including, 1.
    pub(super) fn unit(&mut self) -> f64 {
        // The upper 53 bits are what a double can hold.
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether something of this probability happens.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }
}
