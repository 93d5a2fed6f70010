//! Optimizations of the code of one thread: passes from a listing to a listing, one file each.
//! `PASSES` lists them in order.
//!
//! `lower` emits code for each op independently. The passes find duplicates, loop-invariant code,
//! offsets of addresses and unused results. `regions.rs` finds loops and branches, `effects.rs`
//! lists the instructions that may be moved or removed.

mod address_folding;
mod dead_code;
mod effects;
mod elect_region;
mod licm;
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
use tilewright_gpu_ir::{HOPPER, Tuning};
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
    /// True if the statement may be executed speculatively, or once for two equal statements.
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
    /// Inline assembly, and whether it has an effect besides writing its registers.
    Verbatim(Vec<Verbatim>, bool),
}

/// The code of a kernel before it is a function of a module.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// The statements, in order.
    pub lines: Vec<Line>,
    /// The size of each register in 32-bit words. A pass may have made more registers than the
    /// function has.
    pub words: Vec<u8>,
    /// The number of labels. A pass may have made more labels than the function has.
    pub labels: usize,
    /// The largest number of 32-bit words that are live at once, if it was computed since the last
    /// pass.
    alive: OnceCell<u32>,
    /// The thresholds of the target.
    tuning: &'static Tuning,
}

impl Listing {
    /// Returns a listing of lines, with the words of their registers and the number of their
    /// labels.
    pub fn new(lines: Vec<Line>, words: Vec<u8>, labels: usize, tuning: &'static Tuning) -> Self {
        Self { lines, words, labels, alive: OnceCell::new(), tuning }
    }

    /// Returns the largest number of 32-bit words that are live at once.
    fn alive(&self) -> u32 {
        *self.alive.get_or_init(|| pressure::words(self))
    }

    /// Reorders the lines. `order` has the old index of each line in the new order.
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

    /// Returns a new register of this number of words.
    fn register(&mut self, words: u8) -> RegisterId {
        let register = RegisterId::new(self.words.len());
        self.words.push(words);
        register
    }

    /// Inserts each new line before the line at its index, and removes the lines `left_out`. The
    /// new lines are in ascending order of these indices.
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
/// Addresses and multiplications come first, since they leave unused additions and extensions. Dead
/// code is removed before code motion. Value numbering follows code motion and precedes
/// reassociation, which needs all readers of a term. Recomputation and sinking lower the register
/// pressure, and jumps are inserted last.
const PASSES: &[Pass<Listing>] = &[
    Pass::new("address_folding", address_folding::run),
    Pass::new("wide_products", wide_products::run),
    Pass::new("dead_code", dead_code::run),
    Pass::new("licm", licm::run),
    Pass::new("value_numbering", value_numbering::run),
    Pass::new("reassociation", reassociation::run),
    Pass::new("recomputation", recomputation::run).when(is_crowded),
    Pass::new("sinking", sinking::run).when(is_crowded),
    Pass::new("elect_region", elect_region::run),
];

/// Returns whether the assembler may spill: too many registers are live at once.
fn is_crowded(listing: &Listing) -> bool {
    listing.alive() > listing.tuning.crowded_registers
}

/// Runs all passes. Returns whether far more registers are live at once than a thread has.
pub(crate) fn run(listing: &mut Listing) -> bool {
    let Ok(()) = run_passes(PASSES, listing, |_, listing| listing.alive = OnceCell::new());
    listing.alive() > listing.tuning.max_live_registers
}

/// Returns the size of each register of a function in 32-bit words. Predicates have size 0: they
/// are in separate registers.
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

/// Runs the pass of this name on a function, which loses comments and source locations. Returns
/// false if there is no such pass.
pub fn run_on(name: &str, function: &mut Function) -> bool {
    let Some(pass) = PASSES.iter().find(|pass| pass.name == name) else { return false };
    let body = function.body.take().unwrap_or_default();
    let lines = body.into_iter().filter_map(|statement| Line::of_text(statement.kind)).collect();
    let mut listing = Listing::new(lines, words_of(function), function.labels.len(), &HOPPER);
    let Ok(_) = pass.run(&mut listing);
    declare(function, &listing);
    function.body = Some(listing.lines.into_iter().map(Statement::from).collect());
    true
}

/// Declares the labels and registers that passes have made.
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
    /// Returns the line of a parsed statement, or `None` for a comment or directive.
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

    /// Returns the instruction to be changed; none for a label or inline assembly.
    fn instruction_mut(&mut self) -> Option<&mut Instruction> {
        match &mut self.kind {
            LineKind::Instruction(_, instruction) => Some(instruction),
            LineKind::Label(_) | LineKind::Verbatim(..) => None,
        }
    }

    /// Calls back with each register, that of the guard first, to replace it.
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

    /// Calls back with each register, including that of the guard, and its access.
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
