//! Compares each operation of the algebra with its definition, element by element.

use proptest::prelude::*;
use tilewright_layout::{Input, Layout, blocked, coalesced};

use crate::random::{check, enough_bits, layouts, places, surjective, tiles};

/// Returns the coordinates of the element at a register, a lane and a warp.
fn at(layout: &Layout, parts: [u32; 3]) -> Vec<u32> {
    let inputs = [Input::Register, Input::Lane, Input::Warp];
    layout.coordinates(&inputs.into_iter().zip(parts).collect::<Vec<_>>()).to_vec()
}

/// Returns every combination of register, lane and warp.
fn parts(layout: &Layout) -> Vec<[u32; 3]> {
    let size = |input| 1_u32 << layout.bits_of(input);
    let mut all = Vec::new();
    for warp in 0..size(Input::Warp) {
        for lane in 0..size(Input::Lane) {
            all.extend((0..size(Input::Register)).map(|register| [register, lane, warp]));
        }
    }
    all
}

/// Generates layouts of rank 2, surjective or not.
fn any_matrices() -> impl Strategy<Value = Layout> {
    (0..=3_u32, 0..=3_u32, enough_bits(3)).prop_flat_map(|(rows, columns, inputs)| {
        let columns_of = prop::collection::vec(0..1_u32 << (rows + columns), inputs.total() as usize);
        columns_of.prop_map(move |images| {
            inputs.layout(&tilewright_layout::Tile::new(&[1 << rows, 1 << columns]), &images)
        })
    })
}

#[test]
fn application_is_the_sum_of_the_bases() {
    check(200, layouts(), |layout| {
        for (place, element) in places(&layout) {
            assert_eq!(layout.apply(place), element);
            let part = |input| layout.input().part(place, input);
            let parts = Input::ALL.map(|input| (input, part(input)));
            assert_eq!(layout.at(&parts), element);
            assert_eq!(layout.output().index(&layout.coordinates(&parts)), element);
        }
    });
}

#[test]
fn composition_applies_twice() {
    let pairs = (2..=8_u32).prop_flat_map(|bits| {
        let layout = || {
            (enough_bits(bits), tiles(bits)).prop_flat_map(move |(inputs, tile)| {
                surjective(inputs.total(), bits, 9).prop_map(move |columns| inputs.layout(&tile, &columns))
            })
        };
        (layout(), layout())
    });
    check(200, pairs, |(a, b)| {
        let b = b.reshape(&a.output().shape());
        let placement = b.right_inverse().expect("it is surjective");
        let transfer = a.then(&placement);
        assert_eq!(Some(&transfer), a.relative_to(&b).as_ref());
        for (place, element) in places(&a) {
            assert_eq!(transfer.apply(place), placement.apply(element));
            assert_eq!(b.apply(transfer.apply(place)), element);
        }
    });
}

#[test]
fn inverses_exist_where_they_should() {
    check(300, any_matrices(), |layout| {
        let images: std::collections::BTreeSet<u32> = places(&layout).map(|(_, element)| element).collect();
        let (places_count, elements) =
            (places(&layout).count(), layout.output().shape().iter().product::<u32>());
        let is_surjective = images.len() == elements as usize;
        let is_injective = images.len() == places_count;
        assert_eq!((layout.is_surjective(), layout.is_injective()), (is_surjective, is_injective));
        assert_eq!(1 << layout.rank(), images.len());
        assert_eq!(layout.right_inverse().is_some(), is_surjective);
        assert_eq!(layout.inverse().is_some(), is_surjective && is_injective);
        if let Some(inverse) = layout.inverse() {
            assert!(places(&layout).all(|(place, element)| inverse.apply(element) == place));
        }
        if let Some(inverse) = layout.right_inverse() {
            assert!((0..elements).all(|element| layout.apply(inverse.apply(element)) == element));
        }
        let zeros = places(&layout).filter(|(_, element)| *element == 0).count();
        assert_eq!(1 << layout.kernel().len(), zeros);
        assert!(layout.kernel().iter().all(|vector| layout.apply(*vector) == 0));
    });
}

#[test]
fn products_are_tiles_of_tiles() {
    check(60, (any_matrices(), any_matrices()), |(inner, outer)| {
        let product = inner.product(&outer);
        let size = |axis| inner.output().size(axis);
        for [low, high] in
            parts(&inner).into_iter().flat_map(|low| parts(&outer).into_iter().map(move |high| [low, high]))
        {
            let bits = [Input::Register, Input::Lane, Input::Warp].map(|input| inner.bits_of(input));
            let together = [0, 1, 2].map(|input| low[input] | high[input] << bits[input]);
            let (a, b) = (at(&inner, low), at(&outer, high));
            assert_eq!(at(&product, together), [a[0] + size(0) * b[0], a[1] + size(1) * b[1]]);
        }
        assert_eq!(product.divide_left(&inner).as_ref(), Some(&outer));
        assert_eq!(product.divide_right(&outer).as_ref(), Some(&inner));
    });
}

#[test]
fn quotients_are_found_only_where_there_is_one() {
    check(500, (any_matrices(), any_matrices()), |(whole, part)| {
        if let Some(rest) = whole.divide_left(&part) {
            assert_eq!(part.product(&rest), whole);
        }
        if let Some(rest) = whole.divide_right(&part) {
            assert_eq!(rest.product(&part), whole);
        }
    });
    let rows = blocked(&[8, 8], &[1, 2], &[8, 4], &[1, 1], &[1, 0]);
    assert!(rows.divide_left(&Layout::identity(2, 1, Input::Register, 2)).is_some());
    assert!(rows.divide_left(&Layout::identity(2, 0, Input::Register, 2)).is_none());
    assert!(rows.divide_left(&Layout::identity(2, 1, Input::Register, 4)).is_none());
    assert!(rows.divide_left(&Layout::unit(1)).is_none());
}

#[test]
fn shape_operations_rename_coordinates() {
    check(80, layouts(), |layout| {
        let tile = layout.output();
        let shape = tile.shape();
        let rank = tile.rank();
        let permutation: Vec<usize> = (0..rank).map(|axis| (axis + 1) % rank).collect();
        let transposed = layout.transpose(&permutation);
        let flat = layout.reshape(&[shape.iter().product()]);
        let joined = layout.join();
        let beside = layout.concatenate(rank - 1, 4);
        for all in parts(&layout) {
            let coordinates = at(&layout, all);
            let rotated: Vec<u32> = permutation.iter().map(|axis| coordinates[*axis]).collect();
            assert_eq!(at(&transposed, all), rotated);
            let index =
                coordinates.iter().zip(&shape).fold(0, |index, (coordinate, size)| index * size + coordinate);
            assert_eq!(at(&flat, all), [index]);
            for axis in 0..rank {
                let mut rest = coordinates.clone();
                rest.remove(axis);
                let removed = layout.remove_axis(axis);
                assert_eq!(at(&removed, all), rest);
                rest.insert(axis, 0);
                assert_eq!(at(&removed.insert_axis(axis), all), rest);
                assert_eq!(at(&layout.collapse(axis), all), rest);
                // The broadcast of the collapsed axis repeats the registers in its second half.
                let broadcast = layout.collapse(axis).broadcast(axis, 2);
                for copy in 0..2 {
                    rest[axis] = copy;
                    assert_eq!(at(&broadcast, [all[0] + copy * layout.registers(), all[1], all[2]]), rest);
                }
            }
            for tile in 0..2 {
                let expected = [&coordinates[..], &[tile]].concat();
                assert_eq!(at(&joined, [2 * all[0] + tile, all[1], all[2]]), expected);
            }
            for tile in 0..4 {
                let mut expected = coordinates.clone();
                expected[rank - 1] += tile * shape[rank - 1];
                assert_eq!(at(&beside, [tile * layout.registers() + all[0], all[1], all[2]]), expected);
            }
        }
        assert_eq!(joined.split(), Some(layout.clone()));
        let reversed: Vec<usize> = (0..rank).map(|axis| (axis + rank - 1) % rank).collect();
        assert_eq!(transposed.transpose(&reversed), layout);
    });
}

#[test]
fn a_pair_that_is_not_in_the_lowest_register_does_not_split() {
    let lanes = Layout::identity(1, 0, Input::Lane, 2);
    assert_eq!(lanes.split(), None);
    assert_eq!(Layout::unit(0).split(), None);
    assert_eq!(Layout::identity(1, 0, Input::Register, 4).split(), None);
}

#[test]
fn restriction_fixes_the_other_inputs_to_zero() {
    check(200, layouts(), |layout| {
        let lanes = layout.restrict(&[Input::Lane]);
        assert_eq!(lanes.columns(), layout.bases(Input::Lane));
        for lane in 0..1 << layout.bits_of(Input::Lane) {
            assert_eq!(lanes.apply(lane), layout.at(&[(Input::Lane, lane)]));
        }
        let swapped = layout.with_bases(Input::Warp, &[]).with_bases(Input::Warp, layout.bases(Input::Warp));
        assert_eq!(swapped, layout);
    });
}

/// Compares blocked layouts with their definition: coordinates by division with remainder.
#[test]
fn blocked_layouts_are_boxes_of_boxes_of_boxes() {
    let log = || 0..=3_u32;
    let sizes =
        ([log(), log()], [log(), log()], [0..=2_u32, 0..=2_u32], [0..=6_u32, 0..=6_u32], any::<bool>());
    check(300, sizes, |(thread, warp, block, shape, rows_first)| {
        let power = |logs: [u32; 2]| logs.map(|log| 1_u32 << log);
        let order = if rows_first { [0, 1] } else { [1, 0] };
        let (threads, shape) = (power(thread), power(shape));
        let layout = blocked(&shape, &threads, &power(warp), &power(block), &order);
        assert!(layout.is_surjective());
        let box_size = [0, 1].map(|axis| 1_u32 << (thread[axis] + warp[axis] + block[axis]));
        // Splits a number into coordinates in a box, the first axis of the order fastest.
        let split = |number: u32, sizes: [u32; 2]| {
            let mut coordinates = [0; 2];
            coordinates[order[0]] = number % sizes[order[0]];
            coordinates[order[1]] = number / sizes[order[0]];
            coordinates
        };
        let own = [0, 1].map(|axis| threads[axis].min(shape[axis]));
        let times = [0, 1].map(|axis| (shape[axis] / box_size[axis]).max(1));
        assert_eq!(layout.registers(), own[0] * own[1] * times[0] * times[1]);
        for [register, lane, warp_number] in parts(&layout) {
            let inside = split(register % (own[0] * own[1]), own);
            let outside = split(register / (own[0] * own[1]), times);
            let (lanes, warps) = (split(lane, power(warp)), split(warp_number, power(block)));
            let expected = [0, 1].map(|axis| {
                let thread_number = lanes[axis] + (warps[axis] << warp[axis]);
                (inside[axis] + thread_number * threads[axis] + outside[axis] * box_size[axis]) % shape[axis]
            });
            assert_eq!(at(&layout, [register, lane, warp_number]), expected);
        }
    });
}

#[test]
fn coalesced_layouts_fill_the_fast_axis_first() {
    let sizes = (prop::collection::vec(0..=6_u32, 0..4), 0..=3_u32, 0..=5_u32, 0..=2_u32);
    check(200, sizes, |(logs, width, lanes, warps)| {
        let shape: Vec<u32> = logs.iter().map(|log| 1 << log).collect();
        for reversed in [false, true] {
            let mut order: Vec<usize> = (0..shape.len()).rev().collect();
            if reversed {
                order.reverse();
            }
            let layout = coalesced(&shape, &order, 1 << width, 1 << lanes, 1 << warps);
            assert!(layout.is_surjective());
            assert_eq!((layout.bits_of(Input::Lane), layout.bits_of(Input::Warp)), (lanes, warps));
            let Some(first) = order.first() else { continue };
            // A run, then the lanes, then the warps are consecutive, modulo the number of elements.
            let run = shape[*first].min(1 << width);
            let placement =
                Layout::strided(&shape, &order).inverse().expect("memory holds each element once");
            let offset = |parts: [u32; 3]| placement.apply(layout.output().index(&at(&layout, parts)));
            for all in parts(&layout).into_iter().filter(|all| all[0] < run) {
                let number = all[0] + run * (all[1] + (all[2] << lanes));
                assert_eq!(offset(all), number % shape.iter().product::<u32>());
            }
        }
    });
}

#[test]
fn covering_repeats_in_registers_and_wraps_around() {
    check(200, (any_matrices(), 0..=4_u32, 0..=4_u32), |(layout, rows, columns)| {
        let shape = [1 << rows, 1 << columns];
        let covered = layout.cover(&shape, &[1, 0]);
        let tile = layout.output();
        assert_eq!(covered.output().shape()[..], shape);
        let fits = (0..2).all(|axis| tile.size(axis) <= shape[axis]);
        if !fits || layout.bases(Input::Register).contains(&0) {
            // `cover` may drop registers, so only register 0 of each thread is compared.
            for all in parts(&layout).into_iter().filter(|all| all[0] == 0) {
                let wrapped: Vec<u32> =
                    at(&layout, all).iter().zip(shape).map(|(coordinate, size)| coordinate % size).collect();
                assert_eq!(at(&covered, all), wrapped);
            }
            return;
        }
        let times = [0, 1].map(|axis| shape[axis] / tile.size(axis));
        assert_eq!(covered.registers(), layout.registers() * times[0] * times[1]);
        for all in parts(&covered) {
            let (register, copy) = (all[0] % layout.registers(), all[0] / layout.registers());
            let inner = at(&layout, [register, all[1], all[2]]);
            let outer = [copy / times[1], copy % times[1]];
            let expected = [0, 1].map(|axis| inner[axis] + outer[axis] * tile.size(axis));
            assert_eq!(at(&covered, all), expected);
        }
    });
}

#[test]
fn a_slice_is_some_registers_of_the_whole() {
    let places = (any_matrices(), (0..=2_u32, 0..=2_u32), (0..=2_u32, 0..=2_u32), any::<u32>());
    check(300, places, |(part, low, high, random)| {
        let sizes = [part.output().size(0), part.output().size(1)];
        let (low, high) = ([low.0, low.1], [high.0, high.1]);
        let steps = low.map(|bits| 1 << bits);
        let shape = [0, 1].map(|axis| sizes[axis] << (low[axis] + high[axis]));
        let starts =
            [0, 1].map(|axis| (random >> (8 * axis)) & (shape[axis] - 1) & !((sizes[axis] - 1) << low[axis]));
        let whole = part.unslice(&shape, &steps);
        assert_eq!(whole.output().shape()[..], shape);
        let first = part.slice_number(&shape, &steps, &starts) * part.registers();
        for [register, lane, warp] in parts(&part) {
            let inner = at(&part, [register, lane, warp]);
            let expected = [0, 1].map(|axis| starts[axis] + steps[axis] * inner[axis]);
            assert_eq!(at(&whole, [first + register, lane, warp]), expected);
        }
        assert_eq!(whole.slice(&sizes, &steps), part.without_duplicate_registers());
    });
}

#[test]
fn elementary_layouts() {
    assert_eq!(Layout::unit(2).coordinates(&[])[..], [0, 0]);
    let copies = Layout::replicated(1, Input::Lane, 4);
    assert_eq!(
        (copies.bits_of(Input::Lane), copies.coordinates(&[(Input::Lane, 3)])[..].to_vec()),
        (2, vec![0])
    );
    let stride = Layout::strided(&[4, 8], &[0, 1]);
    for offset in 0..32 {
        assert_eq!(stride.coordinates(&[(Input::Offset, offset)])[..], [offset % 4, offset / 4]);
    }
    let swapped =
        Layout::from_bases(&[2, 2], &[(Input::Lane, &[&[1, 0], &[1, 1]]), (Input::Warp, &[&[0, 1]])]);
    assert_eq!(swapped.coordinates(&[(Input::Lane, 3), (Input::Warp, 1)])[..], [0, 0]);
}

/// Lanes with copies get register bits and then hold all elements. Lanes without copies keep their
/// elements along other axes.
#[test]
fn lanes_with_copies_take_register_bits() {
    let row = blocked(&[1, 16], &[1, 2], &[4, 8], &[2, 1], &[1, 0]);
    let whole = row.broadcast(0, 16);
    assert_eq!(whole.registers(), 32);
    let shared = whole.shared_by_lanes(0).expect("two bits of the lane are free");
    assert_eq!(shared.to_string(), blocked(&[16, 16], &[1, 2], &[4, 8], &[1, 2], &[1, 0]).to_string());
    assert!(shared.is_surjective());
    // The row itself is unchanged.
    assert_eq!(shared.collapse(0).without_duplicate_registers(), row);
    // No lane has copies now.
    assert!(shared.shared_by_lanes(0).is_none());
    assert!(row.shared_by_lanes(1).is_some_and(|layout| layout.registers() == 1));
}
