//! Collects findings, and creates their diagnostics.

use std::sync::PoisonError;

use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic, Span};
use tilewright_sanitize::{Access, Check, Conflict, Mode};

use crate::compile::sanitize::CheckPoint;
use crate::program::Use;
use crate::run::argument::Argument;
use crate::run::grid::coordinates;
use crate::run::machine::Machine;
use crate::types::TileType;

use super::Checker;

/// The identity of a finding: the check, its check point, and the check point of the other access,
/// or `u32::MAX`. The last field is true if the other access is in the same program.
pub(super) type Key = (&'static str, u32, u32, bool);

/// A distinct finding of a check. Occurrences at other lanes and in other programs belong to the
/// same finding.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The check.
    pub check: Check,
    /// The diagnostic for the user.
    pub diagnostic: Diagnostic,
    /// The coordinates of the first program in which the finding occurred.
    pub program: [u32; 3],
    /// The coordinates of the first affected element of the tile. For a scalar, the list is empty.
    pub lane: Vec<u32>,
    /// The name of the accessed argument and the index of the accessed element. It is `None` if the
    /// finding is not about an access.
    pub element: Option<(String, i64)>,
    /// The earlier access of a race.
    pub other: Option<OtherAccess>,
    /// The number of executions of the step in which the finding occurred.
    pub count: u64,
    /// The first occurrences, up to a limit.
    pub occurrences: Vec<Occurrence>,
}

/// An occurrence of a finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Occurrence {
    /// The coordinates of the program.
    pub program: [u32; 3],
    /// The name of the argument and the index of the element.
    pub element: Option<(String, i64)>,
    /// For a race: the coordinates of the program of the other access.
    pub other: Option<[u32; 3]>,
}

/// The maximum number of recorded occurrences of a finding.
const MAX_OCCURRENCES: usize = 1024;

/// The earlier access of a race.
#[derive(Clone, Debug)]
pub struct OtherAccess {
    /// The source position of the access.
    pub span: Option<Span>,
    /// The coordinates of the program of the access.
    pub program: [u32; 3],
}

/// The context of a finding at the check point `number`.
pub(super) struct Report<'r, 'a> {
    pub machine: &'r Machine<'a>,
    pub checker: &'r Checker<'a>,
    pub number: u32,
    pub lane: SmallVec<[u32; 4]>,
}

pub(super) struct AccessReport<'r, 'a> {
    pub machine: &'r Machine<'a>,
    pub checker: &'r Checker<'a>,
    pub point: CheckPoint,
    pub pointer: Use,
    pub lane: SmallVec<[u32; 4]>,
    /// The addresses of the affected lanes. The first is that of `lane`.
    pub addresses: &'r [u64],
}

/// The prefix of library files. A finding there is located at the call of the library function.
const LIBRARY: &str = "tilewright/lib/";

impl Report<'_, '_> {
    /// Adds a finding, or an occurrence of an existing finding.
    pub fn add(&self, check: Check, key: Key, describe: impl FnOnce() -> Diagnostic) {
        self.add_with(check, key, (&mut std::iter::once(None), None), describe);
    }

    /// Adds a finding, or occurrences of one. The first element belongs to the first affected lane.
    fn add_with(
        &self,
        check: Check,
        key: Key,
        (elements, other): (&mut dyn Iterator<Item = Option<(String, i64)>>, Option<OtherAccess>),
        describe: impl FnOnce() -> Diagnostic,
    ) {
        let mut state = self.checker.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (program, racing) = (self.machine.id, other.as_ref().map(|other| other.program));
        let mut occurrences = elements.map(|element| Occurrence { program, element, other: racing });
        if let Some(&known) = state.known.get(&key) {
            let finding = &mut state.findings[known];
            finding.count += 1;
            let room = MAX_OCCURRENCES.saturating_sub(finding.occurrences.len());
            for occurrence in occurrences.take(room) {
                // A later iteration often repeats the occurrence.
                if finding.occurrences.last() != Some(&occurrence) {
                    finding.occurrences.push(occurrence);
                }
            }
            return;
        }
        let occurrences: Vec<Occurrence> = occurrences.by_ref().take(MAX_OCCURRENCES).collect();
        let place = match self.lane[..] {
            [] => format!("in program {}", text(self.machine.id)),
            _ => format!("in program {}, at element {:?} of the tile", text(self.machine.id), &self.lane[..]),
        };
        let index = state.findings.len();
        state.known.insert(key, index);
        state.findings.push(Finding {
            check,
            diagnostic: describe().note(place),
            program,
            lane: self.lane.to_vec(),
            element: occurrences.first().and_then(|first| first.element.clone()),
            other,
            count: 1,
            occurrences,
        });
    }

    /// Returns the source position of a check point and its call sites, innermost first. Omits
    /// positions in the library, unless all are there.
    fn chain(&self, number: u32) -> SmallVec<[Span; 2]> {
        let program = self.machine.program;
        let site = self.checker.shared.plan.sites[number as usize];
        let Some(all) = program.sites.get(site as usize) else { return SmallVec::new() };
        let is_own = |span: &&Span| !program.sources.file(span.file).name.starts_with(LIBRARY);
        let own: SmallVec<[Span; 2]> = all.iter().filter(is_own).copied().collect();
        if own.is_empty() { all.clone() } else { own }
    }

    /// Returns the innermost source position of a check point, outside of the library if possible.
    pub fn place_of(&self, number: u32) -> Option<Span> {
        self.chain(number).first().copied()
    }

    /// Returns a diagnostic at the check point, with labels at its call sites.
    pub fn located(&self, code: Code, message: impl Into<String>, label: &str) -> Diagnostic {
        let mut diagnostic = Diagnostic::new(code, message);
        for (depth, span) in self.chain(self.number).into_iter().enumerate() {
            diagnostic = if depth == 0 {
                diagnostic.primary(span, label)
            } else {
                diagnostic.secondary(span, "called from here")
            };
        }
        diagnostic
    }
}

impl<'r, 'a> AccessReport<'r, 'a> {
    fn report(&self) -> Report<'r, 'a> {
        let AccessReport { machine, checker, point, ref lane, .. } = *self;
        Report { machine, checker, number: point.number, lane: lane.clone() }
    }

    /// Returns the argument whose memory contains an address, and the index of the element.
    fn element(&self, address: u64) -> Option<(String, i64)> {
        let machine = self.machine;
        let of = |index: usize| match machine.arguments.get(index) {
            Some(Argument::Pointer { address: base, region }) => {
                let size = machine.type_of(self.pointer).pointee as i64;
                let is_inside = region.contains(address, 1);
                let offset = address.wrapping_sub(*base) as i64;
                is_inside
                    .then(|| (machine.program.parameters[index].name.to_string(), offset.div_euclid(size)))
            }
            Some(Argument::Scalar(_)) | None => None,
        };
        match machine.provenance(self.pointer).index() {
            Some(index) => of(index),
            None => (0..machine.arguments.len()).find_map(of),
        }
    }

    fn name(&self, address: u64) -> String {
        match self.element(address) {
            Some((name, index)) => format!("`{name}[{index}]`"),
            None => format!("the memory at {address:#x}"),
        }
    }

    fn elements(&self) -> impl Iterator<Item = Option<(String, i64)>> {
        self.addresses.iter().map(|&address| self.element(address))
    }
}

fn text(id: [u32; 3]) -> String {
    format!("({}, {}, {})", id[0], id[1], id[2])
}

/// Reports a load or store at an address that is not a multiple of the element's size.
pub(super) fn misaligned(access: &AccessReport<'_, '_>, address: u64, is_store: bool) {
    let size = access.machine.type_of(access.pointer).pointee;
    let name = access.name(address);
    let noun = if is_store { "store" } else { "load" };
    let report = access.report();
    let key = super::access::key(Check::Alignment, access.point);
    report.add_with(Check::Alignment, key, (&mut access.elements(), None), || {
        let label = format!("{name} begins {} bytes after a multiple of {size}", address % size as u64);
        report
            .located(Code::Misaligned, format!("misaligned {noun} of {size} bytes"), &label)
            .note("a misaligned access is a fault on a GPU")
            .hint("access elements where they begin: pass memory that is aligned to its elements")
    });
}

/// Reports a read of uninitialized memory.
pub(super) fn unwritten(access: &AccessReport<'_, '_>, address: u64) {
    let name = access.name(address);
    let report = access.report();
    let key = super::access::key(Check::Init, access.point);
    report.add_with(Check::Init, key, (&mut access.elements(), None), || {
        report
            .located(Code::Unwritten, format!("{name} is read, but was never written"), "reads it here")
            .note("the memory comes from `torch.empty` or a similar function, and nothing has been stored to it since")
            .hint("allocate it with `torch.zeros`, or store to it before")
    });
}

/// Reports two unordered accesses.
pub(super) fn race(access: &AccessReport<'_, '_>, conflict: &Conflict, now: Access, ty: &TileType) {
    let Conflict { first, first_lane, address, .. } = *conflict;
    let is_own = first.agent == now.agent;
    let report = access.report();
    let (grid, id) = (access.machine.grid, access.machine.id);
    let first_id = coordinates(grid, first.agent.into());
    let name = access.name(address);
    let key: Key = (Check::Race.name(), access.point.number, first.site, is_own);
    let first_span = report.chain(first.site).first().copied();
    let other = OtherAccess { span: first_span, program: first_id };
    report.add_with(Check::Race, key, (&mut access.elements(), Some(other)), || {
        let (does, did) = (verb(now.is_write, false), verb(first.is_write, true));
        let (who, whom) = if is_own {
            (
                "two lanes of a program".to_owned(),
                (lane_name(&access.lane), lane_name(&ty.lane(first_lane as usize))),
            )
        } else {
            let names = (format!("program {}", text(id)), format!("program {}", text(first_id)));
            ("two programs".to_owned(), names)
        };
        let is_same_step = is_own && first.site == now.site;
        let label = if is_same_step {
            format!("{} and {} {does} it here", whom.0, whom.1)
                .replace("writes", "write")
                .replace("reads", "read")
        } else {
            format!("{} {does} it here", whom.0)
        };
        let mut diagnostic = report.located(Code::Race, format!("{who} race for {name}"), &label);
        if let Some(span) = first_span.filter(|_| !is_same_step) {
            diagnostic = diagnostic.secondary(span, format!("{} {did} it here", whom.1));
        }
        advise(diagnostic, is_own, is_same_step, [&first, &now])
    });
}

fn lane_name(lane: &[u32]) -> String {
    match lane {
        [] => "the thread of a scalar".into(),
        _ => format!("element {lane:?}"),
    }
}

fn verb(is_write: bool, is_past: bool) -> &'static str {
    match (is_write, is_past) {
        (true, false) => "writes",
        (true, true) => "wrote",
        (false, _) => "reads",
    }
    .trim_end_matches(if !is_write && is_past { "s" } else { "" })
}

fn advise(diagnostic: Diagnostic, is_own: bool, is_same_step: bool, accesses: [&Access; 2]) -> Diagnostic {
    if is_same_step {
        return diagnostic
            .note("they write different values, and either may remain")
            .hint("give each element of the tile an address of its own, or mask all but one");
    }
    if is_own {
        return diagnostic
            .note("different threads of a GPU hold the elements of a tile, and no barrier separates the accesses")
            .hint("put `tl.debug_barrier()` between them, or write to other memory than is read");
    }
    let atomic = accesses.iter().filter(|access| access.mode != Mode::Plain).count();
    if atomic == 2 {
        return diagnostic
            .note("an operation with `scope=\"cta\"` is atomic only within its own program")
            .hint("leave `scope` at its default, `\"gpu\"`");
    }
    let diagnostic =
        diagnostic.note("programs of a grid run in any order, and nothing orders these accesses");
    diagnostic.hint(if atomic == 1 {
        "make both accesses atomic, or order them: release after the first (`tl.atomic_xchg(flag, 1, sem=\"release\")`) and \
         acquire before the second"
    } else if accesses.iter().all(|access| access.is_write) {
        "let each program write elements of its own, or combine with `tl.atomic_add` and the like"
    } else {
        "use an atomic operation (`tl.atomic_add`), let each program have elements of its own, or order the accesses: \
         release after the first and acquire before the second"
    })
}
