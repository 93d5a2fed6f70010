//! Runs launches with the checks of the sanitizer, and keeps the findings.

use std::cell::RefCell;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tilewright_base::output::take_printed;
use tilewright_base::{Code, Color, Diagnostic, SourceMap, Span};
use tilewright_compiler::cpu_program_for_sanitizer;
use tilewright_cpu::memory::{load_run, store_run};
use tilewright_cpu::{Finding, Interrupt, Launch, SanitizedProgram};
use tilewright_frontend::Failure;
pub(crate) use tilewright_sanitize::Check;
use tilewright_sanitize::{Checks, InitializedMemory, MEMORY};

use crate::checks;
use crate::specialize::{CpuArguments, cpu_argument};
use crate::{Error, Grid, Handle, Knobs, Region, Value};

/// A finding of a check. Findings of several launches, programs or lanes become one report if they
/// have the same kernel, diagnostic code and source position. A race has the positions of both
/// accesses.
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
    /// The whole diagnostic, without colors.
    pub text: String,
    /// The position of the access.
    pub place: Option<SourcePlace>,
    /// The first program with this finding.
    pub program: [u32; 3],
    /// On the CPU, the index of the element in its tile, empty for a scalar. In the simulator, the
    /// warp and, if it is known, the lane.
    pub lane: Vec<u32>,
    /// The argument through which memory is accessed, and the index of the accessed element.
    pub element: Option<(String, i64)>,
    /// The other access of a race: its position and its program.
    pub other: Option<(Option<SourcePlace>, [u32; 3])>,
    /// The number of occurrences.
    pub count: u64,
}

/// A position in a source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcePlace {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// The findings that have not been returned to the host program yet.
struct PendingFindings {
    reports: Vec<SanitizerReport>,
    /// The number of findings that were dropped because of [`MAX_REPORTS`].
    dropped: u64,
}

static PENDING: Mutex<PendingFindings> = Mutex::new(PendingFindings { reports: Vec::new(), dropped: 0 });

/// The maximum number of different findings that are kept. Further findings are only counted.
const MAX_REPORTS: usize = 100;

/// True if each new finding is printed at once.
static IS_PRINTING: AtomicBool = AtomicBool::new(false);

/// Returns the checks of a launch of this thread. For a launch without checks, the sanitizer costs
/// only this call.
#[inline]
pub(crate) fn active() -> Checks {
    checks::cached().unwrap_or_else(read)
}

/// Fails if the feature `sanitize` of the crate `tilewright` is off.
pub(crate) fn require_feature() -> Result<(), Error> {
    if cfg!(feature = "sanitize") {
        return Ok(());
    }
    let message = "the launch has checks of the sanitizer, which this program does not have";
    Err(Diagnostic::new(Code::NotOnThisDevice, message)
        .note("this program was built without the feature `sanitize` of tilewright")
        .hint("add `\"sanitize\"` to the features of tilewright in Cargo.toml")
        .into())
}

#[cold]
fn read() -> Checks {
    // The checks of [`with_checks`] belong to a thread, so they are not cached.
    let scopes = SCOPES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(checks) = SCOPE.with_borrow(|scope| scope.as_ref().map(|scope| scope.checks)) {
        return checks;
    }
    let checks = Knobs::current().sanitize;
    if *scopes == 0 {
        checks::cache(checks);
    }
    checks
}

/// The checks and the findings of the launches within [`with_checks`].
struct Scope {
    checks: Checks,
    kept: PendingFindings,
}

/// The number of running calls of [`with_checks`].
static SCOPES: Mutex<usize> = Mutex::new(0);

thread_local! {
    /// The scope of the innermost [`with_checks`] on this thread.
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

fn count_scope(change: impl FnOnce(usize) -> usize) {
    let mut scopes = SCOPES.lock().unwrap_or_else(PoisonError::into_inner);
    *scopes = change(*scopes);
    checks::forget();
}

/// Runs a function whose launches have these checks and no others. Returns the result of the
/// function, the findings, and the number of dropped findings.
pub fn with_checks<R>(checks: Checks, run: impl FnOnce() -> R) -> (R, Vec<SanitizerReport>, u64) {
    /// Restores the outer scope when it is dropped, even after a panic.
    struct End(Option<Scope>);
    impl Drop for End {
        fn drop(&mut self) {
            let outer = self.0.take();
            SCOPE.with_borrow_mut(|scope| *scope = outer);
            count_scope(|scopes| scopes - 1);
        }
    }
    let kept = PendingFindings { reports: Vec::new(), dropped: 0 };
    let outer = SCOPE.with_borrow_mut(|scope| scope.replace(Scope { checks, kept }));
    count_scope(|scopes| scopes + 1);
    let end = End(outer);
    let result = run();
    let found = SCOPE.with_borrow_mut(Option::take);
    drop(end);
    let PendingFindings { reports, dropped } =
        found.map_or(PendingFindings { reports: Vec::new(), dropped: 0 }, |scope| scope.kept);
    (result, reports, dropped)
}

/// Adds the findings that [`with_checks`] returned to the pending findings, for a caller that does
/// not use them itself.
pub fn keep_reports_of_launch(reports: Vec<SanitizerReport>, dropped: u64) {
    let mut kept = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    kept.reports.extend(reports);
    kept.dropped += dropped;
}

/// Returns the checks that launches of this thread make from now on.
pub fn sanitizer_checks() -> Checks {
    active()
}

/// Sets whether each new finding is printed to stderr at once.
pub fn print_findings(is_printing: bool) {
    IS_PRINTING.store(is_printing, Ordering::Relaxed);
}

/// Returns the pending findings, and the number of dropped findings. If `is_taken` is true, also
/// removes the findings and sets the number to 0.
pub fn sanitizer_reports(is_taken: bool) -> (Vec<SanitizerReport>, u64) {
    let mut kept = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let found = (kept.reports.clone(), kept.dropped);
    if is_taken {
        kept.reports.clear();
        kept.dropped = 0;
    }
    found
}

impl Handle {
    /// Launches the kernel on the CPU with these checks. A finding does not end the launch.
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
        let launch = Launch {
            grid: grid.extents(),
            arguments: &passed,
            foreign,
            threads: self.cpu_threads(),
            interrupt,
            padded: None,
            machine_code: false,
        };
        let (outcome, findings) = program.launch(&launch, checks);
        let sources = program.program().sources();
        for finding in findings {
            keep(&self.compiled.name, &finding, sources);
        }
        outcome.map_err(|diagnostic| Error::new(*diagnostic, SourceMap::clone(sources)))
    }

    /// Runs a kernel on the CPU before its launch in the simulator, and restores the memory. The
    /// checks `init`, `alignment`, `overflow` and `nan` need the ops of the kernel, not its PTX.
    pub(crate) fn check_meaning(
        &self,
        grid: Grid,
        (arguments, foreign): (&[Value<'_>], &[Region<'_>]),
        interrupt: Interrupt<'_>,
    ) -> Result<(), Error> {
        let checks = active().with_only(&[Check::Init, Check::Alignment, Check::Overflow, Check::Nan]);
        if checks.is_empty() {
            return Ok(());
        }
        let program = match self.sanitized_program() {
            Ok(program) if cfg!(feature = "cpu") => program,
            // There is no program without this feature.
            Ok(_) => return Ok(()),
            Err(error) => {
                let names = checks.to_string();
                eprintln!(
                    "warning: the checks {names} run a kernel on the CPU first, which `{}` cannot: they are left out\n{error}",
                    self.compiled.name
                );
                return Ok(());
            }
        };
        let mut passed = CpuArguments::new();
        let mut regions = foreign.to_vec();
        self.pass(arguments, &mut |element, value| {
            if let Value::Pointer(pointer) = value {
                regions.push(pointer.region);
            }
            passed.push(cpu_argument(element, value)?);
            Some(())
        })?;
        let before = Before::new(&regions);
        let launch = Launch {
            grid: grid.extents(),
            arguments: &passed,
            foreign,
            threads: self.cpu_threads(),
            interrupt,
            padded: None,
            machine_code: false,
        };
        // The run in the simulator prints the output and reports the error of the kernel.
        let ((outcome, findings), _) = take_printed(|| program.launch(&launch, checks));
        drop(before);
        let sources = program.program().sources();
        for finding in findings {
            // The simulator itself finds reads of unwritten memory.
            if finding.diagnostic.code != Code::Unwritten {
                keep(&self.compiled.name, &finding, sources);
            }
        }
        match outcome {
            Err(diagnostic) if diagnostic.code == Code::Interrupted => {
                Err(Error::new(*diagnostic, SourceMap::clone(sources)))
            }
            Ok(()) | Err(_) => Ok(()),
        }
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

/// A copy of the memory before a launch. Dropping the copy restores the memory.
struct Before<'a> {
    regions: Vec<(Region<'a>, Vec<u8>)>,
    written: InitializedMemory,
}

impl<'a> Before<'a> {
    fn new(regions: &[Region<'a>]) -> Self {
        let mut kept: Vec<(Region<'a>, Vec<u8>)> = Vec::new();
        for region in regions.iter().filter(|region| region.is_writable() && !region.is_empty()) {
            let is_known = |(known, _): &(Region<'a>, Vec<u8>)| {
                known.address() == region.address() && known.len() == region.len()
            };
            if kept.iter().any(is_known) {
                continue;
            }
            let mut bytes = vec![0; region.len()];
            if load_run(region, 1, region.address(), &mut bytes).is_ok() {
                kept.push((*region, bytes));
            }
        }
        Self { regions: kept, written: MEMORY.lock().unwrap_or_else(PoisonError::into_inner).clone() }
    }
}

impl Drop for Before<'_> {
    fn drop(&mut self) {
        for (region, bytes) in &self.regions {
            store_run(region, 1, region.address(), bytes, false)
                .expect("it was read before, and may be written");
        }
        *MEMORY.lock().unwrap_or_else(PoisonError::into_inner) = std::mem::take(&mut self.written);
    }
}

/// Keeps a finding. Outside of [`with_checks`], prints the finding if it is new and printing is on.
pub(crate) fn keep(kernel: &str, finding: &Finding, sources: &SourceMap) {
    let is_of_launch = SCOPE.with_borrow_mut(|scope| {
        let scope = scope.as_mut()?;
        add(&mut scope.kept, kernel, finding, sources);
        Some(())
    });
    if is_of_launch.is_some() {
        return;
    }
    let mut kept = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = add(&mut kept, kernel, finding, sources);
    drop(kept);
    if is_new && IS_PRINTING.load(Ordering::Relaxed) {
        let color = if std::io::stderr().is_terminal() { Color::Always } else { Color::Never };
        eprintln!("{}\n", finding.diagnostic.render(sources, color));
    }
}

/// Adds a finding if it is new and fewer than [`MAX_REPORTS`] are kept, or else counts it. Returns
/// whether it was added.
fn add(kept: &mut PendingFindings, kernel: &str, finding: &Finding, sources: &SourceMap) -> bool {
    let Finding { check, diagnostic, program, lane, element, other, count, occurrences: _ } = finding;
    let place = diagnostic.primary.as_ref().map(|label| place_of(sources, label.span));
    let other = other.as_ref().map(|other| (other.span.map(|span| place_of(sources, span)), other.program));
    let is_same = |known: &&mut SanitizerReport| {
        let places = |other: &Option<(Option<SourcePlace>, [u32; 3])>| other.clone().map(|(place, _)| place);
        known.code == diagnostic.code
            && known.kernel == kernel
            && known.place == place
            && places(&known.other) == places(&other)
    };
    if let Some(known) = kept.reports.iter_mut().find(is_same) {
        known.count += count;
        return false;
    }
    if kept.reports.len() >= MAX_REPORTS {
        kept.dropped += 1;
        return false;
    }
    kept.reports.push(SanitizerReport {
        check: *check,
        code: diagnostic.code,
        kernel: kernel.to_owned(),
        message: diagnostic.message.clone(),
        text: diagnostic.render(sources, Color::Never),
        place,
        program: *program,
        lane: lane.clone(),
        element: element.clone(),
        other,
        count: *count,
    });
    true
}

pub(crate) fn place_of(sources: &SourceMap, span: Span) -> SourcePlace {
    let file = sources.file(span.file);
    let (line, column) = file.line_column(span.start);
    SourcePlace { file: file.name.clone(), line, column }
}
