//! Finds the loads that asynchronous copies of threads probably replace: those that feed the dots of
//! a loop with pipeline stages. The pipeliner decides after the assignment.
//!
//! Such a load goes through shared memory in any case. A thread copies elements in the layout of the
//! access, and reads them in another layout without a further conversion.

use cranelift_entity::EntitySet;
use tilewright_ir::{Block, Function, Inst, Op, OpFamily, constant_of};

use super::boxes::TensorBoxes;
use tilewright_gpu_ir::target::{Feature, GpuTarget};

/// Returns the loads that feed the dots of a pipelined loop, except those that tensor copies may
/// replace. `num_stages` applies to each loop without its own number of stages.
pub fn copied_loads(
    function: &Function,
    num_stages: u32,
    target: GpuTarget,
    boxes: &TensorBoxes,
) -> EntitySet<Inst> {
    let mut found = EntitySet::new();
    if target.features.has(Feature::CpAsync) {
        collect(function, function.entry, num_stages, &mut found);
    }
    let may_be_copied = |inst: &Inst| boxes.of(*inst).is_none() && has_zeros(function, *inst);
    let mut copied = EntitySet::new();
    copied.extend(found.keys().filter(may_be_copied));
    copied
}

/// Returns whether a load yields zeros where its mask is false, as copies do.
fn has_zeros(function: &Function, load: Inst) -> bool {
    let other = function.insts[load].operands.get(2);
    other.is_none_or(|other| constant_of(function, *other).is_some_and(|value| value.bits == 0))
}

fn collect(function: &Function, block: Block, num_stages: u32, found: &mut EntitySet<Inst>) {
    for inst in &function.blocks[block].insts {
        let data = &function.insts[*inst];
        if let Op::For { options } = &data.op {
            let stages = if options.num_stages > 0 { options.num_stages } else { num_stages };
            if stages > 1 {
                add_loads_of_dots(function, data.regions[0], found);
            }
        }
        data.regions.iter().for_each(|region| collect(function, *region, num_stages, found));
    }
}

/// Adds the loads of a loop's body from which operands of its dots are computed.
fn add_loads_of_dots(function: &Function, body: Block, found: &mut EntitySet<Inst>) {
    let insts = &function.blocks[body].insts;
    let dots = insts.iter().map(|inst| &function.insts[*inst]);
    let dots = dots.filter(|data| data.op.family() == OpFamily::Dot);
    let mut work: Vec<_> = dots.flat_map(|data| data.operands[..2].iter().copied()).collect();
    let mut seen = EntitySet::new();
    while let Some(value) = work.pop() {
        let inst = function.defining_inst(value).filter(|inst| insts.contains(inst));
        let Some(inst) = inst.filter(|inst| seen.insert(*inst)) else { continue };
        let data = &function.insts[inst];
        match data.op.family() {
            OpFamily::Load => _ = found.insert(inst),
            OpFamily::Pointwise | OpFamily::Identity | OpFamily::Shape => work.extend(&data.operands),
            // tidy: wildcard because other ops exchange elements between threads
            _ => {}
        }
    }
}
