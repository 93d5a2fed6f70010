//! Tests the machine code of calls, spills, loops and branches over long code.

use tilewright_native::{
    Builder, Executable, Isa, Place, Target, compile,
    ir::{Binary, Compare, IntBinary, Lane, Type, Value},
};

use crate::harness::{Random, call, compiled, targets};

extern "C" fn weigh(a: u64, b: u64, c: u64, d: u64) -> u64 {
    a + 10 * b + 100 * c + 1000 * d
}

#[test]
fn calls_keep_all_values() {
    for target in targets() {
        let lanes = target.lanes();
        let mut builder = Builder::new(lanes);
        let argument = builder.argument();
        let place = |offset| Place { base: argument, index: None, offset };
        let vector = builder.load(Lane::F32, place(64), None);
        let wide = builder.load(Lane::F64, place(64), None);
        let narrow = builder.load(Lane::I8, place(64), None);
        let mask = builder.compare(Compare::Lt, vector, vector);
        let ints: Vec<Value> = (0..4).map(|at| builder.int_load(8, argument, 8 * at)).collect();
        let first = builder.call(weigh as *const () as usize, &ints);
        let second = builder.call(weigh as *const () as usize, &[ints[3], first, ints[0], ints[1]]);
        builder.store(place(320), vector, None, false);
        builder.store(place(448), wide, None, false);
        builder.store(place(704), narrow, None, false);
        let bits = builder.mask_bits(mask);
        let sum = builder.int_binary(IntBinary::Add, second, bits);
        builder.ret(sum);
        let executable = compiled(&builder.finish(), target);
        let mut arguments: Vec<u64> = (0..96).map(|at| at * 0x0101_0101 + 5).collect();
        arguments[..4].copy_from_slice(&[1, 2, 3, 4]);
        let before = arguments.clone();
        let result = call(&executable, &mut arguments);
        assert_eq!(result, 4 + 10 * 4321 + 100 + 1000 * 2);
        let bytes = |words: &[u64], at: usize, count: usize| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).skip(at).take(count).collect()
        };
        for (to, size) in [(320, 4), (448, 8), (704, 1)] {
            assert_eq!(bytes(&arguments, to, size * lanes), bytes(&before, 64, size * lanes));
        }
    }
}

#[test]
fn spilled_vectors_and_masks_keep_their_values() {
    for target in targets() {
        // The larger frame has several pages.
        for count in [60, 300] {
            spill(target, count);
        }
    }
}

/// Uses more vectors and masks at once than the processor has registers.
fn spill(target: Target, count: i32) {
    let lanes = target.lanes();
    let mut builder = Builder::new(lanes);
    let argument = builder.argument();
    let bytes = 4 * lanes as i32;
    let place = |index: i32| Place { base: argument, index: None, offset: index * bytes };
    let values: Vec<Value> = (0..count).map(|index| builder.load(Lane::F32, place(index), None)).collect();
    let masks: Vec<Value> = (0..count as usize - 1)
        .map(|index| builder.compare(Compare::Lt, values[index], values[index + 1]))
        .collect();
    let ints: Vec<Value> = masks.iter().map(|&mask| builder.mask_bits(mask)).collect();
    let zero = builder.int(0);
    let three = builder.int(3);
    // All values are live at the entry of the loop.
    let repeated = builder.begin_loop([zero, three], &values);
    let mut next = Vec::new();
    for index in 0..count as usize {
        let other = repeated.values[(index + 1) % count as usize];
        let sum = builder.binary(Binary::Add, repeated.values[index], other);
        next.push(if index + 1 < count as usize { builder.select(masks[index], sum, other) } else { sum });
    }
    let (_, last) = builder.end_loop(repeated, 1, &next);
    for (index, &value) in last.iter().enumerate() {
        builder.store(place(index as i32), value, None, false);
    }
    let mut total = builder.int(0);
    for int in ints {
        total = builder.int_binary(IntBinary::Mul, total, three);
        total = builder.int_binary(IntBinary::Add, total, int);
    }
    builder.ret(total);
    let function = builder.finish();
    assert!(compile(&function, &target).expect("the function compiles").spill_bytes() > 0);
    let executable = compiled(&function, target);
    let mut random = Random(29);
    let mut values: Vec<f32> = (0..count as usize * lanes).map(|_| (random.next() % 1000) as f32).collect();
    let before = values.clone();
    // SAFETY: the function accesses the `count` vectors of `values`.
    let total = unsafe { executable.call(values.as_mut_ptr().cast()) };
    let mut expected_total = 0u64;
    let mut expected = before.clone();
    for index in 0..count as usize - 1 {
        let bits =
            (0..lanes).filter(|lane| before[index * lanes + lane] < before[(index + 1) * lanes + lane]);
        expected_total = expected_total.wrapping_mul(3).wrapping_add(bits.map(|lane| 1u64 << lane).sum());
    }
    for _ in 0..3 {
        let old = expected.clone();
        for index in 0..count as usize {
            for lane in 0..lanes {
                let other = old[(index + 1) % count as usize * lanes + lane];
                let sum = old[index * lanes + lane] + other;
                let is_on = index + 1 == count as usize
                    || before[index * lanes + lane] < before[(index + 1) * lanes + lane];
                expected[index * lanes + lane] = if is_on { sum } else { other };
            }
        }
    }
    assert_eq!(values, expected);
    assert_eq!(total, expected_total);
}

#[test]
fn loops_carry_vectors() {
    for target in targets() {
        let lanes = target.lanes();
        let mut builder = Builder::new(lanes);
        let argument = builder.argument();
        let [base, end] = [0, 8].map(|at| builder.int_load(8, argument, at));
        let (zero, empty) = (builder.int(0), builder.constant(Lane::F64, 0));
        let one = builder.int(1);
        // Sums i + j over a triangle, and the elements of an array for each i.
        let outer = builder.begin_loop([zero, end], &[zero, empty]);
        let (i, ints, sums) = (outer.index, outer.values[0], outer.values[1]);
        let inner = builder.begin_loop([zero, i], &[ints]);
        let sum = builder.int_binary(IntBinary::Add, inner.index, i);
        let sum = builder.int_binary(IntBinary::Add, inner.values[0], sum);
        let (_, ints) = builder.end_loop(inner, 1, &[sum]);
        let row = builder.int(8 * lanes as i64);
        let offset = builder.int_binary(IntBinary::Mul, i, row);
        let loaded = builder.load(Lane::F64, Place { base, index: Some((offset, 1)), offset: 0 }, None);
        let sums = builder.binary(Binary::Add, sums, loaded);
        let (last, results) = builder.end_loop(outer, 1, &[ints[0], sums]);
        builder.store(Place::at(base), results[1], None, false);
        let last = builder.int_binary(IntBinary::Mul, last, one);
        let result = builder.int_binary(IntBinary::Add, results[0], last);
        builder.ret(result);
        let executable = compiled(&builder.finish(), target);
        for end in [0usize, 1, 2, 9] {
            let mut array: Vec<f64> = (0..16 * lanes).map(|x| x as f64).collect();
            let mut expected = vec![0.0; lanes];
            for i in 0..end {
                for lane in 0..lanes {
                    expected[lane] += array[i * lanes + lane];
                }
            }
            let result = call(&executable, &mut [array.as_mut_ptr() as u64, end as u64]);
            let triangle: usize = (0..end).flat_map(|i| (0..i).map(move |j| i + j)).sum();
            assert_eq!(result, (triangle + end) as u64);
            assert_eq!(array[..lanes], expected);
        }
    }
}

#[test]
fn another_number_of_lanes_is_an_error() {
    let mut builder = Builder::new(4);
    let argument = builder.argument();
    builder.ret(argument);
    let error = compile(&builder.finish(), &Target::new(Isa::Avx2)).expect_err("the target has 8 lanes");
    assert_eq!(error.to_string(), "the function has vectors of 4 lanes but the target has 8");
}

extern "C" fn nothing() -> u64 {
    0
}

/// Calls whose code exceeds 1 MiB, the reach of a conditional jump of AArch64.
const CALLS: usize = 90_000;

#[test]
fn jumps_and_constants_reach_over_long_code() {
    let target = targets().pop().expect("the processor has an instruction set");
    let lanes = target.lanes();
    let mut builder = Builder::new(lanes);
    let argument = builder.argument();
    let condition = builder.int_load(8, argument, 0);
    let place = Place { base: argument, index: None, offset: 8 };
    let x = builder.load(Lane::F64, place, None);
    let tenth = builder.constant(Lane::F64, 0.1_f64.to_bits());
    let sum = builder.binary(Binary::Add, x, tenth);
    builder.store(place, sum, None, false);
    let (long, after) = (builder.block(), builder.block());
    let result = builder.parameter(after, Type::Int);
    builder.branch(condition, (long, &[]), (after, &[condition]));
    builder.switch_to(long);
    for _ in 0..CALLS {
        builder.call(nothing as *const () as usize, &[]);
    }
    let seven = builder.int(7);
    builder.jump(after, &[seven]);
    builder.switch_to(after);
    builder.ret(result);
    let function = builder.finish();
    let code = compile(&function, &target).expect("the function compiles");
    assert!(code.instructions().len() > 1 << 20);
    let executable = Executable::new(&code).expect("the platform has executable memory");
    for (condition, expected) in [(0, 0), (1, 7)] {
        let mut arguments = vec![condition];
        arguments.extend(vec![2.5_f64.to_bits(); lanes]);
        assert_eq!(call(&executable, &mut arguments), expected);
        assert_eq!(arguments[1..], vec![2.6_f64.to_bits(); lanes]);
    }
}
