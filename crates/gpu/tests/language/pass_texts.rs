//! Runs `tests/gpu/*.gpu`: compares texts after passes with expected texts.
//!
//! Each step of a case is a pass. The first step may also read tile IR:
//!
//! - `assign(sm_80, 4)` assigns layouts for a target and a number of warps. A third argument is the
//!   number of pipeline stages.
//! - `assign_for_launches(sm_90, 4)` may also request tensor maps. The further argument
//!   `without p2 written` or `without p0 read` excludes the tensor map of this access.
//! - `divide(2)`, the only step, returns the tile IR of each of two blocks.
//!
//! If a pass rejects a program, the expected text is its diagnostic.

use tilewright_base::Diagnostic;
use tilewright_gpu::{EXPLICIT_PASSES, Launcher, PARTS, PASSES, Refusal, assign_layouts_for, divide};
use tilewright_gpu_ir::GpuTarget;
use tilewright_gpu_ir::{Gpu, TensorAccess};
use tilewright_ir::{parse, parse_dialect, print, verify};
use tilewright_opt::{Options, optimize};
use tilewright_testkit::run_text_cases;

use crate::{Program, text};

#[test]
fn files() {
    run_text_cases("tests/gpu", "gpu", 6, &run);
}

fn run(steps: &[&str], input: &str) -> Result<String, String> {
    let first = |name| steps.first().and_then(|step| step.strip_prefix(name)?.strip_suffix(')'));
    if let Some(blocks) = first("divide(") {
        return divide_kernel(blocks, input);
    }
    let for_launches = first("assign_for_launches(");
    let assign = first("assign(").or(for_launches);
    let launcher = Launcher {
        makes_tensor_maps: for_launches.is_some(),
        without: &[],
        adds_warps: for_launches.is_some(),
        cluster: 1,
    };
    let assigned_or_parsed = match assign {
        Some(arguments) => assign_layouts(arguments, launcher, input)?,
        None => Ok(parse_dialect::<Gpu>(input).map_err(|error| error.to_string())?),
    };
    let mut program = match assigned_or_parsed {
        Ok(program) => program,
        Err(diagnostic) => return Ok(describe(&diagnostic)),
    };
    for step in steps.iter().skip(usize::from(assign.is_some())) {
        let pass = PASSES
            .iter()
            .chain(EXPLICIT_PASSES)
            .chain(PARTS)
            .find(|pass| pass.name == *step)
            .ok_or("the pass does not exist")?;
        if let Err(diagnostic) = pass.run(&mut program) {
            return Ok(describe(&diagnostic));
        }
        verify(&program).map_err(|error| format!("{error}\n{}", text(&program)))?;
    }
    let found = text(&program);
    let again = parse_dialect::<Gpu>(&found).map_err(|error| format!("{error}\n{found}"))?;
    if text(&again) == found {
        Ok(found)
    } else {
        Err(format!("the parser reads the text as another program:\n{found}"))
    }
}

/// Assigns layouts; `arguments` is text such as `sm_80, 4`.
fn assign_layouts(
    arguments: &str,
    launcher: Launcher<'_>,
    input: &str,
) -> Result<Result<Program, Box<Diagnostic>>, String> {
    let mut parts = arguments.split(", without ");
    let arguments = parts.next().unwrap_or_default();
    let without =
        parts.map(parse_access).collect::<Option<Vec<_>>>().ok_or("an access is `p2 written`, `p0 read`")?;
    let launcher = Launcher { without: &without, ..launcher };
    let (target, warps) = arguments.split_once(", ").ok_or("assign takes a target and a number of warps")?;
    let target = GpuTarget::named(target).map_err(|error| error.to_string())?;
    let (warps, stages) = warps.split_once(", ").unwrap_or((warps, "0"));
    let warps = warps.parse().map_err(|_| "the number of warps is not a number")?;
    let stages = stages.parse().map_err(|_| "the number of stages is not a number")?;
    let module = parse(input).map_err(|error| error.to_string())?;
    Ok(assign_layouts_for(&module, target, warps, stages, launcher))
}

/// Returns the program of one block of a cluster.
fn divide_kernel(blocks: &str, input: &str) -> Result<String, String> {
    let module = parse(input).map_err(|error| error.to_string())?;
    let blocks = blocks.parse().map_err(|_| "divide takes a number of blocks")?;
    match divide(&module, blocks) {
        Ok(mut divided) => {
            optimize(&mut divided, &Options::default(), &mut |_, _| {});
            let text = print(&divided, false);
            verify(&divided).map_err(|error| format!("{error}\n{text}"))?;
            Ok(text)
        }
        Err(Refusal { inst, reason }) => {
            let name = inst.map_or("kernel", |inst| module.kernel().insts[inst].op.name());
            Ok(format!("{name}: {reason}\n"))
        }
    }
}

/// Parses an access such as `p2 written`.
fn parse_access(text: &str) -> Option<TensorAccess> {
    let (base, how) = text.strip_prefix('p')?.split_once(' ')?;
    matches!(how, "read" | "written").then_some(())?;
    Some(TensorAccess { base: base.parse().ok()?, is_written: how == "written" })
}

fn describe(diagnostic: &Diagnostic) -> String {
    let mut lines = vec![format!("{}: {}", diagnostic.code.name(), diagnostic.message)];
    lines.extend(diagnostic.notes.iter().chain(&diagnostic.hint).cloned());
    lines.join("\n") + "\n"
}
