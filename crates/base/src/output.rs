//! Prints the text of running kernels.
//!
//! The destination is a capture, a function of the host process, or standard output.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The function that passes text to the host.
static THROUGH: OnceLock<fn(&str) -> bool> = OnceLock::new();

/// Sets the function that prints the output of kernels.
///
/// The function returns true if it has printed the text. It returns false if [`print()`] must write
/// the text to the standard output of the process. Before it returns false, it flushes the host's
/// own buffer of the standard output. Only the first call of `print_through` has an effect.
pub fn print_through(take: fn(&str) -> bool) {
    // The function of a second host in the same process is ignored.
    let _ = THROUGH.set(take);
}

/// The output that the running call of [`take_printed`] has captured so far.
static TAKEN: Mutex<Option<String>> = Mutex::new(None);

fn taken() -> MutexGuard<'static, Option<String>> {
    // A thread that panics leaves the text valid.
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a function, and returns its result and the text that kernels print during the call. No
/// other output gets this text. Only one call runs at a time; calls of other threads wait.
pub fn take_printed<R>(run: impl FnOnce() -> R) -> (R, String) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    *taken() = Some(String::new());
    let result = run();
    (result, taken().take().unwrap_or_default())
}

/// Prints text of a running kernel into the capture if there is one. Otherwise, prints through the
/// host, if it has set a function, else to standard output.
pub fn print(text: &str) {
    if text.is_empty() {
        return;
    }
    if let Some(all) = taken().as_mut() {
        all.push_str(text);
        return;
    }
    if THROUGH.get().is_some_and(|take| take(text)) {
        return;
    }
    let mut out = std::io::stdout().lock();
    // A closed standard output does not stop a kernel.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Formats a float as `%f` of C does, with `precision` digits after the point.
pub fn c_float(value: f64, precision: usize) -> String {
    if value.is_nan() {
        "nan".into()
    } else if value.is_infinite() {
        if value > 0.0 { "inf".into() } else { "-inf".into() }
    } else {
        format!("{value:.precision$}")
    }
}

/// Returns the width to which a printed index along an axis is padded, as in Triton. The width is
/// the number of digits of the largest index. The width is 0 if the axis has at most one element.
pub fn index_width(extent: u32) -> usize {
    match extent {
        0 | 1 => 0,
        _ => (extent - 1).to_string().len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_by_c() {
        for (value, text) in [
            (1.5, "1.500000"),
            (-0.0, "-0.000000"),
            (1e20, "100000000000000000000.000000"),
            (f64::NAN, "nan"),
            (-f64::INFINITY, "-inf"),
            (2.5e-7, "0.000000"),
        ] {
            assert_eq!(c_float(value, 6), text);
        }
    }

    #[test]
    fn what_is_printed_can_be_taken() {
        let (number, text) = take_printed(|| {
            print("a\n");
            print("b\n");
            7
        });
        assert_eq!((number, text.as_str()), (7, "a\nb\n"));
    }

    #[test]
    fn indices_have_the_width_of_the_last_one() {
        assert_eq!([1, 2, 8, 10, 11, 16, 100, 128].map(index_width), [0, 1, 1, 1, 2, 2, 2, 3]);
    }
}
