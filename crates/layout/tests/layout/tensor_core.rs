//! Compares the fragments with the formulas of the PTX ISA. Sections: "Matrix Fragments for
//! mma.m..n..k.." and "Matrix Fragments for `wgmma.mma_async.m64nNk..`". In each formula, `i` is
//! the element of the fragment. The group of the lane is `g = %laneid >> 2`; its index in the group
//! is `t = %laneid % 4`.

use tilewright_layout::{Fragment, Input, Layout, Mma};

/// Computes the row and the column from `i`, `g` and `t`.
type Formula = fn(u32, u32, u32) -> (u32, u32);

/// Checks every element of every lane, and the number of elements.
fn check(layout: &Layout, elements: u32, formula: Formula) {
    assert_eq!((layout.registers(), layout.bits_of(Input::Lane)), (elements, 5), "{layout}");
    for lane in 0..32 {
        for i in 0..elements {
            let (row, column) = formula(i, lane >> 2, lane % 4);
            let found = layout.coordinates(&[(Input::Lane, lane), (Input::Register, i)]);
            assert_eq!(found[..], [row, column], "lane {lane}, element {i} of {layout}");
        }
    }
    assert!(layout.is_surjective());
}

/// The accumulators of all shapes with 16 rows have pairs of columns. The second pair is 8 rows
/// below the first one.
const ACCUMULATOR: Formula = |i, g, t| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1));

#[test]
fn m16n8k16_of_16_bits() {
    let mma = Mma::new(16, 8, 16, 16);
    check(&mma.a(), 8, |i, g, t| {
        let row = if i < 2 || (4..6).contains(&i) { g } else { g + 8 };
        let column = if i < 4 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 };
        (row, column)
    });
    check(&mma.b(), 4, |i, g, t| (if i < 2 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 }, g));
    check(&mma.accumulator(), 4, ACCUMULATOR);
}

#[test]
fn m16n8k8_of_16_bits() {
    let mma = Mma::new(16, 8, 8, 16);
    check(&mma.a(), 4, |i, g, t| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1)));
    check(&mma.b(), 2, |i, g, t| (t * 2 + i, g));
    check(&mma.accumulator(), 4, ACCUMULATOR);
}

#[test]
fn m16n8k4_and_k8_of_tf32() {
    let k4 = Mma::new(16, 8, 4, 32);
    check(&k4.a(), 2, |i, g, t| (if i == 0 { g } else { g + 8 }, t));
    check(&k4.b(), 1, |_, g, t| (t, g));
    check(&k4.accumulator(), 4, ACCUMULATOR);
    let k8 = Mma::new(16, 8, 8, 32);
    check(&k8.a(), 4, |i, g, t| (if i == 0 || i == 2 { g } else { g + 8 }, if i < 2 { t } else { t + 4 }));
    check(&k8.b(), 2, |i, g, t| (if i == 0 { t } else { t + 4 }, g));
    check(&k8.accumulator(), 4, ACCUMULATOR);
}

#[test]
fn m16n8k16_and_k32_of_8_bits() {
    let k16 = Mma::new(16, 8, 16, 8);
    check(&k16.a(), 8, |i, g, t| (if i < 4 { g } else { g + 8 }, t * 4 + (i & 3)));
    check(&k16.b(), 4, |i, g, t| (t * 4 + i, g));
    check(&k16.accumulator(), 4, ACCUMULATOR);
    let k32 = Mma::new(16, 8, 32, 8);
    check(&k32.a(), 16, |i, g, t| {
        let row = if i < 4 || (8..12).contains(&i) { g } else { g + 8 };
        (row, if i < 8 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 })
    });
    check(&k32.b(), 8, |i, g, t| (if i < 4 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 }, g));
    check(&k32.accumulator(), 4, ACCUMULATOR);
}

#[test]
fn m8n8k16_of_8_bits() {
    let mma = Mma::new(8, 8, 16, 8);
    check(&mma.a(), 4, |i, g, t| (g, t * 4 + i));
    check(&mma.b(), 4, |i, g, t| (t * 4 + i, g));
    check(&mma.accumulator(), 2, |i, g, t| (g, t * 2 + i));
}

#[test]
fn m16n8k64_of_4_bits() {
    let mma = Mma::new(16, 8, 64, 4);
    check(&mma.a(), 32, |i, g, t| {
        let row = if i < 8 || (16..24).contains(&i) { g } else { g + 8 };
        (row, if i < 16 { t * 8 + (i & 7) } else { t * 8 + (i & 7) + 32 })
    });
    check(&mma.b(), 16, |i, g, t| (if i < 8 { t * 8 + (i & 7) } else { t * 8 + (i & 7) + 32 }, g));
}

#[test]
fn f64() {
    let small = Mma::new(8, 8, 4, 64);
    check(&small.a(), 1, |_, g, t| (g, t));
    check(&small.b(), 1, |_, g, t| (t, g));
    check(&small.accumulator(), 2, |i, g, t| (g, t * 2 + i));
    let k16 = Mma::new(16, 8, 16, 64);
    check(&k16.a(), 8, |i, g, t| if i % 2 == 0 { (g, i * 2 + t) } else { (g + 8, i * 2 - 2 + t) });
    check(&k16.b(), 4, |i, g, t| (i * 4 + t, g));
    check(&k16.accumulator(), 4, ACCUMULATOR);
}

/// In `wgmma`, warp `w` of the warpgroup has rows `16 w` to `16 w + 15`. Each further four elements
/// of the accumulator are 8 columns to the right.
#[test]
fn wgmma_m64() {
    for n in [8, 16, 64, 256] {
        let layout = Mma::new(64, n, 16, 16).accumulator();
        assert_eq!((layout.registers(), layout.bits_of(Input::Warp)), (n / 2, 2));
        for (warp, lane) in (0..4).flat_map(|warp| (0..32).map(move |lane| (warp, lane))) {
            for i in 0..n / 2 {
                let row = 16 * warp + lane / 4 + if i % 4 < 2 { 0 } else { 8 };
                let column = i / 4 * 8 + lane % 4 * 2 + (i & 1);
                let place = [(Input::Warp, warp), (Input::Lane, lane), (Input::Register, i)];
                assert_eq!(
                    layout.coordinates(&place)[..],
                    [row, column],
                    "n {n} warp {warp} lane {lane} d{i}"
                );
            }
        }
    }
    // Operand A from registers: each warp has the fragment of mma.sync.
    for (k, bits) in [(8, 32), (16, 16), (32, 8)] {
        let (group, warp) = (Mma::new(64, 64, k, bits).a(), Mma::new(16, 8, k, bits).a());
        assert_eq!(group, warp.product(&Layout::identity(2, 0, Input::Warp, 4)));
    }
}

#[test]
fn larger_products_repeat_the_instruction() {
    let mma = Mma::new(16, 8, 16, 16);
    let layout = |fragment, shape: [u32; 3]| mma.layout(fragment, &shape, [2, 2]);
    let accumulator = layout(Fragment::Accumulator, [2, 64, 32]);
    let (a, b) = (layout(Fragment::A, [2, 64, 128]), layout(Fragment::B, [2, 128, 32]));
    for (layout, fragment, size) in [(&accumulator, mma.accumulator(), 4), (&a, mma.a(), 8), (&b, mma.b(), 4)]
    {
        assert!(layout.is_surjective());
        let rest = layout.divide_left(&fragment.insert_axis(0)).expect("the instruction repeats");
        assert_eq!(rest.registers() * size, layout.registers());
    }
    // A warp has the rows of A and the columns of B of its accumulator.
    for warp in 0..4 {
        let at = |layout: &Layout| layout.coordinates(&[(Input::Warp, warp)]).to_vec();
        assert_eq!(at(&accumulator), [0, warp % 2 * 16, warp / 2 * 8]);
        assert_eq!((at(&a), at(&b)), (vec![0, warp % 2 * 16, 0], vec![0, 0, warp / 2 * 8]));
    }
    // Registers repeat the fragment along the last axis first.
    let repeated = |register| accumulator.coordinates(&[(Input::Register, register)]).to_vec();
    assert_eq!([4, 8, 16].map(repeated), [[0, 0, 16], [0, 32, 0], [1, 0, 0]]);
}

#[test]
#[should_panic(expected = "is smaller than the B of")]
fn a_tile_below_the_instruction_is_refused() {
    Mma::new(16, 8, 16, 16).layout(Fragment::B, &[8, 8], [1, 1]);
}

#[test]
#[should_panic(expected = "takes no operand B from registers")]
fn wgmma_takes_b_from_shared_memory() {
    Mma::new(64, 8, 16, 16).b();
}
