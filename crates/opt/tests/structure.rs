//! Compares parents, uses, constants and forms with brute force on random programs.
//!
//! *Forms* are the polynomials of [`ScalarEvolution`]. `TILEWRIGHT_SEEDS=100000` tests more
//! programs.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use common::evaluate::{Evaluator, Memory};
use common::{generate, number, seeds};
use rustc_hash::FxHashMap;
use tilewright_ir::analysis::scalar_evolution::{Form, ScalarEvolution, Term};
use tilewright_ir::{
    Block, Definition, Function, Inst, Op, Parents, Type, Use, UseCounts, Uses, Value, constant_bool,
    constant_float, constant_int, constant_of, print,
};
use tilewright_opt::{Level, Options, optimize};

/// Returns the blocks that contain an instruction, by a search over all blocks.
fn blocks_of(function: &Function, inst: Inst) -> Vec<Block> {
    function.blocks.keys().filter(|block| function.blocks[*block].insts.contains(&inst)).collect()
}

/// Returns the instructions that own a block, by a search over all instructions.
fn owners_of(function: &Function, block: Block) -> Vec<Inst> {
    let is_owner = |inst: &Inst| {
        function.insts[*inst].regions.contains(&block) && !blocks_of(function, *inst).is_empty()
    };
    function.insts.keys().filter(is_owner).collect()
}

/// Returns whether `inst` is `outer`, or is inside of it.
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
        optimize(&mut module, &Options { level: Level::Inline, ..Options::default() }, &mut |_, _| {});
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
        let (uses, counts) = (Uses::new(function), UseCounts::new(function));
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
            assert_eq!(counts.of(value) as usize, expected.len());
            assert_eq!(uses.only(value), (expected.len() == 1).then(|| expected[0]));
            assert!(uses.users(value).eq(expected.iter().map(|other| other.inst)));
            several += usize::from(expected.len() > 1);
        }
    }
    assert!(several > 500, "{several}");
}

/// Expected: each known constant equals every element that a program computes.
#[test]
fn folded_constants_match_execution() {
    let mut found = [0; 3];
    for seed in seeds(400) {
        let mut module = generate::program(seed, generate::INDICES);
        optimize(&mut module, &Options { level: Level::Inline, ..Options::default() }, &mut |_, _| {});
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
        // Some programs access missing memory. Earlier values are valid.
        let _ = evaluator.run(&arguments);
    }
    assert!(found.iter().all(|found| *found > 20), "{found:?}");
}

/// Returns the value of a form at these coordinates, modulo 2^128. `now` has the scalars.
fn evaluate(
    function: &Function,
    now: &FxHashMap<Value, i128>,
    form: &Form,
    coordinates: &[u32],
) -> Option<i128> {
    let variable = |term: Term| match term {
        Term::Axis(axis) => Some(i128::from(coordinates[axis])),
        Term::Element(..) => unreachable!("elements are no variables here"),
        Term::Value(value) => now.get(&value).copied(),
        Term::Iteration(inst) => {
            let data = &function.insts[inst];
            let index = function.blocks[data.regions[0]].parameters[0];
            let [index, lower, step] =
                [index, data.operands[0], data.operands[2]].map(|value| now.get(&value));
            Some((index? - lower?) / step?)
        }
    };
    let mut sum = 0_i128;
    for (product, factor) in form.terms() {
        let values: Option<Vec<i128>> = product.iter().map(|term| variable(*term)).collect();
        sum = sum.wrapping_add(values?.into_iter().fold(factor, i128::wrapping_mul));
    }
    Some(sum)
}

/// Runs random programs, and calls `each` with each computed integer and all current scalars.
fn observe_integers(mut each: impl FnMut(u64, &Function, &FxHashMap<Value, i128>, (Value, &Type, &[u64]))) {
    for seed in seeds(400) {
        let mut module = generate::program(seed, generate::INDICES);
        optimize(&mut module, &Options { level: Level::Inline, ..Options::default() }, &mut |_, _| {});
        let function = module.kernel();
        let mut now: FxHashMap<Value, i128> = FxHashMap::default();
        let mut observe = |value: Value, ty: &Type, tile: &Vec<u64>| {
            let Some(dtype) = ty.dtype().filter(|dtype| dtype.is_int()) else { return };
            if ty.is_scalar() {
                now.insert(value, number::integer(dtype, tile[0]));
            }
            each(seed, function, &now, (value, ty, tile));
        };
        let arguments: Vec<u64> = function.blocks[function.entry].parameters.iter().map(|_| 3 << 4).collect();
        let mut evaluator = Evaluator::new(function, Memory(Vec::new()), [0, 1], &mut observe);
        // Some programs access missing memory. Earlier values are valid.
        let _ = evaluator.run(&arguments);
    }
}

/// Expected: forms of scalars equal the computed values, modulo the type.
#[test]
fn scalar_forms_match_execution() {
    let (mut compared, mut moving, mut carried) = (0, 0, 0);
    observe_integers(|seed, function, now, (value, ty, tile)| {
        let Some(dtype) = ty.dtype().filter(|_| ty.is_scalar()) else { return };
        let form = ScalarEvolution::new(function).form(value);
        let expected = evaluate(function, now, &form, &[]).expect("its variables are computed before");
        let is_same = number::wrap(dtype, expected) == tile[0];
        assert!(is_same, "seed {seed}: {value} is {}, not {expected}, {form:?}", tile[0]);
        let is_moving = form.any(|term| matches!(term, Term::Iteration(_)));
        compared += usize::from(form.as_variable() != Some(Term::Value(value)));
        moving += usize::from(is_moving);
        let is_carried = matches!(function.values[value].definition, Definition::Parameter(_, 1..));
        carried += usize::from(is_moving && is_carried);
    });
    assert!(compared > 1000 && moving > 100 && carried > 10, "{compared} {moving} {carried}");
}

/// Expected: forms of scalars and tiles equal the computed elements, modulo 2^32.
#[test]
fn tile_forms_match_execution() {
    let (mut tiles, mut axes, mut moving) = (0, 0, 0);
    observe_integers(|seed, function, now, (value, ty, tile)| {
        let Some(integer) = ScalarEvolution::modulo_word(function).integer(value) else { return };
        let form = integer.form;
        assert!(integer.wraps.is_empty(), "seed {seed}: {value} wraps at no index");
        for (index, bits) in tile.iter().enumerate() {
            let mut rest = index as u32;
            let mut coordinates: Vec<u32> = ty
                .shape
                .iter()
                .rev()
                .map(|extent| {
                    let coordinate = rest % extent;
                    rest /= extent;
                    coordinate
                })
                .collect();
            coordinates.reverse();
            let Some(expected) = evaluate(function, now, &form, &coordinates) else { return };
            let is_same = (*bits as u32) == expected as u32 || ty.dtype().is_none_or(|own| own.bits() < 32);
            assert!(is_same, "seed {seed}: {value}{coordinates:?} is {bits}, not {expected}, {form:?}");
        }
        tiles += usize::from(!ty.is_scalar());
        axes += usize::from(form.any(|term| matches!(term, Term::Axis(_))));
        moving += usize::from(!ty.is_scalar() && form.any(|term| matches!(term, Term::Iteration(_))));
    });
    assert!(tiles > 1000 && axes > 300 && moving > 10, "{tiles} {axes} {moving}");
}

#[test]
fn exact_forms_of_tiles_and_addresses() {
    let text = "kernel func0 @k(%p: *fp32, %n: int32, %w: int64) {
  %four = constant {value = 4:int32} : int32
  %zero = constant {value = 0:int32} : int32
  %r = arange {start = 8, end = 12} : int32[4]
  %m = splat %n {shape = [4]} : int32[4]
  %x = int_rem %r, %m : int32[4]
  %e = cast %x {element = int64, rounding = \"rtne\"} : int64[4]
  %y = expand_dims %e {axis = 0} : int64[1, 4]
  %v = splat %w {shape = [1, 4]} : int64[1, 4]
  %s = mul %y, %v : int64[1, 4]
  %b = broadcast %s {shape = [2, 4]} : int64[2, 4]
  %one = arange {start = 0, end = 1} : int32[1]
  %o = broadcast %one {shape = [2]} : int32[2]
  %q = splat %p {shape = [2, 4]} : *fp32[2, 4]
  %t = ptr_add %q, %b : *fp32[2, 4]
  %z = for_loop %zero, %n, %four, %t {options = \"stages=0 unroll=0\"} (%i: int32, %a: *fp32[2, 4]) {
    %u = splat %four {shape = [2, 4]} : int32[2, 4]
    %c = ptr_add %a, %u : *fp32[2, 4]
    yield_values %c
  } : *fp32[2, 4]
  return_values
}
";
    let module = tilewright_ir::parse(text).unwrap_or_else(|error| panic!("{error:?}"));
    let function = module.kernel();
    let named = |name: &str| {
        let is_it = |value: &Value| function.values[*value].name.as_deref() == Some(name);
        function.values.keys().find(is_it).expect("it is in the text")
    };
    let mut exact = ScalarEvolution::exact(function);
    let form = |factors: &[(&[Term], i128)]| {
        let terms = factors.iter().map(|(product, factor)| {
            let mut product = product.to_vec();
            product.sort_unstable();
            Form::term(product.into(), *factor)
        });
        terms.reduce(|sum, term| sum.plus(&term).expect("it is small")).expect("there are terms")
    };
    let (columns, width) = (Term::Axis(1), Term::Value(named("w")));
    let own = form(&[(&[columns, width], 1), (&[width], 8)]);
    let found = exact.integer(named("b")).expect("it has a form");
    assert_eq!(found.form, own);
    assert_eq!(found.wraps.len(), 1);
    assert_eq!(found.wraps[0].index, form(&[(&[columns], 1), (&[], 8)]));
    assert_eq!(found.wraps[0].bound, Form::var(Term::Value(named("n"))));
    // The index along an axis of extent 1 is 0, also after a broadcast.
    assert_eq!(exact.form_everywhere(named("o")), Some(Form::constant(0)));
    let address = exact.address(named("a")).expect("the loop moves it alike");
    let (Definition::Result(inst, _), base) = (function.values[named("z")].definition, named("p")) else {
        panic!("a loop has results")
    };
    assert_eq!(address.base, base);
    assert_eq!(address.offset.form, own.plus(&form(&[(&[Term::Iteration(inst)], 4)])).expect("it is small"));
    // Modulo a word, a remainder has no form. Modulo the type, a tile has no form.
    assert!(ScalarEvolution::modulo_word(function).integer(named("x")).is_none());
    assert!(ScalarEvolution::new(function).integer(named("r")).is_none());
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
    assert_eq!(shown("i"), "4 k + 1 n");
    assert_eq!(shown("x"), "1 k*n");
    assert_eq!(shown("z"), "-3 k*n + 1 n + -1 n*n");
    assert_eq!(shown("o"), "-48 k*n + 16 n + -16 n*n");
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
