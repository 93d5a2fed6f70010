//! `print`: prints a line for each element.

use std::fmt::Write;

use tilewright_base::output::{c_float, index_width, print as print_text};
use tilewright_ir::{Dtype, Element};

use crate::program::Step;
use crate::run::machine::Machine;

use super::materialize::materialize;

/// Prints each element of a tile, with the program and the index of the element. Without an
/// operand, prints only the program and the text.
pub(crate) fn print(machine: &mut Machine<'_>, step: &Step, prefix: &str, digits: u32, extents: &[i64]) {
    let [x, y, z] = machine.id;
    let program = format!("pid ({x}, {y}, {z})");
    let Some(&operand) = step.operands.first() else {
        print_text(&format!("{program}{prefix}\n"));
        return;
    };
    let ty = machine.type_of(operand);
    let value = machine.take(operand);
    let tile = materialize(ty, value);
    let mut text = String::new();
    for (element, bytes) in tile.bytes().chunks_exact(ty.size).enumerate() {
        let lane = ty.lane(element);
        if lane.iter().zip(extents).any(|(index, extent)| i64::from(*index) >= *extent) {
            continue;
        }
        let _ = write!(text, "{program} idx (");
        for (axis, (index, &extent)) in lane.iter().zip(ty.shape()).enumerate() {
            let separator = if axis == 0 { "" } else { ", " };
            let extent = extents.get(axis).map_or(extent, |extent| *extent as u32);
            let _ = write!(text, "{separator}{index:>width$}", width = index_width(extent));
        }
        let _ = writeln!(text, "){prefix}{}", number(ty.element, bytes, digits));
    }
    print_text(&text);
}

/// Formats an element like C's `printf`. Elements of `print` have 32 or 64 bits.
fn number(element: Element, bytes: &[u8], digits: u32) -> String {
    let mut raw = [0_u8; 8];
    raw[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(raw);
    match element {
        Element::Value(_) if digits > 0 => format!("0x{bits:0>width$x}", width = digits as usize),
        Element::Value(Dtype::F64) => c_float(f64::from_bits(bits), 6),
        Element::Value(Dtype::I32) => (bits as u32).cast_signed().to_string(),
        Element::Value(Dtype::I64) => bits.cast_signed().to_string(),
        Element::Value(_) | Element::Pointer(_) => bits.to_string(),
    }
}
