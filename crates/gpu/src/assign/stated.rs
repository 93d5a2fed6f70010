//! Translates a program that states its layouts (Gluon). Each value gets the layout of its type.
//! Tiles without a stated layout, such as constants, get the layouts that their uses demand, or the
//! default.

use cranelift_entity::{EntitySet, SecondaryMap};
use tilewright_base::{Code, Diagnostic};
use tilewright_ir as ir;
use tilewright_ir::{DeviceFn, Inst, Op, OpFamily, Value};
use tilewright_opt::analysis::{Assumptions, analyze, analyze_assuming};

use crate::assign::accumulators::keep_in_flight;
use crate::assign::boxes::TensorBoxes;
use crate::assign::chosen_allocations::join_chosen;
use crate::assign::cost::LayoutCosts;
use crate::assign::equivalence::Classes;
use crate::assign::mma_selection::DotPlans;
use crate::assign::propagation::{AssignContext, Demands};
use crate::assign::rematerialization::Rematerializable;
use crate::assign::rewrite::{self, barrier_operand, check_moves};
use crate::assign::selection::LayoutChoice;
use crate::assign::workers::{self, Workers};
use crate::launcher::Launcher;
use crate::tile::legality::at;
use tilewright_gpu_ir::Module;
use tilewright_gpu_ir::layout_rules::default_layout;
use tilewright_gpu_ir::target::GpuTarget;

/// Builds the module of a kernel in the GPU dialect, with the stated layouts.
///
/// # Errors
/// If the kernel chooses shared memory at run time, or uses an accumulator in flight. The call also
/// fails if a stated tensor copy or worker cannot exist.
pub fn translate(
    module: &ir::Module,
    target: GpuTarget,
    num_warps: u32,
    launcher: Launcher<'_>,
) -> Result<Module, Box<Diagnostic>> {
    let mut module = module.clone();
    let entry = module.entry;
    join_chosen(&mut module.functions[entry]);
    check_allocations(module.kernel())?;
    check_moves(module.kernel())?;
    let workers = workers::find(module.kernel(), target, num_warps)?;
    keep_in_flight(&mut module.functions[entry])?;
    let module = &module;
    let function = module.kernel();
    let addresses = analyze_assuming(function, Assumptions::ADDRESSES);
    let certain = analyze(function);
    let mut costs = LayoutCosts::new(target.tuning);
    let rematerializable = Rematerializable::stated(function);
    let (classes, choice) = stated_layouts(function, &rematerializable, (num_warps, &workers), &mut costs);
    let boxes = TensorBoxes::stated(function, launcher)?;
    let dots = DotPlans::new(function, target, num_warps, &mut costs);
    let context = AssignContext {
        function,
        boxes: &boxes,
        rematerializable: &rematerializable,
        classes: &classes,
        dots: &dots,
        addresses: &addresses,
        certain: &certain,
        target,
        num_warps,
        workers: &workers,
    };
    let demands = Demands::new(&context, choice, &mut costs);
    let mut program = rewrite::rewrite(module, &context, &demands, &mut costs);
    program.header.explicit = true;
    if let Some(plan) = &workers.plan {
        workers::enclose(&mut program, plan)?;
    }
    Ok(program)
}

/// Refuses accesses to shared memory that the kernel chooses at run time. Also refuses accesses to
/// `mbarrier` memory by other functions.
fn check_allocations(function: &ir::Function) -> Result<(), Box<Diagnostic>> {
    let is_allocation = |value: Value| {
        let inst = function.defining_inst(value);
        inst.is_some_and(|inst| {
            let op = &function.insts[inst].op;
            matches!(op, Op::Device { function: DeviceFn::Allocate { .. } | DeviceFn::View { .. } })
        })
    };
    let mut found = Ok(());
    let mut barriers = EntitySet::new();
    function.walk(function.entry, &mut |inst| {
        barriers.extend(barrier_operand(function, inst).map(|index| function.insts[inst].operands[index]));
    });
    let is_view = |value: Value| {
        let op = function.defining_op(value);
        matches!(op, Some(Op::Device { function: DeviceFn::View { .. } }))
    };
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let Op::Device { function: device } = &data.op else { return };
        let is_other_access = |index: usize| {
            barriers.contains(data.operands[index])
                && (is_view(data.operands[index]) || barrier_operand(function, inst) != Some(index))
        };
        let is_barrier = !matches!(device, DeviceFn::KeepAlive {})
            && device.memory_operands(data.operands.len()).any(is_other_access);
        if found.is_ok() && is_barrier {
            let message = "the memory of an mbarrier is accessed as a tile, or is a view of other memory";
            let hint = "allocate the mbarrier by `mbarrier.allocate_mbarrier()`, and the tile apart from it";
            found = Err(Box::new(at(function, inst, Code::SharedMemoryMisuse, message).hint(hint)));
        }
        let mut operands = device.memory_operands(data.operands.len());
        if found.is_ok() && !operands.all(|index| is_allocation(data.operands[index])) {
            let message = "the shared memory of an access is chosen at run time";
            let hint = "choose only among allocations for equal tiles, or allocate one array of tiles, and \
                        choose among them by `memory.index(i)`";
            found = Err(Box::new(at(function, inst, Code::NotOnThisDevice, message).hint(hint)));
        }
    });
    found
}

fn stated_layouts(
    function: &ir::Function,
    rematerializable: &Rematerializable,
    (num_warps, workers): (u32, &Workers),
    costs: &mut LayoutCosts,
) -> (Classes, LayoutChoice) {
    let mut of_class = Vec::new();
    let mut of_value: SecondaryMap<Value, Option<u32>> = SecondaryMap::new();
    for (value, data) in &function.values {
        if data.ty.is_scalar() || rematerializable.contains(value) {
            continue;
        }
        let shape = &data.ty.shape;
        let linear = data.ty.layout.as_ref().and_then(|layout| layout.linear(shape).ok());
        let warps = if workers.warps[value] == 0 { num_warps } else { workers.warps[value] };
        let layout = costs.add(linear.unwrap_or_else(|| default_layout(shape, warps)));
        let class = of_class.iter().position(|other| *other == layout).unwrap_or_else(|| {
            of_class.push(layout);
            of_class.len() - 1
        });
        of_value[value] = Some(class as u32);
    }
    let mut of_access: SecondaryMap<Inst, _> = SecondaryMap::new();
    for (inst, data) in &function.insts {
        let is_access = match data.op.family() {
            OpFamily::Load | OpFamily::Store | OpFamily::Atomic | OpFamily::Check | OpFamily::Reduction => {
                true
            }
            // tidy: wildcard because other ops are executed in the layout of their results
            _ => false,
        };
        let mut tiles = data.operands.iter().chain(&data.results);
        let class = tiles.find_map(|value| of_value[*value]);
        if let (true, Some(class)) = (is_access, class) {
            of_access[inst] = Some(of_class[class as usize]);
        }
    }
    (Classes::stated(of_value), LayoutChoice { of_class, of_access })
}
