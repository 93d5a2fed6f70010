//! Calls the builtins of Python that kernels support.

use tilewright_base::{Code, Diagnostic, Span};

use super::arguments::{Arguments, Passed};
use super::lowerer::{Lower, Lowerer, Reported};
use super::template::{self, IrOperand, from_host};
use crate::constexpr::{self, Evaluated};
use crate::descriptor::DescriptorKind;
use crate::semantic::{self, BinaryOperator, CompareOperator, UnaryOperator};
use crate::shared_memory::is_tensor_memory;
use crate::value::{BUILTINS, Constant, Operand, to_str};

/// The builtins that a kernel may call.
pub(crate) const BUILTIN_NAMES: &[&str] = &[
    "abs",
    "bool",
    "divmod",
    "enumerate",
    "float",
    "getattr",
    "hasattr",
    "int",
    "isinstance",
    "len",
    "list",
    "max",
    "min",
    "pow",
    "print",
    "range",
    "repr",
    "reversed",
    "round",
    "slice",
    "str",
    "sum",
    "tuple",
    "zip",
];

/// The builtins that kernels cannot call, except for `super()`. They are errors with advice.
const OTHER_BUILTINS: &[&str] = &[
    "all",
    "any",
    "ascii",
    "bin",
    "breakpoint",
    "bytearray",
    "bytes",
    "callable",
    "chr",
    "complex",
    "dict",
    "dir",
    "eval",
    "exec",
    "exit",
    "filter",
    "format",
    "frozenset",
    "globals",
    "hash",
    "hex",
    "id",
    "input",
    "iter",
    "locals",
    "map",
    "next",
    "object",
    "oct",
    "open",
    "ord",
    "quit",
    "set",
    "setattr",
    "sorted",
    "super",
    "type",
    "vars",
];

pub(crate) fn is_builtin(name: &str) -> bool {
    BUILTIN_NAMES.contains(&name) || OTHER_BUILTINS.contains(&name)
}

impl<'a> Lowerer<'a, '_, '_> {
    pub(crate) fn python_builtin(
        &mut self,
        name: &str,
        arguments: Arguments<'a>,
        span: Span,
        callee_span: Span,
    ) -> Lower<IrOperand> {
        if name == "super" && arguments.positional.is_empty() {
            return self.super_object(span);
        }
        if OTHER_BUILTINS.contains(&name) {
            let message = format!("Python's '{name}' cannot be called in a kernel");
            let diagnostic = Diagnostic::at(Code::NotCallable, callee_span, message);
            return Err(self.report(diagnostic.hint(super::advice::instead_of_builtin(name))));
        }
        let is_run_time = |(value, _): &Passed<'a>| matches!(value, Operand::Tensor(_));
        let any_run_time = arguments.positional.iter().any(is_run_time);
        let has_keywords = !arguments.keywords.is_empty();
        match name {
            "range" => return self.call_language("range", arguments, span, callee_span),
            "print" => return self.call_language("device_print", arguments, span, callee_span),
            "triton.cdiv" if any_run_time => return self.call_language("cdiv", arguments, span, callee_span),
            "abs" if any_run_time => return self.call_language("abs", arguments, span, callee_span),
            "min" if any_run_time && !has_keywords => {
                return self.extreme("minimum", arguments, span, callee_span);
            }
            "max" if any_run_time && !has_keywords => {
                return self.extreme("maximum", arguments, span, callee_span);
            }
            _ => {}
        }
        if let Some((keyword, ..)) = arguments.keywords.first() {
            let message = format!("{name} takes no keyword '{keyword}' in a kernel");
            return Err(self.error(Code::WrongArguments, span, message));
        }
        let values: Vec<IrOperand> = arguments.positional.iter().map(|(value, _)| value.clone()).collect();
        match (name, &values[..]) {
            ("isinstance", [value, class]) => self.is_instance(value, class, span),
            ("getattr" | "hasattr", [value, attribute, ..]) => {
                self.get_attribute(name, value, attribute, values.get(2), span)
            }
            ("len", [value]) => self.length(value, span),
            ("slice", [stop]) => {
                let none = || Operand::Constant(Constant::None);
                Ok(semantic::slice_of([none(), stop.clone(), none()]))
            }
            ("slice", [start, stop, rest @ ..]) if rest.len() < 2 => {
                let by = rest.first().cloned().unwrap_or(Operand::Constant(Constant::None));
                Ok(semantic::slice_of([start.clone(), stop.clone(), by]))
            }
            ("tuple" | "list", []) => Ok(template::tuple(Vec::new())),
            ("tuple" | "list", [value]) => {
                self.items(value, arguments.positional[0].1, span).map(template::tuple)
            }
            ("reversed", [value]) => {
                let mut items = self.items(value, arguments.positional[0].1, span)?;
                items.reverse();
                Ok(template::tuple(items))
            }
            ("enumerate", [value]) => {
                let items = self.items(value, arguments.positional[0].1, span)?;
                let pairs = items.into_iter().enumerate().map(|(index, item)| {
                    template::tuple(vec![Operand::Constant(Constant::Int(index as i128)), item])
                });
                Ok(template::tuple(pairs.collect()))
            }
            ("zip", [_, ..]) => self.zip(&arguments, span),
            ("sum", [value]) => self.sum(value, span),
            _ => self.constant_builtin(name, &arguments, span),
        }
    }

    /// Evaluates `min` or `max` if an argument is a run-time value.
    fn extreme(
        &mut self,
        function: &str,
        arguments: Arguments<'a>,
        span: Span,
        callee_span: Span,
    ) -> Lower<IrOperand> {
        let mut rest = arguments.positional.into_iter();
        let Some(mut result) = rest.next() else { return Err(Reported) };
        for next in rest {
            let pair = Arguments { positional: vec![result, next], keywords: Vec::new() };
            result = (self.call_language(function, pair, span, callee_span)?, None);
        }
        if result.1.is_some() {
            let message = "min and max of one tile are tl.min and tl.max";
            return Err(self.error(Code::WrongArguments, span, message));
        }
        Ok(result.0)
    }

    fn items(
        &mut self,
        value: &IrOperand,
        at: Option<&'a ruff_python_ast::Expr>,
        span: Span,
    ) -> Lower<Vec<IrOperand>> {
        match (template::items(value), at) {
            (Some(items), _) => Ok(items.into_vec()),
            (None, Some(at)) => self.unrolled_items(value, at),
            (None, None) => Err(self.error(Code::TypeMismatch, span, "a tuple is expected")),
        }
    }

    fn zip(&mut self, arguments: &Arguments<'a>, span: Span) -> Lower<IrOperand> {
        let mut columns = Vec::new();
        for (value, at) in &arguments.positional {
            columns.push(self.items(value, *at, span)?);
        }
        let length = columns.iter().map(Vec::len).min().unwrap_or(0);
        let row =
            |index: usize| template::tuple(columns.iter().map(|column| column[index].clone()).collect());
        Ok(template::tuple((0..length).map(row).collect()))
    }

    fn sum(&mut self, value: &IrOperand, span: Span) -> Lower<IrOperand> {
        let Some(items) = template::items(value) else {
            let diagnostic =
                Diagnostic::at(Code::TypeMismatch, span, "Python's sum adds the items of a tuple");
            return Err(self.report(diagnostic.hint("a tile is summed by tl.sum")));
        };
        let mut total = Operand::Constant(Constant::Int(0));
        for item in items {
            total = match (&total, &item) {
                (Operand::Constant(left), Operand::Constant(right)) => {
                    self.evaluated(constexpr::binary(BinaryOperator::Add, left, right), span)?
                }
                (Operand::Constant(Constant::Int(0)), _) => item,
                _ => {
                    let result = semantic::binary(self, BinaryOperator::Add, &total, &item);
                    result.map_err(|error| self.semantic_error(error, span, &[]))?
                }
            };
        }
        Ok(total)
    }

    pub(crate) fn length(&mut self, value: &IrOperand, span: Span) -> Lower<IrOperand> {
        let length = match value {
            Operand::Constant(Constant::Str(text)) => Some(text.chars().count()),
            Operand::Tensor(value) => {
                self.builder.function.ty(*value).shape.first().map(|&extent| extent as usize)
            }
            other => template::items(other).map(|items| items.len()),
        };
        let of_object = self.call_operator(value, "__len__", Vec::new(), span);
        if let Some(result) = of_object.or_else(|| self.operate("len", &[value], span)) {
            return result;
        }
        if let Some(length) = length {
            Ok(Operand::Constant(Constant::Int(length as i128)))
        } else {
            let what = self.describe(value);
            let diagnostic = Diagnostic::at(Code::TypeMismatch, span, format!("{what} has no length"));
            Err(self.report(diagnostic.hint(
                "a kernel gets the address of a tensor's first element, or a number: pass the length as an argument of the launch",
            )))
        }
    }

    fn is_instance(&mut self, value: &IrOperand, class: &IrOperand, span: Span) -> Lower<IrOperand> {
        let classes = match class {
            Operand::Tuple(classes) => classes.to_vec(),
            one => vec![one.clone()],
        };
        let mut found = false;
        for class in classes {
            if let Operand::Object(class) | Operand::Constant(Constant::Object(class)) = &class {
                found |= self.is_of_class(value, *class);
                continue;
            }
            let Operand::Language(path) = &class else {
                let what = self.describe(&class);
                let message = format!("isinstance in a kernel knows tl's and Python's own types, not {what}");
                return Err(self.error(Code::TypeMismatch, span, message));
            };
            let name = path.strip_prefix(BUILTINS).unwrap_or(path);
            let name = name.rsplit('.').next().unwrap_or(name);
            found |= match value {
                Operand::Tensor(_) => matches!(name, "tensor" | "base_value"),
                Operand::Constant(Constant::LanguageType(ty)) => ty.is_of(name),
                Operand::Constant(_) | Operand::Tuple(_) if name == "base_value" => true,
                Operand::Constant(constant) => match constant {
                    Constant::Bool(_) => matches!(name, "bool" | "int" | "constexpr"),
                    Constant::Int(_) => matches!(name, "int" | "constexpr"),
                    Constant::Float(_) => matches!(name, "float" | "constexpr"),
                    Constant::Str(_) => matches!(name, "str" | "constexpr"),
                    Constant::Type(ty) => {
                        matches!(name, "dtype" | "base_type")
                            || (name == "block_type" && !ty.is_scalar())
                            || (name == "pointer_type" && ty.is_scalar() && ty.element.pointee().is_some())
                    }
                    Constant::Tuple(_) => matches!(name, "tuple" | "list"),
                    Constant::None => name == "constexpr",
                    Constant::Object(_) | Constant::LanguageType(_) => false,
                },
                Operand::Tuple(_) => matches!(name, "tuple" | "list"),
                Operand::Descriptor(descriptor) => match descriptor.form.kind {
                    DescriptorKind::BlockPointer => matches!(name, "tensor" | "base_value"),
                    DescriptorKind::Tensor => {
                        matches!(name, "tensor_descriptor" | "tensor_descriptor_base" | "base_value")
                    }
                },
                Operand::Shared(memory) => {
                    let is_tensor = is_tensor_memory(&memory.form.tiles);
                    name == "base_value"
                        || is_tensor == (name == "tensor_memory_descriptor")
                            && matches!(name, "shared_memory_descriptor" | "tensor_memory_descriptor")
                }
                Operand::Launch(_) => matches!(name, "clc_result" | "base_value"),
                _ => false,
            };
        }
        Ok(Operand::Constant(Constant::Bool(found)))
    }

    fn get_attribute(
        &mut self,
        function: &str,
        value: &IrOperand,
        attribute: &IrOperand,
        default: Option<&IrOperand>,
        span: Span,
    ) -> Lower<IrOperand> {
        let Operand::Constant(Constant::Str(name)) = attribute else {
            let message = format!("{function} takes the name of an attribute as a string");
            return Err(self.error(Code::TypeMismatch, span, message));
        };
        let member = self.member_of(value, name, span)?;
        let found = match value {
            _ if member.is_some() => member,
            other if Self::operator_method(other, name).is_some() => Self::operator_method(other, name),
            Operand::Object(object) | Operand::Constant(Constant::Object(object)) => {
                self.session.host.attribute(*object, name).map(from_host)
            }
            Operand::Language(path) => {
                let full = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
                self.language(&full).map(|_| from_host(crate::HostValue::Language(full.into())))
            }
            other => match template::parts(other).and_then(|items| items.field(name).cloned()) {
                Some(item) => Some(item),
                None => semantic::attribute(self, other, name).ok(),
            },
        };
        match (function, found, default) {
            ("hasattr", found, _) => Ok(Operand::Constant(Constant::Bool(found.is_some()))),
            (_, Some(found), _) => Ok(found),
            (_, None, Some(default)) => Ok(default.clone()),
            (_, None, None) => {
                let what = self.describe(value);
                Err(self.error(Code::UnknownAttribute, span, format!("{what} has no attribute '{name}'")))
            }
        }
    }

    /// Evaluates a builtin whose arguments must all be compile-time values.
    fn constant_builtin(&mut self, name: &str, arguments: &Arguments<'a>, span: Span) -> Lower<IrOperand> {
        let mut constants = Vec::with_capacity(arguments.positional.len());
        for (value, at) in &arguments.positional {
            match (self.as_constant(value), at) {
                (Some(constant), _) => constants.push(constant),
                (None, Some(at)) => {
                    let span = self.span_of(*at);
                    let text = self.session.sources.text(span);
                    if let Some(advice) = super::advice::of_run_time_number(name, text) {
                        let found = self.describe(value);
                        let message = format!(
                            "the argument of Python's {name} must be known when the kernel is compiled"
                        );
                        let diagnostic = Diagnostic::new(Code::NotConstexpr, message)
                            .primary(span, format!("this is {found}, known at run time only"))
                            .hint(advice);
                        return Err(self.report(diagnostic));
                    }
                    let what = format!("the argument of Python's {name}");
                    return Err(self.not_constant(span, at, value, &what));
                }
                (None, None) => {
                    let message = format!("Python's {name} takes compile-time values");
                    return Err(self.error(Code::NotConstexpr, span, message));
                }
            }
        }
        let result = evaluate(name, &constants);
        self.evaluated(result, span)
    }
}

/// Returns the value of a builtin for compile-time arguments.
pub(crate) fn evaluate(name: &str, arguments: &[Constant]) -> Evaluated {
    match (name, arguments) {
        ("bool", []) => Ok(Constant::Bool(false)),
        ("bool", [value]) => Ok(Constant::Bool(value.is_true())),
        ("int", []) => Ok(Constant::Int(0)),
        ("int", [value]) | ("round", [value @ (Constant::Int(_) | Constant::Bool(_))]) => to_int(value),
        ("float", []) => Ok(Constant::Float(0.0)),
        ("float", [value]) => to_float(value),
        ("str", [value]) => Ok(Constant::Str(to_str(value).into())),
        ("repr", [value]) => Ok(Constant::Str(value.to_string().into())),
        ("abs", [value]) => match constexpr::compare(CompareOperator::Lt, value, &Constant::Int(0))? {
            Constant::Bool(true) => constexpr::unary(UnaryOperator::Neg, value),
            _ => constexpr::unary(UnaryOperator::Plus, value),
        },
        ("pow", [base, power]) => constexpr::binary(BinaryOperator::Pow, base, power),
        ("divmod", [left, right]) => {
            let quotient = constexpr::binary(BinaryOperator::FloorDiv, left, right)?;
            let rest = constexpr::binary(BinaryOperator::Mod, left, right)?;
            Ok(Constant::Tuple(vec![quotient, rest].into()))
        }
        ("round", [Constant::Float(value)]) => to_int(&Constant::Float(value.round_ties_even())),
        ("triton.cdiv", [left, right]) => constexpr::ceil_div(left, right),
        ("triton.next_power_of_2", [value]) => constexpr::next_power_of_two(value),
        ("min" | "max", [Constant::Tuple(items)]) => extreme(name, items),
        ("min" | "max", [_, _, ..]) => extreme(name, arguments),
        _ => {
            let types: Vec<&str> = arguments.iter().map(Constant::type_name).collect();
            Err(format!("{name} does not take ({}) in a kernel", types.join(", ")))
        }
    }
}

fn extreme(name: &str, items: &[Constant]) -> Evaluated {
    let operator = if name == "min" { CompareOperator::Lt } else { CompareOperator::Gt };
    let mut items = items.iter();
    let mut best = items.next().ok_or_else(|| format!("{name} of nothing"))?;
    for item in items {
        if constexpr::compare(operator, item, best)? == Constant::Bool(true) {
            best = item;
        }
    }
    Ok(best.clone())
}

fn to_int(value: &Constant) -> Evaluated {
    match value {
        Constant::Bool(value) => Ok(Constant::Int(i128::from(*value))),
        Constant::Int(value) => Ok(Constant::Int(*value)),
        Constant::Float(value) if value.is_finite() && value.abs() < 1e38 => {
            Ok(Constant::Int(*value as i128))
        }
        Constant::Float(value) => Err(format!("{} cannot be an int", Constant::Float(*value))),
        Constant::Str(text) => {
            let digits = text.trim().replace('_', "");
            digits.parse().map(Constant::Int).map_err(|_| format!("'{text}' is not an int"))
        }
        other => Err(format!("int does not take a value of type '{}'", other.type_name())),
    }
}

fn to_float(value: &Constant) -> Evaluated {
    match value {
        Constant::Bool(value) => Ok(Constant::Float(f64::from(u8::from(*value)))),
        Constant::Int(value) => Ok(Constant::Float(*value as f64)),
        Constant::Float(value) => Ok(Constant::Float(*value)),
        Constant::Str(text) => {
            let parsed = text.trim().replace('_', "").to_ascii_lowercase().parse();
            parsed.map(Constant::Float).map_err(|_| format!("'{text}' is not a float"))
        }
        other => Err(format!("float does not take a value of type '{}'", other.type_name())),
    }
}
