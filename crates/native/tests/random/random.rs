//! Generates random numbers and the bits of random lanes.

use tilewright_native::ir::Lane;

/// Random numbers by `SplitMix64`. Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom
/// Number Generators", 2014.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    /// Returns true in this percentage of the calls.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Returns the bits of a random lane, often an edge case.
    pub fn bits(&mut self, lane: Lane) -> u64 {
        let width = 8 * lane.bytes();
        let kept = u64::MAX >> (64 - width);
        match lane {
            Lane::F32 if self.chance(70) => u64::from(self.single().to_bits()),
            Lane::F64 if self.chance(70) => self.double().to_bits(),
            _ => {
                let any = self.next();
                let power = 1 << self.below(width);
                let edges =
                    [0, 1, u64::MAX, kept >> 1, (kept >> 1) + 1, power, power.wrapping_neg(), power - 1];
                let bits = match self.below(4) {
                    0 => any,
                    1 => any % 40,
                    2 => (any % 40).wrapping_neg(),
                    _ => self.pick(&edges),
                };
                bits & kept
            }
        }
    }

    fn single(&mut self) -> f32 {
        let edges = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            2.5,
            -3.5,
            65504.0,
            65520.0,
            6e-8,
            3e-8,
            1e-40,
            f32::MIN_POSITIVE,
            f32::MAX,
            f32::MIN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::from_bits(0xff80_0001),
            8_388_607.5,
            2_147_483_648.0,
            -2_147_483_648.0,
            4_294_967_296.0,
            9.223_372e18,
            1.844_674_4e19,
        ];
        if self.chance(50) {
            self.pick(&edges)
        } else {
            ((self.next() % 20001) as f32 - 10000.0) / self.pick(&[1.0, 2.0, 16.0, 1000.0])
        }
    }

    fn double(&mut self) -> f64 {
        let edges = [
            1e-320,
            f64::MIN_POSITIVE,
            f64::MAX,
            f64::MIN,
            f64::NAN,
            f64::from_bits(0xfff0_0000_0000_0001),
            4_503_599_627_370_495.5,
            2_147_483_647.5,
            -2_147_483_648.9,
            9.223_372_036_854_775e18,
            1.844_674_407_370_955e19,
            1.000_000_059_604_644_8,
            1e39,
        ];
        if self.chance(30) { self.pick(&edges) } else { f64::from(self.single()) }
    }
}
