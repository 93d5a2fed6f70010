//! Describes operations without their operands, and writes Python functions that compute them.

use std::fmt::Write;

use smallvec::SmallVec;

/// An operation without its operands. A variant refers to the operands by their order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// The operand itself.
    Value,
    /// An operator before one operand.
    Unary(&'static str),
    /// An operator between two operands.
    Binary(&'static str),
    /// A call of the first operand with the others.
    Call {
        /// The number of operands that are passed by position.
        positional: usize,
        /// The names of the operands that are passed by keyword.
        keywords: SmallVec<[&'static str; 4]>,
    },
    /// A call of a method of the first operand.
    Method {
        /// The name of the method.
        name: &'static str,
        /// The number of operands that are passed by position.
        positional: usize,
        /// The names of the operands that are passed by keyword.
        keywords: SmallVec<[&'static str; 4]>,
    },
    /// An attribute of the operand, by its name.
    Attribute(&'static str),
    /// The first operand, indexed.
    Subscript {
        /// Each index.
        pieces: SmallVec<[Piece; 4]>,
        /// True if the index is a tuple: the subscript has a comma.
        is_tuple: bool,
    },
    /// A call of a built-in function of Python: its name, and the number of operands.
    Builtin(&'static str, usize),
    /// The truth value of the operand in a condition.
    Truth,
}

/// One index of a subscript.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Piece {
    /// `None`.
    NewAxis,
    /// `...`.
    Ellipsis,
    /// The next operand.
    Value,
    /// A slice. The flags say whether an operand gives the start, the stop and the step.
    Slice([bool; 3]),
}

impl Form {
    /// Returns the Python text of a function that computes this operation on its parameters `a0`,
    /// `a1`, ….
    pub(super) fn text(&self) -> String {
        let mut body = String::new();
        let mut next = 0;
        let mut operand = || {
            next += 1;
            format!("a{}", next - 1)
        };
        match self {
            Form::Value => body = operand(),
            Form::Truth => {
                let _ = write!(body, "True if {} else False", operand());
            }
            Form::Unary(symbol) => {
                let space = if symbol.ends_with(|c: char| c.is_alphabetic()) { " " } else { "" };
                let _ = write!(body, "{symbol}{space}{}", operand());
            }
            Form::Binary(symbol) => {
                let _ = write!(body, "{} {symbol} {}", operand(), operand());
            }
            Form::Call { positional, keywords } => {
                body = operand();
                call(&mut body, *positional, keywords, &mut operand);
            }
            Form::Method { name, positional, keywords } => {
                let _ = write!(body, "{}.{name}", operand());
                call(&mut body, *positional, keywords, &mut operand);
            }
            Form::Attribute(name) => {
                let _ = write!(body, "{}.{name}", operand());
            }
            Form::Subscript { pieces, is_tuple } => {
                let _ = write!(body, "{}[", operand());
                for (index, piece) in pieces.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    let _ = write!(body, "{separator}{}", subscript(*piece, &mut operand));
                }
                body.push_str(if *is_tuple && pieces.len() == 1 { ",]" } else { "]" });
            }
            Form::Builtin(name, count) => {
                body.push_str(name);
                call(&mut body, *count, &[], &mut operand);
            }
        }
        let parameters: Vec<String> = (0..next).map(|number| format!("a{number}")).collect();
        format!("def operation({}):\n    return {body}\n", parameters.join(", "))
    }
}

fn call(body: &mut String, positional: usize, keywords: &[&str], operand: &mut impl FnMut() -> String) {
    let mut passed: Vec<String> = (0..positional).map(|_| operand()).collect();
    passed.extend(keywords.iter().map(|keyword| format!("{keyword}={}", operand())));
    let _ = write!(body, "({})", passed.join(", "));
}

fn subscript(piece: Piece, operand: &mut impl FnMut() -> String) -> String {
    match piece {
        Piece::NewAxis => "None".into(),
        Piece::Ellipsis => "...".into(),
        Piece::Value => operand(),
        Piece::Slice([has_start, has_end, has_step]) => {
            let mut part = |is_there: bool| if is_there { operand() } else { String::new() };
            let range = format!("{}:{}", part(has_start), part(has_end));
            if has_step { format!("{range}:{}", part(true)) } else { range }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_as_text() {
        let check = |form: Form, expected: &str| {
            assert_eq!(form.text().split_once("return ").map(|(_, body)| body.trim()), Some(expected));
        };
        check(Form::Binary("<<"), "a0 << a1");
        check(Form::Unary("not"), "not a0");
        check(Form::Unary("-"), "-a0");
        check(Form::Call { positional: 1, keywords: ["mask"].into_iter().collect() }, "a0(a1, mask=a2)");
        check(Form::Method { name: "to", positional: 1, keywords: SmallVec::new() }, "a0.to(a1)");
        let pieces =
            [Piece::Slice([false; 3]), Piece::NewAxis, Piece::Slice([true, false, true]), Piece::Value];
        check(
            Form::Subscript { pieces: pieces.into_iter().collect(), is_tuple: true },
            "a0[:, None, a1::a2, a3]",
        );
        check(Form::Builtin("min", 2), "min(a0, a1)");
    }
}
