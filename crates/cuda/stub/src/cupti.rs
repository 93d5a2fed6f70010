//! Implements the activity interface of CUPTI, with records of each launch.
//!
//! Fields that callers read have the offsets of CUPTI's headers. All other bytes have a fixed
//! pattern, so that tests detect a wrong offset.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::{Code, locked, put, state};

const INVALID_OPERATION: Code = 7;
const MAX_LIMIT_REACHED: Code = 12;
const QUEUE_EMPTY: Code = 18;
const INVALID_KIND: Code = 21;

const DRIVER: u32 = 4;
const CONCURRENT_KERNEL: u32 = 10;
const EXTERNAL_CORRELATION: u32 = 39;

/// The duration of a launch in nanoseconds (`TAKEN`), and the time between the starts of two
/// launches (`APART`).
const TAKEN: u64 = 1500;
const APART: u64 = 10_000;

type Requested = extern "system" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = extern "system" fn(*mut c_void, u32, *mut u8, usize, usize);

struct Activities {
    callbacks: Option<(Requested, Completed)>,
    enabled: Vec<u32>,
    /// The records that the stub has not passed to the caller yet.
    records: Vec<Vec<u8>>,
}

static ACTIVITIES: Mutex<Activities> =
    Mutex::new(Activities { callbacks: None, enabled: Vec::new(), records: Vec::new() });
static CALLS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static NUMBERS: RefCell<Vec<(u32, u64)>> = const { RefCell::new(Vec::new()) };
}

fn activities<T>(work: impl FnOnce(&mut Activities) -> T) -> T {
    work(&mut ACTIVITIES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the size in bytes of a record of this kind.
fn size(kind: u32) -> usize {
    match kind {
        EXTERNAL_CORRELATION => 24,
        DRIVER => 40,
        _ => 208,
    }
}

fn record(kind: u32, words: &[(usize, u32)], longs: &[(usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0xa5; size(kind)];
    bytes[..4].copy_from_slice(&kind.to_ne_bytes());
    for (place, word) in words {
        bytes[*place..place + 4].copy_from_slice(&word.to_ne_bytes());
    }
    for (place, long) in longs {
        bytes[*place..place + 8].copy_from_slice(&long.to_ne_bytes());
    }
    bytes
}

/// Adds the records of a launch. Only records of enabled kinds are added.
pub fn launched() {
    activities(|activities| {
        let is_on = |kind| activities.enabled.contains(&kind);
        if activities.enabled.is_empty() {
            return;
        }
        let call = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
        let start = u64::from(call) * APART;
        let mut made = Vec::new();
        if is_on(DRIVER) {
            if is_on(EXTERNAL_CORRELATION) {
                let numbers = NUMBERS.with_borrow(Clone::clone);
                // CUPTI writes the last external correlation id of each kind (1 to 5) before the
                // record of the call.
                for kind in 1..=5 {
                    if let Some((_, number)) = numbers.iter().rfind(|(own, _)| *own == kind) {
                        made.push(record(EXTERNAL_CORRELATION, &[(4, kind), (16, call)], &[(8, *number)]));
                    }
                }
            }
            made.push(record(DRIVER, &[(32, call), (36, 0)], &[(8, start - 100), (16, start - 50)]));
        }
        if is_on(CONCURRENT_KERNEL) {
            made.push(record(CONCURRENT_KERNEL, &[(92, call)], &[(16, start), (24, start + TAKEN)]));
        }
        activities.records.extend(made);
    });
}

/// Exports functions of CUPTI, which only return a code if the configuration has one (`fail=`).
macro_rules! cupti {
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

cupti! {
    fn cuptiGetTimestamp(time: *mut u64) { put(time, u64::from(CALLS.load(Ordering::Relaxed)) * APART) }
    fn cuptiGetResultString(code: Code, text: *mut *const c_char) {
        put(text, match code {
            35 => c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
            _ => c"CUPTI_ERROR_UNKNOWN",
        }.as_ptr())
    }
    fn cuptiActivityRegisterCallbacks(requested: Requested, completed: Completed) {
        activities(|activities| activities.callbacks = Some((requested, completed)));
        0
    }
    fn cuptiActivityEnable(kind: u32) {
        if ![DRIVER, CONCURRENT_KERNEL, EXTERNAL_CORRELATION].contains(&kind) {
            return INVALID_KIND;
        }
        activities(|activities| activities.enabled.push(kind));
        0
    }
    fn cuptiActivityDisable(kind: u32) {
        activities(|activities| activities.enabled.retain(|known| *known != kind));
        0
    }
    fn cuptiActivityPushExternalCorrelationId(kind: u32, number: u64) {
        NUMBERS.with_borrow_mut(|numbers| numbers.push((kind, number)));
        0
    }
    fn cuptiActivityPopExternalCorrelationId(kind: u32, last: *mut u64) {
        NUMBERS.with_borrow_mut(|numbers| match numbers.iter().rposition(|(own, _)| *own == kind) {
            Some(at) => put(last, numbers.remove(at).1),
            None => QUEUE_EMPTY,
        })
    }
    fn cuptiActivityFlushAll(_flag: u32) {
        let (callbacks, records) = activities(|activities| (activities.callbacks, std::mem::take(&mut activities.records)));
        let Some(callbacks) = callbacks else { return INVALID_OPERATION };
        let most = locked(|state| state.records);
        for part in records.chunks(if most == 0 { records.len().max(1) } else { most }) {
            hand_over(callbacks, part);
        }
        0
    }
    fn cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, place: *mut *mut u8) {
        // SAFETY: `place` is valid, and contains null or the result of the previous call.
        let last = unsafe { *place };
        let next = if last.is_null() {
            buffer
        } else {
            // SAFETY: a record begins at `last`, and the next record follows it.
            unsafe { last.add(size(last.cast::<u32>().read_unaligned())) }
        };
        if next.addr() >= buffer.addr() + valid {
            return MAX_LIMIT_REACHED;
        }
        put(place, next)
    }
}

/// Requests a buffer from the caller, fills it with records, and calls the callback for it.
fn hand_over((requested, completed): (Requested, Completed), records: &[Vec<u8>]) {
    let (mut buffer, mut size, mut most) = (std::ptr::null_mut(), 0, 0);
    requested(&raw mut buffer, &raw mut size, &raw mut most);
    let bytes = records.concat();
    assert!(
        !buffer.is_null() && buffer.addr() % 8 == 0 && size >= bytes.len(),
        "the buffer is aligned to 8 bytes and has room for the records"
    );
    crate::copy_out(buffer.cast(), &bytes);
    completed(std::ptr::null_mut(), 0, buffer, size, bytes.len());
}
