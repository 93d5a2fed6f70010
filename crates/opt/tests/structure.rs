//! Compares parents, uses and constants of random programs with brute force and with the values
//! that the programs compute.
//!
//! Programs are identified by their seed; `TILEWRIGHT_SEEDS=100000` tests more of them.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use common::evaluate::{Evaluator, Memory};
use common::{generate, number, seeds};
use rustc_hash::FxHashMap;
use tilewright_ir::analysis::scalar_evolution::{ScalarEvolution, Term};
use tilewright_ir::{
    Block, Definition, Function, Inst, Op, Parents, Type, Use, Uses, Value, constant_bool, constant_float,
    constant_int, constant_of, print,
};
use tilewright_opt::{Level, Options, optimize};

/// Returns the blocks that contain an instruction, by a search over all blocks.
fn blocks_of(function: &Function, inst: Inst) -> Vec<Block> {
    function.blocks.keys().filter(|block| function.blocks[*block].insts.contains(&inst)).collect()
}

/// Returns the instructions in blocks that own a block, by a search over all instructions.
fn owners_of(function: &Function, block: Block) -> Vec<Inst> {
    let is_owner = |inst: &Inst| {
        function.insts[*inst].regions.contains(&block) && !blocks_of(function, *inst).is_empty()
    };
    function.insts.keys().filter(is_owner).collect()
}

/// Returns whether an instruction is another one, or inside of it.
fn is_inside(function: &Function, inst: Inst, outer: Inst) -> bool {
    let mut found = inst == outer;
    for region in &function.insts[outer].regions {
        function.walk(*region, &mut |inner| found |= inner == inst);
    }
    found
}

#[test]
fn parents_are_those_that_a_search_finds() {
    let mut nested = 0;
    for seed in seeds(60) {
        let mut module = generate::program(seed, generate::EVERYTHING);
        optimize(&mut module, &Options { level: Level::Inline }, &mut |_, _| {});
        let function = module.kernel();
        let parents = Parents::new(function);
        let mut reached = Vec::new();
        function.walk(function.entry, &mut |inst| reached.push(inst));
        for &inst in &reached {
            let block = parents.block(inst).expect("the entry reaches it");
            assert_eq!(blocks_of(function, inst), [block], "seed {seed}");
            assert_eq!(owners_of(function, block), Vec::from_iter(parents.owner(block)), "seed {seed}");
            nested += usize::from(parents.enclosing(inst).count() > 1);
            for &outer in reached.iter().step_by(7) {
                assert_eq!(parents.is_inside(inst, outer), is_inside(function, inst, outer), "seed {seed}");
                let home = parents.block(outer).expect("the entry reaches it");
                let ancestor = parents.ancestor_in(home, inst);
                let expected =
                    function.blocks[home].insts.iter().find(|one| is_inside(function, inst, **one));
                assert_eq!(ancestor, expected.copied(), "seed {seed}");
            }
            for &result in &function.insts[inst].results {
                assert_eq!(parents.block_of_value(function, result), Some(block), "seed {seed}");
            }
        }
        for value in function.values.keys() {
            if let Definition::Parameter(block, _) = function.values[value].definition {
                assert_eq!(parents.block_of_value(function, value), Some(block), "seed {seed}");
            }
        }
    }
    assert!(nested > 100, "{nested}");
}

#[test]
fn uses_are_those_that_a_search_finds() {
    let mut several = 0;
    for seed in seeds(120) {
        let module = generate::program(seed, generate::EVERYTHING);
        let function = module.kernel();
        let uses = Uses::new(function);
        let mut reached = Vec::new();
        function.walk(function.entry, &mut |inst| reached.push(inst));
        for value in function.values.keys() {
            let mut expected = Vec::new();
            for &inst in &reached {
                let operands = function.insts[inst].operands.iter().enumerate();
                let own = operands.filter(|(_, operand)| **operand == value);
                expected.extend(own.map(|(operand, _)| Use { inst, operand }));
            }
            assert_eq!(uses.of(value), expected, "seed {seed}: {value}");
            assert_eq!(uses.count(value), expected.len());
            assert_eq!(uses.only(value), (expected.len() == 1).then(|| expected[0]));
            assert!(uses.users(value).eq(expected.iter().map(|other| other.inst)));
            several += usize::from(expected.len() > 1);
        }
    }
    assert!(several > 500, "{several}");
}

/// Compares known constants with every element that a program computes.
#[test]
fn folded_constants_match_execution() {
    let mut found = [0; 3];
    for seed in seeds(400) {
        let mut module = generate::program(seed, generate::INDICES);
        optimize(&mut module, &Options { level: Level::Inline }, &mut |_, _| {});
        let function = module.kernel();
        let mut observe = |value: Value, ty: &Type, tile: &Vec<u64>| {
            let Some(literal) = constant_of(function, value) else { return };
            assert_eq!(Some(literal.dtype), ty.dtype(), "seed {seed}: {value}");
            let is_it = tile.iter().all(|bits| *bits == literal.bits);
            assert!(is_it, "seed {seed}: {value} is {tile:?}, not {literal:?}\n{}", print(&module, false));
            assert_eq!(constant_int(function, value), literal.as_int());
            let is_bool = ty.dtype().is_some_and(tilewright_ir::Dtype::is_bool);
            assert_eq!(constant_bool(function, value), is_bool.then_some(literal.bits != 0));
            found[0] += 1;
            found[1] += usize::from(!ty.is_scalar());
            found[2] += usize::from(matches!(function.defining_op(value), Some(Op::Cast { .. })));
        };
        let arguments: Vec<u64> =
            function.blocks[function.entry].parameters.iter().map(|_| 1 << 20).collect();
        let mut evaluator = Evaluator::new(function, Memory(Vec::new()), [0, 1], &mut observe);
        // Some programs access missing memory; their values up to that point are valid.
        let _ = evaluator.run(&arguments);
    }
    assert!(found.iter().all(|found| *found > 20), "{found:?}");
}

/// Compares linear forms with the values that a program computes, modulo the type, given the values
/// of their variables at that time.
#[test]
fn scalar_forms_match_execution() {
    let (mut compared, mut moving, mut carried) = (0, 0, 0);
    for seed in seeds(400) {
        let mut module = generate::program(seed, generate::INDICES);
        optimize(&mut module, &Options { level: Level::Inline }, &mut |_, _| {});
        let function = module.kernel();
        let mut evolution = ScalarEvolution::new(function);
        let mut now: FxHashMap<Value, i128> = FxHashMap::default();
        let mut observe = |value: Value, ty: &Type, tile: &Vec<u64>| {
            let Some(dtype) = ty.dtype().filter(|dtype| ty.is_scalar() && dtype.is_int()) else { return };
            now.insert(value, number::integer(dtype, tile[0]));
            let form = evolution.form(value);
            let variable = |term: Term| match term {
                Term::Value(value) => now.get(&value).copied(),
                Term::Axis(_) | Term::Element(..) => unreachable!("the form is that of a scalar"),
                Term::Iteration(inst) => {
                    let data = &function.insts[inst];
                    let index = function.blocks[data.regions[0]].parameters[0];
                    let [index, lower, step] =
                        [index, data.operands[0], data.operands[2]].map(|value| now.get(&value));
                    Some((index? - lower?) / step?)
                }
            };
            let mut expected = 0_i128;
            for (product, factor) in form.terms() {
                let values = product.iter().map(|term| variable(*term).expect("it is computed before"));
                expected = expected.wrapping_add(values.fold(factor, i128::wrapping_mul));
            }
            let is_same = number::wrap(dtype, expected) == tile[0];
            assert!(
                is_same,
                "seed {seed}: {value} is {}, not {expected}, {form:?}\n{}",
                tile[0],
                print(&module, false)
            );
            let is_moving = form.any(|term| matches!(term, Term::Iteration(_)));
            compared += usize::from(form.as_variable() != Some(Term::Value(value)));
            moving += usize::from(is_moving);
            let is_carried = matches!(function.values[value].definition, Definition::Parameter(_, 1..));
            carried += usize::from(is_moving && is_carried);
        };
        let arguments: Vec<u64> = function.blocks[function.entry].parameters.iter().map(|_| 3 << 4).collect();
        let mut evaluator = Evaluator::new(function, Memory(Vec::new()), [0, 1], &mut observe);
        // Some programs access missing memory; their values up to that point are valid.
        let _ = evaluator.run(&arguments);
    }
    assert!(compared > 1000 && moving > 100 && carried > 10, "{compared} {moving} {carried}");
}

#[test]
fn forms_of_loops_are_in_steps_of_iterations() {
    let text = "kernel func0 @k(%n: int32, %w: int64) {
  %four = constant {value = 4:int32} : int32
  %zero = constant {value = 0:int32} : int32
  %a = for_loop %n, %n, %four, %zero {options = \"stages=0 unroll=0\"} (%i: int32, %x: int32) {
    %y = add %x, %n : int32
    %t = mul %i, %n : int32
    %z = sub %y, %t : int32
    %o = shl %z, %four : int32
    %e = cast %i {element = int64, rounding = \"rtne\"} : int64
    %c = mul %e, %w : int64
    %q = cast %c {element = int16, rounding = \"rtne\"} : int16
    yield_values %y
  } : int32
  return_values
}
";
    let module = tilewright_ir::parse(text).unwrap_or_else(|error| panic!("{error:?}"));
    let function = module.kernel();
    let mut evolution = ScalarEvolution::new(function);
    let named = |name: &str| {
        let is_it = |value: &Value| function.values[*value].name.as_deref() == Some(name);
        function.values.keys().find(is_it).expect("it is in the text")
    };
    let mut shown = |name: &str| {
        let term = |term: &Term| match term {
            Term::Value(value) => function.values[*value].name.as_deref().unwrap_or("?").to_owned(),
            Term::Iteration(_) => "k".to_owned(),
            Term::Axis(_) | Term::Element(..) => unreachable!("the form is that of a scalar"),
        };
        let form = evolution.form(named(name));
        let terms = form.terms().map(|(product, factor)| {
            let product: Vec<String> = product.iter().map(term).collect();
            format!("{factor} {}", product.join("*"))
        });
        terms.collect::<Vec<_>>().join(" + ")
    };
    assert_eq!(shown("i"), "1 n + 4 k");
    assert_eq!(shown("x"), "1 n*k");
    assert_eq!(shown("z"), "1 n + -1 n*n + -3 n*k");
    assert_eq!(shown("o"), "16 n + -16 n*n + -48 n*k");
    assert_eq!(shown("e"), "1 e");
    assert_eq!(shown("q"), "1 w*e");
    assert_eq!(shown("a"), "1 a");
}

#[test]
fn constants_are_seen_through_data_movement() {
    let text = "kernel func0 @k(%n: int32) {
  %a = constant {value = -3:int32} : int32
  %b = cast %a {element = int8, rounding = \"rtne\"} : int8
  %c = splat %b {shape = [4]} : int8[4]
  %d = expand_dims %c {axis = 0} : int8[1, 4]
  %e = broadcast %d {shape = [2, 4]} : int8[2, 4]
  %f = hint %e {kind = \"multiple_of\", values = [1, 1]} : int8[2, 4]
  %g = cast %f {element = uint8, rounding = \"rtne\"} : uint8[2, 4]
  %h = cast %g {element = int1, rounding = \"rtne\"} : int1[2, 4]
  %i = constant {value = 2.5:fp16} : fp16
  %j = splat %i {shape = [4]} : fp16[4]
  %k = cast %j {element = fp32, rounding = \"rtne\"} : fp32[4]
  %l = add %a, %a : int32
  %m = constant {value = 0:int8} : int8
  %o = bitcast %m {element = fp8e5} : fp8e5
  %p = cast %o {element = fp32, rounding = \"rtne\"} : fp32
  %q = bitcast %i {element = int16} : int16
  return_values
}
";
    let module = tilewright_ir::parse(text).unwrap_or_else(|error| panic!("{error:?}"));
    let function = module.kernel();
    let named = |name: &str| {
        let is_it = |value: &Value| function.values[*value].name.as_deref() == Some(name);
        function.values.keys().find(is_it).expect("it is in the text")
    };
    let ints = ["n", "a", "b", "f", "g", "h", "l"].map(|name| constant_int(function, named(name)));
    assert_eq!(ints, [None, Some(-3), Some(-3), Some(-3), Some(253), Some(1), None]);
    assert_eq!(["g", "h"].map(|name| constant_bool(function, named(name))), [None, Some(true)]);
    assert_eq!(
        ["p", "j", "k", "a"].map(|name| constant_float(function, named(name))),
        [Some(0.0), Some(2.5), None, None]
    );
    assert_eq!(constant_int(function, named("q")), Some(0x4100));
}
