//! Defines the C interface. `include/tilewright.h` documents it.
#![expect(unsafe_code, reason = "C passes pointers; the header says what they point to")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use tilewright_base::{Code, Color, Diagnostic};
use tilewright_runtime::lock::Bundle;
use tilewright_runtime::{Device, Error, Grid, Interrupt, Pointer, Region, StreamRef, Value, parse_dtype};

/// The version of the interface, which is `TW_INTERFACE` in the header.
const INTERFACE: u32 = 1;

/// The error of a failed call.
pub struct TwError {
    code: CString,
    message: CString,
}

/// The kinds of arguments, which are `tw_kind` in the header.
const INTEGER: c_int = 0;
const REAL: c_int = 1;
const BOOLEAN: c_int = 2;
const POINTER: c_int = 3;
const CONST_POINTER: c_int = 4;
const TEXT: c_int = 5;

/// An argument of a launch, which is `tw_argument` in the header.
#[repr(C)]
pub struct TwArgument {
    name: *const c_char,
    kind: c_int,
    ty: *const c_char,
    value: TwValue,
    bytes: u64,
}

/// The value of an argument. The kind of the argument selects the member.
#[repr(C)]
pub union TwValue {
    integer: i64,
    real: f64,
    pointer: *mut c_void,
    text: *const c_char,
}

/// Returns the version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn tw_version() -> *const c_char {
    const { CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) }
        .expect("the version has no NUL")
        .as_ptr()
}

/// Returns the version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn tw_interface() -> u32 {
    INTERFACE
}

/// Opens a lock or a packed lock.
///
/// # Safety
/// `path` must be a C string. `error` must be null or point to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_bundle_open(path: *const c_char, error: *mut *mut TwError) -> *mut Bundle {
    // SAFETY: the caller passes a C string.
    let open = || Bundle::open(Path::new(unsafe { text(path, "path") }?));
    // SAFETY: `error` is null or points to a pointer.
    let opened = unsafe { guarded(error, open) };
    opened.map_or(std::ptr::null_mut(), |bundle| Box::into_raw(Box::new(bundle)))
}

/// Opens a packed lock in memory.
///
/// # Safety
/// `bytes` must point to `size` bytes. `error` must be null or point to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_bundle_from_memory(
    bytes: *const c_void,
    size: usize,
    error: *mut *mut TwError,
) -> *mut Bundle {
    // SAFETY: the caller passes this memory.
    let open = || Bundle::from_bytes("the packed lock", unsafe { slice(bytes.cast(), size) });
    // SAFETY: `error` is null or points to a pointer.
    let opened = unsafe { guarded(error, open) };
    opened.map_or(std::ptr::null_mut(), |bundle| Box::into_raw(Box::new(bundle)))
}

/// Frees a bundle.
///
/// # Safety
/// `bundle` must be null or a bundle of this library. The caller must not use the bundle
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_bundle_close(bundle: *mut Bundle) {
    if !bundle.is_null() {
        // SAFETY: the library created the bundle from a box, and the caller does not use it
        // afterwards.
        drop(unsafe { Box::from_raw(bundle) });
    }
}

/// Compiles or loads the code of all kernels of a bundle for a device.
///
/// # Safety
/// The pointers must satisfy the requirements of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_bundle_prepare(
    bundle: *mut Bundle,
    device: *const c_char,
    error: *mut *mut TwError,
) -> c_int {
    let prepare = || {
        // SAFETY: the caller passes a bundle or null.
        let bundle = unsafe { bundle.as_ref() }.ok_or_else(|| invalid("the bundle is NULL"))?;
        // SAFETY: the caller passes a C string.
        bundle.prepare(Device::parse(unsafe { text(device, "device") }?)?)
    };
    // SAFETY: `error` is null or points to a pointer.
    c_int::from(unsafe { guarded(error, prepare) }.is_some())
}

/// Launches a kernel.
///
/// # Safety
/// The pointers must satisfy the requirements of the header. The memory of the arguments must stay
/// valid until the kernel has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_bundle_launch(
    bundle: *mut Bundle,
    kernel: *const c_char,
    device: *const c_char,
    grid: *const u32,
    arguments: *const TwArgument,
    count: usize,
    stream: *mut c_void,
    error: *mut *mut TwError,
) -> c_int {
    let launch = || {
        // SAFETY: the caller passes a bundle or null.
        let bundle = unsafe { bundle.as_ref() }.ok_or_else(|| invalid("the bundle is NULL"))?;
        // SAFETY: the caller passes C strings.
        let (kernel, device) = unsafe { (text(kernel, "kernel")?, text(device, "device")?) };
        let device = Device::parse(device)?;
        if grid.is_null() || arguments.is_null() && count > 0 {
            return Err(invalid("the grid or the list of arguments is NULL"));
        }
        // SAFETY: the caller passes three extents.
        let extents = unsafe { std::slice::from_raw_parts(grid, 3) };
        let extents: Vec<i128> = extents.iter().map(|&extent| extent.into()).collect();
        let mut named = Vec::with_capacity(count);
        for index in 0..count {
            // SAFETY: the caller passes `count` arguments.
            named.push(unsafe { argument(&*arguments.add(index), device) }?);
        }
        let (handle, values) = bundle.find(kernel, device, &named)?;
        // SAFETY: the caller passes a stream of the device, or null.
        let stream = unsafe { StreamRef::from_raw(stream.addr() as u64) };
        handle.launch_on(stream, Grid::new(&extents)?, &values, &[], Interrupt::Never)
    };
    // SAFETY: `error` is null or points to a pointer.
    c_int::from(unsafe { guarded(error, launch) }.is_some())
}

/// Returns the code of an error, or an empty text for null.
///
/// # Safety
/// `error` must be null or an error of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_error_code(error: *const TwError) -> *const c_char {
    // SAFETY: the caller passes an error or null.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.code.as_ptr())
}

/// Returns the message of an error, or an empty text for null.
///
/// # Safety
/// `error` must be null or an error of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_error_message(error: *const TwError) -> *const c_char {
    // SAFETY: the caller passes an error or null.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// Frees an error.
///
/// # Safety
/// `error` must be null or an error of this library. The caller must not use the error afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_error_free(error: *mut TwError) {
    if !error.is_null() {
        // SAFETY: `guarded` created the error from a box, and the caller does not use it
        // afterwards.
        drop(unsafe { Box::from_raw(error) });
    }
}

/// Calls a function. If the function fails, stores its error and returns `None`. A panic also
/// becomes an error, because it must not unwind into C.
///
/// # Safety
/// `error` must be null or point to a pointer.
unsafe fn guarded<T>(error: *mut *mut TwError, call: impl FnOnce() -> Result<T, Error>) -> Option<T> {
    let failed = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(failed)) => TwError {
            code: CString::new(failed.code().map_or("", Code::name)).unwrap_or_default(),
            message: c_string(&failed.render(Color::Never)),
        },
        Err(_) => TwError { code: CString::default(), message: c_string("internal error of tilewright") },
    };
    if !error.is_null() {
        // SAFETY: `error` is not null, so it points to a pointer.
        unsafe { *error = Box::into_raw(Box::new(failed)) };
    }
    None
}

/// Returns a text as a C string. NUL bytes are removed.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Returns the text of a C string. Fails if the pointer is null or the text is not UTF-8.
///
/// # Safety
/// `text` must be null or a C string that lives as long as the result.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(invalid(&format!("the {what} is NULL")));
    }
    // SAFETY: `text` is a C string.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| invalid(&format!("the {what} is not UTF-8")))
}

/// Returns the name and the value of an argument.
///
/// # Safety
/// The argument must satisfy the requirements of the header.
unsafe fn argument<'a>(given: &TwArgument, device: Device) -> Result<(&'a str, Value<'a>), Error> {
    // SAFETY: the name is a C string.
    let name = unsafe { text(given.name, "name of an argument") }?;
    let value = match given.kind {
        // SAFETY: the kind determines which member of the union is set.
        INTEGER => Value::Int(unsafe { given.value.integer }.into()),
        // SAFETY: as above.
        REAL => Value::Float(unsafe { given.value.real }),
        // SAFETY: as above.
        BOOLEAN => Value::Bool(unsafe { given.value.integer } != 0),
        // SAFETY: as above.
        TEXT => Value::from_text(unsafe { text(given.value.text, "text of an argument") }?),
        POINTER | CONST_POINTER => {
            // SAFETY: the type is a C string.
            let ty = unsafe { text(given.ty, "type of a pointer") }?;
            let pointee = parse_dtype(ty).ok_or_else(|| invalid(&format!("{name}: unknown type '{ty}'")))?;
            // SAFETY: the kind determines which member of the union is set.
            let base = unsafe { given.value.pointer }.cast::<u8>();
            let bytes = usize::try_from(given.bytes).map_err(|_| invalid("too many bytes"))?;
            let region = if given.kind == POINTER {
                // SAFETY: the caller passes memory that the kernel may access until it has ended.
                unsafe { Region::new(base, bytes) }
            } else {
                // SAFETY: the caller passes memory that the kernel may read until it has ended.
                Region::read_only(unsafe { slice(base, bytes) })
            };
            Value::Pointer(Pointer { pointee, address: base.addr() as u64, region, device: device.memory() })
        }
        kind => return Err(invalid(&format!("{name}: unknown kind {kind} of an argument"))),
    };
    Ok((name, value))
}

/// Returns the bytes at `base`, or an empty slice if `base` is null.
///
/// # Safety
/// The bytes must be readable for `'a`.
unsafe fn slice<'a>(base: *const u8, bytes: usize) -> &'a [u8] {
    // SAFETY: the caller ensures that the bytes are readable for `'a`.
    if base.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(base, bytes) } }
}

fn invalid(message: &str) -> Error {
    Diagnostic::new(Code::InvalidArgument, message).into()
}
