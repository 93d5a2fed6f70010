//! The stages of a kernel's path that can be looked at.

use crate::Target;

/// A form that a kernel passes through.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// The syntax tree of the kernel's source.
    Ast,
    /// Typed tile IR as the frontend makes it.
    Ir,
    /// Tile IR after the passes.
    Opt,
    /// The steps that the CPU executes.
    Cpu,
    /// Tile IR with what the GPU path has decided about each value.
    Gpu,
    /// The assembly of a GPU.
    Ptx,
    /// Its machine code. The compiler does not make it: an assembler does, where there is one.
    Cubin,
}

impl Stage {
    /// Every stage, in the order of the path.
    pub const ALL: &[Stage] =
        &[Stage::Ast, Stage::Ir, Stage::Opt, Stage::Cpu, Stage::Gpu, Stage::Ptx, Stage::Cubin];

    /// The stages that the compiler makes text of for a target, in order.
    pub fn of(target: Target) -> &'static [Stage] {
        match target {
            Target::Cpu => &[Stage::Ast, Stage::Ir, Stage::Opt, Stage::Cpu],
            Target::Gpu(_) => &[Stage::Ast, Stage::Ir, Stage::Opt, Stage::Gpu, Stage::Ptx],
        }
    }

    /// The name, which is also the key in a handle's `asm` and the extension of a dumped file.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Ast => "ast",
            Stage::Ir => "ir",
            Stage::Opt => "opt",
            Stage::Cpu => "cpu",
            Stage::Gpu => "gpu",
            Stage::Ptx => "ptx",
            Stage::Cubin => "cubin",
        }
    }

    /// The stage with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|stage| stage.name() == name)
    }
}

/// The function that is called with each stage. The text is made only if it calls the function that
/// it gets.
pub type DumpHook<'a> = dyn FnMut(Stage, &dyn Fn() -> String) + 'a;
