//! Marks accesses that tensor copies may execute. A `tensor_box` op has the pointers of the access,
//! a tensor map, and the coordinates of the box. The tensor maps that the launcher makes become
//! parameters of the kernel.

use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::analysis::scalar_evolution::{Form, Term};
use tilewright_ir::{Block, Cursor, Dtype, ElementwiseFn, Inst, Rounding, Value, constant_int};

use super::Rewrite;
use tilewright_layout::Layout;

use crate::assign::boxes::{MapId, TensorBox};
use tilewright_gpu_ir::layout_rules::gathered_row_indices;
use tilewright_gpu_ir::{Buffer, Deferred, Gpu, GpuOp, Padding, TENSOR_MAP_BYTES, Type};

/// The alignment of a tensor map in bytes.
const MAP_BYTES: u32 = 64;

/// Declares a parameter for each tensor map of the launcher, after the kernel's parameters.
pub(super) fn declare(rewrite: &mut Rewrite<'_, '_>) {
    let maps = rewrite.context.boxes.maps.clone();
    let entry = rewrite.new.entry;
    for index in 0..maps.len() {
        let name = format!("tensor_map{index}");
        let value = rewrite.new.add_parameter(
            entry,
            Type::scalar(ir::Type::pointer(Dtype::I8)),
            Some(name.as_str().into()),
        );
        rewrite.new.parameters.push(ir::Parameter { name: name.as_str().into(), divisibility: MAP_BYTES });
        rewrite.tensor_maps.push(value);
    }
    rewrite.header.tensor_maps = maps;
    rewrite.made_maps = vec![None; rewrite.context.boxes.device_maps.len()];
}

/// Returns the address of a tensor map that the kernel makes. At the first use, emits the ops that
/// make the map.
///
/// They are in the block of the last input, before the loops of this block.
pub(super) fn device_map(rewrite: &mut Rewrite<'_, '_>, inst: Inst, index: usize) -> Value {
    if let Some(address) = rewrite.made_maps[index] {
        return address;
    }
    let map = &rewrite.context.boxes.device_maps[index];
    let parts: Vec<Value> = map.inputs.iter().map(|part| rewrite.get(*part, None)).collect();
    let last = rewrite.get(map.last, None);
    let block = rewrite.homes[last].expect("every value is in a block");
    rewrite.header.made_maps.push(map.plan.clone());
    let map = rewrite.header.made_maps.len() as u32 - 1;
    let layout = rewrite.header.layouts.add(Layout::strided(&[TENSOR_MAP_BYTES], &[0]));
    let shape = [TENSOR_MAP_BYTES].into_iter().collect();
    let buffer = Buffer {
        slots: 1,
        element: ir::Element::Value(Dtype::I8),
        shape,
        layout,
        padding: Padding::default(),
    };
    let mut writer = CoordinateWriter { rewrite, inst, block };
    let mut cursor = writer.cursor();
    let template = cursor.value(GpuOp::Alloc { offset: Deferred(None) }, &[], Type::Buffer(buffer));
    let operands: Vec<Value> = [template].into_iter().chain(parts).collect();
    let pointer = Type::scalar(ir::Type::pointer(Dtype::I8));
    let address = cursor.value(GpuOp::MakeTensorMap { map }, &operands, pointer);
    cursor.emit(GpuOp::Dealloc {}, &[template], []);
    rewrite.made_maps[index] = Some(address);
    address
}

pub(super) fn mark(
    rewrite: &mut Rewrite<'_, '_>,
    inst: Inst,
    found: &TensorBox,
    pointers: Value,
    block: Block,
) -> Value {
    let map = match found.map {
        MapId::Launch(index) => rewrite.tensor_maps[index],
        MapId::Device(index) => device_map(rewrite, inst, index),
    };
    let mut writer = CoordinateWriter { rewrite, inst, block };
    let mut operands: SmallVec<[Value; 4]> = smallvec![pointers, map];
    for coordinate in &found.coordinates {
        let coordinate = match coordinate.as_variable() {
            Some(Term::Element(_, tile)) => writer.gathered_row_indices(tile),
            _ => writer.polynomial(coordinate),
        };
        operands.push(coordinate);
    }
    let ty = writer.rewrite.new.ty(pointers).clone();
    writer.cursor().value(GpuOp::TensorBox {}, &operands, ty)
}

/// Writes the ops that compute the coordinates of a box.
struct CoordinateWriter<'w, 'a, 'f> {
    rewrite: &'w mut Rewrite<'a, 'f>,
    inst: Inst,
    block: Block,
}

impl CoordinateWriter<'_, '_, '_> {
    /// Returns a cursor at the end of the unfinished block.
    fn cursor(&mut self) -> Cursor<'_, Gpu> {
        let mut cursor = Cursor::at_end(&mut self.rewrite.new, self.block);
        cursor.location = self.rewrite.context.function.insts[self.inst].location;
        cursor
    }

    fn constant(&mut self, constant: i128) -> Value {
        self.cursor().int(Dtype::I32, constant)
    }

    fn binary(&mut self, function: ElementwiseFn, a: Value, b: Value) -> Value {
        self.cursor().scalar(function, &[a, b], Dtype::I32)
    }

    /// Computes a coordinate in 32 bits.
    fn polynomial(&mut self, polynomial: &Form) -> Value {
        let mut sum = None;
        for (variables, mut factor) in polynomial.terms() {
            let mut term = None;
            for atom in variables {
                let value = self.variable(*atom, &mut factor);
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
            sum = Some(sum.map_or(term, |sum| self.binary(ElementwiseFn::Add, sum, term)));
        }
        sum.unwrap_or_else(|| self.constant(0))
    }

    /// Computes a variable of a coordinate. Divides `factor` by a constant that the result already
    /// includes.
    fn variable(&mut self, atom: Term, factor: &mut i128) -> Value {
        let function = self.rewrite.context.function;
        match atom {
            Term::Value(value) => self.scalar(value),
            Term::Axis(_) | Term::Element(..) => {
                unreachable!("the coordinates of a box do not depend on the element")
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
                // The difference is the number of iterations times the step.
                let constant = constant_int(function, step);
                if let Some(step) = constant.filter(|step| *step != 0 && *factor % step == 0) {
                    *factor /= step;
                } else {
                    let step = self.scalar(step);
                    count = self.binary(ElementwiseFn::IntDiv, count, step);
                }
                count
            }
        }
    }

    /// Returns the tile of gathered row indices in 32 bits.
    ///
    /// Clamps other indices, because no tensor has such rows.
    fn gathered_row_indices(&mut self, old: Value) -> Value {
        let tile = self.rewrite.context.function.ty(old).clone();
        let dtype = tile.dtype().expect("row indices are integers");
        let layout = gathered_row_indices(tile.shape[0], self.rewrite.context.num_warps);
        let layout = self.rewrite.costs.add(layout);
        let mut indices = self.rewrite.get(old, Some(layout));
        let id = self.rewrite.new.ty(indices).layout();
        let like = |dtype| Type::registers(tile.with_dtype(dtype), id);
        let (low, high) = dtype.int_range().expect("row indices are integers");
        for (bound, limit, is_needed) in [
            (ElementwiseFn::Max, -1, low < i128::from(i32::MIN)),
            (ElementwiseFn::Min, i128::from(i32::MAX), high > i128::from(i32::MAX)),
        ] {
            if is_needed {
                let mut cursor = self.cursor();
                let limit = cursor.int(dtype, limit);
                let splat = ir::Op::Splat { shape: tile.shape.clone() };
                let limit = cursor.value(splat, &[limit], like(dtype));
                indices = cursor.elementwise(bound, &[indices, limit], like(dtype));
            }
        }
        if dtype != Dtype::I32 {
            let op = ir::Op::Cast { element: ir::Element::Value(Dtype::I32), rounding: Rounding::default() };
            indices = self.cursor().value(op, &[indices], like(Dtype::I32));
        }
        indices
    }

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
