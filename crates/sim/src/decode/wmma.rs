//! Decodes `wmma`: loads and stores of fragments, and matrix multiplication.

use tilewright_ptx::isa::{
    self, Address, BitOperation, MatrixLayout, MatrixOperand, MatrixShape, ScalarType, Source, StateSpace,
};

use super::tensor::{element, integer_product, register_type, registers};
use super::{Decoded, Decoder};
use crate::fault::FaultKind;
use crate::registers::Slot;
use crate::tensor::{MatrixRole, WmmaFragment, WmmaLoad, WmmaMemory, WmmaMultiply, WmmaStore};

fn fragment(operand: MatrixRole, shape: MatrixShape, ty: ScalarType) -> Decoded<WmmaFragment> {
    let extents = (shape.m as usize, shape.n as usize, shape.k as usize);
    let found = element(ty).and_then(|element| WmmaFragment::new(operand, extents, element));
    found.ok_or_else(|| FaultKind::Illegal(format!("`wmma` has no fragment for {shape} and {ty}")))
}

impl Decoder<'_> {
    fn wmma_memory(
        &mut self,
        (address, space, stride): (&Address, Option<StateSpace>, Option<Source>),
        layout: MatrixLayout,
        fragment: WmmaFragment,
    ) -> Decoded<WmmaMemory> {
        Ok(WmmaMemory {
            pointer: self.address(address, space)?,
            stride: stride.map(|stride| self.source(stride, ScalarType::U32)).transpose()?,
            by_rows: layout == MatrixLayout::Row,
            fragment,
        })
    }

    pub(super) fn decode_wmma_load(&mut self, i: &isa::WmmaLoad) -> Decoded {
        let operand = match i.operand {
            MatrixOperand::A => MatrixRole::A,
            MatrixOperand::B => MatrixRole::B,
            MatrixOperand::C => MatrixRole::Accumulator,
        };
        let fragment = fragment(operand, i.shape, i.ty)?;
        let memory = self.wmma_memory((&i.address, i.space, i.stride), i.layout, fragment)?;
        let d = self.results(&i.d.0);
        registers(&d, fragment.registers(), "the fragment")?;
        Ok(self.tensor_step(WmmaLoad { memory, d }))
    }

    pub(super) fn decode_wmma_store(&mut self, i: &isa::WmmaStore) -> Decoded {
        let fragment = fragment(MatrixRole::Accumulator, i.shape, i.ty)?;
        let memory = self.wmma_memory((&i.address, i.space, i.stride), i.layout, fragment)?;
        let a = self.fragment(&i.a.0, register_type(i.ty))?;
        registers(&a, fragment.registers(), "the fragment")?;
        Ok(self.tensor_step(WmmaStore { memory, a }))
    }

    pub(super) fn decode_wmma_half(&mut self, i: &isa::WmmaHalf) -> Decoded {
        let types = [ScalarType::F16, ScalarType::F16, i.c_ty, i.d_ty];
        let operands = [
            self.sources_of(&i.a, types[0])?,
            self.sources_of(&i.b, types[1])?,
            self.sources_of(&i.c, types[2])?,
            self.results(&i.d.0),
        ];
        self.decode_wmma_multiply(i.shape, types, operands, (None, false))
    }

    pub(super) fn decode_wmma(&mut self, i: &isa::Wmma) -> Decoded {
        if !matches!(i.rounding, None | Some(isa::Rounding::Rn)) {
            return Err(FaultKind::Unsupported("`wmma.mma` with another rounding than `.rn`".into()));
        }
        let types = [i.a_ty, i.b_ty, i.c_ty, i.d_ty];
        let operands = [
            self.sources_of(&i.a, types[0])?,
            self.sources_of(&i.b, types[1])?,
            self.sources_of(&i.c, types[2])?,
            self.results(&i.d.0),
        ];
        self.decode_wmma_multiply(i.shape, types, operands, (i.operation, i.saturate))
    }

    fn sources_of(&mut self, sources: &isa::Sources, ty: ScalarType) -> Decoded<Vec<Slot>> {
        self.fragment(&sources.0, register_type(ty))
    }

    fn decode_wmma_multiply(
        &mut self,
        shape: MatrixShape,
        types: [ScalarType; 4],
        operands: [Vec<Slot>; 4],
        (operation, saturates): (Option<BitOperation>, bool),
    ) -> Decoded {
        let roles = [MatrixRole::A, MatrixRole::B, MatrixRole::Accumulator, MatrixRole::Accumulator];
        let mut fragments = Vec::new();
        for ((role, ty), (slots, name)) in
            roles.into_iter().zip(types).zip(operands.iter().zip(["A", "B", "C", "D"]))
        {
            let fragment = fragment(role, shape, ty)?;
            registers(slots, fragment.registers(), name)?;
            fragments.push(fragment);
        }
        let fragments = fragments.try_into().expect("there are four roles");
        let product = integer_product(operation, saturates);
        Ok(self.tensor_step(WmmaMultiply { fragments, registers: operands, product }))
    }
}
