//! Runs and checks inline assembly without a GPU.
//!
//! The CPU's executor runs the text in the simulator. A compilation for a GPU parses the text, so
//! that errors appear before an assembler reads it. Both insert the text into a kernel, in
//! which one thread runs it for each run. The operands are words of memory.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tilewright_base::memory::Region;
use tilewright_base::{Code, Diagnostic};
use tilewright_cpu::{Assembler, Assembly, AssemblyCode, AssemblyError, AssemblyFault};
use tilewright_ir::{AsmInput, AsmPiece, AsmRegister, AsmTemplate, Function, Inst, Module, Op};
use tilewright_ptx::isa::{self, ParseError, ParseErrorKind};
use tilewright_sim::{FaultKind, Launch, LoadError, SimTarget, Simulator};

/// The PTX target of the kernel that contains the inline assembly.
const TARGET: &str = "sm_90a";
const KERNEL: &str = "inline_assembly";
/// The maximum number of threads of a block of the kernel.
const THREADS: u32 = 128;

/// Runs inline assembly for the CPU's executor in the GPU simulator.
pub(crate) struct SimulatedAssembler;

/// Inline assembly in a kernel that the simulator has loaded.
#[derive(Debug)]
struct SimulatedAssembly {
    module: tilewright_sim::LoadedModule,
}

impl Assembler for SimulatedAssembler {
    fn assemble(&self, code: &AssemblyCode<'_>) -> Result<Arc<dyn Assembly>, AssemblyError> {
        let template = AsmTemplate::parse(code.text, code.constraints)
            .map_err(|error| AssemblyError::Wrong(error.to_string()))?;
        let (text, first) = kernel(&template);
        let target = SimTarget::new(TARGET).expect("the simulator knows the target");
        let module = Simulator::new(target).load(&text).map_err(|error| match error {
            LoadError::Parse(error) if is_mistake(&error) => {
                AssemblyError::Wrong(described(&error, &text, first))
            }
            LoadError::Parse(error) => AssemblyError::Unknown(described(&error, &text, first)),
            LoadError::Refused(misuse, _) => {
                AssemblyError::Unknown(in_line(misuse.line, &misuse.message, &text, first))
            }
            other => AssemblyError::Unknown(other.to_string()),
        })?;
        Ok(Arc::new(SimulatedAssembly { module }))
    }
}

impl Assembly for SimulatedAssembly {
    fn run(
        &self,
        runs: usize,
        words: &mut [u64],
        regions: &[Region<'_>],
        stop: &AtomicBool,
    ) -> Result<(), AssemblyFault> {
        let own = Region::of(bytemuck::cast_slice_mut(words));
        let mut parameters = own.address().to_le_bytes().to_vec();
        parameters.extend((runs as u32).to_le_bytes());
        let regions: Vec<Region<'_>> = std::iter::once(own).chain(regions.iter().copied()).collect();
        // A thread without a run would return early, and miss a barrier in the text.
        let threads = (runs as u32).min(THREADS);
        let grid = [(runs as u32).div_ceil(threads), 1, 1];
        let mut launch = Launch::new(KERNEL, grid, [threads, 1, 1], &parameters, &regions);
        launch.interrupt = Some(stop);
        self.module.launch(&launch).map(|_| ()).map_err(|fault| AssemblyFault {
            is_out_of_bounds: matches!(fault.kind, FaultKind::OutOfBounds { .. }),
            message: match &fault.instruction {
                Some(instruction) => format!("`{instruction}`: {}", fault.kind),
                None => fault.kind.to_string(),
            },
        })
    }
}

/// Returns the first error of the inline assembly in a module. Ignores unknown instructions.
pub(crate) fn check(module: &Module) -> Result<(), Box<Diagnostic>> {
    for function in module.functions.values() {
        let mut found = Ok(());
        function.walk(function.entry, &mut |inst| {
            if found.is_ok() {
                found = check_inst(function, inst);
            }
        });
        found?;
    }
    Ok(())
}

fn check_inst(function: &Function, inst: Inst) -> Result<(), Box<Diagnostic>> {
    let (Op::InlineAsm { text, constraints, .. } | Op::VolatileAsm { text, constraints, .. }) =
        &function.insts[inst].op
    else {
        return Ok(());
    };
    let template = AsmTemplate::parse(text, constraints).expect("the type rule checks it");
    let (text, first) = kernel(&template);
    let Err(error) = isa::parse(&text) else { return Ok(()) };
    if !is_mistake(&error) {
        return Ok(());
    }
    let message = format!("this inline assembly is not PTX: {}", described(&error, &text, first));
    let mut diagnostic = Diagnostic::new(Code::InvalidValue, message);
    for (index, span) in function.call_chain(inst).into_iter().enumerate() {
        diagnostic =
            if index == 0 { diagnostic.primary(span, "") } else { diagnostic.secondary(span, "called here") };
    }
    Err(Box::new(diagnostic))
}

/// Returns whether the text is certainly wrong. An unknown instruction or modifier may be correct.
fn is_mistake(error: &ParseError) -> bool {
    !matches!(
        error.kind,
        ParseErrorKind::UnknownInstruction(_)
            | ParseErrorKind::Modifier { .. }
            | ParseErrorKind::Unsupported(_)
    )
}

/// Returns the message of an error, with the line of the inline text.
fn described(error: &ParseError, text: &str, first: u32) -> String {
    in_line(error.line, &error.kind.to_string(), text, first)
}

/// Adds the line of the inline text to a message. `line` is a line of the kernel `text`, and the
/// inline text begins at line `first`.
fn in_line(line: u32, message: &str, text: &str, first: u32) -> String {
    let shown = text.lines().nth((line as usize).saturating_sub(1)).unwrap_or_default().trim();
    match line.checked_sub(first) {
        Some(number) if shown != CLOSE => format!("line {}, `{shown}`: {message}", number + 1),
        _ => format!("end of the text: {message}"),
    }
}

/// The line that follows the inline text in the kernel.
const CLOSE: &str = "} // end of the text";

/// Returns the kernel that runs the inline text once in each thread, and the line at which the text
/// begins.
///
/// Its parameters are the address of the operands and the number of runs. Each operand is an array
/// with one 64-bit word for each run. The outputs precede the inputs.
fn kernel(template: &AsmTemplate) -> (String, u32) {
    let mut out = format!(
        ".version 8.7\n.target {TARGET}\n.address_size 64\n\
         .visible .entry {KERNEL}(.param .u64 words_param, .param .u32 runs_param)\n{{\n\
         .reg .pred %tw_p;\n.reg .b32 %tw_r<5>;\n.reg .b64 %tw_rd<6>;\n"
    );
    for (number, register) in template.outputs.iter().enumerate() {
        let _ = writeln!(out, ".reg {} %tw_o{number};", register_type(*register));
    }
    for (number, input) in template.inputs.iter().enumerate() {
        if let AsmInput::Own(register) = input {
            let _ = writeln!(out, ".reg {} %tw_i{number};", register_type(*register));
        }
    }
    out.push_str(
        "ld.param.u64 %tw_rd0, [words_param];\nld.param.u32 %tw_r0, [runs_param];\n\
         mov.u32 %tw_r1, %tid.x;\nmov.u32 %tw_r2, %ctaid.x;\nmov.u32 %tw_r3, %ntid.x;\n\
         mad.lo.s32 %tw_r4, %tw_r2, %tw_r3, %tw_r1;\nsetp.ge.u32 %tw_p, %tw_r4, %tw_r0;\n@%tw_p ret;\n\
         mul.wide.u32 %tw_rd1, %tw_r4, 8;\nadd.s64 %tw_rd0, %tw_rd0, %tw_rd1;\n\
         mul.wide.u32 %tw_rd2, %tw_r0, 8;\n",
    );
    let _ = writeln!(out, "mul.lo.u64 %tw_rd3, %tw_rd2, {};", template.outputs.len());
    out.push_str("add.s64 %tw_rd3, %tw_rd0, %tw_rd3;\n");
    for number in 0..template.inputs.len() {
        let register = operand(template, template.outputs.len() + number);
        out.push_str("ld.global.u64 %tw_rd4, [%tw_rd3];\nadd.s64 %tw_rd3, %tw_rd3, %tw_rd2;\n");
        let _ = match template.input(number) {
            AsmRegister::Predicate => writeln!(out, "setp.ne.u64 {register}, %tw_rd4, 0;"),
            AsmRegister::Bits16 => writeln!(out, "cvt.u16.u64 {register}, %tw_rd4;"),
            AsmRegister::Bits32 => writeln!(out, "cvt.u32.u64 {register}, %tw_rd4;"),
            AsmRegister::Bits64 => writeln!(out, "mov.b64 {register}, %tw_rd4;"),
        };
    }
    out.push_str("{\n");
    let first = out.lines().count() as u32 + 1;
    for piece in &template.pieces {
        match piece {
            AsmPiece::Text(text) => out.push_str(text),
            AsmPiece::Operand(number) => out.push_str(&operand(template, *number)),
        }
    }
    let _ = writeln!(out, "\n{CLOSE}");
    for (number, register) in template.outputs.iter().enumerate() {
        let _ = match register {
            _ if !is_named(template, number) => writeln!(out, "mov.b64 %tw_rd4, 0;"),
            AsmRegister::Predicate => writeln!(out, "selp.u64 %tw_rd4, 1, 0, %tw_o{number};"),
            AsmRegister::Bits16 => writeln!(out, "cvt.u64.u16 %tw_rd4, %tw_o{number};"),
            AsmRegister::Bits32 => writeln!(out, "cvt.u64.u32 %tw_rd4, %tw_o{number};"),
            AsmRegister::Bits64 => writeln!(out, "mov.b64 %tw_rd4, %tw_o{number};"),
        };
        out.push_str("st.global.u64 [%tw_rd0], %tw_rd4;\nadd.s64 %tw_rd0, %tw_rd0, %tw_rd2;\n");
    }
    out.push_str("ret;\n}\n");
    (out, first)
}

/// Returns whether the inline assembly can write an output: the text names it, or an input is tied
/// to it. The kernel stores 0 for others.
fn is_named(template: &AsmTemplate, output: usize) -> bool {
    let tied = template.inputs.iter().any(|input| matches!(input, AsmInput::Tied(to) if *to == output));
    let in_text = |piece: &AsmPiece| matches!(piece, AsmPiece::Operand(number) if *number == output);
    tied || template.pieces.iter().any(in_text)
}

fn register_type(register: AsmRegister) -> &'static str {
    match register {
        AsmRegister::Predicate => ".pred",
        AsmRegister::Bits16 => ".b16",
        AsmRegister::Bits32 => ".b32",
        AsmRegister::Bits64 => ".b64",
    }
}

/// Returns the name of the register of an operand.
fn operand(template: &AsmTemplate, number: usize) -> String {
    match number.checked_sub(template.outputs.len()) {
        None => format!("%tw_o{number}"),
        Some(input) => match template.inputs[input] {
            AsmInput::Own(_) => format!("%tw_i{input}"),
            AsmInput::Tied(output) => format!("%tw_o{output}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use tilewright_ir::{Dtype, Element};

    use super::*;

    fn assemble(text: &str, constraints: &str) -> Result<Arc<dyn Assembly>, AssemblyError> {
        let code = AssemblyCode {
            text,
            constraints,
            results: &[],
            arguments: &[Element::Pointer(Dtype::I32)],
            pack: 1,
        };
        SimulatedAssembler.assemble(&code)
    }

    #[test]
    fn every_run_has_its_words() {
        let add =
            assemble("{ .reg .b32 t; add.u32 t, $1, $2; mov.b32 $0, t; }", "=r,r,0").expect("it is PTX");
        let runs = 300;
        let mut words: Vec<u64> = (0..3 * runs).collect();
        add.run(runs as usize, &mut words, &[], &AtomicBool::new(false)).expect("it runs");
        for run in 0..runs {
            assert_eq!(words[run as usize], 3 * runs + 2 * run);
        }
    }

    #[test]
    fn a_barrier_is_passed_by_any_number_of_runs() {
        for (text, constraints) in [("bar.sync 0;", "=r"), ("bar.sync 0; mov.u32 $0, 0;", "=r")] {
            let barrier = assemble(text, constraints).expect("it is PTX");
            for runs in [1, 4, 32, 48, 128, 256] {
                let mut words = vec![7; runs];
                barrier.run(runs, &mut words, &[], &AtomicBool::new(false)).expect("it runs");
                assert_eq!(words, vec![0; runs]);
            }
        }
    }

    #[test]
    fn mistakes_say_their_line() {
        let error = assemble("mov.u32 $0, 1;\nmov.u32 $0, nothing;", "=r").unwrap_err();
        let message = "line 2, `mov.u32 %tw_o0, nothing;`: `nothing` is not declared";
        assert_eq!(error, AssemblyError::Wrong(message.into()));
        let AssemblyError::Wrong(message) = assemble("mov.u32 $0, 1", "=r").unwrap_err() else {
            panic!("it is wrong");
        };
        assert!(message.starts_with("end of the text: "), "{message}");
        let unknown = assemble("tcgen05.wait::ld.sync.aligned; mov.u32 $0, 1;", "=r");
        assert!(matches!(unknown, Err(AssemblyError::Unknown(_))), "{unknown:?}");
    }
}
