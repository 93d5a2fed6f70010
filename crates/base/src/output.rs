//! The output of running kernels, to the standard output of the process, or through its host.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The host's function that prints a text.
static THROUGH: OnceLock<fn(&str) -> bool> = OnceLock::new();

/// Sets the function that prints the output. It returns false if the text has to be written to the
/// output of the process instead, and flushes its own buffer of that output before. The first
/// function that is set stays.
pub fn print_through(take: fn(&str) -> bool) {
    // A second host of the process is ignored.
    let _ = THROUGH.set(take);
}

/// The captured output, while a caller captures it.
static TAKEN: Mutex<Option<String>> = Mutex::new(None);

fn taken() -> MutexGuard<'static, Option<String>> {
    // The text is valid after a panic too.
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a function, and returns the output of kernels in the meantime, which is not printed. Only
/// one caller may capture it at a time.
pub fn take_printed<R>(run: impl FnOnce() -> R) -> (R, String) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    *taken() = Some(String::new());
    let result = run();
    (result, taken().take().unwrap_or_default())
}

/// Writes text of a running kernel.
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
    // A closed output does not stop a kernel.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Returns a float as C's `%f` prints it.
pub fn c_float(value: f64, precision: usize) -> String {
    if value.is_nan() {
        "nan".into()
    } else if value.is_infinite() {
        if value > 0.0 { "inf".into() } else { "-inf".into() }
    } else {
        format!("{value:.precision$}")
    }
}

/// Returns the width of a printed index along an axis: that of the largest index, as Triton counts;
/// 0 for an axis of one element, whose index has no padding.
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
