//! Lowers instances of users' classes (`triton.aggregate`).
//!
//! An instance is an immutable tuple with a class. Only `__init__` sets fields, and the lowered
//! `__init__` returns the instance. `tl.aggregate_replace` copies an instance with other fields.

use ruff_python_ast::{Expr, ExprAttribute, ExprSubscript};
use tilewright_base::{Code, Diagnostic, Span};

use super::arguments::Arguments;
use super::callee::Callee;
use super::lowerer::{Lower, Lowerer, Reported};
use super::scope;
use super::template::{self, IrOperand, from_host};
use crate::constexpr;
use crate::host::{Aggregate, FieldKind, Member};
use crate::reference::{MemberFunction, ObjectRef};
use crate::semantic;
use crate::suggest::suggest;
use crate::tuple::Tuple;
use crate::value::{Constant, Operand};

impl<'a> Lowerer<'a, '_, '_> {
    /// Creates an instance by the `__init__` of the class or, without one, from the arguments as
    /// fields.
    pub(crate) fn construct(
        &mut self,
        class: ObjectRef,
        aggregate: &Aggregate,
        mut arguments: Arguments<'a>,
        span: Span,
    ) -> Lower<IrOperand> {
        let empty = Operand::Tuple(Tuple::instance(Vec::new(), Vec::new().into(), class));
        let Some(Member::Method(MemberFunction { function, .. })) =
            self.session.host.member(class, None, "__init__")
        else {
            return self.construct_by_fields(class, aggregate, arguments, span);
        };
        arguments.positional.insert(0, (empty, None));
        let made = self.call_function(Callee::Constructor(function, class), arguments, span)?;
        let fields = template::parts(&made).ok_or(Reported)?;
        let missing: Vec<&str> = aggregate
            .fields
            .iter()
            .map(|(name, _)| &**name)
            .filter(|name| fields.field(name).is_none())
            .collect();
        if !missing.is_empty() {
            let name = &aggregate.name;
            let message = format!("'{name}.__init__' does not set {}", missing.join(", "));
            let diagnostic = Diagnostic::at(Code::WrongArguments, span, message)
                .note(format!("the fields of '{name}' are {}", field_names(aggregate)))
                .hint("give each annotated field a value in `__init__`, on every path through it");
            return Err(self.report(diagnostic));
        }
        let values = aggregate.fields.iter().filter_map(|(name, _)| fields.field(name).cloned()).collect();
        Ok(instance(class, aggregate, values))
    }

    /// Creates an instance of a class without an `__init__` of its own. The parameters of the call
    /// are the fields.
    fn construct_by_fields(
        &mut self,
        class: ObjectRef,
        aggregate: &Aggregate,
        arguments: Arguments<'a>,
        span: Span,
    ) -> Lower<IrOperand> {
        let names = aggregate.fields.iter().map(|(name, _)| name);
        let fields: Vec<_> = names.zip(&aggregate.defaults).collect();
        let bound = self.bind_fields(&aggregate.name, &fields, arguments, span)?;
        let mut values = Vec::new();
        for (value, (name, kind)) in bound.iter().zip(&aggregate.fields) {
            values.push(self.field_value(&aggregate.name, name, *kind, value, span)?);
        }
        Ok(instance(class, aggregate, values))
    }

    pub(crate) fn set_field(
        &mut self,
        attribute: &'a ExprAttribute,
        value: &IrOperand,
        at: Span,
    ) -> Lower<()> {
        let owner = self.own_name();
        let (Some(class), Expr::Name(base)) = (self.callee.constructs(), &*attribute.value) else {
            return Err(self.bad_target(&attribute.value));
        };
        let object = match owner.and_then(|owner| self.scope.get(owner)) {
            Some(scope::Binding { state: scope::NameState::Value(object), .. }) => object.clone(),
            Some(_) => return Err(Reported),
            None => return Err(self.bad_target(&attribute.value)),
        };
        let Some(aggregate) = self.session.host.aggregate(class) else { return Err(Reported) };
        let (Some(owner), Some(fields)) = (owner, template::parts(&object)) else { return Err(Reported) };
        let name_span = self.span_of(&attribute.attr);
        if base.id.as_str() != owner {
            let span = self.span_of(attribute);
            return Err(self.unsupported(span, "an assignment to a field of another object", ""));
        }
        let name = attribute.attr.as_str();
        let Some((name, kind)) = aggregate.fields.iter().find(|(known, _)| **known == *name) else {
            let message = format!("'{}' has no field '{name}'", aggregate.name);
            let nearest = suggest(name, aggregate.fields.iter().map(|(known, _)| &**known));
            let diagnostic = Diagnostic::at(Code::UnknownAttribute, name_span, message).hint(match nearest {
                Some(nearest) => format!("did you mean '{nearest}'?"),
                None => format!("annotate it in the class: `{name}: tl.tensor`, or `{name}: tl.constexpr`"),
            });
            return Err(self.report(diagnostic));
        };
        let value = self.field_value(&aggregate.name, name, *kind, value, at)?;
        let mut names: Vec<_> = fields.fields().map_or(Vec::new(), |names| names.to_vec());
        let mut values = fields.into_vec();
        if let Some(place) = names.iter().position(|known| known == name) {
            values[place] = value;
        } else {
            names.push(name.clone());
            values.push(value);
        }
        let object = template::whole(Tuple::instance(values, names.into(), class));
        let binding = scope::Binding::value(object, name_span);
        self.scope.insert(owner, binding);
        Ok(())
    }

    /// Converts an assigned value as the kind of the field requires, or reports it.
    fn field_value(
        &mut self,
        class: &str,
        name: &str,
        kind: FieldKind,
        value: &IrOperand,
        at: Span,
    ) -> Lower<IrOperand> {
        self.at(at);
        let expected = match kind {
            FieldKind::Constexpr => {
                if template::values(value).is_empty() && template::class_of(value).is_none() {
                    return Ok(value.clone());
                }
                if let Some(constant) = self.as_constant(value) {
                    return Ok(Operand::Constant(constant));
                }
                "a compile-time value, as its annotation `tl.constexpr` requires"
            }
            FieldKind::Tensor => {
                if let Operand::Tensor(_) | Operand::Constant(_) = value {
                    let result = semantic::to_tensor(self, value).map(Operand::Tensor);
                    return result.map_err(|error| self.semantic_error(error, at, &[]));
                }
                "a tensor, as its annotation `tl.tensor` requires"
            }
            FieldKind::Aggregate(expected) => {
                let is_one = template::class_of(value).is_some_and(|class| {
                    self.session.host.is_instance(&crate::HostValue::Object(class), expected)
                });
                if is_one {
                    return Ok(value.clone());
                }
                "an object of the class of its annotation"
            }
            FieldKind::Any => return self.decay_all(value),
        };
        let found = self.describe(value);
        let message = format!("the field '{name}' of '{class}' takes {expected}");
        let diagnostic = Diagnostic::new(Code::TypeMismatch, message).primary(at, format!("this is {found}"));
        Err(self.report(match kind {
            FieldKind::Constexpr => diagnostic.hint(format!(
                "annotate the field `{name}: tl.tensor` if its value is known at run time only"
            )),
            _ => diagnostic,
        }))
    }

    /// Returns the name of the first parameter, which is the instance in a method.
    fn own_name(&self) -> Option<&'a str> {
        let definition = self.definition;
        super::function::parameters(definition).next().map(|parameter| parameter.name.as_str())
    }

    /// Returns the instance under construction in an `__init__`.
    pub(crate) fn constructed(&mut self) -> Lower<Option<IrOperand>> {
        if self.callee.constructs().is_none() {
            return Ok(None);
        }
        match self.own_name().and_then(|name| self.scope.get(name)) {
            Some(scope::Binding { state: scope::NameState::Value(object), .. }) => Ok(Some(object.clone())),
            _ => Err(Reported),
        }
    }

    /// Calls the constructor of a base, for the statements `super().__init__(…)` and
    /// `Base.__init__(self, …)` of an `__init__`. Returns `None` for others.
    pub(crate) fn base_constructor(&mut self, expression: &'a Expr) -> Option<Lower<()>> {
        let class = self.callee.constructs()?;
        let call = expression.as_call_expr()?;
        let attribute = call.func.as_attribute_expr().filter(|found| found.attr.as_str() == "__init__")?;
        Some(self.call_base_constructor(class, &attribute.value, call))
    }

    fn call_base_constructor(
        &mut self,
        class: ObjectRef,
        base: &'a Expr,
        call: &'a ruff_python_ast::ExprCall,
    ) -> Lower<()> {
        let span = self.span_of(call);
        let base_value = self.expression(base)?;
        let mut arguments = self.arguments(call)?;
        let found = match &base_value {
            Operand::Super(object, after) => {
                arguments.positional.insert(0, ((**object).clone(), None));
                self.session.host.member(class, Some(*after), "__init__")
            }
            Operand::Object(base) => self.session.host.member(*base, None, "__init__"),
            _ => None,
        };
        let Some(Member::Method(MemberFunction { function, .. })) = found else {
            let what = self.describe(&base_value);
            let at = self.span_of(base);
            return Err(self.error(Code::UnknownAttribute, at, format!("{what} has no '__init__' to call")));
        };
        let object = self.call_function(Callee::Constructor(function, class), arguments, span)?;
        let owner = self.own_name().ok_or(Reported)?;
        self.scope.insert(owner, scope::Binding::value(object, span));
        Ok(())
    }

    /// Evaluates `super()` to the first parameter and the class that contains the function.
    pub(crate) fn super_object(&mut self, span: Span) -> Lower<IrOperand> {
        let lexical = self.callee.user().and_then(|function| self.session.host.name(function, "__class__"));
        let object = self.own_name().and_then(|name| self.scope.get(name)).map(|binding| &binding.state);
        if let (Some(crate::HostValue::Object(class)), Some(scope::NameState::Value(object))) =
            (lexical, object)
        {
            return Ok(Operand::Super(Box::new(object.clone()), class));
        }
        Err(self.error(Code::UndefinedName, span, "'super()' outside of a method of a class"))
    }

    /// Evaluates a member of an instance of a class, of `super()` or of the class itself, if there
    /// is one. Calls the function of a property, unless `value` is the class.
    pub(crate) fn member_of(
        &mut self,
        value: &IrOperand,
        name: &str,
        span: Span,
    ) -> Lower<Option<IrOperand>> {
        let (object, class, after) = match value {
            Operand::Super(object, after) => match template::class_of(object) {
                Some(class) => ((**object).clone(), class, Some(*after)),
                None => return Ok(None),
            },
            Operand::Object(class) if self.session.host.aggregate(*class).is_some() => {
                let member = self.session.host.member(*class, None, name);
                return Ok(member.map(|member| match member {
                    Member::Method(member) | Member::Property(member) => Operand::Function(member.function),
                    Member::ClassMethod(member) => Operand::Bound(Box::new(value.clone()), member),
                    Member::Static(found) => from_host(found),
                }));
            }
            other => match template::class_of(other) {
                Some(class) => (other.clone(), class, None),
                None => return Ok(None),
            },
        };
        match self.session.host.member(class, after, name) {
            Some(Member::Method(member)) => Ok(Some(Operand::Bound(Box::new(object), member))),
            Some(Member::Property(member)) => {
                let arguments = Arguments { positional: vec![(object, None)], keywords: Vec::new() };
                self.call_member(member, arguments, span).map(Some)
            }
            Some(Member::ClassMethod(member)) => {
                Ok(Some(Operand::Bound(Box::new(Operand::Object(class)), member)))
            }
            Some(Member::Static(found)) => Ok(Some(from_host(found))),
            None => Ok(None),
        }
    }

    /// Calls a function of a class. A parameter for the instance or the class gets the first of
    /// `arguments`.
    pub(crate) fn call_member(
        &mut self,
        member: MemberFunction,
        arguments: Arguments<'a>,
        span: Span,
    ) -> Lower<IrOperand> {
        if let Some(object) = member.at_compile_time {
            return self.call_host(object, &arguments, span);
        }
        self.call_function(Callee::User(member.function), arguments, span)
    }

    /// Evaluates `tl.aggregate_replace(obj, field=value, …)`: copies the object, and gives the
    /// named fields these values.
    pub(crate) fn aggregate_replace(&mut self, arguments: &Arguments<'a>, span: Span) -> Lower<IrOperand> {
        let object = match &arguments.positional[..] {
            [(object, _)] => object.clone(),
            given => {
                let message = format!("aggregate_replace takes one object, found {}", given.len());
                return Err(self.error(Code::WrongArguments, span, message));
            }
        };
        let class = template::class_of(&object);
        let aggregate = class.and_then(|class| self.session.host.aggregate(class));
        let (Some(class), Some(aggregate), Some(fields)) = (class, aggregate, template::parts(&object))
        else {
            let what = self.describe(&object);
            let message = format!("aggregate_replace takes an object of a `triton.aggregate`, found {what}");
            return Err(self.error(Code::TypeMismatch, span, message));
        };
        let mut values = fields.into_vec();
        for (keyword, (value, at), name_span) in &arguments.keywords {
            let Some(place) = aggregate.fields.iter().position(|(name, _)| name == keyword) else {
                let message = format!("'{}' has no field '{keyword}'", aggregate.name);
                let diagnostic = Diagnostic::at(Code::UnknownAttribute, *name_span, message)
                    .hint(format!("its fields are {}", field_names(&aggregate)));
                return Err(self.report(diagnostic));
            };
            let (name, kind) = &aggregate.fields[place];
            let at = at.map_or(span, |at| self.span_of(at));
            values[place] = self.field_value(&aggregate.name, name, *kind, value, at)?;
        }
        Ok(instance(class, &aggregate, values))
    }

    /// Lowers `name[index] = value` of a tuple: rebinds the name to a changed tuple.
    pub(crate) fn set_item(&mut self, subscript: &'a ExprSubscript, value: IrOperand, at: Span) -> Lower<()> {
        let Expr::Name(name) = &*subscript.value else { return Err(self.bad_target(&subscript.value)) };
        let tuple = self.name(name)?;
        let Some(items) = template::items(&tuple) else {
            let span = self.span_of(subscript);
            return Err(self.item_of_tile(span));
        };
        let index = self.constant_int(&subscript.slice, "the index of a tuple")?;
        let places = Constant::Tuple((0..items.len() as i128).map(Constant::Int).collect());
        let place = match constexpr::subscript(&places, &Constant::Int(index)) {
            Ok(Constant::Int(place)) => place as usize,
            Ok(_) => return Err(Reported),
            Err(message) => return Err(self.error(Code::ConstexprError, at, message)),
        };
        let mut changed = items.clone();
        changed[place] = value;
        let span = self.span_of(name);
        self.bind(name.id.as_str(), scope::Binding::value(template::whole(changed), span));
        Ok(())
    }

    /// Calls the method of an operator, if the object has it.
    pub(crate) fn call_operator(
        &mut self,
        object: &IrOperand,
        method: &str,
        others: Vec<IrOperand>,
        span: Span,
    ) -> Option<Lower<IrOperand>> {
        template::class_of(object)?;
        let member = match self.member_of(object, method, span) {
            Ok(member) => member?,
            Err(reported) => return Some(Err(reported)),
        };
        let positional = others.into_iter().map(|value| (value, None)).collect();
        Some(self.call_operand(&member, Arguments { positional, keywords: Vec::new() }, span, span))
    }

    /// Returns whether a value is an instance of a class of the host.
    pub(crate) fn is_of_class(&mut self, value: &IrOperand, class: ObjectRef) -> bool {
        let value = match template::class_of(value) {
            Some(own) if self.session.host.aggregate(class).is_some() => crate::HostValue::Object(own),
            Some(_) => return false,
            None => match self.host_value(value) {
                Some(value) => value,
                None => return false,
            },
        };
        self.session.host.is_instance(&value, class)
    }

    /// Returns the `__call__` of an object, if it has one.
    pub(crate) fn callable_object(&mut self, callee: &IrOperand, span: Span) -> Lower<Option<IrOperand>> {
        match template::class_of(callee) {
            Some(_) => self.member_of(callee, "__call__", span),
            None => Ok(None),
        }
    }
}

fn instance(class: ObjectRef, aggregate: &Aggregate, values: Vec<IrOperand>) -> IrOperand {
    let names: Vec<_> = aggregate.fields.iter().map(|(name, _)| name.clone()).collect();
    template::whole(Tuple::instance(values, names.into(), class))
}

fn field_names(aggregate: &Aggregate) -> String {
    let names: Vec<&str> = aggregate.fields.iter().map(|(name, _)| &**name).collect();
    names.join(", ")
}
