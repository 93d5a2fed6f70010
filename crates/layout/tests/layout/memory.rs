//! Compares swizzles with the PTX ISA, and bank conflicts with known patterns.

use tilewright_layout::{
    Fragment, Input, Layout, MatrixAccess, Mma, SwizzleMode, bank_use, blocked, ldmatrix_bank_use,
    matrix_bank_use, swizzled,
};

/// For each mode: a row's bytes, and the chunk index bits that it changes. A row of the tile has
/// 256 bytes.
const MODES: [(SwizzleMode, u32, u32); 4] = [
    (SwizzleMode::None, 256, 0),
    (SwizzleMode::Bytes32, 32, 0b1),
    (SwizzleMode::Bytes64, 64, 0b11),
    (SwizzleMode::Bytes128, 128, 0b111),
];

#[test]
fn swizzles_permute_chunks_by_address_bits() {
    for element_bits in [8, 16, 32, 64] {
        for (mode, row_bytes, mask) in MODES {
            let row = row_bytes * 8 / element_bits;
            let columns = 256 * 8 / element_bits;
            for order in [[1, 0], [0, 1]] {
                let shape = if order[0] == 1 { [32, columns] } else { [columns, 32] };
                let memory = swizzled(&shape, &order, element_bits, mode);
                let placement = memory.inverse().expect("a buffer holds each element once");
                for (line, position) in
                    (0..32).flat_map(|line| (0..columns).map(move |column| (line, column)))
                {
                    // The position without a swizzle: the tile is split into boxes whose rows have
                    // the mode's length.
                    let plain = position / row * row * 32 + line * row + position % row;
                    let address = plain * element_bits / 8;
                    let expected = address ^ (address >> 7 & mask) << 4;
                    let coordinates = if order[0] == 1 { [line, position] } else { [position, line] };
                    let offset = placement.apply(memory.output().index(&coordinates));
                    assert_eq!(offset * element_bits / 8, expected, "{mode:?} {line} {position}");
                }
            }
        }
    }
}

#[test]
fn the_widest_swizzle_serves_ldmatrix_without_conflicts() {
    for element_bits in [8, 16, 32] {
        for row_bytes in [16, 32, 64, 128, 256, 512] {
            let columns = row_bytes * 8 / element_bits;
            let mode = SwizzleMode::widest(row_bytes);
            let memory = swizzled(&[64, columns], &[1, 0], element_bits, mode);
            let cost = ldmatrix_bank_use(&memory, element_bits, 0);
            assert_eq!((cost.instructions, cost.conflicts()), (8 * row_bytes / 16, 0), "{row_bytes} bytes");
            let transposed = swizzled(&[columns, 64], &[0, 1], element_bits, mode);
            assert_eq!(ldmatrix_bank_use(&transposed, element_bits, 1).conflicts(), 0);
            // Without a swizzle, the rows of a matrix share the banks of one 16-byte chunk.
            let plain = ldmatrix_bank_use(&Layout::strided(&[64, columns], &[1, 0]), element_bits, 0);
            let wavefronts = (row_bytes / 16).min(8);
            assert_eq!(plain.wavefronts, plain.instructions * wavefronts, "{row_bytes} bytes");
        }
    }
}

#[test]
fn a_three_dimensional_buffer_repeats_the_matrix() {
    let flat = swizzled(&[16, 64], &[1, 0], 16, SwizzleMode::Bytes128);
    let deep = swizzled(&[4, 16, 64], &[2, 1, 0], 16, SwizzleMode::Bytes128);
    let outer = Layout::identity(3, 0, Input::Offset, 4);
    assert_eq!(deep, flat.insert_axis(0).product(&outer));
}

#[test]
fn known_bank_conflicts() {
    let memory = Layout::strided(&[32, 32], &[1, 0]);
    let row = blocked(&[32, 32], &[1, 1], &[1, 32], &[1, 1], &[1, 0]);
    let column = blocked(&[32, 32], &[1, 1], &[32, 1], &[1, 1], &[0, 1]);
    let broadcast = Layout::replicated(2, Input::Lane, 32).cover(&[32, 32], &[1, 0]);
    let rows_of_four = blocked(&[32, 32], &[1, 4], &[4, 8], &[1, 1], &[1, 0]);
    let columns_of_four = blocked(&[32, 32], &[1, 4], &[32, 1], &[1, 1], &[1, 0]);
    // A row in the vectors of eight lanes, or in those of sixteen. The other lanes have copies.
    let with_copies = |vector: &[&[u32]], lanes: &[&[u32]]| {
        let rows: [&[u32]; 5] = [&[1, 0], &[2, 0], &[4, 0], &[8, 0], &[16, 0]];
        let registers = [vector, &rows].concat();
        Layout::from_bases(&[32, 32], &[(Input::Register, &registers), (Input::Lane, lanes)])
    };
    let four: [&[u32]; 2] = [&[0, 1], &[0, 2]];
    let neighbors_have_fours = with_copies(&four, &[&[0, 4], &[0, 0], &[0, 8], &[0, 16], &[0, 0]]);
    let eighths_have_fours = with_copies(&four, &[&[0, 4], &[0, 8], &[0, 16], &[0, 0], &[0, 0]]);
    let neighbors_have_twos = with_copies(&four[..1], &[&[0, 0], &[0, 2], &[0, 4], &[0, 8], &[0, 16]]);
    let halves_have_twos = with_copies(&four[..1], &[&[0, 2], &[0, 4], &[0, 8], &[0, 16], &[0, 0]]);
    // (layout, bits, width, instructions, wavefronts of each instruction)
    let cases = [
        (&row, 32, 1, 32, 1),
        (&column, 32, 1, 32, 32),
        // Rows of 64 bytes: two lanes access different banks of each 128-byte line.
        (&column, 16, 1, 32, 16),
        (&column, 8, 1, 32, 8),
        // Each lane accesses two words, so half a warp is served at a time.
        (&row, 64, 1, 32, 2),
        (&column, 64, 1, 32, 32),
        (&broadcast, 32, 1, 1024, 1),
        (&rows_of_four, 32, 4, 8, 4),
        (&rows_of_four, 32, 2, 16, 4),
        (&columns_of_four, 32, 4, 8, 32),
        // `ncu` counts the same wavefronts of loads with these addresses (H200, 2026-12-01).
        (&neighbors_have_fours, 32, 4, 32, 2),
        (&eighths_have_fours, 32, 4, 32, 4),
        (&neighbors_have_twos, 32, 2, 32, 1),
        (&halves_have_twos, 32, 2, 32, 2),
    ];
    for (layout, bits, width, instructions, wavefronts) in cases {
        let cost = bank_use(&memory, layout, bits, width);
        assert_eq!(
            (cost.instructions, cost.wavefronts),
            (instructions, instructions * wavefronts),
            "{layout} {bits}"
        );
    }
    let eight = bank_use(&memory, &rows_of_four, 32, 4);
    assert_eq!((eight.least_wavefronts, eight.conflicts()), (32, 0));
}

/// Executes `ldmatrix` as the ISA describes it.
fn ldmatrix(rows: &[u32], memory: &[u32], element_bits: u32, is_transposed: bool) -> Vec<Vec<Vec<u32>>> {
    let per_word = 32 / element_bits;
    let matrix = |number: usize| {
        let row = |row: u32| rows[number * 8 + row as usize];
        let lane = |lane: u32| {
            let element = |element: u32| {
                let address = if is_transposed {
                    row(lane % 4 * 2 + element) + lane / 4
                } else {
                    row(lane / 4) + lane % 4 * per_word + element
                };
                memory[address as usize]
            };
            (0..per_word).map(element).collect()
        };
        (0..32).map(lane).collect()
    };
    (0..rows.len() / 8).map(matrix).collect()
}

/// Loads a fragment by the plan and compares it with its layout.
fn check_matrix_access(layout: &Layout, memory: &Layout, element_bits: u32, plan: &MatrixAccess) {
    let contents: Vec<u32> = (0..1 << memory.rank()).map(|offset| memory.apply(offset)).collect();
    for warp in 0..1 << layout.bits_of(Input::Warp) {
        for access in 0..plan.registers.accesses() {
            let registers = plan.registers.registers(access);
            let address = |lane| {
                let place = [(Input::Register, registers[0]), (Input::Lane, lane), (Input::Warp, warp)];
                plan.addresses.at(&place)
            };
            let rows: Vec<u32> = (0..8 * plan.matrices).map(address).collect();
            assert!(rows.iter().all(|row| (row * element_bits / 8).is_multiple_of(16)), "rows are aligned");
            let loaded = ldmatrix(&rows, &contents, element_bits, plan.is_transposed);
            let per_word = 32 / element_bits as usize;
            for (number, register) in registers.iter().enumerate() {
                for lane in 0..32 {
                    let place = [(Input::Register, *register), (Input::Lane, lane), (Input::Warp, warp)];
                    let found = loaded[number / per_word][lane as usize][number % per_word];
                    assert_eq!(found, layout.at(&place), "warp {warp} lane {lane} register {register}");
                }
            }
        }
    }
}

#[test]
fn operands_are_loaded_by_ldmatrix() {
    let shape = [64, 64];
    for (mma, element_bits) in
        [(Mma::new(16, 8, 16, 16), 16), (Mma::new(16, 8, 8, 32), 32), (Mma::new(16, 8, 32, 8), 8)]
    {
        for (fragment, contiguous) in [(Fragment::A, 1), (Fragment::B, 0), (Fragment::A, 0), (Fragment::B, 1)]
        {
            let layout = mma.layout(fragment, &shape, [2, 2]);
            let order = [contiguous, 1 - contiguous];
            let mode = SwizzleMode::widest(64 * element_bits / 8);
            for memory in [swizzled(&shape, &order, element_bits, mode), Layout::strided(&shape, &order)] {
                let plan = layout.matrix_access(&memory, element_bits);
                // `ldmatrix` needs a contiguous K axis, except for 16-bit elements, which `.trans`
                // transposes.
                let along_k = contiguous == usize::from(fragment == Fragment::A);
                assert_eq!(plan.is_some(), along_k || element_bits == 16);
                let Some(plan) = plan else { continue };
                assert_eq!((plan.is_transposed, plan.matrices), (!along_k, 4));
                check_matrix_access(&layout, &memory, element_bits, &plan);
            }
        }
    }
}

#[test]
fn matrices_of_a_tile_have_the_conflicts_of_its_buffer() {
    let shape = [64, 64];
    for (mma, bits) in
        [(Mma::new(16, 8, 16, 16), 16), (Mma::new(16, 8, 8, 32), 32), (Mma::new(16, 8, 32, 8), 8)]
    {
        let layout = mma.layout(Fragment::A, &shape, [1, 1]);
        let widest = swizzled(&shape, &[1, 0], bits, SwizzleMode::widest(64 * bits / 8));
        for (memory, has_conflicts) in [(widest, false), (Layout::strided(&shape, &[1, 0]), true)] {
            let plan = layout.matrix_access(&memory, bits).expect("its rows are contiguous");
            let (found, buffer) = (matrix_bank_use(&plan, bits), ldmatrix_bank_use(&memory, bits, 0));
            assert_eq!(found.instructions * plan.matrices, buffer.instructions);
            assert_eq!(
                (found.wavefronts, found.least_wavefronts),
                (buffer.wavefronts, buffer.least_wavefronts)
            );
            assert_eq!((found.conflicts() > 0, plan.has_conflicts(bits)), (has_conflicts, has_conflicts));
        }
    }
}

#[test]
fn small_operands_take_fewer_matrices() {
    let mma = Mma::new(16, 8, 16, 16);
    let memory = swizzled(&[16, 16], &[0, 1], 16, SwizzleMode::Bytes32);
    for (layout, matrices) in [(mma.a(), 4), (mma.layout(Fragment::B, &[16, 16], [1, 2]), 2)] {
        let plan = layout.matrix_access(&memory, 16).expect("16 bytes are consecutive along k");
        assert_eq!(plan.matrices, matrices);
        check_matrix_access(&layout, &memory, 16, &plan);
    }
    let rows = blocked(&[16, 16], &[1, 8], &[16, 2], &[1, 1], &[1, 0]);
    assert_eq!(rows.matrix_access(&memory, 16), None);
    assert_eq!(mma.a().matrix_access(&Layout::strided(&[16, 16], &[1, 0]), 64), None);
}

#[test]
fn rows_that_are_not_whole_are_refused() {
    let (a, memory) = (Mma::new(16, 8, 16, 16).a(), Layout::strided(&[16, 16], &[1, 0]));
    assert!(a.matrix_access(&memory, 16).is_some());
    // A lane or register bit that selects another row must not change the position in the row. No
    // warp bit may change this position.
    let mixed = |input: Input, bit: usize, with: u32| {
        let mut bases = a.bases(input).to_vec();
        bases[bit] ^= with;
        a.with_bases(input, &bases)
    };
    for layout in [mixed(Input::Lane, 2, 2), mixed(Input::Lane, 4, 1), mixed(Input::Register, 1, 4)] {
        assert_eq!(layout.matrix_access(&memory, 16), None, "{layout}");
    }
    assert_eq!(a.with_bases(Input::Warp, &[4]).matrix_access(&memory, 16), None);
    // A register bit may also change the position within the word.
    let renamed = mixed(Input::Register, 2, 1);
    let plan = renamed.matrix_access(&memory, 16).unwrap();
    check_matrix_access(&renamed, &memory, 16, &plan);
}

/// Compares the layout of a box with the offsets of its elements in the buffer.
#[test]
fn parts_of_buffers_are_contiguous() {
    let shape = [64, 64];
    let mut found = 0;
    for (mode, ..) in MODES {
        for order in [[1, 0], [0, 1]] {
            let whole = swizzled(&shape, &order, 16, mode);
            let placement = whole.inverse().expect("a buffer holds each element once");
            for (part, first) in
                [([8, 64], [24, 0]), ([64, 16], [0, 16]), ([4, 64], [4, 0]), ([32, 64], [32, 0])]
            {
                let elements = || (0..part[0]).flat_map(|row| (0..part[1]).map(move |column| [row, column]));
                let at = |[row, column]: [u32; 2]| {
                    placement.apply(whole.output().index(&[first[0] + row, first[1] + column]))
                };
                let start = elements().map(at).min().expect("a part has elements");
                let size = part[0] * part[1];
                let Some((layout, index)) = whole.contiguous_part(&part, &first) else {
                    let is_block = elements().map(at).all(|offset| offset / size == start / size);
                    assert!(!is_block || at([0, 0]) != start, "{mode:?} {order:?} {part:?}");
                    continue;
                };
                found += 1;
                let inside = layout.inverse().expect("a part holds each element once");
                for element in elements() {
                    let offset = inside.apply(layout.output().index(&element));
                    assert_eq!(index * size + offset, at(element), "{mode:?} {order:?} {part:?}");
                }
            }
        }
    }
    assert!(found > 8, "{found}");
}
