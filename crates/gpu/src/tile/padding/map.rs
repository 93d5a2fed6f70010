//! Pads `map` ops. A function with control flow or side effects runs only on the program's
//! elements. On the padding, its loop might not terminate.

use smallvec::{SmallVec, smallvec};
use tilewright_ir::{
    Block, BlockData, Dtype, ElementwiseFn, Inst, Literal, Op, OpFamily, Rounding, Type, Value,
};

use super::Pad;

impl Pad<'_> {
    pub(super) fn map(&mut self, inst: Inst) {
        let data = self.cursor.function.insts[inst].clone();
        let region = data.regions[0];
        let Some(shape) = self.shapes[data.operands[0]].clone().filter(|_| self.has_control(region)) else {
            return self.cursor.insert(inst);
        };
        let Op::Map { pack } = data.op else { unreachable!("`map` is called only for a map op") };
        let valid = self.valid(&shape);
        self.cursor.function.insts[inst].operands.push(valid);
        let flags: SmallVec<[Value; 4]> = (0..pack)
            .map(|_| self.cursor.function.add_parameter(region, Type::scalar(Dtype::I1), None))
            .collect();
        self.run_where(region, &flags, pack as usize);
        self.cursor.insert(inst);
    }

    /// Returns whether a region has control flow or effects, and must skip padding.
    pub(super) fn has_control(&self, region: Block) -> bool {
        let mut found = false;
        self.cursor.function.walk(region, &mut |inst| {
            let op = &self.cursor.function.insts[inst].op;
            found |= !op.is_pure() && !op.is_terminator()
                || matches!(op.family(), OpFamily::Loop | OpFamily::Branch);
        });
        found
    }

    /// Runs the function of a `map` only if one of `flags` is true. Each element of a pack has a
    /// flag, which is true for the program's elements. An element with another flag of the pack
    /// replaces an element whose flag is false.
    fn run_where(&mut self, region: Block, flags: &[Value], pack: usize) {
        let outer = self.cursor.enter(region);
        let mut insts = self.cursor.take_rest();
        let end = insts.pop().expect("a region yields");
        let parameters = self.cursor.function.blocks[region].parameters.clone();
        for group in parameters[..parameters.len() - flags.len()].chunks(pack).filter(|_| pack > 1) {
            let mut there = group[pack - 1];
            for (&own, &flag) in group.iter().zip(flags).rev().skip(1) {
                there = self.select(flag, own, there);
            }
            for (&own, &flag) in group.iter().zip(flags) {
                let kept = self.select(flag, own, there);
                for &inst in &insts {
                    self.replace_inside(inst, own, kept);
                }
                self.replace_operand(end, own, kept);
            }
        }
        let any = flags[1..].iter().fold(flags[0], |any, flag| self.binary(ElementwiseFn::Or, any, *flag));
        let yielded: SmallVec<[Value; 4]> = self.cursor.function.insts[end].operands.clone();
        let zeros: SmallVec<[Value; 4]> = yielded.iter().map(|&value| self.zero_like(value)).collect();
        let results = self.if_there(any, insts, &yielded, &zeros);
        self.cursor.function.insts[end].operands = results;
        self.cursor.insert(end);
        self.cursor.go_to(outer);
    }

    /// Emits a branch, which runs `insts` and yields `yielded`, or yields `others`. Returns its
    /// results.
    pub(super) fn if_there(
        &mut self,
        condition: Value,
        insts: Vec<Inst>,
        yielded: &[Value],
        others: &[Value],
    ) -> SmallVec<[Value; 4]> {
        let types: SmallVec<[Type; 4]> =
            yielded.iter().map(|value| self.cursor.function.ty(*value).clone()).collect();
        let mut branch = |insts: Vec<Inst>, values: &[Value]| {
            let block = self.cursor.function.blocks.push(BlockData::default());
            let outer = self.cursor.enter(block);
            self.cursor.insert_all(insts);
            self.cursor.emit(Op::Yield {}, values, []);
            self.cursor.go_to(outer);
            block
        };
        let regions = smallvec![branch(insts, yielded), branch(Vec::new(), others)];
        let inst = self.cursor.emit_with_regions(Op::If {}, &[condition], regions, types);
        self.cursor.function.insts[inst].results.iter().copied().collect()
    }

    fn replace_inside(&mut self, inst: Inst, old: Value, new: Value) {
        let mut all = vec![inst];
        for region in &self.cursor.function.insts[inst].regions {
            self.cursor.function.walk(*region, &mut |inner| all.push(inner));
        }
        for inst in all {
            self.replace_operand(inst, old, new);
        }
    }

    fn replace_operand(&mut self, inst: Inst, old: Value, new: Value) {
        for operand in &mut self.cursor.function.insts[inst].operands {
            if *operand == old {
                *operand = new;
            }
        }
    }

    fn zero_like(&mut self, value: Value) -> Value {
        let ty = self.cursor.function.ty(value).clone();
        let number = ty.with_dtype(ty.dtype().unwrap_or(Dtype::I64));
        let dtype = number.dtype().expect("the type has been given a dtype");
        let literal =
            if dtype.is_float() { Literal::float(dtype, 0.0) } else { Some(Literal::int(dtype, 0)) };
        let literal = literal.expect("every type has a zero");
        let zero = self.cursor.value(Op::Constant { value: literal }, &[], number);
        if ty.dtype().is_some() {
            return zero;
        }
        let cast = Op::Cast { element: ty.element, rounding: Rounding::NearestEven };
        self.cursor.value(cast, &[zero], ty)
    }
}
