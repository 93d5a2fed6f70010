//! Tests each op of the op table, and that none is missing.
#![allow(clippy::format_push_string, reason = "kernels are assembled from lines of text")]

mod common;

use common::{Arg, f32s, f64s, i8s, i32s, i64s, int, run, u8s, u16s};
use tilewright_ir::{Dtype, OPS};

const LOAD: &str = "{cache = \"\", eviction = \"\", volatile = false}";
const STORE: &str = "{cache = \"\", eviction = \"\"}";

/// Returns a kernel. `load NAME from PTR: TYPE[N]` and `store NAME to PTR: TYPE[N]` expand to
/// accesses to the first N elements.
fn kernel(parameters: &str, body: &str) -> String {
    let mut text = format!("kernel func0 @k({parameters}) {{\n");
    for (number, line) in body.lines().map(str::trim).enumerate() {
        let words: Vec<&str> = line.split([' ', ':']).filter(|word| !word.is_empty()).collect();
        let access = match words[..] {
            ["load", name, "from", pointer, ty] => Some((name, pointer, ty, true)),
            ["store", name, "to", pointer, ty] => Some((name, pointer, ty, false)),
            _ => None,
        };
        let Some((name, pointer, ty, is_load)) = access else {
            text += &format!("  {line}\n");
            continue;
        };
        let (element, count) = ty.trim_end_matches(']').split_once('[').expect("a tile of one axis");
        text += &format!("  %i{number} = arange {{start = 0, end = {count}}} : int32[{count}]\n");
        text += &format!("  %s{number} = splat {pointer} {{shape = [{count}]}} : *{ty}\n");
        text += &format!("  %p{number} = ptr_add %s{number}, %i{number} : *{element}[{count}]\n");
        if is_load {
            text += &format!("  {name} = load %p{number} {LOAD} : {ty}\n");
        } else {
            text += &format!("  store %p{number}, {name} {STORE}\n");
        }
    }
    text + "  return_values\n}\n"
}

#[test]
fn every_op_is_tested() {
    let sources = [
        include_str!("ops.rs"),
        include_str!("programs.rs"),
        include_str!("faults.rs"),
        include_str!("elementwise.rs"),
        include_str!("symbolic.rs"),
        include_str!("kernels/matmul_fp32.ir"),
        include_str!("kernels/attention.ir"),
    ];
    for op in OPS {
        let is_used = sources.iter().any(|source| {
            source.contains(&format!("= {} ", op.name)) || source.contains(&format!("  {}", op.name))
        });
        // `elementwise.rs` tests the elementwise table, and the crate of the assembler tests inline
        // assembly.
        let is_elsewhere = ["elementwise", "inline_asm", "volatile_asm"].contains(&op.name);
        // Only GPUs run programs with layouts.
        let is_elsewhere =
            is_elsewhere || ["set_layout", "device", "start_workers", "join_workers"].contains(&op.name);
        // Only the GPU back end makes this op.
        let is_elsewhere = is_elsewhere || op.name == "dot_scaled";
        assert!(is_used || is_elsewhere, "{} is in no test", op.name);
    }
}

#[test]
fn program_id_counts_x_fastest_and_num_programs_is_the_grid() {
    let text = kernel(
        "%out: *int32",
        "%x = program_id {axis = 0} : int32
         %y = program_id {axis = 1} : int32
         %z = program_id {axis = 2} : int32
         %nx = num_programs {axis = 0} : int32
         %ny = num_programs {axis = 1} : int32
         %nz = num_programs {axis = 2} : int32
         %a = mul %z, %ny : int32
         %b = add %a, %y : int32
         %c = mul %b, %nx : int32
         %d = add %c, %x : int32
         %p = ptr_add %out, %d : *int32
         %ten = constant {value = 10:int32} : int32
         %e = mul %nz, %ten : int32
         %f = add %e, %d : int32
         store %p, %f {cache = \"\", eviction = \"\"}",
    );
    let mut args = [i32s(&[0; 24])];
    run(&text, [4, 3, 2], &mut args);
    assert_eq!(args[0].as_i32(), (20..44).collect::<Vec<_>>());
}

#[test]
fn shapes() {
    // Expected: a transposed tile whose rows are multiplied by 10 to 13.
    let text = kernel(
        "%in: *int32, %out: *int32",
        "load %v from %in: int32[12]
         %t = reshape %v {shape = [3, 4]} : int32[3, 4]
         %u = transpose %t {permutation = [1, 0]} : int32[4, 3]
         %r = arange {start = 10, end = 14} : int32[4]
         %c = expand_dims %r {axis = 1} : int32[4, 1]
         %b = broadcast %c {shape = [4, 3]} : int32[4, 3]
         %n = mul %u, %b : int32[4, 3]
         %w = reshape %n {shape = [12]} : int32[12]
         store %w to %out: int32[12]",
    );
    let mut args = [i32s(&(0..12).collect::<Vec<_>>()), i32s(&[0; 12])];
    run(&text, [1, 1, 1], &mut args);
    let expected: Vec<i32> = (0..4).flat_map(|i| (0..3).map(move |j| (j * 4 + i) * (10 + i))).collect();
    assert_eq!(args[1].as_i32(), expected);
}

#[test]
fn tiles_of_many_axes() {
    let text = kernel(
        "%in: *int32, %out: *int32",
        "load %v from %in: int32[32]
         %t = reshape %v {shape = [2, 2, 2, 2, 2]} : int32[2, 2, 2, 2, 2]
         %i = arange {start = 0, end = 32} : int32[32]
         %j = reshape %i {shape = [2, 2, 2, 2, 2]} : int32[2, 2, 2, 2, 2]
         %s = add %t, %j : int32[2, 2, 2, 2, 2]
         %u = transpose %s {permutation = [4, 3, 2, 1, 0]} : int32[2, 2, 2, 2, 2]
         %k = transpose %j {permutation = [4, 3, 2, 1, 0]} : int32[2, 2, 2, 2, 2]
         %p = splat %out {shape = [2, 2, 2, 2, 2]} : *int32[2, 2, 2, 2, 2]
         %q = ptr_add %p, %k : *int32[2, 2, 2, 2, 2]
         %m = lt %k, %j : int1[2, 2, 2, 2, 2]
         %n = not %m : int1[2, 2, 2, 2, 2]
         store %q, %u, %n {cache = \"\", eviction = \"\"}",
    );
    let mut args = [i32s(&(0..32).map(|i| 100 * i).collect::<Vec<_>>()), i32s(&[0; 32])];
    run(&text, [1, 1, 1], &mut args);
    let reversed = |i: i32| i.reverse_bits().cast_unsigned() >> 27;
    let expected: Vec<i32> =
        (0..32_i32).map(|i| if i.cast_unsigned() >= reversed(i) { 101 * i } else { 0 }).collect();
    assert_eq!(args[1].as_i32(), expected);
}

#[test]
fn casts() {
    let text = kernel(
        "%in: *fp32, %out: *int8, %half: *fp16, %bits: *int32, %same: *fp32, %truth: *int1",
        "load %v from %in: fp32[4]
         %a = cast %v {element = int8, rounding = \"rtne\"} : int8[4]
         store %a to %out: int8[4]
         %b = cast %v {element = fp16, rounding = \"rtz\"} : fp16[4]
         store %b to %half: fp16[4]
         %c = bitcast %v {element = int32} : int32[4]
         store %c to %bits: int32[4]
         %d = bitcast %c {element = fp32} : fp32[4]
         store %d to %same: fp32[4]
         %e = cast %v {element = int1, rounding = \"rtne\"} : int1[4]
         store %e to %truth: int1[4]",
    );
    let x = [1.9_f32, -300.0, f32::NAN, 0.0];
    let mut args = [f32s(&x), i8s(&[0; 4]), u16s(&[0; 4]), i32s(&[0; 4]), f32s(&[0.0; 4]), u8s(&[0; 4])];
    run(&text, [1, 1, 1], &mut args);
    assert_eq!(args[1].as_i8(), [1, -128, 0, 0]);
    assert_eq!(args[2].as_u16()[0], 0x3f99);
    assert_eq!(args[3].as_i32(), x.map(|x| x.to_bits().cast_signed()));
    assert_eq!(args[4].as_u8(), args[0].as_u8());
    assert_eq!(args[5].as_u8(), [1, 1, 1, 0]);
}

#[test]
fn pointers_as_integers() {
    // A pointer from an integer may point into any argument.
    let text = kernel(
        "%a: *int32, %out: *int32, %address: *int64",
        "%n = cast %a {element = int64, rounding = \"rtne\"} : int64
         store %address, %n {cache = \"\", eviction = \"\"}
         %four = constant {value = 4:int64} : int64
         %m = add %n, %four : int64
         %p = cast %m {element = *int32, rounding = \"rtne\"} : *int32
         %q = cast %p {element = *int8, rounding = \"rtne\"} : *int8
         %r = cast %q {element = *int32, rounding = \"rtne\"} : *int32
         load %v from %r: int32[3]
         %s = cast %a {element = int1, rounding = \"rtne\"} : int1
         %t = splat %s {shape = [3]} : int1[3]
         %u = cast %t {element = int32, rounding = \"rtne\"} : int32[3]
         %w = add %u, %v : int32[3]
         store %w to %out: int32[3]",
    );
    let mut args = [i32s(&[1, 2, 3, 4]), i32s(&[0; 3]), i64s(&[0])];
    let program = common::program(&text);
    common::launch(&program, [1, 1, 1], &mut args).expect("it is in bounds");
    assert_eq!(args[1].as_i32(), [3, 4, 5]);
}

#[test]
fn atomic_operations() {
    let text = kernel(
        "%x: *int32, %out: *int32",
        "%i = arange {start = 0, end = 8} : int32[8]
         %two = constant {value = 2:int32} : int32
         %five = constant {value = 5:int32} : int32
         %twos = splat %two {shape = [8]} : int32[8]
         %fives = splat %five {shape = [8]} : int32[8]
         %even = int_rem %i, %twos : int32[8]
         %odd = cast %even {element = int1, rounding = \"rtne\"} : int1[8]
         %xs = splat %x {shape = [8]} : *int32[8]
         %outs = splat %out {shape = [8]} : *int32[8]
         %same = ptr_add %xs, %even : *int32[8]
         %places = ptr_add %outs, %i : *int32[8]
         %old = atomic_rmw %same, %i {kind = \"add\", sem = \"acq_rel\", scope = \"gpu\"} : int32[8]
         %none = atomic_rmw %same, %fives, %odd {kind = \"max\", sem = \"relaxed\", scope = \"cta\"} : int32[8]
         %sum = add %old, %none : int32[8]
         atomic_store %places, %sum {sem = \"release\", scope = \"sys\"}
         %twelve = constant {value = 12:int32} : int32
         %swapped = atomic_cas %x, %twelve, %five {sem = \"acquire\", scope = \"gpu\"} : int32
         %found = atomic_poll %x, %five {sem = \"acquire\", scope = \"gpu\"} : int1
         %late = constant {value = 0:int64} : int64
         %lost = atomic_poll %x, %two, %late {sem = \"relaxed\", scope = \"gpu\"} : int1
         %seen = atomic_load %same, %odd {sem = \"acquire\", scope = \"gpu\"} : int32[8]
         %eight = constant {value = 8:int32} : int32
         %eights = splat %eight {shape = [8]} : int32[8]
         %after = ptr_add %places, %eights : *int32[8]
         store %after, %seen {cache = \"\", eviction = \"\"}
         %last = ptr_add %out, %eight : *int32
         %q = ptr_add %last, %eight : *int32
         store %q, %swapped {cache = \"\", eviction = \"\"}
         %one = constant {value = 1:int32} : int32
         %q1 = ptr_add %q, %one : *int32
         %is_found = cast %found {element = int32, rounding = \"rtne\"} : int32
         store %q1, %is_found {cache = \"\", eviction = \"\"}
         %q2 = ptr_add %q1, %one : *int32
         %is_lost = cast %lost {element = int32, rounding = \"rtne\"} : int32
         store %q2, %is_lost {cache = \"\", eviction = \"\"}",
    );
    let mut args = [i32s(&[0, 100]), i32s(&[-1; 19])];
    run(&text, [1, 1, 1], &mut args);
    // Even indices update the first address, in order, and odd indices the second.
    assert_eq!(args[0].as_i32(), [5, 116]);
    let out = args[1].as_i32();
    assert_eq!(out[..8], [0, 216, 0, 217, 2, 220, 6, 225]);
    assert_eq!(out[8..], [0, 116, 0, 116, 0, 116, 0, 116, 12, 1, 0]);
}

#[test]
fn loads_under_masks() {
    // Inputs: a strided block, single addresses, and one address for all elements.
    let text = kernel(
        "%in: *int32, %out: *int32, %n: int32",
        "%i = arange {start = 0, end = 8} : int32[8]
         %ns = splat %n {shape = [8]} : int32[8]
         %box = lt %i, %ns : int1[8]
         %two = constant {value = 2:int32} : int32
         %twos = splat %two {shape = [8]} : int32[8]
         %rem = int_rem %i, %twos : int32[8]
         %even = cast %rem {element = int1, rounding = \"rtne\"} : int1[8]
         %base = splat %in {shape = [8]} : *int32[8]
         %seven = constant {value = 7:int32} : int32
         %sevens = splat %seven {shape = [8]} : int32[8]
         %back = sub %sevens, %i : int32[8]
         %p = ptr_add %base, %back : *int32[8]
         %x = xor %i, %twos : int32[8]
         %q = ptr_add %base, %x : *int32[8]
         %a = load %p, %box, %i {cache = \"\", eviction = \"\", volatile = false} : int32[8]
         %b = load %p, %even, %i {cache = \"\", eviction = \"\", volatile = false} : int32[8]
         %c = load %q, %box {cache = \"\", eviction = \"\", volatile = false} : int32[8]
         %d = load %q, %even, %twos {cache = \"\", eviction = \"\", volatile = false} : int32[8]
         %e = load %base, %box, %sevens {cache = \"\", eviction = \"\", volatile = false} : int32[8]
         %o = splat %out {shape = [8]} : *int32[8]
         %eight = constant {value = 8:int32} : int32
         %step = splat %eight {shape = [8]} : int32[8]
         %o0 = ptr_add %o, %i : *int32[8]
         store %o0, %a {cache = \"\", eviction = \"\"}
         %o1 = ptr_add %o0, %step : *int32[8]
         store %o1, %b, %even {cache = \"\", eviction = \"\"}
         %o2 = ptr_add %o1, %step : *int32[8]
         store %o2, %c, %box {cache = \"\", eviction = \"\"}
         %o3 = ptr_add %o2, %step : *int32[8]
         store %o3, %d {cache = \"\", eviction = \"\"}
         %o4 = ptr_add %o3, %step : *int32[8]
         store %o4, %e {cache = \"\", eviction = \"\"}",
    );
    let mut args = [i32s(&[10, 11, 12, 13, 14, 15, 16, 17]), i32s(&[-1; 40]), int(3)];
    run(&text, [1, 1, 1], &mut args);
    let out = args[1].as_i32();
    assert_eq!(out[0..8], [17, 16, 15, 3, 4, 5, 6, 7]);
    assert_eq!(out[8..16], [-1, 16, -1, 14, -1, 12, -1, 10]);
    assert_eq!(out[16..24], [12, 13, 10, -1, -1, -1, -1, -1]);
    assert_eq!(out[24..32], [2, 13, 2, 11, 2, 17, 2, 15]);
    assert_eq!(out[32..40], [10, 10, 10, 7, 7, 7, 7, 7]);
}

#[test]
fn booleans_in_memory_are_true_where_not_zero() {
    let text = kernel(
        "%in: *int1, %out: *int32",
        "load %v from %in: int1[4]
         %i = cast %v {element = int32, rounding = \"rtne\"} : int32[4]
         store %i to %out: int32[4]",
    );
    let mut args = [u8s(&[0, 1, 2, 255]), i32s(&[0; 4])];
    run(&text, [1, 1, 1], &mut args);
    assert_eq!(args[1].as_i32(), [0, 1, 1, 1]);
}

#[test]
fn dot_of_transposed_and_of_batches() {
    let text = kernel(
        "%a: *fp32, %b: *fp32, %out: *fp32",
        "load %x from %a: fp32[12]
         load %y from %b: fp32[12]
         %x1 = reshape %x {shape = [2, 3, 2]} : fp32[2, 3, 2]
         %x2 = transpose %x1 {permutation = [0, 2, 1]} : fp32[2, 2, 3]
         %y1 = reshape %y {shape = [2, 3, 2]} : fp32[2, 3, 2]
         %one = constant {value = 1.0:fp32} : fp32
         %acc = splat %one {shape = [2, 2, 2]} : fp32[2, 2, 2]
         %z = dot %x2, %y1, %acc {precision = \"ieee\", max_imprecise_acc = 0} : fp32[2, 2, 2]
         %w = reshape %z {shape = [8]} : fp32[8]
         store %w to %out: fp32[8]",
    );
    let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let y: Vec<f32> = (0..12).map(|i| (i * i % 7) as f32).collect();
    let mut args = [f32s(&x), f32s(&y), f32s(&[0.0; 8])];
    run(&text, [1, 1, 1], &mut args);
    let mut expected = Vec::new();
    for batch in 0..2 {
        for i in 0..2 {
            for j in 0..2 {
                let products = (0..3).map(|k| x[batch * 6 + k * 2 + i] * y[batch * 6 + k * 2 + j]);
                expected.push(1.0 + products.sum::<f32>());
            }
        }
    }
    assert_eq!(args[2].as_f32(), expected);
}

#[test]
fn reductions_along_each_axis() {
    let reduce = |axis: u32, extent: u32| {
        kernel(
            "%in: *int32, %sum: *int32, %last: *int32",
            &format!(
                "load %v from %in: int32[30]
                 %t = reshape %v {{shape = [2, 3, 5]}} : int32[2, 3, 5]
                 %s = reduce %t {{axis = {axis}}} (%x: int32, %y: int32) {{
                 %z = add %y, %x : int32
                 yield_values %z
                 }} : int32{shape}
                 %r = reshape %s {{shape = [{extent}]}} : int32[{extent}]
                 store %r to %sum: int32[{extent}]
                 %u = reduce %t {{axis = {axis}}} (%x: int32, %y: int32) {{
                 %w = sub %y, %x : int32
                 %z = add %w, %x : int32
                 yield_values %z
                 }} : int32{shape}
                 %q = reshape %u {{shape = [{extent}]}} : int32[{extent}]
                 store %q to %last: int32[{extent}]",
                shape = ["[3, 5]", "[2, 5]", "[2, 3]"][axis as usize],
            ),
        )
    };
    let input: Vec<i32> = (0..30).map(|i| i * i % 31).collect();
    let at = |i: usize, j: usize, k: usize| input[(i * 3 + j) * 5 + k];
    let expected = |axis: usize, last: bool| -> Vec<i32> {
        let extents = [2, 3, 5];
        let others: Vec<usize> = (0..3).filter(|&other| other != axis).collect();
        let mut result = Vec::new();
        for a in 0..extents[others[0]] {
            for b in 0..extents[others[1]] {
                let element = |n: usize| {
                    let mut index = [0; 3];
                    (index[axis], index[others[0]], index[others[1]]) = (n, a, b);
                    at(index[0], index[1], index[2])
                };
                let elements: Vec<i32> = (0..extents[axis]).map(element).collect();
                result.push(if last { elements[extents[axis] - 1] } else { elements.iter().sum() });
            }
        }
        result
    };
    for (axis, extent) in [(0, 15), (1, 10), (2, 6)] {
        let mut args = [i32s(&input), i32s(&vec![0; extent]), i32s(&vec![0; extent])];
        run(&reduce(axis, extent as u32), [1, 1, 1], &mut args);
        assert_eq!(args[1].as_i32(), expected(axis as usize, false), "sum along {axis}");
        // The function that returns its right operand is not commutative, so the result shows the
        // order.
        assert_eq!(args[2].as_i32(), expected(axis as usize, true), "last along {axis}");
    }
}

#[test]
fn equal_elements_are_rounded_like_others() {
    for dtype in Dtype::ALL.iter().filter(|dtype| dtype.is_float() && dtype.bytes() == 1) {
        let mut body = format!("load %a from %in: {dtype}[4]\n%b = splat %s {{shape = [4]}} : {dtype}[4]\n");
        for (index, function) in ["min", "max", "min_nan", "max_nan"].into_iter().enumerate() {
            for tile in ["a", "b"] {
                let region = format!(
                    "(%x: {dtype}, %y: {dtype}) {{\n%z = {function} %x, %y : {dtype}\nyield_values %z\n}}"
                );
                let name = format!("{tile}{index}");
                body += &format!(
                    "%r{name} = reduce %{tile} {{axis = 0}} {region} : {dtype}
                     %t{name} = splat %r{name} {{shape = [4]}} : {dtype}[4]
                     %u{name} = scan %{tile} {{axis = 0, reverse = false}} {region} : {dtype}[4]
                     %c{name} = constant {{value = {}:int32}} : int32
                     %d{name} = constant {{value = {}:int32}} : int32
                     %p{name} = ptr_add %out_{tile}, %c{name} : *{dtype}
                     %q{name} = ptr_add %out_{tile}, %d{name} : *{dtype}
                     store %t{name} to %p{name}: {dtype}[4]
                     store %u{name} to %q{name}: {dtype}[4]\n",
                    index * 8,
                    index * 8 + 4,
                );
            }
        }
        let parameters = format!("%in: *{dtype}, %s: {dtype}, %out_a: *{dtype}, %out_b: *{dtype}");
        let text = kernel(&parameters, body.trim_end());
        // The sign and payload of a NaN are unspecified.
        let is_nan = |bits: u8| match dtype {
            Dtype::F8E5 => bits & 0x7f > 0x7c,
            Dtype::F8E4NV => bits & 0x7f == 0x7f,
            Dtype::F8E4B8 | Dtype::F8E5B16 => bits == 0x80,
            // tidy: wildcard because the other format has no NaN
            _ => false,
        };
        let extreme = [0x00, 0x01, 0x3c, 0x7b, 0x7c, 0x7e, 0x7f, 0x80, 0xbc, 0xfb, 0xfc, 0xff];
        for bits in extreme.into_iter().filter(|&bits| !is_nan(bits)) {
            let mut args = [u8s(&[bits; 4]), int(bits.into()), u8s(&[0; 32]), u8s(&[0; 32])];
            run(&text, [1, 1, 1], &mut args);
            assert_eq!(args[2].as_u8(), args[3].as_u8(), "{dtype} {bits:#x}");
        }
    }
}

#[test]
fn reductions_with_control_flow_calls_and_captures() {
    let mut text = kernel(
        "%in: *int32, %out: *int32, %n: int32",
        "load %v from %in: int32[7]
         %a = reduce %v {axis = 0} (%x: int32, %y: int32) {
         %c = lt %x, %y : int1
         %z = if_else %c () {
         yield_values %y
         } () {
         yield_values %x
         } : int32
         yield_values %z
         } : int32
         store %out, %a {cache = \"\", eviction = \"\"}
         %b = reduce %v {axis = 0} (%x: int32, %y: int32) {
         %s = call %x, %y {callee = func1, results = (int32)} : int32
         %t = min %s, %n : int32
         yield_values %t
         } : int32
         %one = constant {value = 1:int32} : int32
         %p = ptr_add %out, %one : *int32
         store %p, %b {cache = \"\", eviction = \"\"}",
    );
    text += "func1 @helper(%x: int32, %y: int32) {\n  %z = add %x, %y : int32\n  return_values %z\n}\n";
    let mut args = [i32s(&[3, 1, 4, 1, 5, 9, 2]), i32s(&[0; 2]), int(11)];
    run(&text, [1, 1, 1], &mut args);
    assert_eq!(args[1].as_i32(), [9, 11]);
}

#[test]
fn scans_of_lines_that_are_no_power_of_two() {
    let scan = |reverse: bool| {
        kernel(
            "%in: *int32, %sums: *int32, %first: *int32, %most: *int32",
            &format!(
                "load %v from %in: int32[7]
                 %a = scan %v {{axis = 0, reverse = {reverse}}} (%x: int32, %y: int32) {{
                 %z = add %x, %y : int32
                 yield_values %z
                 }} : int32[7]
                 store %a to %sums: int32[7]
                 %b = scan %v {{axis = 0, reverse = {reverse}}} (%x: int32, %y: int32) {{
                 yield_values %x
                 }} : int32[7]
                 store %b to %first: int32[7]
                 %c = scan %v {{axis = 0, reverse = {reverse}}} (%x: int32, %y: int32) {{
                 %l = lt %x, %y : int1
                 %z = if_else %l () {{
                 yield_values %y
                 }} () {{
                 yield_values %x
                 }} : int32
                 yield_values %z
                 }} : int32[7]
                 store %c to %most: int32[7]"
            ),
        )
    };
    let check = |reverse: bool, expected: [[i32; 7]; 3]| {
        let mut args = [i32s(&[3, 1, 4, 1, 5, 9, 2]), i32s(&[0; 7]), i32s(&[0; 7]), i32s(&[0; 7])];
        run(&scan(reverse), [1, 1, 1], &mut args);
        for (arg, expected) in args[1..].iter().zip(expected) {
            assert_eq!(arg.as_i32(), expected);
        }
    };
    check(false, [[3, 4, 8, 9, 14, 23, 25], [3; 7], [3, 3, 4, 4, 5, 9, 9]]);
    check(true, [[25, 22, 21, 17, 16, 11, 2], [2; 7], [9, 9, 9, 9, 9, 9, 2]]);
}

#[test]
fn exchanges_and_counts() {
    let text = kernel(
        "%in: *int32, %merged: *int32, %moved: *int32, %counts: *int32",
        "load %v from %in: int32[8]
         %a = bitonic %v {axis = 0, high = 1, low = 0, block = 2, descending = false} : int32[8]
         store %a to %merged: int32[8]
         %b = butterfly %v {axis = 0, mask = 5} : int32[8]
         store %b to %moved: int32[8]
         %c = histogram %v {bins = 4} : int32[4]
         store %c to %counts: int32[4]",
    );
    let mut args = [i32s(&[3, 1, 4, 9, 7, 5, -1, 3]), i32s(&[0; 8]), i32s(&[0; 8]), i32s(&[0; 4])];
    run(&text, [1, 1, 1], &mut args);
    // Blocks of four elements. The second is in descending order.
    assert_eq!(args[1].as_i32(), [1, 3, 4, 9, 7, 5, 3, -1]);
    assert_eq!(args[2].as_i32(), [5, 7, 3, -1, 1, 3, 9, 4]);
    assert_eq!(args[3].as_i32(), [0, 1, 0, 2]);
}

#[test]
fn loops() {
    // The loop sums its counter, and swaps two values in each iteration.
    let text = kernel(
        "%out: *int64, %from: int64, %to: int64, %step: int64",
        "%zero = constant {value = 0:int64} : int64
         %one = constant {value = 1:int64} : int64
         %s, %x, %y = for_loop %from, %to, %step, %zero, %zero, %one {options = \"stages=0 unroll=0\"} (%i: int64, %sum: int64, %a: int64, %b: int64) {
         %t = add %sum, %i : int64
         yield_values %t, %b, %a
         } : int64, int64, int64
         store %out, %s {cache = \"\", eviction = \"\"}
         %p = ptr_add %out, %one : *int64
         store %p, %x {cache = \"\", eviction = \"\"}",
    );
    let check = |from: i64, to: i64, step: i64, expected: [i64; 2]| {
        let mut args = [i64s(&[-1; 2]), int(from), int(to), int(step)];
        run(&text, [1, 1, 1], &mut args);
        assert_eq!(args[0].as_i64(), expected, "from {from} to {to} by {step}");
    };
    check(10, 0, -3, [10 + 7 + 4 + 1, 0]);
    check(0, 5, 2, [6, 1]);
    check(5, 5, 1, [0, 0]);
    check(5, 0, 1, [0, 0]);
    // The counter does not wrap, so the loop ends.
    check(i64::MAX - 1, i64::MAX, 2, [i64::MAX - 1, 1]);
}

#[test]
fn while_loops_and_nested_branches() {
    // The loop counts the steps of a Collatz sequence.
    let text = kernel(
        "%out: *int32, %n: int32, %tile: *int32",
        "%zero = constant {value = 0:int32} : int32
         %one = constant {value = 1:int32} : int32
         %two = constant {value = 2:int32} : int32
         %three = constant {value = 3:int32} : int32
         %i = arange {start = 0, end = 4} : int32[4]
         %last, %steps, %t = while_loop %n, %zero, %i (%x: int32, %count: int32, %u: int32[4]) {
         %more = ne %x, %one : int1
         yield_values %more
         } (%x: int32, %count: int32, %u: int32[4]) {
         %r = int_rem %x, %two : int32
         %odd = ne %r, %zero : int1
         %y = if_else %odd () {
         %big = gt %x, %three : int1
         %w = if_else %big () {
         %a = mul %x, %three : int32
         %b = add %a, %one : int32
         yield_values %b
         } () {
         %a = mul %x, %three : int32
         %b = add %a, %one : int32
         yield_values %b
         } : int32
         yield_values %w
         } () {
         %a = int_div %x, %two : int32
         yield_values %a
         } : int32
         %c = add %count, %one : int32
         %v = add %u, %i : int32[4]
         yield_values %y, %c, %v
         } : int32, int32, int32[4]
         store %out, %steps {cache = \"\", eviction = \"\"}
         store %t to %tile: int32[4]",
    );
    let mut args = [i32s(&[0]), int(27), i32s(&[0; 4])];
    run(&text, [1, 1, 1], &mut args);
    assert_eq!(args[0].as_i32(), [111]);
    assert_eq!(args[2].as_i32(), [0, 112, 224, 336]);
}

#[test]
fn hints_and_barriers_do_nothing() {
    let text = kernel(
        "%in: *fp64, %out: *fp64",
        "load %v from %in: fp64[4]
         %h = hint %v {kind = \"multiple_of\", values = [4]} : fp64[4]
         %c = gt %h, %v : int1[4]
         store %h to %out: fp64[4]
         assume %c
         barrier",
    );
    let mut args = [f64s(&[1.0, 2.0, 3.0, 4.0]), f64s(&[0.0; 4])];
    run(&text, [1, 1, 1], &mut args);
    assert_eq!(args[1].as_f64(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn a_tile_that_is_still_needed_is_not_overwritten() {
    let text = kernel(
        "%in: *fp32, %a: *fp32, %b: *fp32, %c: *fp32",
        "load %v from %in: fp32[4]
         %w = add %v, %v : fp32[4]
         %x = mul %w, %v : fp32[4]
         %y = sub %w, %x : fp32[4]
         %z = neg %y : fp32[4]
         store %w to %a: fp32[4]
         store %y to %b: fp32[4]
         store %z to %c: fp32[4]",
    );
    let mut args: Vec<Arg> =
        vec![f32s(&[1.0, 2.0, 3.0, 4.0]), f32s(&[0.0; 4]), f32s(&[0.0; 4]), f32s(&[0.0; 4])];
    run(&text, [1, 1, 1], &mut args);
    assert_eq!(args[1].as_f32(), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(args[2].as_f32(), [0.0, -4.0, -12.0, -24.0]);
    assert_eq!(args[3].as_f32(), [-0.0, 4.0, 12.0, 24.0]);
}

#[test]
fn an_operand_used_twice_is_read_twice() {
    let text = kernel(
        "%in: *int1, %masks: *int1, %stored: *int1, %out: *int32",
        &format!(
            "load %mask from %masks: int1[4]
             %i = arange {{start = 0, end = 4}} : int32[4]
             %s = splat %in {{shape = [4]}} : *int1[4]
             %p = ptr_add %s, %i : *int1[4]
             %v = load %p, %mask, %mask {LOAD} : int1[4]
             %w = cast %v {{element = int32, rounding = \"rtne\"}} : int32[4]
             store %w to %out: int32[4]
             load %again from %masks: int1[4]
             %t = splat %stored {{shape = [4]}} : *int1[4]
             %q = ptr_add %t, %i : *int1[4]
             store %q, %again, %again {STORE}"
        ),
    );
    let mut args = [u8s(&[0, 1, 0, 1]), u8s(&[1, 1, 0, 0]), u8s(&[7; 4]), i32s(&[9; 4])];
    run(&text, [1, 1, 1], &mut args);
    assert_eq!(args[2].as_u8(), [1, 1, 7, 7]);
    assert_eq!(args[3].as_i32(), [0, 1, 0, 0]);
}

#[test]
fn slice_and_gather_take_elements_by_index() {
    let text = kernel(
        "%x: *int32, %n: *int32, %out: *int32, %taken: *int32",
        "load %t from %x: int32[6]
         load %i from %n: int32[4]
         %s = slice %t {starts = [5], steps = [-2], shape = [3]} : int32[3]
         %g = gather %t, %i {axis = 0} : int32[4]
         store %s to %out: int32[3]
         store %g to %taken: int32[4]",
    );
    let mut args = [i32s(&[10, 11, 12, 13, 14, 15]), i32s(&[0, 5, 1, 3]), i32s(&[0; 3]), i32s(&[0; 4])];
    run(&text, [1, 1, 1], &mut args);
    assert_eq!(args[2].as_i32(), [15, 13, 11]);
    assert_eq!(args[3].as_i32(), [10, 15, 11, 13]);
}

#[test]
fn a_kernel_queries_the_machine() {
    let text = kernel(
        "%out: *int32",
        "%t = machine {quantity = \"smid\"} : int32
         dependency {action = \"wait\"}
         print {prefix = \"once\", digits = 0, extents = []}
         store %out, %t {cache = \"\", eviction = \"\"}",
    );
    let mut args = [i32s(&[-1])];
    run(&text, [1, 1, 1], &mut args);
    assert!(args[0].as_i32()[0] >= 0);
}

#[test]
fn functions_of_elements() {
    // The first map has no control flow, and the second has an `if_else`. The third is on pairs,
    // the last one incomplete.
    let text = kernel(
        "%in: *int32, %whole: *int32, %ways: *int32, %most: *int32, %least: *int32",
        "load %v from %in: int32[7]
         %a = map %v, %v {pack = 1} (%x: int32, %y: int32) {
         %z = add %x, %y : int32
         yield_values %z
         } : int32[7]
         store %a to %whole: int32[7]
         %b = map %v {pack = 1} (%x: int32) {
         %three = constant {value = 3:int32} : int32
         %l = lt %x, %three : int1
         %z = if_else %l () {
         yield_values %three
         } () {
         yield_values %x
         } : int32
         yield_values %z
         } : int32[7]
         store %b to %ways: int32[7]
         %c, %d = map %v {pack = 2} (%x: int32, %y: int32) {
         %h = max %x, %y : int32
         %l = min %x, %y : int32
         yield_values %h, %h, %l, %l
         } : int32[7], int32[7]
         store %c to %most: int32[7]
         store %d to %least: int32[7]",
    );
    let mut args = [&[3, 1, 4, 1, 5, 9, 2][..], &[0; 7], &[0; 7], &[0; 7], &[0; 7]].map(i32s);
    run(&text, [1, 1, 1], &mut args);
    assert_eq!(args[1].as_i32(), [6, 2, 8, 2, 10, 18, 4]);
    assert_eq!(args[2].as_i32(), [3, 3, 4, 3, 5, 9, 3]);
    assert_eq!(args[3].as_i32(), [3, 3, 4, 4, 9, 9, 2]);
    assert_eq!(args[4].as_i32(), [1, 1, 1, 1, 5, 5, 2]);
}
