//! Targets: the features and the limits of each GPU.

use std::fmt;

use crate::tuning::Tuning;

/// The most warps of a block.
pub const MAX_WARPS: u32 = 32;
/// The most partitions of a kernel. A block has 15 named barriers: one for each partition, and one
/// for all.
pub const MAX_PARTITIONS: usize = 14;
/// The warps of a warpgroup, which execute a `wgmma` together.
pub const WARPGROUP_WARPS: u32 = 4;
/// The most registers of a thread.
pub const THREAD_REGISTERS: u32 = 255;
/// The 32-bit registers of a multiprocessor.
pub const REGISTER_FILE: u32 = 65_536;
/// The most bytes of a thread's access, without [`Feature::WideAccesses`].
pub const ACCESS_BYTES: u32 = 16;
/// The most bytes of a global access with [`Feature::WideAccesses`].
pub const WIDE_ACCESS_BYTES: u32 = 32;
/// The bytes of the response to a request for a cluster that has not begun (`clc_try_cancel`).
pub const CLC_RESPONSE_BYTES: u32 = 16;
/// The bytes of a sector, the unit in which the L2 cache delivers data.
pub const SECTOR_BYTES: u32 = 32;

/// A feature that some GPUs lack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Feature {
    /// Matrix instructions of a warp: `mma.sync`, fp16 operands.
    MmaSync,
    /// bf16, tf32 and fp64 operands of `mma.sync`.
    MmaSyncWide,
    /// 8-bit float operands of `mma.sync`, which need PTX 8.4.
    ///
    /// `HOPPER` lacks it, because `mma.sync` there converts them to fp16. Code that converts them
    /// needs no PTX 8.4. Hopper's `wgmma` takes 8-bit floats.
    MmaSyncFp8,
    /// `ldmatrix`.
    LdMatrix,
    /// `stmatrix`.
    StMatrix,
    /// Asynchronous copies from global to shared memory: `cp.async`.
    CpAsync,
    /// Reductions of integers over a warp: `redux.sync`.
    Redux,
    /// Copies of tiles by the tensor memory accelerator, and the `mbarrier`s that they arrive at.
    Tma,
    /// Tensor copies of gathered rows: `tile::gather4`, `tile::scatter4`. Only
    /// architecture-specific code (`sm_100a`) has them.
    TmaRows,
    /// Matrix instructions of a warpgroup: `wgmma`.
    Wgmma,
    /// Matrix instructions on tensor memory: `tcgen05`. Only architecture-specific code (`sm_100a`)
    /// has them.
    Tcgen05,
    /// Requests for programs that have not begun: `clusterlaunchcontrol`.
    ClusterLaunchControl,
    /// Dots of 8-bit integers on tensor memory: `.kind::i8` of `tcgen05.mma`. `sm_103a` lacks them.
    Tcgen05Integers,
    /// `fma` of bf16, and minimum and maximum of bf16 and fp16.
    Bf16Arithmetic,
    /// Addition, subtraction, multiplication and comparison of bf16.
    Bf16Sums,
    /// Conversions of pairs of 8-bit floats.
    Fp8Conversion,
    /// Atomic addition of bf16.
    Bf16Atomics,
    /// Atomic addition of vectors of floats in global memory, at most 16 bytes.
    VectorAtomics,
    /// Eviction priorities of accesses, and L2 cache policies (`createpolicy`). Needs PTX 7.4.
    CachePolicy,
    /// Global loads and stores of 32 bytes: `.v8` of 32 bits, `.v4` of 64. Needs PTX 8.8.
    WideAccesses,
    /// Arithmetic on two fp32 numbers by one instruction.
    ///
    /// `BLACKWELL` lacks it, because the assembler divides these instructions for `sm_120`.
    PackedFp32,
}

/// A set of features.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(u32);

/// A GPU architecture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GpuTarget {
    /// The PTX name, such as `sm_90a`.
    pub name: &'static str,
    /// The compute capability times 10, such as 90 for 9.0.
    pub capability: u32,
    /// The PTX version of its modules.
    pub ptx_version: (u32, u32),
    /// Its features.
    pub features: Features,
    /// The bytes of shared memory that a block may have.
    pub max_shared_bytes: u32,
    /// Its measured thresholds.
    pub tuning: &'static Tuning,
}

/// An unknown name of a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetError {
    /// The requested name.
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

    /// Returns whether the set has a feature.
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

/// The features that all Blackwell GPUs have. They lack `tcgen05`, which needs
/// architecture-specific code.
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
    Feature::Bf16Atomics,
    Feature::VectorAtomics,
    Feature::CachePolicy,
    Feature::WideAccesses,
    Feature::ClusterLaunchControl,
];

/// Data center Blackwell, in code for all its GPUs.
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
    Feature::Bf16Atomics,
    Feature::VectorAtomics,
    Feature::CachePolicy,
    Feature::WideAccesses,
    Feature::PackedFp32,
    Feature::ClusterLaunchControl,
];

/// Data center Blackwell, in architecture-specific code.
const BLACKWELL_DATA_CENTER_SPECIFIC: &[Feature] = &[
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
    Feature::Tcgen05,
    Feature::Bf16Atomics,
    Feature::VectorAtomics,
    Feature::CachePolicy,
    Feature::WideAccesses,
    Feature::PackedFp32,
    Feature::ClusterLaunchControl,
];

impl GpuTarget {
    /// Every target. The PTX version is the oldest with all features, with four exceptions. The
    /// lowering raises the version for them. `VectorAtomics` need 8.1, the kernel's tensor maps
    /// 8.3, dots of nvfp4 8.7, and `WideAccesses` 8.8. Shared memory is the opt-in limit per block in
    /// the CUDA programming guide's technical specifications.
    pub const ALL: &[GpuTarget] = &[
        GpuTarget::new("sm_75", 75, (6, 5), TURING, 64 << 10),
        GpuTarget::new("sm_80", 80, (7, 4), AMPERE, 163 << 10),
        GpuTarget::new("sm_86", 86, (7, 4), AMPERE, 99 << 10),
        GpuTarget::new("sm_87", 87, (7, 4), AMPERE, 163 << 10),
        GpuTarget::new("sm_89", 89, (8, 4), ADA, 99 << 10),
        GpuTarget::new("sm_90a", 90, (8, 0), HOPPER, 227 << 10),
        GpuTarget::new("sm_100", 100, (8, 6), BLACKWELL_DATA_CENTER, 227 << 10),
        GpuTarget::new("sm_100a", 100, (8, 6), BLACKWELL_DATA_CENTER_SPECIFIC, 227 << 10)
            .with(Feature::Tcgen05Integers),
        GpuTarget::new("sm_103a", 103, (8, 8), BLACKWELL_DATA_CENTER_SPECIFIC, 227 << 10),
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

    const fn with(mut self, feature: Feature) -> Self {
        self.features.0 |= 1 << feature as u32;
        self
    }

    /// Returns the most bytes of a thread's access to global memory.
    pub const fn access_bytes(&self) -> u32 {
        if self.features.has(Feature::WideAccesses) { WIDE_ACCESS_BYTES } else { ACCESS_BYTES }
    }

    /// Returns the target with a name; `sm_90` is short for `sm_90a`, and `sm_103` for `sm_103a`.
    pub fn named(name: &str) -> Result<Self, TargetError> {
        let full = match name {
            "sm_90" => "sm_90a",
            "sm_103" => "sm_103a",
            other => other,
        };
        let found = Self::ALL.iter().find(|target| target.name == full);
        found.copied().ok_or_else(|| TargetError { found: name.to_owned() })
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = GpuTarget::ALL.iter().map(|target| target.name).collect();
        write!(f, "unknown target `{}`; the targets are {}", self.found, names.join(", "))
    }
}

impl std::error::Error for TargetError {}
