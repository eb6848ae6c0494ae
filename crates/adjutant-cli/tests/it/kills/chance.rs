//! Pseudo-random choices that one seed reproduces.

/// SplitMix64: small, and good enough to choose moments.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns an independent generator for one of several threads.
    pub(crate) const fn branch(&self, number: u64) -> Self {
        Self(self.0 ^ number.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Takes the seed from `ADJUTANT_KILLS_SEED`, or from the clock.
pub(crate) fn seed() -> u64 {
    let said = std::env::var("ADJUTANT_KILLS_SEED").ok();
    said.map_or_else(
        || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            u64::from(now.unwrap().subsec_nanos())
        },
        |seed| seed.parse().unwrap(),
    )
}
