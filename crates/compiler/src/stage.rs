//! Defines the stages of a compilation that can be printed.

use crate::Target;

/// A stage of a compilation: a representation of the kernel that can be printed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// The syntax tree of the kernel's source.
    Ast,
    /// Typed tile IR, as the frontend emits it.
    Ir,
    /// Tile IR after the passes.
    Opt,
    /// The steps that the CPU executes.
    Cpu,
    /// The machine code of the loop nests of a CPU program. Each instruction shows its source line.
    Asm,
    /// The GPU dialect: tile IR in which each value has a layout in registers or shared memory.
    Gpu,
    /// PTX, the assembly of NVIDIA GPUs.
    Ptx,
    /// The cubin. The compiler does not produce it: an assembler translates the PTX to it.
    Cubin,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: &[Stage] =
        &[Stage::Ast, Stage::Ir, Stage::Opt, Stage::Cpu, Stage::Asm, Stage::Gpu, Stage::Ptx, Stage::Cubin];

    /// Returns the stages that the compiler prints for a target, in order.
    pub fn of(target: Target) -> &'static [Stage] {
        match target {
            Target::Cpu => &[Stage::Ast, Stage::Ir, Stage::Opt, Stage::Cpu, Stage::Asm],
            Target::Gpu(_) => &[Stage::Ast, Stage::Ir, Stage::Opt, Stage::Gpu, Stage::Ptx],
        }
    }

    /// Returns the name of the stage. It is also the key in a handle's `asm` and the extension of a
    /// dumped file.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Ast => "ast",
            Stage::Ir => "ir",
            Stage::Opt => "opt",
            Stage::Cpu => "cpu",
            Stage::Asm => "asm",
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

/// A function that receives each stage. Its second argument is a function that prints the stage, so
/// that no text is produced unless the hook needs it.
pub type DumpHook<'a> = dyn FnMut(Stage, &dyn Fn() -> String) + 'a;
