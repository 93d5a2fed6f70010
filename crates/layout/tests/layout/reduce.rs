//! Executes reductions and scans step by step on the hardware indices of random layouts.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_layout::{
    Exchange, Input, Layout, Parts, Reduction, Scan, Step, blocked, shared_plan, spread_over_lanes,
};

use crate::random::{check, layouts, places};

fn partner(layout: &Layout, step: &Step, place: u32) -> u32 {
    place
        ^ layout.input().place(&[
            (Input::Register, step.register),
            (Input::Lane, step.lane),
            (Input::Warp, step.warp),
            (Input::Block, step.block),
        ])
}

fn line(layout: &Layout, axis: usize, element: u32) -> Vec<u32> {
    let tile = layout.output();
    let mut coordinates = tile.coordinates(element);
    (0..tile.size(axis))
        .map(|coordinate| {
            coordinates[axis] = coordinate;
            tile.index(&coordinates)
        })
        .collect()
}

#[test]
fn reductions_combine_each_element_once() {
    check(40, layouts(), |layout| {
        for axis in 0..layout.output().rank() {
            let reduction = Reduction::along(&layout, axis);
            let mut values: BTreeMap<u32, Vec<u32>> =
                places(&layout).map(|(place, element)| (place, vec![element])).collect();
            for step in &reduction.steps {
                let combine = |place: &u32| {
                    let other = partner(&layout, step, *place);
                    assert_ne!(step.coordinate, 0);
                    (*place, [&values[place][..], &values[&other][..]].concat())
                };
                values = values.keys().map(combine).collect();
            }
            let reaches: Vec<Input> = reduction.steps.iter().map(Step::reach).collect();
            assert!(reaches.is_sorted(), "registers, then lanes, then warps");
            for (place, element) in places(&layout) {
                let mut combined = values[&place].clone();
                combined.sort_unstable();
                assert_eq!(combined, line(&layout, axis, element), "each element once");
            }
            // Checks which register of the source becomes each register of the result.
            assert_eq!(reduction.registers.len() as u32, reduction.result.registers());
            assert_eq!(reduction.result.unique_registers(), reduction.result.registers());
            for (place, element) in places(&reduction.result) {
                let register = reduction.result.input().part(place, Input::Register);
                let thread = [Input::Lane, Input::Warp]
                    .map(|input| (input, reduction.result.input().part(place, input)));
                let source =
                    [(Input::Register, reduction.registers[register as usize]), thread[0], thread[1]];
                let mut coordinates = layout.coordinates(&source);
                coordinates.remove(axis);
                assert_eq!(reduction.result.output().index(&coordinates), element);
            }
            // After the steps within a thread, the other steps only need the registers of the
            // result.
            for step in reduction.steps.iter().filter(|step| step.reach() != Input::Register) {
                for register in &reduction.registers {
                    assert!(reduction.registers.contains(&(register ^ step.register)));
                }
            }
        }
    });
}

/// Returns the elements that a hardware index has combined after the steps within warps.
fn parts(layout: &Layout, steps: &[Step], place: u32) -> Vec<u32> {
    let within = steps.iter().filter(|step| step.reach() <= Input::Lane);
    let mut places = vec![place];
    for step in within {
        places.extend(places.clone().iter().map(|place| partner(layout, step, *place)));
    }
    let mut elements: Vec<u32> = places.iter().map(|place| layout.apply(*place)).collect();
    elements.sort_unstable();
    elements
}

/// Checks each thread's part, and that a line's parts have all its elements.
fn check_exchange(layout: &Layout, axis: usize, steps: &[Step], registers: &[u32], exchange: &Exchange) {
    let tile = exchange.partials.output();
    let last = tile.rank() - 1;
    let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (place, part) in places(&exchange.partials) {
        let at = |input| (input, exchange.partials.input().part(place, input));
        let register = registers[at(Input::Register).1 as usize];
        let source = layout.input().place(&[(Input::Register, register), at(Input::Lane), at(Input::Warp)]);
        let elements = parts(layout, steps, source);
        assert_eq!(*found.entry(part).or_insert_with(|| elements.clone()), elements, "copies are equal");
    }
    assert!(exchange.partials.is_surjective() && exchange.gathered.is_surjective());
    for (part, elements) in &found {
        let whole: Vec<u32> = (0..tile.size(last))
            .flat_map(|number| found[&((part & !(tile.size(last) - 1)) | number)].clone())
            .collect();
        let mut sorted = whole.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, line(layout, axis, elements[0]), "the parts make up the line");
        if steps.is_sorted_by_key(|step| step.coordinate) {
            assert_eq!(whole, sorted, "in the order of a scan");
        }
    }
    // A thread has all parts of each of its result elements, in order.
    for (place, part) in places(&exchange.gathered) {
        let register = exchange.gathered.input().part(place, Input::Register);
        assert_eq!(tile.coordinate(part, last), register % tile.size(last));
    }
    assert!(shared_plan(&exchange.partials, &exchange.gathered, 32).is_ok());
}

#[test]
fn warps_exchange_their_parts() {
    check(60, layouts(), |layout| {
        for axis in 0..layout.output().rank() {
            let reduction = Reduction::along(&layout, axis);
            let needs_one = reduction.steps.iter().any(|step| step.reach() > Input::Lane);
            assert_eq!(reduction.exchange.is_some(), needs_one);
            if let Some(exchange) = &reduction.exchange {
                check_exchange(&layout, axis, &reduction.steps, &reduction.registers, exchange);
                let last = exchange.gathered.output().rank() - 1;
                let parts = exchange.gathered.output().size(last);
                let all = Layout::identity(last + 1, last, Input::Register, parts);
                assert_eq!(exchange.gathered, all.product(&reduction.result.insert_axis(last)));
            }
            let scan = Scan::along(&layout, axis);
            let steps: Vec<Step> = scan.steps.iter().map(|level| level.step).collect();
            let needs_one = steps.iter().any(|step| step.reach() > Input::Lane);
            assert_eq!(scan.exchange.is_some(), needs_one && scan.is_contiguous());
            if let Some(exchange) = &scan.exchange {
                check_exchange(&layout, axis, &steps, &reduction.registers, exchange);
            }
        }
    });
}

#[test]
fn scans_combine_in_order() {
    check(40, layouts(), |layout| {
        for axis in 0..layout.output().rank() {
            let scan = Scan::along(&layout, axis);
            let mut values: BTreeMap<u32, (Vec<u32>, Vec<u32>)> =
                places(&layout).map(|(place, element)| (place, (vec![element], vec![element]))).collect();
            for level in &scan.steps {
                let combine = |place: &u32| {
                    let (prefix, total) = &values[place];
                    let other = &values[&partner(&layout, &level.step, *place)].1;
                    let is_later = (place & level.later).count_ones() % 2 == 1;
                    let value = if is_later {
                        ([&other[..], prefix].concat(), [&other[..], total].concat())
                    } else {
                        (prefix.clone(), [&total[..], other].concat())
                    };
                    (*place, value)
                };
                values = values.keys().map(combine).collect();
            }
            for (place, element) in places(&layout) {
                let line = line(&layout, axis, element);
                let end = line.iter().position(|other| *other == element).unwrap();
                assert_eq!(values[&place], (line[..=end].to_vec(), line));
            }
        }
    });
}

#[test]
fn a_row_per_warp() {
    // Each of four warps has a row of 256 elements in 8 registers and 32 lanes.
    let layout = blocked(&[4, 256], &[1, 8], &[1, 32], &[4, 1], &[1, 0]);
    let reduction = Reduction::along(&layout, 1);
    let count = |reach| reduction.steps_of(reach).count();
    assert_eq!([Input::Register, Input::Lane, Input::Warp].map(count), [3, 5, 0]);
    assert_eq!(reduction.steps_of(Input::Lane).map(|step| step.lane).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
    assert_eq!(reduction.result.to_string(), "[4] lane (0) (0) (0) (0) (0) warp (1) (2)");
    assert!(Scan::along(&layout, 1).is_contiguous());
    let across = Reduction::along(&layout, 0);
    assert_eq!(
        across.steps.iter().map(|step| (step.reach(), step.warp)).collect::<Vec<_>>(),
        [(Input::Warp, 1), (Input::Warp, 2)]
    );
    assert_eq!(across.registers.len(), 8);
    // A warp covers 128 elements, so registers repeat four times. A scan combines these registers
    // last.
    let repeated = blocked(&[512], &[4], &[32], &[1], &[0]);
    assert!(!Scan::along(&repeated, 0).is_contiguous());
}

#[test]
fn parts_are_numbered_along_the_axis() {
    check(40, layouts(), |layout| {
        for axis in 0..layout.output().rank() {
            let Some(parts) = Parts::along(&layout, axis) else { continue };
            let scan = Scan::along(&layout, axis);
            assert!(scan.steps[..parts.levels].iter().all(|level| level.step.reach() <= Input::Lane));
            assert!(scan.steps[parts.levels].step.reach() > Input::Lane);
            for (place, part) in places(&parts.partials) {
                let at = |input| (input, parts.partials.input().part(place, input));
                let register = parts.registers[at(Input::Register).1 as usize];
                let source = [(Input::Register, register), at(Input::Lane), at(Input::Warp)];
                let mut coordinates = layout.coordinates(&source);
                let along = coordinates.remove(axis);
                coordinates.push(along >> parts.levels);
                assert_eq!(parts.partials.output().coordinates(part), coordinates);
            }
            let lines = parts.partials.remove_axis(parts.partials.output().rank() - 1);
            for (place, part) in places(&parts.gathered) {
                let at = |input| (input, parts.gathered.input().part(place, input));
                let own = lines.without_duplicate_registers();
                let register = at(Input::Register).1;
                assert_eq!(part % parts.count(), register % parts.count());
                let line =
                    own.at(&[(Input::Register, register / parts.count()), at(Input::Lane), at(Input::Warp)]);
                assert_eq!(part / parts.count(), line, "a thread has the parts of its own lines");
            }
            let spread = [1, 4].map(|most| (most, spread_over_lanes(&parts.gathered, most)));
            for (most, spread) in spread.iter().filter_map(|(most, spread)| Some((most, spread.as_ref()?))) {
                let of_lane = |layout: &Layout, lane| -> BTreeSet<u32> {
                    let is_own = |place: u32| layout.input().part(place, Input::Lane) == lane;
                    places(layout).filter(|(place, _)| is_own(*place)).map(|(_, part)| part).collect()
                };
                let (count, all) = (1 << spread.bits_of(Input::Lane), of_lane(&parts.gathered, 0));
                let together: BTreeSet<u32> = (0..count).flat_map(|lane| of_lane(spread, lane)).collect();
                assert_eq!(together, all, "the lanes of a warp have the parts of its lines");
                assert!(spread.registers() <= parts.gathered.registers() / parts.count() * most);
            }
        }
    });
}
