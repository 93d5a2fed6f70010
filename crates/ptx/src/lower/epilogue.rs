//! Turns the listing into the module. Runs the passes, and numbers registers in order of
//! appearance. Adds source lines as comments, with locations (`.loc`).

use cranelift_entity::{EntityRef, PrimaryMap};
use rustc_hash::FxHashMap;
use tilewright_base::FileId;
use tilewright_gpu_ir as gpu;
use tilewright_ir as ir;

use super::{Lowering, SHARED_MEMORY};
use crate::isa::{
    self, GlobalId, Linkage, Register, RegisterId, ScalarType, StateSpace, Statement, StatementKind, Variable,
};
use crate::passes::{self, Line, LineKind};

/// The alignment of shared memory, for the widest swizzle of tensor copies.
const SHARED_ALIGNMENT: u32 = 1024;

impl Lowering<'_> {
    /// Returns the variable of a block's shared memory.
    pub(super) fn shared_symbol(&mut self) -> GlobalId {
        *self.shared.get_or_insert_with(|| {
            let mut variable = Variable::scalar(SHARED_MEMORY, StateSpace::Shared, ScalarType::B8);
            variable.linkage = Linkage::Extern;
            variable.alignment = Some(SHARED_ALIGNMENT);
            variable.extents = vec![None];
            self.module.globals.push(variable)
        })
    }

    /// Runs the passes and returns the module.
    pub(super) fn finish(self) -> isa::Module {
        let Self { mut module, builder, kernel, program, .. } = self;
        let (mut function, mut listing) = builder.finish(program.header.target);
        if passes::run(&mut listing) {
            // Otherwise, the assembler may limit a thread to 32 registers to fit more blocks, and
            // spill.
            function.directives.min_blocks = Some(1);
        }
        if program.header.min_blocks > 0 {
            function.directives.min_blocks = Some(program.header.min_blocks);
        }
        passes::declare(&mut function, &listing);
        let mut lines = listing.lines;
        function.registers = rename(&mut lines, &function.registers);
        let mut source =
            Source { kernel, sources: &program.sources, files: FxHashMap::default(), last: None, seen: None };
        let mut body = Vec::with_capacity(lines.len() + lines.len() / 8);
        for line in lines {
            if let LineKind::Instruction(..) | LineKind::Verbatim(..) = line.kind {
                source.position(line.location, &mut module, &mut body);
            }
            body.push(line.into());
        }
        function.body = Some(body);
        module.functions.push(function);
        module
    }
}

/// Renames the registers: numbers those of each width in order of appearance. Returns the registers
/// that a line names.
fn rename(lines: &mut [Line], old: &PrimaryMap<RegisterId, Register>) -> PrimaryMap<RegisterId, Register> {
    let mut named = PrimaryMap::new();
    let mut new: Vec<Option<RegisterId>> = vec![None; old.len()];
    let mut text = String::new();
    let [mut predicates, mut halves, mut words, mut doubles, mut quads] = [0_u32; 5];
    let mut name = |register: &mut RegisterId| {
        *register = *new[register.index()].get_or_insert_with(|| {
            let ty = old[*register].ty;
            let (prefix, number) = match ty {
                ScalarType::Pred => ("%p", &mut predicates),
                ScalarType::B16 => ("%rs", &mut halves),
                ScalarType::B64 => ("%rd", &mut doubles),
                ScalarType::B128 => ("%rq", &mut quads),
                // tidy: wildcard because the rest have 32 bits.
                _ => ("%r", &mut words),
            };
            text.clear();
            text.push_str(prefix);
            push_number(&mut text, *number);
            *number += 1;
            named.push(Register { name: text.as_str().into(), ty })
        });
    };
    for line in lines {
        line.map_registers(|register, _| name(register));
    }
    named
}

/// Appends a number. `write!` takes several times as long.
fn push_number(text: &mut String, number: u32) {
    if number > 9 {
        push_number(text, number / 10);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}

/// The state of the source lines that are inserted as comments.
struct Source<'a> {
    kernel: &'a gpu::Function,
    sources: &'a tilewright_base::SourceMap,
    files: FxHashMap<String, u32>,
    last: Option<(FileId, u32)>,
    /// The location of the previous instruction.
    seen: Option<ir::Location>,
}

impl Source<'_> {
    /// Emits the next source line if it changes. For the standard library, emits the line of the
    /// user's call.
    fn position(
        &mut self,
        location: Option<ir::Location>,
        module: &mut isa::Module,
        body: &mut Vec<Statement>,
    ) {
        let Some(mut location) = location else { return };
        if self.seen.replace(location) == Some(location) {
            return;
        }
        while self.sources.file(self.kernel.locations[location].span.file).is_library()
            && let Some(caller) = self.kernel.locations[location].caller.expand()
        {
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
        let number = *self.files.entry(file.name.clone()).or_insert_with(|| {
            module.files.push(isa::File { number: next, path: file.name.clone(), stamp: None });
            next
        });
        let text = file.text.lines().nth((line - file.first_line) as usize).unwrap_or_default().trim();
        let location = isa::Location { file: number, line, column, inlined: None };
        let kinds = [StatementKind::Comment(text.to_owned()), StatementKind::Location(location)];
        body.extend(kinds.map(|kind| Statement { kind, line: 0 }));
    }
}
