//! Optimizations of the code of one thread. Each pass is one file. A pass rewrites a listing, which
//! is the list of the statements of a kernel. `PASSES` lists the passes in order.
//!
//! `lower` emits code for each op independently. The passes merge equal instructions, and move
//! loop-invariant code out of loops. They also fold constants into the offsets of addresses, and
//! remove code without users. `regions.rs` finds loops and branches; `effects.rs` lists the
//! instructions that passes may move or remove.

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
    /// True if passes may move the statement, and may merge it with an equal statement. The new
    /// position may run more often than in the program (speculation).
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
    /// Inline assembly; the flag is true if the assembly does more than write its registers.
    Verbatim(Vec<Verbatim>, bool),
}

/// The code of a kernel while passes rewrite it, before it becomes the body of a [`Function`].
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// The statements, in order.
    pub lines: Vec<Line>,
    /// The size of each register in 32-bit words. The registers that passes create are at the end;
    /// [`declare`] adds them to the function.
    pub words: Vec<u8>,
    /// The number of labels, including those that passes create; [`declare`] adds these to the
    /// function.
    pub labels: usize,
    /// The largest number of 32-bit register words that are live at once. It is empty if it was not
    /// computed since the last pass.
    alive: OnceCell<u32>,
    /// The target, with its thresholds.
    target: GpuTarget,
}

impl Listing {
    /// Returns a listing of `lines`. `words` has the size of each register in 32-bit words;
    /// `labels` is the number of labels.
    pub fn new(lines: Vec<Line>, words: Vec<u8>, labels: usize, target: GpuTarget) -> Self {
        Self { lines, words, labels, alive: OnceCell::new(), target }
    }

    /// Returns the largest number of 32-bit register words that are live at once.
    fn alive(&self) -> u32 {
        *self.alive.get_or_init(|| pressure::words(self))
    }

    /// Reorders the lines: line `order[i]` moves to index `i`.
    fn reorder(&mut self, order: &[u32]) {
        // Swaps the line at each index to its new position, until the right line is at the index.
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

    /// Inserts each line of `new` before the line with the index that is paired with it. Removes
    /// the lines whose indices are in `left_out`. `new` must be sorted by index.
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
/// `address_folding`, `wide_products` and `pair_conversions` are first. They leave unused additions,
/// extensions and conversions, which `dead_code` removes before code motion. `value_numbering` follows code motion, and
/// precedes `reassociation`, which counts the readers of a register. For this count, equal terms
/// must be one register. `recomputation` and `sinking` lower the register pressure. `elect_region`
/// inserts jumps. `coalescing`, after which registers have several writes, is last.
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

/// Returns whether the assembler may spill: too many registers are live at once.
fn is_crowded(listing: &Listing) -> bool {
    listing.alive() > listing.target.tuning.crowded_registers
}

/// Returns whether the target converts two fp32 numbers to fp16 or bf16 in one instruction.
fn converts_pairs(listing: &Listing) -> bool {
    listing.target.features.has(Feature::MmaSyncWide)
}

/// Runs all passes. Returns whether more 32-bit register words are then live at once than
/// `Tuning::max_live_registers`. Above this limit, the assembler falls back to 32 registers and
/// spills the rest.
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

/// Runs the pass `name` on a function, with Hopper as its target. The function loses its comments,
/// pragmas and source locations. Returns false if there is no such pass.
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
    /// Returns the line of a parsed statement, or `None` for a comment, a source location or a
    /// pragma.
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

    /// Returns the instruction; none for a label or inline assembly.
    fn instruction(&self) -> Option<&Instruction> {
        match &self.kind {
            LineKind::Instruction(_, instruction) => Some(instruction),
            LineKind::Label(_) | LineKind::Verbatim(..) => None,
        }
    }

    /// Returns the instruction so that the caller can change it; `None` for a label or inline
    /// assembly.
    fn instruction_mut(&mut self) -> Option<&mut Instruction> {
        match &mut self.kind {
            LineKind::Instruction(_, instruction) => Some(instruction),
            LineKind::Label(_) | LineKind::Verbatim(..) => None,
        }
    }

    /// Calls `each` with every register of the line, first the register of the guard. `each` may
    /// replace the register.
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

    /// Calls `each` with every register of the line and its access, first the register of the
    /// guard.
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
