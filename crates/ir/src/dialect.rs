//! Dialects: each defines its ops, its types, and the header of its modules. All dialects share
//! values, blocks, regions, the printer, the parser and the structural part of the verifier.

use std::fmt::{Debug, Display};
use std::hash::Hash;

use crate::builder::expected_types;
use crate::elementwise::ElementwiseFn;
use crate::function::{Function, InstData, Module};
use crate::ops::{AttributeText, Op, OpInfo};
use crate::types::Type;

/// A dialect of the IR. [`Tile`] is tile IR; the crate `gpu-ir` has another dialect.
pub trait Dialect: Copy + Clone + PartialEq + Eq + Debug + 'static {
    /// The operation of an instruction, with its attributes.
    type Op: Operation + From<Op>;
    /// The type of a value, with a text form that [`Dialect::parse_type`] reads.
    type Type: Clone + PartialEq + Debug + Display;
    /// The header of a module.
    type Header: Clone + Debug + Default;

    /// Parses a type.
    fn parse_type(text: &str) -> Option<Self::Type>;

    /// Returns the type, in this dialect, of a scalar of tile IR.
    fn scalar(ty: Type) -> Self::Type;

    /// Returns the element and the shape of a scalar or a tile that instructions compute with.
    /// Returns `None` for other values, such as memory.
    fn tile_type(ty: &Self::Type) -> Option<&Type>;

    /// Returns the op of an elementwise function.
    fn elementwise(function: ElementwiseFn) -> Self::Op;

    /// Returns the text of the header, as whole lines.
    fn print_header(header: &Self::Header) -> String;

    /// Parses the lines before the first function; the error is one sentence.
    fn parse_header(lines: &str) -> Result<Self::Header, String>;

    /// Checks the counts and types of the operands, results and regions of an instruction. Its
    /// operands are defined, and its regions are well-formed. The error is one sentence.
    fn check(module: &Module<Self>, function: &Function<Self>, inst: &InstData<Self>) -> Result<(), String>;

    /// Checks rules that involve several instructions, in a function with well-formed instructions.
    fn check_function(_module: &Module<Self>, _function: &Function<Self>) -> Result<(), String> {
        Ok(())
    }
}

/// An op of a dialect.
pub trait Operation: Clone + PartialEq + Eq + Hash + Debug {
    /// Returns the row of the op in its op table.
    fn info(&self) -> &'static OpInfo;

    /// Returns the op as an op of tile IR, if it belongs to tile IR. Every dialect shares at least
    /// the control flow with tile IR.
    fn as_tile(&self) -> Option<&Op>;

    /// Returns the elementwise function that the op applies, if any.
    fn as_elementwise(&self) -> Option<ElementwiseFn>;

    /// Returns whether the program declares that other threads change the memory that the op reads.
    fn is_volatile(&self) -> bool;

    /// Returns the mnemonic of the text form.
    fn name(&self) -> &'static str;

    /// Returns the names and the texts of the printed attributes.
    fn attributes(&self) -> Vec<(&'static str, String)>;

    /// Returns the op with this mnemonic, if there is one; `Err` names the missing or malformed
    /// attribute.
    fn parse(name: &str, attributes: &AttributeText<'_>) -> Option<Result<Self, &'static str>>;
}

/// Tile IR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile;

impl Dialect for Tile {
    type Op = Op;
    type Type = Type;
    type Header = ();

    fn parse_type(text: &str) -> Option<Type> {
        Type::parse(text)
    }

    fn scalar(ty: Type) -> Type {
        ty
    }

    fn tile_type(ty: &Type) -> Option<&Type> {
        Some(ty)
    }

    fn elementwise(function: ElementwiseFn) -> Op {
        Op::Elementwise { function }
    }

    fn print_header((): &()) -> String {
        String::new()
    }

    fn parse_header(lines: &str) -> Result<(), String> {
        if lines.is_empty() { Ok(()) } else { Err("expected a function".into()) }
    }

    fn check(module: &Module, function: &Function, inst: &InstData) -> Result<(), String> {
        let expected = expected_types(function, inst).map_err(|error| error.message)?;
        let found: Vec<&Type> = inst.results.iter().map(|&value| function.ty(value)).collect();
        let name = inst.op.name();
        if found != expected.iter().collect::<Vec<_>>() {
            return Err(format!("{name} has results {found:?}, but its type rule gives {expected:?}"));
        }
        let Op::Call { callee, results } = &inst.op else { return Ok(()) };
        let callee = module.functions.get(*callee).ok_or("the callee does not exist")?;
        let parameters: Vec<Type> = callee.parameter_types().cloned().collect();
        if callee.results != results.0 {
            return Err(format!(
                "a call has results {:?}, but {} returns {:?}",
                results.0, callee.name, callee.results
            ));
        }
        function.check_types(&inst.operands, &parameters, "arguments")
    }
}

impl Operation for Op {
    fn info(&self) -> &'static OpInfo {
        self.info()
    }

    fn as_tile(&self) -> Option<&Op> {
        Some(self)
    }

    fn as_elementwise(&self) -> Option<ElementwiseFn> {
        match self {
            Op::Elementwise { function } => Some(*function),
            // tidy: wildcard because one row has all elementwise functions
            _ => None,
        }
    }

    fn is_volatile(&self) -> bool {
        self.is_volatile()
    }

    fn name(&self) -> &'static str {
        self.name()
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = Vec::new();
        // The only attribute, the function, is the mnemonic.
        if !matches!(self, Op::Elementwise { .. }) {
            self.print_attributes(|name, text| attributes.push((name, text.to_owned())));
        }
        attributes
    }

    fn parse(name: &str, attributes: &AttributeText<'_>) -> Option<Result<Self, &'static str>> {
        if let Some(function) = ElementwiseFn::parse(name) {
            return Some(Ok(Op::Elementwise { function }));
        }
        Self::parse_row(name, attributes)
    }
}
