//! Compares the queries of code generation with a search over every hardware index.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tilewright_layout::{Input, Layout, Vector, blocked};

use crate::random::{check, layouts, places, surjective};

/// Checks the accesses of a vector against the offset of every hardware index.
fn check_vector(layout: &Layout, vector: &Vector, offset: impl Fn(u32) -> u32) {
    let representatives: BTreeSet<u32> = layout.representatives().into_iter().collect();
    for place in places(layout)
        .map(|(place, _)| place)
        .filter(|place| layout.input().part(*place, Input::Register) == 0)
    {
        let mut seen = BTreeSet::new();
        for access in 0..vector.accesses() {
            let registers = vector.registers(access);
            let start = offset(place | registers[0]);
            assert_eq!(start % vector.width(), 0, "an access is aligned");
            for (element, register) in registers.iter().enumerate() {
                assert_eq!(offset(place | register), start + element as u32);
                assert!(seen.insert(*register), "a register is in one access");
            }
        }
        assert_eq!(seen, representatives, "every element of the thread is in an access");
    }
}

/// Returns the width of the widest aligned run that every thread holds.
fn widest(layout: &Layout, limit: u32, offset: impl Fn(u32) -> u32) -> u32 {
    let mut threads: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let registers = layout.bits_of(Input::Register);
    for (place, _) in places(layout) {
        threads.entry(place >> registers).or_default().insert(offset(place));
    }
    let is_whole = |width: u32| {
        threads.values().all(|offsets| {
            offsets
                .iter()
                .all(|offset| (0..width).all(|element| offsets.contains(&(offset / width * width + element))))
        })
    };
    (0..=limit).map(|log| 1 << log).take_while(|width| is_whole(*width)).last().expect("one element is a run")
}

#[test]
fn vectors_along_an_axis() {
    check(300, layouts(), |layout| {
        let tile = layout.output();
        for axis in 0..tile.rank() {
            let vector = layout.vector_along(axis);
            // A buffer in which this axis is the fastest.
            let order: Vec<usize> = (0..tile.rank()).map(|i| (axis + i) % tile.rank()).collect();
            let memory = Layout::strided(&tile.shape(), &order);
            let placement = memory.inverse().unwrap();
            let offset = |place| placement.apply(layout.apply(place));
            check_vector(&layout, &vector, offset);
            for width in [1, 2, 64] {
                check_vector(&layout, &vector.at_most(width), offset);
                assert_eq!(vector.at_most(width).width(), width.min(vector.width()));
            }
        }
    });
}

#[test]
fn vectors_in_a_buffer_are_as_wide_as_they_can_be() {
    let cases = layouts().prop_flat_map(|layout| {
        let bits = layout.output().shape().iter().map(|size| size.ilog2()).sum();
        (Just(layout), surjective(bits, bits, 3))
    });
    check(300, cases, |(layout, columns)| {
        let memory = Layout::from_bases(&layout.output().shape(), &[]).with_bases(Input::Offset, &columns);
        let placement = memory.inverse().unwrap();
        let vector = layout.vector_in(&memory);
        check_vector(&layout, &vector, |place| placement.apply(layout.apply(place)));
        let offsets = layout.offsets_in(&memory);
        assert!(places(&layout).all(|(place, element)| offsets.apply(place) == placement.apply(element)));
        // The search also finds runs whose first registers differ between threads. One access
        // cannot move them.
        let found = widest(&layout, columns.len() as u32, |place| placement.apply(layout.apply(place)));
        assert!(vector.width() <= found);
        let mut images: Vec<u32> = layout.columns().iter().copied().filter(|column| *column != 0).collect();
        let count = images.len();
        images.sort_unstable();
        images.dedup();
        let is_plain =
            images.len() == count && images.iter().chain(&columns).all(|column| column.is_power_of_two());
        assert!(!is_plain || vector.width() == found, "{layout}");
    });
}

#[test]
fn places_without_free_bits_hold_each_element_once() {
    check(300, layouts(), |layout| {
        let free = Input::ALL.map(|input| (input, layout.free_bits(input)));
        let is_first =
            |place| free.iter().all(|(input, free)| layout.input().part(place, *input) & free == 0);
        let mut elements: Vec<u32> =
            places(&layout).filter(|(place, _)| is_first(*place)).map(|(_, element)| element).collect();
        elements.sort_unstable();
        assert_eq!(elements, (0..layout.output().shape().iter().product()).collect::<Vec<u32>>());
    });
}

#[test]
fn duplicate_registers() {
    check(300, layouts(), |layout| {
        let register = |layout: &Layout, register| layout.at(&[(Input::Register, register)]);
        let different: BTreeSet<u32> =
            (0..layout.registers()).map(|number| register(&layout, number)).collect();
        assert_eq!(layout.unique_registers() as usize, different.len());
        let representatives = layout.representatives();
        for (number, representative) in representatives.iter().enumerate() {
            assert_eq!(register(&layout, number as u32), register(&layout, *representative));
            assert_eq!(representative & layout.free_bits(Input::Register), 0);
        }
        let unique = layout.without_duplicate_registers();
        assert_eq!(unique.registers() as usize, different.len());
        assert_eq!(
            (0..unique.registers()).map(|number| register(&unique, number)).collect::<BTreeSet<_>>(),
            different
        );
    });
}

#[test]
fn renamed_registers() {
    let cases = layouts().prop_flat_map(|layout| {
        let bits = layout.bits_of(Input::Register);
        (Just(layout), surjective(bits, bits, 6))
    });
    check(300, cases, |(layout, columns)| {
        let renamed: Vec<u32> =
            columns.iter().map(|column| layout.at(&[(Input::Register, *column)])).collect();
        let renamed = layout.with_bases(Input::Register, &renamed);
        assert!(renamed.is_equal_up_to_registers(&layout));
        let names = renamed.registers_from(&layout).expect("registers are renamed");
        for (place, element) in places(&renamed) {
            let register = renamed.input().part(place, Input::Register);
            assert_eq!(layout.apply(place ^ register ^ names[register as usize]), element);
        }
    });
    let rows = blocked(&[8, 8], &[1, 2], &[8, 4], &[1, 1], &[1, 0]);
    let columns = blocked(&[8, 8], &[2, 1], &[4, 8], &[1, 1], &[0, 1]);
    assert!(!rows.is_equal_up_to_registers(&columns));
    let fewer = blocked(&[8, 4], &[1, 1], &[8, 4], &[1, 1], &[1, 0]);
    assert!(!fewer.broadcast_free_register().is_equal_up_to_registers(&fewer));
}

trait Duplicate {
    fn broadcast_free_register(&self) -> Layout;
}

impl Duplicate for Layout {
    fn broadcast_free_register(&self) -> Layout {
        self.product(&Layout::replicated(2, Input::Register, 2))
    }
}
