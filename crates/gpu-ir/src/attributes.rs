//! Attributes of the ops of the GPU dialect.

use std::fmt::Write;

use tilewright_ir::Attribute;

/// The extents of one tensor core instruction, in text `m16n8k16`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MmaShape {
    /// Rows of A and of the accumulator.
    pub m: u32,
    /// Columns of B and of the accumulator.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
}

impl Attribute for MmaShape {
    fn print(&self, out: &mut String) {
        write!(out, "m{}n{}k{}", self.m, self.n, self.k).expect("writing to a string does not fail");
    }
    fn parse(text: &str) -> Option<Self> {
        let (m, rest) = text.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some(Self { m: m.parse().ok()?, n: n.parse().ok()?, k: k.parse().ok()? })
    }
}

/// A number that a later pass computes, such as a buffer's offset; `?` in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Deferred(pub Option<u32>);

impl Attribute for Deferred {
    fn print(&self, out: &mut String) {
        match self.0 {
            Some(number) => number.print(out),
            None => out.push('?'),
        }
    }
    fn parse(text: &str) -> Option<Self> {
        if text == "?" { Some(Self(None)) } else { text.parse().ok().map(|number| Self(Some(number))) }
    }
}

/// The threads over which a reduction or a scan combines elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scope {
    /// The whole block.
    #[default]
    Block,
    /// The lanes of each warp. A run is the consecutive elements along the axis of one warp. Each
    /// run has one partial result. The last axis of these results is the run's index.
    Warp,
}

impl Attribute for Scope {
    fn print(&self, out: &mut String) {
        out.push_str(match self {
            Self::Block => "block",
            Self::Warp => "warp",
        });
    }
    fn parse(text: &str) -> Option<Self> {
        match text {
            "block" => Some(Self::Block),
            "warp" => Some(Self::Warp),
            _ => None,
        }
    }
}
