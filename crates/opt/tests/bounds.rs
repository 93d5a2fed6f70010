//! Compares `bounds::check` with known outcomes, and with brute force on random kernels.
//!
//! `TILEWRIGHT_SEEDS=100000` tests more random kernels.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fmt::Write;

use common::evaluate::{Evaluator, Memory};
use common::{Random, number, seeds};
use tilewright_ir::{Module, parse};
use tilewright_opt::bounds::{Counterexample, Expression, Finding, Outcome, Reason, Statement, check};

fn statement(extents: &[(&str, &str)], grid: &str, conditions: &[&str]) -> Statement {
    Statement {
        extents: extents
            .iter()
            .map(|(name, extent)| {
                ((*name).to_owned(), Expression::parse(extent).expect("it is written here"))
            })
            .collect(),
        grid: if grid.is_empty() {
            vec![]
        } else {
            vec![Expression::parse(grid).expect("it is written here")]
        },
        conditions: conditions
            .iter()
            .map(|text| Expression::parse_condition(text).expect("it is written here"))
            .collect(),
        constants: Vec::new(),
    }
}

fn outcomes(text: &str, statement: &Statement) -> Vec<Outcome> {
    let module = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let found = check(module.kernel(), statement).unwrap_or_else(|error| panic!("{error}"));
    found.into_iter().map(|Finding { outcome, .. }| outcome).collect()
}

fn one(text: &str, statement: &Statement) -> Outcome {
    let [outcome] = &outcomes(text, statement)[..] else { panic!("one access") };
    outcome.clone()
}

const MASKED: &str = r#"kernel func0 @k(%x: *int32, %n: int32) {
  %0 = program_id {axis = 0} : int32
  %1 = constant {value = 16:int32} : int32
  %2 = mul %0, %1 : int32
  %3 = arange {start = 0, end = 16} : int32[16]
  %4 = splat %2 {shape = [16]} : int32[16]
  %5 = add %4, %3 : int32[16]
  %6 = splat %n {shape = [16]} : int32[16]
  %7 = lt %5, %6 : int1[16]
  %8 = splat %x {shape = [16]} : *int32[16]
  %9 = ptr_add %8, %5 : *int32[16]
  %10 = load %9, %7 {cache = "", eviction = "", volatile = false} : int32[16]
  return_values
}
"#;

#[test]
fn a_mask_proves_every_size() {
    assert_eq!(one(MASKED, &statement(&[("x", "n")], "", &[])), Outcome::Proved);
    assert_eq!(one(MASKED, &statement(&[("x", "n + 1")], "", &[])), Outcome::Proved);
    assert!(matches!(one(MASKED, &statement(&[("x", "n - 1")], "", &[])), Outcome::Refuted(_)));
    assert_eq!(one(MASKED, &Statement::default()), Outcome::Undecided(Reason::NoExtent));
    // The mask admits one element too many.
    let at_most = MASKED.replace("= lt %5", "= le %5");
    let Outcome::Refuted(found) = one(&at_most, &statement(&[("x", "n")], "", &[])) else {
        panic!("it is out of bounds")
    };
    assert_eq!(found.index, found.extent);
}

#[test]
fn whole_blocks_need_no_mask() {
    let text = MASKED.replace("load %9, %7 {", "load %9 {");
    let of = |grid: &str, conditions: &[&str]| one(&text, &statement(&[("x", "n")], grid, conditions));
    assert_eq!(of("n // 16", &[]), Outcome::Proved);
    assert_eq!(of("cdiv(n, 16)", &["n % 16 == 0"]), Outcome::Proved);
    assert!(matches!(of("cdiv(n, 16)", &[]), Outcome::Refuted(_)));
    assert!(matches!(of("", &["n % 16 == 0"]), Outcome::Refuted(_)));
    // A parameter that is a multiple of 16.
    let text = text.replace("%n: int32)", "%n: int32 {divisibility = 16})");
    assert_eq!(one(&text, &statement(&[("x", "n")], "cdiv(n, 16)", &[])), Outcome::Proved);
    let Outcome::Refuted(found) = one(&text, &statement(&[("x", "n")], "cdiv(n, 16) + 1", &[])) else {
        panic!("it is out of bounds")
    };
    assert!(found.arguments.iter().all(|(_, n)| n % 16 == 0));
}

const ROWS: &str = r#"kernel func0 @k(%x: *int32, %M: int32, %N: int32, %s: int32) {
  %0 = program_id {axis = 0} : int32
  %1 = constant {value = 4:int32} : int32
  %2 = mul %0, %1 : int32
  %3 = arange {start = 0, end = 4} : int32[4]
  %4 = splat %2 {shape = [4]} : int32[4]
  %5 = add %4, %3 : int32[4]
  %6 = expand_dims %5 {axis = 1} : int32[4, 1]
  %7 = arange {start = 0, end = 8} : int32[8]
  %8 = expand_dims %7 {axis = 0} : int32[1, 8]
  %9 = splat %M {shape = [4, 1]} : int32[4, 1]
  %10 = lt %6, %9 : int1[4, 1]
  %11 = splat %N {shape = [1, 8]} : int32[1, 8]
  %12 = lt %8, %11 : int1[1, 8]
  %13 = broadcast %10 {shape = [4, 8]} : int1[4, 8]
  %14 = broadcast %12 {shape = [4, 8]} : int1[4, 8]
  %15 = and %13, %14 : int1[4, 8]
  %16 = splat %s {shape = [4, 1]} : int32[4, 1]
  %17 = mul %6, %16 : int32[4, 1]
  %18 = broadcast %17 {shape = [4, 8]} : int32[4, 8]
  %19 = broadcast %8 {shape = [4, 8]} : int32[4, 8]
  %20 = add %18, %19 : int32[4, 8]
  %21 = splat %x {shape = [4, 8]} : *int32[4, 8]
  %22 = ptr_add %21, %20 : *int32[4, 8]
  %23 = load %22, %15 {cache = "", eviction = "", volatile = false} : int32[4, 8]
  return_values
}
"#;

#[test]
fn rows_with_a_stride() {
    let of = |extent: &str, conditions: &[&str]| one(ROWS, &statement(&[("x", extent)], "", conditions));
    assert_eq!(of("(M - 1) * s + N", &["s >= 0"]), Outcome::Proved);
    assert_eq!(of("(M - 1) * s + N", &["s >= N"]), Outcome::Proved);
    assert_eq!(of("M * N", &["s == N"]), Outcome::Proved);
    assert_eq!(of("M * s", &["s >= N"]), Outcome::Proved);
    // Counterexamples: a negative stride, and a stride above `N`.
    assert!(matches!(of("(M - 1) * s + N", &[]), Outcome::Refuted(_)));
    assert!(matches!(of("M * N", &["s >= 0"]), Outcome::Refuted(_)));
}

const LOOP: &str = r#"kernel func0 @k(%x: *int32, %n: int32) {
  %0 = constant {value = 0:int32} : int32
  %1 = constant {value = 8:int32} : int32
  %2 = arange {start = 0, end = 8} : int32[8]
  %3 = splat %x {shape = [8]} : *int32[8]
  %4 = ptr_add %3, %2 : *int32[8]
  %5 = splat %1 {shape = [8]} : int32[8]
  %6 = for_loop %0, %n, %1, %4 {options = "stages=0 unroll=0"} (%i: int32, %p: *int32[8]) {
    %7 = sub %n, %i : int32
    %8 = splat %7 {shape = [8]} : int32[8]
    %9 = lt %2, %8 : int1[8]
    %10 = load %p, %9 {cache = "", eviction = "", volatile = false} : int32[8]
    %11 = ptr_add %p, %5 : *int32[8]
    yield_values %11
  } : *int32[8]
  return_values
}
"#;

#[test]
fn a_pointer_that_a_loop_moves() {
    assert_eq!(one(LOOP, &statement(&[("x", "n")], "", &[])), Outcome::Proved);
    let unmasked = LOOP.replace("load %p, %9 {", "load %p {");
    assert!(matches!(one(&unmasked, &statement(&[("x", "n")], "", &[])), Outcome::Refuted(_)));
    assert_eq!(one(&unmasked, &statement(&[("x", "n + 7")], "", &[])), Outcome::Proved);
    assert_eq!(one(&unmasked, &statement(&[("x", "n")], "", &["n % 8 == 0"])), Outcome::Proved);
    let faster = LOOP.replace("constant {value = 8:int32}", "constant {value = 9:int32}");
    assert_eq!(one(&faster, &statement(&[("x", "n")], "", &[])), Outcome::Proved);
}

#[test]
fn bounds_on_loaded_values_are_undecided() {
    let text = r#"kernel func0 @k(%x: *int32, %y: *int32, %n: int32) {
  %0 = load %y {cache = "", eviction = "", volatile = false} : int32
  %1 = ptr_add %x, %0 : *int32
  %2 = load %1 {cache = "", eviction = "", volatile = false} : int32
  %3 = constant {value = 0:int32} : int32
  %4 = constant {value = 1:int32} : int32
  %5 = sub %n, %4 : int32
  %6 = min %0, %5 : int32
  %7 = max %6, %3 : int32
  %8 = ptr_add %x, %7 : *int32
  %9 = load %8 {cache = "", eviction = "", volatile = false} : int32
  return_values
}
"#;
    let found = outcomes(text, &statement(&[("x", "n"), ("y", "1")], "", &["n >= 1"]));
    assert_eq!(found[0], Outcome::Proved);
    assert!(matches!(found[1], Outcome::Undecided(Reason::Opaque(_))));
    assert_eq!(found[2], Outcome::Proved, "it is clamped");
}

#[test]
fn statements_that_are_wrong() {
    for text in ["n +", "(n", "n $ 2", "cdiv(n)", "foo(n, 2)", "", "n n"] {
        assert!(Expression::parse(text).is_err(), "{text}");
    }
    assert!(Expression::parse_condition("n").is_err());
    let module = parse(MASKED).expect("it is written here");
    for (extent, conditions) in
        [(("y", "n"), vec![]), (("x", "m"), vec![]), (("n", "1"), vec![]), (("x", "n // n"), vec![])]
    {
        assert!(check(module.kernel(), &statement(&[extent], "", &conditions)).is_err());
    }
}

/// A kernel with one access, as text.
struct Kernel {
    text: String,
    count: usize,
    scalars: Vec<usize>,
    tiles: Vec<usize>,
}

impl Kernel {
    fn emit(&mut self, op: &str, ty: &str) -> usize {
        let number = self.count;
        self.count += 1;
        let _ = writeln!(self.text, "  %{number} = {op} : {ty}");
        number
    }

    fn constant(&mut self, value: i64) -> usize {
        self.emit(&format!("constant {{value = {value}:int32}}"), "int32")
    }

    fn binary(&mut self, random: &mut Random, (x, y): (usize, usize), ty: &str) -> usize {
        let op = random.pick(&["add", "add", "add", "sub", "mul", "mul", "int_div", "int_rem", "min", "max"]);
        self.emit(&format!("{op} %{x}, %{y}"), ty)
    }

    fn scalar(&mut self, random: &mut Random) -> usize {
        random.pick(&self.scalars.clone())
    }

    fn tile(&mut self, random: &mut Random) -> usize {
        if random.chance(3) {
            let scalar = self.scalar(random);
            return self.emit(&format!("splat %{scalar} {{shape = [4]}}"), "int32[4]");
        }
        random.pick(&self.tiles.clone())
    }

    fn comparison(&mut self, random: &mut Random) -> usize {
        let op = random.pick(&["lt", "lt", "lt", "le", "ge", "ge", "gt", "eq", "ne"]);
        let (x, y) = (self.tile(random), self.tile(random));
        self.emit(&format!("{op} %{x}, %{y}"), "int1[4]")
    }

    /// Returns the text of a random kernel. %0 is the program, %1 is 0, and %2 and %3 are `n` and
    /// `m`.
    fn random(random: &mut Random) -> String {
        let mut kernel = Kernel { text: String::new(), count: 0, scalars: vec![], tiles: vec![] };
        let program = kernel.emit("program_id {axis = 0}", "int32");
        let zero = kernel.constant(0);
        // `scalars` has indices of instructions, so a sum with 0 makes one of each parameter.
        let n = kernel.emit("add %n, %1", "int32");
        let m = kernel.emit("add %m, %1", "int32");
        let four = kernel.constant(4);
        let start = kernel.emit(&format!("mul %{program}, %{four}"), "int32");
        let small = random.pick(&[-1, 1, 2, 3, 5]);
        let small = kernel.constant(small);
        // This dividend is often negative. Negative quotients round up.
        let less = kernel.emit(&format!("sub %{m}, %{four}"), "int32");
        let quotient = kernel.emit(&format!("int_div %{less}, %{small}"), "int32");
        let rest = kernel.emit(&format!("int_rem %{less}, %{small}"), "int32");
        kernel.scalars = vec![program, zero, n, n, m, four, start, start, small, less, quotient, rest];
        for _ in 0..random.below(3) {
            let pair = (kernel.scalar(random), kernel.scalar(random));
            let made = kernel.binary(random, pair, "int32");
            kernel.scalars.push(made);
        }
        let is_loop = random.chance(3);
        if is_loop {
            let upper = kernel.scalar(random);
            let _ = writeln!(
                kernel.text,
                "  for_loop %{zero}, %{upper}, %{four} {{options = \"stages=0 unroll=0\"}} (%i: int32) {{"
            );
            let index = kernel.emit("add %i, %1", "int32");
            kernel.scalars.extend([index, index]);
        }
        let lanes = kernel.emit("arange {start = 0, end = 4}", "int32[4]");
        let origin = kernel.scalar(random);
        let splat = kernel.emit(&format!("splat %{origin} {{shape = [4]}}"), "int32[4]");
        let offsets = kernel.emit(&format!("add %{lanes}, %{splat}"), "int32[4]");
        kernel.tiles = vec![lanes, offsets, offsets];
        let mut address = offsets;
        for _ in 0..random.below(3) {
            let pair = (address, kernel.tile(random));
            address = kernel.binary(random, pair, "int32[4]");
            kernel.tiles.push(address);
        }
        let mut mask = kernel.comparison(random);
        if random.chance(2) {
            let n = kernel.emit(&format!("splat %{n} {{shape = [4]}}"), "int32[4]");
            mask = kernel.emit(&format!("lt %{address}, %{n}"), "int1[4]");
        }
        for _ in 0..random.below(3) {
            let other = kernel.comparison(random);
            let op = random.pick(&["and", "and", "or", "xor"]);
            mask = kernel.emit(&format!("{op} %{mask}, %{other}"), "int1[4]");
        }
        if random.chance(4) {
            let other = kernel.tile(random);
            address = kernel.emit(&format!("select %{mask}, %{address}, %{other}"), "int32[4]");
        }
        let base = kernel.emit("splat %x {shape = [4]}", "*int8[4]");
        let pointers = kernel.emit(&format!("ptr_add %{base}, %{address}"), "*int8[4]");
        let masked = if random.chance(8) { String::new() } else { format!(", %{mask}") };
        let load = format!("load %{pointers}{masked} {{cache = \"\", eviction = \"\", volatile = false}}");
        kernel.emit(&load, "int8[4]");
        if is_loop {
            kernel.text.push_str("  yield_values\n  }\n");
        }
        format!("kernel func0 @k(%x: *int8, %n: int32, %m: int32) {{\n{}  return_values\n}}\n", kernel.text)
    }
}

const ADDRESS: u64 = 1 << 40;

/// Returns whether a program goes out of bounds, unless a number wraps or the program is too long.
fn leaves(module: &Module, extent: i128, [n, m]: [i128; 2], program: [u64; 2]) -> Option<bool> {
    let memory = Memory(vec![(ADDRESS, vec![0; extent.max(0) as usize])]);
    let mut observe = |_, _: &_, _: &_| {};
    let mut evaluator = Evaluator::new(module.kernel(), memory, program, &mut observe);
    let argument = |number: i128| number::wrap(tilewright_ir::Dtype::I32, number);
    let outcome = evaluator.run(&[ADDRESS, argument(n), argument(m)]);
    if evaluator.overflowed {
        return None;
    }
    match outcome {
        Ok(()) => Some(false),
        Err(stopped) if stopped.0 == "out of bounds" => Some(true),
        Err(_) => None,
    }
}

#[test]
fn random_kernels_agree_with_brute_force() {
    let (mut proved, mut refuted, mut total) = (0, 0, 0);
    for seed in seeds(250) {
        let mut random = Random(seed.wrapping_mul(0x1234_5677).wrapping_add(99));
        let text = Kernel::random(&mut random);
        let module = parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        tilewright_ir::verify(&module).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        let extent = random.pick(&["n", "n", "n", "n + 3", "n * m", "(n - 1) * m + 4", "16", "max(n, m)"]);
        let grid = random.pick(&["", "cdiv(n, 4)", "n", "m", "n // 4"]);
        let conditions: &[&str] =
            random.pick(&[&[] as &[&str], &["n >= 1"], &["n >= 0 and m >= 1"], &["m == n"], &["n % 4 == 0"]]);
        let statement = statement(&[("x", extent)], grid, conditions);
        let found = check(module.kernel(), &statement).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let [Finding { outcome, .. }] = &found[..] else { panic!("seed {seed}: one access") };
        total += 1;
        let describe =
            || format!("seed {seed}: {outcome:?}, extent {extent}, grid {grid}, {conditions:?}\n{text}");
        match outcome {
            Outcome::Proved => {
                proved += 1;
                brute_force(&module, &statement, &describe);
            }
            Outcome::Refuted(found) => {
                refuted += 1;
                confirm(&module, found, &describe);
            }
            Outcome::Undecided(_) => {}
        }
    }
    println!("{proved} proved and {refuted} refuted of {total}");
    // The check decides most accesses, and both outcomes are frequent.
    assert!(proved * 8 >= total, "{proved} of {total} proved");
    assert!(refuted * 8 >= total, "{refuted} of {total} refuted");
    assert!((proved + refuted) * 10 >= total * 7, "{proved} proved and {refuted} refuted of {total}");
}

/// Checks all small sizes for accesses outside of the tensor.
fn brute_force(module: &Module, statement: &Statement, describe: &dyn Fn() -> String) {
    for n in -2..=9 {
        for m in -2..=5 {
            let of = |name: &str| Some(if name == "n" { n } else { m });
            let holds = |condition: &tilewright_opt::bounds::Condition| {
                condition.iter().all(|(relation, x, y)| {
                    use tilewright_opt::bounds::Relation as R;
                    let (x, y) = (x.value(&of).expect("it is small"), y.value(&of).expect("it is small"));
                    match relation {
                        R::Equal => x == y,
                        R::Different => x != y,
                        R::Below => x < y,
                        R::AtMost => x <= y,
                        R::Above => x > y,
                        R::AtLeast => x >= y,
                    }
                })
            };
            let extent = statement.extents[0].1.value(&of).expect("it is small");
            if extent < 0 || !statement.conditions.iter().all(holds) {
                continue;
            }
            let grid = statement.grid.first().map_or(4, |grid| grid.value(&of).expect("it is small"));
            for program in 0..grid.clamp(0, 6) {
                let left = leaves(module, extent, [n, m], [program as u64, grid as u64]);
                assert_ne!(left, Some(true), "n = {n}, m = {m}, program {program} of {grid}: {}", describe());
            }
        }
    }
}

/// Runs a counterexample, which must access memory outside of the tensor.
fn confirm(module: &Module, found: &Counterexample, describe: &dyn Fn() -> String) {
    let argument =
        |index: usize| found.arguments.iter().find(|(own, _)| *own == index).map_or(0, |(_, number)| *number);
    let program = [found.program[0] as u64, found.grid[0] as u64];
    let left = leaves(module, found.extent, [argument(1), argument(2)], program);
    // Numbers may wrap, or a loop may be too long.
    assert_ne!(left, Some(false), "{}", describe());
}
