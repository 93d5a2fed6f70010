//! Compares tree reductions, in machine code and level by level, with trees of scalars.
#![allow(clippy::cast_possible_truncation, reason = "integers of narrow types wrap")]

mod common;

use common::{Arg, f32s, f64s, i8s, i16s, i32s, i64s, int, launch, program, run, u8s, u32s};
use tilewright_fuzz::random::Random;
use tilewright_native::Target;

const LOAD: &str = "{cache = \"\", eviction = \"\", volatile = false}";
const STORE: &str = "{cache = \"\", eviction = \"\"}";

/// The extents before, along and after the axis. The last four shapes have no machine code: they do
/// not consist of whole vectors, or the extent is no power of two.
const SHAPES: [[usize; 3]; 10] = [
    [1, 1024, 1],
    [1, 32, 1],
    [16, 8, 1],
    [3, 64, 1],
    [1, 4, 32],
    [3, 16, 16],
    [1, 2, 1],
    [2, 8, 3],
    [3, 5, 16],
    [1, 100, 1],
];

/// Combines neighbors, level by level.
fn tree<T: Copy>(mut elements: Vec<T>, combine: impl Fn(T, T) -> T) -> T {
    while elements.len() > 1 {
        let level = elements.chunks(2).map(|pair| match *pair {
            [left, right] => combine(left, right),
            [last] => last,
            _ => unreachable!("a chunk has one or two elements"),
        });
        elements = level.collect();
    }
    elements[0]
}

/// Reduces each vector along the middle axis.
fn trees<T: Copy>([outer, n, inner]: [usize; 3], x: &[T], combine: impl Fn(T, T) -> T) -> Vec<T> {
    let line = |line: usize| {
        let element = |k: usize| x[(line / inner * n + k) * inner + line % inner];
        tree((0..n).map(element).collect(), &combine)
    };
    (0..outer * inner).map(line).collect()
}

/// Returns a kernel that reduces tensors of the types `dtypes`. It has a parameter `%k` of the
/// first type.
fn kernel(dtypes: &[&str], [outer, n, inner]: [usize; 3], region: &str) -> String {
    let (all, rest) = (outer * n * inner, outer * inner);
    let names: Vec<String> = (0..dtypes.len()).map(|index| format!("t{index}")).collect();
    let parameters: Vec<String> = dtypes
        .iter()
        .zip(&names)
        .map(|(dtype, name)| format!("%in_{name}: *{dtype}, %out_{name}: *{dtype}"))
        .collect();
    let mut lines = vec![
        format!("kernel func0 @k({}, %k: {}) {{", parameters.join(", "), dtypes[0]),
        format!("%all = arange {{start = 0, end = {all}}} : int32[{all}]"),
        format!("%rest = arange {{start = 0, end = {rest}}} : int32[{rest}]"),
    ];
    for (dtype, name) in dtypes.iter().zip(&names) {
        lines.extend([
            format!("%s_{name} = splat %in_{name} {{shape = [{all}]}} : *{dtype}[{all}]"),
            format!("%p_{name} = ptr_add %s_{name}, %all : *{dtype}[{all}]"),
            format!("%v_{name} = load %p_{name} {LOAD} : {dtype}[{all}]"),
            format!(
                "%{name} = reshape %v_{name} {{shape = [{outer}, {n}, {inner}]}} : \
                 {dtype}[{outer}, {n}, {inner}]"
            ),
        ]);
    }
    let prefixed =
        |prefix: &str| -> Vec<String> { names.iter().map(|name| format!("%{prefix}{name}")).collect() };
    let both = [prefixed("l_"), prefixed("r_")].concat();
    let typed: Vec<String> =
        both.iter().zip(dtypes.iter().cycle()).map(|(name, dtype)| format!("{name}: {dtype}")).collect();
    let results: Vec<String> = dtypes.iter().map(|dtype| format!("{dtype}[{outer}, {inner}]")).collect();
    lines.extend([
        format!(
            "{} = reduce {} {{axis = 1}} ({}) {{",
            prefixed("a_").join(", "),
            prefixed("").join(", "),
            typed.join(", ")
        ),
        region.to_string(),
        format!("}} : {}", results.join(", ")),
    ]);
    for (dtype, name) in dtypes.iter().zip(&names) {
        lines.extend([
            format!("%b_{name} = reshape %a_{name} {{shape = [{rest}]}} : {dtype}[{rest}]"),
            format!("%t_{name} = splat %out_{name} {{shape = [{rest}]}} : *{dtype}[{rest}]"),
            format!("%q_{name} = ptr_add %t_{name}, %rest : *{dtype}[{rest}]"),
            format!("store %q_{name}, %b_{name} {STORE}"),
        ]);
    }
    lines.extend(["return_values".into(), "}".into()]);
    lines.join("\n")
}

fn has_machine_code(shape: [usize; 3]) -> bool {
    Target::host().is_some_and(|target| {
        let [outer, n, inner] = shape;
        let unit = if inner == 1 { 2 * target.lanes() } else { target.lanes() };
        let length = if inner == 1 { outer * n } else { inner };
        n.is_power_of_two() && length % unit == 0
    })
}

/// Compares a kernel with and without machine code. Leaves the results in the arguments.
fn check(text: &str, shape: [usize; 3], args: &mut [Arg]) {
    let is_compiled = program(text).to_string().contains("machine code");
    assert_eq!(is_compiled, has_machine_code(shape), "{shape:?}\n{}", program(text));
    run(text, [1, 1, 1], args);
}

/// Reduces random elements with `%k * left - right`.
macro_rules! check_type {
    ($name:literal, $ty:ty, $arg:ident, $read:ident, $random:expr, $combine:expr) => {
        for shape in SHAPES {
            let region =
                format!("%x = mul %l_t0, %k : {0}\n%y = sub %x, %r_t0 : {0}\nyield_values %y", $name);
            let text = kernel(&[$name], shape, &region);
            let [outer, n, inner] = shape;
            let mut random = Random(7);
            let random: &mut dyn FnMut() -> $ty = &mut || $random(random.bits());
            let x: Vec<$ty> = (0..outer * n * inner).map(|_| random()).collect();
            let k = random();
            let mut bits = [0; 8];
            bits[..size_of::<$ty>()].copy_from_slice(&k.to_le_bytes());
            let k_arg = Arg::Scalar(u64::from_le_bytes(bits));
            let mut args = [$arg(&x), $arg(&vec![0 as $ty; outer * inner]), k_arg];
            check(&text, shape, &mut args);
            let expected = trees(shape, &x, |left, right| $combine(left, k, right));
            let bytes =
                |values: &[$ty]| -> Vec<u8> { values.iter().flat_map(|value| value.to_le_bytes()).collect() };
            assert_eq!(bytes(&args[1].$read()), bytes(&expected), "{} {shape:?}", $name);
        }
    };
}

macro_rules! check_integer {
    ($name:literal, $ty:ty, $arg:ident, $read:ident) => {
        check_type!($name, $ty, $arg, $read, |bits: u64| (bits >> 7) as $ty, |x: $ty, k: $ty, y: $ty| x
            .wrapping_mul(k)
            .wrapping_sub(y));
    };
}

#[test]
fn captured_factors_of_every_width() {
    let small = |bits: u64| (bits >> 40) as f64 / f64::from(1 << 23) - 1.0;
    check_type!("fp32", f32, f32s, as_f32, |bits| small(bits) as f32, |x: f32, k: f32, y: f32| x * k - y);
    check_type!("fp64", f64, f64s, as_f64, small, |x: f64, k: f64, y: f64| x * k - y);
    check_integer!("int8", i8, i8s, as_i8);
    check_integer!("uint8", u8, u8s, as_u8);
    check_integer!("int16", i16, i16s, as_i16);
    check_integer!("int32", i32, i32s, as_i32);
    check_integer!("uint32", u32, u32s, as_u32);
    check_integer!("int64", i64, i64s, as_i64);
}

#[test]
fn greatest_elements_with_their_indices() {
    let region = "%c = gt %l_t0, %r_t0 : int1
        %s = eq %l_t0, %r_t0 : int1
        %b = lt %l_t1, %r_t1 : int1
        %d = and %s, %b : int1
        %e = or %c, %d : int1
        %n = ne %r_t0, %r_t0 : int1
        %f = or %e, %n : int1
        %v = select %f, %l_t0, %r_t0 : fp32
        %i = select %f, %l_t1, %r_t1 : int64
        yield_values %v, %i";
    for shape in SHAPES {
        let [outer, n, inner] = shape;
        let mut random = Random(8);
        let mut number = || match random.below(40) {
            0 => f32::NAN,
            1 => -0.0,
            value => value as f32 - 20.0,
        };
        let x: Vec<f32> = (0..outer * n * inner).map(|_| number()).collect();
        let indices: Vec<i64> = (0..x.len() as i64).map(|i| i << 33).collect();
        let rest = outer * inner;
        let mut args = [f32s(&x), f32s(&vec![0.0; rest]), i64s(&indices), i64s(&vec![0; rest]), int(0)];
        check(&kernel(&["fp32", "int64"], shape, region), shape, &mut args);
        let pairs: Vec<(f32, i64)> = x.iter().copied().zip(indices).collect();
        let expected = trees(shape, &pairs, |left, right| {
            let is_left = left.0 > right.0 || (left.0 == right.0 && left.1 < right.1) || right.0.is_nan();
            if is_left { left } else { right }
        });
        assert_eq!(args[3].as_i64(), expected.iter().map(|pair| pair.1).collect::<Vec<_>>(), "{shape:?}");
    }
}

/// Tests a region with constants, conversions and a boolean operand.
#[test]
fn booleans_and_conversions() {
    let region = "%two = constant {value = 2.5:fp32} : fp32
        %b = and %l_t0, %r_t0 : int1
        %c = xor %b, %l_t0 : int1
        %f = cast %l_t1 {element = fp32, rounding = \"rtne\"} : fp32
        %g = mul %f, %two : fp32
        %h = cast %g {element = int16, rounding = \"rtne\"} : int16
        %i = select %r_t0, %h, %r_t1 : int16
        yield_values %c, %i";
    for shape in SHAPES {
        let [outer, n, inner] = shape;
        let mut random = Random(9);
        let flags: Vec<u8> = (0..outer * n * inner).map(|_| random.below(2) as u8).collect();
        let x: Vec<i16> = flags.iter().map(|_| random.bits() as i16).collect();
        let rest = outer * inner;
        let mut args = [u8s(&flags), u8s(&vec![0; rest]), i16s(&x), i16s(&vec![0; rest]), int(0)];
        check(&kernel(&["int1", "int16"], shape, region), shape, &mut args);
        let pairs: Vec<(u8, i16)> = flags.into_iter().zip(x).collect();
        let expected = trees(shape, &pairs, |left, right| {
            let product = (f32::from(left.1) * 2.5) as i16;
            ((left.0 & right.0) ^ left.0, if right.0 == 1 { product } else { right.1 })
        });
        let found: Vec<(u8, i16)> = args[1].as_u8().into_iter().zip(args[3].as_i16()).collect();
        assert_eq!(found, expected, "{shape:?}");
    }
}

/// Tests a reduction of an index tile and a uniform tile to scalars.
#[test]
fn scalars_and_index_tiles() {
    let text = format!(
        "kernel func0 @k(%out: *int32) {{
         %i = arange {{start = 0, end = 64}} : int32[64]
         %seven = constant {{value = 7:int32}} : int32
         %u = splat %seven {{shape = [64]}} : int32[64]
         %a, %b = reduce %i, %u {{axis = 0}} (%x: int32, %p: int32, %y: int32, %q: int32) {{
         %d = sub %x, %y : int32
         %e = sub %p, %q : int32
         %f = mul %e, %seven : int32
         yield_values %d, %f
         }} : int32, int32
         store %out, %a {STORE}
         %one = constant {{value = 1:int32}} : int32
         %o = ptr_add %out, %one : *int32
         store %o, %b {STORE}
         return_values
         }}"
    );
    let mut args = [i32s(&[0; 2])];
    check(&text, [1, 64, 1], &mut args);
    let first = tree((0..64).collect(), |x: i32, y: i32| x - y);
    let second = tree(vec![7; 64], |x: i32, y: i32| (x - y) * 7);
    assert_eq!(args[0].as_i32(), [first, second]);
    let mut again = [i32s(&[0; 2])];
    launch(&program(&text), [3, 1, 1], &mut again).expect("the kernel has no fault");
    assert_eq!(again[0].as_i32(), [first, second]);
}
