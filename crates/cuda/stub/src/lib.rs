//! Implements `libcuda` without a GPU, for tests and for measurements of the host.
//!
//! Calls succeed and copies move bytes. Launches run nothing, but a caller can record and read
//! them.
//!
//! A list such as `devices=2,capability=8.0,fail=cuLaunchKernel:700` configures the stub. The list
//! is the value of `TILEWRIGHT_STUB_CUDA` or the argument of [`tilewright_stub_configure`]. Its
//! words are:
//!
//! | word | meaning |
//! |---|---|
//! | `version=12080` | the result of `cuDriverGetVersion` |
//! | `devices=1` | the number of devices; with 0, `cuInit` fails as on a machine without a GPU |
//! | `capability=9.0` | the compute capability of each device |
//! | `registers=32`, `local=0`, `shared=0`, `threads=1024` | attributes of each kernel: registers and bytes of local memory of a thread, bytes of shared memory and threads of a block |
//! | `capturing=1` | every stream is being captured |
//! | `record=1` | launches are recorded for [`tilewright_stub_take_launches`] |
//! | `assemblies=FILE` | each assembly appends a line with the length of its PTX to this file |
//! | `pause=0` | milliseconds that an assembly takes |
//! | `fail=cuInit:999` | this call fails with this code; may be given more than once |
//! | `records=0` | the maximum number of records in a buffer of CUPTI; 0 for no limit |
//!
//! The library is also a `libcupti`, which reports a duration of 1500 ns for each launch.
#![expect(unsafe_code, reason = "a C library: its callers give pointers")]
#![expect(missing_docs, reason = "the functions are documented in the manual of the driver")]

mod cupti;
mod state;

use std::ffi::{CStr, c_char, c_void};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use state::{Function, LAUNCHES, Launch, Link, RECORDING, STATE, State};

/// `CUresult`.
type Code = i32;

const INVALID_VALUE: Code = 1;
const NO_DEVICE: Code = 100;
const INVALID_DEVICE: Code = 101;
const INVALID_IMAGE: Code = 200;
const INVALID_CONTEXT: Code = 201;
const INVALID_PTX: Code = 218;
const NOT_FOUND: Code = 500;
const NOT_SUPPORTED: Code = 801;

/// `CU_POINTER_ATTRIBUTE_MAPPED`.
const POINTER_MAPPED: i32 = 13;

/// The maximum bytes of shared memory of a block, without (`SHARED`) and with (`SHARED_OPTIN`) an
/// opt-in.
const SHARED: u32 = 48 << 10;
const SHARED_OPTIN: u32 = 227 << 10;

/// Writes a value to a pointer that the caller passed, unless the pointer is null. Returns the code
/// for success.
fn put<T>(place: *mut T, value: T) -> Code {
    if !place.is_null() {
        // SAFETY: the caller of a function of the driver passes null or a pointer that is valid for
        // writes.
        unsafe { place.write(value) };
    }
    0
}

/// Returns the elements of a list that the caller passed.
fn list<'a, T>(start: *const T, length: usize) -> &'a [T] {
    if start.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: the caller of a function of the driver passes a list of the length that it states.
    unsafe { std::slice::from_raw_parts(start, length) }
}

/// Dereferences a handle or another pointer that the caller passed.
fn deref<'a, T>(pointer: *const T) -> &'a T {
    // SAFETY: the caller of a function of the driver passes handles from the driver, and pointers
    // to valid structures.
    unsafe { &*pointer }
}

/// Dereferences the handle of an assembler (`CUlinkState`).
fn assembler<'a>(link: *mut Link) -> &'a mut Link {
    // SAFETY: the handle came from `cuLinkCreate_v2`, and only one thread uses the handle.
    unsafe { &mut *link }
}

/// Converts a C string from the caller.
fn text(start: *const c_char) -> String {
    // SAFETY: the caller of a function of the driver passes a string that ends in NUL.
    unsafe { CStr::from_ptr(start) }.to_string_lossy().into_owned()
}

/// Copies bytes to the caller's memory.
fn copy_out(to: *mut c_void, from: &[u8]) {
    // SAFETY: the caller of a function of the driver passes memory of the length that it states.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(from.as_ptr(), from.len()) };
}

fn locked<T>(work: impl FnOnce(&mut State) -> T) -> T {
    work(&mut STATE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Exports functions of the driver, which only return a code if the configuration has one
/// (`fail=`).
macro_rules! driver {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "system" fn $name($($argument: $type),*) -> Code {
            if let Some(code) = state::failure(stringify!($name)) {
                return code;
            }
            $body
        }
    )*};
}

/// Replaces the configuration; the header of this file describes `words`. Ignores unknown words.
#[unsafe(no_mangle)]
pub extern "C" fn tilewright_stub_configure(words: *const c_char) {
    locked(|state| state.configure(&text(words)));
}

/// Returns the number of launches since the last call.
#[unsafe(no_mangle)]
pub extern "C" fn tilewright_stub_count_launches() -> u64 {
    LAUNCHES.swap(0, Ordering::Relaxed)
}

/// Returns the number of allocations, modules, streams and events that the program has not freed.
#[unsafe(no_mangle)]
pub extern "C" fn tilewright_stub_count_live() -> usize {
    locked(|state| state.memory.len() + state.modules.len() + state.live.len())
}

/// Removes the recorded launches, and copies them to `buffer`, one line for each launch. Copies at
/// most `capacity` bytes. Returns the number of copied bytes.
#[unsafe(no_mangle)]
pub extern "C" fn tilewright_stub_take_launches(buffer: *mut c_char, capacity: usize) -> usize {
    let lines = locked(|state| std::mem::take(&mut state.launches));
    let length = lines.len().min(capacity);
    copy_out(buffer.cast(), &lines.as_bytes()[..length]);
    length
}

// --- Driver and devices ---

driver! {
    fn cuInit(_flags: u32) { if locked(|state| state.devices) == 0 { NO_DEVICE } else { 0 } }
    fn cuDriverGetVersion(version: *mut i32) { put(version, locked(|state| state.version)) }
    fn cuGetErrorName(code: Code, name: *mut *const c_char) { put(name, state::error_text(code).0.as_ptr()) }
    fn cuGetErrorString(code: Code, words: *mut *const c_char) { put(words, state::error_text(code).1.as_ptr()) }
    fn cuDeviceGetCount(count: *mut i32) { put(count, locked(|state| state.devices)) }
    fn cuDeviceGet(device: *mut i32, ordinal: i32) {
        if (0..locked(|state| state.devices)).contains(&ordinal) { put(device, ordinal) } else { INVALID_DEVICE }
    }
    fn cuDeviceGetName(name: *mut c_char, length: i32, _device: i32) {
        let words = b"Stub GPU\0";
        if length < words.len() as i32 { return INVALID_VALUE; }
        copy_out(name.cast(), words);
        0
    }
    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, _device: i32) {
        match locked(|state| state.device_attribute(attribute)) {
            Some(found) => put(value, found),
            None => INVALID_VALUE,
        }
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: i32) { put(bytes, 80 << 30) }
}

// --- Contexts: the handle of a device's primary context is 4096 * (ordinal + 1) ---

driver! {
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: i32) { put(context, (device as usize + 1) << 12) }
    fn cuCtxGetCurrent(context: *mut usize) { put(context, state::current()) }
    fn cuCtxSetCurrent(context: usize) {
        state::with_stack(|stack| {
            stack.pop();
            stack.extend((context != 0).then_some(context));
        });
        0
    }
    fn cuCtxPushCurrent_v2(context: usize) { state::with_stack(|stack| stack.push(context)); 0 }
    fn cuCtxPopCurrent_v2(context: *mut usize) {
        match state::with_stack(Vec::pop) {
            Some(popped) => put(context, popped),
            None => INVALID_CONTEXT,
        }
    }
    fn cuCtxGetDevice(device: *mut i32) {
        match state::current() {
            0 => INVALID_CONTEXT,
            context => put(device, (context >> 12) as i32 - 1),
        }
    }
    fn cuCtxSynchronize() { 0 }
    fn cuCtxGetLimit(value: *mut usize, _limit: i32) { put(value, locked(|state| state.limit)) }
    fn cuCtxSetLimit(_limit: i32, value: usize) { locked(|state| state.limit = value); 0 }
}

// --- Memory: vectors of this process, with made-up device addresses ---

driver! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) { put(free, 79 << 30); put(total, 80 << 30) }
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        if bytes == 0 || state::current() == 0 { return INVALID_VALUE; }
        put(address, locked(|state| state.allocate(bytes)))
    }
    fn cuPointerGetAttribute(value: *mut c_void, attribute: i32, address: u64) {
        if attribute != POINTER_MAPPED || locked(|state| state.range(address, 1).is_none()) { return INVALID_VALUE; }
        put(value.cast(), true)
    }
    fn cuMemFree_v2(address: u64) {
        if locked(|state| state.memory.remove(&address)).is_some() { 0 } else { INVALID_VALUE }
    }
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
        let from = list(from.cast::<u8>(), bytes);
        locked(|state| state.range(to, bytes).map(|range| range.copy_from_slice(from))).map_or(INVALID_VALUE, |()| 0)
    }
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
        locked(|state| state.range(from, bytes).map(|range| copy_out(to, range))).map_or(INVALID_VALUE, |()| 0)
    }
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, _stream: usize) {
        cuMemcpyHtoD_v2(to, from, bytes)
    }
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, _stream: usize) {
        cuMemcpyDtoH_v2(to, from, bytes)
    }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, _stream: usize) {
        let copied = locked(|state| {
            let content = state.range(from, bytes)?.to_vec();
            state.range(to, bytes).map(|range| range.copy_from_slice(&content))
        });
        copied.map_or(INVALID_VALUE, |()| 0)
    }
    fn cuMemsetD8_v2(to: u64, value: u8, bytes: usize) {
        locked(|state| state.range(to, bytes).map(|range| range.fill(value))).map_or(INVALID_VALUE, |()| 0)
    }
    fn cuMemsetD8Async(to: u64, value: u8, bytes: usize, _stream: usize) { cuMemsetD8_v2(to, value, bytes) }
}

// --- Streams and events ---

driver! {
    fn cuStreamCreate(stream: *mut usize, _flags: u32) { put(stream, locked(State::create)) }
    fn cuStreamDestroy_v2(stream: usize) {
        if locked(|state| state.live.remove(&stream)) { 0 } else { INVALID_VALUE }
    }
    fn cuStreamSynchronize(_stream: usize) { 0 }
    fn cuStreamIsCapturing(_stream: usize, status: *mut i32) {
        put(status, locked(|state| i32::from(state.capturing)))
    }
    fn cuStreamWaitEvent(_stream: usize, _event: usize, _flags: u32) { 0 }
    fn cuEventCreate(event: *mut usize, _flags: u32) { put(event, locked(State::create)) }
    fn cuEventDestroy_v2(event: usize) {
        if locked(|state| state.live.remove(&event)) { 0 } else { INVALID_VALUE }
    }
    fn cuEventRecord(event: usize, _stream: usize) {
        locked(|state| state.events.insert(event, std::time::Instant::now()));
        0
    }
    fn cuEventSynchronize(_event: usize) { 0 }
    fn cuEventElapsedTime(milliseconds: *mut f32, start: usize, end: usize) {
        let times = locked(|state| Some((*state.events.get(&start)?, *state.events.get(&end)?)));
        let Some((start, end)) = times else { return INVALID_VALUE };
        put(milliseconds, end.duration_since(start).as_secs_f32() * 1000.0)
    }
}

// --- Assembler and modules ---

driver! {
    fn cuLinkCreate_v2(count: u32, keys: *mut i32, values: *mut *mut c_void, state: *mut *mut Link) {
        let options = list(keys, count as usize).iter().copied().zip(list(values, count as usize).iter().copied());
        put(state, Box::into_raw(Box::new(Link::new(options.collect()))))
    }
    fn cuLinkAddData_v2(
        link: *mut Link, _kind: i32, data: *mut c_void, bytes: usize, _name: *const c_char,
        _count: u32, _keys: *mut i32, _values: *mut *mut c_void,
    ) {
        let ptx = String::from_utf8_lossy(list(data.cast::<u8>(), bytes)).into_owned();
        let link = assembler(link);
        let Some(index) = ptx.lines().position(|text| text.contains("syntax error")) else {
            link.assemble(&ptx);
            let (log, pause) = locked(|state| (state.assemblies.clone(), state.pause));
            state::log_assembly(log.as_deref(), &ptx);
            std::thread::sleep(pause);
            if ptx.contains("too few registers") {
                link.write(3, "ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized\0");
            }
            return 0;
        };
        link.write(5, &format!("ptxas application ptx input, line {}; fatal   : syntax error\0", index + 1));
        INVALID_PTX
    }
    fn cuLinkComplete(link: *mut Link, cubin: *mut *mut c_void, bytes: *mut usize) {
        let link = assembler(link);
        put(cubin, link.cubin.as_mut_ptr().cast());
        put(bytes, link.cubin.len())
    }
    fn cuLinkDestroy(link: *mut Link) {
        state::destroy(link);
        0
    }
    fn cuModuleLoadData(module: *mut usize, image: *const c_void) {
        let start = list(image.cast::<u8>(), 4);
        if start != b"\x7fELF" && start != [0x50, 0xed, 0x55, 0xba] { return INVALID_IMAGE; }
        // The stub's assembler states the length of the options and the PTX in the header. In other
        // cubins, `cuModuleGetFunction` finds a kernel of any name.
        let header = list(image.cast::<u8>(), 0x40);
        let ptx = state::embedded_length(header).map(|bytes| list(image.cast::<u8>(), 0x40 + bytes)[0x40..].to_vec());
        put(module, locked(|state| state.add_module(ptx)))
    }
    fn cuModuleUnload(module: usize) {
        if locked(|state| state.modules.remove(&module)).is_some() { 0 } else { INVALID_VALUE }
    }
    fn cuModuleGetFunction(function: *mut *const Function, module: usize, name: *const c_char) {
        match locked(|state| state.function(module, &text(name))) {
            // Functions are never freed, because there are only a few.
            Some(found) => put(function, Box::into_raw(Box::new(found)).cast_const()),
            None => NOT_FOUND,
        }
    }
    fn cuModuleGetGlobal_v2(_address: *mut u64, _bytes: *mut usize, _module: usize, _name: *const c_char) { NOT_FOUND }
    fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: *const Function) {
        let function = deref(function);
        put(value, locked(|state| state.function_attribute(function, attribute)))
    }
    fn cuFuncGetParamInfo(function: *const Function, index: usize, offset: *mut usize, bytes: *mut usize) {
        let Some(parameters) = &deref(function).parameters else { return NOT_SUPPORTED };
        let Some(&(start, size)) = parameters.get(index) else { return INVALID_VALUE };
        put(offset, start);
        put(bytes, size)
    }
    fn cuFuncSetAttribute(function: *const Function, attribute: i32, value: i32) {
        let function = deref(function);
        if attribute == 8 {
            if value as u32 > SHARED_OPTIN { return INVALID_VALUE; }
            function.dynamic_limit.store(value as u32, Ordering::Relaxed);
        }
        0
    }
    fn cuFuncSetCacheConfig(_function: *const Function, _config: i32) { 0 }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32, function: *const Function, threads: i32, shared: usize,
    ) {
        let limit = SHARED.max(deref(function).dynamic_limit.load(Ordering::Relaxed)) as usize;
        let by_shared = if shared > limit { 0 } else { (228_usize << 10) / (shared + 1024) };
        put(blocks, (2048 / threads.max(1)).min(by_shared as i32))
    }
    fn cuOccupancyMaxActiveClusters(clusters: *mut i32, _function: *const Function, config: *const LaunchConfig) {
        let config = deref(config);
        put(clusters, 132 / config.grid.iter().product::<u32>().max(1) as i32)
    }
    fn cuTensorMapEncodeTiled(
        map: *mut c_void, element: u32, rank: u32, address: *mut c_void, shape: *const u64, strides: *const u64,
        block: *const u32, _steps: *const u32, _interleave: u32, swizzle: u32, _promotion: u32, _fill: u32,
    ) {
        if state::current() == 0 {
            return INVALID_CONTEXT;
        }
        let rank = rank as usize;
        let mut words = vec![address.addr() as u64, u64::from(element), rank as u64];
        words.extend(list(shape, rank));
        words.resize(8, 0);
        words.extend(list(strides, rank - 1));
        words.resize(12, 0);
        for pair in list(block, rank).chunks(2) {
            words.push(u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 32);
        }
        words.resize(15, 0);
        words.push(swizzle.into());
        encode(map, &words, &[])
    }
    fn cuTensorMapEncodeIm2col(
        map: *mut c_void, element: u32, rank: u32, address: *mut c_void, _shape: *const u64, _strides: *const u64,
        lower: *const i32, _upper: *const i32, channels: u32, pixels: u32, _steps: *const u32, _interleave: u32,
        _swizzle: u32, _promotion: u32, _fill: u32,
    ) {
        if state::current() == 0 {
            return INVALID_CONTEXT;
        }
        let corner: Vec<u64> = list(lower, rank as usize - 2).iter().map(|&offset| i64::from(offset) as u64).collect();
        let head = [address.addr() as u64, u64::from(element), u64::from(rank), channels.into(), pixels.into()];
        encode(map, &head, &corner)
    }
}

/// Writes a tensor map in the stub's format, which contains only some of the arguments.
fn encode(map: *mut c_void, head: &[u64], tail: &[u64]) -> Code {
    let mut words = [0_u64; 16];
    words[..head.len()].copy_from_slice(head);
    words[head.len()..head.len() + tail.len()].copy_from_slice(tail);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    copy_out(map, &bytes);
    0
}

// --- Launches ---

/// `CUlaunchAttribute`
#[repr(C)]
pub struct LaunchAttribute {
    id: u32,
    padding: u32,
    value: [u32; 16],
}

/// `CUlaunchConfig`
#[repr(C)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: usize,
    attributes: *const LaunchAttribute,
    count: u32,
}

driver! {
    fn cuLaunchKernel(
        function: *const Function, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: usize, _pointers: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(function, &LaunchConfig { grid, block, shared, stream, attributes: std::ptr::null(), count: 0 }, extra)
    }
    fn cuLaunchKernelEx(
        config: *const LaunchConfig, function: *const Function, _pointers: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        launch(function, deref(config), extra)
    }
}

fn launch(function: *const Function, config: &LaunchConfig, extra: *mut *mut c_void) -> Code {
    let function = deref(function);
    if config.shared > SHARED.max(function.dynamic_limit.load(Ordering::Relaxed)) || config.grid.contains(&0)
    {
        return INVALID_VALUE;
    }
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
    cupti::launched();
    if RECORDING.load(Ordering::Relaxed) {
        let parameters = parameters(extra);
        let attributes = list(config.attributes, config.count as usize);
        let attributes =
            attributes.iter().map(|attribute| (attribute.id, attribute.value)).collect::<Vec<_>>();
        let LaunchConfig { grid, block, shared, stream, .. } = *config;
        let context = state::current();
        let launch =
            Launch { function, grid, block, shared, stream, context, attributes: &attributes, parameters };
        locked(|state| state.record(&launch));
    }
    0
}

/// Returns the parameters of a launch; empty unless they are one block of bytes.
fn parameters<'a>(extra: *mut *mut c_void) -> &'a [u8] {
    let extra = list(extra, if extra.is_null() { 0 } else { 4 });
    match extra {
        [first, start, second, bytes] if (first.addr(), second.addr()) == (1, 2) => {
            // A pointer to the length follows the second key.
            list(start.cast::<u8>().cast_const(), *deref(bytes.cast::<usize>()))
        }
        _ => &[],
    }
}
