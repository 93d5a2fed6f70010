//! Runs small functions as machine code.

use tilewright_native::{
    Builder, Executable, Isa, Place, Target, compile,
    ir::{Function, Lane, Value},
};

use crate::disassembler::{check_instructions, disassembly};

pub const LANES: [Lane; 6] = [Lane::I8, Lane::I16, Lane::I32, Lane::I64, Lane::F32, Lane::F64];

pub fn targets() -> Vec<Target> {
    Isa::ALL.into_iter().filter_map(Target::host_with).collect()
}

/// Compiles a function. A decoder must accept its instructions.
pub fn compiled(function: &Function, target: Target) -> Executable {
    let code = compile(function, &target).expect("the function compiles");
    let bytes = code.instructions();
    if std::env::var_os("TILEWRIGHT_SHOW").is_some() {
        println!("{}", disassembly(target.isa(), bytes));
    }
    check_instructions(target.isa(), bytes);
    Executable::new(&code).expect("the platform has executable memory")
}

pub fn call(executable: &Executable, arguments: &mut [u64]) -> u64 {
    // SAFETY: the functions of the tests access only the memory to which `arguments` refers.
    unsafe { executable.call(arguments.as_mut_ptr()) }
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

pub fn low(lane: Lane, bits: u64) -> u64 {
    bits & (u64::MAX >> (64 - 8 * lane.bytes()))
}

pub fn signed(lane: Lane, bits: u64) -> i64 {
    let unused = 64 - 8 * lane.bytes();
    (bits << unused) as i64 >> unused
}

pub fn f32_of(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

pub fn samples(lane: Lane, random: &mut Random) -> Vec<u64> {
    let mut samples: Vec<u64> = match lane {
        Lane::F32 => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::MAX,
            f32::MIN,
            f32::MIN_POSITIVE,
            1e-45,
            -1e-45,
            2_147_483_520.0,
            -2_147_483_648.0,
            8_388_607.5,
            0.1,
            65504.0,
            65520.0,
            1e-7,
            -3.7,
        ]
        .iter()
        .map(|x: &f32| u64::from(x.to_bits()))
        .collect(),
        Lane::F64 => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            5e-324,
            -5e-324,
            2_147_483_647.0,
            -2_147_483_648.5,
            4_503_599_627_370_495.5,
            0.1,
            9_223_372_036_854_774_784.0,
            -9_223_372_036_854_775_808.0,
            1e-40,
            16_777_217.0,
        ]
        .iter()
        .map(|x: &f64| x.to_bits())
        .collect(),
        Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => {
            let width = 8 * lane.bytes() as u64;
            let top = 1u64 << (width - 1);
            vec![
                0,
                1,
                2,
                3,
                u64::MAX,
                u64::MAX - 1,
                top,
                top - 1,
                top + 1,
                width,
                width - 1,
                width + 1,
                16_777_217,
                0x0123_4567_89ab_cdef,
                255,
                128,
                65535,
                0x8000_0080_0000_0400,
                0x7fff_ffbf_ffff_ffff,
                0xffff_ff7f_ffff_fc00,
                0x0000_0001_0000_0001,
                0xffff_ffff_0000_0000,
                0x8000_0000_0000_0001,
                // Just above midpoints of two floats: of binary64, then of binary32.
                0x8000_0000_0000_0401,
                0x8000_0080_0000_0001,
                31,
            ]
        }
    };
    for _ in 0..24 {
        let mut bits = random.next();
        if random.next().is_multiple_of(2) {
            // Integers of all magnitudes.
            bits = if lane.is_float() { bits } else { bits >> (random.next() % 64) };
        }
        samples.push(bits);
    }
    samples.into_iter().map(|bits| low(lane, bits)).collect()
}

pub fn write(lane: Lane, values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes().into_iter().take(lane.bytes())).collect()
}

pub fn read(lane: Lane, bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(lane.bytes())
        .map(|chunk| {
            let mut wide = [0; 8];
            wide[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(wide)
        })
        .collect()
}

/// Returns whether two results are equal or both NaN.
pub fn same(lane: Lane, x: u64, y: u64) -> bool {
    match lane {
        Lane::F32 => x == y || f32_of(x).is_nan() && f32_of(y).is_nan(),
        Lane::F64 => x == y || f64::from_bits(x).is_nan() && f64::from_bits(y).is_nan(),
        Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => x == y,
    }
}

/// Runs `body` on vectors of the inputs. Both loops of [`map_in_loop`] must have the same results.
pub fn map(
    target: Target,
    inputs: &[(Lane, Vec<u64>)],
    to: Lane,
    body: impl Fn(&mut Builder, &[Value]) -> Value,
) -> Vec<u64> {
    let results = [true, false].map(|is_one_block| map_in_loop(target, inputs, to, is_one_block, &body));
    let [results, others] = results;
    assert!(
        results.iter().zip(&others).all(|(&x, &y)| same(to, x, y)),
        "constants in registers and in memory make no difference"
    );
    results
}

/// Runs `body` in a loop. A loop of one block may keep constants in registers; one of two blocks
/// may not.
pub fn map_in_loop(
    target: Target,
    inputs: &[(Lane, Vec<u64>)],
    to: Lane,
    is_one_block: bool,
    body: impl Fn(&mut Builder, &[Value]) -> Value,
) -> Vec<u64> {
    let lanes = target.lanes();
    let count = inputs[0].1.len().next_multiple_of(lanes);
    let buffers: Vec<Vec<u8>> = inputs
        .iter()
        .map(|(lane, values)| {
            let mut values = values.clone();
            values.resize(count, 1);
            write(*lane, &values)
        })
        .collect();
    let mut output = vec![0u8; count * to.bytes()];
    let mut builder = Builder::new(lanes);
    let b = &mut builder;
    let argument = b.argument();
    let bases: Vec<Value> = (0..=inputs.len()).map(|at| b.int_load(8, argument, 8 * at as i32)).collect();
    let (zero, end) = (b.int(0), b.int_load(8, argument, 8 * (inputs.len() as i32 + 1)));
    let repeated = b.begin_loop([zero, end], &[]);
    let index = repeated.index;
    if !is_one_block {
        let next = b.block();
        b.jump(next, &[]);
        b.switch_to(next);
    }
    let at = |base: Value, lane: Lane| Place { base, index: Some((index, lane.bytes() as u8)), offset: 0 };
    let loaded: Vec<Value> =
        inputs.iter().zip(&bases).map(|((lane, _), &base)| b.load(*lane, at(base, *lane), None)).collect();
    let result = body(b, &loaded);
    b.store(at(bases[inputs.len()], to), result, None, false);
    let (last, _) = b.end_loop(repeated, lanes as i64, &[]);
    b.ret(last);
    let executable = compiled(&builder.finish(), target);
    let mut arguments: Vec<u64> = buffers.iter().map(|buffer| buffer.as_ptr() as u64).collect();
    arguments.extend([output.as_mut_ptr() as u64, count as u64]);
    assert_eq!(call(&executable, &mut arguments), count as u64);
    let mut results = read(to, &output);
    results.truncate(inputs[0].1.len());
    results
}

/// Returns all pairs of samples, as left and right elements.
pub fn pairs(lane: Lane) -> [(Lane, Vec<u64>); 2] {
    let samples = samples(lane, &mut Random(7));
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for &x in &samples {
        for &y in &samples {
            left.push(x);
            right.push(y);
        }
    }
    [(lane, left), (lane, right)]
}

pub fn check(
    what: &str,
    target: Target,
    lane: Lane,
    inputs: &[(Lane, Vec<u64>)],
    results: &[u64],
    expected: &[u64],
) {
    for (index, (&result, &expected)) in results.iter().zip(expected).enumerate() {
        let operands: Vec<String> = inputs.iter().map(|(_, values)| format!("{:x}", values[index])).collect();
        assert!(
            same(lane, result, expected),
            "{what} with {:?}: element {index}, of {operands:?}, is {result:x} and should be {expected:x}",
            target.isa(),
        );
    }
}

/// Runs a function of integers from memory.
pub fn integers(target: Target, values: &[i64], body: impl FnOnce(&mut Builder, &[Value]) -> Value) -> i64 {
    let mut builder = Builder::new(target.lanes());
    let argument = builder.argument();
    let loaded: Vec<Value> =
        (0..values.len()).map(|at| builder.int_load(8, argument, 8 * at as i32)).collect();
    let result = body(&mut builder, &loaded);
    builder.ret(result);
    let executable = compiled(&builder.finish(), target);
    let mut arguments: Vec<u64> = values.iter().map(|&value| value as u64).collect();
    call(&executable, &mut arguments) as i64
}
