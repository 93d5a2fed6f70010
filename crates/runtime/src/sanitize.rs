//! Launches that are sanitized, and what was found in them: kept until somebody takes it.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use tilewright_base::{Code, Color, Diagnostic, SourceMap, Span};
use tilewright_compiler::cpu_program_for_sanitizer;
use tilewright_cpu::{Finding, Interrupt, Launch, SanitizedProgram};
use tilewright_frontend::Failure;
pub(crate) use tilewright_sanitize::Check;
use tilewright_sanitize::Checks;

use crate::specialize::{CpuArguments, cpu_argument};
use crate::{Error, Grid, Handle, Knobs, Region, Value, num_threads};

/// Something that a check has found: once for each place in the source, whatever launches, programs and lanes show it.
#[derive(Clone, Debug)]
pub struct SanitizerReport {
    /// The check.
    pub check: Check,
    /// The code of the diagnostic.
    pub code: Code,
    /// The kernel.
    pub kernel: String,
    /// The first line of the diagnostic.
    pub message: String,
    /// The whole diagnostic, without colours.
    pub text: String,
    /// Where it stands.
    pub place: Option<SourcePlace>,
    /// The first program in which it was found.
    pub program: [u32; 3],
    /// The element of the tile, or the thread of a GPU; empty for a scalar.
    pub lane: Vec<u32>,
    /// The argument through which memory is accessed, and the element of it.
    pub element: Option<(String, i64)>,
    /// The other access of a race: where it stands, and its program.
    pub other: Option<(Option<SourcePlace>, [u32; 3])>,
    /// How often it was found.
    pub count: u64,
}

/// A place in a source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcePlace {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// What was found, and not taken yet.
struct Kept {
    reports: Vec<SanitizerReport>,
    /// How many are too many to be kept.
    dropped: u64,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept { reports: Vec::new(), dropped: 0 });

/// So many different findings are kept and printed; of any more only the number.
const MOST_REPORTS: usize = 100;

/// The checks of launches; `UNREAD` until the environment has been asked.
static ACTIVE: AtomicU8 = AtomicU8::new(UNREAD);
const UNREAD: u8 = u8::MAX;

/// Whether each finding is printed when it comes.
static IS_PRINTING: AtomicBool = AtomicBool::new(false);

/// The checks of launches from now on. Without any, this is all that a launch pays.
#[inline]
pub(crate) fn active() -> Checks {
    match ACTIVE.load(Ordering::Relaxed) {
        0 => Checks::NONE,
        UNREAD => read(),
        bits => Checks::from_bits(bits),
    }
}

#[cold]
fn read() -> Checks {
    let checks = Knobs::current().sanitize;
    ACTIVE.store(checks.bits(), Ordering::Relaxed);
    checks
}

/// Has the environment asked again.
pub(crate) fn forget_checks() {
    ACTIVE.store(UNREAD, Ordering::Relaxed);
}

/// The checks of launches from now on.
pub fn sanitizer_checks() -> Checks {
    active()
}

/// Has findings printed to stderr when they come, or not.
pub fn print_findings(is_printing: bool) {
    IS_PRINTING.store(is_printing, Ordering::Relaxed);
}

/// What was found since the last time that this was asked, if it is to be forgotten; and how many findings more there were than
/// are kept.
pub fn sanitizer_reports(is_taken: bool) -> (Vec<SanitizerReport>, u64) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let found = (kept.reports.clone(), kept.dropped);
    if is_taken {
        kept.reports.clear();
        kept.dropped = 0;
    }
    found
}

impl Handle {
    /// As [`launch`](Handle::launch) on the CPU, sanitized. A finding does not end the launch.
    pub(crate) fn launch_sanitized(
        &self,
        grid: Grid,
        arguments: &[Value<'_>],
        foreign: &[Region<'_>],
        interrupt: Interrupt<'_>,
        checks: Checks,
    ) -> Result<(), Error> {
        if grid.is_empty() {
            return Ok(());
        }
        let program = self.sanitized_program()?;
        let mut passed = CpuArguments::new();
        self.pass(arguments, &mut |element, value| {
            passed.push(cpu_argument(element, value)?);
            Some(())
        })?;
        let launch =
            Launch { grid: grid.extents(), arguments: &passed, foreign, threads: num_threads(), interrupt };
        let (outcome, findings) = program.launch(&launch, checks);
        let sources = program.program().sources();
        for finding in findings {
            keep(&self.compiled.name, finding, sources);
        }
        outcome.map_err(|diagnostic| Error::new(*diagnostic, SourceMap::clone(sources)))
    }

    pub(crate) fn sanitized_program(&self) -> Result<&SanitizedProgram, Error> {
        if let Some(program) = self.sanitized.get() {
            return Ok(program);
        }
        let module = &self.compiled.lowered;
        let program = cpu_program_for_sanitizer(module).map_err(|diagnostic| {
            let sources = SourceMap::clone(&module.sources);
            Error::Diagnostics(Box::new(Failure { diagnostics: vec![*diagnostic], sources }))
        })?;
        Ok(self.sanitized.get_or_init(|| Box::new(program)))
    }
}

/// Keeps a finding, and prints it if it is new.
pub(crate) fn keep(kernel: &str, finding: Finding, sources: &SourceMap) {
    let Finding { check, diagnostic, program, lane, element, other, count, occurrences: _ } = finding;
    let place = diagnostic.primary.as_ref().map(|label| place_of(sources, label.span));
    let other = other.map(|other| (other.span.map(|span| place_of(sources, span)), other.program));
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let is_same = |known: &&mut SanitizerReport| {
        let places = |other: &Option<(Option<SourcePlace>, [u32; 3])>| other.clone().map(|(place, _)| place);
        known.code == diagnostic.code
            && known.kernel == kernel
            && known.place == place
            && places(&known.other) == places(&other)
    };
    if let Some(known) = kept.reports.iter_mut().find(is_same) {
        known.count += count;
        return;
    }
    if kept.reports.len() >= MOST_REPORTS {
        kept.dropped += 1;
        return;
    }
    let Diagnostic { code, ref message, .. } = diagnostic;
    let (message, kernel) = (message.clone(), kernel.to_owned());
    let text = diagnostic.render(sources, Color::Never);
    kept.reports.push(SanitizerReport {
        check,
        code,
        kernel,
        message,
        text,
        place,
        program,
        lane,
        element,
        other,
        count,
    });
    drop(kept);
    if IS_PRINTING.load(Ordering::Relaxed) {
        let color = if std::io::stderr().is_terminal() { Color::Always } else { Color::Never };
        eprintln!("{}\n", diagnostic.render(sources, color));
    }
}

/// A place in a source file.
pub(crate) fn place_of(sources: &SourceMap, span: Span) -> SourcePlace {
    let file = sources.file(span.file);
    let (line, column) = file.line_column(span.start);
    SourcePlace { file: file.name.clone(), line, column }
}
