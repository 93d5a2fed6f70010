//! Tests on random programs that passes keep results and the analysis is right.
//!
//! `TILEWRIGHT_SEEDS=100000` tests more programs.

mod common;

use std::sync::Arc;

use common::evaluate::{Evaluator, Memory, Tile};
use common::generate::{self, Style};
use common::{Random, number, seeds};
use tilewright_base::entity::SecondaryMap;
use tilewright_ir::{
    Builder, Dtype, Element, ElementwiseFamily, ElementwiseFn, Function, IrBuilder, Literal, Module, Op,
    Rounding, Type, Value, print, verify,
};
use tilewright_opt::analysis::{self, Assumptions, AxisInfo};
use tilewright_opt::{Level, Options, PASSES, optimize};

/// Returns the address of a pointer's memory: a multiple of 16, and of no larger power of two.
fn address(pointer: usize) -> u64 {
    (pointer as u64 + 1) * 65536 + 16
}

fn memory(random: &mut Random) -> Memory {
    let area = |(index, dtype): (usize, &Dtype)| {
        // Few bits, so that floats are often equal, small or special.
        let byte = |_| if random.chance(2) { 0 } else { random.bits() as u8 };
        (address(index), (0..generate::ELEMENTS * dtype.bytes() as u64).map(byte).collect())
    };
    Memory(generate::POINTERS.iter().enumerate().map(area).collect())
}

/// Returns arguments that satisfy the divisibility of the parameters.
fn arguments(module: &Module, random: &mut Random) -> Vec<u64> {
    let function = module.kernel();
    let values = function.blocks[function.entry].parameters.iter().zip(&function.parameters);
    let argument = |(index, (&value, parameter)): (usize, (&Value, &tilewright_ir::Parameter))| {
        let Some(dtype) = function.ty(value).dtype() else { return address(index) };
        let small = random.pick(&[0, 1, 2, 3, 5, 7, 16, 33, 100, -1, -6, 1 << 20, i64::MAX, i64::MIN]);
        number::wrap(dtype, i128::from(small).wrapping_mul(i128::from(parameter.divisibility)))
    };
    values.enumerate().map(argument).collect()
}

/// Returns the memory after a program, and whether anything overflowed, unless it runs too long.
fn run(
    module: &Module,
    seed: u64,
    patience: u64,
    observe: &mut dyn FnMut(Value, &Type, &Tile),
) -> Option<(Memory, bool)> {
    let mut random = Random(seed ^ 0x5555);
    let arguments = arguments(module, &mut random);
    let programs = random.pick(&[1, 2, 7, 1000, 0x7fff_ffff]);
    let program = random.bits() % programs;
    let memory = memory(&mut random);
    let mut evaluator = Evaluator::new(module.kernel(), memory, [program, programs], observe);
    evaluator.steps_left *= patience;
    match evaluator.run(&arguments) {
        Ok(()) => Some((evaluator.memory, evaluator.overflowed)),
        Err(stopped) => {
            assert_eq!(stopped.0, "too long");
            None
        }
    }
}

/// Returns whether two memories contain the same elements.
fn same_memory(x: &Memory, y: &Memory) -> bool {
    generate::POINTERS.iter().zip(x.0.iter().zip(&y.0)).all(|(&dtype, ((_, x), (_, y)))| {
        let bits = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        let elements = x.chunks(dtype.bytes()).zip(y.chunks(dtype.bytes()));
        x == y || elements.into_iter().all(|(x, y)| number::same(dtype, bits(x), bits(y)))
    })
}

#[test]
fn passes_preserve_results() {
    let mut compared = 0;
    for seed in seeds(250) {
        let original = generate::program(seed, generate::EVERYTHING);
        verify(&original).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut inlined = original.clone();
        optimize(&mut inlined, &Options { level: Level::Inline, ..Options::default() }, &mut |_, _| {});
        let expected: Vec<_> =
            (0..3).map(|input| run(&inlined, seed + input * 1_000_003, 1, &mut |_, _, _| {})).collect();
        let compare = |name: &str, module: &Module, compared: &mut usize| {
            if let Err(error) = verify(module) {
                panic!("seed {seed}: after {name}: {error}\n{}", print(module, false));
            }
            for (input, expected) in expected.iter().enumerate() {
                let Some((before, _)) = expected else { continue };
                let found = run(module, seed + input as u64 * 1_000_003, 10, &mut |_, _, _| {});
                let is_same = found.is_some_and(|(after, _)| same_memory(before, &after));
                let texts = || format!("{}\nbecame\n{}", print(&inlined, false), print(module, false));
                assert!(is_same, "seed {seed}, input {input}: {name} changed the result of\n{}", texts());
                *compared += 1;
            }
        };
        for pass in PASSES {
            let mut module = inlined.clone();
            let entry = module.entry;
            let Ok(_) = pass.run(&mut module.functions[entry]);
            compare(pass.name, &module, &mut compared);
        }
        let mut module = original.clone();
        optimize(&mut module, &Options::default(), &mut |_, _| {});
        compare("optimize", &module, &mut compared);
        let once = print(&module, false);
        optimize(&mut module, &Options::default(), &mut |_, _| {});
        assert_eq!(print(&module, false), once, "seed {seed}: a second run finds more");
    }
    assert!(compared > 1_000, "{compared}");
}

/// Returns a fact about a value that does not hold for this tile, if there is one.
fn breach(info: &AxisInfo, ty: &Type, tile: &Tile, is_strict: bool) -> Option<String> {
    let (dtype, unit) = match ty.element {
        Element::Value(dtype) => (dtype, 1),
        Element::Pointer(pointee) => (Dtype::U64, pointee.bytes() as u64),
    };
    let is_int = dtype.is_int();
    if is_int && ty.dtype().is_some() {
        for &bits in tile {
            let value = number::integer(dtype, bits);
            if !(info.range.low..=info.range.high).contains(&value)
                || info.constant.is_some_and(|c| c != value)
            {
                return Some(format!("{value} is outside of {:?} {:?}", info.range, info.constant));
            }
        }
    }
    for axis in 0..ty.rank().max(1) {
        let claim = info.axis(axis);
        let extent = ty.shape.get(axis).copied().unwrap_or(1);
        let inner: usize = ty.shape.iter().skip(axis + 1).map(|&extent| extent as usize).product();
        if !extent.is_multiple_of(claim.contiguity) || !extent.is_multiple_of(claim.constancy) {
            return Some(format!("{claim:?} does not divide the extent"));
        }
        for (place, &bits) in tile.iter().enumerate() {
            let index = (place / inner) as u32 % extent;
            if index.is_multiple_of(claim.contiguity) {
                if is_int && !bits.is_multiple_of(claim.divisibility) {
                    return Some(format!("{claim:?} along {axis}: {bits} at {index}"));
                }
            } else if is_strict && dtype.is_signed() {
                if number::integer(dtype, bits) != number::integer(dtype, tile[place - inner]) + 1 {
                    return Some(format!("{claim:?} along {axis}: not consecutive at {index}"));
                }
            } else if bits != number::wrap(dtype, i128::from(tile[place - inner]) + i128::from(unit)) {
                return Some(format!("{claim:?} along {axis}: not consecutive at {index}"));
            }
            if !index.is_multiple_of(claim.constancy) && bits != tile[place - inner] {
                return Some(format!("{claim:?} along {axis}: not constant at {index}"));
            }
        }
    }
    None
}

#[test]
fn analysis_claims_hold() {
    let mut claims = [0_u64; 2];
    for seed in seeds(700) {
        let mut module = generate::program(seed, generate::INDICES);
        optimize(&mut module, &Options { level: Level::Inline, ..Options::default() }, &mut |_, _| {});
        for (mode, claims) in claims.iter_mut().enumerate() {
            let assumptions = Assumptions { no_signed_overflow: mode == 1, ..Assumptions::default() };
            let infos = analysis::analyze_assuming(module.kernel(), assumptions);
            for input in 0..6 {
                check_claims(&module, &infos, seed, input, mode == 1, claims);
            }
        }
    }
    assert!(claims.iter().all(|&claims| claims > 10_000), "{claims:?}");
}

fn check_claims(
    module: &Module,
    infos: &SecondaryMap<Value, AxisInfo>,
    seed: u64,
    input: u64,
    assumes: bool,
    claims: &mut u64,
) {
    let mut broken = None;
    let result = run(module, seed + input * 1_000_003, 1, &mut |value, ty, tile| {
        let info = &infos[value];
        assert!(!info.axes.is_empty(), "seed {seed}: {value} is not analyzed");
        *claims += u64::from(info.axes.iter().any(|axis| axis.contiguity > 1 || axis.divisibility > 1));
        if broken.is_none() {
            broken = breach(info, ty, tile, assumes).map(|breach| (value, breach));
        }
    });
    // A program that overflows violates the assumption.
    if assumes && result.is_none_or(|(_, overflowed)| overflowed) {
        return;
    }
    if let Some((value, breach)) = broken {
        panic!("seed {seed}, input {input}: {value}: {breach}\n{}", print(module, false));
    }
}

/// Input: all eight-bit numbers, also negative ones.
#[test]
fn comparisons_of_remainders_are_equal_along_runs() {
    let mut runs = 0;
    for divisor in [-128, -16, -8, -6, -1, 0, 1, 3, 4, 8, 12, 64] {
        for bound in [-128, -8, -1, 0, 1, 2, 3, 4, 8, 12, 32, 64, 127] {
            let text = format!(
                "kernel func0 @k() {{
                   %i = arange {{start = 0, end = 256}} : int32[256]
                   %x = cast %i {{element = int8, rounding = \"rtne\"}} : int8[256]
                   %n = constant {{value = {divisor}:int8}} : int8
                   %ns = splat %n {{shape = [256]}} : int8[256]
                   %r = int_rem %x, %ns : int8[256]
                   %c = constant {{value = {bound}:int8}} : int8
                   %cs = splat %c {{shape = [256]}} : int8[256]
                   %a = lt %r, %cs : int1[256]
                   %b = ge %r, %cs : int1[256]
                   %d = gt %cs, %r : int1[256]
                   %e = le %cs, %r : int1[256]
                   %w = cast %r {{element = int64, rounding = \"rtne\"}} : int64[256]
                   %ws = cast %cs {{element = int64, rounding = \"rtne\"}} : int64[256]
                   %f = lt %w, %ws : int1[256]
                   return_values
                 }}"
            );
            let module = tilewright_ir::parse(&text).expect("it is well-formed");
            let infos = analysis::analyze(module.kernel());
            let mut observe = |value: Value, ty: &Type, tile: &Tile| {
                let info = &infos[value];
                let is_run = ty.dtype() == Some(Dtype::I1) && (2..256).contains(&info.constancy(0));
                runs += u32::from(is_run && divisor != 0);
                if let Some(breach) = breach(info, ty, tile, false) {
                    panic!("{value}, modulo {divisor}, beside {bound}: {breach}");
                }
            };
            let mut evaluator = Evaluator::new(module.kernel(), Memory(Vec::new()), [0, 1], &mut observe);
            evaluator.run(&[]).unwrap_or_else(|stopped| panic!("{}", stopped.0));
        }
    }
    assert!(runs > 100, "{runs}");
}

/// Folds a function of constants, if the optimizer folds it.
fn folded(operands: &[Literal], make: impl FnOnce(&mut IrBuilder, &[Value]) -> Value) -> Option<Literal> {
    let mut builder = IrBuilder::new(Function::new("fold"));
    let constants: Vec<Value> =
        operands.iter().map(|&operand| builder.constant(operand).expect("a scalar")).collect();
    let result = make(&mut builder, &constants);
    builder.return_values([result]).expect("it returns a scalar");
    let mut functions = tilewright_base::entity::PrimaryMap::new();
    let entry = functions.push(builder.function);
    let mut module = Module::new(functions, entry, Arc::default());
    optimize(&mut module, &Options::default(), &mut |_, _| {});
    let function = module.kernel();
    match function.defining_op(function.yielded(function.entry)[0]) {
        Some(Op::Constant { value }) => Some(*value),
        _ => None,
    }
}

fn literal(random: &mut Random, dtype: Dtype) -> Literal {
    let ones = u64::MAX >> (64 - dtype.bits());
    let special = [0, 1, 2, 3, ones, ones >> 1, (ones >> 1) + 1, 31, 64, u64::from(dtype.bits())];
    let bits = match random.below(3) {
        0 => random.pick(&special),
        1 => random.bits() >> (random.below(64) as u32),
        // Floats near a midpoint of a narrow format.
        _ if dtype.is_float() && random.chance(2) => {
            let narrow = random.pick(&[Dtype::F16, Dtype::BF16]);
            let bits = random.bits() & 0x7bff;
            let middle = f64::midpoint(number::float(narrow, bits), number::float(narrow, bits + 1));
            number::round(dtype, middle * (1.0 + random.pick(&[0.0, 1e-15, -1e-15, 1e-7])))
        }
        // Floats near one.
        _ if dtype.is_float() => number::round(dtype, (random.bits() as i8) as f64 / 16.0),
        _ => random.bits(),
    };
    Literal { dtype, bits: bits & ones }
}

#[test]
fn folding_agrees_with_the_definition() {
    const STYLE: Style = generate::EVERYTHING;
    let mut random = Random(7);
    for _ in seeds(20_000) {
        let function = random.pick(ElementwiseFn::ALL);
        let dtype = random.pick(STYLE.dtypes);
        if !function.info().domain.contains(Element::Value(dtype)) || function == ElementwiseFn::Select {
            continue;
        }
        let operands: Vec<Literal> =
            function.info().operands.iter().map(|_| literal(&mut random, dtype)).collect();
        let found = folded(&operands, |builder, values| {
            let operands = values.iter().copied().collect();
            builder.emit_one(Op::Elementwise { function }, operands).expect("the domain says it")
        });
        let bits: Vec<u64> = operands.iter().map(|operand| operand.bits).collect();
        // Functions without an exact specification must not be folded.
        if matches!(function.family(), ElementwiseFamily::Math(_)) {
            assert_eq!(found, None, "{function:?}");
            continue;
        }
        let expected = if dtype.is_int() {
            Some(number::int_function(function, dtype, &bits))
        } else if let ElementwiseFamily::Comparison(comparison) = function.family() {
            let [x, y] = [0, 1].map(|place| number::float(dtype, bits[place]));
            Some(u64::from(number::compare(comparison, x, y)))
        } else if function == ElementwiseFn::Fma && matches!(dtype, Dtype::F16 | Dtype::BF16) {
            None
        } else {
            Some(number::float_function(function, dtype, &bits))
        };
        let is_same = match (found, expected) {
            (Some(found), Some(expected)) => number::same(found.dtype, found.bits, expected),
            (None, None) => true,
            _ => false,
        };
        assert!(is_same, "{function:?} of {operands:?} is {found:?}, expected {expected:x?}");
    }
}

#[test]
fn folding_of_casts_agrees_with_the_definition() {
    let mut random = Random(8);
    for _ in seeds(10_000) {
        let from = random.pick(generate::EVERYTHING.dtypes);
        let to = random.pick(generate::EVERYTHING.dtypes);
        let operand = literal(&mut random, from);
        let element = Element::Value(to);
        let found = folded(&[operand], |builder, values| {
            builder.cast(values[0], element, Rounding::NearestEven).expect("numbers cast to numbers")
        });
        let expected = number::cast(from, to, Rounding::NearestEven, operand.bits);
        // Large 64-bit integers to 16-bit floats are not folded.
        let is_same = found.is_none_or(|found| found.dtype == to && number::same(to, found.bits, expected));
        assert!(is_same, "{operand:?} to {to} is {found:?}, expected {expected:x}");
        assert!(found.is_some() || from.bits() == 64, "{operand:?} to {to} is not folded");
    }
}
