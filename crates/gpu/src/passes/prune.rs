//! Removes unused computations. Pipelining leaves the addresses and masks of loads unused. Dots
//! that read a tile in both orders leave its transposes unused.

use cranelift_entity::{EntitySet, SecondaryMap};
use tilewright_ir::{Block, Definition, Effect, Inst, OpFamily, Operation, Value};

use tilewright_gpu_ir::{Function, GpuOp, Op, Type};

/// Removes unused instructions and loop-carried values.
pub fn prune(function: &mut Function) {
    let mut live =
        Liveness { function, owners: SecondaryMap::new(), values: EntitySet::new(), work: Vec::new() };
    live.roots(function.entry, None);
    live.propagate();
    let values = live.values;
    let mut blocks = vec![function.entry];
    while let Some(block) = blocks.pop() {
        let mut insts = std::mem::take(&mut function.blocks[block].insts);
        insts.retain(|inst| is_kept(function, *inst, &values));
        for inst in &insts {
            blocks.extend(&function.insts[*inst].regions);
            let family = function.insts[*inst].op.info().family;
            if matches!(family, OpFamily::Loop | OpFamily::Branch) {
                function.retain_carried(*inst, |carried| values.contains(carried.result));
            }
        }
        function.blocks[block].insts = insts;
    }
}

/// Returns the buffer that an instruction allocates, stores to or deallocates.
///
/// The instruction is unused if the buffer is not read.
fn buffer_of(function: &Function, inst: Inst) -> Option<Value> {
    let data = &function.insts[inst];
    let memory = match &data.op {
        Op::Gpu(GpuOp::Alloc { .. }) => data.results[0],
        Op::Gpu(GpuOp::LocalStore {} | GpuOp::Dealloc {}) => data.operands[0],
        // tidy: wildcard because other ops also have other effects or results
        _ => return None,
    };
    matches!(function.ty(memory), Type::Buffer(buffer) if buffer.slots == 1).then_some(memory)
}

fn is_kept(function: &Function, inst: Inst, live: &EntitySet<Value>) -> bool {
    if let Some(memory) = buffer_of(function, inst) {
        return live.contains(memory);
    }
    let data = &function.insts[inst];
    match data.op.info().effect {
        Effect::Pure | Effect::Read => {
            is_volatile(&data.op) || data.results.iter().any(|value| live.contains(*value))
        }
        Effect::Write | Effect::Control | Effect::Terminator => true,
    }
}

fn is_volatile(op: &Op) -> bool {
    matches!(op, Op::Gpu(GpuOp::Load { volatile: true, .. }))
}

/// The live values.
///
/// A loop-carried value's operand, parameters, yielded value and result are live together.
struct Liveness<'f> {
    function: &'f Function,
    owners: SecondaryMap<Block, Option<Inst>>,
    values: EntitySet<Value>,
    work: Vec<Value>,
}

impl Liveness<'_> {
    fn roots(&mut self, block: Block, owner: Option<Inst>) {
        self.owners[block] = owner;
        let function = self.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            let info = data.op.info();
            // The regions of reductions and scans are live only with their results.
            if !matches!(info.effect, Effect::Pure | Effect::Read) {
                for region in &data.regions {
                    self.roots(*region, Some(*inst));
                }
            }
            match (info.effect, info.family) {
                (Effect::Control, OpFamily::Loop | OpFamily::Branch) => {
                    self.work.extend(&data.operands[..info.operands.len()]);
                    for condition in function.conditions(*inst) {
                        self.work.extend(function.yielded(*condition));
                    }
                }
                (Effect::Terminator, _) => {
                    let family = owner.map(|owner| function.insts[owner].op.info().family);
                    if !matches!(family, Some(OpFamily::Loop | OpFamily::Branch)) {
                        self.work.extend(&data.operands);
                    }
                }
                (Effect::Write | Effect::Control, _) if buffer_of(function, *inst).is_none() => {
                    self.work.extend(&data.operands);
                }
                (Effect::Pure | Effect::Read, _) if is_volatile(&data.op) => self.work.extend(&data.operands),
                (Effect::Pure | Effect::Read | Effect::Write | Effect::Control, _) => {}
            }
        }
    }

    fn propagate(&mut self) {
        let function = self.function;
        let mut stored: SecondaryMap<Value, Vec<Value>> = SecondaryMap::new();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            if let Op::Gpu(GpuOp::LocalStore {}) = data.op {
                stored[data.operands[0]].push(data.operands[1]);
            }
        });
        while let Some(value) = self.work.pop() {
            if !self.values.insert(value) {
                continue;
            }
            self.work.extend(&stored[value]);
            let inst = match function.values[value].definition {
                Definition::Result(inst, _) => inst,
                Definition::Parameter(block, _) => match self.owners[block] {
                    Some(owner) => owner,
                    None => continue,
                },
            };
            let data = &function.insts[inst];
            if let Some(carried) = function.carried_by(inst, value) {
                self.work.extend(carried.initial);
                self.work.extend(carried.parameters);
                self.work.extend(carried.yielded);
                self.work.push(carried.result);
            } else if !matches!(data.op.info().family, OpFamily::Loop | OpFamily::Branch) {
                self.work.extend(&data.operands);
                let is_new = matches!(data.op.info().effect, Effect::Pure | Effect::Read)
                    && data.regions.first().is_some_and(|region| self.owners[*region].is_none());
                if is_new {
                    data.regions.iter().for_each(|region| self.roots(*region, Some(inst)));
                }
            }
        }
    }
}
