"""The names of ``gluon.language``, by module, and the module that each comes from (see ``_modules.py``).

``tl`` is ``triton.language``, ``gluon`` the package, ``_layouts`` the values of ``_layouts.py``, and ``modules`` other
modules of the table.
"""

MODULES = {
    "": {
        "_core": (
            "allocate_shared_memory arange bank_conflicts barrier convert_layout "
            "distributed_type dot_fma fp4_to_fp full histogram inline_asm load num_ctas "
            "num_warps set_auto_layout shared_memory_descriptor shared_memory_descriptor_type "
            "store to_linear_layout warp_specialize"
        ),
        "_layouts": (
            "AutoLayout BlockedLayout CoalescedLayout DistributedLinearLayout "
            "DotOperandLayout NVMMADistributedLayout NVMMASharedLayout PaddedSharedLayout "
            "SharedLinearLayout SliceLayout SwizzledSharedLayout"
        ),
        "_standard": "full_like zeros zeros_like",
        "modules": "amd extra fpsan nvidia",
        "tl": (
            "CachePolicy _unwrap_if_constexpr abs add aggregate_replace associative_scan "
            "assume atomic_add atomic_and atomic_cas atomic_load atomic_max atomic_min "
            "atomic_or atomic_poll atomic_store atomic_xchg atomic_xor base_type base_value "
            "bfloat16 block_type broadcast cast cdiv ceil clamp constexpr cos cumprod cumsum "
            "device_assert device_print div_rn dtype erf exp exp2 expand_dims expect_zero "
            "fdiv float16 float32 float64 float8e4b15 float8e4b8 float8e4nv float8e5 "
            "float8e5b16 floor fma gather inline_asm_elementwise int1 int16 int32 int64 int8 "
            "join log log2 map_elementwise max max_constancy max_contiguous maximum min "
            "minimum mul multiple_of num_programs permute pointer_type program_id ravel "
            "reduce reduce_or reshape rsqrt sin split sqrt sqrt_rn static_assert static_print "
            "static_range sub sum tensor to_tensor tuple tuple_type uint16 uint32 uint64 "
            "uint8 umulhi void where xor_sum"
        ),
    },
    "_core": {
        "_core": (
            "allocate_shared_memory arange bank_conflicts barrier builtin convert_layout "
            "distributed_type dot_fma fp4_to_fp full histogram inline_asm load num_ctas "
            "num_warps set_auto_layout shared_memory_descriptor shared_memory_descriptor_type "
            "store to_linear_layout warp_specialize"
        ),
        "_layouts": (
            "AutoLayout BlockedLayout CoalescedLayout DistributedLayout DotOperandLayout "
            "SharedLayout SharedLinearLayout"
        ),
        "tl": (
            "CachePolicy _unwrap_if_constexpr add aggregate_replace associative_scan assume "
            "atomic_add atomic_and atomic_cas atomic_load atomic_max atomic_min atomic_or "
            "atomic_poll atomic_store atomic_xchg atomic_xor base_type base_value bfloat16 "
            "block_type broadcast cast clamp constexpr device_assert device_print dtype "
            "expand_dims expect_zero float16 float32 float64 float8e4b15 float8e4b8 "
            "float8e4nv float8e5 float8e5b16 gather inline_asm_elementwise int1 int16 int32 "
            "int64 int8 join map_elementwise max_constancy max_contiguous maximum minimum mul "
            "multiple_of num_programs permute pointer_type program_id reduce reshape split "
            "static_assert static_print static_range sub tensor to_tensor tuple tuple_type "
            "uint16 uint32 uint64 uint8 void where"
        ),
    },
    "_layouts": {
        "_layouts": (
            "AutoLayout BlockedLayout CoalescedLayout DistributedLayout "
            "DistributedLinearLayout DotOperandLayout NVMMADistributedLayout "
            "NVMMASharedLayout PaddedSharedLayout SharedLayout SharedLinearLayout SliceLayout "
            "SwizzledSharedLayout bases_per_dim warps_per_cta"
        ),
        "gluon": "constexpr_function",
        "tl": "_unwrap_if_constexpr constexpr_type",
    },
    "amd": {
        "_layouts": "AMDMFMALayout AMDWMMALayout",
        "amd.slice": "slice",
        "amd.warp_pipeline": "warp_pipeline_stage",
        "modules": "cdna3 cdna4 cdna5 gfx1250 hint rdna3 rdna4",
    },
    "amd._layouts": {
        "_layouts": "AMDMFMALayout AMDWMMALayout DistributedLayout",
        "tl": "_unwrap_if_constexpr",
    },
    "amd.cdna3": {
        "_layouts": "AMDMFMALayout",
        "amd._ops": "get_scaled_upcast_fp4_scale_layout",
        "amd.cdna3": (
            "buffer_atomic_add buffer_atomic_and buffer_atomic_max buffer_atomic_min "
            "buffer_atomic_or buffer_atomic_xchg buffer_atomic_xor buffer_load buffer_store "
            "mfma scaled_upcast"
        ),
        "tl": "_unwrap_if_constexpr int8 uint8",
    },
    "amd.cdna4": {
        "_layouts": "AMDMFMALayout DotOperandLayout",
        "amd._ops": "get_scaled_upcast_fp4_scale_layout scaled_downcast",
        "amd.cdna3": "buffer_load buffer_store mfma",
        "amd.cdna4": (
            "buffer_atomic_add buffer_atomic_and buffer_atomic_max buffer_atomic_min "
            "buffer_atomic_or buffer_atomic_xchg buffer_atomic_xor "
            "compute_efficient_padded_shared_layout get_mfma_scale_layout "
            "load_shared_fp4_repacked mfma_scaled scaled_upcast"
        ),
        "gluon": "constexpr_function",
        "modules": "async_copy",
        "tl": "_unwrap_if_constexpr int8 uint8",
    },
    "amd.cdna4.async_copy": {
        "_layouts": "DistributedLayout",
        "amd.cdna4.async_copy": (
            "buffer_load_to_shared commit_group global_load_to_shared load_shared_relaxed wait_group"
        ),
        "tl": "_unwrap_if_constexpr",
    },
    "amd.cdna5": {
        "_layouts": "AMDWMMALayout PartitionedSharedLayout",
        "amd._ops": "get_scaled_upcast_fp4_scale_layout scaled_downcast",
        "amd.cdna3": "buffer_load buffer_store",
        "amd.cdna5": "get_wmma_scale_layout load_shared_fp4_repacked scaled_upcast wmma wmma_scaled",
        "amd.cdna5._layouts": "make_partitioned_dot_layouts",
        "gluon": "constexpr_function",
        "modules": "async_copy cluster mbarrier tdm",
        "tl": "_unwrap_if_constexpr float8e4nv int32 int8 tensor uint8",
    },
    "amd.cdna5.async_copy": {
        "_layouts": "DistributedLayout",
        "amd.cdna4.async_copy": "commit_group wait_group",
        "amd.cdna5.async_copy": "global_to_shared mbarrier_arrive shared_to_global",
        "tl": "_unwrap_if_constexpr",
    },
    "amd.cdna5.cluster": {
        "amd.cdna5.cluster": "arrive wait",
    },
    "amd.cdna5.mbarrier": {
        "_layouts": "MBarrierLayout SwizzledSharedLayout",
        "amd.cdna5.mbarrier": "arrive init wait",
        "tl": "_unwrap_if_constexpr",
    },
    "amd.cdna5.tdm": {
        "_layouts": "PaddedSharedLayout PartitionedSharedLayout SwizzledSharedLayout",
        "amd.cdna5.tdm": (
            "async_gather async_load async_load_fused async_scatter async_store async_wait "
            "make_tensor_descriptor prefetch tensor_descriptor tensor_descriptor_type "
            "update_tensor_descriptor"
        ),
        "tl": "_unwrap_if_constexpr",
    },
    "amd.gfx1250": {
        "_layouts": "PartitionedSharedLayout",
        "amd._ops": "get_scaled_upcast_fp4_scale_layout scaled_downcast",
        "amd.cdna3": "buffer_load buffer_store",
        "amd.cdna5": "get_wmma_scale_layout load_shared_fp4_repacked scaled_upcast wmma wmma_scaled",
        "amd.cdna5._layouts": "make_partitioned_dot_layouts",
        "modules": (
            "async_copy=amd.cdna5.async_copy cluster=amd.cdna5.cluster "
            "mbarrier=amd.cdna5.mbarrier tdm=amd.cdna5.tdm"
        ),
    },
    "amd.hint": {
        "amd.hint": "sched_barrier",
        "tl": "_unwrap_if_constexpr",
    },
    "amd.rdna3": {
        "amd.rdna3": "wmma",
    },
    "amd.rdna4": {
        "amd.rdna4": "wmma",
    },
    "extra": {
        "tl": "libdevice",
    },
    "fpsan": {
        "fpsan": "embed unembed",
        "tl": "_unwrap_if_constexpr dtype tensor",
    },
    "nvidia": {
        "modules": "ampere blackwell hopper rubin",
    },
    "nvidia.ampere": {
        "_layouts": "CachePolicy DotOperandLayout FractionalEvictionPolicy NVMMADistributedLayout",
        "modules": "async_copy mbarrier",
        "nvidia.ampere": "mma_v2",
        "tl": "_unwrap_if_constexpr constexpr_type",
    },
    "nvidia.ampere.async_copy": {
        "nvidia.ampere.async_copy": (
            "async_copy_global_to_shared async_load commit_group mbarrier_arrive wait_group"
        ),
        "tl": "_unwrap_if_constexpr",
    },
    "nvidia.ampere.mbarrier": {
        "_layouts": "MBarrierLayout SwizzledSharedLayout",
        "gluon": "constexpr_function jit",
        "nvidia.ampere.mbarrier": "allocate_mbarrier arrive init invalidate wait",
        "tl": "_unwrap_if_constexpr",
    },
    "nvidia.blackwell": {
        "_layouts": "CachePolicy FractionalEvictionPolicy TensorMemoryLayout TensorMemoryScalesLayout",
        "gluon": "constexpr_function",
        "modules": (
            "async_copy=nvidia.ampere.async_copy clc cluster=nvidia.hopper.cluster "
            "mbarrier=nvidia.hopper.mbarrier tma"
        ),
        "nvidia.ampere": "mma_v2",
        "nvidia.blackwell": (
            "add2 allocate_tensor_memory fma2 max2 min2 mul2 sub2 tcgen05_commit tcgen05_copy "
            "tcgen05_mma tcgen05_mma_barrier_count tcgen05_mma_scaled "
            "tensor_memory_descriptor tensor_memory_descriptor_type"
        ),
        "nvidia.hopper": "async_store fence_async_shared",
        "tl": "_unwrap_if_constexpr base_type base_value",
    },
    "nvidia.blackwell.clc": {
        "_core": "shared_memory_descriptor",
        "nvidia.blackwell.clc": "clc_result clc_result_type load_result try_cancel",
        "tl": "base_type base_value tensor",
    },
    "nvidia.blackwell.tma": {
        "nvidia.blackwell.tma": "async_gather async_scatter",
        "nvidia.hopper.tma": (
            "async_atomic_add async_atomic_and async_atomic_max async_atomic_min "
            "async_atomic_or async_atomic_xor async_copy_global_to_shared "
            "async_copy_shared_to_global async_load async_load_im2col async_store "
            "make_tensor_descriptor store_wait tensor_descriptor tensor_descriptor_type"
        ),
    },
    "nvidia.hopper": {
        "_layouts": "CachePolicy FractionalEvictionPolicy",
        "modules": "async_copy=nvidia.ampere.async_copy cluster mbarrier tma",
        "nvidia.ampere": "mma_v2",
        "nvidia.hopper": (
            "async_store fence_async_shared warpgroup_mma warpgroup_mma_accumulator "
            "warpgroup_mma_accumulator_type warpgroup_mma_init warpgroup_mma_wait"
        ),
    },
    "nvidia.hopper.cluster": {
        "nvidia.hopper.cluster": "arrive barrier wait",
        "tl": "_unwrap_if_constexpr",
    },
    "nvidia.hopper.mbarrier": {
        "_layouts": "MBarrierLayout",
        "nvidia.ampere.mbarrier": "allocate_mbarrier init invalidate wait",
        "nvidia.hopper.mbarrier": "arrive expect",
        "tl": "_unwrap_if_constexpr",
    },
    "nvidia.hopper.tma": {
        "_layouts": "CachePolicy NVMMASharedLayout",
        "nvidia.hopper.tma": (
            "async_atomic_add async_atomic_and async_atomic_max async_atomic_min "
            "async_atomic_or async_atomic_xor async_copy_global_to_shared "
            "async_copy_global_to_shared_im2col async_copy_shared_to_global async_load "
            "async_load_im2col async_store make_tensor_descriptor store_wait "
            "tensor_descriptor tensor_descriptor_im2col tensor_descriptor_im2col_type "
            "tensor_descriptor_type"
        ),
        "tl": "_unwrap_if_constexpr base_type base_value",
    },
    "nvidia.rubin": {
        "_layouts": "CachePolicy FractionalEvictionPolicy TensorMemoryLayout",
        "modules": (
            "async_copy=nvidia.ampere.async_copy clc=nvidia.blackwell.clc "
            "cluster=nvidia.hopper.cluster mbarrier tma=nvidia.blackwell.tma"
        ),
        "nvidia.ampere": "mma_v2",
        "nvidia.blackwell": (
            "add2 allocate_tensor_memory fma2 max2 min2 mul2 sub2 tcgen05_commit tcgen05_copy "
            "tcgen05_mma tcgen05_mma_barrier_count tcgen05_mma_scaled "
            "tensor_memory_descriptor tensor_memory_descriptor_type"
        ),
        "nvidia.hopper": "async_store fence_async_shared",
        "nvidia.rubin": "TensorMemoryScalesLayout add4 fma4 mul4 sub4",
        "tl": "_unwrap_if_constexpr",
    },
    "nvidia.rubin.mbarrier": {
        "_layouts": "MBarrierLayout",
        "nvidia.ampere.mbarrier": "allocate_mbarrier init invalidate wait",
        "nvidia.hopper.mbarrier": "expect",
        "nvidia.rubin.mbarrier": "arrive",
        "tl": "_unwrap_if_constexpr",
    },
}
"""The modules that the names of each module come from."""

CLASSES = (
    "_core:distributed_type _core:shared_memory_descriptor _core:shared_memory_descriptor_type "
    "amd.cdna5.tdm:tensor_descriptor amd.cdna5.tdm:tensor_descriptor_type amd.warp_pipeline:warp_pipeline_stage "
    "nvidia.blackwell:tensor_memory_descriptor nvidia.blackwell:tensor_memory_descriptor_type "
    "nvidia.blackwell.clc:clc_result nvidia.blackwell.clc:clc_result_type nvidia.hopper:warpgroup_mma_accumulator "
    "nvidia.hopper:warpgroup_mma_accumulator_type nvidia.hopper.tma:tensor_descriptor "
    "nvidia.hopper.tma:tensor_descriptor_im2col nvidia.hopper.tma:tensor_descriptor_im2col_type "
    "nvidia.hopper.tma:tensor_descriptor_type"
)
"""The names that are types of values in a kernel."""
