//! Describes the processor for which machine code is compiled.

use std::fmt;

/// The vector instructions that machine code may use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Isa {
    /// x86-64 with AVX2, FMA, F16C, BMI1 and BMI2: vectors of 256 bits.
    Avx2,
    /// x86-64 with the instructions of [`Self::Avx2`] and AVX-512 F, BW, DQ, VL and CD: vectors of
    /// 512 bits and mask registers.
    Avx512,
    /// AArch64 with Advanced SIMD, which every AArch64 processor has: vectors of 128 bits.
    Neon,
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Avx2 => "x86-64 with AVX2",
            Isa::Avx512 => "x86-64 with AVX-512",
            Isa::Neon => "AArch64",
        })
    }
}

impl Isa {
    /// All instruction sets. The instruction sets of one architecture are in ascending order.
    pub const ALL: [Self; 3] = [Self::Neon, Self::Avx2, Self::Avx512];
}

/// A processor that can run machine code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    isa: Isa,
}

impl Target {
    /// Returns the processor that runs this program. Returns `None` if the crate has no code
    /// generator for it.
    pub fn host() -> Option<Self> {
        Isa::ALL.into_iter().rev().find_map(Self::host_with)
    }

    /// Returns the processor that runs this program, limited to an instruction set. Returns `None`
    /// if the processor lacks this instruction set.
    pub fn host_with(isa: Isa) -> Option<Self> {
        has(isa).then_some(Self { isa })
    }

    /// Returns a processor with an instruction set. The processor that runs this program may lack
    /// it.
    pub fn new(isa: Isa) -> Self {
        Self { isa }
    }

    /// Returns the instruction set.
    pub fn isa(self) -> Isa {
        self.isa
    }

    /// Returns the number of lanes that a function for this target must have. This is the number of
    /// 32-bit lanes of one vector register.
    pub fn lanes(self) -> usize {
        match self.isa {
            Isa::Avx2 => 8,
            Isa::Avx512 => 16,
            Isa::Neon => 4,
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn has(isa: Isa) -> bool {
    use std::arch::is_x86_feature_detected as has;
    let avx2 = has!("avx2") && has!("fma") && has!("f16c") && has!("bmi1") && has!("bmi2");
    match isa {
        Isa::Avx2 => avx2,
        Isa::Avx512 => {
            avx2 && has!("avx512f")
                && has!("avx512bw")
                && has!("avx512dq")
                && has!("avx512vl")
                && has!("avx512cd")
        }
        Isa::Neon => false,
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn has(isa: Isa) -> bool {
    isa == Isa::Neon && cfg!(all(target_arch = "aarch64", target_endian = "little", not(miri)))
}
