//! Finds the values of a divided program (`tile/cluster.rs`) that depend on a block's rank.
//!
//! All blocks of a cluster run one program, so the other values are equal in all of them: the
//! program waits for no other program, and its blocks write different memory. Values in shared
//! memory count as dependent.

use rustc_hash::FxHashSet;
use tilewright_ir as ir;
use tilewright_ir::{Carried, ElementwiseFn, Inst, OpFamily, Operation, Value, constant_int};

use tilewright_gpu_ir::{Function, GpuOp, Op, Type};

/// The values that depend on a block's rank in a divided program.
pub struct RankDependence(FxHashSet<Value>);

impl RankDependence {
    /// Finds the values of a function that depend on the rank, in clusters of `blocks` blocks.
    pub fn of(function: &Function, blocks: u32) -> Self {
        let mut found = Self(FxHashSet::default());
        loop {
            let before = found.0.len();
            function.walk(function.entry, &mut |inst| found.visit(function, inst, blocks));
            if found.0.len() == before {
                return found;
            }
        }
    }

    /// Returns whether a value may differ between the blocks of a cluster.
    pub fn contains(&self, value: Value) -> bool {
        self.0.contains(&value)
    }

    fn visit(&mut self, function: &Function, inst: Inst, blocks: u32) {
        let data = &function.insts[inst];
        let is_ranked = |value: &Value| self.0.contains(value);
        let is_control = matches!(data.op.info().family, OpFamily::Loop | OpFamily::Branch);
        let conditions = function.conditions(inst).iter().flat_map(|region| function.yielded(*region));
        let depends = if is_control {
            data.operands[..data.op.info().operands.len()].iter().chain(conditions).any(is_ranked)
        } else {
            // Values in shared memory are not traced, so they count as dependent.
            let is_memory = |value: &Value| matches!(function.ty(*value), Type::Buffer(_));
            matches!(data.op, Op::Tile(ir::Op::ProgramId { axis: 0 }))
                || data.operands.iter().any(|value| is_ranked(value) || is_memory(value))
                    && !is_cluster_id(function, inst, blocks)
        };
        if depends {
            self.0.extend(&data.results);
        }
        for Carried { initial, parameters, yielded, result } in function.carried(inst) {
            let mut from = initial.iter().chain(&yielded).chain([&result]);
            if from.any(|value| self.0.contains(value)) {
                self.0.extend(parameters.iter().chain([&result]));
            }
        }
    }
}

/// Returns whether an instruction divides a block id by a multiple of the cluster size.
fn is_cluster_id(function: &Function, inst: Inst, blocks: u32) -> bool {
    let data = &function.insts[inst];
    let Op::Gpu(GpuOp::Elementwise { function: by, .. }) = &data.op else { return false };
    let constant = data.operands.get(1).and_then(|by| constant_int(function, *by));
    let is_block_id =
        matches!(function.defining_op(data.operands[0]), Some(Op::Tile(ir::Op::ProgramId { axis: 0 })));
    is_block_id
        && constant.is_some_and(|constant| match by {
            ElementwiseFn::IntDiv => constant > 0 && constant % i128::from(blocks) == 0,
            ElementwiseFn::Shr => (i128::from(blocks.ilog2())..32).contains(&constant),
            // tidy: wildcard because no other function is a division
            _ => false,
        })
}
