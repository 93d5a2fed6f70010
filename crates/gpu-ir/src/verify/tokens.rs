//! Slots in hand and products under way: each is used up exactly once on every path, by an op that takes it.

use std::collections::BTreeSet;

use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Operation, Value};

use crate::analysis::dataflow::Check;
use crate::analysis::slots::Names;
use crate::{GpuOp, Op, Type};

/// Checks the tokens of a function.
pub fn check(names: &Names<'_>) -> Check {
    Tokens { names }.block(names.function.entry, &BTreeSet::new()).map(|_| ())
}

/// What an op does with a token that it is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It is used up.
    Taken,
    /// It is still there afterwards.
    Lent,
}

struct Tokens<'a> {
    names: &'a Names<'a>,
}

impl Tokens<'_> {
    fn is_token(&self, value: Value) -> bool {
        self.names.function.ty(value).is_linear()
    }

    fn use_of(&self, inst: Inst, place: usize) -> Result<Use, String> {
        let data = &self.names.function.insts[inst];
        let value = data.operands[place];
        let ty = self.names.function.ty(value);
        let used = match (&data.op, ty) {
            (Op::Tile(ir::Op::For { .. } | ir::Op::While {} | ir::Op::Yield {}), _)
            | (Op::Gpu(GpuOp::Publish {}), Type::Empty(_))
            | (Op::Gpu(GpuOp::Release {}), Type::Full(_))
            | (
                Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::Finish { .. } | GpuOp::Settle { .. }),
                Type::Pending { .. },
            ) => Some(Use::Taken),
            (
                Op::Gpu(GpuOp::LocalStore {} | GpuOp::CopyAsync { .. } | GpuOp::TensorFill {}),
                Type::Empty(_),
            ) if place == 0 => Some(Use::Lent),
            (
                Op::Gpu(
                    GpuOp::LocalLoad { .. }
                    | GpuOp::MmaSync { .. }
                    | GpuOp::FmaDot { .. }
                    | GpuOp::Wgmma { .. }
                    | GpuOp::TensorStore {}
                    | GpuOp::TensorReduce { .. },
                ),
                Type::Full(_),
            ) => Some(Use::Lent),
            // tidy: wildcard because no other op takes a token
            _ => None,
        };
        used.ok_or_else(|| {
            let text = self.names.text(value);
            format!("{} does not take {text}, which is {ty}", data.op.name())
        })
    }

    /// `outer` are those of the blocks around. Gives those of them that the block uses up.
    fn block(&self, block: Block, outer: &BTreeSet<Value>) -> Result<BTreeSet<Value>, String> {
        let function = self.names.function;
        let parameters = function.blocks[block].parameters.iter().copied();
        let mut held: BTreeSet<Value> = parameters.filter(|value| self.is_token(*value)).collect();
        let mut open = outer.clone();
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            for (place, value) in data.operands.iter().enumerate() {
                if !self.is_token(*value) {
                    continue;
                }
                let used = self.use_of(*inst, place)?;
                if !held.contains(value) && !open.contains(value) {
                    let text = self.names.text(*value);
                    return Err(format!("{} uses {text}, which was used up before", data.op.name()));
                }
                if used == Use::Taken && !held.remove(value) {
                    open.remove(value);
                }
            }
            self.regions(*inst, &mut held, &mut open)?;
            held.extend(data.results.iter().filter(|value| self.is_token(**value)));
        }
        // The body of a loop has what its condition leaves, under other names.
        let (is_condition, parameters) = (self.is_condition(block), &function.blocks[block].parameters);
        if let Some(value) = held.iter().find(|value| !is_condition || !parameters.contains(value)) {
            return Err(self.left(*value));
        }
        let missing = parameters.iter().find(|value| self.is_token(**value) && !held.contains(value));
        if let Some(value) = missing.filter(|_| is_condition) {
            let text = self.names.text(*value);
            return Err(format!("the condition of while_loop uses up {text}, which the body has to get"));
        }
        Ok(outer.difference(&open).copied().collect())
    }

    /// Whether a block is the first region of a `while_loop`.
    fn is_condition(&self, block: Block) -> bool {
        self.names.owner(block).is_some_and(|owner| {
            let data = &self.names.function.insts[owner];
            matches!(data.op.as_tile(), Some(ir::Op::While {})) && data.regions[0] == block
        })
    }

    fn left(&self, value: Value) -> String {
        let by = match self.names.function.ty(value) {
            Type::Empty(_) => "publish it",
            Type::Full(_) => "release it",
            // tidy: wildcard because there is one more kind of token
            _ => "finish it",
        };
        format!("{} is not used up on every path: {by} on each", self.names.text(value))
    }

    fn regions(&self, inst: Inst, held: &mut BTreeSet<Value>, open: &mut BTreeSet<Value>) -> Check {
        let function = self.names.function;
        let data = &function.insts[inst];
        if data.regions.is_empty() {
            return Ok(());
        }
        let is_roles = matches!(data.op, Op::Gpu(GpuOp::WarpRoles { .. }));
        let around: BTreeSet<Value> =
            if is_roles { BTreeSet::new() } else { held.union(open).copied().collect() };
        let mut used = Vec::new();
        for region in &data.regions {
            used.push(self.block(*region, &around)?);
        }
        let is_branch = matches!(data.op.as_tile(), Some(ir::Op::If {}));
        let all: BTreeSet<Value> = used.iter().flatten().copied().collect();
        for value in &all {
            let text = self.names.text(*value);
            if !is_branch {
                return Err(format!("{} uses up {text} of outside: carry it through", data.op.name()));
            }
            if !used.iter().all(|used| used.contains(value)) {
                return Err(format!("{} is used up in one branch of {} alone", text, data.op.name()));
            }
            if !held.remove(value) {
                open.remove(value);
            }
        }
        self.same_rings(inst)
    }

    /// What is carried or yielded in one place is of one ring.
    fn same_rings(&self, inst: Inst) -> Check {
        let data = &self.names.function.insts[inst];
        let inner = data.regions.iter().flat_map(|region| &self.names.function.blocks[*region].parameters);
        for value in data.results.iter().chain(inner) {
            if !matches!(self.names.function.ty(*value), Type::Empty(_) | Type::Full(_)) {
                continue;
            }
            let mut roots = self.names.sources(*value).into_iter().map(|source| self.names.root(source));
            let first = roots.next();
            if roots.any(|root| Some(root) != first) {
                let text = self.names.text(*value);
                return Err(format!("{text} is a slot of one ring on one path and of another on another"));
            }
        }
        Ok(())
    }
}
