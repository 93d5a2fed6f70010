//! Parses stated layouts from the expressions that their `Display` implementations print.

use std::str::FromStr;
use std::sync::Arc;

use super::{Bases, Misfit, Sizes, StatedBuffer, StatedLayout};

/// An expression: a number, a list, or a call of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    Number(u32),
    List(Vec<Self>),
    Call(String, Vec<Self>),
}

impl FromStr for StatedLayout {
    type Err = Misfit;

    /// Parses an expression such as `BlockedLayout([1], [32], [4], [0])`.
    fn from_str(text: &str) -> Result<Self, Misfit> {
        layout(&term(text)?)
    }
}

impl FromStr for StatedBuffer {
    type Err = Misfit;

    /// Parses an expression such as `SwizzledSharedLayout(1, 1, 1, [0])`.
    fn from_str(text: &str) -> Result<Self, Misfit> {
        buffer(&term(text)?)
    }
}

fn layout(term: &Term) -> Result<StatedLayout, Misfit> {
    let Term::Call(class, arguments) = term else { return Err(unknown("a layout of registers", term)) };
    Ok(match (class.as_str(), arguments.as_slice()) {
        ("BlockedLayout", [size, threads, warps, order, cga @ ..]) if cga.len() < 2 => {
            StatedLayout::Blocked {
                size_per_thread: sizes(size)?,
                threads_per_warp: sizes(threads)?,
                warps_per_cta: sizes(warps)?,
                order: sizes(order)?,
                cga: optional_bases(cga)?,
            }
        }
        ("SliceLayout", [dim, parent]) => {
            let (dim, parent) = (number(dim)?, layout(parent)?);
            if dim as usize >= parent.rank() {
                return Err(format!("SliceLayout removes axis {dim}, which {parent} does not have"));
            }
            StatedLayout::Slice { dim, parent: Arc::new(parent) }
        }
        ("DistributedLinearLayout", [registers, lanes, warps, blocks, shape]) => StatedLayout::Linear {
            bases: [bases(registers)?, bases(lanes)?, bases(warps)?],
            blocks: block_bases(blocks)?,
            shape: sizes(shape)?,
        },
        ("DotOperandLayout", [index, parent, k_width]) => StatedLayout::DotOperand {
            index: number(index)?,
            parent: Arc::new(layout(parent)?),
            k_width: number(k_width)?,
        },
        ("AccumulatorInFlight", [accumulator]) => {
            StatedLayout::InFlight { accumulator: Arc::new(layout(accumulator)?) }
        }
        ("NVMMADistributedLayout", [version, warps, shape, cga @ ..]) if cga.len() < 2 => StatedLayout::Mma {
            version: *sizes(version)?.first().ok_or("a version has two numbers")?,
            warps_per_cta: sizes(warps)?,
            instr_shape: sizes(shape)?,
            cga: optional_bases(cga)?,
        },
        _ => return Err(unknown("a layout of registers", term)),
    })
}

fn buffer(term: &Term) -> Result<StatedBuffer, Misfit> {
    let Term::Call(class, arguments) = term else { return Err(unknown("a layout of shared memory", term)) };
    Ok(match (class.as_str(), arguments.as_slice()) {
        ("SwizzledSharedLayout", [vec, per_phase, max_phase, order, cga @ ..]) if cga.len() < 2 => {
            StatedBuffer::Swizzled {
                vec: number(vec)?,
                per_phase: number(per_phase)?,
                max_phase: number(max_phase)?,
                order: sizes(order)?,
                cga: optional_bases(cga)?,
            }
        }
        ("NVMMASharedLayout", [bytes, bits, rank, Term::Call(transposed, _), rest @ ..])
            if rest.len() < 3 =>
        {
            StatedBuffer::Nvmma {
                swizzle_byte_width: number(bytes)?,
                element_bitwidth: number(bits)?,
                rank: number(rank)?,
                transposed: transposed == "True",
                // The first of the further arguments is `fp4_padded`.
                fp4_padded: rest.first() == Some(&Term::Call("True".into(), Vec::new())),
                cga: optional_bases(rest.get(1..).unwrap_or_default())?,
            }
        }
        ("SharedLinearLayout", [offsets, blocks @ ..]) if blocks.len() < 2 => {
            StatedBuffer::Linear { offset_bases: bases(offsets)?, block_bases: optional_bases(blocks)? }
        }
        ("PaddedSharedLayout", [intervals, offsets, shape]) => {
            let intervals = bases(intervals)?;
            let is_pair = |pair: &Sizes| pair.len() == 2 && pair.iter().all(|size| size.is_power_of_two());
            if intervals.is_empty() || !intervals.iter().all(is_pair) {
                return Err("padding is a list of pairs of powers of two: [[interval, padding], …]".into());
            }
            StatedBuffer::Padded { intervals, offset_bases: bases(offsets)?, shape: sizes(shape)? }
        }
        ("TensorMemoryLayout", [block, stride, rest @ ..]) if rest.len() < 3 => {
            let block = sizes(block)?;
            let [rows, columns] = block[..] else { return Err("a block has two extents".into()) };
            let is_flag = |term: &&Term| matches!(term, Term::Call(flag, _) if flag == "True");
            let bases: Vec<Term> =
                rest.iter().filter(|term| matches!(term, Term::List(_))).cloned().collect();
            StatedBuffer::TensorMemory {
                block: [rows, columns],
                column_stride: number(stride)?,
                two_ctas: rest.iter().any(|term| is_flag(&term)),
                cga: optional_bases(&bases)?,
            }
        }
        ("TensorMemoryScalesLayout", cga) if cga.len() < 2 => {
            StatedBuffer::TensorMemoryScales { cga: optional_bases(cga)? }
        }
        _ => return Err(unknown("a layout of shared memory", term)),
    })
}

fn unknown(expected: &str, found: &Term) -> Misfit {
    match found {
        Term::Call(class, arguments) => {
            format!("expected {expected}, found {class} with {} arguments", arguments.len())
        }
        Term::Number(_) | Term::List(_) => format!("expected {expected}, found a number or a list"),
    }
}

fn number(term: &Term) -> Result<u32, Misfit> {
    match term {
        Term::Number(number) => Ok(*number),
        Term::List(_) | Term::Call(..) => Err("expected a number".into()),
    }
}

fn sizes(term: &Term) -> Result<Sizes, Misfit> {
    match term {
        Term::List(items) => items.iter().map(number).collect(),
        Term::Number(_) | Term::Call(..) => Err("expected a list of numbers".into()),
    }
}

fn bases(term: &Term) -> Result<Bases, Misfit> {
    match term {
        Term::List(items) => items.iter().map(sizes).collect(),
        Term::Number(_) | Term::Call(..) => Err("expected a list of bases".into()),
    }
}

/// Returns the bases of an optional argument.
fn optional_bases(terms: &[Term]) -> Result<Bases, Misfit> {
    terms.first().map_or(Ok(Bases::new()), block_bases)
}

fn block_bases(term: &Term) -> Result<Bases, Misfit> {
    /// The maximum number of bits of a block's rank in its cluster.
    const MAX_BITS: usize = 4;
    let found = bases(term)?;
    if found.len() <= MAX_BITS {
        return Ok(found);
    }
    Err(format!("a cluster has at most {} blocks, but the layout has {} bases", 1 << MAX_BITS, found.len()))
}

/// The maximum nesting depth of parentheses and brackets.
const MAX_DEPTH: usize = 32;

fn term(text: &str) -> Result<Term, Misfit> {
    let (term, rest) = prefix(text, 0).ok_or_else(|| format!("`{text}` is not a layout"))?;
    if rest.trim().is_empty() { Ok(term) } else { Err(format!("`{text}` is not a layout")) }
}

/// Parses the term at the start of a text. Returns the term and the rest of the text.
fn prefix(text: &str, depth: usize) -> Option<(Term, &str)> {
    let text = text.trim_start();
    if depth > MAX_DEPTH {
        return None;
    }
    if let Some(items) = text.strip_prefix('[') {
        let (items, rest) = list(items, ']', depth)?;
        return Some((Term::List(items), rest));
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return Some((Term::Number(word.parse().ok()?), rest));
    }
    if word.is_empty() {
        return None;
    }
    match rest.strip_prefix('(') {
        Some(arguments) => {
            let (arguments, rest) = list(arguments, ')', depth)?;
            Some((Term::Call(word.to_owned(), arguments), rest))
        }
        None => Some((Term::Call(word.to_owned(), Vec::new()), rest)),
    }
}

/// Parses items up to a closing bracket. Returns the items and the rest of the text.
fn list(mut text: &str, close: char, depth: usize) -> Option<(Vec<Term>, &str)> {
    let mut items = Vec::new();
    loop {
        text = text.trim_start();
        if let Some(rest) = text.strip_prefix(close) {
            return Some((items, rest));
        }
        if !items.is_empty() {
            text = text.strip_prefix(',')?;
        }
        let (item, rest) = prefix(text, depth + 1)?;
        items.push(item);
        text = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back() {
        for text in [
            "BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])",
            "SliceLayout(1, BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0]))",
            "DistributedLinearLayout([[1]], [[2], [4], [8], [16], [32]], [[0], [0]], [], [64])",
            "DotOperandLayout(0, NVMMADistributedLayout([2, 0], [4, 1], [16, 8]), 2)",
        ] {
            let layout: StatedLayout = text.parse().unwrap();
            assert_eq!(layout.to_string(), text);
        }
        for text in [
            "SwizzledSharedLayout(8, 1, 8, [1, 0])",
            "NVMMASharedLayout(128, 16, 2, False)",
            "NVMMASharedLayout(128, 8, 2, False, True)",
            "NVMMASharedLayout(128, 8, 2, False, True, [[1, 0]])",
            "NVMMASharedLayout(128, 8, 2, False, False, [[1, 0]])",
            "SharedLinearLayout([[1], [2]])",
            "PaddedSharedLayout([[2, 1]], [[1], [2]], [4])",
        ] {
            let buffer: StatedBuffer = text.parse().unwrap();
            assert_eq!(buffer.to_string(), text);
        }
    }

    #[test]
    fn other_text_is_an_error() {
        for text in ["", "BlockedLayout", "BlockedLayout([1], [32], [4])", "SliceLayout(1, 2)", "[1", "f(1))"]
        {
            assert!(text.parse::<StatedLayout>().is_err(), "{text}");
        }
        for text in ["PaddedSharedLayout([], [[1]], [2])", "PaddedSharedLayout([[3, 1]], [[1]], [2])"] {
            assert!(text.parse::<StatedBuffer>().unwrap_err().contains("powers of two"), "{text}");
        }
        assert!("[".repeat(1000).parse::<StatedBuffer>().is_err());
        let slice = "SliceLayout(2, BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0]))";
        assert!(slice.parse::<StatedLayout>().unwrap_err().contains("axis 2"));
    }
}
