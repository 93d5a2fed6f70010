//! Compiles programs in the GPU dialect from the text that `--emit gpu` prints.

use tilewright_base::{Code, Diagnostic, SourceFile, SourceMap, Span};
use tilewright_frontend::Failure;
use tilewright_gpu::PASSES;
use tilewright_gpu_ir::{Gpu, Module};
use tilewright_ir::{VerifyError, verify};

use crate::{CompileError, Stage, compiled, with_stack};

/// Compiles a program in the GPU dialect from its text. Returns the text of a stage: [`Stage::Gpu`]
/// or [`Stage::Ptx`]. Runs all passes; a pass that has already run on the program changes nothing.
///
/// # Errors
/// Returns the errors of the parser and the verifier, with their positions in the text. Also
/// returns the errors of the passes and of the code generation.
pub fn compile_gpu_text(name: &str, text: &str, stage: Stage) -> Result<String, CompileError> {
    with_stack(|| {
        let mut program = parse(name, text)?;
        for pass in PASSES {
            pass.run(&mut program).map_err(|diagnostic| failure(*diagnostic, &program))?;
            // A pass may make a program invalid that no sequence of passes produces.
            verify(&program).map_err(|error| failure(broken(pass.name, &error), &program))?;
        }
        if stage == Stage::Gpu {
            return Ok(tilewright_ir::print(&program, false));
        }
        compiled::ptx(&program, None).map_err(|diagnostic| failure(*diagnostic, &program))
    })
}

fn parse(name: &str, text: &str) -> Result<Module, CompileError> {
    tilewright_ir::parse_dialect::<Gpu>(text).map_err(|error| {
        let mut sources = SourceMap::default();
        let lines = text.split_inclusive('\n').take(error.line as usize - 1);
        let line_start = lines.map(str::len).sum::<usize>();
        let within = text[line_start..].chars().take(error.column as usize - 1);
        let start = line_start + within.map(char::len_utf8).sum::<usize>();
        let file = sources.add(SourceFile::new(name, text));
        let span = Span::new(file, start as u32, (start + 1).min(text.len()) as u32);
        let diagnostic = Diagnostic::new(Code::MalformedIr, error.message.clone()).primary(span, "");
        CompileError::Kernel(Box::new(Failure { diagnostics: vec![diagnostic], sources }))
    })
}

fn broken(pass: &str, error: &VerifyError) -> Diagnostic {
    Diagnostic::new(Code::MalformedIr, format!("after the pass `{pass}`, the program breaks a rule: {error}"))
        .note("the text satisfies the rules, but earlier passes never produce such a program")
        .hint("compare it with `--emit gpu` of a similar kernel")
}

fn failure(diagnostic: Diagnostic, program: &Module) -> CompileError {
    let sources = SourceMap::clone(&program.sources);
    CompileError::Kernel(Box::new(Failure { diagnostics: vec![diagnostic], sources }))
}
