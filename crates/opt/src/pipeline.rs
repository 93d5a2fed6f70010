//! The list of passes, and the one loop that runs them.

use tilewright_ir::{FuncId, Function, Module, Pass, verify};

use crate::{canonicalize, cse, dce, inline, licm, narrowing, ranges};

/// The passes, in the order in which they run, again and again until none changes anything.
pub const PASSES: &[Pass<Function>] = &[
    Pass::reporting("canonicalize", canonicalize::run),
    Pass::reporting("cse", cse::run),
    Pass::reporting("licm", licm::run),
    Pass::reporting("dce", dce::run),
    Pass::reporting("ranges", ranges::run),
    Pass::reporting("narrowing", narrowing::run),
];

/// Each pass runs at most this often: the result is right after any number of runs, and good after three.
const MAX_ROUNDS: usize = 8;

/// How much is done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Level {
    /// Calls are inlined; nothing else.
    Inline,
    /// Everything.
    #[default]
    Full,
}

/// What [`optimize`] is asked for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Options {
    /// How much is done.
    pub level: Level,
}

/// Inlines all calls and runs the [`PASSES`]; afterwards the module holds the kernel alone, but for functions that are
/// marked `noinline` (and functions that call themselves): their calls stay, and so do they.
///
/// `dump` is called with the name of each pass that changed something and the module after it.
pub fn optimize(module: &mut Module, options: &Options, dump: &mut dyn FnMut(&str, &Module)) {
    check("the frontend", module);
    if inline::run(module) {
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
    // A call may have been dead.
    if module.functions.len() > 1 {
        inline::remove_uncalled(module);
    }
}

fn run_passes(module: &mut Module, id: FuncId, dump: &mut dyn FnMut(&str, &Module)) {
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

/// Stops at the pass that broke the rules of the IR; in debug builds only.
fn check(pass: &str, module: &Module) {
    if cfg!(debug_assertions)
        && let Err(error) = verify(module)
    {
        panic!("{pass} broke the module: {error}\n{}", tilewright_ir::print(module, false));
    }
}
