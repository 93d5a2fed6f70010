//! Loads that tensor copies may do: the tensor maps become parameters, and the pointers of a load say where its box begins.

use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::analysis::scalar_evolution::{Form, Term};
use tilewright_ir::{Block, Cursor, Dtype, ElementwiseFn, Inst, Rounding, Value, constant_int};

use super::Rewrite;
use tilewright_layout::Layout;

use crate::assign::boxes::{MapId, TensorBox};
use tilewright_gpu_ir::layout_rules::gathered_row_indices;
use tilewright_gpu_ir::{Buffer, Deferred, Gpu, GpuOp, TENSOR_MAP_BYTES, Type};

/// The alignment of a tensor map.
const MAP_BYTES: u32 = 64;

/// Declares a parameter for each tensor map, behind those of the kernel.
pub(super) fn declare(rewrite: &mut Rewrite<'_, '_>) {
    let maps = rewrite.decided.boxes.maps.clone();
    let entry = rewrite.new.entry;
    for number in 0..maps.len() {
        let name = format!("tensor_map{number}");
        let value = rewrite.new.add_parameter(
            entry,
            Type::scalar(ir::Type::pointer(Dtype::I8)),
            Some(name.as_str().into()),
        );
        rewrite.new.parameters.push(ir::Parameter { name: name.as_str().into(), divisibility: MAP_BYTES });
        rewrite.tensor_maps.push(value);
    }
    rewrite.header.tensor_maps = maps;
    rewrite.made_maps = vec![None; rewrite.decided.boxes.device_maps.len()];
}

/// The address of a tensor map that the kernel makes: it is made in the block where all is known that it is made of, before the
/// loops of that block.
fn made(rewrite: &mut Rewrite<'_, '_>, inst: Inst, number: usize) -> Value {
    if let Some(known) = rewrite.made_maps[number] {
        return known;
    }
    let map = &rewrite.decided.boxes.device_maps[number];
    let parts: Vec<Value> = map.inputs.iter().map(|part| rewrite.get(*part, None)).collect();
    let last = rewrite.get(map.last, None);
    let block = rewrite.homes[last].expect("every value is in a block");
    rewrite.header.made_maps.push(map.plan.clone());
    let map = rewrite.header.made_maps.len() as u32 - 1;
    let layout = rewrite.header.layouts.add(Layout::strided(&[TENSOR_MAP_BYTES], &[0]));
    let shape = [TENSOR_MAP_BYTES].into_iter().collect();
    let buffer = Buffer { slots: 1, element: ir::Element::Value(Dtype::I8), shape, layout };
    let mut writer = Writer { rewrite, inst, block };
    let mut cursor = writer.cursor();
    let template = cursor.value(GpuOp::Alloc { offset: Deferred(None) }, &[], Type::Buffer(buffer));
    let operands: Vec<Value> = [template].into_iter().chain(parts).collect();
    let address = Type::scalar(ir::Type::pointer(Dtype::I8));
    let made = cursor.value(GpuOp::MakeTensorMap { map }, &operands, address);
    cursor.emit(GpuOp::Dealloc {}, &[template], []);
    rewrite.made_maps[number] = Some(made);
    made
}

/// The pointers of a load, as the box that they are.
pub(super) fn mark(
    rewrite: &mut Rewrite<'_, '_>,
    inst: Inst,
    found: &TensorBox,
    pointers: Value,
    block: Block,
) -> Value {
    let map = match found.map {
        MapId::Launch(number) => rewrite.tensor_maps[number],
        MapId::Device(number) => made(rewrite, inst, number),
    };
    let mut writer = Writer { rewrite, inst, block };
    let mut operands: SmallVec<[Value; 4]> = smallvec![pointers, map];
    for coordinate in &found.coordinates {
        let coordinate = match coordinate.as_variable() {
            Some(Term::Element(_, tile)) => writer.gathered_row_indices(tile),
            _ => writer.sum(coordinate),
        };
        operands.push(coordinate);
    }
    let ty = writer.rewrite.new.ty(pointers).clone();
    writer.cursor().value(GpuOp::TensorBox {}, &operands, ty)
}

struct Writer<'w, 'a, 'f> {
    rewrite: &'w mut Rewrite<'a, 'f>,
    inst: Inst,
    block: Block,
}

impl Writer<'_, '_, '_> {
    /// At the end of the block, which is still being written.
    fn cursor(&mut self) -> Cursor<'_, Gpu> {
        let mut cursor = Cursor::at_end(&mut self.rewrite.new, self.block);
        cursor.location = self.rewrite.decided.function.insts[self.inst].location;
        cursor
    }

    fn constant(&mut self, number: i128) -> Value {
        self.cursor().int(Dtype::I32, number)
    }

    fn binary(&mut self, function: ElementwiseFn, a: Value, b: Value) -> Value {
        self.cursor().scalar(function, &[a, b], Dtype::I32)
    }

    /// A coordinate, in 32 bits.
    fn sum(&mut self, sum: &Form) -> Value {
        let mut so_far = None;
        for (product, mut factor) in sum.terms() {
            let mut term = None;
            for atom in product {
                let value = self.atom(*atom, &mut factor);
                term = Some(term.map_or(value, |term| self.binary(ElementwiseFn::Mul, term, value)));
            }
            let term = match term {
                None => self.constant(factor),
                Some(term) if factor == 1 => term,
                Some(term) => {
                    let factor = self.constant(factor);
                    self.binary(ElementwiseFn::Mul, term, factor)
                }
            };
            so_far = Some(so_far.map_or(term, |so_far| self.binary(ElementwiseFn::Add, so_far, term)));
        }
        so_far.unwrap_or_else(|| self.constant(0))
    }

    /// What is multiplied by a factor, which may become smaller by that.
    fn atom(&mut self, atom: Term, factor: &mut i128) -> Value {
        let function = self.rewrite.decided.function;
        match atom {
            Term::Value(value) => self.scalar(value),
            Term::Axis(_) | Term::Element(..) => {
                unreachable!("where a box begins is one place for all of its elements")
            }
            Term::Iteration(inst) => {
                let data = &function.insts[inst];
                let counter = function.blocks[data.regions[0]].parameters[0];
                let (lower, step) = (data.operands[0], data.operands[2]);
                let mut count = self.scalar(counter);
                if constant_int(function, lower) != Some(0) {
                    let lower = self.scalar(lower);
                    count = self.binary(ElementwiseFn::Sub, count, lower);
                }
                // The counter moves by whole steps.
                let known = constant_int(function, step);
                if let Some(by) = known.filter(|by| *by != 0 && *factor % by == 0) {
                    *factor /= by;
                } else {
                    let step = self.scalar(step);
                    count = self.binary(ElementwiseFn::IntDiv, count, step);
                }
                count
            }
        }
    }

    /// A tile of the numbers of rows, in 32 bits, where lanes have those of their copies. No tensor has a row of a number that does
    /// not fit.
    fn gathered_row_indices(&mut self, old: Value) -> Value {
        let tile = self.rewrite.decided.function.ty(old).clone();
        let dtype = tile.dtype().expect("row numbers are integers");
        let layout = gathered_row_indices(tile.shape[0], self.rewrite.decided.num_warps);
        let layout = self.rewrite.costs.add(layout);
        let mut numbers = self.rewrite.get(old, Some(layout));
        let id = self.rewrite.new.ty(numbers).layout();
        let like = |dtype| Type::registers(tile.with_dtype(dtype), id);
        let (low, high) = dtype.int_range().expect("row numbers are integers");
        for (bound, limit, is_needed) in [
            (ElementwiseFn::Max, -1, low < i128::from(i32::MIN)),
            (ElementwiseFn::Min, i128::from(i32::MAX), high > i128::from(i32::MAX)),
        ] {
            if is_needed {
                let mut cursor = self.cursor();
                let limit = cursor.int(dtype, limit);
                let splat = ir::Op::Splat { shape: tile.shape.clone() };
                let limit = cursor.value(splat, &[limit], like(dtype));
                numbers = cursor.elementwise(bound, &[numbers, limit], like(dtype));
            }
        }
        if dtype != Dtype::I32 {
            let op = ir::Op::Cast { element: ir::Element::Value(Dtype::I32), rounding: Rounding::default() };
            numbers = self.cursor().value(op, &[numbers], like(Dtype::I32));
        }
        numbers
    }

    /// A scalar of the kernel, in 32 bits.
    fn scalar(&mut self, value: Value) -> Value {
        let new = self.rewrite.get(value, None);
        if *self.rewrite.new.ty(new) == int32() {
            return new;
        }
        let op = ir::Op::Cast { element: ir::Element::Value(Dtype::I32), rounding: Rounding::default() };
        self.cursor().value(op, &[new], int32())
    }
}

fn int32() -> Type {
    Type::scalar(ir::Type::scalar(Dtype::I32))
}
