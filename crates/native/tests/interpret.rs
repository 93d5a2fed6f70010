//! Tests the interpreter against results that were computed by hand.

use tilewright_native::ir::{
    Binary, Compare, Conversion, Function, IntBinary, IntCompare, Lane, MaskBinary, Unary, Value,
};
use tilewright_native::{Builder, InterpretError, Place, interpret, verify};

const LANES: usize = 4;

#[repr(align(64))]
struct Memory([u8; 256]);

fn run(function: &Function, memory: &mut Memory) -> Result<u64, InterpretError> {
    verify(function).unwrap_or_else(|error| panic!("{error}\n{function}"));
    let address = memory.0.as_mut_ptr().expose_provenance() as u64;
    #[expect(unsafe_code, reason = "the function accesses memory by address")]
    // SAFETY: the functions of these tests access only the memory.
    unsafe {
        interpret(function, address, 1000)
    }
}

fn int(build: impl FnOnce(&mut Builder) -> Value) -> i64 {
    let mut builder = Builder::new(LANES);
    let result = build(&mut builder);
    builder.ret(result);
    run(&builder.finish(), &mut Memory([0; 256])).expect("the function ends") as i64
}

fn lanes(build: impl FnOnce(&mut Builder) -> Value) -> [u64; LANES] {
    let mut builder = Builder::new(LANES);
    let result = build(&mut builder);
    let bytes = builder.lane(result).bytes();
    let (at, zero) = (Place::at(builder.argument()), builder.int(0));
    builder.store(at, result, None, false);
    builder.ret(zero);
    let mut memory = Memory([0xaa; 256]);
    run(&builder.finish(), &mut memory).expect("the function ends");
    assert!(memory.0[LANES * bytes..].iter().all(|&byte| byte == 0xaa), "the store has {LANES} lanes");
    std::array::from_fn(|index| {
        memory.0[index * bytes..][..bytes].iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
    })
}

fn vector(builder: &mut Builder, lane: Lane, values: [u64; LANES]) -> Value {
    let mut result = builder.constant(lane, values[0]);
    for (index, &value) in values.iter().enumerate().skip(1) {
        let bit = builder.int(1 << index);
        let (mask, lanes) = (builder.mask_of_bits(bit), builder.constant(lane, value));
        result = builder.select(mask, lanes, result);
    }
    result
}

fn binary(function: Binary, lane: Lane, x: [u64; LANES], y: [u64; LANES]) -> [u64; LANES] {
    lanes(|builder| {
        let (x, y) = (vector(builder, lane, x), vector(builder, lane, y));
        builder.binary(function, x, y)
    })
}

fn compare(function: Compare, lane: Lane, x: [u64; LANES], y: [u64; LANES]) -> i64 {
    int(|builder| {
        let (x, y) = (vector(builder, lane, x), vector(builder, lane, y));
        let mask = builder.compare(function, x, y);
        builder.mask_bits(mask)
    })
}

fn convert(conversion: Conversion, from: Lane, to: Lane, x: [u64; LANES]) -> [u64; LANES] {
    lanes(|builder| {
        let x = vector(builder, from, x);
        builder.convert(conversion, to, x)
    })
}

fn single(values: [f32; LANES]) -> [u64; LANES] {
    values.map(|value| value.to_bits().into())
}

fn double(values: [f64; LANES]) -> [u64; LANES] {
    values.map(f64::to_bits)
}

/// Computes a function of two integers that are not known as constants.
fn int_binary(function: IntBinary, x: i64, y: i64) -> Result<i64, InterpretError> {
    let mut builder = Builder::new(LANES);
    let argument = builder.argument();
    let [x, y] = [x, y].map(|value| {
        let (zero, value) = (builder.int_binary(IntBinary::Xor, argument, argument), builder.int(value));
        builder.int_binary(IntBinary::Xor, zero, value)
    });
    let result = builder.int_binary(function, x, y);
    builder.ret(result);
    run(&builder.finish(), &mut Memory([0; 256])).map(|bits| bits as i64)
}

#[test]
fn integers() {
    use IntBinary as F;
    for (function, x, y, expected) in [
        (F::Add, i64::MAX, 1, i64::MIN),
        (F::Sub, i64::MIN, 1, i64::MAX),
        (F::Mul, 1 << 62, 6, i64::MIN),
        (F::And, 12, 10, 8),
        (F::Or, 12, 10, 14),
        (F::Xor, 12, 10, 6),
        (F::Shl, 3, 63, i64::MIN),
        (F::Shr, -1, 60, 15),
        (F::Sar, -16, 2, -4),
        (F::Min, -1, 1, -1),
        (F::Max, -1, 1, 1),
        (F::DivSigned, -7, 2, -3),
        (F::DivUnsigned, -2, 2, i64::MAX),
        (F::RemSigned, -7, 2, -1),
        (F::RemUnsigned, -1, 10, 5),
    ] {
        assert_eq!(int_binary(function, x, y), Ok(expected), "{function:?} of {x} and {y}");
    }
    for (function, x, y) in [
        (F::Shl, 1, 64),
        (F::Sar, 1, -1),
        (F::DivUnsigned, 1, 0),
        (F::RemSigned, 1, 0),
        (F::DivSigned, i64::MIN, -1),
        (F::RemSigned, i64::MIN, -1),
    ] {
        let error = int_binary(function, x, y);
        assert!(
            matches!(error, Err(InterpretError::Precondition { .. })),
            "{function:?} of {x} and {y}: {error:?}"
        );
    }
    let compare = |function, x, y| {
        int(|builder| {
            let argument = builder.argument();
            let zero = builder.int_binary(IntBinary::Xor, argument, argument);
            let (x, y) = (builder.int(x), builder.int(y));
            let x = builder.int_binary(IntBinary::Add, zero, x);
            builder.int_compare(function, x, y)
        })
    };
    let results = [
        IntCompare::Eq,
        IntCompare::Ne,
        IntCompare::LtSigned,
        IntCompare::LeSigned,
        IntCompare::LtUnsigned,
        IntCompare::LeUnsigned,
    ]
    .map(|function| [compare(function, -1, 1), compare(function, 1, 1), compare(function, 1, -1)]);
    assert_eq!(results, [[0, 1, 0], [1, 0, 1], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]]);
}

#[test]
fn extensions_and_selections_of_integers() {
    let extend = |bits, signed| {
        int(|builder| {
            let argument = builder.argument();
            let zero = builder.int_binary(IntBinary::Xor, argument, argument);
            let value = builder.int(0x8765_4321_fedc_ba98_u64 as i64);
            let x = builder.int_binary(IntBinary::Add, zero, value);
            builder.int_extend(bits, signed, x)
        })
    };
    assert_eq!([8, 16, 32].map(|bits| extend(bits, false)), [0x98, 0xba98, 0xfedc_ba98]);
    assert_eq!([8, 16, 32].map(|bits| extend(bits, true)), [-0x68, -0x4568, -0x0123_4568]);
    let select = |is_zero: bool| {
        int(|builder| {
            let argument = builder.argument();
            let zero = builder.int_binary(IntBinary::Xor, argument, argument);
            let (x, y) = (builder.int(5), builder.int(6));
            builder.int_select(if is_zero { zero } else { argument }, x, y)
        })
    };
    assert_eq!([select(false), select(true)], [5, 6]);
}

#[test]
fn integer_lanes() {
    use Binary as F;
    let (x, y) = ([0x80, 0x7f, 0xff, 3], [1, 0xff, 0x10, 2]);
    for (function, expected) in [
        (F::Add, [0x81, 0x7e, 0x0f, 5]),
        (F::Sub, [0x7f, 0x80, 0xef, 1]),
        (F::Mul, [0x80, 0x81, 0xf0, 6]),
        (F::Lesser, [0x80, 0xff, 0xff, 2]),
        (F::Greater, [1, 0x7f, 0x10, 3]),
        (F::LesserUnsigned, [1, 0x7f, 0x10, 2]),
        (F::GreaterUnsigned, [0x80, 0xff, 0xff, 3]),
        (F::And, [0, 0x7f, 0x10, 2]),
        (F::Or, [0x81, 0xff, 0xff, 3]),
        (F::Xor, [0x81, 0x80, 0xef, 1]),
        (F::AndNot, [1, 0x80, 0, 0]),
        (F::Shl, [0, 0, 0, 12]),
        (F::Shr, [0x40, 0, 0, 0]),
        (F::Sar, [0xc0, 0, 0xff, 0]),
        (F::MulHighSigned, [0xff, 0xff, 0xff, 0]),
        (F::MulHighUnsigned, [0, 0x7e, 0x0f, 0]),
    ] {
        assert_eq!(binary(function, Lane::I8, x, y), expected, "{function:?}");
    }
    let wide =
        binary(F::MulHighSigned, Lane::I64, [u64::MAX, 1 << 63, 1 << 63, 5], [u64::MAX, 1 << 63, 2, 5]);
    assert_eq!(wide, [0, 1 << 62, u64::MAX, 0]);
    let wide =
        binary(F::MulHighUnsigned, Lane::I64, [u64::MAX, 1 << 63, 1 << 63, 5], [u64::MAX, 1 << 63, 2, 5]);
    assert_eq!(wide, [u64::MAX - 1, 1 << 62, 1, 0]);
    let shifted = binary(F::Sar, Lane::I32, [1 << 31; 4], [31, 32, 1 << 31, 4]);
    assert_eq!(shifted, [0xffff_ffff, 0xffff_ffff, 0xffff_ffff, 0xf800_0000]);
}

#[test]
fn float_lanes() {
    let nan = f32::NAN;
    let (x, y) = ([0.0, nan, 1.0, 3.0], [-0.0, 1.0, nan, 2.0]);
    let of =
        |function| binary(function, Lane::F32, single(x), single(y)).map(|bits| f32::from_bits(bits as u32));
    // If the operands are equal or NaN, the result is the second one.
    assert_eq!(of(Binary::Lesser).map(f32::to_bits), [-0.0, 1.0, nan, 2.0].map(f32::to_bits));
    assert_eq!(of(Binary::Greater).map(f32::to_bits), [-0.0, 1.0, nan, 3.0].map(f32::to_bits));
    assert_eq!(of(Binary::Div)[3], 1.5);
    let bits = binary(Binary::AndNot, Lane::F64, double([-0.0; 4]), double([-2.5; 4]));
    assert_eq!(bits, double([2.5; 4]));
    let unary = |function, values| {
        lanes(|builder| {
            let x = vector(builder, Lane::F64, double(values));
            builder.unary(function, x)
        })
    };
    assert_eq!(unary(Unary::Floor, [-0.5, 1.5, -0.0, 1e300]), double([-1.0, 1.0, -0.0, 1e300]));
    assert_eq!(unary(Unary::Ceil, [-0.5, 1.5, -0.0, 1e300]), double([-0.0, 2.0, -0.0, 1e300]));
    assert_eq!(unary(Unary::Sqrt, [4.0, -0.0, 2.25, 0.0]), double([2.0, -0.0, 1.5, 0.0]));
    let fused = lanes(|builder| {
        // Rounding the product would lose the last term of the square of 1 + 2^-23.
        let x = vector(builder, Lane::F32, single([1.0 + f32::EPSILON; 4]));
        let z = vector(builder, Lane::F32, single([-1.0 - 2.0 * f32::EPSILON; 4]));
        builder.multiply_add(x, x, z)
    });
    assert_eq!(fused, single([f32::EPSILON * f32::EPSILON; 4]));
}

#[test]
fn comparisons() {
    use Compare as F;
    let (x, y) = ([1, 0xffff, 5, 0x8000], [1, 1, 6, 0x7fff]);
    let of = [F::Eq, F::Ne, F::Lt, F::Le, F::LtUnsigned, F::LeUnsigned];
    let results = of.map(|function| compare(function, Lane::I16, x, y));
    assert_eq!(results, [0b0001, 0b1110, 0b1110, 0b1111, 0b0100, 0b0101]);
    let (x, y) = (single([0.0, f32::NAN, 1.0, 2.0]), single([-0.0, f32::NAN, 2.0, 1.0]));
    let results = [F::Eq, F::Ne, F::Lt, F::Le].map(|function| compare(function, Lane::F32, x, y));
    assert_eq!(results, [0b0001, 0b1110, 0b0100, 0b0101]);
}

#[test]
fn conversions() {
    use Conversion as C;
    use Lane::{F32, F64, I8, I16, I32, I64};
    assert_eq!(convert(C::SignExtend, I8, I16, [0x80, 0x7f, 0xff, 0]), [0xff80, 0x7f, 0xffff, 0]);
    assert_eq!(convert(C::ZeroExtend, I8, I64, [0x80, 0x7f, 0xff, 0]), [0x80, 0x7f, 0xff, 0]);
    assert_eq!(convert(C::Truncate, I64, I16, [0x1_8765, 7, 0x10_0000, u64::MAX]), [0x8765, 7, 0, 0xffff]);
    let ones = u64::MAX;
    // 2^24 + 1 and 2^24 + 3 are midpoints, and round to the even float.
    let x = [0x0100_0001, 0x0100_0003, 0xffff_ffff, 5];
    assert_eq!(convert(C::SignedToFloat, I32, F32, x), single([16_777_216.0, 16_777_220.0, -1.0, 5.0]));
    assert_eq!(
        convert(C::UnsignedToFloat, I32, F32, x),
        single([16_777_216.0, 16_777_220.0, 4_294_967_296.0, 5.0])
    );
    // The second integer is 1 above a midpoint. A conversion through binary64 would round down.
    let x = [ones, (1 << 60) + (1 << 36) + 1, 1 << 63, 0];
    let expected = single([1.844_674_4e19, f32::from_bits(0x5d80_0001), 9.223_372e18, 0.0]);
    assert_eq!(convert(C::UnsignedToFloat, I64, F32, x), expected);
    assert_eq!(
        convert(C::SignedToFloat, I64, F64, [ones, 1 << 63, 3, 0]),
        double([-1.0, -2f64.powi(63), 3.0, 0.0])
    );
    let x = single([-1.9, 1.9, -0.5, 2_147_483_520.0]);
    assert_eq!(convert(C::FloatToSigned, F32, I32, x), [0xffff_ffff, 1, 0, 2_147_483_520]);
    let x = double([-2_147_483_648.9, 2_147_483_647.9, -0.5, 7.0]);
    assert_eq!(convert(C::FloatToSigned, F64, I32, x), [0x8000_0000, 0x7fff_ffff, 0, 7]);
    let x = double([1e39, 1.0 + 2f64.powi(-24), -0.0, 1e-46]);
    assert_eq!(convert(C::FloatToFloat, F64, F32, x), single([f32::INFINITY, 1.0, -0.0, 0.0]));
    let x = single([65519.0, 65520.0, 2f32.powi(-25), 1.5 * 2f32.powi(-24)]);
    assert_eq!(convert(C::FloatToHalf, F32, I16, x), [0x7bff, 0x7c00, 0, 2]);
    assert_eq!(
        convert(C::HalfToFloat, I16, F32, [0x3c00, 1, 0xfc00, 0x8000]),
        single([1.0, 2f32.powi(-24), f32::NEG_INFINITY, -0.0])
    );
    assert_eq!(convert(C::Bitcast, F32, I32, single([1.0; 4])), [0x3f80_0000; 4]);
}

#[test]
fn masks_and_shuffles() {
    let of = |build: fn(&mut Builder, Value, Value) -> Value| {
        int(|builder| {
            let (x, y) = (builder.int(0b1100), builder.int(0xfffa));
            let (x, y) = (builder.mask_of_bits(x), builder.mask_of_bits(y));
            let mask = build(builder, x, y);
            builder.mask_bits(mask)
        })
    };
    assert_eq!(of(|_, _, y| y), 0b1010);
    assert_eq!(of(|builder, x, y| builder.mask_binary(MaskBinary::And, x, y)), 0b1000);
    assert_eq!(of(|builder, x, y| builder.mask_binary(MaskBinary::Or, x, y)), 0b1110);
    assert_eq!(of(|builder, x, y| builder.mask_binary(MaskBinary::Xor, x, y)), 0b0110);
    assert_eq!(of(|builder, x, y| builder.mask_binary(MaskBinary::AndNot, x, y)), 0b0010);
    assert_eq!(of(|builder, x, _| builder.mask_not(x)), 0b0011);
    assert_eq!(
        of(|builder, x, y| {
            let not = builder.mask_not(y);
            builder.mask_select(x, y, not)
        }),
        0b1001
    );
    let first = |count| {
        int(|builder| {
            let argument = builder.argument();
            let zero = builder.int_binary(IntBinary::Xor, argument, argument);
            let count = builder.int(count);
            let count = builder.int_binary(IntBinary::Or, zero, count);
            let mask = builder.first_lanes(count);
            builder.mask_bits(mask)
        })
    };
    assert_eq!([i64::MIN, -1, 0, 3, 4, 5, i64::MAX].map(first), [0, 0, 0, 7, 15, 15, 15]);
    let rotated = lanes(|builder| {
        let iota = builder.iota(Lane::I8);
        builder.rotate(1, iota)
    });
    assert_eq!(rotated, [1, 2, 3, 0]);
    let first = int(|builder| {
        let x = vector(builder, Lane::I16, [0xfffe, 1, 2, 3]);
        builder.first(x)
    });
    assert_eq!(first, 0xfffe);
    let splat = lanes(|builder| {
        let argument = builder.argument();
        let zero = builder.int_binary(IntBinary::Xor, argument, argument);
        let x = builder.int(0x1_2345_6789);
        let x = builder.int_binary(IntBinary::Or, zero, x);
        builder.splat(Lane::I32, x)
    });
    assert_eq!(splat, [0x2345_6789; 4]);
}

#[test]
fn memory() {
    let mut builder = Builder::new(LANES);
    let base = builder.argument();
    let (two, bits) = (builder.int(2), builder.int(0b0101));
    let mask = builder.mask_of_bits(bits);
    // Expected: masked-off lanes are 0 in registers and unchanged in memory.
    let place = Place { base, index: Some((two, 8)), offset: -8 };
    let loaded = builder.load(Lane::I16, place, Some(mask));
    builder.store(Place { base, index: None, offset: 64 }, loaded, None, false);
    builder.store(Place { base, index: None, offset: 80 }, loaded, Some(mask), false);
    let one = builder.load_splat(Lane::I8, Place { base, index: None, offset: 3 });
    builder.store(Place { base, index: None, offset: 96 }, one, None, false);
    // Two lanes store to one address. Expected: the last of them.
    let offsets = vector(&mut builder, Lane::I64, [0, 4, 1 << 40, 4]);
    let bits = builder.int(0b1011);
    let mask = builder.mask_of_bits(bits);
    let base_of_scatter = builder.int_binary(IntBinary::Sub, base, two);
    let far = builder.int(130);
    let base_of_scatter = builder.int_binary(IntBinary::Add, base_of_scatter, far);
    let values = builder.iota(Lane::I32);
    builder.scatter(base_of_scatter, offsets, values, mask);
    let gathered = builder.gather(Lane::I32, base_of_scatter, offsets, mask);
    builder.store(Place { base, index: None, offset: 192 }, gathered, None, true);
    let x = builder.int_load(2, base, 5);
    builder.int_store(1, base, 0, x);
    builder.ret(x);
    let mut memory = Memory(std::array::from_fn(|index| index as u8));
    assert_eq!(run(&builder.finish(), &mut memory), Ok(0x0605));
    assert_eq!(memory.0[..4], [5, 1, 2, 3]);
    assert_eq!(memory.0[64..72], [8, 9, 0, 0, 12, 13, 0, 0]);
    assert_eq!(memory.0[80..88], [8, 9, 82, 83, 12, 13, 86, 87]);
    assert_eq!(memory.0[96..101], [3, 3, 3, 3, 100]);
    assert_eq!(memory.0[128..136], [0, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(memory.0[192..208], [0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
}

#[test]
fn loops_pass_values_at_once() {
    let result = int(|builder| {
        let (start, end) = (builder.int(0), builder.int(10));
        let (a, b) = (builder.int(0), builder.int(1));
        // Fibonacci numbers: the carried values must change in parallel.
        let repeated = builder.begin_loop([start, end], &[a, b]);
        let [a, b] = [repeated.values[0], repeated.values[1]];
        let next = builder.int_binary(IntBinary::Add, a, b);
        let (_, last) = builder.end_loop(repeated, 1, &[b, next]);
        last[0]
    });
    assert_eq!(result, 55);
}

#[test]
fn calls_pass_four_arguments() {
    extern "C" fn weigh(a: u64, b: u64, c: u64, d: u64) -> u64 {
        a + 10 * b + 100 * c + 1000 * d
    }
    let result = int(|builder| {
        let arguments = [1, 2, 3, 4].map(|value| builder.int(value));
        builder.call(weigh as *const () as usize, &arguments)
    });
    assert_eq!(result, 4321);
}

#[test]
fn endless_loops_reach_the_limit() {
    let mut builder = Builder::new(LANES);
    let block = builder.block();
    builder.jump(block, &[]);
    builder.switch_to(block);
    builder.jump(block, &[]);
    assert_eq!(run(&builder.finish(), &mut Memory([0; 256])), Err(InterpretError::Limit(1000)));
}

#[test]
fn streaming_stores_need_alignment() {
    let mut builder = Builder::new(LANES);
    let (base, value) = (builder.argument(), builder.iota(Lane::I32));
    builder.store(Place { base, index: None, offset: 8 }, value, None, true);
    builder.ret(base);
    let error = run(&builder.finish(), &mut Memory([0; 256])).expect_err("the address is not aligned");
    assert_eq!(
        error.to_string(),
        "`store_streaming i32 [v0 + 8], v1`: the address of the streaming store is not a multiple of its bytes"
    );
}
