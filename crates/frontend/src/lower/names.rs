//! Resolves names and attributes: local names, then the host, then Python's builtins.
//!
//! In a library function, the library file replaces the host.

use std::sync::Arc;

use ruff_python_ast::{Expr, ExprAttribute, ExprName, Stmt};
use tilewright_base::{Code, Diagnostic};

use super::callee::Callee;
use super::lowerer::{Lower, Lowerer, Reported};
use super::scope::NameState;
use super::template::{self, IrOperand, from_host};
use super::{advice, python};
use crate::host::HostValue;
use crate::semantic::{self, LanguageItem, LibraryFunction};
use crate::suggest::suggest;
use crate::value::{BUILTINS, Constant, Operand, language_name};

impl<'a> Lowerer<'a, '_, '_> {
    pub(crate) fn name(&mut self, name: &'a ExprName) -> Lower<IrOperand> {
        let id = name.id.as_str();
        if let Some(binding) = self.scope.get(id) {
            return match &binding.state {
                NameState::Value(value) => Ok(value.clone()),
                NameState::Poisoned => Err(Reported),
                NameState::Lost(why) => {
                    let diagnostic = Diagnostic::at(
                        Code::UndefinedName,
                        self.span_of(name),
                        format!("'{id}' is not defined on every path that leads here"),
                    )
                    .secondary(binding.span, *why)
                    .hint(format!("give '{id}' a value before, for example zeros of its final type"));
                    Err(self.report(diagnostic))
                }
            };
        }
        let found = match self.callee {
            Callee::User(function) | Callee::Constructor(function, _) => {
                match self.session.host.name(function, id) {
                    Some(value) => Some(self.global(name, value)?),
                    None => None,
                }
            }
            Callee::Library(function) => library_name(function, id),
            Callee::Operation => None,
        };
        if let Some(value) = found {
            return Ok(value);
        }
        if python::is_builtin(id) {
            return Ok(Operand::Language(Arc::from(format!("{BUILTINS}{id}"))));
        }
        Err(self.undefined(name))
    }

    fn undefined(&mut self, name: &ExprName) -> Reported {
        let id = name.id.as_str();
        let mut known: Vec<String> = self.scope.keys().map(|&name| name.to_owned()).collect();
        known.sort_unstable();
        if let Some(function) = self.callee.user() {
            known.extend(self.session.host.names(function));
        }
        let candidates = known.iter().map(String::as_str).chain(python::BUILTIN_NAMES.iter().copied());
        let span = self.span_of(name);
        let mut diagnostic = Diagnostic::at(Code::UndefinedName, span, format!("'{id}' is not defined"));
        if let Some(advice) = advice::forgotten_module(id) {
            diagnostic = diagnostic.hint(advice);
        } else if let Some(nearest) = suggest(id, candidates) {
            diagnostic = diagnostic.hint(format!("did you mean '{nearest}'?"));
        } else if let Some(instead) = advice::instead(id) {
            diagnostic = diagnostic.hint(format!("a kernel has {instead}"));
        } else {
            let hint = format!(
                "assign '{id}' before, pass it as an argument, or define it in the module as a tl.constexpr"
            );
            diagnostic = diagnostic.hint(hint);
        }
        self.report(diagnostic)
    }

    fn global(&mut self, name: &ExprName, value: HostValue) -> Lower<IrOperand> {
        let allowed = self.session.options.allow_plain_globals;
        match value {
            HostValue::PlainGlobal(constant) if !allowed => {
                let id = name.id.as_str();
                let message = format!("the global variable '{id}' is not a constexpr");
                let diagnostic = Diagnostic::at(Code::GlobalNotConstexpr, self.span_of(name), message);
                if matches!(constant, Constant::Object(_)) {
                    let diagnostic = diagnostic
                        .note("it is an object that may change; a kernel is compiled once and would not see it change")
                        .hint(format!(
                            "pass a tensor as an argument of the launch; of another object, pass what the kernel needs, or \
                             write `{id} = tl.constexpr(…)` where it is defined"
                        ));
                    return Err(self.report(diagnostic));
                }
                let diagnostic = diagnostic
                    .note(format!(
                        "its value is {constant} now; a kernel is compiled once and would not see it change"
                    ))
                    .hint(format!(
                        "write `{id} = tl.constexpr({constant})` where it is defined (an annotation does not make \
                         it one), or pass it as an argument"
                    ));
                Err(self.report(diagnostic))
            }
            value => Ok(from_host(value)),
        }
    }

    /// Returns the meaning of a path of `triton.language`. `file:name` is a function of a library
    /// file.
    pub(crate) fn language(&self, path: &str) -> Option<LanguageItem> {
        if let Some((file, name)) = path.split_once(':') {
            let Callee::Library(current) = self.callee else { return library_function(file, name) };
            if current.file != file {
                return library_function(file, name);
            }
            return function_of_file(current, name);
        }
        semantic::language(path)
    }

    /// Evaluates `value.name`.
    pub(crate) fn attribute(&mut self, attribute: &'a ExprAttribute) -> Lower<IrOperand> {
        let value = self.expression(&attribute.value)?;
        let name = attribute.attr.as_str();
        if let Some(item) = template::parts(&value).and_then(|items| items.field(name).cloned()) {
            return Ok(item);
        }
        if let Some(found) = self.member_of(&value, name, self.span_of(attribute))? {
            return Ok(found);
        }
        if let Some(found) = Self::operator_method(&value, name).or_else(|| self.type_of_parts(&value, name))
        {
            return Ok(found);
        }
        match &value {
            Operand::Language(path) => self.language_attribute(path, attribute),
            Operand::Object(object) | Operand::Constant(Constant::Object(object)) => {
                if let Some(found) = self.session.host.attribute(*object, name) {
                    // An attribute of an object, such as a module, need not be a `tl.constexpr`.
                    return Ok(match found {
                        HostValue::PlainGlobal(constant) => Operand::Constant(constant),
                        other => from_host(other),
                    });
                }
                let what = self.session.host.describe(*object);
                let at = self.span_of(&attribute.attr);
                Err(self.error(Code::UnknownAttribute, at, format!("{what} has no attribute '{name}'")))
            }
            Operand::Constant(Constant::LanguageType(_)) => self.semantic_attribute(&value, attribute),
            // A type as an argument is a `tl.constexpr` with the type as its value.
            Operand::Constant(_) if name == "value" => Ok(value.clone()),
            Operand::Constant(
                constant @ (Constant::Int(_) | Constant::Float(_) | Constant::Bool(_) | Constant::Str(_)),
            ) => match self.session.host.method(constant, name) {
                Some(found) => Ok(from_host(found)),
                None if matches!(constant, Constant::Str(_)) => {
                    Err(self.unknown_attribute(&value, attribute))
                }
                // A run-time argument that equals 1 is a compile-time value with the attributes of
                // run-time numbers.
                None => self.semantic_attribute(&value, attribute),
            },
            Operand::Tensor(_)
            | Operand::Descriptor(_)
            | Operand::Shared(_)
            | Operand::Launch(_)
            | Operand::Constant(Constant::Type(_)) => self.semantic_attribute(&value, attribute),
            other => Err(self.unknown_attribute(other, attribute)),
        }
    }

    /// Evaluates an attribute that the language itself defines for a value.
    fn semantic_attribute(&mut self, value: &IrOperand, attribute: &'a ExprAttribute) -> Lower<IrOperand> {
        self.at(self.span_of(attribute));
        let result = semantic::attribute(self, value, attribute.attr.as_str());
        result.map_err(|mut error| {
            // The message names the type of the value, so the label is only at the attribute.
            error.arguments.clear();
            self.semantic_error(error, self.span_of(&attribute.attr), &[])
        })
    }

    fn unknown_attribute(&mut self, value: &IrOperand, attribute: &ExprAttribute) -> Reported {
        let (name, at) = (attribute.attr.as_str(), self.span_of(&attribute.attr));
        let advice = template::items(value).and_then(|_| advice::list_method(name));
        let what = if advice.is_some() { "a list in a kernel".to_owned() } else { self.describe(value) };
        let mut diagnostic =
            Diagnostic::at(Code::UnknownAttribute, at, format!("{what} has no attribute '{name}'"));
        if let Some(advice) = advice {
            diagnostic = diagnostic.hint(advice);
        }
        if let Some(fields) = template::parts(value).and_then(|items| items.fields().cloned()) {
            let nearest = suggest(name, fields.iter().map(|field| &**field));
            diagnostic = diagnostic.hint(match nearest {
                Some(nearest) => format!("did you mean '{nearest}'?"),
                None => format!("its fields are {}", fields.join(", ")),
            });
        }
        self.report(diagnostic)
    }

    fn language_attribute(&mut self, path: &str, attribute: &ExprAttribute) -> Lower<IrOperand> {
        let name = attribute.attr.as_str();
        let full = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match self.language(&full) {
            Some(LanguageItem::Constant(constant)) => Ok(Operand::Constant(constant)),
            Some(_) => Ok(Operand::Language(Arc::from(full))),
            None => {
                let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
                let candidates = semantic::language_names()
                    .filter_map(|candidate| candidate.strip_prefix(prefix.as_str()))
                    .filter(|candidate| !candidate.contains('.'));
                let nearest = suggest(name, candidates);
                let module = language_name(path);
                let message = format!("{module} has no attribute '{name}'");
                let mut diagnostic =
                    Diagnostic::at(Code::UnknownAttribute, self.span_of(&attribute.attr), message);
                if let Some(instead) = advice::instead(name) {
                    diagnostic = diagnostic.hint(format!("write {instead}"));
                } else if let Some(nearest) = nearest {
                    diagnostic = diagnostic.hint(format!("did you mean '{module}.{nearest}'?"));
                }
                Err(self.report(diagnostic))
            }
        }
    }

    /// Returns a noun for an operand in messages.
    pub(crate) fn describe(&mut self, operand: &IrOperand) -> String {
        match operand {
            Operand::Object(object) | Operand::Callable(object) | Operand::ConstexprFunction(object) => {
                self.session.host.describe(*object)
            }
            Operand::Function(function) => match self.session.host.source(*function) {
                Ok(source) => format!("function '{}'", source.name),
                Err(_) => "a function".into(),
            },
            other => template::describe(&template::of(other, &self.builder.function)),
        }
    }
}

fn is_name(target: &Expr, id: &str) -> bool {
    target.as_name_expr().is_some_and(|name| name.id.as_str() == id)
}

/// Resolves a name in a library file: `tl` and its modules, or a function or constant of the file.
fn library_name(function: LibraryFunction, id: &str) -> Option<IrOperand> {
    match id {
        "tl" | "core" => return Some(Operand::Language(Arc::from(""))),
        "math" => return Some(Operand::Language(Arc::from("math"))),
        "libdevice" => return Some(Operand::Language(Arc::from("extra.libdevice"))),
        _ => {}
    }
    let tree = super::function::library_tree(function)?;
    for statement in &tree.module.body {
        match statement {
            Stmt::FunctionDef(definition) if definition.name.as_str() == id => {
                return Some(Operand::Language(Arc::from(format!("{}:{id}", function.file))));
            }
            Stmt::AnnAssign(assign) if is_name(&assign.target, id) => {
                return super::function::literal(assign.value.as_deref()?).map(Operand::Constant);
            }
            Stmt::Assign(assign) if assign.targets.iter().any(|target| is_name(target, id)) => {
                return super::function::literal(&assign.value).map(Operand::Constant);
            }
            _ => {}
        }
    }
    None
}

fn library_function(file: &str, name: &str) -> Option<LanguageItem> {
    let any = semantic::library_file(file)?;
    function_of_file(any, name)
}

fn function_of_file(sibling: LibraryFunction, name: &str) -> Option<LanguageItem> {
    let tree = super::function::library_tree(sibling)?;
    tree.module.body.iter().find_map(|statement| match statement {
        Stmt::FunctionDef(definition) if definition.name.as_str() == name => {
            let range = crate::parse::bytes(definition.name.range);
            let function = sibling.text.get(range.start as usize..range.end as usize)?;
            Some(LanguageItem::Library(LibraryFunction { function, ..sibling }))
        }
        _ => None,
    })
}
