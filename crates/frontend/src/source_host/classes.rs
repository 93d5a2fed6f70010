//! Represents the classes of a module that `triton.aggregate` decorates.

use std::sync::Arc;

use ruff_python_ast::{Expr, Stmt, StmtClassDef, StmtFunctionDef};
use rustc_hash::FxHashMap;

use super::{Decorator, SourceHost};
use crate::host::{Aggregate, FieldKind, HostValue, Member};
use crate::lower::function::is_constexpr;
use crate::reference::{MemberFunction, ObjectRef};

pub(super) struct Class {
    name: String,
    /// True if the class itself is decorated with `triton.aggregate`. A decorated base is not
    /// enough.
    is_aggregate: bool,
    /// The method resolution order: the class, then its bases.
    order: Vec<ObjectRef>,
    fields: Vec<(Arc<str>, FieldKind)>,
    members: FxHashMap<String, Member>,
}

impl SourceHost {
    pub(super) fn define_class(&mut self, class: &StmtClassDef) {
        let name = class.name.as_str().to_owned();
        let decorators = class.decorator_list.iter().map(|decorator| self.dotted(&decorator.expression));
        let is_aggregate = decorators.into_iter().flatten().any(|path| {
            let path = path.strip_prefix("triton.").map(|path| path.trim_start_matches("language."));
            matches!(path, Some("aggregate" | "core.aggregate" | "core._aggregate"))
        });
        let object = if is_aggregate {
            // The index in the path distinguishes a second definition of a class with the same
            // name.
            let path = format!("{name}.{}", self.objects.len());
            self.object(path)
        } else {
            self.opaque(&name)
        };
        let bases: Vec<ObjectRef> = class.bases().iter().filter_map(|base| self.class_named(base)).collect();
        let order = self.resolution_order(object, &bases);
        let known = Class {
            name: name.clone(),
            is_aggregate,
            order,
            fields: Vec::new(),
            members: FxHashMap::default(),
        };
        self.classes.insert(object, known);
        for statement in &class.body {
            self.define_member(object, statement);
        }
        let value = if is_aggregate { HostValue::Object(object) } else { HostValue::Callable(object) };
        self.current.names.insert(name, value);
    }

    fn class_named(&mut self, expression: &Expr) -> Option<ObjectRef> {
        match self.evaluate(expression, 0)? {
            HostValue::Object(object) | HostValue::Callable(object) => {
                self.classes.contains_key(&object).then_some(object)
            }
            _ => None,
        }
    }

    fn resolution_order(&self, class: ObjectRef, bases: &[ObjectRef]) -> Vec<ObjectRef> {
        let of_base =
            |base: &ObjectRef| self.classes.get(base).map_or(Vec::new(), |class| class.order.clone());
        let mut lists: Vec<Vec<ObjectRef>> = bases.iter().map(of_base).collect();
        lists.push(bases.to_vec());
        let mut order = vec![class];
        loop {
            lists.retain(|list| !list.is_empty());
            let mut heads = lists.iter().map(|list| list[0]);
            let is_free = |head: &ObjectRef| lists.iter().all(|list| !list[1..].contains(head));
            // Python rejects a class without a consistent order, so any order is valid here.
            let Some(next) = heads.clone().find(is_free).or_else(|| heads.next()) else { return order };
            order.push(next);
            for list in &mut lists {
                list.retain(|class| *class != next);
            }
        }
    }

    fn define_member(&mut self, class: ObjectRef, statement: &Stmt) {
        match statement {
            Stmt::FunctionDef(function) => {
                let member = self.method_of(class, function);
                self.add_member(class, function.name.as_str(), member);
            }
            Stmt::AnnAssign(assign) => {
                let Expr::Name(name) = &*assign.target else { return };
                let kind = self.field_kind(&assign.annotation);
                if let Some(known) = self.classes.get_mut(&class) {
                    known.fields.push((Arc::from(name.id.as_str()), kind));
                }
                if let Some(value) = assign.value.as_deref().and_then(|value| self.evaluate(value, 0)) {
                    self.add_member(class, name.id.as_str(), Member::Static(value));
                }
            }
            Stmt::Assign(assign) => {
                let Some(value) = self.evaluate(&assign.value, 0) else { return };
                for target in &assign.targets {
                    if let Expr::Name(name) = target {
                        self.add_member(class, name.id.as_str(), Member::Static(value.clone()));
                    }
                }
            }
            _ => {}
        }
    }

    fn add_member(&mut self, class: ObjectRef, name: &str, member: Member) {
        if let Some(known) = self.classes.get_mut(&class) {
            known.members.insert(name.to_owned(), member);
        }
    }

    fn method_of(&mut self, class: ObjectRef, function: &StmtFunctionDef) -> Member {
        let expressions = || function.decorator_list.iter().map(|decorator| &decorator.expression);
        let is_named = |name: &str| {
            expressions()
                .any(|expression| matches!(expression, Expr::Name(found) if found.id.as_str() == name))
        };
        // A method of an aggregate needs no decorator to be a function of the kernel language.
        let decorators: Vec<Decorator> = expressions()
            .filter_map(|expression| self.decorator(expression))
            .chain([Decorator::Method])
            .collect();
        let Some(HostValue::Function(found)) = self.decorated(function, &decorators) else {
            return Member::Static(HostValue::Callable(self.opaque(function.name.as_str())));
        };
        if let Some(known) = self.functions.get_mut(found.0 as usize) {
            known.class = Some(class);
        }
        let member = MemberFunction { function: found, at_compile_time: None };
        if is_named("staticmethod") {
            Member::Static(HostValue::Function(found))
        } else if is_named("classmethod") {
            Member::ClassMethod(member)
        } else if is_named("property") {
            Member::Property(member)
        } else {
            Member::Method(member)
        }
    }

    fn field_kind(&mut self, annotation: &Expr) -> FieldKind {
        if is_constexpr(Some(annotation)) {
            return FieldKind::Constexpr;
        }
        let named = match annotation {
            Expr::StringLiteral(text) => {
                let text = text.value.to_str().trim();
                let value = self.current.names.get(text).cloned();
                if text.rsplit('.').next() == Some("tensor") {
                    return FieldKind::Tensor;
                }
                value
            }
            other => {
                if self.dotted(other).is_some_and(|path| path.ends_with(".tensor")) {
                    return FieldKind::Tensor;
                }
                self.evaluate(other, 0)
            }
        };
        match named {
            Some(HostValue::Object(class)) if self.is_aggregate(class) => FieldKind::Aggregate(class),
            _ => FieldKind::Any,
        }
    }

    fn is_aggregate(&self, class: ObjectRef) -> bool {
        self.classes.get(&class).is_some_and(|class| class.is_aggregate)
    }

    /// Returns the fields of a class that `triton.aggregate` decorates, with the fields of its
    /// bases first. Returns `None` for other classes.
    pub(super) fn fields_of(&self, class: ObjectRef) -> Option<Aggregate> {
        let known = self.classes.get(&class).filter(|class| class.is_aggregate)?;
        let mut fields: Vec<(Arc<str>, FieldKind)> = Vec::new();
        let classes = known.order.iter().rev().filter_map(|class| self.classes.get(class));
        for (name, kind) in classes.flat_map(|class| &class.fields) {
            match fields.iter_mut().find(|(known, _)| known == name) {
                Some(field) => field.1 = *kind,
                None => fields.push((name.clone(), *kind)),
            }
        }
        let default = |(name, _): &(Arc<str>, FieldKind)| {
            known.order.iter().filter_map(|class| self.classes.get(class)).find_map(|class| {
                let is_own = class.fields.iter().any(|(own, _)| own == name);
                match class.members.get(&**name).filter(|_| is_own) {
                    Some(Member::Static(HostValue::PlainGlobal(value))) => {
                        Some(HostValue::Constant(value.clone()))
                    }
                    Some(Member::Static(value)) => Some(value.clone()),
                    _ => None,
                }
            })
        };
        let defaults = fields.iter().map(default).collect();
        Some(Aggregate { name: known.name.clone(), fields, defaults })
    }

    /// Returns the meaning of a name in a class. With `after`, searches only the classes after
    /// `after` in the method resolution order. Without `after`, `__init__` is not inherited.
    pub(super) fn member_of(&self, class: ObjectRef, after: Option<ObjectRef>, name: &str) -> Option<Member> {
        let order = &self.classes.get(&class)?.order;
        let first = match after {
            Some(after) => order.iter().position(|class| *class == after)? + 1,
            None if name == "__init__" => return self.classes.get(&class)?.members.get(name).cloned(),
            None => 0,
        };
        order[first..].iter().find_map(|class| self.classes.get(class)?.members.get(name).cloned())
    }

    /// Returns whether a class is `base` or derives from it.
    pub(super) fn is_derived(&self, class: ObjectRef, base: ObjectRef) -> bool {
        self.classes.get(&class).is_some_and(|class| class.order.contains(&base))
    }

    pub(super) fn class_name(&self, class: ObjectRef) -> Option<&str> {
        self.classes.get(&class).map(|class| class.name.as_str())
    }
}
