//! Emits inline assembly once for every `pack` registers of its arguments. Registers of the
//! constraints' widths replace the operands.

use smallvec::SmallVec;
use tilewright_ir::{AsmInput, AsmPacking, AsmPiece, AsmRegister, AsmTemplate, Dtype, Element, Inst, Value};

use super::builder::{Scalar, Width, sources};
use super::memory::Words;
use super::{Lowering, width_of};
use crate::isa::{self, Access, RegisterId, ScalarType, Verbatim};

impl Lowering<'_> {
    pub(super) fn lower_inline_asm(
        &mut self,
        inst: Inst,
        arguments: &[Value],
        text: &str,
        constraints: &str,
        pack: u32,
        has_effect: bool,
    ) {
        let template = AsmTemplate::parse(text, constraints).expect("the type rule parses it");
        let kernel = self.kernel;
        let results = &kernel.insts[inst].results[..];
        // All values have one layout.
        let layout = arguments.iter().chain(results).next().and_then(|value| self.layout_of(*value));
        let values: Vec<_> = arguments.iter().map(|value| self.get_in(*value, layout)).collect();
        let count = arguments.iter().chain(results).next().map_or(1, |value| self.count(*value));
        let mut made: Vec<Vec<Scalar>> = vec![Vec::with_capacity(count); results.len()];
        for first in (0..count).step_by(pack as usize) {
            // The last repetition repeats the last element if `pack` does not divide `count`.
            let places: SmallVec<[usize; 16]> =
                (first..first + pack as usize).map(|place| place.min(count - 1)).collect();
            let mut inputs = Vec::new();
            for (argument, registers) in arguments.iter().zip(&values) {
                let elements: SmallVec<[Scalar; 16]> = places.iter().map(|&place| registers[place]).collect();
                self.asm_inputs(&template, self.element(*argument), pack, &elements, &mut inputs);
            }
            let outputs = self.run_asm(&template, &inputs, has_effect);
            let mut outputs = template.outputs.iter().copied().zip(outputs);
            for (result, made) in results.iter().zip(&mut made) {
                let element = self.element(*result);
                let registers = AsmPacking::of(element, pack).registers;
                for (register, word) in outputs.by_ref().take(registers) {
                    let elements = self.asm_output(register, element, pack, word);
                    made.extend(elements.into_iter().take(count - made.len()));
                }
            }
        }
        for (result, made) in results.iter().zip(made) {
            self.set(*result, made);
        }
    }

    /// Appends the registers of an argument to `inputs`, in the constraints' widths.
    fn asm_inputs(
        &mut self,
        template: &AsmTemplate,
        element: Element,
        pack: u32,
        elements: &[Scalar],
        inputs: &mut Vec<RegisterId>,
    ) {
        let packing = AsmPacking::of(element, pack);
        let words = Words::new(element, packing.elements);
        for elements in elements.chunks(packing.elements) {
            let register = template.input(inputs.len());
            let word = self.builder.pack(words, elements);
            let own = asm_word_width(element, packing);
            inputs.push(self.resized(word, own, asm_width(register)));
        }
    }

    /// Returns the elements of a register that the text wrote.
    fn asm_output(
        &mut self,
        register: AsmRegister,
        element: Element,
        pack: u32,
        word: RegisterId,
    ) -> SmallVec<[Scalar; 16]> {
        let packing = AsmPacking::of(element, pack);
        let word: Scalar =
            self.resized(word.into(), asm_width(register), asm_word_width(element, packing)).into();
        if packing.elements > 1 {
            return self.builder.unpack(Words::new(element, packing.elements), word);
        }
        // A narrow integer is extended by its type.
        let extended = match element {
            Element::Value(dtype) if width_of(element) == Width::B32 && dtype.bits() < 32 => {
                self.builder.extend(word, dtype.bits(), dtype.is_signed())
            }
            Element::Value(_) | Element::Pointer(_) => word,
        };
        std::iter::once(extended).collect()
    }

    /// Returns a register of another width with the same low bits.
    fn resized(&mut self, value: Scalar, from: Width, to: Width) -> RegisterId {
        let register = self.builder.register(from, value);
        let resized = match (from, to) {
            (Width::B16, Width::B32) => {
                let zero = self.builder.register(Width::B16, Scalar::constant(0));
                self.builder.pure(to, |d| isa::Mov {
                    ty: ScalarType::B32,
                    d: d.into(),
                    a: sources(&[register, zero]),
                })
            }
            (Width::B32, Width::B16) => self
                .builder
                .pure(to, |d| super::integer::convert(ScalarType::U16, ScalarType::U32, d, register.into())),
            _ => {
                debug_assert_eq!(from, to, "the type rule checks the widths");
                return register;
            }
        };
        self.builder.register(to, resized)
    }

    /// Emits the text once, and returns the registers that it wrote.
    fn run_asm(
        &mut self,
        template: &AsmTemplate,
        inputs: &[RegisterId],
        has_effect: bool,
    ) -> SmallVec<[RegisterId; 4]> {
        let outputs: SmallVec<[RegisterId; 4]> =
            template.outputs.iter().map(|register| self.builder.fresh(asm_width(*register))).collect();
        let mut is_tied: SmallVec<[bool; 4]> = SmallVec::from_elem(false, outputs.len());
        for (&from, input) in inputs.iter().zip(&template.inputs) {
            if let AsmInput::Tied(output) = *input {
                is_tied[output] = true;
                self.builder.assign(asm_width(template.outputs[output]), outputs[output], from.into());
            }
        }
        let operand = |number: usize| match number.checked_sub(outputs.len()) {
            None => (outputs[number], if is_tied[number] { Access::ReadWrite } else { Access::Write }),
            Some(input) => match template.inputs[input] {
                AsmInput::Own(_) => (inputs[input], Access::Read),
                AsmInput::Tied(output) => (outputs[output], Access::ReadWrite),
            },
        };
        let parts = template.pieces.iter().map(|piece| match piece {
            AsmPiece::Text(text) => Verbatim::Text(text.clone()),
            AsmPiece::Operand(number) => {
                let (register, access) = operand(*number);
                Verbatim::Register(register, access)
            }
        });
        self.builder.verbatim(parts.collect(), has_effect);
        outputs
    }
}

/// Returns the register width of a constraint.
fn asm_width(register: AsmRegister) -> Width {
    match register {
        AsmRegister::Predicate => Width::Pred,
        AsmRegister::Bits16 => Width::B16,
        AsmRegister::Bits32 => Width::B32,
        AsmRegister::Bits64 => Width::B64,
    }
}

/// Returns the register width of packed elements.
fn asm_word_width(element: Element, packing: AsmPacking) -> Width {
    match element {
        Element::Value(Dtype::I1) => Width::Pred,
        Element::Value(_) | Element::Pointer(_) if packing.elements == 1 => width_of(element),
        Element::Value(_) | Element::Pointer(_) => Width::B32,
    }
}
