//! The stages of a kernel's path that can be printed.

use crate::Target;

/// A stage of a kernel: a representation that can be printed.
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
    /// Tile IR with the decisions of the GPU path about each value.
    Gpu,
    /// The assembly of a GPU.
    Ptx,
    /// Its machine code. Not the compiler but an assembler makes it, if there is one.
    Cubin,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: &[Stage] =
        &[Stage::Ast, Stage::Ir, Stage::Opt, Stage::Cpu, Stage::Gpu, Stage::Ptx, Stage::Cubin];

    /// Returns the stages for which the compiler makes text for a target, in order.
    pub fn of(target: Target) -> &'static [Stage] {
        match target {
            Target::Cpu => &[Stage::Ast, Stage::Ir, Stage::Opt, Stage::Cpu],
            Target::Gpu(_) => &[Stage::Ast, Stage::Ir, Stage::Opt, Stage::Gpu, Stage::Ptx],
        }
    }

    /// Returns the name, which is also the key in a handle's `asm` and the extension of a dumped
    /// file.
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

    /// Returns the stage with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|stage| stage.name() == name)
    }
}

/// The function that is called with each stage. The text is only made if it calls its second
/// argument.
pub type DumpHook<'a> = dyn FnMut(Stage, &dyn Fn() -> String) + 'a;
