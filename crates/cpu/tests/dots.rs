//! Compares dots, also of operands in memory, with sums of exact products.

mod common;

use common::{Arg, dense_program, f32s, f64s, i8s, i32s, int, launch, program, run, u16s};

/// The extents of the tensors of a kernel. `a` has `m` rows of `k` elements, and `b` has `k` rows
/// of `n` elements.
#[derive(Clone, Copy)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
}

/// A kernel that loads two tiles and multiplies them.
struct Kernel {
    shape: Shape,
    /// The element type of the operands, then the element type of the accumulator.
    types: [&'static str; 2],
    /// The row stride and the column stride of `a`, then those of `b`, in elements.
    strides: [[usize; 2]; 2],
    /// The number of columns of `a` and rows of `b` that are not masked off, if the loads have
    /// masks.
    limit: Option<usize>,
    /// The lines between the two loads, and the lines between the loads and the dot.
    between: [String; 2],
    after: String,
}

/// Returns the lines that compute the pointers `%{name}p` to a tile.
fn pointers(name: &str, dtype: &str, extents: [usize; 2], strides: [usize; 2]) -> String {
    let ([rows, columns], [row, column]) = (extents, strides);
    format!(
        "  %{name}0 = arange {{start = 0, end = {rows}}} : int32[{rows}]
  %{name}1 = expand_dims %{name}0 {{axis = 1}} : int32[{rows}, 1]
  %{name}2 = constant {{value = {row}:int32}} : int32
  %{name}3 = splat %{name}2 {{shape = [{rows}, 1]}} : int32[{rows}, 1]
  %{name}4 = mul %{name}1, %{name}3 : int32[{rows}, 1]
  %{name}5 = broadcast %{name}4 {{shape = [{rows}, {columns}]}} : int32[{rows}, {columns}]
  %{name}6 = arange {{start = 0, end = {columns}}} : int32[{columns}]
  %{name}7 = expand_dims %{name}6 {{axis = 0}} : int32[1, {columns}]
  %{name}8 = constant {{value = {column}:int32}} : int32
  %{name}9 = splat %{name}8 {{shape = [1, {columns}]}} : int32[1, {columns}]
  %{name}10 = mul %{name}7, %{name}9 : int32[1, {columns}]
  %{name}11 = broadcast %{name}10 {{shape = [{rows}, {columns}]}} : int32[{rows}, {columns}]
  %{name}12 = add %{name}5, %{name}11 : int32[{rows}, {columns}]
  %{name}13 = splat %{name} {{shape = [{rows}, {columns}]}} : *{dtype}[{rows}, {columns}]
  %{name}p = ptr_add %{name}13, %{name}12 : *{dtype}[{rows}, {columns}]
"
    )
}

/// Returns the lines that compute a mask of the first rows (`axis` 0) or columns of a tile.
fn mask(name: &str, [rows, columns]: [usize; 2], axis: usize, limit: usize) -> String {
    let (index, shape) = if axis == 0 { (1, format!("[{rows}, 1]")) } else { (7, format!("[1, {columns}]")) };
    format!(
        "  %{name}l = constant {{value = {limit}:int32}} : int32
  %{name}m0 = splat %{name}l {{shape = {shape}}} : int32{shape}
  %{name}m1 = lt %{name}{index}, %{name}m0 : int1{shape}
  %{name}m = broadcast %{name}m1 {{shape = [{rows}, {columns}]}} : int1[{rows}, {columns}]
"
    )
}

const PLAIN: &str = "{cache = \"\", eviction = \"\", volatile = false}";

impl Kernel {
    fn new(shape: Shape) -> Self {
        let Shape { n, k, .. } = shape;
        Self {
            shape,
            types: ["fp32", "fp32"],
            strides: [[k, 1], [n, 1]],
            limit: None,
            between: [String::new(), String::new()],
            after: String::new(),
        }
    }

    fn text(&self) -> String {
        let Self { shape: Shape { m, n, k }, types: [dtype, acc], strides, limit, between, after } = self;
        let masks = limit.map(|limit| mask("a", [*m, *k], 1, limit) + &mask("b", [*k, *n], 0, limit));
        let operand = |name: &str| limit.map(|_| format!(", %{name}m")).unwrap_or_default();
        format!(
            "kernel func0 @k(%a: *{dtype}, %b: *{dtype}, %c: *{acc}, %zero: {acc}) {{
{}{}{}{}  %x = load %ap{} {PLAIN} : {dtype}[{m}, {k}]
{}  %y = load %bp{} {PLAIN} : {dtype}[{k}, {n}]
{}  %acc = splat %zero {{shape = [{m}, {n}]}} : {acc}[{m}, {n}]
  %z = dot %x, %y, %acc {{precision = \"ieee\", max_imprecise_acc = 0}} : {acc}[{m}, {n}]
  store %cp, %z {{cache = \"\", eviction = \"\"}}
{after}  return_values
}}
",
            pointers("a", dtype, [*m, *k], strides[0]),
            pointers("b", dtype, [*k, *n], strides[1]),
            pointers("c", acc, [*m, *n], [*n, 1]),
            masks.unwrap_or_default(),
            operand("a"),
            between[0],
            operand("b"),
            between[1],
        )
    }

    /// Returns the number of loads that may leave their elements in memory.
    fn in_place(&self) -> usize {
        program(&self.text()).to_string().matches("// in place").count()
    }

    fn expected(&self, a: &[f64], b: &[f64]) -> Vec<f64> {
        let Self { shape: Shape { m, n, k }, strides: [left, right], limit, .. } = self;
        let depth = limit.unwrap_or(*k);
        (0..m * n)
            .map(|i| {
                let (row, column) = (i / n, i % n);
                let product = |l: usize| a[row * left[0] + l * left[1]] * b[l * right[0] + column * right[1]];
                (0..depth).map(product).sum()
            })
            .collect()
    }
}

/// Returns halves between -2 and 2, whose products and sums are exact.
fn halves(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 9) as f64 / 2.0 - 2.0).collect()
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

fn span([rows, columns]: [usize; 2], [row, column]: [usize; 2]) -> usize {
    (rows - 1) * row + (columns - 1) * column + 1
}

fn spans(kernel: &Kernel) -> [usize; 2] {
    let Shape { m, n, k } = kernel.shape;
    [span([m, k], kernel.strides[0]), span([k, n], kernel.strides[1])]
}

fn check(kernel: &Kernel) {
    let Shape { m, n, .. } = kernel.shape;
    let [a, b] = spans(kernel);
    let (a, b) = (halves(a, 1), halves(b, 2));
    let mut args = [f32s(&narrow(&a)), f32s(&narrow(&b)), f32s(&vec![9.0; m * n]), Arg::Scalar(0)];
    run(&kernel.text(), [1, 1, 1], &mut args);
    assert_eq!(args[2].as_f32(), narrow(&kernel.expected(&a, &b)), "{}", kernel.text());
}

#[test]
fn operands_are_read_where_they_are() {
    for shape in [
        Shape { m: 16, n: 16, k: 16 },
        Shape { m: 64, n: 64, k: 64 },
        Shape { m: 1, n: 4, k: 8 },
        Shape { m: 8, n: 128, k: 2 },
        Shape { m: 128, n: 8, k: 32 },
        Shape { m: 2, n: 1, k: 1 },
    ] {
        let Shape { m, n, k } = shape;
        for strides in [
            [[k, 1], [n, 1]],
            [[k + 5, 1], [n + 3, 1]],
            [[1, m], [1, k]],
            [[1, m + 1], [1, k + 7]],
            // No elements are contiguous.
            [[2 * k, 2], [3 * n, 3]],
            // Repeated rows and columns.
            [[0, 1], [n, 0]],
        ] {
            let kernel = Kernel { strides, ..Kernel::new(shape) };
            assert_eq!(kernel.in_place(), 2, "{}", kernel.text());
            check(&kernel);
        }
    }
}

#[test]
fn masked_operands_are_copied() {
    let shape = Shape { m: 16, n: 32, k: 64 };
    for limit in [0, 1, 33, 64, 100] {
        let limit = Some(limit).map(|limit: usize| limit.min(64));
        check(&Kernel { limit, strides: [[70, 1], [40, 1]], ..Kernel::new(shape) });
    }
}

#[test]
fn a_store_before_the_dot_does_not_change_its_operands() {
    let shape = Shape { m: 16, n: 16, k: 16 };
    let zeros = |name: &str| {
        format!(
            "  %{name}f = constant {{value = 0.0:fp32}} : fp32
  %{name}z = splat %{name}f {{shape = [16, 16]}} : fp32[16, 16]
  store %{name}p, %{name}z {{cache = \"\", eviction = \"\"}}
"
        )
    };
    let after_both = Kernel { between: [String::new(), zeros("a") + &zeros("b")], ..Kernel::new(shape) };
    assert_eq!(after_both.in_place(), 0);
    check(&after_both);
    // The store is between the two loads, so only the load of `b` may leave its elements in memory.
    let after_one = Kernel { between: [zeros("a"), String::new()], ..Kernel::new(shape) };
    assert_eq!(after_one.in_place(), 1);
    check(&after_one);
    let atomic = "  %one = constant {value = 1.0:fp32} : fp32
  %old = atomic_rmw %a, %one {kind = \"add\", sem = \"relaxed\", scope = \"gpu\"} : fp32
";
    let kernel = Kernel { between: [String::new(), String::from(atomic)], ..Kernel::new(shape) };
    assert_eq!(kernel.in_place(), 0);
    check(&kernel);
    // A store after the dot changes nothing that the dot reads.
    let later = Kernel { after: zeros("a"), ..Kernel::new(shape) };
    assert_eq!(later.in_place(), 2);
    check(&later);
}

#[test]
fn an_operand_with_another_reader_is_copied() {
    let shape = Shape { m: 16, n: 16, k: 16 };
    let stored = Kernel {
        after: String::from("  store %bp, %x {cache = \"\", eviction = \"\"}\n"),
        ..Kernel::new(shape)
    };
    assert!(stored.in_place() <= 1, "{}", program(&stored.text()));
    check(&stored);
    // Both operands are the same tile.
    let text = Kernel::new(shape).text().replace("dot %x, %y", "dot %x, %x");
    assert_eq!(program(&text).to_string().matches("// in place").count(), 0);
    let a = halves(256, 3);
    let mut args = [f32s(&narrow(&a)), f32s(&[0.0; 256]), f32s(&[0.0; 256]), Arg::Scalar(0)];
    run(&text, [1, 1, 1], &mut args);
    assert_eq!(args[2].as_f32(), narrow(&Kernel::new(shape).expected(&a, &a)));
}

#[test]
fn swapped_axes_and_widened_elements_are_read_in_place() {
    let shape = Shape { m: 32, n: 16, k: 8 };
    let Shape { m, n, k } = shape;
    let kernel = Kernel::new(shape);
    // The columns of `a` are rows in memory.
    let text = kernel
        .text()
        .replace("%ap = ptr_add %a13, %a12 : *fp32[32, 8]", "%ap0 = ptr_add %a13, %a12 : *fp32[32, 8]\n  %ap = transpose %ap0 {permutation = [1, 0]} : *fp32[8, 32]")
        .replace("%x = load %ap {cache = \"\", eviction = \"\", volatile = false} : fp32[32, 8]", "%x0 = load %ap {cache = \"\", eviction = \"\", volatile = false} : fp32[8, 32]\n  %x = transpose %x0 {permutation = [1, 0]} : fp32[32, 8]");
    assert_eq!(program(&text).to_string().matches("// in place").count(), 2, "{text}");
    let (a, b) = (halves(m * k, 1), halves(k * n, 2));
    let mut args = [f32s(&narrow(&a)), f32s(&narrow(&b)), f32s(&vec![0.0; m * n]), Arg::Scalar(0)];
    run(&text, [1, 1, 1], &mut args);
    assert_eq!(args[2].as_f32(), narrow(&kernel.expected(&a, &b)));
}

#[test]
fn every_element_type() {
    let shape = Shape { m: 16, n: 48, k: 32 };
    let Shape { m, n, .. } = shape;
    let strides = [[40, 1], [50, 1]];
    let [left, right] = [40 * 16, 50 * 32];
    let (a, b) = (halves(left, 1), halves(right, 2));
    // The integers are twice the numbers of `halves`.
    let kernel = Kernel { types: ["int8", "int32"], strides, ..Kernel::new(shape) };
    let double = |values: &[f64]| values.iter().map(|value| value * 2.0).collect::<Vec<f64>>();
    let bytes = |values: &[f64]| values.iter().map(|value| (value * 2.0) as i8).collect::<Vec<i8>>();
    let mut args = [i8s(&bytes(&a)), i8s(&bytes(&b)), i32s(&vec![0; m * n]), int(0)];
    run(&kernel.text(), [1, 1, 1], &mut args);
    let expected: Vec<i32> = kernel.expected(&double(&a), &double(&b)).iter().map(|&x| x as i32).collect();
    assert_eq!(args[2].as_i32(), expected);
    let kernel = Kernel { types: ["fp64", "fp64"], strides, ..Kernel::new(shape) };
    let mut args = [f64s(&a), f64s(&b), f64s(&vec![0.0; m * n]), Arg::Scalar(0)];
    run(&kernel.text(), [1, 1, 1], &mut args);
    assert_eq!(args[2].as_f64(), kernel.expected(&a, &b));
    for dtype in ["bf16", "fp16"] {
        let kernel = Kernel { types: [dtype, "fp32"], strides, ..Kernel::new(shape) };
        assert_eq!(kernel.in_place(), 2);
        let words = |values: &[f64]| -> Vec<u16> {
            let word = |&value: &f64| match dtype {
                "bf16" => half::bf16::from_f64(value).to_bits(),
                _ => half::f16::from_f64(value).to_bits(),
            };
            values.iter().map(word).collect()
        };
        let mut args = [u16s(&words(&a)), u16s(&words(&b)), f32s(&vec![0.0; m * n]), Arg::Scalar(0)];
        run(&kernel.text(), [1, 1, 1], &mut args);
        assert_eq!(args[2].as_f32(), narrow(&kernel.expected(&a, &b)), "{dtype}");
    }
}

/// Input: loads out of bounds. Expected: the fault of the first such load, at its element.
#[test]
fn faults_are_those_of_the_loads() {
    let shape = Shape { m: 16, n: 16, k: 16 };
    let kernel = Kernel { strides: [[20, 1], [24, 1]], ..Kernel::new(shape) };
    let [a, b] = spans(&kernel);
    for (short_a, short_b) in [(1, 0), (0, 1), (1, 1), (a, b), (17, 100)] {
        let mut args =
            [f32s(&vec![1.0; a - short_a]), f32s(&vec![1.0; b - short_b]), f32s(&[7.0; 256]), Arg::Scalar(0)];
        let expected = launch(&dense_program(&kernel.text()), [1, 1, 1], &mut args).expect_err("a fault");
        let found = launch(&program(&kernel.text()), [1, 1, 1], &mut args).expect_err("a fault");
        assert_eq!(found, expected);
        let name = if short_a > 0 { "a" } else { "b" };
        assert_eq!(found.message, format!("load out of bounds of `{name}`"));
        assert_eq!(args[2].as_f32(), [7.0; 256]);
    }
}

/// Returns a kernel whose programs multiply different rows of `a` by the same `b`.
fn of_programs(kernel: &Kernel) -> String {
    let Shape { m, n, k } = kernel.shape;
    let [dtype, acc] = kernel.types;
    let moved = |name: &str, dtype: &str, elements: usize| {
        format!(
            "  %{name}id = program_id {{axis = 0}} : int32
  %{name}n = constant {{value = {elements}:int32}} : int32
  %{name}o = mul %{name}id, %{name}n : int32
  %{name}q = ptr_add %{name}, %{name}o : *{dtype}
  %{name}13 = splat %{name}q "
        )
    };
    let text = kernel.text().replace("  %a13 = splat %a ", &moved("a", dtype, m * k));
    text.replace("  %c13 = splat %c ", &moved("c", acc, m * n))
}

#[test]
fn programs_share_operands_that_do_not_change() {
    let shape = Shape { m: 16, n: 53, k: 36 };
    let Shape { m, n, k } = shape;
    let programs = 5;
    for [dtype, acc] in
        [["fp32", "fp32"], ["fp64", "fp64"], ["bf16", "fp32"], ["fp16", "fp32"], ["int8", "int32"]]
    {
        for strides in [[[k, 1], [n, 1]], [[k, 1], [1, k]], [[k, 1], [2 * n, 2]]] {
            let kernel = Kernel { types: [dtype, acc], strides, ..Kernel::new(shape) };
            let text = of_programs(&kernel);
            assert_eq!(program(&text).to_string().matches("// in place").count(), 2, "{text}");
            let [_, b] = spans(&kernel);
            // The tensors of the three launches have different elements at the same addresses.
            let mut args = [Arg::Scalar(0), Arg::Scalar(0), Arg::Scalar(0), Arg::Scalar(0)];
            for seed in 0..3 {
                let (a, b) = (halves(programs * m * k, seed), halves(b, seed + 7));
                let tensor = |values: &[f64]| match dtype {
                    "fp32" => f32s(&narrow(values)),
                    "fp64" => f64s(values),
                    "bf16" => {
                        u16s(&values.iter().map(|&x| half::bf16::from_f64(x).to_bits()).collect::<Vec<_>>())
                    }
                    "fp16" => {
                        u16s(&values.iter().map(|&x| half::f16::from_f64(x).to_bits()).collect::<Vec<_>>())
                    }
                    _ => i8s(&values.iter().map(|&x| (2.0 * x) as i8).collect::<Vec<_>>()),
                };
                for (arg, values) in args.iter_mut().zip([&a, &b]) {
                    match (arg, tensor(values)) {
                        (Arg::Bytes(bytes), Arg::Bytes(other)) => bytes.copy_from_slice(&other),
                        (arg, other) => *arg = other,
                    }
                }
                let count = programs * m * n;
                args[2] = if dtype == "fp64" { f64s(&vec![0.0; count]) } else { f32s(&vec![0.0; count]) };
                run(&text, [programs as u32, 1, 1], &mut args);
                let expected = |program: usize| kernel.expected(&a[program * m * k..], &b);
                let expected: Vec<f64> = (0..programs).flat_map(expected).collect();
                match acc {
                    "fp64" => assert_eq!(args[2].as_f64(), expected),
                    "fp32" => assert_eq!(args[2].as_f32(), narrow(&expected), "{dtype} {strides:?} {seed}"),
                    _ => {
                        let expected: Vec<i32> = expected.iter().map(|x| (4.0 * x) as i32).collect();
                        assert_eq!(args[2].as_i32(), expected);
                    }
                }
            }
        }
    }
}

#[test]
fn programs_do_not_share_operands_that_a_store_changes() {
    let shape = Shape { m: 16, n: 16, k: 16 };
    // Each program changes `b` after its dot, through the argument of `b` or through another
    // argument.
    let stored = |pointers: &str| format!("  store %{pointers}, %z {{cache = \"\", eviction = \"\"}}\n");
    let kernel = Kernel { after: stored("bp"), ..Kernel::new(shape) };
    let text = of_programs(&kernel);
    let programs = 4;
    let (a, b) = (halves(programs * 256, 1), halves(256, 2));
    let mut args = [f32s(&narrow(&a)), f32s(&narrow(&b)), f32s(&[0.0; 4 * 256]), Arg::Scalar(0)];
    run(&text, [programs as u32, 1, 1], &mut args);
    let mut expected: Vec<f64> = Vec::new();
    let mut last = b;
    for program in 0..programs {
        last = Kernel::new(shape).expected(&a[program * 256..], &last);
        expected.extend(&last);
    }
    assert_eq!(args[2].as_f32(), narrow(&expected));
    assert_eq!(args[1].as_f32(), narrow(&last));
}

/// A loop over k that multiplies tiles of `a` and `b`.
#[derive(Clone, Copy)]
struct Loop<'a> {
    /// The extents of the tiles.
    tile: Shape,
    /// The extent along k. The loop masks off elements beyond it.
    depth: usize,
    types: [&'static str; 2],
    /// True for each transposed tensor.
    transposed: [bool; 2],
    /// The lines that compute `%left`, the remaining indices along k, from the counter `%i`.
    left: &'a str,
}

impl Loop<'_> {
    const LEFT: &'static str = "  %left = sub %depth, %i : int32\n";

    fn strides(&self) -> [[usize; 2]; 2] {
        let Shape { m, n, .. } = self.tile;
        let [a, b] = self.transposed;
        [if a { [1, m] } else { [self.depth, 1] }, if b { [1, self.depth] } else { [n, 1] }]
    }

    /// Returns the text of the kernel. Its loop begins at `%lower` and ends at `%upper`.
    fn text(&self) -> String {
        let Self { tile: Shape { m, n, k }, types: [dtype, acc], left, .. } = self;
        let strides = self.strides();
        let condition = |name: &str, index: usize, shape: &str, extents: [usize; 2]| {
            format!(
                "  %{name}l = splat %left {{shape = {shape}}} : int32{shape}
  %{name}m0 = lt %{name}{index}, %{name}l : int1{shape}
  %{name}m = broadcast %{name}m0 {{shape = {extents:?}}} : int1{extents:?}
"
            )
        };
        format!(
            "kernel func0 @k(%a: *{dtype}, %b: *{dtype}, %c: *{acc}, %zero: {acc}, %lower: int32, %upper: int32, %depth: int32) {{
{}{}{}  %step = constant {{value = {k}:int32}} : int32
  %ad = constant {{value = {}:int32}} : int32
  %bd = constant {{value = {}:int32}} : int32
  %ads = splat %ad {{shape = [{m}, {k}]}} : int32[{m}, {k}]
  %bds = splat %bd {{shape = [{k}, {n}]}} : int32[{k}, {n}]
  %acc = splat %zero {{shape = [{m}, {n}]}} : {acc}[{m}, {n}]
  %r, %rp, %rq = for_loop %lower, %upper, %step, %acc, %ap, %bp {{options = \"stages=0 unroll=0\"}} (%i: int32, %s: {acc}[{m}, {n}], %p: *{dtype}[{m}, {k}], %q: *{dtype}[{k}, {n}]) {{
{left}{}{}  %x = load %p, %am {PLAIN} : {dtype}[{m}, {k}]
  %y = load %q, %bm {PLAIN} : {dtype}[{k}, {n}]
  %z = dot %x, %y, %s {{precision = \"ieee\", max_imprecise_acc = 0}} : {acc}[{m}, {n}]
  %p1 = ptr_add %p, %ads : *{dtype}[{m}, {k}]
  %q1 = ptr_add %q, %bds : *{dtype}[{k}, {n}]
  yield_values %z, %p1, %q1
  }} : {acc}[{m}, {n}], *{dtype}[{m}, {k}], *{dtype}[{k}, {n}]
  store %cp, %r {{cache = \"\", eviction = \"\"}}
  return_values
}}
",
            pointers("a", dtype, [*m, *k], strides[0]),
            pointers("b", dtype, [*k, *n], strides[1]),
            pointers("c", acc, [*m, *n], [*n, 1]),
            k * strides[0][1],
            k * strides[1][0],
            condition("a", 7, &format!("[1, {k}]"), [*m, *k]),
            condition("b", 1, &format!("[{k}, 1]"), [*k, *n]),
        )
    }

    /// Returns whether the loop is compiled to one dot.
    fn is_one_product(&self) -> bool {
        program(&self.text()).to_string().contains("// one product")
    }
}

/// Input: loops whose last tiles are masked off in part, or not. Expected: one dot, or several
/// calls of its kernel.
#[test]
fn iterations_are_one_product() {
    for [dtype, acc] in [
        ["fp32", "fp32"],
        ["fp64", "fp64"],
        ["bf16", "fp32"],
        ["fp16", "fp32"],
        ["fp16", "fp16"],
        ["int8", "int32"],
    ] {
        for (transposed, depth) in [
            ([false, false], 64),
            ([false, true], 1300),
            ([true, false], 1056),
            ([true, true], 90),
            ([false, false], 1311),
        ] {
            let tile = Shape { m: 16, n: 19, k: 32 };
            let kernel = Loop { tile, depth, types: [dtype, acc], transposed, left: Loop::LEFT };
            assert!(kernel.is_one_product(), "{}", program(&kernel.text()));
            let Shape { m, n, .. } = tile;
            let whole = Kernel { strides: kernel.strides(), ..Kernel::new(Shape { k: depth, ..tile }) };
            let (a, b) = (halves(m * depth, 3), halves(depth * n, 4));
            let expected = whole.expected(&a, &b);
            let half = |&x: &f64| half::f16::from_f64(x).to_bits();
            let tensor = |values: &[f64]| match dtype {
                "fp32" => f32s(&narrow(values)),
                "fp64" => f64s(values),
                "bf16" => {
                    u16s(&values.iter().map(|&x| half::bf16::from_f64(x).to_bits()).collect::<Vec<_>>())
                }
                "fp16" => u16s(&values.iter().map(half).collect::<Vec<_>>()),
                _ => i8s(&values.iter().map(|&x| (2.0 * x) as i8).collect::<Vec<_>>()),
            };
            let out = match acc {
                "fp64" => f64s(&vec![0.0; m * n]),
                "fp16" => u16s(&vec![0; m * n]),
                _ => f32s(&vec![0.0; m * n]),
            };
            let depth = depth as i64;
            let mut args = [tensor(&a), tensor(&b), out, int(0), int(0), int(depth), int(depth)];
            run(&kernel.text(), [1, 1, 1], &mut args);
            match acc {
                "fp64" => assert_eq!(args[2].as_f64(), expected),
                "fp32" => assert_eq!(args[2].as_f32(), narrow(&expected), "{dtype} {transposed:?}"),
                // Sums of quarters below 512 are exact in fp16. Larger sums are rounded; for these,
                // `run` has compared the results of symbolic and dense tiles.
                "fp16" if kernel.depth > 100 => {}
                "fp16" => assert_eq!(args[2].as_u16(), expected.iter().map(half).collect::<Vec<_>>()),
                _ => {
                    let expected: Vec<i32> = expected.iter().map(|x| (4.0 * x) as i32).collect();
                    assert_eq!(args[2].as_i32(), expected);
                }
            }
        }
    }
}

/// Input: a mask that is false only between the first and last iterations, because it wraps.
/// Expected: one dot per iteration.
#[test]
fn masks_that_wrap_are_computed_in_each_iteration() {
    let tile = Shape { m: 16, n: 16, k: 16 };
    let left = "  %t = mul %i, %big : int32
  %left = add %depth, %t : int32
";
    // The counter rises by 16, so `left` is 100, 100 + 2^30, 100 - 2^31, 100 - 2^30 and 100.
    let kernel = Loop { tile, depth: 80, types: ["fp32", "fp32"], transposed: [false, false], left };
    let text =
        kernel.text().replace("  %step = ", "  %big = constant {value = 67108864:int32} : int32\n  %step = ");
    assert!(program(&text).to_string().contains("// one product"), "{text}");
    let (mut a, b) = (halves(16 * 80, 3), halves(80 * 16, 4));
    let mut args =
        [f32s(&narrow(&a)), f32s(&narrow(&b)), f32s(&[0.0; 256]), int(0), int(0), int(80), int(100)];
    run(&text, [1, 1, 1], &mut args);
    for row in a.chunks_exact_mut(80) {
        row[32..64].fill(0.0);
    }
    let whole = Kernel { strides: kernel.strides(), ..Kernel::new(Shape { k: 80, ..tile }) };
    assert_eq!(args[2].as_f32(), narrow(&whole.expected(&a, &b)));
}

#[test]
fn other_loops_are_not_one_product() {
    let tile = Shape { m: 16, n: 16, k: 16 };
    let kernel =
        Loop { tile, depth: 80, types: ["fp32", "fp32"], transposed: [false, false], left: Loop::LEFT };
    assert!(kernel.is_one_product());
    // The mask depends on the square of the counter.
    let left = "  %t = mul %i, %i : int32\n  %left = sub %depth, %t : int32\n";
    assert!(!Loop { left, ..kernel }.is_one_product());
    for (from, to) in [
        // An element may be masked off in only one iteration.
        ("%am0 = lt ", "%am0 = ne "),
        // The accumulator has another use.
        ("yield_values %z,", "%w = add %z, %s : fp32[16, 16]\n  yield_values %w,"),
        // The distance depends on the counter.
        ("ptr_add %p, %ads", "ptr_add %p, %al0"),
        // The dot adds to a constant, so the result is only that of the last iteration.
        ("dot %x, %y, %s", "dot %x, %y, %acc"),
    ] {
        let text = kernel.text().replace(from, to);
        let text =
            text.replace("  %x = load", "  %al0 = splat %i {shape = [16, 16]} : int32[16, 16]\n  %x = load");
        assert!(!program(&text).to_string().contains("// one product"), "{text}");
    }
}

/// Input: an access outside of a tensor. Expected: the fault of the load, in its iteration.
#[test]
fn faults_in_loops_are_those_of_the_loads() {
    let tile = Shape { m: 16, n: 16, k: 16 };
    let kernel =
        Loop { tile, depth: 80, types: ["fp32", "fp32"], transposed: [false, false], left: Loop::LEFT };
    for (short_a, short_b) in [(1, 0), (0, 1), (0, 300), (1279, 1279)] {
        let mut args = [
            f32s(&vec![1.0; 16 * 80 - short_a]),
            f32s(&vec![1.0; 16 * 80 - short_b]),
            f32s(&[7.0; 256]),
            int(0),
            int(0),
            int(80),
            int(80),
        ];
        let expected = launch(&dense_program(&kernel.text()), [1, 1, 1], &mut args).expect_err("a fault");
        let found = launch(&program(&kernel.text()), [1, 1, 1], &mut args).expect_err("a fault");
        assert_eq!(found, expected);
        assert_eq!(args[2].as_f32(), [7.0; 256]);
    }
}
