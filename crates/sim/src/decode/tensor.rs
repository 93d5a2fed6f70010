//! Decodes `mma`, `wgmma` and the loads and stores of their fragments.

use rustc_hash::FxHashSet;
use tilewright_ptx::isa::{
    Access, BitOperation, Destination, Instruction, Ldmatrix, LdmatrixShape, MatrixLayout, MatrixShape, Mma,
    Module, Movmatrix, ScalarType, Source, Statement, StatementKind, Stmatrix, Wgmma, WgmmaWaitGroup,
};

use super::{Action, Class, Decoded, Decoder, Gather, Step};
use crate::fault::FaultKind;
use crate::registers::Slot;
use crate::tensor::{
    Element, IntegerProduct, LeftOperand, LoadMatrices, Major, MatrixRole, MmaStep, QuadMma, QuadMmaStep,
    StoreMatrices, TransposeMatrix, WgmmaCommitStep, WgmmaFenceStep, WgmmaRegisterAccess, WgmmaStep,
    WgmmaWaitStep,
};

impl Decoder<'_> {
    /// Returns the step of a warp-synchronous tensor core instruction.
    pub(super) fn tensor_step(&mut self, step: impl crate::context::Execute + 'static) -> Action {
        (self.class, self.gather) = (Class::Tensor, Gather::Warp);
        Action::Execute(Box::new(step))
    }

    pub(super) fn decode_mma(&mut self, instruction: &Mma) -> Decoded {
        let unsupported = || unsupported(&instruction.clone().into());
        let MatrixShape { m, n, k } = instruction.shape;
        if (m, n, k, instruction.a_ty, instruction.b_ty) == (8, 8, 4, ScalarType::F16, ScalarType::F16) {
            return self.decode_quad_mma(instruction);
        }
        if (instruction.a_layout, instruction.b_layout) != (MatrixLayout::Row, MatrixLayout::Column) {
            return unsupported();
        }
        let types = [instruction.a_ty, instruction.b_ty, instruction.c_ty, instruction.d_ty];
        let [Some(a), Some(b), Some(c), Some(d)] = types.map(element) else { return unsupported() };
        let mma = crate::tensor::Mma {
            m: instruction.shape.m as usize,
            n: instruction.shape.n as usize,
            k: instruction.shape.k as usize,
            a,
            b,
            c,
            d,
            product: integer_product(instruction.operation, instruction.saturate),
        };
        if !mma.exists() {
            return unsupported();
        }
        let step = MmaStep {
            mma,
            a: self.fragment(&instruction.a.0, register_type(instruction.a_ty))?,
            b: self.fragment(&instruction.b.0, register_type(instruction.b_ty))?,
            c: self.fragment(&instruction.c.0, register_type(instruction.c_ty))?,
            d: self.results(&instruction.d.0),
        };
        let accumulator = mma.fragment(MatrixRole::Accumulator);
        let result = crate::tensor::Fragment { element: mma.d, ..accumulator };
        registers(&step.a, mma.fragment(MatrixRole::A).registers(), "A")?;
        registers(&step.b, mma.fragment(MatrixRole::B).registers(), "B")?;
        registers(&step.c, accumulator.registers(), "C")?;
        registers(&step.d, result.registers(), "D")?;
        Ok(self.tensor_step(step))
    }

    /// Decodes `mma.m8n8k4` of f16.
    fn decode_quad_mma(&mut self, instruction: &Mma) -> Decoded {
        let accumulator = |ty: ScalarType| element(ty).filter(|ty| matches!(ty, Element::F16 | Element::F32));
        let (Some(c), Some(d)) = (accumulator(instruction.c_ty), accumulator(instruction.d_ty)) else {
            return unsupported(&instruction.clone().into());
        };
        if (c, d) == (Element::F32, Element::F16) {
            return Err(FaultKind::Illegal("mma.m8n8k4 cannot have C in f32 and D in f16".into()));
        }
        let step = QuadMmaStep {
            mma: QuadMma {
                a_by_rows: instruction.a_layout == MatrixLayout::Row,
                b_by_rows: instruction.b_layout == MatrixLayout::Row,
                c,
                d,
            },
            a: self.fragment(&instruction.a.0, ScalarType::B32)?,
            b: self.fragment(&instruction.b.0, ScalarType::B32)?,
            c: self.fragment(&instruction.c.0, register_type(instruction.c_ty))?,
            d: self.results(&instruction.d.0),
        };
        registers(&step.a, 2, "A")?;
        registers(&step.b, 2, "B")?;
        registers(&step.c, QuadMma::accumulator_registers(c), "C")?;
        registers(&step.d, QuadMma::accumulator_registers(d), "D")?;
        Ok(self.tensor_step(step))
    }

    pub(super) fn decode_wgmma(&mut self, instruction: &Wgmma) -> Decoded {
        let Wgmma { shape, d_ty, a_ty, b_ty, .. } = instruction;
        let unsupported = || unsupported(&instruction.clone().into());
        let (Some(a), Some(b), Some(d)) = (element(*a_ty), element(*b_ty), element(*d_ty)) else {
            return unsupported();
        };
        let is_fragment = instruction.a.0.len() > 1;
        // A fragment is never transposed, so the only immediate is that of B, which the parser
        // stores in `transpose_a`.
        let (transpose_a, transpose_b) = if is_fragment {
            (None, instruction.transpose_a)
        } else {
            (instruction.transpose_a, instruction.transpose_b)
        };
        let wgmma = crate::tensor::Wgmma {
            n: shape.n as usize,
            a,
            b,
            d,
            negates_a: flag(instruction.scale_a, -1)?,
            negates_b: flag(instruction.scale_b, -1)?,
            accumulates: true,
            product: integer_product(instruction.operation, instruction.saturate),
        };
        if !wgmma.exists() || shape.m != 64 || shape.k as usize != wgmma.k() {
            return unsupported();
        }
        let major = |transposed: bool| if transposed { Major::Mn } else { Major::K };
        let (a_major, b_major) = (major(flag(transpose_a, 1)?), major(flag(transpose_b, 1)?));
        if [a_major, b_major].contains(&Major::Mn) && a.bits() != 16 {
            let text = "wgmma.mma_async transposes operands of 16 bits only";
            return Err(FaultKind::Illegal(text.into()));
        }
        let left = if is_fragment {
            let slots = self.fragment(&instruction.a.0, register_type(*a_ty))?;
            registers(&slots, wgmma.a_fragment().registers(), "A")?;
            LeftOperand::Fragment(slots)
        } else {
            LeftOperand::Memory(self.source(instruction.a.0[0], ScalarType::B64)?, a_major)
        };
        let d: Vec<Slot> = instruction.d.0.iter().map(|&register| self.register(register)).collect();
        registers(&d, wgmma.d_fragment().registers(), "D")?;
        let step = WgmmaStep {
            wgmma,
            a: left,
            b: self.source(instruction.b, ScalarType::B64)?,
            b_major,
            d,
            scale_d: self.source(instruction.scale_d, ScalarType::Pred)?,
        };
        Ok(self.tensor_step(step))
    }

    pub(super) fn decode_wgmma_fence(&mut self) -> Action {
        self.tensor_step(WgmmaFenceStep)
    }

    pub(super) fn decode_wgmma_commit_group(&mut self) -> Action {
        self.tensor_step(WgmmaCommitStep)
    }

    pub(super) fn decode_wgmma_wait_group(&mut self, instruction: &WgmmaWaitGroup) -> Decoded {
        let keep = immediate(instruction.n)? as usize;
        Ok(self.tensor_step(WgmmaWaitStep { keep }))
    }

    pub(super) fn decode_ldmatrix(&mut self, instruction: &Ldmatrix) -> Decoded {
        if instruction.shape != LdmatrixShape::M8n8 || instruction.format.is_some() {
            return Err(FaultKind::Unsupported(format!("`ldmatrix{}`", instruction.shape)));
        }
        let step = LoadMatrices {
            pointer: self.address(&instruction.address, instruction.space)?,
            is_transposed: instruction.transpose,
            d: self.results(&instruction.d.0),
        };
        registers(&step.d, instruction.count.count(), "the destination")?;
        Ok(self.tensor_step(step))
    }

    pub(super) fn decode_stmatrix(&mut self, instruction: &Stmatrix) -> Decoded {
        if instruction.shape != LdmatrixShape::M8n8 {
            return Err(FaultKind::Unsupported(format!("`stmatrix{}`", instruction.shape)));
        }
        let step = StoreMatrices {
            pointer: self.address(&instruction.address, instruction.space)?,
            is_transposed: instruction.transpose,
            a: self.fragment(&instruction.a.0, ScalarType::B32)?,
        };
        registers(&step.a, instruction.count.count(), "the source")?;
        Ok(self.tensor_step(step))
    }

    pub(super) fn decode_movmatrix(&mut self, instruction: &Movmatrix) -> Decoded {
        let step = TransposeMatrix {
            d: self.register(instruction.d),
            a: self.source(instruction.a, ScalarType::B32)?,
        };
        Ok(self.tensor_step(step))
    }

    pub(super) fn fragment(&mut self, sources: &[Source], ty: ScalarType) -> Decoded<Vec<Slot>> {
        sources.iter().map(|&source| self.source(source, ty)).collect()
    }

    pub(super) fn results(&mut self, destinations: &[Destination]) -> Vec<Slot> {
        destinations.iter().map(|&destination| self.destination(destination).0).collect()
    }
}

fn unsupported(instruction: &Instruction) -> Decoded {
    Err(FaultKind::Unsupported(format!("`{}`", instruction.opcode())))
}

/// Records the registers of `wgmma`s and the results of `tcgen05.ld`. Also records the accesses of
/// other instructions to them, for the checks while an operation is in flight.
pub(super) struct WgmmaRegisters {
    /// True if the module has a `wgmma` or a `tcgen05.ld`.
    is_needed: bool,
    accumulators: FxHashSet<Slot>,
    /// The accesses of all other instructions, with their steps.
    accesses: Vec<(usize, WgmmaRegisterAccess)>,
}

impl WgmmaRegisters {
    pub fn new(module: &Module) -> Self {
        let bodies = module.functions.values().filter_map(|function| function.body.as_ref());
        let is_asynchronous = |statement: &Statement| {
            matches!(
                &statement.kind,
                StatementKind::Instruction {
                    instruction: Instruction::Wgmma(_) | Instruction::Tcgen05Ld(_),
                    ..
                }
            )
        };
        let is_needed = bodies.flatten().any(is_asynchronous);
        Self { is_needed, accumulators: FxHashSet::default(), accesses: Vec::new() }
    }

    /// Attaches to each step its accesses to registers of `wgmma`s and to copies of these.
    pub fn attach(&mut self, steps: &mut [Step]) {
        let mut copies = self.accumulators.clone();
        let mut count = 0;
        while copies.len() > count {
            count = copies.len();
            for (_, access) in &self.accesses {
                if let WgmmaRegisterAccess::Copy { from, to } = access
                    && copies.contains(from)
                {
                    copies.insert(*to);
                }
            }
        }
        for &(step, access) in &self.accesses {
            let (slot, access) = match access {
                WgmmaRegisterAccess::Read(slot) => (slot, access),
                WgmmaRegisterAccess::Write { slot, .. } => {
                    (slot, WgmmaRegisterAccess::Write { slot, unfences: self.accumulators.contains(&slot) })
                }
                WgmmaRegisterAccess::Copy { to, .. } => (to, access),
            };
            if copies.contains(&slot) {
                steps[step].wgmma_registers.push(access);
            }
        }
    }
}

impl Decoder<'_> {
    /// Records the registers of the last pushed step.
    pub(super) fn note_wgmma_registers(&mut self, instruction: &Instruction) {
        if !self.wgmma_registers.is_needed {
            return;
        }
        let step = self.steps.len() - 1;
        if let Some((guard, _)) = self.guard {
            self.wgmma_registers.accesses.push((step, WgmmaRegisterAccess::Read(guard)));
        }
        let mut registers = Vec::new();
        instruction.visit_registers(|register, access| registers.push((register, access != Access::Read)));
        if let Instruction::Mov(_) = instruction
            && let (written, read) = registers.iter().partition::<Vec<_>, _>(|(_, is_write)| *is_write)
            && !read.is_empty()
        {
            // A `mov` that splits or joins registers copies them, too.
            for &(source, _) in &read {
                for &(destination, _) in &written {
                    let (from, to) = (self.register(source), self.register(destination));
                    self.wgmma_registers.accesses.push((step, WgmmaRegisterAccess::Copy { from, to }));
                }
            }
            return;
        }
        let fragment = match instruction {
            Instruction::Wgmma(wgmma) if wgmma.a.0.len() > 1 => &wgmma.a.0[..],
            // tidy: wildcard because no other instruction keeps registers in use after its
            // execution.
            _ => &[],
        };
        // An instruction reads its sources before it writes its destinations.
        registers.sort_by_key(|(_, is_write)| *is_write);
        for (register, is_write) in registers {
            let slot = self.register(register);
            if is_write && matches!(instruction, Instruction::Tcgen05Ld(_)) {
                self.wgmma_registers.accumulators.insert(slot);
                continue;
            }
            if matches!(instruction, Instruction::Wgmma(_)) {
                if is_write || fragment.contains(&Source::Register(register)) {
                    self.wgmma_registers.accumulators.insert(slot);
                }
                continue;
            }
            let write = WgmmaRegisterAccess::Write { slot, unfences: true };
            let access = if is_write { write } else { WgmmaRegisterAccess::Read(slot) };
            self.wgmma_registers.accesses.push((step, access));
        }
    }
}

/// Returns the element format of a PTX type.
pub(super) fn element(ty: ScalarType) -> Option<Element> {
    Some(match ty {
        ScalarType::F64 => Element::F64,
        ScalarType::F32 => Element::F32,
        ScalarType::Tf32 => Element::Tf32,
        ScalarType::F16 => Element::F16,
        ScalarType::Bf16 => Element::Bf16,
        ScalarType::E4m3 => Element::E4m3,
        ScalarType::E5m2 => Element::E5m2,
        ScalarType::S32 => Element::S32,
        ScalarType::S8 => Element::S8,
        ScalarType::U8 => Element::U8,
        ScalarType::S4 => Element::S4,
        ScalarType::U4 => Element::U4,
        ScalarType::B1 => Element::B1,
        // tidy: wildcard because no other type is that of a matrix here.
        _ => return None,
    })
}

/// Returns the register type of an element type. For `B32`, a constant is raw bits.
pub(super) fn register_type(ty: ScalarType) -> ScalarType {
    match ty {
        ScalarType::F64 | ScalarType::F32 => ty,
        // tidy: wildcard because all other elements are packed into 32 bits.
        _ => ScalarType::B32,
    }
}

pub(super) fn integer_product(operation: Option<BitOperation>, saturates: bool) -> IntegerProduct {
    match operation {
        Some(BitOperation::XorPopc) => IntegerProduct::XorPopcount,
        Some(BitOperation::AndPopc) => IntegerProduct::AndPopcount,
        None if saturates => IntegerProduct::Saturating,
        None => IntegerProduct::Wrapping,
    }
}

pub(super) fn registers(slots: &[Slot], expected: usize, operand: &str) -> Decoded<()> {
    if slots.len() == expected {
        return Ok(());
    }
    let found = slots.len();
    Err(FaultKind::Illegal(format!("{operand} has {found} registers: the shape and type require {expected}")))
}

/// Returns whether an optional immediate has this value.
fn flag(source: Option<Source>, value: i64) -> Decoded<bool> {
    source.map_or(Ok(false), |source| Ok(immediate(source)? == value))
}

/// Returns the value of an operand that has to be a constant.
pub(super) fn immediate(source: Source) -> Decoded<i64> {
    match source {
        Source::Immediate(tilewright_ptx::isa::Immediate::Integer(value)) => Ok(value),
        Source::Immediate(_) | Source::Register(_) | Source::Special(_) | Source::Symbol(..) => Err(
            FaultKind::Illegal("an operand is not a constant integer, but the instruction needs one".into()),
        ),
    }
}
