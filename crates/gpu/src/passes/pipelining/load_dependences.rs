//! Finds the loads that values depend on.

use rustc_hash::FxHashSet;
use tilewright_ir::{Definition, Inst, OpFamily, Operation, Parents, Uses, Value};

use tilewright_gpu_ir::{Function, GpuOp, Op};

pub(in crate::passes) struct LoadDependences<'f> {
    function: &'f Function,
    parents: Parents,
    uses: Uses,
}

impl<'f> LoadDependences<'f> {
    pub(in crate::passes) fn new(function: &'f Function) -> Self {
        Self { function, parents: Parents::new(function), uses: Uses::new(function) }
    }

    /// Returns the loads from which `values` are computed, and those of their control flow. The
    /// control flow decides in which iterations and branches `insts` and the computations run.
    pub(in crate::passes) fn with_control(&self, values: &[Value], insts: &[Inst]) -> FxHashSet<Inst> {
        let mut work = values.to_vec();
        for inst in insts {
            self.push_control(*inst, &mut work);
        }
        self.search(work)
    }

    fn search(&self, mut work: Vec<Value>) -> FxHashSet<Inst> {
        let function = self.function;
        let (mut seen, mut loads) = (FxHashSet::default(), FxHashSet::default());
        while let Some(value) = work.pop() {
            if !seen.insert(value) {
                continue;
            }
            let inst = match function.values[value].definition {
                Definition::Result(inst, _) => inst,
                Definition::Parameter(block, _) => {
                    let Some(owner) = self.parents.owner(block) else { continue };
                    self.push_carried(owner, value, &mut work);
                    continue;
                }
            };
            let data = &function.insts[inst];
            if matches!(data.op, Op::Gpu(GpuOp::Load { .. })) {
                loads.insert(inst);
            }
            if matches!(data.op.info().family, OpFamily::Loop | OpFamily::Branch) {
                self.push_carried(inst, value, &mut work);
            } else {
                work.extend(&data.operands);
            }
            if matches!(data.op, Op::Gpu(GpuOp::Alloc { .. })) {
                let stores = self.uses.users(value).map(|user| &function.insts[user]);
                let stores = stores.filter(|user| matches!(user.op, Op::Gpu(GpuOp::LocalStore {})));
                work.extend(stores.map(|store| store.operands[1]));
            }
            self.push_control(inst, &mut work);
        }
        loads
    }

    /// Pushes the values that a loop or branch carries to a result or parameter.
    fn push_carried(&self, owner: Inst, value: Value, work: &mut Vec<Value>) {
        if let Some(carried) = self.function.carried_by(owner, value) {
            work.extend(carried.initial);
            work.extend(&carried.yielded);
        }
    }

    fn push_control(&self, inst: Inst, work: &mut Vec<Value>) {
        let function = self.function;
        for owner in self.parents.enclosing(inst).chain([inst]) {
            let data = &function.insts[owner];
            match data.op.info().family {
                OpFamily::Loop => {
                    let bounds = data.operands.len().saturating_sub(data.results.len());
                    work.extend(&data.operands[..bounds]);
                    for condition in function.conditions(owner) {
                        work.extend(function.yielded(*condition));
                    }
                }
                OpFamily::Branch => work.extend(&data.operands),
                // tidy: wildcard because other ops always run their regions
                _ => {}
            }
        }
    }
}
