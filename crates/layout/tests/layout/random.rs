//! Generates random layouts, and runs property tests with the same cases in every run.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tilewright_layout::{Hardware, Input, Layout, Tile};

/// The `trip_cost` that the tests pass to `convert`.
pub const TRIP_COST: u32 = 40;

/// Runs `test` on `cases` values; it fails by panicking.
pub fn check<S: Strategy>(cases: u32, strategy: S, test: impl Fn(S::Value)) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let result = TestRunner::new_with_rng(config, random).run(&strategy, |value| {
        test(value);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// The numbers of bits of register, lane and warp.
#[derive(Debug, Clone, Copy)]
pub struct Bits {
    pub register: u32,
    pub lane: u32,
    pub warp: u32,
}

impl Bits {
    pub fn total(self) -> u32 {
        self.register + self.lane + self.warp
    }

    /// Returns the layout of a tile with these columns, one for each bit.
    pub fn layout(self, tile: &Tile, columns: &[u32]) -> Layout {
        let input = Hardware::new(&[
            (Input::Register, self.register),
            (Input::Lane, self.lane),
            (Input::Warp, self.warp),
        ]);
        Layout::new(input, tile.clone(), columns.into())
    }
}

/// Generates shapes with `bits` bits in 1 to 3 axes.
pub fn tiles(bits: u32) -> impl Strategy<Value = Tile> {
    (0..=bits, 0..=bits, 1..=3_usize).prop_map(move |(a, b, rank)| {
        let (low, high) = (a.min(b), a.max(b));
        match rank {
            1 => Tile::new(&[1 << bits]),
            2 => Tile::new(&[1 << low, 1 << (bits - low)]),
            _ => Tile::new(&[1 << low, 1 << (high - low), 1 << (bits - high)]),
        }
    })
}

/// Generates columns of a surjective map from `total` bits to `bits` bits. The columns are unit
/// vectors, zeros and random vectors; at most `mixing` of them are replaced by sums.
pub fn surjective(total: u32, bits: u32, mixing: usize) -> impl Strategy<Value = Vec<u32>> {
    assert!(total >= bits);
    let limit = (1_u64 << bits) as u32;
    let further = prop_oneof![Just(0), 0..limit];
    let columns = vec(further, (total - bits) as usize)
        .prop_map(move |further| (0..bits).map(|bit| 1 << bit).chain(further).collect::<Vec<u32>>());
    let pairs = vec((0..total.max(1) as usize, 0..total.max(1) as usize), 0..=mixing);
    (columns.prop_shuffle(), pairs).prop_map(|(mut columns, pairs)| {
        for (a, b) in pairs {
            if a != b {
                columns[a] ^= columns[b];
            }
        }
        columns
    })
}

/// Generates numbers of input bits that suffice for a tile of `bits` bits.
pub fn enough_bits(bits: u32) -> impl Strategy<Value = Bits> {
    (0..=5_u32, 0..=2_u32, 0..=2_u32).prop_map(move |(lane, warp, spare)| Bits {
        register: bits.saturating_sub(lane + warp) + spare,
        lane,
        warp,
    })
}

/// Generates layouts that hold every element of a tile of up to 2^9 elements.
pub fn layouts() -> impl Strategy<Value = Layout> {
    (0..=9_u32)
        .prop_flat_map(|bits| (tiles(bits), enough_bits(bits), prop_oneof![Just(0), Just(12)]))
        .prop_flat_map(|(tile, inputs, mixing)| {
            let bits = tile.shape().iter().map(|size| size.ilog2()).sum();
            (Just(tile), Just(inputs), surjective(inputs.total(), bits, mixing))
        })
        .prop_map(|(tile, inputs, columns)| inputs.layout(&tile, &columns))
}

/// Returns every hardware index with its element, the sum of the columns of its bits.
pub fn places(layout: &Layout) -> impl Iterator<Item = (u32, u32)> {
    let columns = layout.columns().to_vec();
    (0..1_u32 << columns.len()).map(move |place| {
        let selected = columns.iter().enumerate().filter(|(bit, _)| place >> bit & 1 == 1);
        (place, selected.fold(0, |sum, (_, column)| sum ^ column))
    })
}
