//! Parses declarations of variables and parameters, with initializers.

use super::cursor::Cursor;
use super::lexer::TokenKind;
use super::{ParseError, ParseErrorKind, Symbols};
use crate::isa::modifier::{Modifier, Opcode};
use crate::isa::module::{Initializer, Linkage, PointerAttribute, Variable};
use crate::isa::operand::{Immediate, Symbol};
use crate::isa::types::{ScalarType, StateSpace};

/// The largest number of elements to which an initializer is padded.
const MAX_ELEMENTS: u64 = 1 << 24;
/// The largest number of extents of an array.
const MAX_EXTENTS: usize = 8;

/// Takes a modifier of the kind `T`, if the next word is one.
pub(crate) fn take_modifier<T: Modifier>(cursor: &mut Cursor<'_>) -> Option<T> {
    if cursor.kind() != TokenKind::Word {
        return None;
    }
    let mut opcode = Opcode::new(cursor.text(), false);
    let value = T::parse(&mut opcode).filter(|_| opcode.rest().is_empty())?;
    cursor.position += 1;
    Some(value)
}

pub(crate) fn scalar_type(cursor: &mut Cursor<'_>) -> Result<ScalarType, ParseError> {
    take_modifier(cursor).ok_or_else(|| cursor.error(ParseErrorKind::Expected("a type")))
}

/// Parses the variables of `.space attributes .type name, name = …;`. The cursor is after `.space`.
pub(crate) fn declarations<'a>(
    cursor: &mut Cursor<'a>,
    space: StateSpace,
    symbols: &Symbols<'a>,
) -> Result<Vec<(&'a str, Variable)>, ParseError> {
    let head = head(cursor, space)?;
    let mut variables = Vec::new();
    loop {
        let (name, mut variable) = declarator(cursor, &head)?;
        if cursor.take("=") {
            let mut sizes = Vec::new();
            if variable.vector > 1 {
                sizes.push(u64::from(variable.vector));
            }
            for extent in variable.extents.iter().skip(1).rev() {
                let inner = sizes.last().copied().unwrap_or(1);
                sizes.push(extent.unwrap_or(1).saturating_mul(inner));
            }
            variable.initializer = match (variable.extents.is_empty(), variable.vector) {
                (true, 1) => vec![element(cursor, symbols)?],
                (true, _) => list(cursor, symbols, &[])?,
                (false, _) => list(cursor, symbols, &sizes)?,
            };
            variable.initializer.iter_mut().for_each(|element| convert(element, variable.ty));
        }
        variables.push((name, variable));
        if !cursor.take(",") {
            cursor.expect(";")?;
            return Ok(variables);
        }
    }
}

/// Parses a parameter `.param attributes .type name`, without a semicolon. The cursor is after
/// `.param`.
pub(crate) fn parameter<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a str, Variable), ParseError> {
    let head = head(cursor, StateSpace::Param)?;
    declarator(cursor, &head)
}

/// Parses an alignment, which is a power of two.
fn alignment(cursor: &mut Cursor<'_>) -> Result<u32, ParseError> {
    let alignment = cursor.unsigned_32()?;
    if alignment.is_power_of_two() {
        return Ok(alignment);
    }
    Err(cursor.error_before(ParseErrorKind::Number(format!("{alignment}, expected a power of two"))))
}

/// Parses attributes, alignment and type of a variable.
fn head(cursor: &mut Cursor<'_>, space: StateSpace) -> Result<Variable, ParseError> {
    let mut variable = Variable::scalar("", space, ScalarType::B8);
    loop {
        if cursor.take(".align") {
            variable.alignment = Some(alignment(cursor)?);
        } else if cursor.take(".attribute") {
            cursor.expect("(")?;
            if !cursor.take(".managed") {
                return Err(
                    cursor.error(ParseErrorKind::Unsupported(format!("the attribute `{}`", cursor.text())))
                );
            }
            variable.managed = true;
            cursor.expect(")")?;
        } else if cursor.take(".v2") {
            variable.vector = 2;
        } else if cursor.take(".v4") {
            variable.vector = 4;
        } else {
            break;
        }
    }
    if matches!(cursor.text(), ".texref" | ".surfref" | ".samplerref") {
        return Err(cursor.error(ParseErrorKind::Unsupported(format!("`{}`", cursor.text()))));
    }
    variable.ty = scalar_type(cursor)?;
    if cursor.take(".ptr") {
        let space = take_modifier(cursor);
        let alignment = if cursor.take(".align") { Some(alignment(cursor)?) } else { None };
        variable.pointer = Some(PointerAttribute { space, alignment });
    }
    Ok(variable)
}

fn declarator<'a>(cursor: &mut Cursor<'a>, head: &Variable) -> Result<(&'a str, Variable), ParseError> {
    let name = cursor.word("a name")?;
    if name.starts_with('.') {
        return Err(cursor.error_before(ParseErrorKind::Expected("a name")));
    }
    let mut variable = Variable { name: name.to_owned(), linkage: Linkage::Internal, ..head.clone() };
    while cursor.take("[") {
        let extent = if cursor.at("]") { None } else { Some(cursor.unsigned()?) };
        cursor.expect("]")?;
        if variable.extents.len() == MAX_EXTENTS || (extent.is_none() && !variable.extents.is_empty()) {
            return Err(cursor.error_before(ParseErrorKind::Nesting));
        }
        variable.extents.push(extent);
    }
    Ok((name, variable))
}

/// Parses the list of initial elements, row by row. `sizes` are the elements of the nested lists,
/// the innermost first. Zeros fill a nested list that is too short.
fn list<'a>(
    cursor: &mut Cursor<'a>,
    symbols: &Symbols<'a>,
    sizes: &[u64],
) -> Result<Vec<Initializer>, ParseError> {
    cursor.expect("{")?;
    let mut elements = Vec::new();
    while !cursor.take("}") {
        if let Some((&size, inner)) = sizes.split_last() {
            let nested = list(cursor, symbols, inner)?;
            let length = elements.len() as u64 + size;
            if length > MAX_ELEMENTS || nested.len() as u64 > size {
                let what = "an initializer of this size".to_owned();
                return Err(cursor.error_before(ParseErrorKind::Unsupported(what)));
            }
            elements.extend(nested);
            elements.resize(length as usize, Initializer::Value(Immediate::Integer(0)));
        } else {
            elements.push(element(cursor, symbols)?);
        }
        if !cursor.take(",") {
            cursor.expect("}")?;
            break;
        }
    }
    Ok(elements)
}

/// Converts a number to the floating-point type of its element. Decimal fractions are parsed as
/// fp64, and numbers such as `0` as integers.
fn convert(element: &mut Initializer, ty: ScalarType) {
    let Initializer::Value(value) = element else { return };
    *value = match (*value, ty) {
        (Immediate::F64(bits), ScalarType::F32) => Immediate::F32((f64::from_bits(bits) as f32).to_bits()),
        (Immediate::Integer(value), ScalarType::F32) => Immediate::F32((value as f32).to_bits()),
        (Immediate::Integer(value), ScalarType::F64) => Immediate::F64((value as f64).to_bits()),
        (value, _) => value,
    };
}

/// Parses a number or a symbol's address: `name + 8`, `generic(name)`, `0xFF00(name)`.
fn element<'a>(cursor: &mut Cursor<'a>, symbols: &Symbols<'a>) -> Result<Initializer, ParseError> {
    if cursor.kind() == TokenKind::Word {
        return address(cursor, symbols, None);
    }
    let value = super::expression::constant(cursor)?;
    if let Immediate::Integer(mask) = value
        && cursor.take("(")
    {
        let initializer = address(cursor, symbols, Some(mask as u64))?;
        cursor.expect(")")?;
        return Ok(initializer);
    }
    Ok(Initializer::Value(value))
}

fn address<'a>(
    cursor: &mut Cursor<'a>,
    symbols: &Symbols<'a>,
    mask: Option<u64>,
) -> Result<Initializer, ParseError> {
    let generic = cursor.take("generic");
    if generic {
        cursor.expect("(")?;
    }
    let name = cursor.word("a name")?;
    let symbol = match symbols.get(name) {
        Some(&symbol @ (Symbol::Global(_) | Symbol::Function(_))) => symbol,
        Some(Symbol::Variable(_)) | None => {
            return Err(cursor.error_before(ParseErrorKind::Undeclared(name.to_owned())));
        }
    };
    if generic {
        cursor.expect(")")?;
    }
    let mut offset = 0;
    if cursor.at("+") || cursor.at("-") {
        cursor.take("+");
        match super::expression::constant(cursor)? {
            Immediate::Integer(value) => offset = value,
            Immediate::F32(_) | Immediate::F64(_) => {
                return Err(cursor.error_before(ParseErrorKind::Expected("an integer")));
            }
        }
    }
    Ok(Initializer::Address { symbol, offset, generic, mask })
}
