//! From the statements of all scopes to the text's order: what nobody reads goes, registers get their names in the order in
//! which they appear, and the source stands beside the code.

use cranelift_entity::{EntityRef, PrimaryMap};
use rustc_hash::FxHashMap;
use tilewright_base::FileId;
use tilewright_gpu::language as gpu;
use tilewright_ir as ir;

use super::builder::{Line, LineKind};
use super::{Lowering, SHARED_MEMORY};
use crate::isa::{
    self, Access, GlobalId, Instruction, Ld, Linkage, LoadSemantics, Register, RegisterId, ScalarType,
    StateSpace, Statement, StatementKind, Variable,
};

/// Alignment of the shared memory: that of the widest swizzle of tensor copies.
const SHARED_ALIGNMENT: u32 = 1024;

impl Lowering<'_> {
    /// The shared memory of the block, as a variable of the module.
    pub(super) fn shared_symbol(&mut self) -> GlobalId {
        *self.shared.get_or_insert_with(|| {
            let mut variable = Variable::scalar(SHARED_MEMORY, StateSpace::Shared, ScalarType::B8);
            variable.linkage = Linkage::Extern;
            variable.alignment = Some(SHARED_ALIGNMENT);
            variable.extents = vec![None];
            self.module.globals.push(variable)
        })
    }

    /// The module.
    pub(super) fn finish(self) -> isa::Module {
        let Self { mut module, builder, kernel, program, .. } = self;
        let (mut function, lines) = builder.finish();
        let mut lines = without_dead_code(lines, function.registers.len());
        function.registers = rename(&mut lines, &function.registers);
        let mut source =
            Source { kernel, sources: &program.sources, files: FxHashMap::default(), last: None };
        let mut body = Vec::new();
        for line in lines {
            if let LineKind::Instruction(..) = line.kind {
                source.position(line.location, &mut module, &mut body);
            }
            let kind = match line.kind {
                LineKind::Label(label) => StatementKind::Label(label),
                LineKind::Instruction(guard, instruction) => {
                    StatementKind::Instruction { guard, instruction }
                }
            };
            body.push(Statement { kind, line: 0 });
        }
        function.body = Some(body);
        module.functions.push(function);
        module
    }
}

/// Whether an instruction does something besides writing its registers.
fn has_effect(instruction: &Instruction) -> bool {
    match instruction {
        Instruction::Ld(Ld { semantics, .. }) => !matches!(semantics, None | Some(LoadSemantics::Weak)),
        Instruction::St(_)
        | Instruction::Atom(_)
        | Instruction::Red(_)
        | Instruction::BarrierSync(_)
        | Instruction::BarWarpSync(_)
        | Instruction::CpAsync(_)
        | Instruction::CpAsyncCommitGroup(_)
        | Instruction::CpAsyncWaitGroup(_)
        | Instruction::CpAsyncMbarrierArrive(_)
        | Instruction::CpAsyncBulkTensorLoad(_)
        | Instruction::CpAsyncBulkTensorStore(_)
        | Instruction::CpAsyncBulkCommitGroup(_)
        | Instruction::CpAsyncBulkWaitGroup(_)
        | Instruction::MbarrierInit(_)
        | Instruction::MbarrierInval(_)
        | Instruction::MbarrierArrive(_)
        | Instruction::MbarrierTryWait(_)
        | Instruction::Fence(_)
        | Instruction::FenceProxy(_)
        | Instruction::FenceMbarrierInit(_)
        | Instruction::Wgmma(_)
        | Instruction::WgmmaFence(_)
        | Instruction::WgmmaCommitGroup(_)
        | Instruction::WgmmaWaitGroup(_)
        | Instruction::Setmaxnreg(_)
        | Instruction::Bra(_)
        | Instruction::Call(_)
        | Instruction::Trap(_)
        | Instruction::Ret(_) => true,
        // tidy: wildcard because the builder emits nothing else that has an effect.
        _ => false,
    }
}

/// The statements without those that only write registers that are not read.
fn without_dead_code(lines: Vec<Line>, registers: usize) -> Vec<Line> {
    let mut writers: Vec<Vec<usize>> = vec![Vec::new(); registers];
    let mut needed = vec![false; lines.len()];
    let mut pending = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let LineKind::Instruction(_, instruction) = &line.kind else {
            needed[index] = true;
            continue;
        };
        instruction.visit_registers(|register, access| {
            if access != Access::Read {
                writers[register.index()].push(index);
            }
        });
        if has_effect(instruction) {
            needed[index] = true;
            pending.push(index);
        }
    }
    while let Some(index) = pending.pop() {
        let LineKind::Instruction(guard, instruction) = &lines[index].kind else { continue };
        let mut read = |register: RegisterId| {
            for writer in std::mem::take(&mut writers[register.index()]) {
                if !std::mem::replace(&mut needed[writer], true) {
                    pending.push(writer);
                }
            }
        };
        if let Some(guard) = guard {
            read(guard.register);
        }
        instruction.visit_registers(|register, access| {
            if access != Access::Write {
                read(register);
            }
        });
    }
    lines.into_iter().zip(needed).filter(|(_, needed)| *needed).map(|(line, _)| line).collect()
}

/// Numbers the registers in the order in which they appear.
fn rename(lines: &mut [Line], old: &PrimaryMap<RegisterId, Register>) -> PrimaryMap<RegisterId, Register> {
    let mut named = PrimaryMap::new();
    let mut new: Vec<Option<RegisterId>> = vec![None; old.len()];
    let mut counts: FxHashMap<&str, usize> = FxHashMap::default();
    let mut name = |register: &mut RegisterId| {
        *register = *new[register.index()].get_or_insert_with(|| {
            let ty = old[*register].ty;
            let prefix = match ty {
                ScalarType::Pred => "%p",
                ScalarType::B16 => "%rs",
                ScalarType::B64 => "%rd",
                // tidy: wildcard because the rest have 32 bits.
                _ => "%r",
            };
            let number = counts.entry(prefix).or_default();
            let name = format!("{prefix}{number}").into();
            *number += 1;
            named.push(Register { name, ty })
        });
    };
    for line in lines {
        if let LineKind::Instruction(guard, instruction) = &mut line.kind {
            if let Some(guard) = guard {
                name(&mut guard.register);
            }
            instruction.map_registers(|register, _| name(register));
        }
    }
    named
}

/// The source beside the code.
struct Source<'a> {
    kernel: &'a gpu::Function,
    sources: &'a tilewright_base::SourceMap,
    files: FxHashMap<FileId, u32>,
    last: Option<(FileId, u32)>,
}

impl Source<'_> {
    /// Says where the next instructions come from, if it is another line than before: of code that was inlined, where the
    /// kernel calls it.
    fn position(
        &mut self,
        location: Option<ir::Location>,
        module: &mut isa::Module,
        body: &mut Vec<Statement>,
    ) {
        let Some(mut location) = location else { return };
        while let Some(caller) = self.kernel.locations[location].caller.expand() {
            location = caller;
        }
        let span = self.kernel.locations[location].span;
        let file = self.sources.file(span.file);
        let (line, column) = file.line_column(span.start);
        if self.last == Some((span.file, line)) {
            return;
        }
        self.last = Some((span.file, line));
        let next = self.files.len() as u32 + 1;
        let number = *self.files.entry(span.file).or_insert_with(|| {
            module.files.push(isa::File { number: next, path: file.name.clone(), stamp: None });
            next
        });
        let text = file.text.lines().nth((line - file.first_line) as usize).unwrap_or_default().trim();
        let location = isa::Location { file: number, line, column, inlined: None };
        let kinds = [StatementKind::Comment(text.to_owned()), StatementKind::Location(location)];
        body.extend(kinds.map(|kind| Statement { kind, line: 0 }));
    }
}
