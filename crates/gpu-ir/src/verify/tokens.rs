//! Checks that every path consumes each slot and dot in flight exactly once. These are tokens. The
//! consuming op must accept the token's type.

use std::collections::BTreeSet;

use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Operation, Value};

use crate::analysis::dataflow::Check;
use crate::analysis::slots::SlotAnalysis;
use crate::{GpuOp, Op, Type};

/// Checks the tokens of a function.
pub fn check(analysis: &SlotAnalysis<'_>) -> Check {
    Tokens { analysis }.block(analysis.function.entry, &BTreeSet::new()).map(|_| ())
}

/// The effect of an op on a token operand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenUse {
    /// The op consumes the token.
    Consumed,
    /// The token remains.
    Borrowed,
}

struct Tokens<'a> {
    analysis: &'a SlotAnalysis<'a>,
}

impl Tokens<'_> {
    fn is_token(&self, value: Value) -> bool {
        self.analysis.function.ty(value).is_linear()
    }

    fn use_of(&self, inst: Inst, index: usize) -> Result<TokenUse, String> {
        let data = &self.analysis.function.insts[inst];
        let value = data.operands[index];
        let ty = self.analysis.function.ty(value);
        let used = match (&data.op, ty) {
            (Op::Tile(ir::Op::For { .. } | ir::Op::While {} | ir::Op::Yield {}), _)
            | (Op::Gpu(GpuOp::Publish {}), Type::Empty(_))
            | (Op::Gpu(GpuOp::Release {}), Type::Full(_))
            | (
                Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::WgmmaWait { .. } | GpuOp::WgmmaWaitEarlier { .. }),
                Type::Pending { .. },
            ) => Some(TokenUse::Consumed),
            (
                Op::Gpu(GpuOp::LocalStore {} | GpuOp::CopyAsync { .. } | GpuOp::TensorFill {}),
                Type::Empty(_),
            ) if index == 0 => Some(TokenUse::Borrowed),
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
            ) => Some(TokenUse::Borrowed),
            // tidy: wildcard because no other op takes a token
            _ => None,
        };
        used.ok_or_else(|| {
            let text = self.analysis.text(value);
            format!("{} does not take {text}, which is {ty}", data.op.name())
        })
    }

    /// Checks a block, and returns the tokens of `outer` that it consumes.
    fn block(&self, block: Block, outer: &BTreeSet<Value>) -> Result<BTreeSet<Value>, String> {
        let function = self.analysis.function;
        let parameters = function.blocks[block].parameters.iter().copied();
        let mut held: BTreeSet<Value> = parameters.filter(|value| self.is_token(*value)).collect();
        let mut open = outer.clone();
        for inst in &function.blocks[block].insts {
            self.step(*inst, &mut held, &mut open).inspect_err(|_| self.analysis.blame(*inst))?;
        }
        // The condition of a `while_loop` passes tokens on to the body.
        let (is_condition, parameters) = (self.is_condition(block), &function.blocks[block].parameters);
        if let Some(value) = held.iter().find(|value| !is_condition || !parameters.contains(value)) {
            return Err(self.unconsumed(*value));
        }
        let missing = parameters.iter().find(|value| self.is_token(**value) && !held.contains(value));
        if let Some(value) = missing.filter(|_| is_condition) {
            let text = self.analysis.text(*value);
            return Err(format!("the condition of while_loop consumes {text}, which the body needs"));
        }
        Ok(outer.difference(&open).copied().collect())
    }

    fn step(&self, inst: Inst, held: &mut BTreeSet<Value>, open: &mut BTreeSet<Value>) -> Check {
        let data = &self.analysis.function.insts[inst];
        for (index, value) in data.operands.iter().enumerate() {
            if !self.is_token(*value) {
                continue;
            }
            let used = self.use_of(inst, index)?;
            if !held.contains(value) && !open.contains(value) {
                let text = self.analysis.text(*value);
                return Err(format!("{} uses {text}, which was consumed before", data.op.name()));
            }
            if used == TokenUse::Consumed && !held.remove(value) {
                open.remove(value);
            }
        }
        self.regions(inst, held, open)?;
        held.extend(data.results.iter().filter(|value| self.is_token(**value)));
        Ok(())
    }

    /// Returns whether a block is the first region of a `while_loop`.
    fn is_condition(&self, block: Block) -> bool {
        self.analysis.owner(block).is_some_and(|owner| {
            let data = &self.analysis.function.insts[owner];
            matches!(data.op.as_tile(), Some(ir::Op::While {})) && data.regions[0] == block
        })
    }

    fn unconsumed(&self, value: Value) -> String {
        if let Some(inst) = self.analysis.function.defining_inst(value) {
            self.analysis.blame(inst);
        }
        let by = match self.analysis.function.ty(value) {
            Type::Empty(_) => "publish it",
            Type::Full(_) => "release it",
            // tidy: wildcard because the only other token is a dot in flight
            _ => "wait for it",
        };
        format!("{} is not consumed on every path: {by} on each", self.analysis.text(value))
    }

    fn regions(&self, inst: Inst, held: &mut BTreeSet<Value>, open: &mut BTreeSet<Value>) -> Check {
        let function = self.analysis.function;
        let data = &function.insts[inst];
        if data.regions.is_empty() {
            return Ok(());
        }
        let is_specialization = matches!(data.op, Op::Gpu(GpuOp::WarpSpecialize { .. }));
        let around: BTreeSet<Value> =
            if is_specialization { BTreeSet::new() } else { held.union(open).copied().collect() };
        let mut used = Vec::new();
        for region in &data.regions {
            used.push(self.block(*region, &around)?);
        }
        let is_branch = matches!(data.op.as_tile(), Some(ir::Op::If {}));
        let all: BTreeSet<Value> = used.iter().flatten().copied().collect();
        for value in &all {
            let text = self.analysis.text(*value);
            if !is_branch {
                return Err(format!(
                    "{} consumes {text} of an outer block: carry it through",
                    data.op.name()
                ));
            }
            if !used.iter().all(|used| used.contains(value)) {
                return Err(format!("{} is consumed in only one branch of {}", text, data.op.name()));
            }
            if !held.remove(value) {
                open.remove(value);
            }
        }
        self.same_rings(inst)
    }

    /// Checks that a carried or yielded slot belongs to the same ring on all paths.
    fn same_rings(&self, inst: Inst) -> Check {
        let data = &self.analysis.function.insts[inst];
        let inner = data.regions.iter().flat_map(|region| &self.analysis.function.blocks[*region].parameters);
        for value in data.results.iter().chain(inner) {
            if !matches!(self.analysis.function.ty(*value), Type::Empty(_) | Type::Full(_)) {
                continue;
            }
            let mut roots =
                self.analysis.sources(*value).into_iter().map(|source| self.analysis.root(source));
            let first = roots.next();
            if roots.any(|root| Some(root) != first) {
                let text = self.analysis.text(*value);
                return Err(format!("{text} is a slot of one ring on one path and of another on another"));
            }
        }
        Ok(())
    }
}
