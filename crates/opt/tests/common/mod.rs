//! An evaluator of tile IR that shares no code with the passes, and a generator of random programs.

pub mod evaluate;
pub mod generate;
pub mod number;

/// A small random number generator (`SplitMix64`): programs are known by their seed.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below the bound.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// How many programs a test tries.
pub fn seeds(default: u64) -> std::ops::Range<u64> {
    let count = std::env::var("TILEWRIGHT_SEEDS").ok().and_then(|text| text.parse().ok());
    0..count.unwrap_or(default)
}
