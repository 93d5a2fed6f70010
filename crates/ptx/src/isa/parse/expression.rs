//! Constant expressions: integers with the operators of C, and single floating-point numbers.

use super::cursor::Cursor;
use super::lexer::TokenKind;
use super::{ParseError, ParseErrorKind};
use crate::isa::operand::Immediate;

/// The depth of nested parentheses, signs and conditionals at which the parser reports an error.
const MAX_DEPTH: u32 = 32;

/// The binary operators by precedence, the weakest first.
const OPERATORS: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Parses a constant expression.
pub(crate) fn constant(cursor: &mut Cursor<'_>) -> Result<Immediate, ParseError> {
    conditional(cursor, 0)
}

/// Parses `condition ? value : value`, or an expression without `?`.
fn conditional(cursor: &mut Cursor<'_>, depth: u32) -> Result<Immediate, ParseError> {
    if depth == MAX_DEPTH {
        return Err(cursor.error(ParseErrorKind::Nesting));
    }
    let value = binary(cursor, 0, depth)?;
    if !cursor.take("?") {
        return Ok(value);
    }
    let yes = conditional(cursor, depth + 1)?;
    cursor.expect(":")?;
    let no = conditional(cursor, depth + 1)?;
    Ok(if value == Immediate::Integer(0) { no } else { yes })
}

/// Takes an operator, whose characters are adjacent tokens.
fn take_operator(cursor: &mut Cursor<'_>, operator: &str) -> bool {
    let first = cursor.token();
    let is_at = |index: usize, text: &str| {
        let token = cursor.at_position(cursor.position + index);
        let place = (first.line, first.column + index as u32);
        // The lexer makes `%` before a space a word.
        token.kind != TokenKind::String && token.text == text && (token.line, token.column) == place
    };
    let count = operator.len();
    let is_present = (0..count).all(|index| is_at(index, &operator[index..=index]));
    // Does not take `<` from `<<`, or `&` from `&&`.
    let is_longer = matches!(operator, "<" | ">" | "|" | "&") && is_at(1, operator);
    let is_found = is_present && !is_longer;
    cursor.position += if is_found { count } else { 0 };
    is_found
}

fn binary(cursor: &mut Cursor<'_>, level: usize, depth: u32) -> Result<Immediate, ParseError> {
    let Some(operators) = OPERATORS.get(level) else { return unary(cursor, depth) };
    let mut left = binary(cursor, level + 1, depth)?;
    loop {
        let position = cursor.position;
        let Some(&operator) = operators.iter().find(|operator| take_operator(cursor, operator)) else {
            return Ok(left);
        };
        let right = binary(cursor, level + 1, depth)?;
        let (Immediate::Integer(a), Immediate::Integer(b)) = (left, right) else {
            return Err(cursor.error_at(position, ParseErrorKind::Expected("integers on both sides")));
        };
        let value = match operator {
            "||" => Some(i64::from(a != 0 || b != 0)),
            "&&" => Some(i64::from(a != 0 && b != 0)),
            "|" => Some(a | b),
            "^" => Some(a ^ b),
            "&" => Some(a & b),
            "==" => Some(i64::from(a == b)),
            "!=" => Some(i64::from(a != b)),
            "<=" => Some(i64::from(a <= b)),
            ">=" => Some(i64::from(a >= b)),
            "<" => Some(i64::from(a < b)),
            ">" => Some(i64::from(a > b)),
            "<<" => Some(a.wrapping_shl(b as u32)),
            ">>" => Some(a.wrapping_shr(b as u32)),
            "+" => Some(a.wrapping_add(b)),
            "-" => Some(a.wrapping_sub(b)),
            "*" => Some(a.wrapping_mul(b)),
            "/" => a.checked_div(b),
            _ => a.checked_rem(b),
        };
        let zero = || cursor.error_at(position, ParseErrorKind::Expected("a divisor other than 0"));
        left = Immediate::Integer(value.ok_or_else(zero)?);
    }
}

fn unary(cursor: &mut Cursor<'_>, depth: u32) -> Result<Immediate, ParseError> {
    if depth == MAX_DEPTH {
        return Err(cursor.error(ParseErrorKind::Nesting));
    }
    if cursor.take("(") {
        // A cast, as in `(.u64) 1`, is ignored; an initializer's type cuts the value.
        if cursor.text().starts_with('.') && cursor.kind() == TokenKind::Word {
            cursor.position += 1;
            cursor.expect(")")?;
            return unary(cursor, depth + 1);
        }
        let value = conditional(cursor, depth + 1)?;
        cursor.expect(")")?;
        return Ok(value);
    }
    let Some(sign) = ["-", "+", "~", "!"].into_iter().find(|sign| cursor.take(sign)) else {
        return cursor.number();
    };
    let value = unary(cursor, depth + 1)?;
    match (sign, value) {
        ("+", value) => Ok(value),
        ("-", Immediate::Integer(value)) => Ok(Immediate::Integer(value.wrapping_neg())),
        ("-", Immediate::F32(bits)) => Ok(Immediate::F32(bits ^ 1 << 31)),
        ("-", Immediate::F64(bits)) => Ok(Immediate::F64(bits ^ 1 << 63)),
        ("~", Immediate::Integer(value)) => Ok(Immediate::Integer(!value)),
        (_, Immediate::Integer(value)) => Ok(Immediate::Integer(i64::from(value == 0))),
        (_, Immediate::F32(_) | Immediate::F64(_)) => {
            Err(cursor.error_before(ParseErrorKind::Expected("an integer")))
        }
    }
}
