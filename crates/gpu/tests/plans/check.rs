//! An independent check that the layouts of a plan fit together, exactly as the docs of `Plan` say.

use tilewright_gpu::{Exchange, Plan, Product};
use tilewright_ir::{Block, Function, Inst, Op, Value, verify};
use tilewright_layout::{Fragment, Input, Layout, Reduction};

use crate::{KERNELS, module, planned};

/// Panics where a layout does not fit.
pub fn check(plan: &Plan) {
    verify(&plan.module).unwrap_or_else(|error| panic!("{error}"));
    let function = plan.module.kernel();
    let mut blocks = vec![function.entry];
    while let Some(block) = blocks.pop() {
        for parameter in &function.blocks[block].parameters {
            value(plan, *parameter);
        }
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            blocks.extend(data.regions.iter().copied());
            data.results.iter().for_each(|result| value(plan, *result));
            instruction(plan, function, *inst);
        }
    }
}

fn value(plan: &Plan, value: Value) {
    let ty = plan.module.kernel().ty(value);
    let Some(layout) = &plan.layouts[value] else {
        assert!(ty.is_scalar(), "{value} of {ty} has no layout");
        return;
    };
    assert_eq!(layout.output().shape()[..], ty.shape[..], "{value}");
    assert!(layout.is_surjective(), "{value}: every element is somewhere");
    assert_eq!(layout.free_bits(Input::Register), 0, "{value}: no thread holds an element twice");
    assert_eq!(
        (layout.bits_of(Input::Lane), 1 << layout.bits_of(Input::Warp)),
        (5, plan.num_warps),
        "{value}"
    );
}

fn instruction(plan: &Plan, function: &Function, inst: Inst) {
    let data = &function.insts[inst];
    let operand = |place: usize| plan.layouts[data.operands[place]].as_ref();
    let result = || data.results.first().and_then(|result| plan.layouts[*result].as_ref());
    let same = |a: Option<&Layout>, b: Option<&Layout>| assert_eq!(a, b, "{}", data.op.name());
    match &data.op {
        Op::Elementwise { .. } | Op::Cast { .. } | Op::Bitcast { .. } | Op::PtrAdd {} => {
            (0..data.operands.len()).for_each(|place| same(operand(place), result()));
        }
        Op::Load { .. } => {
            (0..data.operands.len()).for_each(|place| same(operand(place), result()));
            assert_eq!(plan.accesses[inst].is_some(), result().is_some());
        }
        Op::Store { .. } => {
            (0..data.operands.len()).for_each(|place| same(operand(place), operand(0)));
            assert_eq!(plan.accesses[inst].is_some(), operand(0).is_some());
        }
        Op::Assert { .. } => (0..data.operands.len()).for_each(|place| same(operand(place), operand(0))),
        Op::ExpandDims { axis } => {
            if let Some(operand) = operand(0) {
                same(Some(&operand.insert_axis(*axis as usize)), result());
            }
        }
        Op::Transpose { permutation } => {
            let axes: Vec<usize> = permutation.iter().map(|axis| *axis as usize).collect();
            if let Some(operand) = operand(0) {
                same(Some(&operand.transpose(&axes)), result());
            }
        }
        Op::Reshape { shape } => {
            if let Some((operand, result)) = operand(0).zip(result()) {
                same(Some(&operand.reshape(shape)), Some(result));
            }
        }
        Op::Broadcast { shape } => {
            let Some((operand, result)) = operand(0).zip(result()) else { return };
            let old = operand.output().shape();
            let grown = (0..shape.len()).filter(|axis| old[*axis] != shape[*axis]);
            let collapsed = grown.fold(result.clone(), |layout, axis| layout.collapse(axis));
            same(Some(&collapsed.without_duplicate_registers()), Some(operand));
            assert!(collapsed.registers_from(operand).is_some(), "each register is one of the operand");
        }
        Op::Reduce { axis } => {
            (0..data.operands.len()).for_each(|place| same(operand(place), operand(0)));
            let reduction = Reduction::along(operand(0).expect("it is a tile"), *axis as usize);
            for one in &data.results {
                if let Some(layout) = &plan.layouts[*one] {
                    assert_eq!(*layout, reduction.result);
                }
            }
        }
        Op::Dot { .. } => dot(plan, function, inst),
        Op::For { .. } | Op::While {} | Op::If {} => control(plan, function, inst),
        Op::Relayout {} => assert!(plan.exchanges[inst].is_some()),
        Op::Call { .. } | Op::Hint { .. } | Op::Assume { .. } => panic!("{} is gone", data.op.name()),
        Op::Constant { .. }
        | Op::ProgramId { .. }
        | Op::NumPrograms { .. }
        | Op::Arange { .. }
        | Op::Splat { .. }
        | Op::Barrier {}
        | Op::Yield {}
        | Op::Return {} => {}
    }
}

fn dot(plan: &Plan, function: &Function, inst: Inst) {
    let data = &function.insts[inst];
    let layout = |value: Value| plan.layouts[value].clone().expect("it is a tile");
    let [a, b, accumulator] = [0, 1, 2].map(|place| layout(data.operands[place]));
    assert_eq!(accumulator, layout(data.results[0]));
    match plan.products[inst].expect("each product is planned") {
        Product::TensorCore { mma, warps } => {
            let fragments = [(Fragment::A, a), (Fragment::B, b), (Fragment::Accumulator, accumulator)];
            for (fragment, found) in fragments {
                assert_eq!(found, mma.layout(fragment, &found.output().shape(), warps), "{fragment:?}");
            }
        }
        Product::Scalar => {
            for (operand, found) in data.operands[..2].iter().zip([a, b]) {
                let maker = function.defining_inst(*operand).expect("it is made by a relayout");
                assert!(matches!(plan.exchanges[maker], Some(Exchange::Operand { .. })));
                let rank = found.output().rank();
                assert_eq!(accumulator.bits_of(Input::Warp), found.bits_of(Input::Warp), "{rank}");
            }
            holds_what_it_needs(plan, inst);
        }
    }
}

/// By brute force: a thread that has the element (m, n) of the accumulator has all (m, k) of A and (k, n) of B.
fn holds_what_it_needs(plan: &Plan, inst: Inst) {
    let data = &plan.module.kernel().insts[inst];
    let layout = |place: usize| plan.layouts[data.operands[place]].clone().expect("it is a tile");
    let [a, b, accumulator] = [layout(0), layout(1), layout(2)];
    let held = |layout: &Layout, lane: u32, warp: u32| -> Vec<Vec<u32>> {
        (0..layout.registers())
            .map(|register| {
                let place = [(Input::Register, register), (Input::Lane, lane), (Input::Warp, warp)];
                layout.coordinates(&place).to_vec()
            })
            .collect()
    };
    let rank = a.output().rank();
    let k_extent = a.output().size(rank - 1);
    for (lane, warp) in [(0, 0), (5, 0), (31, plan.num_warps - 1)] {
        let (of_a, of_b) = (held(&a, lane, warp), held(&b, lane, warp));
        for element in held(&accumulator, lane, warp) {
            for k in 0..k_extent {
                let (mut row, mut column) = (element.clone(), element.clone());
                (row[rank - 1], column[rank - 2]) = (k, k);
                assert!(of_a.contains(&row) && of_b.contains(&column), "{element:?} at {k}");
            }
        }
    }
}

fn control(plan: &Plan, function: &Function, inst: Inst) {
    let data = &function.insts[inst];
    let layouts = |values: &[Value]| -> Vec<Option<Layout>> {
        values.iter().map(|value| plan.layouts[*value].clone()).collect()
    };
    let results = layouts(&data.results);
    let parameters = |region: Block, skip: usize| layouts(&function.blocks[region].parameters[skip..]);
    match (&data.op, &data.regions[..]) {
        (Op::For { .. }, [body]) => {
            assert_eq!(layouts(&data.operands[3..]), results);
            assert_eq!(parameters(*body, 1), results);
            assert_eq!(layouts(function.yielded(*body)), results);
        }
        (Op::While {}, [condition, body]) => {
            assert_eq!(layouts(&data.operands), results);
            assert_eq!(parameters(*condition, 0), results);
            assert_eq!(parameters(*body, 0), results);
            assert_eq!(layouts(function.yielded(*body)), results);
        }
        (Op::If {}, regions) => {
            for region in regions {
                assert_eq!(layouts(function.yielded(*region)), results);
            }
        }
        // tidy: wildcard because this is called for control flow alone
        _ => unreachable!(),
    }
}

#[test]
fn layouts_of_known_kernels_fit() {
    for (_, text) in KERNELS {
        for target in ["sm_75", "sm_80", "sm_90a"] {
            for num_warps in [1, 2, 4, 8] {
                check(&planned(&module(text), target, num_warps));
            }
        }
    }
}
