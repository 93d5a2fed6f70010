//! Keeps the counters of launches on the simulator, from the first [`keep_reports`] on.

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use tilewright_frontend::{Argument, HostValue};
use tilewright_sim::Report;

use crate::Handle;
use crate::variants::ChosenVariant;

/// The launches of the same code, and the sums of their counters.
struct Launches {
    count: u64,
    report: Report,
}

/// The launches since the last [`take_reports`]; `None` before the first [`keep_reports`].
static KEPT: Mutex<Option<Vec<Launches>>> = Mutex::new(None);

/// Starts to keep the counters of launches.
pub fn keep_reports() {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
}

/// Returns the reports since [`keep_reports`] or the last call. They have a table of counters for
/// each variant of a kernel. Launches of the same code share one table.
pub fn take_reports() -> String {
    let kept =
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(std::mem::take).unwrap_or_default();
    let mut text = String::new();
    for Launches { count, report } in &kept {
        let launches = if *count == 1 { "1 launch" } else { &format!("{count} launches together") };
        let _ = writeln!(text, "{launches} of {report}");
    }
    if kept.is_empty() { "no kernel was launched on the simulator\n".into() } else { text }
}

pub(crate) fn add(report: &Report, handle: &Handle, other: Option<&ChosenVariant>) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(kept) = kept.as_mut() else { return };
    let report = Report { kernel: describe_variant(handle, other), ..report.clone() };
    match kept.iter_mut().find(|known| is_same_code(&known.report, &report)) {
        Some(known) => {
            known.count += 1;
            known.report.blocks += report.blocks;
            for (sum, new) in known.report.instructions.iter_mut().zip(&report.instructions) {
                sum.counters.add(&new.counters);
            }
        }
        None => kept.push(Launches { count: 1, report }),
    }
}

/// Describes a kernel and the variant of its code: `add(x_ptr: *fp32, n: i32, BLOCK=128)`.
pub(crate) fn describe_variant(handle: &Handle, other: Option<&ChosenVariant>) -> String {
    let parameters = handle.signature().parameters.iter().zip(handle.arguments());
    let parts: Vec<String> = parameters
        .map(|(parameter, argument)| match text_of(argument) {
            (text, true) => format!("{}={text}", parameter.name),
            (text, false) => format!("{}: {text}", parameter.name),
        })
        .collect();
    let other = other.map_or_else(String::new, |other| other.describe(handle));
    format!("{}({}){other}", handle.compiled.name, parts.join(", "))
}

fn text_of(argument: &Argument) -> (String, bool) {
    match argument {
        Argument::Pointer { pointee, .. } => (format!("*{pointee}"), false),
        Argument::Scalar { dtype, .. } => (dtype.to_string(), false),
        Argument::Constexpr(HostValue::Constant(value)) => (value.to_string(), true),
        Argument::Constexpr(HostValue::Language(path)) => (format!("tl.{path}"), true),
        Argument::Constexpr(_) => ("<object>".into(), true),
        Argument::Tuple(items) => {
            let items: Vec<String> = items.iter().map(|item| text_of(item).0).collect();
            (format!("({})", items.join(", ")), false)
        }
    }
}

pub(crate) fn is_same_code(one: &Report, other: &Report) -> bool {
    one.kernel == other.kernel
        && one.threads_per_block == other.threads_per_block
        && one.instructions.len() == other.instructions.len()
        && one.instructions.iter().zip(&other.instructions).all(|(a, b)| a.text == b.text)
}
