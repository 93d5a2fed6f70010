//! Targets as data: what a GPU has, by name.

use std::fmt;

use crate::tuning::Tuning;

/// The most warps of a block.
pub const MOST_WARPS: u32 = 32;
/// The warps of a warpgroup, which compute a product of `wgmma` together.
pub const WARPGROUP_WARPS: u32 = 4;
/// The most registers of a thread.
pub const THREAD_REGISTERS: u32 = 255;
/// The 32-bit registers of a multiprocessor.
pub const REGISTER_FILE: u32 = 65_536;
/// The most bytes that one access of a thread moves.
pub const ACCESS_BYTES: u32 = 16;
/// What the cache of the device delivers at a time, in bytes.
pub const SECTOR_BYTES: u32 = 32;

/// Something that a GPU has or has not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Feature {
    /// Matrix products of a warp: `mma.sync`, fp16 operands.
    MmaSync,
    /// bf16, tf32 and fp64 operands of it.
    MmaSyncWide,
    /// 8-bit floats as operands of it, which need PTX 8.4. Hopper is not said to have them: it computes such products by way
    /// of fp16, and code for older drivers can do that as well; its own instruction for them is `wgmma`.
    MmaSyncFp8,
    /// `ldmatrix`.
    LdMatrix,
    /// `stmatrix`.
    StMatrix,
    /// Copies from global to shared memory that threads do not wait for: `cp.async`.
    CpAsync,
    /// Reductions of integers over a warp: `redux.sync`.
    Redux,
    /// Copies of tiles by the tensor memory accelerator, and the barriers in shared memory that they arrive at.
    Tma,
    /// Copies by it of rows whose numbers are given: `tile::gather4`, `tile::scatter4`. Code of one architecture alone has them.
    TmaRows,
    /// Matrix products of four warps: `wgmma`.
    Wgmma,
    /// The fused product and sum of bf16, and the extrema of bf16 and fp16.
    Bf16Arithmetic,
    /// Sums, differences, products and comparisons of bf16.
    Bf16Sums,
    /// Conversions of 8-bit floats, by pairs.
    Fp8Conversion,
    /// Atomic sums of bf16.
    Bf16Atomics,
    /// Atomic sums of several floats in global memory, 16 bytes at the most.
    VectorAtomics,
    /// What the caches give up first or last, by access; of the second one, by `createpolicy`. Needs PTX 7.4.
    CachePolicy,
}

/// A set of features.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(u32);

/// A kind of GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GpuTarget {
    /// The name that PTX has for it, as in `.target sm_90a`.
    pub name: &'static str,
    /// Major and minor compute capability times 10, as in 90.
    pub capability: u32,
    /// The PTX version that its modules are written in.
    pub ptx_version: (u32, u32),
    /// What it has.
    pub features: Features,
    /// The bytes of shared memory that a block may have.
    pub max_shared_bytes: u32,
    /// Its measured thresholds and weights.
    pub tuning: &'static Tuning,
}

/// A name of a target that is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetError {
    /// The name as given.
    pub found: String,
}

impl Features {
    const fn of(features: &[Feature]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < features.len() {
            bits |= 1 << features[index] as u32;
            index += 1;
        }
        Self(bits)
    }

    /// Whether a feature is there.
    pub const fn has(self, feature: Feature) -> bool {
        self.0 >> feature as u32 & 1 != 0
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({:#b})", self.0)
    }
}

const TURING: &[Feature] = &[Feature::MmaSync, Feature::LdMatrix];
const AMPERE: &[Feature] = &[
    Feature::MmaSync,
    Feature::LdMatrix,
    Feature::MmaSyncWide,
    Feature::CpAsync,
    Feature::Redux,
    Feature::Bf16Arithmetic,
    Feature::CachePolicy,
];
const ADA: &[Feature] = &[
    Feature::MmaSync,
    Feature::LdMatrix,
    Feature::MmaSyncWide,
    Feature::CpAsync,
    Feature::Redux,
    Feature::Bf16Arithmetic,
    Feature::MmaSyncFp8,
    Feature::Fp8Conversion,
    Feature::CachePolicy,
];
const HOPPER: &[Feature] = &[
    Feature::MmaSync,
    Feature::LdMatrix,
    Feature::MmaSyncWide,
    Feature::CpAsync,
    Feature::Redux,
    Feature::Bf16Arithmetic,
    Feature::Bf16Sums,
    Feature::Fp8Conversion,
    Feature::StMatrix,
    Feature::Tma,
    Feature::Wgmma,
    Feature::Bf16Atomics,
    Feature::VectorAtomics,
    Feature::CachePolicy,
];

/// Blackwell by the instructions that all of its kinds have: its tensor cores are for code of one architecture alone.
const BLACKWELL: &[Feature] = &[
    Feature::MmaSync,
    Feature::LdMatrix,
    Feature::MmaSyncWide,
    Feature::CpAsync,
    Feature::Redux,
    Feature::Bf16Arithmetic,
    Feature::Bf16Sums,
    Feature::MmaSyncFp8,
    Feature::Fp8Conversion,
    Feature::StMatrix,
    Feature::Tma,
    Feature::CachePolicy,
];

/// Blackwell of data centers, in code for one architecture alone.
const BLACKWELL_DATA_CENTER: &[Feature] = &[
    Feature::MmaSync,
    Feature::LdMatrix,
    Feature::MmaSyncWide,
    Feature::CpAsync,
    Feature::Redux,
    Feature::Bf16Arithmetic,
    Feature::Bf16Sums,
    Feature::MmaSyncFp8,
    Feature::Fp8Conversion,
    Feature::StMatrix,
    Feature::Tma,
    Feature::TmaRows,
    Feature::CachePolicy,
];

impl GpuTarget {
    /// Every target. The PTX version is the oldest that has all features. The bytes of shared memory are those of the CUDA
    /// programming guide's table of technical specifications, per block with opt-in.
    pub const ALL: &[GpuTarget] = &[
        GpuTarget::new("sm_75", 75, (6, 5), TURING, 64 << 10),
        GpuTarget::new("sm_80", 80, (7, 4), AMPERE, 163 << 10),
        GpuTarget::new("sm_86", 86, (7, 4), AMPERE, 99 << 10),
        GpuTarget::new("sm_87", 87, (7, 4), AMPERE, 163 << 10),
        GpuTarget::new("sm_89", 89, (8, 4), ADA, 99 << 10),
        GpuTarget::new("sm_90a", 90, (8, 0), HOPPER, 227 << 10),
        GpuTarget::new("sm_100", 100, (8, 6), BLACKWELL, 227 << 10),
        GpuTarget::new("sm_100a", 100, (8, 6), BLACKWELL_DATA_CENTER, 227 << 10),
        GpuTarget::new("sm_120", 120, (8, 7), BLACKWELL, 99 << 10),
    ];

    const fn new(
        name: &'static str,
        capability: u32,
        ptx_version: (u32, u32),
        features: &[Feature],
        max_shared_bytes: u32,
    ) -> Self {
        let tuning = Tuning::of(capability);
        Self { name, capability, ptx_version, features: Features::of(features), max_shared_bytes, tuning }
    }

    /// The target with a name; `sm_90` stands for `sm_90a`.
    pub fn named(name: &str) -> Result<Self, TargetError> {
        let full = if name == "sm_90" { "sm_90a" } else { name };
        let found = Self::ALL.iter().find(|target| target.name == full);
        found.copied().ok_or_else(|| TargetError { found: name.to_owned() })
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = GpuTarget::ALL.iter().map(|target| target.name).collect();
        write!(f, "there is no target `{}`; there are {}", self.found, names.join(", "))
    }
}

impl std::error::Error for TargetError {}
