//! Defines methods that call the driver's functions in the table of `sys`. The methods are safe,
//! except the two that begin a copy between the host and a GPU. The callers of these two must keep
//! the slice alive until the copy has completed.
//!
//! The calls are sound for three reasons:
//!
//! - Each handle comes from the driver and belongs to a value that outlives the call.
//! - Each length is the length of its slice.
//! - The driver checks all other arguments and returns a code.
#![expect(unsafe_code, reason = "calls of a C library")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::Library;

use crate::image::Image;
use crate::sys::{
    self, Code, ContextHandle, EventHandle, FunctionHandle, LaunchAttribute, LaunchConfig, LinkHandle,
    ModuleHandle, StreamHandle,
};
use crate::{CallError, Driver, Error};

/// Opens a shared library. The error contains the path and the message of the system.
pub(crate) fn open_library(path: &Path) -> Result<Library, String> {
    // SAFETY: the initializers of a driver library may run at any time. A user who sets the path is
    // responsible for the library.
    unsafe { Library::new(path) }.map_err(|error| {
        let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        let path = path.display().to_string();
        let reason = reason.strip_prefix(&path).map_or(&*reason, |rest| rest.trim_start_matches([':', ' ']));
        format!("`{path}` cannot be opened ({reason})")
    })
}

/// Registers a function to be called in the child of every fork.
#[cfg(unix)]
pub(crate) fn at_fork(in_child: extern "C" fn()) {
    // SAFETY: the function only sets a flag, which is allowed in a child of a fork.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Returns the path of the library file that contains `function`, with symbolic links resolved. On
/// Linux, the name of the driver's file ends in the release of the driver.
#[cfg(unix)]
pub(crate) fn file_of(function: unsafe extern "system" fn(u32) -> Code) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let mut about = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: `dladdr` accepts any address. `about` is memory for the result.
    let is_known = unsafe { libc::dladdr(function as *const c_void, &raw mut about) } != 0;
    if !is_known || about.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker keeps the name as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(about.dli_fname) };
    std::fs::canonicalize(std::ffi::OsStr::from_bytes(name.to_bytes())).ok()
}

#[cfg(not(unix))]
pub(crate) fn file_of(_function: unsafe extern "system" fn(u32) -> Code) -> Option<PathBuf> {
    None
}

/// Calls a function of the table by its name, and converts its code to a result.
macro_rules! call {
    ($driver:ident.$name:ident($($argument:expr),* $(,)?)) => {{
        let code = ($driver.functions()?.$name)($($argument),*);
        $driver.check(stringify!($name), code)
    }};
}

/// Converts a name to a C string.
fn c_string(name: &str) -> Result<CString, Error> {
    CString::new(name).map_err(|_| Error::InvalidName { name: name.to_owned() })
}

/// Methods for return codes.
impl Driver {
    fn check(&self, call: &'static str, code: Code) -> Result<(), Error> {
        if code == 0 { Ok(()) } else { Err(self.failure(call, code)) }
    }

    #[cold]
    fn failure(&self, call: &'static str, code: Code) -> Error {
        let text = |describe: unsafe extern "system" fn(Code, *mut *const c_char) -> Code| {
            let mut text = ptr::null();
            // SAFETY: the driver sets `text` to null or to a string that it never frees.
            let answer = unsafe { describe(code, &raw mut text) };
            if answer != 0 || text.is_null() {
                return String::new();
            }
            // SAFETY: the driver has set `text` to a string that it never frees.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        let Ok(functions) = self.functions() else { return Error::Forked };
        let mut name = text(functions.cuGetErrorName);
        if name.is_empty() {
            "an unknown error".clone_into(&mut name);
        }
        Error::Call(Box::new(CallError {
            call,
            code,
            name,
            text: text(functions.cuGetErrorString),
            context: String::new(),
        }))
    }
}

/// Methods for the driver and its devices.
impl Driver {
    pub(crate) fn driver_version(&self) -> Result<i32, Error> {
        let mut version = 0;
        // SAFETY: the driver writes an int through the pointer.
        unsafe { call!(self.cuDriverGetVersion(&raw mut version)) }?;
        Ok(version)
    }

    pub(crate) fn init(&self) -> Result<(), Error> {
        // SAFETY: a program may call `cuInit` at any time, and any number of times.
        unsafe { call!(self.cuInit(0)) }
    }

    pub(crate) fn device_count(&self) -> Result<u32, Error> {
        let mut count = 0;
        // SAFETY: the driver writes an int through the pointer.
        unsafe { call!(self.cuDeviceGetCount(&raw mut count)) }?;
        Ok(count.max(0) as u32)
    }

    pub(crate) fn device_handle(&self, ordinal: u32) -> Result<i32, Error> {
        let mut device = 0;
        // SAFETY: the driver writes an int through the pointer.
        unsafe { call!(self.cuDeviceGet(&raw mut device, ordinal as i32)) }?;
        Ok(device)
    }

    pub(crate) fn device_name(&self, device: i32) -> Result<String, Error> {
        let mut name = [0_u8; 256];
        // SAFETY: the buffer has the stated length.
        unsafe { call!(self.cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, device)) }?;
        let name = CStr::from_bytes_until_nul(&name).map(CStr::to_string_lossy).unwrap_or_default();
        Ok(name.into_owned())
    }

    pub(crate) fn device_attribute(&self, device: i32, attribute: i32) -> Result<u32, Error> {
        let mut value = 0;
        // SAFETY: the driver writes an int through the pointer.
        unsafe { call!(self.cuDeviceGetAttribute(&raw mut value, attribute, device)) }?;
        Ok(value.max(0) as u32)
    }

    pub(crate) fn device_memory(&self, device: i32) -> Result<usize, Error> {
        let mut bytes = 0;
        // SAFETY: the driver writes a size through the pointer.
        unsafe { call!(self.cuDeviceTotalMem_v2(&raw mut bytes, device)) }?;
        Ok(bytes)
    }
}

/// Methods for contexts.
impl Driver {
    pub(crate) fn retain_primary_context(&self, device: i32) -> Result<ContextHandle, Error> {
        let mut context = ContextHandle::NULL;
        // SAFETY: the driver writes a handle through the pointer.
        unsafe { call!(self.cuDevicePrimaryCtxRetain(&raw mut context, device)) }?;
        Ok(context)
    }

    pub(crate) fn current_context(&self) -> Result<ContextHandle, Error> {
        let mut context = ContextHandle::NULL;
        // SAFETY: the driver writes a handle through the pointer.
        unsafe { call!(self.cuCtxGetCurrent(&raw mut context)) }?;
        Ok(context)
    }

    pub(crate) fn set_current_context(&self, context: ContextHandle) -> Result<(), Error> {
        // SAFETY: the handle is the handle of a context.
        unsafe { call!(self.cuCtxSetCurrent(context)) }
    }

    pub(crate) fn push_context(&self, context: ContextHandle) -> Result<(), Error> {
        // SAFETY: the handle is the handle of a context.
        unsafe { call!(self.cuCtxPushCurrent_v2(context)) }
    }

    pub(crate) fn pop_context(&self) -> Result<(), Error> {
        let mut context = ContextHandle::NULL;
        // SAFETY: the driver writes a handle through the pointer.
        unsafe { call!(self.cuCtxPopCurrent_v2(&raw mut context)) }
    }

    /// Returns the device of the current context.
    pub(crate) fn current_device(&self) -> Result<i32, Error> {
        let mut device = 0;
        // SAFETY: the driver writes an int through the pointer.
        unsafe { call!(self.cuCtxGetDevice(&raw mut device)) }?;
        Ok(device)
    }

    pub(crate) fn synchronize_context(&self) -> Result<(), Error> {
        // SAFETY: the function has no arguments.
        unsafe { call!(self.cuCtxSynchronize()) }
    }

    pub(crate) fn limit(&self, limit: i32) -> Result<usize, Error> {
        let mut value = 0;
        // SAFETY: the driver writes a size through the pointer.
        unsafe { call!(self.cuCtxGetLimit(&raw mut value, limit)) }?;
        Ok(value)
    }

    pub(crate) fn set_limit(&self, limit: i32, value: usize) -> Result<(), Error> {
        // SAFETY: the arguments are integers, which the driver checks.
        unsafe { call!(self.cuCtxSetLimit(limit, value)) }
    }
}

/// Methods for memory. Device addresses are integers. For a wrong address, the driver returns an
/// error and does not access memory of this process.
impl Driver {
    /// Returns whether kernels can access an address. For an address that the driver did not
    /// allocate, the driver returns `INVALID_VALUE` and this function returns `false`.
    pub(crate) fn is_mapped(&self, address: u64) -> Result<bool, Error> {
        let mut is_mapped = 0_i32;
        let place = (&raw mut is_mapped).cast();
        // SAFETY: `place` has memory for the result, a bool or an int. Any address is allowed.
        let code = unsafe { (self.functions()?.cuPointerGetAttribute)(place, sys::POINTER_MAPPED, address) };
        if code == sys::INVALID_VALUE {
            return Ok(false);
        }
        self.check("cuPointerGetAttribute", code)?;
        Ok(is_mapped != 0)
    }

    /// Returns the number of free bytes and the total number of bytes.
    pub(crate) fn memory_info(&self) -> Result<(usize, usize), Error> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver writes sizes through the pointers.
        unsafe { call!(self.cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok((free, total))
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, Error> {
        let mut address = 0;
        // SAFETY: the driver writes an address through the pointer.
        unsafe { call!(self.cuMemAlloc_v2(&raw mut address, bytes)) }?;
        Ok(address)
    }

    pub(crate) fn free(&self, address: u64) -> Result<(), Error> {
        // SAFETY: only the owner of an allocation frees it.
        unsafe { call!(self.cuMemFree_v2(address)) }
    }

    pub(crate) fn copy_to_device(&self, address: u64, from: &[u8]) -> Result<(), Error> {
        // SAFETY: the slice has the stated length, and the call returns only after the driver has
        // read the slice.
        unsafe { call!(self.cuMemcpyHtoD_v2(address, from.as_ptr().cast(), from.len())) }
    }

    pub(crate) fn copy_to_host(&self, to: &mut [u8], address: u64) -> Result<(), Error> {
        // SAFETY: the slice has the stated length, and the call returns only after the driver has
        // written the slice.
        unsafe { call!(self.cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), address, to.len())) }
    }

    /// # Safety
    /// `from` must be alive and unchanged until the stream has completed the copy.
    pub(crate) unsafe fn copy_to_device_async(
        &self,
        address: u64,
        from: &[u8],
        stream: StreamHandle,
    ) -> Result<(), Error> {
        // SAFETY: the slice has the stated length, and the caller keeps the slice alive.
        unsafe { call!(self.cuMemcpyHtoDAsync_v2(address, from.as_ptr().cast(), from.len(), stream)) }
    }

    /// # Safety
    /// `to` must be alive, and must not be accessed, until the stream has completed the copy.
    pub(crate) unsafe fn copy_to_host_async(
        &self,
        to: &mut [u8],
        address: u64,
        stream: StreamHandle,
    ) -> Result<(), Error> {
        // SAFETY: the slice has the stated length, and the caller keeps the slice alive.
        unsafe { call!(self.cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), address, to.len(), stream)) }
    }

    pub(crate) fn copy_on_device(
        &self,
        to: u64,
        from: u64,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<(), Error> {
        // SAFETY: both addresses are on the device.
        unsafe { call!(self.cuMemcpyDtoDAsync_v2(to, from, bytes, stream)) }
    }

    pub(crate) fn fill(&self, address: u64, value: u8, bytes: usize) -> Result<(), Error> {
        // SAFETY: the address is on the device.
        unsafe { call!(self.cuMemsetD8_v2(address, value, bytes)) }
    }

    pub(crate) fn fill_async(
        &self,
        address: u64,
        value: u8,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<(), Error> {
        // SAFETY: the address is on the device.
        unsafe { call!(self.cuMemsetD8Async(address, value, bytes, stream)) }
    }
}

/// Methods for streams and events.
impl Driver {
    pub(crate) fn create_stream(&self) -> Result<StreamHandle, Error> {
        let mut stream = StreamHandle::NULL;
        // SAFETY: the driver writes a handle through the pointer.
        unsafe { call!(self.cuStreamCreate(&raw mut stream, sys::STREAM_NON_BLOCKING)) }?;
        Ok(stream)
    }

    pub(crate) fn destroy_stream(&self, stream: StreamHandle) -> Result<(), Error> {
        // SAFETY: only the owner of a stream destroys it.
        unsafe { call!(self.cuStreamDestroy_v2(stream)) }
    }

    pub(crate) fn synchronize_stream(&self, stream: StreamHandle) -> Result<(), Error> {
        // SAFETY: the stream is alive.
        unsafe { call!(self.cuStreamSynchronize(stream)) }
    }

    pub(crate) fn is_capturing(&self, stream: StreamHandle) -> Result<bool, Error> {
        let mut status = 0;
        // SAFETY: the stream is alive; the driver writes an int through the pointer.
        unsafe { call!(self.cuStreamIsCapturing(stream, &raw mut status)) }?;
        Ok(status != 0)
    }

    pub(crate) fn wait_event(&self, stream: StreamHandle, event: EventHandle) -> Result<(), Error> {
        // SAFETY: stream and event are alive.
        unsafe { call!(self.cuStreamWaitEvent(stream, event, 0)) }
    }

    pub(crate) fn create_event(&self) -> Result<EventHandle, Error> {
        let mut event = EventHandle::NULL;
        // SAFETY: the driver writes a handle through the pointer.
        unsafe { call!(self.cuEventCreate(&raw mut event, 0)) }?;
        Ok(event)
    }

    pub(crate) fn destroy_event(&self, event: EventHandle) -> Result<(), Error> {
        // SAFETY: only the owner of an event destroys it.
        unsafe { call!(self.cuEventDestroy_v2(event)) }
    }

    pub(crate) fn record_event(&self, event: EventHandle, stream: StreamHandle) -> Result<(), Error> {
        // SAFETY: event and stream are alive.
        unsafe { call!(self.cuEventRecord(event, stream)) }
    }

    pub(crate) fn synchronize_event(&self, event: EventHandle) -> Result<(), Error> {
        // SAFETY: the event is alive.
        unsafe { call!(self.cuEventSynchronize(event)) }
    }

    pub(crate) fn elapsed_milliseconds(&self, start: EventHandle, end: EventHandle) -> Result<f32, Error> {
        let mut milliseconds = 0.0;
        // SAFETY: the events are alive; the driver writes a float through the pointer.
        unsafe { call!(self.cuEventElapsedTime(&raw mut milliseconds, start, end)) }?;
        Ok(milliseconds)
    }
}

/// The result of the driver's assembler for a PTX module.
pub(crate) struct Assembled {
    pub(crate) cubin: Result<Vec<u8>, Error>,
    pub(crate) info_log: String,
    pub(crate) error_log: String,
}

/// The size in bytes of each log of the assembler.
const LOG_BYTES: usize = 16 << 10;

/// Methods for the assembler.
impl Driver {
    /// Assembles a PTX module for the device of the current context. `options` are pairs of a
    /// `CUjit_option` and its value.
    pub(crate) fn assemble(&self, ptx: &str, name: &str, options: &[(i32, u32)]) -> Result<Assembled, Error> {
        let (name, text) = (c_string(name)?, c_string(ptx)?);
        let (mut info, mut errors) = (vec![0_u8; LOG_BYTES], vec![0_u8; LOG_BYTES]);
        let number = |value: usize| ptr::without_provenance_mut(value);
        let mut values: Vec<(i32, *mut c_void)> =
            options.iter().map(|&(option, value)| (option, number(value as usize))).collect();
        values.extend([
            (sys::jit_option::INFO_LOG, info.as_mut_ptr().cast()),
            (sys::jit_option::INFO_LOG_BYTES, number(LOG_BYTES)),
            (sys::jit_option::ERROR_LOG, errors.as_mut_ptr().cast()),
            (sys::jit_option::ERROR_LOG_BYTES, number(LOG_BYTES)),
        ]);
        let (mut keys, mut values): (Vec<i32>, Vec<*mut c_void>) = values.into_iter().unzip();
        let mut state = LinkHandle::NULL;
        // SAFETY: both lists have the stated length. The lists, and the logs that they point to,
        // live until the state is destroyed below.
        unsafe {
            call!(self.cuLinkCreate_v2(
                keys.len() as u32,
                keys.as_mut_ptr(),
                values.as_mut_ptr(),
                &raw mut state
            ))
        }?;
        let cubin = self.assemble_into(state, &text, &name);
        // SAFETY: the state is alive. `assemble_into` has already copied the cubin.
        let destroyed = unsafe { call!(self.cuLinkDestroy(state)) };
        let log = |bytes: &[u8]| {
            let text = CStr::from_bytes_until_nul(bytes).map(CStr::to_string_lossy).unwrap_or_default();
            text.trim_end().to_owned()
        };
        Ok(Assembled {
            cubin: cubin.and_then(|cubin| destroyed.map(|()| cubin)),
            info_log: log(&info),
            error_log: log(&errors),
        })
    }

    fn assemble_into(&self, state: LinkHandle, ptx: &CStr, name: &CStr) -> Result<Vec<u8>, Error> {
        let text = ptx.to_bytes_with_nul();
        // SAFETY: the state is alive. The text has the stated length and ends in NUL, and the
        // driver only reads it.
        unsafe {
            call!(self.cuLinkAddData_v2(
                state,
                sys::JIT_INPUT_PTX,
                text.as_ptr().cast_mut().cast(),
                text.len(),
                name.as_ptr(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            ))
        }?;
        let (mut cubin, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: the state is alive; the driver writes through the two pointers.
        unsafe { call!(self.cuLinkComplete(state, &raw mut cubin, &raw mut bytes)) }?;
        if cubin.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: `cuLinkComplete` has returned the address and the length. The bytes live as long
        // as the state.
        Ok(unsafe { std::slice::from_raw_parts(cubin.cast::<u8>(), bytes) }.to_vec())
    }
}

/// Methods for modules and functions.
impl Driver {
    pub(crate) fn load_module(&self, image: Image<'_>) -> Result<ModuleHandle, Error> {
        let mut module = ModuleHandle::NULL;
        // SAFETY: the image's header states how many bytes the driver reads. `Image::new` has
        // checked that the image is at least this long.
        unsafe { call!(self.cuModuleLoadData(&raw mut module, image.bytes().as_ptr().cast())) }?;
        Ok(module)
    }

    pub(crate) fn unload_module(&self, module: ModuleHandle) -> Result<(), Error> {
        // SAFETY: only the owner of a module unloads it.
        unsafe { call!(self.cuModuleUnload(module)) }
    }

    pub(crate) fn function(&self, module: ModuleHandle, name: &str) -> Result<FunctionHandle, Error> {
        let (mut function, name) = (FunctionHandle::NULL, c_string(name)?);
        // SAFETY: the module is alive. The driver writes a handle through the pointer. The name
        // ends in NUL.
        unsafe { call!(self.cuModuleGetFunction(&raw mut function, module, name.as_ptr())) }?;
        Ok(function)
    }

    /// Returns the address and the size in bytes of a global variable.
    pub(crate) fn global(&self, module: ModuleHandle, name: &str) -> Result<(u64, usize), Error> {
        let (mut address, mut bytes, name) = (0, 0, c_string(name)?);
        // SAFETY: the module is alive. The driver writes through the two pointers. The name ends in
        // NUL.
        unsafe { call!(self.cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, name.as_ptr())) }?;
        Ok((address, bytes))
    }

    pub(crate) fn function_attribute(&self, function: FunctionHandle, attribute: i32) -> Result<u32, Error> {
        let mut value = 0;
        // SAFETY: the function's module is alive; the driver writes an int through the pointer.
        unsafe { call!(self.cuFuncGetAttribute(&raw mut value, attribute, function)) }?;
        Ok(value.max(0) as u32)
    }

    /// Returns the offset and the size in bytes of each parameter. Returns `None` if the driver
    /// lacks this query, or if a query fails with an unexpected error.
    ///
    /// With a `count`, queries only the first `count` parameters. Without a `count`, queries
    /// parameters until a query fails. Tools that check every call of the driver report this failed
    /// query.
    pub(crate) fn parameters(
        &self,
        function: FunctionHandle,
        count: Option<usize>,
    ) -> Result<Option<Vec<(usize, usize)>>, Error> {
        let Some(describe) = self.functions()?.cuFuncGetParamInfo else { return Ok(None) };
        let mut parameters = Vec::new();
        loop {
            if count == Some(parameters.len()) {
                return Ok(Some(parameters));
            }
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the function's module is alive; the driver writes sizes through the pointers.
            match unsafe { describe(function, parameters.len(), &raw mut offset, &raw mut bytes) } {
                0 => parameters.push((offset, bytes)),
                // There is no parameter with this index.
                sys::INVALID_VALUE => return Ok(Some(parameters)),
                _ => return Ok(None),
            }
        }
    }

    pub(crate) fn set_function_attribute(
        &self,
        function: FunctionHandle,
        attribute: i32,
        value: u32,
    ) -> Result<(), Error> {
        // SAFETY: the function's module is alive.
        unsafe { call!(self.cuFuncSetAttribute(function, attribute, value as i32)) }
    }

    pub(crate) fn prefer_shared_memory(&self, function: FunctionHandle) -> Result<(), Error> {
        // SAFETY: the function's module is alive.
        unsafe { call!(self.cuFuncSetCacheConfig(function, sys::CACHE_PREFER_SHARED)) }
    }
}

/// Methods for launches.
impl Driver {
    pub(crate) fn max_active_blocks(
        &self,
        function: FunctionHandle,
        threads: u32,
        shared_bytes: u32,
    ) -> Result<u32, Error> {
        let mut blocks = 0;
        // SAFETY: the function's module is alive; the driver writes an int through the pointer.
        unsafe {
            call!(self.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut blocks,
                function,
                threads as i32,
                shared_bytes as usize
            ))
        }?;
        Ok(blocks.max(0) as u32)
    }

    pub(crate) fn max_active_clusters(
        &self,
        function: FunctionHandle,
        launch: Launch<'_>,
    ) -> Result<u32, Error> {
        let mut clusters = 0;
        let config = launch.config();
        // SAFETY: the function's module is alive. The driver writes an int through the pointer. The
        // attributes live as long as `launch`.
        unsafe { call!(self.cuOccupancyMaxActiveClusters(&raw mut clusters, function, &raw const config)) }?;
        Ok(clusters.max(0) as u32)
    }

    /// Launches a kernel and passes its parameters as one block of bytes. The driver also accepts a
    /// list of pointers to the parameters. Such a list has no lengths, so this crate could not
    /// check how many bytes the driver reads from each pointer.
    pub(crate) fn launch(
        &self,
        function: FunctionHandle,
        launch: Launch<'_>,
        parameters: &[u8],
    ) -> Result<(), Error> {
        let mut bytes = parameters.len();
        let mut extra = [
            sys::PARAM_BUFFER_POINTER,
            parameters.as_ptr().cast_mut().cast(),
            sys::PARAM_BUFFER_SIZE,
            (&raw mut bytes).cast(),
            sys::PARAM_END,
        ];
        let extra = extra.as_mut_ptr();
        if !launch.attributes.is_empty() {
            let config = launch.config();
            // SAFETY: the function's module and the stream are alive. The driver reads the
            // attributes and the parameters, which are slices, before the call returns.
            return unsafe {
                call!(self.cuLaunchKernelEx(&raw const config, function, ptr::null_mut(), extra))
            };
        }
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        // SAFETY: the function's module and the stream are alive. The driver reads the parameters,
        // which are a slice, before the call returns.
        unsafe {
            call!(self.cuLaunchKernel(
                function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                launch.shared_bytes,
                launch.stream,
                ptr::null_mut(),
                extra
            ))
        }
    }

    /// Encodes a tensor map. The module `tensor_map` describes the arguments.
    pub(crate) fn encode_tensor_map(&self, tensor: &TensorMapCall) -> Result<[u64; 16], Error> {
        let functions = self.functions()?;
        let lacks = |call| {
            let (found, needed) = (self.version(), sys::needed_version(call));
            Error::NotInThisDriver { call, found, needed }
        };
        let mut map = AlignedMap([0; 16]);
        let (place, address) = ((&raw mut map).cast(), ptr::without_provenance_mut(tensor.address as usize));
        let TensorMapCall {
            element, rank, shape, strides, steps, interleave, swizzle, promotion, fill, ..
        } = tensor;
        let (shape, strides, steps) = (shape.as_ptr(), strides.as_ptr(), steps.as_ptr());
        match &tensor.block {
            TensorMapBlock::Tiled(block) => {
                const CALL: &str = "cuTensorMapEncodeTiled";
                let encode = functions.cuTensorMapEncodeTiled.ok_or_else(|| lacks(CALL))?;
                let block = block.as_ptr();
                // SAFETY: the map has the size and alignment of `CUtensorMap`. The driver reads
                // `rank` elements of the lists, after it has checked that the rank is at most 5.
                let code = unsafe {
                    encode(
                        place,
                        *element,
                        *rank,
                        address,
                        shape,
                        strides,
                        block,
                        steps,
                        *interleave,
                        *swizzle,
                        *promotion,
                        *fill,
                    )
                };
                self.check(CALL, code)?;
            }
            TensorMapBlock::Im2col { lower, upper, channels, pixels } => {
                const CALL: &str = "cuTensorMapEncodeIm2col";
                let encode = functions.cuTensorMapEncodeIm2col.ok_or_else(|| lacks(CALL))?;
                let (lower, upper) = (lower.as_ptr(), upper.as_ptr());
                // SAFETY: the map has the size and alignment of `CUtensorMap`. The driver first
                // checks that the rank is at most 5. Then it reads `rank` elements of the lists and
                // `rank - 2` elements of each corner.
                let code = unsafe {
                    encode(
                        place,
                        *element,
                        *rank,
                        address,
                        shape,
                        strides,
                        lower,
                        upper,
                        *channels,
                        *pixels,
                        steps,
                        *interleave,
                        *swizzle,
                        *promotion,
                        *fill,
                    )
                };
                self.check(CALL, code)?;
            }
        }
        Ok(map.0)
    }
}

/// The memory of a `CUtensorMap`. The driver's header aligns this type to 128 bytes since CUDA 13,
/// and to 64 bytes in older versions.
#[repr(C, align(128))]
struct AlignedMap([u64; 16]);

/// The elements that a copy through a tensor map moves.
pub(crate) enum TensorMapBlock {
    /// A block with these extents.
    Tiled([u32; 5]),
    /// A window of a convolution's input.
    Im2col { lower: [i32; 3], upper: [i32; 3], channels: u32, pixels: u32 },
}

/// The arguments of `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col`. The driver reads only
/// the first elements of each list:
///
/// - `rank` elements of `shape`, of `steps` and of the extents of a tiled block
/// - `rank - 1` elements of `strides`
/// - `rank - 2` elements of each corner of a window
pub(crate) struct TensorMapCall {
    pub(crate) element: u32,
    pub(crate) rank: u32,
    pub(crate) address: u64,
    pub(crate) shape: [u64; 5],
    pub(crate) strides: [u64; 5],
    pub(crate) block: TensorMapBlock,
    pub(crate) steps: [u32; 5],
    pub(crate) interleave: u32,
    pub(crate) swizzle: u32,
    pub(crate) promotion: u32,
    pub(crate) fill: u32,
}

/// The configuration of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: StreamHandle,
    pub(crate) attributes: &'a [LaunchAttribute],
}

impl Launch<'_> {
    /// Returns the structure for the driver. The pointer to the attributes is mutable, but the
    /// driver does not write to the attributes.
    fn config(&self) -> LaunchConfig {
        LaunchConfig {
            grid: self.grid,
            block: self.block,
            shared_bytes: self.shared_bytes,
            stream: self.stream,
            attributes: self.attributes.as_ptr().cast_mut(),
            attribute_count: self.attributes.len() as u32,
        }
    }
}
