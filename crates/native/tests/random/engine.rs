//! Defines the engines that execute a function.

use tilewright_native::ir::Function;
use tilewright_native::{Executable, Isa, Target, compile, interpret};

const LIMIT: u64 = 1_000_000;

/// A prepared function. Its argument is the address of its memory.
pub type Run = Box<dyn Fn(u64) -> Result<u64, String>>;

pub struct Engine {
    pub name: &'static str,
    pub prepare: fn(&Function) -> Result<Run, String>,
}

/// The engine whose results are the expected results.
pub const INTERPRETER: Engine = Engine { name: "interpreter", prepare: prepare_interpreter };

/// Returns the engines of this machine for this number of lanes.
pub fn engines(lanes: usize) -> Vec<Engine> {
    let machines = [
        (Isa::Avx512, Engine { name: "AVX-512", prepare: |function| prepare_machine(function, Isa::Avx512) }),
        (Isa::Avx2, Engine { name: "AVX2", prepare: |function| prepare_machine(function, Isa::Avx2) }),
        (Isa::Neon, Engine { name: "NEON", prepare: |function| prepare_machine(function, Isa::Neon) }),
    ];
    let can_run = |isa: Isa| Target::host_with(isa).is_some_and(|target| target.lanes() == lanes);
    machines.into_iter().filter(|&(isa, _)| can_run(isa)).map(|(_, engine)| engine).collect()
}

#[expect(unsafe_code, reason = "the function accesses memory by address")]
fn prepare_machine(function: &Function, isa: Isa) -> Result<Run, String> {
    let target = Target::host_with(isa).ok_or("the processor lacks the instructions")?;
    let code = compile(function, &target).map_err(|error| error.to_string())?;
    let executable = Executable::new(&code).map_err(|error| error.to_string())?;
    Ok(Box::new(move |argument| {
        let argument = std::ptr::with_exposed_provenance_mut(argument as usize);
        // SAFETY: the generated function accesses only the arena.
        Ok(unsafe { executable.call(argument) })
    }))
}

#[expect(clippy::unnecessary_wraps, reason = "other engines may fail")]
#[expect(unsafe_code, reason = "the function accesses memory by address")]
fn prepare_interpreter(function: &Function) -> Result<Run, String> {
    let function = function.clone();
    Ok(Box::new(move |argument| {
        // SAFETY: the generated function accesses only the arena.
        unsafe { interpret(&function, argument, LIMIT) }.map_err(|error| error.to_string())
    }))
}
