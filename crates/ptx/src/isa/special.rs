//! The special registers: one row each, with the type of its value.

use super::types::ScalarType;

macro_rules! special_registers {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal, $ty:ident;)*) => {
        /// A register that the hardware sets.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum SpecialRegister {
            $($(#[doc = $doc])* $variant,)*
        }

        impl SpecialRegister {
            /// Every special register.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns its name in the text.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns its type.
            pub fn ty(self) -> ScalarType {
                match self { $(Self::$variant => ScalarType::$ty,)* }
            }

            pub(crate) fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

special_registers! {
    /// Position of the thread in its block, x.
    TidX = "%tid.x", U32;
    /// Position of the thread in its block, y.
    TidY = "%tid.y", U32;
    /// Position of the thread in its block, z.
    TidZ = "%tid.z", U32;
    /// Extent of the block, x.
    NtidX = "%ntid.x", U32;
    /// Extent of the block, y.
    NtidY = "%ntid.y", U32;
    /// Extent of the block, z.
    NtidZ = "%ntid.z", U32;
    /// Position of the block in the grid, x.
    CtaidX = "%ctaid.x", U32;
    /// Position of the block in the grid, y.
    CtaidY = "%ctaid.y", U32;
    /// Position of the block in the grid, z.
    CtaidZ = "%ctaid.z", U32;
    /// Extent of the grid in blocks, x.
    NctaidX = "%nctaid.x", U32;
    /// Extent of the grid in blocks, y.
    NctaidY = "%nctaid.y", U32;
    /// Extent of the grid in blocks, z.
    NctaidZ = "%nctaid.z", U32;
    /// Position of the thread in its warp.
    LaneId = "%laneid", U32;
    /// Index of the warp in its block; it may change while the thread runs.
    WarpId = "%warpid", U32;
    /// The number of warp indices.
    NwarpId = "%nwarpid", U32;
    /// Index of the multiprocessor; it may change while the thread runs.
    SmId = "%smid", U32;
    /// The number of multiprocessor indices.
    NsmId = "%nsmid", U32;
    /// Id of the grid.
    GridId = "%gridid", U64;
    /// True if the launch has explicit clusters.
    IsExplicitCluster = "%is_explicit_cluster", Pred;
    /// Position of the cluster in the grid, x.
    ClusterIdX = "%clusterid.x", U32;
    /// Position of the cluster in the grid, y.
    ClusterIdY = "%clusterid.y", U32;
    /// Position of the cluster in the grid, z.
    ClusterIdZ = "%clusterid.z", U32;
    /// Extent of the grid in clusters, x.
    NclusterIdX = "%nclusterid.x", U32;
    /// Extent of the grid in clusters, y.
    NclusterIdY = "%nclusterid.y", U32;
    /// Extent of the grid in clusters, z.
    NclusterIdZ = "%nclusterid.z", U32;
    /// Position of the block in its cluster, x.
    ClusterCtaidX = "%cluster_ctaid.x", U32;
    /// Position of the block in its cluster, y.
    ClusterCtaidY = "%cluster_ctaid.y", U32;
    /// Position of the block in its cluster, z.
    ClusterCtaidZ = "%cluster_ctaid.z", U32;
    /// Extent of the cluster in blocks, x.
    ClusterNctaidX = "%cluster_nctaid.x", U32;
    /// Extent of the cluster in blocks, y.
    ClusterNctaidY = "%cluster_nctaid.y", U32;
    /// Extent of the cluster in blocks, z.
    ClusterNctaidZ = "%cluster_nctaid.z", U32;
    /// Rank of the block in its cluster.
    ClusterCtaRank = "%cluster_ctarank", U32;
    /// The number of blocks in the cluster.
    ClusterNctaRank = "%cluster_nctarank", U32;
    /// The mask with this lane's bit.
    LanemaskEq = "%lanemask_eq", U32;
    /// The mask of this lane and those before it.
    LanemaskLe = "%lanemask_le", U32;
    /// The mask of the lanes before this one.
    LanemaskLt = "%lanemask_lt", U32;
    /// The mask of this lane and those after it.
    LanemaskGe = "%lanemask_ge", U32;
    /// The mask of the lanes after this one.
    LanemaskGt = "%lanemask_gt", U32;
    /// Cycle counter, low half.
    Clock = "%clock", U32;
    /// Cycle counter, high half.
    ClockHi = "%clock_hi", U32;
    /// Cycle counter.
    Clock64 = "%clock64", U64;
    /// Nanoseconds of a clock of the device.
    GlobalTimer = "%globaltimer", U64;
    /// Low half of `%globaltimer`.
    GlobalTimerLo = "%globaltimer_lo", U32;
    /// High half of `%globaltimer`.
    GlobalTimerHi = "%globaltimer_hi", U32;
    /// Bytes of the kernel's shared memory, static and dynamic, without the reserved part.
    TotalSmemSize = "%total_smem_size", U32;
    /// Bytes of shared memory with the reserved part.
    AggrSmemSize = "%aggr_smem_size", U32;
    /// Bytes of dynamic shared memory.
    DynamicSmemSize = "%dynamic_smem_size", U32;
    /// First byte of the reserved shared memory.
    ReservedSmemOffsetBegin = "%reserved_smem_offset_begin", U32;
    /// End of the reserved shared memory.
    ReservedSmemOffsetEnd = "%reserved_smem_offset_end", U32;
    /// Size of the reserved shared memory.
    ReservedSmemOffsetCap = "%reserved_smem_offset_cap", U32;
    /// First word of the reserved shared memory for the program.
    ReservedSmemOffset0 = "%reserved_smem_offset_0", U32;
    /// Second word of the reserved shared memory for the program.
    ReservedSmemOffset1 = "%reserved_smem_offset_1", U32;
    /// Id of the execution of a captured graph.
    CurrentGraphExec = "%current_graph_exec", U64;
}
