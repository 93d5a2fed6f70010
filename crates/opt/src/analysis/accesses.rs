//! Finds the parameters whose memory a kernel reads or writes.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_ir::{Dtype, Function, Inst, Module, Op, OpFamily, Value};

/// An access to memory by one instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// The instruction.
    pub inst: Inst,
    /// The indices of the kernel's parameters from which the accessed pointers may be derived.
    pub parameters: Vec<usize>,
    /// True if the instruction reads memory.
    pub reads: bool,
    /// True if the instruction writes memory.
    pub writes: bool,
}

/// Returns the accesses of a module's kernel, in program order. Omits an instruction if no operand
/// is a pointer that may be derived from a parameter. A pointer of unknown origin, such as one cast
/// from an integer, may be derived from any pointer parameter. The same holds for an integer of 64
/// bits that is passed to a function or to inline assembly.
pub fn accesses(module: &Module) -> Vec<Access> {
    let function = module.kernel();
    let mut origins = Origins::new(function);
    while origins.propagate() {}
    let mut found = Vec::new();
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let (reads, writes, is_opaque) = match (data.op.info().family, &data.op) {
            (OpFamily::Load, _) => (true, false, false),
            (OpFamily::Store, _) => (false, true, false),
            (OpFamily::Atomic | OpFamily::Memory, _) => (true, true, false),
            // The function or the assembly may read and write.
            (OpFamily::Call, _) | (_, Op::VolatileAsm { .. }) => (true, true, true),
            // tidy: wildcard because no other op of tile IR accesses memory
            _ => return,
        };
        let is_address =
            |operand: &Value| matches!(function.ty(*operand).element.value(), Some(Dtype::I64 | Dtype::U64));
        let mut parameters: Vec<usize> =
            data.operands.iter().flat_map(|operand| origins.of(*operand)).copied().collect();
        if is_opaque && data.operands.iter().any(is_address) {
            parameters.extend(&origins.pointers);
        }
        parameters.sort_unstable();
        parameters.dedup();
        if !parameters.is_empty() {
            found.push(Access { inst, parameters, reads, writes });
        }
    });
    found
}

/// The parameters from which each pointer may be derived.
struct Origins<'a> {
    function: &'a Function,
    pointers: SmallVec<[usize; 8]>,
    of: FxHashMap<Value, SmallVec<[usize; 4]>>,
    has_changed: bool,
}

impl<'a> Origins<'a> {
    fn new(function: &'a Function) -> Self {
        let parameters = &function.blocks[function.entry].parameters;
        let is_pointer = |value: &Value| function.ty(*value).element.pointee().is_some();
        let pointers = (0..parameters.len()).filter(|&number| is_pointer(&parameters[number])).collect();
        let mut origins = Self { function, pointers, of: FxHashMap::default(), has_changed: false };
        for &number in &origins.pointers.clone() {
            origins.add(parameters[number], &[number]);
        }
        origins
    }

    fn of(&self, value: Value) -> &[usize] {
        self.of.get(&value).map_or(&[], |origins| origins)
    }

    fn is_pointer(&self, value: Value) -> bool {
        self.function.ty(value).element.pointee().is_some()
    }

    fn add(&mut self, value: Value, more: &[usize]) {
        let known = self.of.entry(value).or_default();
        for &number in more {
            if !known.contains(&number) {
                known.push(number);
                self.has_changed = true;
            }
        }
    }

    /// Walks the function once. Returns whether it found a new origin.
    fn propagate(&mut self) -> bool {
        self.has_changed = false;
        let function = self.function;
        function.walk(function.entry, &mut |inst| self.visit(inst));
        self.has_changed
    }

    fn visit(&mut self, inst: Inst) {
        let data = &self.function.insts[inst];
        match data.op.info().family {
            OpFamily::Loop | OpFamily::Branch => {
                for carried in self.function.carried(inst) {
                    let sources = carried.initial.iter().chain(&carried.yielded).chain(&carried.parameters);
                    let origins: Vec<usize> = sources.flat_map(|value| self.of(*value)).copied().collect();
                    for &value in carried.parameters.iter().chain([&carried.result]) {
                        if self.is_pointer(value) {
                            self.add(value, &origins);
                        }
                    }
                }
            }
            // tidy: wildcard because in all other families, a result is derived from the pointer
            // operands. Without a pointer operand, it may be derived from any parameter.
            _ => {
                let mut origins: SmallVec<[usize; 8]> = SmallVec::new();
                let mut has_pointer = false;
                for &operand in &data.operands {
                    has_pointer |= self.is_pointer(operand);
                    origins.extend_from_slice(self.of(operand));
                }
                if !has_pointer {
                    origins.clone_from(&self.pointers);
                }
                for &result in &data.results {
                    if self.is_pointer(result) {
                        self.add(result, &origins);
                    }
                }
            }
        }
    }
}
