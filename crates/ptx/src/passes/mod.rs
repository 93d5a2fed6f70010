//! Optimizations of the code of one thread. Each pass is one file. A pass rewrites a listing, the
//! statements of a kernel. `PASSES` lists the passes in order.
//!
//! `lower` emits code for each op separately. Passes merge equal instructions, hoist invariant
//! ones, fold constants into addresses, and remove unused code. `regions.rs` finds loops and
//! branches, and `effects.rs` lists movable instructions.

mod address_folding;
mod coalescing;
mod dead_code;
mod effects;
mod elect_region;
mod licm;
mod pair_conversions;
mod pressure;
mod reassociation;
mod recomputation;
mod regions;
mod sinking;
mod value_numbering;
mod wide_products;

use std::cell::OnceCell;

use cranelift_entity::EntityRef;
use rustc_hash::FxHashSet;
use tilewright_gpu_ir::{Feature, GpuTarget};
use tilewright_ir as ir;
use tilewright_ir::{Pass, run_passes};

use crate::isa::{
    Access, Function, Instruction, Label, LabelId, Predicate, Register, RegisterId, ScalarType, Statement,
    StatementKind, Verbatim,
};

/// A statement with its source location.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The statement.
    pub kind: LineKind,
    /// The source location.
    pub location: Option<ir::Location>,
    /// True if passes may move the statement and merge it with an equal one. It may then run more
    /// often (speculation).
    pub is_pure: bool,
}

/// The kind of a statement.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are instructions")]
pub(crate) enum LineKind {
    /// A label.
    Label(LabelId),
    /// An instruction with its guard.
    Instruction(Option<Predicate>, Instruction),
    /// Inline assembly; the flag is true if it has other effects than register writes.
    Verbatim(Vec<Verbatim>, bool),
}

/// The code of a kernel while passes rewrite it.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// The statements, in order.
    pub lines: Vec<Line>,
    /// The size of each register in 32-bit words. [`declare`] adds registers that passes create,
    /// the last ones, to the function.
    pub words: Vec<u8>,
    /// The number of labels; [`declare`] adds those that passes create.
    pub labels: usize,
    /// The largest number of 32-bit register words that are live at once. It is empty if it was not
    /// computed since the last pass.
    alive: OnceCell<u32>,
    /// The target, with its thresholds.
    target: GpuTarget,
}

impl Listing {
    /// Returns a listing of `lines`. `words` has the size of each register in 32-bit words.
    pub fn new(lines: Vec<Line>, words: Vec<u8>, labels: usize, target: GpuTarget) -> Self {
        Self { lines, words, labels, alive: OnceCell::new(), target }
    }

    /// Returns the largest number of 32-bit register words that are live at once.
    fn alive(&self) -> u32 {
        *self.alive.get_or_init(|| pressure::words(self))
    }

    /// Reorders the lines: line `order[i]` moves to index `i`.
    fn reorder(&mut self, order: &[u32]) {
        // Swap the line at each index to its new position, until the right line is there.
        let mut places = vec![0; order.len()];
        for (place, line) in order.iter().enumerate() {
            places[*line as usize] = place as u32;
        }
        for line in 0..places.len() {
            while places[line] as usize != line {
                let place = places[line] as usize;
                self.lines.swap(line, place);
                places.swap(line, place);
            }
        }
    }

    /// Creates a register of `words` 32-bit words.
    fn register(&mut self, words: u8) -> RegisterId {
        let register = RegisterId::new(self.words.len());
        self.words.push(words);
        register
    }

    /// Inserts each line of `new` before the line with the paired index. Removes the lines in
    /// `left_out`. `new` must be sorted by index.
    fn insert(&mut self, new: Vec<(u32, Line)>, left_out: &FxHashSet<u32>) {
        let mut new = new.into_iter().peekable();
        let before = std::mem::take(&mut self.lines);
        self.lines.reserve(before.len() + new.len());
        for (index, line) in (0..).zip(before) {
            while let Some((_, line)) = new.next_if(|(place, _)| *place == index) {
                self.lines.push(line);
            }
            if !left_out.contains(&index) {
                self.lines.push(line);
            }
        }
    }
}

/// The passes, in order.
///
/// `address_folding`, `wide_products` and `pair_conversions` leave unused code, which `dead_code`
/// removes before code motion. `value_numbering` follows code motion. It makes equal terms one
/// register, whose readers `reassociation` counts. `recomputation` and `sinking` lower register
/// pressure, and `elect_region` inserts jumps. `coalescing` is last, because registers then have
/// several writes.
const PASSES: &[Pass<Listing>] = &[
    Pass::new("address_folding", address_folding::run),
    Pass::new("wide_products", wide_products::run),
    Pass::new("pair_conversions", pair_conversions::run).when(converts_pairs),
    Pass::new("dead_code", dead_code::run),
    Pass::new("licm", licm::run),
    Pass::new("value_numbering", value_numbering::run),
    Pass::new("reassociation", reassociation::run),
    Pass::new("recomputation", recomputation::run).when(is_crowded),
    Pass::new("sinking", sinking::run).when(is_crowded),
    Pass::new("elect_region", elect_region::run),
    Pass::new("coalescing", coalescing::run),
];

/// Returns whether too many registers are live, so the assembler may spill.
fn is_crowded(listing: &Listing) -> bool {
    listing.alive() > listing.target.tuning.crowded_registers
}

/// Returns whether the target converts two fp32 numbers to fp16 or bf16 in one instruction.
fn converts_pairs(listing: &Listing) -> bool {
    listing.target.features.has(Feature::MmaSyncWide)
}

/// Runs all passes. Returns whether the live words exceed `Tuning::max_live_registers`. Above it,
/// the assembler falls back to 32 registers and spills.
pub(crate) fn run(listing: &mut Listing) -> bool {
    let Ok(()) = run_passes(PASSES, listing, |_, listing| listing.alive = OnceCell::new());
    listing.alive() > listing.target.tuning.max_live_registers
}

/// Returns the size of each register of a function in 32-bit words. Predicates have size 0, because
/// they are in separate registers.
pub(crate) fn words_of(function: &Function) -> Vec<u8> {
    let words = |ty: ScalarType| match ty {
        ScalarType::Pred => 0,
        ScalarType::B64 | ScalarType::U64 | ScalarType::S64 | ScalarType::F64 => 2,
        ScalarType::B128 => 4,
        // tidy: wildcard because the others take one word, or a part of it
        _ => 1,
    };
    function.registers.values().map(|register| words(register.ty)).collect()
}

/// Runs the pass `name` on a function, with Hopper as its target. The function loses comments,
/// pragmas and source locations. Returns false without such a pass.
pub fn run_on(name: &str, function: &mut Function) -> bool {
    let Some(pass) = PASSES.iter().find(|pass| pass.name == name) else { return false };
    let target = GpuTarget::named("sm_90a").expect("`GpuTarget::ALL` has Hopper");
    let body = function.body.take().unwrap_or_default();
    let lines = body.into_iter().filter_map(|statement| Line::of_text(statement.kind)).collect();
    let mut listing = Listing::new(lines, words_of(function), function.labels.len(), target);
    let Ok(_) = pass.run(&mut listing);
    declare(function, &listing);
    function.body = Some(listing.lines.into_iter().map(Statement::from).collect());
    true
}

/// Adds to a function the labels and registers that passes have created.
pub(crate) fn declare(function: &mut Function, listing: &Listing) {
    for number in function.labels.len()..listing.labels {
        function.labels.push(Label { name: format!("$others_{number}").into() });
    }
    for (number, words) in listing.words.iter().enumerate().skip(function.registers.len()) {
        let ty = if *words == 2 { ScalarType::B64 } else { ScalarType::B32 };
        function.registers.push(Register { name: format!("%others{number}").into(), ty });
    }
}

impl Line {
    /// Returns a parsed statement's line; `None` for comments, locations and pragmas.
    fn of_text(kind: StatementKind) -> Option<Self> {
        let kind = match kind {
            StatementKind::Label(label) => LineKind::Label(label),
            StatementKind::Instruction { guard, instruction } => LineKind::Instruction(guard, instruction),
            // The effect of inline assembly is unknown.
            StatementKind::Verbatim(parts) => LineKind::Verbatim(parts, true),
            StatementKind::Location(_) | StatementKind::Pragma(_) | StatementKind::Comment(_) => return None,
        };
        let is_pure = match &kind {
            LineKind::Instruction(None, instruction) => effects::is_pure(instruction),
            LineKind::Instruction(Some(_), _) | LineKind::Label(_) | LineKind::Verbatim(..) => false,
        };
        Some(Self { kind, location: None, is_pure })
    }

    /// Returns the instruction; `None` for a label or inline assembly.
    fn instruction(&self) -> Option<&Instruction> {
        match &self.kind {
            LineKind::Instruction(_, instruction) => Some(instruction),
            LineKind::Label(_) | LineKind::Verbatim(..) => None,
        }
    }

    fn instruction_mut(&mut self) -> Option<&mut Instruction> {
        match &mut self.kind {
            LineKind::Instruction(_, instruction) => Some(instruction),
            LineKind::Label(_) | LineKind::Verbatim(..) => None,
        }
    }

    /// Calls `each` with every register of the line, the guard's first. `each` may replace the
    /// register.
    pub(crate) fn map_registers(&mut self, mut each: impl FnMut(&mut RegisterId, Access)) {
        match &mut self.kind {
            LineKind::Label(_) => {}
            LineKind::Instruction(guard, instruction) => {
                if let Some(guard) = guard {
                    each(&mut guard.register, Access::Read);
                }
                instruction.map_registers(each);
            }
            LineKind::Verbatim(parts, _) => {
                for part in parts {
                    if let Verbatim::Register(register, access) = part {
                        each(register, *access);
                    }
                }
            }
        }
    }

    /// Calls `each` with every register and its access, the guard's first.
    fn visit_registers(&self, mut each: impl FnMut(RegisterId, Access)) {
        match &self.kind {
            LineKind::Label(_) => {}
            LineKind::Instruction(guard, instruction) => {
                if let Some(guard) = guard {
                    each(guard.register, Access::Read);
                }
                instruction.visit_registers(each);
            }
            LineKind::Verbatim(parts, _) => {
                for part in parts {
                    if let Verbatim::Register(register, access) = part {
                        each(*register, *access);
                    }
                }
            }
        }
    }
}

impl From<Line> for Statement {
    fn from(line: Line) -> Self {
        let kind = match line.kind {
            LineKind::Label(label) => StatementKind::Label(label),
            LineKind::Instruction(guard, instruction) => StatementKind::Instruction { guard, instruction },
            LineKind::Verbatim(parts, _) => StatementKind::Verbatim(parts),
        };
        Self { kind, line: 0 }
    }
}
