//! Collects the data of the page that `tilewright explain` writes.
//!
//! The page shows the stages, the layouts of the GPU stage, and the remarks of the passes. Each
//! line of a stage is linked to its source line.

use std::fmt::Write;

use serde_json::{Value as Json, json};
#[cfg(not(feature = "gpu"))]
use tilewright_base::Diagnostic;
use tilewright_base::{Remark, SourceMap, Span};
#[cfg(feature = "gpu")]
use tilewright_gpu::compile as gpu_program;
use tilewright_gpu_ir::{self as gpu_ir, GpuOp, Op, element_bits};
use tilewright_layout::{BankUse, Input, Layout, bank_use, ldmatrix_bank_use, matrix_bank_use};

use crate::{BarrierUsers, CompiledKernel, MachineCode, Stage, shared_memory, with_stack};

/// The maximum number of bits of one access of a thread to shared memory.
const ACCESS_BITS: u32 = 128;

/// The text of a stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageText {
    /// The name of the stage, such as `ir`, `ptx` or `sass`.
    pub name: String,
    /// A short title, such as `tile IR`.
    pub title: String,
    /// The lines of the text.
    pub lines: Vec<String>,
    /// For each line of the text, the number of the source line that it implements, from 1. The
    /// number is 0 if the source line is unknown.
    pub links: Vec<u32>,
}

/// The source lines of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceText {
    /// The path of the file.
    pub name: String,
    /// The line number in the file, from 1, of the first of `lines`.
    pub first_line: u32,
    /// The lines.
    pub lines: Vec<String>,
}

impl CompiledKernel {
    /// Returns the texts of the stages after the syntax tree, in order. All lines except those of
    /// stage `cpu` are linked to source lines.
    pub fn linked_stages(&self) -> Vec<StageText> {
        with_stack(|| {
            let file = self.source_name();
            let ir = |module: &tilewright_ir::Module, name: &str, title: &str| {
                linked(&tilewright_ir::print(module, true), &module.sources, &file, (name, title))
            };
            let mut stages =
                vec![ir(&self.lowered, "ir", "tile IR"), ir(&self.module, "opt", "tile IR, optimized")];
            match &*self.code {
                MachineCode::Cpu(program) => {
                    let lines: Vec<String> = program.to_string().lines().map(str::to_owned).collect();
                    let origins = vec![0; lines.len()];
                    let (name, title) = ("cpu".into(), "steps of the CPU".into());
                    stages.push(StageText { name, title, lines, links: origins });
                    stages.push(self.linked_machine_code(program));
                }
                MachineCode::Gpu(code) => {
                    let text = tilewright_ir::print(&code.program, true);
                    stages.push(linked(&text, &code.program.sources, &file, ("gpu", "threads of a GPU")));
                    stages.push(linked_ptx(&code.ptx, &file));
                }
            }
            stages
        })
    }

    /// Returns the machine code of the loop nests of a CPU program. Each instruction is linked to
    /// its source line.
    fn linked_machine_code(&self, program: &tilewright_cpu::Program) -> StageText {
        let listed = program.machine_listing().lines;
        let origins = listed.iter().map(|line| line.span.map_or(0, |span| self.line_of(span))).collect();
        let lines = listed.into_iter().map(|line| line.text).collect();
        StageText {
            name: Stage::Asm.name().into(),
            title: "machine code of the CPU".into(),
            lines,
            links: origins,
        }
    }

    /// Returns the path of the file that contains the kernel, or an empty string if the source is
    /// unknown.
    fn source_name(&self) -> String {
        self.source.as_ref().map(|source| source.file.name.clone()).unwrap_or_default()
    }

    /// Returns the source lines of the kernel, from its decorators to its end. Returns `None` if
    /// the source is unknown.
    pub fn source_text(&self) -> Option<SourceText> {
        let source = self.source.as_ref()?;
        let lines: Vec<&str> = source.file.text.lines().collect();
        let offset = (source.offset as usize).min(source.file.text.len());
        let at = source.file.text.get(..offset)?.matches('\n').count();
        let is_def = |line: &&str| {
            let line = line.trim_start();
            line.starts_with("def ") || line.starts_with("async def ")
        };
        let def = at + lines.get(at..)?.iter().position(is_def)?;
        let indent = |line: &str| line.len() - line.trim_start().len();
        let own = indent(lines[def]);
        let mut first = def;
        while first > 0 && lines[first - 1].trim_start().starts_with('@') && indent(lines[first - 1]) == own {
            first -= 1;
        }
        let is_inside =
            |line: &&&str| line.trim().is_empty() || indent(line) > own || line.trim_start().starts_with(')');
        let mut end = def + 1 + lines[def + 1..].iter().take_while(is_inside).count();
        while lines[end - 1].trim().is_empty() {
            end -= 1;
        }
        Some(SourceText {
            name: source.file.name.clone(),
            first_line: source.file.first_line + first as u32,
            lines: lines[first..end].iter().map(|line| (*line).to_owned()).collect(),
        })
    }

    /// Returns the line number at which a span begins in the kernel's file. Returns 0 for a span of
    /// another file.
    pub fn line_of(&self, span: Span) -> u32 {
        line_in(&self.module.sources, span, &self.source_name())
    }

    /// Returns all data of an explanation page as JSON: stages, layouts, accesses to shared memory,
    /// and remarks.
    ///
    /// `more` are stages of other tools, such as SASS. `facts` are pairs of a name and a value.
    pub fn explanation(&self, remarks: &[Remark], more: &[StageText], facts: &[(String, String)]) -> String {
        let stage = |stage: &StageText| {
            let StageText { name, title, lines, links } = stage;
            json!({ "name": name, "title": title, "lines": lines, "links": links })
        };
        let remark = |remark: &Remark| {
            json!({
                "pass": remark.pass,
                "kind": remark.kind.name(),
                "line": remark.span.map_or(0, |span| self.line_of(span)),
                "subject": remark.subject,
                "decision": self.with_numbers(&remark.decision),
                "reason": self.with_numbers(&remark.reason),
            })
        };
        let mut page = match &*self.code {
            MachineCode::Gpu(code) => describe_layouts(&code.program),
            MachineCode::Cpu(_) => json!({}),
        };
        page["name"] = json!(self.name);
        page["target"] = json!(self.metadata.target.to_string());
        page["facts"] = json!(facts);
        if let Some(SourceText { name, first_line, lines }) = self.source_text() {
            page["source"] = json!({ "name": name, "firstLine": first_line, "lines": lines });
        }
        page["stages"] = self.linked_stages().iter().chain(more).map(stage).collect();
        page["remarks"] = remarks.iter().map(remark).collect();
        page.to_string()
    }

    /// Returns the name of the `mbarrier` at an offset in shared memory, and the ops that arrive
    /// there. Returns `None` if the code has no such barrier.
    pub fn barrier_users(&self, offset: u32) -> Option<BarrierUsers> {
        let MachineCode::Gpu(code) = &*self.code else { return None };
        shared_memory::barrier_users(&code.program, offset)
    }

    /// Returns the name of the partition that has a warp. Returns `None` without partitions.
    pub fn partition_of(&self, warp: u32) -> Option<String> {
        let MachineCode::Gpu(code) = &*self.code else { return None };
        shared_memory::partition_of(&code.program, warp)
    }

    /// Describes the code for a GPU as JSON: the layouts, the accesses to shared memory, the buffers
    /// and barriers, and the lines. Returns an empty object for code for the CPU.
    pub fn gpu_description(&self) -> String {
        let MachineCode::Gpu(code) = &*self.code else { return json!({}).to_string() };
        let mut page = describe_layouts(&code.program);
        page["target"] = json!(code.target.name);
        page["lines"] = tilewright_ir::print(&code.program, false).lines().collect();
        page.to_string()
    }

    /// Returns the remarks as text, in the order of their source lines.
    pub fn remarks_as_text(&self, remarks: &[Remark]) -> String {
        let mut lines: Vec<(u32, &Remark)> =
            remarks.iter().map(|remark| (remark.span.map_or(0, |span| self.line_of(span)), remark)).collect();
        lines.sort_by_key(|(line, _)| *line);
        let (mut text, mut last) = (String::new(), None);
        let source = self.source_text();
        for (line, remark) in lines {
            if last != Some(line) {
                let place = if line == 0 {
                    "the whole kernel".to_owned()
                } else {
                    let own = source
                        .as_ref()
                        .and_then(|source| source.lines.get((line.checked_sub(source.first_line)?) as usize));
                    format!("{}:{line}: {}", self.source_name(), own.map_or("", |own| own.trim()))
                };
                let _ = writeln!(text, "{}{place}", if last.is_some() { "\n" } else { "" });
                last = Some(line);
            }
            let Remark { pass, kind, subject, decision, reason, .. } = remark;
            let (decision, reason) = (self.with_numbers(decision), self.with_numbers(reason));
            let _ = writeln!(text, "  [{pass}] {}: {subject}: {decision}", kind.name());
            if !reason.is_empty() {
                let _ = writeln!(text, "      because {reason}");
            }
        }
        text
    }

    /// Replaces each layout in a text by its id in the GPU stage, such as `L1`.
    fn with_numbers(&self, text: &str) -> String {
        let MachineCode::Gpu(code) = &*self.code else { return text.to_owned() };
        let mut layouts: Vec<(String, String)> = code
            .program
            .header
            .layouts
            .iter()
            .map(|(id, layout)| (layout.to_string(), id.to_string()))
            .collect();
        // The text of one layout may be a prefix of another.
        layouts.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        layouts.iter().fold(text.to_owned(), |text, (layout, id)| text.replace(layout.as_str(), id))
    }
}

/// Compiles tile IR for a GPU and describes stage `gpu` as JSON: the layouts, the accesses to
/// shared memory, and the lines. The page that shows the trace of a launch needs this description.
/// `text` is the text of stage `ir`.
///
/// # Errors
/// Returns the message of the parser, of the verifier, or of the compilation for the GPU. Also
/// fails if `num_warps` is not a power of two up to [`tilewright_gpu_ir::MAX_WARPS`].
pub fn layouts_of_ir(
    text: &str,
    target: tilewright_gpu_ir::GpuTarget,
    num_warps: u32,
    num_stages: u32,
) -> Result<String, String> {
    with_stack(|| {
        let mut module = tilewright_ir::parse(text).map_err(|error| error.to_string())?;
        // The text may come from an untrusted file.
        tilewright_ir::verify(&module).map_err(|error| error.to_string())?;
        if !num_warps.is_power_of_two() || num_warps > tilewright_gpu_ir::MAX_WARPS {
            return Err(format!(
                "the number of warps must be a power of two up to {}, found {num_warps}",
                tilewright_gpu_ir::MAX_WARPS
            ));
        }
        tilewright_opt::optimize(&mut module, &tilewright_opt::Options::default(), &mut |_, _| {});
        let program = gpu_program(&module, target, num_warps, num_stages)
            .map_err(|diagnostic| diagnostic.message.clone())?;
        let mut page = describe_layouts(&program);
        page["target"] = json!(target.name);
        page["lines"] = tilewright_ir::print(&program, false).lines().collect();
        Ok(page.to_string())
    })
}

#[cfg(not(feature = "gpu"))]
fn gpu_program(
    _: &tilewright_ir::Module,
    _: tilewright_gpu_ir::GpuTarget,
    _: u32,
    _: u32,
) -> Result<gpu_ir::Module, Box<Diagnostic>> {
    Err(crate::without_feature("gpu"))
}

/// Returns the line number at which a span begins in `file`. Returns 0 for a span of another file.
fn line_in(sources: &SourceMap, span: Span, file: &str) -> u32 {
    let known = sources.files().any(|(id, source)| id == span.file && source.name == file);
    if known { sources.file(span.file).line_column(span.start).0 } else { 0 }
}

/// Splits a printed module into lines, without the list of the source files and the spans.
///
/// Links each line to the source line of its outermost span. For an instruction of an inlined
/// function, this is the line of the call in the kernel.
fn linked(text: &str, sources: &SourceMap, file: &str, (name, title): (&str, &str)) -> StageText {
    let (mut lines, mut origins) = (Vec::new(), Vec::new());
    let mut open: Vec<usize> = Vec::new();
    for line in text.lines() {
        let is_table = sources.files().any(|(id, _)| line.starts_with(&format!("{id} = ")));
        if is_table {
            continue;
        }
        let (own, place) = split_places(line);
        let link = place.map_or(0, |(number, start)| {
            let id = sources.files().map(|(id, _)| id).find(|id| id.to_string() == number);
            id.map_or(0, |id| line_in(sources, Span::new(id, start, start), file))
        });
        // The spans of an instruction with regions are after its last `}`. Its first line, which
        // ends with `{`, gets the same link.
        let closes = own.trim_start().starts_with('}');
        let begun = if closes { open.pop() } else { None };
        if let Some(begun) = begun {
            origins[begun] = link;
        }
        if own.ends_with('{') {
            open.push(begun.filter(|_| closes).unwrap_or(lines.len()));
        }
        lines.push(own.to_owned());
        origins.push(link);
    }
    StageText { name: name.into(), title: title.into(), lines, links: origins }
}

/// Splits a line of printed IR into the text before its spans and the outermost span: the id of its
/// file (`file0`) and the offset of its first byte.
fn split_places(line: &str) -> (&str, Option<(&str, u32)>) {
    let (mut own, mut outermost) = (line, None);
    while let Some((before, place)) = own.rsplit_once(" @") {
        let parsed = place.split_once(':').and_then(|(file, range)| {
            let (start, end) = range.split_once("..")?;
            end.parse::<u32>().ok()?;
            file.starts_with("file").then_some((file, start.parse().ok()?))
        });
        let Some(found) = parsed else { break };
        // The outermost span is the last one of a line.
        outermost = outermost.or(Some(found));
        own = before;
    }
    (own, outermost)
}

/// Links each `.loc` directive and each instruction of PTX to the source line of the last `.loc`.
///
/// The link is 0 for other lines of PTX, and for source lines of another file than `file`.
fn linked_ptx(ptx: &str, file: &str) -> StageText {
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let number = ptx.lines().find_map(|line| {
        let rest = line.trim_start().strip_prefix(".file ")?;
        (quoted(line)? == file).then(|| rest.split_whitespace().next().map(str::to_owned))?
    });
    let (mut lines, mut origins, mut current) = (Vec::new(), Vec::new(), 0);
    for line in ptx.lines() {
        let word = line.trim_start();
        let mut link = 0;
        if let Some(place) = word.strip_prefix(".loc ") {
            let mut parts = place.split_whitespace();
            let is_own = parts.next().map(str::to_owned) == number;
            current = parts.next().and_then(|line| line.parse().ok()).filter(|_| is_own).unwrap_or(0);
            link = current;
        } else if word.ends_with(';') && line.starts_with("    ") && !word.starts_with('.') {
            link = current;
        }
        lines.push(line.to_owned());
        origins.push(link);
    }
    StageText { name: Stage::Ptx.name().into(), title: "PTX".into(), lines, links: origins }
}

/// Describes the layouts of a program, and the accesses of warps to shared memory.
fn describe_layouts(program: &gpu_ir::Module) -> Json {
    let layout = |(id, layout): (gpu_ir::LayoutId, &Layout)| {
        let mut page = json!({
            "id": id.to_string(),
            "text": layout.to_string(),
            "shape": layout.output().shape()[..],
        });
        for input in Input::ALL {
            page[input.to_string()] = json!(layout.bases(input));
        }
        page
    };
    let mut accesses = Vec::new();
    let function = program.kernel();
    function.walk(function.entry, &mut |inst| {
        accesses.extend(SharedAccess::of(program, inst).iter().map(SharedAccess::describe));
    });
    let (memory, partitions) = shared_memory::describe(program);
    json!({
        "warps": program.header.num_warps,
        "memory": memory,
        "partitions": partitions,
        "layouts": program.header.layouts.iter().map(layout).collect::<Json>(),
        "accesses": accesses,
    })
}

struct SharedAccess {
    kind: &'static str,
    value: String,
    registers: Option<gpu_ir::LayoutId>,
    memory: gpu_ir::LayoutId,
    bits: u32,
    width: u32,
    cost: BankUse,
}

impl SharedAccess {
    /// Returns the accesses of an instruction to shared memory. An MMA makes up to two.
    fn of(program: &gpu_ir::Module, inst: tilewright_ir::Inst) -> Vec<Self> {
        let (function, layouts) = (program.kernel(), &program.header.layouts);
        let data = &function.insts[inst];
        let name = |value: tilewright_ir::Value| {
            function.values[value].name.as_deref().map_or_else(String::new, |name| format!("%{name}"))
        };
        let Op::Gpu(op) = &data.op else { return Vec::new() };
        let by_registers = |kind, memory: tilewright_ir::Value, value: tilewright_ir::Value| {
            let buffer = function.ty(memory).as_memory()?;
            let tile = function.ty(value).as_registers()?;
            let registers = function.ty(value).layout()?;
            let bits = element_bits(tile);
            let (held, stored): (&Layout, &Layout) = (layouts.get(registers), layouts.get(buffer.layout));
            let most = ACCESS_BITS / bits;
            let width = held.vector_in(stored).at_most(most).width();
            let cost = bank_use(stored, held, bits, most);
            let (registers, memory) = (Some(registers), buffer.layout);
            Some(Self { kind, value: name(value), registers, memory, bits, width, cost })
        };
        let by_matrices = |place: usize| {
            let memory = data.operands[place];
            let buffer = function.ty(memory).as_memory()?;
            let bits = element_bits(&buffer.tile());
            let stored = layouts.get(buffer.layout);
            let rank = stored.output().rank();
            let is_contiguous = |axis: &usize| {
                stored.bases(Input::Offset).first() == Some(&(1 << stored.output().shift(*axis)))
            };
            let column = (0..rank).find(is_contiguous).filter(|_| rank == 2)?;
            let cost = ldmatrix_bank_use(stored, bits, 1 - column);
            let (value, width) = (name(memory), ACCESS_BITS / bits);
            Some(Self { kind: "ldmatrix", value, registers: None, memory: buffer.layout, bits, width, cost })
        };
        let by_matrices_of = |memory: tilewright_ir::Value, value: tilewright_ir::Value| {
            let buffer = function.ty(memory).as_memory()?;
            let bits = element_bits(&buffer.tile());
            let held = layouts.get(function.ty(value).layout()?);
            let cost = matrix_bank_use(&held.matrix_access(layouts.get(buffer.layout), bits)?, bits);
            let (value, width) = (name(value), ACCESS_BITS / bits);
            Some(Self { kind: "ldmatrix", value, registers: None, memory: buffer.layout, bits, width, cost })
        };
        let found = match op {
            GpuOp::LocalStore {} => vec![by_registers("store", data.operands[0], data.operands[1])],
            GpuOp::LocalLoad { matrix: false } => {
                vec![by_registers("load", data.operands[0], data.results[0])]
            }
            GpuOp::LocalLoad { matrix: true } => vec![by_matrices_of(data.operands[0], data.results[0])],
            GpuOp::MmaSync { matrix_a, matrix_b, .. } => {
                vec![matrix_a.then(|| by_matrices(0)).flatten(), matrix_b.then(|| by_matrices(1)).flatten()]
            }
            // tidy: wildcard because the page shows the bank conflicts of only the ops above
            _ => Vec::new(),
        };
        found.into_iter().flatten().collect()
    }

    fn describe(&self) -> Json {
        json!({
            "kind": self.kind,
            "value": self.value,
            "registers": self.registers.map(|id| id.to_string()).unwrap_or_default(),
            "memory": self.memory.to_string(),
            "bits": self.bits,
            "width": self.width,
            "instructions": self.cost.instructions,
            "wavefronts": self.cost.wavefronts,
            "least": self.cost.least_wavefronts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_off() {
        let line = "  %0 = add %a, %b : int32[4]@L1 @file1:5..9 @file0:40..52";
        assert_eq!(split_places(line), ("  %0 = add %a, %b : int32[4]@L1", Some(("file0", 40))));
        assert_eq!(split_places("  yield_values %0"), ("  yield_values %0", None));
    }

    #[test]
    fn code_belongs_to_the_location_before_it() {
        let ptx = ".version 8.0\n{\n    .reg .b32 %r<2>;\n    ld.a %r0;\n    .loc 1 7 3\n    add %r1;\n$L:\n    .loc 2 9 1\n    mul %r1;\n}\n.file 1 \"k.py\"\n.file 2 \"other.py\"\n";
        assert_eq!(linked_ptx(ptx, "k.py").links, [0, 0, 0, 0, 7, 7, 0, 0, 0, 0, 0, 0]);
    }
}
