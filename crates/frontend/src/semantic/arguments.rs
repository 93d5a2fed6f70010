//! Converts the arguments of a builtin, one for each parameter.

use tilewright_base::Code;
use tilewright_ir::{Builder, Dtype, Element, Shape, Type};

use super::convert::{check_size, describe, tensor};
use super::{BuiltinSpec, Caller, LanguageItem, Op, Semantic, SemanticError, ValueOf, language};
use crate::value::{Constant, Operand, language_name};

/// The arguments of a call of a builtin, in the order of its parameters.
pub(crate) struct Arguments<'a, C: Caller + ?Sized> {
    pub spec: &'static BuiltinSpec,
    pub values: &'a [Op<C>],
    /// Empty, or the index of the parameter of `spec` for each argument, if a rule of another
    /// builtin receives them.
    pub parameters: &'a [usize],
}

impl<C: Caller + ?Sized> Arguments<'_, C> {
    pub fn at(&self, index: usize) -> Semantic<&Op<C>> {
        self.values.get(index).ok_or_else(|| {
            SemanticError::new(Code::WrongArguments, format!("`{}` lacks an argument", self.spec.name))
        })
    }

    pub fn name(&self, index: usize) -> &'static str {
        let index = self.parameters.get(index).copied().unwrap_or(index);
        self.spec.parameters.get(index).map_or("argument", |parameter| parameter.name)
    }

    /// Calls the rule of another builtin. Each argument has the index of a parameter of this
    /// builtin, for messages.
    pub fn call<const N: usize>(
        &self,
        c: &mut C,
        rule: fn(&mut C, &Arguments<'_, C>) -> Semantic<Op<C>>,
        arguments: [(Op<C>, usize); N],
    ) -> Semantic<Op<C>> {
        let parameters = arguments.each_ref().map(|(_, index)| *index);
        let values = arguments.map(|(value, _)| value);
        let inner = Arguments { spec: self.spec, values: &values, parameters: &parameters };
        rule(c, &inner).map_err(|mut error| {
            for (index, _) in &mut error.arguments {
                *index = parameters.get(*index).copied().unwrap_or(*index);
            }
            error
        })
    }

    /// Returns whether an argument is `None`.
    pub fn is_none(&self, index: usize) -> bool {
        matches!(self.values.get(index), None | Some(Operand::Constant(Constant::None)))
    }

    pub fn tensor(&self, c: &mut C, index: usize) -> Semantic<ValueOf<C>> {
        tensor(c, self.at(index)?, index)
    }

    /// Returns an argument, which must be a number or a tensor, as a value, and its type.
    pub fn typed(&self, c: &mut C, index: usize) -> Semantic<(ValueOf<C>, Type)> {
        let value = self.tensor(c, index)?;
        let ty = c.builder().type_of(&value);
        Ok((value, ty))
    }

    /// Returns an argument that must be known at compile time.
    pub fn constant(&self, c: &mut C, index: usize) -> Semantic<Constant> {
        let operand = self.at(index)?;
        match constant_of(c, operand) {
            Some(constant) => Ok(constant),
            None => Err(self.not_constexpr(c, operand, index)),
        }
    }

    fn not_constexpr(&self, c: &mut C, operand: &Op<C>, index: usize) -> SemanticError {
        let found = describe(c, operand);
        let name = self.name(index);
        SemanticError::new(
            Code::NotConstexpr,
            format!("`{name}` of `{}` must be known at compile time", self.spec.name),
        )
        .argument(index, format!("this is {found}, known only at run time"))
        .note("expected a compile-time value, such as a number or a `tl.constexpr` parameter")
        .hint("if it is a parameter of the kernel, annotate it in the signature, as in `BLOCK: tl.constexpr`")
    }

    /// Returns the error about a compile-time value of the wrong kind.
    fn wrong(&self, c: &mut C, index: usize, expected: &str, found: &Constant) -> SemanticError {
        let found = c.show(found);
        self.unexpected(index, expected, &found)
    }

    pub(super) fn unexpected(&self, index: usize, expected: &str, found: &str) -> SemanticError {
        let message = format!("`{}` of `{}` must be {expected}", self.name(index), self.spec.name);
        SemanticError::new(Code::InvalidValue, message)
            .argument(index, format!("this is {found}"))
            .note(format!("found {found}, expected {expected}"))
    }

    /// Returns a compile-time integer.
    pub fn int(&self, c: &mut C, index: usize) -> Semantic<i128> {
        match self.constant(c, index)? {
            Constant::Int(value) => Ok(value),
            Constant::Bool(value) => Ok(i128::from(value)),
            other @ Constant::Float(_) => Err(self
                .wrong(c, index, "an integer", &other)
                .hint("divide with `//`, or make it an integer: `int(…)`")),
            other => Err(self.wrong(c, index, "an integer", &other)),
        }
    }

    /// Returns the truth value of a compile-time value.
    pub fn flag(&self, c: &mut C, index: usize) -> Semantic<bool> {
        Ok(self.constant(c, index)?.is_true())
    }

    /// Returns a compile-time string; `None` for Python's `None`.
    pub fn string(&self, c: &mut C, index: usize) -> Semantic<Option<String>> {
        match self.constant(c, index)? {
            Constant::None => Ok(None),
            Constant::Str(text) => Ok(Some(text.to_string())),
            other => Err(self.wrong(c, index, "a string", &other)),
        }
    }

    /// Returns the choice with the name of a compile-time string, ignoring case, or the default for
    /// `None`.
    pub fn choice<T: Copy + Default>(
        &self,
        c: &mut C,
        index: usize,
        choices: &[(&'static str, T)],
    ) -> Semantic<T> {
        let Some(text) = self.string(c, index)? else { return Ok(T::default()) };
        if let Some((_, choice)) = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text)) {
            return Ok(*choice);
        }
        let message = format!("`{}` of `{}` cannot be {text:?}", self.name(index), self.spec.name);
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
        let error = SemanticError::new(Code::InvalidValue, message)
            .argument(index, "this is none of the values that it may have")
            .note(format!("expected one of {}", names.join(", ")));
        Err(match crate::suggest::suggest(&text, choices.iter().map(|(name, _)| *name)) {
            Some(name) => error.hint(format!("did you mean {name:?}?")),
            None => error,
        })
    }

    /// Returns the element type of a type, such as `tl.float32` or `tl.pointer_type(tl.float32)`.
    pub fn element(&self, c: &mut C, index: usize) -> Semantic<Element> {
        let operand = self.at(index)?;
        let found = match (constant_of(c, operand), operand) {
            (Some(Constant::Type(ty)), _) => return Ok(ty.element),
            (Some(Constant::LanguageType(ty)), _) if ty.as_ir().is_some() => {
                return ty.as_ir().map(|ty| ty.element).ok_or_else(|| self.unexpected(index, "a type", ""));
            }
            (Some(constant), _) => c.show(&constant),
            // Python's own `float` is not a type of the language.
            (None, Operand::Language(path)) => language_name(path),
            (None, _) => return Err(self.not_constexpr(c, operand, index)),
        };
        let error = self.unexpected(index, "a type", &found);
        Err(error.hint(match type_named_in(&found) {
            Some(name) if found.starts_with('\'') => format!("write `tl.{name}`, without quotes"),
            Some(name) => format!("write `tl.{name}`"),
            None => "write a type such as `tl.float32`, or `x.dtype`".into(),
        }))
    }

    /// Returns the number type that an argument names; a pointer type is an error.
    pub fn dtype(&self, c: &mut C, index: usize) -> Semantic<Dtype> {
        let element = self.element(c, index)?;
        element.value().ok_or_else(|| {
            let found = Constant::Type(Type::new(element, Shape::scalar()));
            self.wrong(c, index, "a number type", &found)
        })
    }

    /// Returns the integers of a compile-time tuple. A single value counts as a tuple, and a tuple
    /// in a tuple of one item is unpacked, for `*shape`.
    pub fn ints(&self, c: &mut C, index: usize) -> Semantic<Vec<i128>> {
        let mut constant = self.constant(c, index)?;
        while let Constant::Tuple(items) = &constant {
            match &items[..] {
                [Constant::Tuple(inner)] => constant = Constant::Tuple(inner.clone()),
                _ => break,
            }
        }
        let items = match constant {
            Constant::Tuple(items) => items.into_vec(),
            other => vec![other],
        };
        let int = |item: Constant| match item {
            Constant::Int(value) => Ok(value),
            Constant::Bool(value) => Ok(i128::from(value)),
            other => Err(self.wrong(c, index, "integers", &other)),
        };
        items.into_iter().map(int).collect()
    }

    /// Returns a shape after checking that every extent is at least 1.
    pub fn shape(&self, c: &mut C, index: usize) -> Semantic<Shape> {
        let extents = self.ints(c, index)?;
        check_shape(index, &extents)
    }

    /// Returns an axis of a tile. A negative axis counts from the end.
    pub fn axis(&self, c: &mut C, index: usize, rank: usize) -> Semantic<usize> {
        let value = self.int(c, index)?;
        self.wrap_axis(index, value, rank)
    }

    /// Returns the axis `value` of a tile with this rank. A negative axis counts from the end. An
    /// axis that the tile does not have is an error.
    pub fn wrap_axis(&self, index: usize, value: i128, rank: usize) -> Semantic<usize> {
        let wrapped = if value < 0 { value + rank as i128 } else { value };
        usize::try_from(wrapped).ok().filter(|axis| *axis < rank).ok_or_else(|| {
            let message = format!(
                "axis {value} of `{}` does not exist: the tile has {}",
                self.spec.name,
                count(rank, "axis", "axes")
            );
            let expected = match rank {
                0 => "found a scalar, which has no axes".to_string(),
                _ => format!("expected an axis from {} to {}", -(rank as i128), rank - 1),
            };
            SemanticError::new(Code::InvalidValue, message)
                .argument(index, format!("this is {value}"))
                .note(expected)
        })
    }
}

/// Returns the type that a text of another library or of Python mentions: `float16` for
/// `torch.float16`.
fn type_named_in(text: &str) -> Option<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words
        .map(|word| OTHER_NAMES.iter().find(|(other, _)| *other == word).map_or(word, |(_, name)| *name));
    names.rev().find(|name| matches!(language(name), Some(LanguageItem::Constant(Constant::Type(_)))))
}

const OTHER_NAMES: &[(&str, &str)] = &[
    ("fp16", "float16"),
    ("half", "float16"),
    ("bf16", "bfloat16"),
    ("fp32", "float32"),
    ("float", "float32"),
    ("fp64", "float64"),
    ("double", "float64"),
    ("bool", "int1"),
    ("bool_", "int1"),
    ("int", "int32"),
    ("long", "int64"),
    ("float8_e4m3fn", "float8e4nv"),
    ("float8_e4m3fnuz", "float8e4b8"),
    ("float8_e5m2", "float8e5"),
    ("float8_e5m2fnuz", "float8e5b16"),
];

/// Converts the extents in an argument to a shape. Every extent must be at least 1.
pub(crate) fn check_shape(index: usize, extents: &[i128]) -> Semantic<Shape> {
    let mut shape = Shape::scalar();
    for (axis, &extent) in extents.iter().enumerate() {
        let valid = u32::try_from(extent).ok().filter(|extent| *extent > 0);
        let Some(valid) = valid else { return Err(bad_extent(index, axis, extent)) };
        shape.0.push(valid);
    }
    check_size(&shape).map_err(|error| error.argument(index, "this shape"))?;
    Ok(shape)
}

fn bad_extent(index: usize, axis: usize, extent: i128) -> SemanticError {
    if extent > 0 {
        return SemanticError::new(Code::TooLarge, format!("a tile has no axis of extent {extent}"))
            .argument(index, format!("axis {axis} of this has extent {extent}"));
    }
    let message = format!("extents of a tile must be at least 1, and axis {axis} has {extent}");
    SemanticError::new(Code::InvalidValue, message)
        .argument(index, format!("axis {axis} of this has extent {extent}"))
        .note(format!("found {extent}, expected 1, 2, 3, …"))
}

/// Formats a count: `1 axis`, `2 axes`.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Returns the compile-time value of an operand, also of a tuple.
pub(super) fn constant_of<C: Caller + ?Sized>(c: &mut C, operand: &Op<C>) -> Option<Constant> {
    match operand {
        Operand::Constant(constant) => Some(constant.clone()),
        Operand::Tuple(items) => {
            let constants = items.iter().map(|item| constant_of(c, item)).collect::<Option<_>>();
            constants.map(|constants| Constant::Tuple(items.with_items(constants)))
        }
        Operand::Object(object) => Some(Constant::Object(*object)),
        Operand::Language(name) => match language(name) {
            Some(LanguageItem::Constant(constant)) => Some(constant),
            _ => None,
        },
        other => c.known(other),
    }
}

/// Returns the items of a tuple. For any other operand, returns the operand as the only item.
pub(crate) fn flatten<V: Clone>(operand: &Operand<V>) -> Vec<Operand<V>> {
    match operand {
        Operand::Tuple(items) => items.to_vec(),
        Operand::Constant(Constant::Tuple(items)) => items.iter().cloned().map(Operand::Constant).collect(),
        other => vec![other.clone()],
    }
}
