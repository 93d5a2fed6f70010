//! Declares the C interface of the CUDA driver that this crate uses: types, constants, and the
//! table of functions. The table contains the symbols of the functions. A symbol contains the
//! version of its interface (`cuMemAlloc_v2`), so it has exactly one type.
#![expect(unsafe_code, reason = "the types of a C library's functions")]
#![expect(non_snake_case, reason = "fields are named as the functions of the driver")]

use std::ffi::{c_char, c_void};

use libloading::Library;

use crate::{Error, Version};

/// The first version of CUDA whose driver has every required function. CUDA 11.8 introduced
/// `cuLaunchKernelEx`.
pub(crate) const NEEDED: Version = Version { major: 11, minor: 8 };

/// `CUresult`; 0 is success.
pub(crate) type Code = i32;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(transparent)]
        pub(crate) struct $name(pub(crate) *mut c_void);

        // SAFETY: the driver returns opaque handles and accepts them on any thread. This crate does
        // not dereference them.
        unsafe impl Send for $name {}
        // SAFETY: the driver accepts a handle on several threads at once. This crate does not
        // dereference handles.
        unsafe impl Sync for $name {}

        impl $name {
            pub(crate) const NULL: Self = Self(std::ptr::null_mut());
        }
    )*};
}

handles! {
    /// `CUcontext`
    ContextHandle
    /// `CUmodule`
    ModuleHandle
    /// `CUfunction`
    FunctionHandle
    /// `CUstream`; null is the default stream of the current context.
    StreamHandle
    /// `CUevent`
    EventHandle
    /// `CUlinkState`
    LinkHandle
}

/// `CUlaunchAttribute`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct LaunchAttribute {
    pub(crate) id: u32,
    pub(crate) padding: u32,
    /// A union of 64 bytes. The attributes that this crate uses have their values in its first
    /// words.
    pub(crate) value: [u32; 16],
}

impl LaunchAttribute {
    pub(crate) const COOPERATIVE: u32 = 2;
    pub(crate) const CLUSTER_DIMENSION: u32 = 4;
    pub(crate) const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;

    pub(crate) fn new(id: u32, words: [u32; 3]) -> Self {
        let mut value = [0; 16];
        value[..3].copy_from_slice(&words);
        Self { id, padding: 0, value }
    }
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: StreamHandle,
    pub(crate) attributes: *mut LaunchAttribute,
    pub(crate) attribute_count: u32,
}

/// The keys `CU_LAUNCH_PARAM_END`, `_BUFFER_POINTER` and `_BUFFER_SIZE`. The argument `extra` of a
/// launch is a list of keys and values.
pub(crate) const PARAM_END: *mut c_void = std::ptr::null_mut();
pub(crate) const PARAM_BUFFER_POINTER: *mut c_void = std::ptr::without_provenance_mut(1);
pub(crate) const PARAM_BUFFER_SIZE: *mut c_void = std::ptr::without_provenance_mut(2);

// The codes that this crate handles separately.
pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const STUB_LIBRARY: Code = 34;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const UNSUPPORTED_PTX: Code = 222;

pub(crate) const STREAM_NON_BLOCKING: u32 = 1;
pub(crate) const LIMIT_PRINTF_FIFO_SIZE: i32 = 1;
pub(crate) const CACHE_PREFER_SHARED: i32 = 1;

/// `CUdevice_attribute`.
pub(crate) mod device_attribute {
    pub(crate) const MAX_THREADS_PER_BLOCK: i32 = 1;
    pub(crate) const SHARED_MEMORY_PER_BLOCK: i32 = 8;
    pub(crate) const WARP_SIZE: i32 = 10;
    pub(crate) const REGISTERS_PER_BLOCK: i32 = 12;
    pub(crate) const CLOCK_RATE: i32 = 13;
    pub(crate) const MULTIPROCESSOR_COUNT: i32 = 16;
    pub(crate) const MEMORY_CLOCK_RATE: i32 = 36;
    pub(crate) const MEMORY_BUS_WIDTH: i32 = 37;
    pub(crate) const L2_CACHE_SIZE: i32 = 38;
    pub(crate) const MAX_THREADS_PER_MULTIPROCESSOR: i32 = 39;
    pub(crate) const CAPABILITY_MAJOR: i32 = 75;
    pub(crate) const CAPABILITY_MINOR: i32 = 76;
    pub(crate) const SHARED_MEMORY_PER_MULTIPROCESSOR: i32 = 81;
    pub(crate) const REGISTERS_PER_MULTIPROCESSOR: i32 = 82;
    pub(crate) const COOPERATIVE_LAUNCH: i32 = 95;
    pub(crate) const SHARED_MEMORY_PER_BLOCK_OPTIN: i32 = 97;
    pub(crate) const MAX_BLOCKS_PER_MULTIPROCESSOR: i32 = 106;
    pub(crate) const RESERVED_SHARED_MEMORY_PER_BLOCK: i32 = 111;
    pub(crate) const CLUSTER_LAUNCH: i32 = 120;
    pub(crate) const TENSOR_MAP_ACCESS: i32 = 127;
}

/// `CUfunction_attribute`.
pub(crate) mod function_attribute {
    pub(crate) const MAX_THREADS_PER_BLOCK: i32 = 0;
    pub(crate) const SHARED_BYTES: i32 = 1;
    pub(crate) const CONSTANT_BYTES: i32 = 2;
    pub(crate) const LOCAL_BYTES: i32 = 3;
    pub(crate) const REGISTERS: i32 = 4;
    pub(crate) const BINARY_VERSION: i32 = 6;
    pub(crate) const MAX_DYNAMIC_SHARED_BYTES: i32 = 8;
    pub(crate) const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: i32 = 14;
}

/// `CUjit_option`.
pub(crate) mod jit_option {
    pub(crate) const MAX_REGISTERS: i32 = 0;
    pub(crate) const INFO_LOG: i32 = 3;
    pub(crate) const INFO_LOG_BYTES: i32 = 4;
    pub(crate) const ERROR_LOG: i32 = 5;
    pub(crate) const ERROR_LOG_BYTES: i32 = 6;
    pub(crate) const OPTIMIZATION_LEVEL: i32 = 7;
    pub(crate) const DEBUG_INFO: i32 = 11;
    pub(crate) const LINE_INFO: i32 = 13;
}

/// `CU_POINTER_ATTRIBUTE_MAPPED`.
pub(crate) const POINTER_MAPPED: i32 = 13;

/// `CU_JIT_INPUT_PTX`.
pub(crate) const JIT_INPUT_PTX: i32 = 1;

macro_rules! functions {
    (
        required { $($name:ident($($argument:ty),*);)* }
        optional { $($optional:ident($($optional_argument:ty),*) since $major:literal $minor:literal;)* }
    ) => {
        /// The functions of the driver. They are valid until the process ends, because the library
        /// is never closed.
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "system" fn($($argument),*) -> Code,)*
            $(pub(crate) $optional: Option<unsafe extern "system" fn($($optional_argument),*) -> Code>,)*
        }

        impl Functions {
            /// Looks up every function. Errors contain `library`, the name of the library.
            pub(crate) fn load(opened: &Library, library: &str) -> Result<Self, Error> {
                Ok(Self {
                    $(
                        // SAFETY: the symbol contains its version. The type is that of the driver's
                        // header.
                        $name: *unsafe { opened.get(concat!(stringify!($name), "\0")) }.map_err(|_| {
                            Error::NotADriver { library: library.to_owned(), missing: stringify!($name) }
                        })?,
                    )*
                    $(
                        // SAFETY: the symbol contains its version. The type is that of the driver's
                        // header.
                        $optional: unsafe { opened.get(concat!(stringify!($optional), "\0")) }
                            .ok()
                            .map(|symbol| *symbol),
                    )*
                })
            }
        }

        /// Returns the first version of CUDA whose driver has a function.
        pub(crate) fn needed_version(call: &str) -> Version {
            match call {
                $(stringify!($optional) => Version { major: $major, minor: $minor },)*
                _ => NEEDED,
            }
        }
    };
}

functions! {
    required {
        cuInit(u32);
        cuDriverGetVersion(*mut i32);
        cuGetErrorName(Code, *mut *const c_char);
        cuGetErrorString(Code, *mut *const c_char);
        cuDeviceGetCount(*mut i32);
        cuDeviceGet(*mut i32, i32);
        cuDeviceGetName(*mut c_char, i32, i32);
        cuDeviceGetAttribute(*mut i32, i32, i32);
        cuDeviceTotalMem_v2(*mut usize, i32);
        cuDevicePrimaryCtxRetain(*mut ContextHandle, i32);
        cuCtxGetCurrent(*mut ContextHandle);
        cuCtxSetCurrent(ContextHandle);
        cuCtxPushCurrent_v2(ContextHandle);
        cuCtxPopCurrent_v2(*mut ContextHandle);
        cuCtxGetDevice(*mut i32);
        cuCtxSynchronize();
        cuCtxGetLimit(*mut usize, i32);
        cuCtxSetLimit(i32, usize);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuPointerGetAttribute(*mut c_void, i32, u64);
        cuMemAlloc_v2(*mut u64, usize);
        cuMemFree_v2(u64);
        cuMemcpyHtoD_v2(u64, *const c_void, usize);
        cuMemcpyDtoH_v2(*mut c_void, u64, usize);
        cuMemcpyHtoDAsync_v2(u64, *const c_void, usize, StreamHandle);
        cuMemcpyDtoHAsync_v2(*mut c_void, u64, usize, StreamHandle);
        cuMemcpyDtoDAsync_v2(u64, u64, usize, StreamHandle);
        cuMemsetD8_v2(u64, u8, usize);
        cuMemsetD8Async(u64, u8, usize, StreamHandle);
        cuStreamCreate(*mut StreamHandle, u32);
        cuStreamDestroy_v2(StreamHandle);
        cuStreamSynchronize(StreamHandle);
        cuStreamIsCapturing(StreamHandle, *mut i32);
        cuStreamWaitEvent(StreamHandle, EventHandle, u32);
        cuEventCreate(*mut EventHandle, u32);
        cuEventDestroy_v2(EventHandle);
        cuEventRecord(EventHandle, StreamHandle);
        cuEventSynchronize(EventHandle);
        cuEventElapsedTime(*mut f32, EventHandle, EventHandle);
        cuLinkCreate_v2(u32, *mut i32, *mut *mut c_void, *mut LinkHandle);
        cuLinkAddData_v2(LinkHandle, i32, *mut c_void, usize, *const c_char, u32, *mut i32, *mut *mut c_void);
        cuLinkComplete(LinkHandle, *mut *mut c_void, *mut usize);
        cuLinkDestroy(LinkHandle);
        cuModuleLoadData(*mut ModuleHandle, *const c_void);
        cuModuleUnload(ModuleHandle);
        cuModuleGetFunction(*mut FunctionHandle, ModuleHandle, *const c_char);
        cuModuleGetGlobal_v2(*mut u64, *mut usize, ModuleHandle, *const c_char);
        cuFuncGetAttribute(*mut i32, i32, FunctionHandle);
        cuFuncSetAttribute(FunctionHandle, i32, i32);
        cuFuncSetCacheConfig(FunctionHandle, i32);
        cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut i32, FunctionHandle, i32, usize);
        cuOccupancyMaxActiveClusters(*mut i32, FunctionHandle, *const LaunchConfig);
        cuLaunchKernel(
            FunctionHandle, u32, u32, u32, u32, u32, u32, u32, StreamHandle, *mut *mut c_void, *mut *mut c_void
        );
        cuLaunchKernelEx(*const LaunchConfig, FunctionHandle, *mut *mut c_void, *mut *mut c_void);
    }
    optional {
        cuTensorMapEncodeTiled(
            *mut c_void, u32, u32, *mut c_void, *const u64, *const u64, *const u32, *const u32, u32, u32, u32, u32
        ) since 12 0;
        cuTensorMapEncodeIm2col(
            *mut c_void, u32, u32, *mut c_void, *const u64, *const u64, *const i32, *const i32, u32, u32, *const u32, u32, u32, u32,
            u32
        ) since 12 0;
        cuFuncGetParamInfo(FunctionHandle, usize, *mut usize, *mut usize) since 12 4;
    }
}
