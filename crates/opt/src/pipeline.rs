//! Lists the passes and runs them.

use tilewright_ir::{FuncId, Function, Module, Pass, verify};

use crate::{canonicalize, cse, dce, inline, licm, narrowing, ranges};

/// The passes in order. [`optimize`] repeats the list until no pass changes anything, at most
/// `MAX_ROUNDS` times.
pub const PASSES: &[Pass<Function>] = &[
    Pass::reporting("canonicalize", canonicalize::run),
    Pass::reporting("cse", cse::run),
    Pass::reporting("licm", licm::run),
    Pass::reporting("dce", dce::run),
    Pass::reporting("ranges", ranges::run),
    Pass::reporting("narrowing", narrowing::run),
];

/// The maximum number of runs of the list. Three usually find all simplifications.
const MAX_ROUNDS: usize = 8;

/// The optimization level.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Level {
    /// Only inlines calls.
    Inline,
    /// Runs all passes.
    #[default]
    Full,
}

/// The options of [`optimize`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Options {
    /// The optimization level.
    pub level: Level,
    /// True if calls of functions with [`scaled_dot`](Function::scaled_dot) stay, for a back end that
    /// may replace them by an instruction.
    pub keeps_scaled_dots: bool,
}

/// Inlines calls and, at [`Level::Full`], runs the [`PASSES`] on each function. Afterwards, the
/// module contains the kernel and the functions that it still calls. These are functions marked
/// `noinline`, recursive functions and, with `keeps_scaled_dots`, those with a `scaled_dot`. If
/// inlining would exceed the limits of `inline.rs`, no call is inlined, and all callees remain.
///
/// Calls `dump` after each pass that changed something, with the name of the pass and the module.
pub fn optimize(module: &mut Module, options: &Options, dump: &mut dyn FnMut(&str, &Module)) {
    check("the frontend", module);
    if inline::run(module, options.keeps_scaled_dots) {
        check("inline", module);
        dump("inline", module);
    }
    if options.level == Level::Inline {
        return;
    }
    let functions: Vec<FuncId> = module.functions.keys().collect();
    for id in functions {
        run_passes(module, id, dump);
    }
    // The passes may have removed the last call of a function.
    if module.functions.len() > 1 {
        inline::remove_uncalled(module);
    }
}

pub(crate) fn run_passes(module: &mut Module, id: FuncId, dump: &mut dyn FnMut(&str, &Module)) {
    let mut unchanged = 0;
    for pass in PASSES.iter().cycle().take(PASSES.len() * MAX_ROUNDS) {
        let Ok(is_changed) = pass.run(&mut module.functions[id]);
        if is_changed {
            unchanged = 0;
            check(pass.name, module);
            dump(pass.name, module);
        } else {
            unchanged += 1;
        }
        if unchanged == PASSES.len() {
            return;
        }
    }
}

/// Verifies the module in debug builds. Panics with the name of the pass.
pub(crate) fn check(pass: &str, module: &Module) {
    if cfg!(debug_assertions)
        && let Err(error) = verify(module)
    {
        panic!("{pass} broke the module: {error}\n{}", tilewright_ir::print(module, false));
    }
}
