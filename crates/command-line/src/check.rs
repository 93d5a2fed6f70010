//! Implements `tilewright check k.py::kernel --signature … --extent x_ptr=n`.

use std::ffi::OsString;
use std::fmt::Write;

use tilewright::Target;
use tilewright::compiler::bounds::{Expression, Statement};
use tilewright::runtime::{BoundsFinding, BoundsVerdict};

use crate::compile::{self, Specialization};
use crate::output::{self, Failure};

/// The help text about the options for sizes.
const STATEMENTS: &str = "\
Expressions are Python's, over the integer parameters and the compile-time values: + - * // % ( ), cdiv(a, b), min, max.
  --extent x_ptr=n --extent 'a_ptr=(M - 1) * stride_am + K'     the number of elements of a pointer's tensor
  --grid 'cdiv(n, BLOCK)' --grid 'cdiv(M, 64), cdiv(N, 64)'     the grid; without it, every grid
  --assume 'n >= 1' --assume 'stride_am == K and K % 64 == 0'   a condition on the arguments
The check assumes that no extent is negative and no signed integer wraps (`tilewright run --sanitize=overflow` finds those
that do).
The exit code is 1 if an access is out of bounds for some size, and with --strict also if one is not decided.";

/// Decide for each access of a kernel whether it is in bounds for every grid and every size
#[derive(clap::Args)]
#[command(after_help = format!("{}\n\n{}", compile::SIGNATURES, STATEMENTS))]
pub struct Arguments {
    /// The file and the kernel: `k.py::add_kernel`; or `k.py`, if it has one kernel
    kernel: OsString,
    #[command(flatten)]
    specialization: Specialization,
    /// The number of elements of a tensor, such as `x_ptr=n`; may be repeated
    #[arg(long = "extent", value_name = "TENSOR=EXPRESSION")]
    extents: Vec<String>,
    /// The extents of the grid, separated by commas
    #[arg(long, value_name = "EXPRESSIONS", allow_hyphen_values = true)]
    grid: Option<String>,
    /// A condition on the arguments, such as `n >= 1`; may be repeated
    #[arg(long = "assume", value_name = "CONDITION", allow_hyphen_values = true)]
    assumptions: Vec<String>,
    /// Fail if an access is not decided
    #[arg(long)]
    strict: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let statement = statement(arguments).map_err(Failure::Usage)?;
    let kernel = compile::kernel_of(&arguments.kernel)?;
    let handle = compile::compile(&kernel, &arguments.specialization, Target::Cpu)?;
    let report = handle.check_bounds(&statement).map_err(Failure::Usage)?;
    let (mut proved, mut refuted, mut undecided) = (0, 0, 0);
    let mut text = String::new();
    for finding in &report.findings {
        let verdict = match &finding.verdict {
            BoundsVerdict::Proved => {
                proved += 1;
                "in bounds for every size"
            }
            BoundsVerdict::Refuted(_) => {
                refuted += 1;
                "out of bounds for some sizes"
            }
            BoundsVerdict::Undecided(why) => {
                undecided += 1;
                &format!("not decided: {why}")
            }
        };
        let _ = writeln!(text, "{}{}: {verdict}", place(finding), finding.access);
    }
    let count = report.findings.len();
    let accesses = if count == 1 { "1 access" } else { &format!("{count} accesses") };
    let _ = writeln!(
        text,
        "{}: {accesses}: {proved} in bounds for every size, {refuted} out of bounds for some, {undecided} not decided",
        handle.compiled.name
    );
    output::print(&text)?;
    for finding in &report.findings {
        if let BoundsVerdict::Refuted(diagnostic) = &finding.verdict {
            output::tell(diagnostic, &report.sources);
        }
    }
    if refuted > 0 || arguments.strict && undecided > 0 { Err(Failure::Told) } else { Ok(()) }
}

fn place(finding: &BoundsFinding) -> String {
    let place = finding.place.as_ref();
    place.map_or_else(String::new, |place| format!("{}:{}:{}: ", place.file, place.line, place.column))
}

/// Parses the options `--extent`, `--grid` and `--assume`.
fn statement(arguments: &Arguments) -> Result<Statement, String> {
    let mut statement = Statement::default();
    for text in &arguments.extents {
        let (name, extent) = text
            .split_once('=')
            .ok_or_else(|| format!("an extent must be TENSOR=EXPRESSION, not '{text}'"))?;
        statement.extents.push((name.trim().to_owned(), Expression::parse(extent)?));
    }
    if let Some(grid) = &arguments.grid {
        statement.grid = grid_of(grid)?;
    }
    for text in &arguments.assumptions {
        statement.conditions.push(Expression::parse_condition(text)?);
    }
    Ok(statement)
}

/// Parses a grid: one to three expressions, separated by commas outside of parentheses.
fn grid_of(text: &str) -> Result<Vec<Expression>, String> {
    let (mut depth, mut start) = (0_i32, 0);
    let mut parts = Vec::new();
    for (place, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    let extents: Vec<Expression> = parts
        .iter()
        .filter(|part| !part.trim().is_empty())
        .map(|part| Expression::parse(part))
        .collect::<Result<_, _>>()?;
    if extents.is_empty() || extents.len() > 3 {
        return Err(format!("a grid has 1, 2 or 3 extents, and '{text}' has {}", extents.len()));
    }
    Ok(extents)
}
