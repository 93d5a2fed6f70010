//! Defines operands with types in place of values, the keys of specializations.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;
use tilewright_ir::{Dtype, Element, Function, Type, Value};

use crate::constexpr::identical;
use crate::host::HostValue;
use crate::launch_response::{LAUNCH_RESPONSE, LAUNCH_RESPONSE_PARTS};
use crate::reference::ObjectRef;
use crate::semantic::{self, LanguageItem};
use crate::tuple::{Fields, Tuple};
use crate::value::{Constant, Operand, Range, language_name};

/// An operand whose run-time values are values of the IR.
pub(crate) type IrOperand = Operand<Value>;

/// An operand with types in place of run-time values.
pub(crate) type Template = Operand<Type>;

/// Replaces each run-time value of an operand.
pub fn map<V, W>(operand: &Operand<V>, each: &mut impl FnMut(&V) -> W) -> Operand<W> {
    match operand {
        Operand::Tensor(value) => Operand::Tensor(each(value)),
        Operand::Constant(constant) => Operand::Constant(constant.clone()),
        Operand::Tuple(items) => Operand::Tuple(items.map(|item| map(item, each))),
        Operand::Descriptor(descriptor) => {
            Operand::Descriptor(Box::new(descriptor.map(|part| map(part, each))))
        }
        Operand::Shared(shared) => Operand::Shared(Box::new(shared.map(|part| map(part, each)))),
        Operand::Launch(response) => Operand::Launch(Box::new(response.map(|part| map(part, each)))),
        Operand::Language(path) => Operand::Language(path.clone()),
        Operand::Method(receiver, name) => Operand::Method(Box::new(map(receiver, each)), name.clone()),
        Operand::Function(function) => Operand::Function(*function),
        Operand::Bound(receiver, member) => Operand::Bound(Box::new(map(receiver, each)), *member),
        Operand::Super(object, class) => Operand::Super(Box::new(map(object, each)), *class),
        Operand::ConstexprFunction(object) => Operand::ConstexprFunction(*object),
        Operand::Object(object) => Operand::Object(*object),
        Operand::Callable(object) => Operand::Callable(*object),
        Operand::Range(range) => Operand::Range(Box::new(Range {
            lower: map(&range.lower, each),
            upper: map(&range.upper, each),
            step: map(&range.step, each),
            is_static: range.is_static,
            options: range.options.clone(),
        })),
    }
}

pub(crate) fn of(operand: &IrOperand, function: &Function) -> Template {
    map(operand, &mut |&value| function.ty(value).clone())
}

/// Returns the run-time values of an operand, in order.
pub(crate) fn values<V: Clone>(operand: &Operand<V>) -> Vec<V> {
    let mut values = Vec::new();
    map(operand, &mut |value| values.push(value.clone()));
    values
}

/// Appends the user's name of each run-time value, in order: `xs[0]`, `args.x_ptr`.
pub fn name_parts<V>(operand: &Operand<V>, name: &str, names: &mut Vec<String>) {
    match operand {
        Operand::Tensor(_) => names.push(name.to_owned()),
        Operand::Tuple(items) => {
            for (index, item) in items.iter().enumerate() {
                name_parts(item, &format!("{name}{}", items.accessor(index)), names);
            }
        }
        Operand::Descriptor(descriptor) => {
            for (part, field) in descriptor.parts().iter().zip(descriptor.form.names()) {
                name_parts(part, &format!("{name}.{field}"), names);
            }
        }
        Operand::Shared(shared) => {
            name_parts(&shared.memory, name, names);
            name_parts(&shared.slot, &format!("{name}.slot"), names);
        }
        Operand::Launch(response) => {
            for (part, field) in response.parts().zip(LAUNCH_RESPONSE_PARTS) {
                name_parts(part, &format!("{name}.{field}"), names);
            }
        }
        Operand::Method(receiver, _) | Operand::Bound(receiver, _) | Operand::Super(receiver, _) => {
            name_parts(receiver, name, names);
        }
        Operand::Range(range) => {
            let parts = [(&range.lower, "start"), (&range.upper, "end"), (&range.step, "step")];
            for (part, field) in parts {
                name_parts(part, &format!("{name}.{field}"), names);
            }
        }
        Operand::Constant(_)
        | Operand::Language(_)
        | Operand::Function(_)
        | Operand::ConstexprFunction(_)
        | Operand::Object(_)
        | Operand::Callable(_) => {}
    }
}

/// Replaces each type by the next of `values`, if there are enough.
pub(crate) fn fill(template: &Template, values: &mut impl Iterator<Item = Value>) -> Option<IrOperand> {
    let mut complete = true;
    let filled = map(template, &mut |_| {
        values.next().unwrap_or_else(|| {
            complete = false;
            Value::from_u32(0)
        })
    });
    complete.then_some(filled)
}

/// Returns whether two operands are equal. Ranges are never equal. `tensors` compares run-time
/// values.
pub fn same<V, W>(left: &Operand<V>, right: &Operand<W>, tensors: &impl Fn(&V, &W) -> bool) -> bool {
    match (left, right) {
        (Operand::Tensor(left), Operand::Tensor(right)) => tensors(left, right),
        (Operand::Constant(left), Operand::Constant(right)) => identical(left, right),
        (Operand::Tuple(left), Operand::Tuple(right)) => {
            left.is_alike(right) && left.iter().zip(right).all(|(left, right)| same(left, right, tensors))
        }
        (Operand::Descriptor(left), Operand::Descriptor(right)) => {
            left.form == right.form
                && left.parts().iter().zip(right.parts()).all(|(left, right)| same(left, right, tensors))
        }
        (Operand::Shared(left), Operand::Shared(right)) => {
            left.form == right.form
                && same(&left.memory, &right.memory, tensors)
                && same(&left.slot, &right.slot, tensors)
        }
        (Operand::Launch(left), Operand::Launch(right)) => {
            left.parts().zip(right.parts()).all(|(left, right)| same(left, right, tensors))
        }
        (Operand::Language(left), Operand::Language(right)) => left == right,
        (Operand::Method(left, left_name), Operand::Method(right, right_name)) => {
            left_name == right_name && same(left, right, tensors)
        }
        (Operand::Function(left), Operand::Function(right)) => left == right,
        (Operand::Bound(left, member), Operand::Bound(right, other)) => {
            member == other && same(left, right, tensors)
        }
        (Operand::Super(left, class), Operand::Super(right, other)) => {
            class == other && same(left, right, tensors)
        }
        (Operand::ConstexprFunction(left), Operand::ConstexprFunction(right))
        | (Operand::Object(left), Operand::Object(right))
        | (Operand::Callable(left), Operand::Callable(right)) => left == right,
        _ => false,
    }
}

/// Returns a hash of arguments, equal for those that are the [`same`].
pub(crate) fn hash(arguments: &[Template]) -> u64 {
    let mut hasher = FxHasher::default();
    for argument in arguments {
        hash_with(argument, &mut hasher, &|ty, hasher| ty.hash(hasher));
    }
    hasher.finish()
}

/// Adds an operand to a hash. `tensors` adds a run-time value.
pub fn hash_with<V>(operand: &Operand<V>, hasher: &mut FxHasher, tensors: &impl Fn(&V, &mut FxHasher)) {
    std::mem::discriminant(operand).hash(hasher);
    match operand {
        Operand::Tensor(value) => tensors(value, hasher),
        Operand::Constant(constant) => hash_constant(constant, hasher),
        Operand::Tuple(items) => {
            items.class().hash(hasher);
            items.iter().for_each(|item| hash_with(item, hasher, tensors));
        }
        Operand::Descriptor(descriptor) => {
            descriptor.form.hash(hasher);
            descriptor.parts().iter().for_each(|part| hash_with(part, hasher, tensors));
        }
        Operand::Shared(shared) => {
            shared.form.hash(hasher);
            hash_with(&shared.memory, hasher, tensors);
            hash_with(&shared.slot, hasher, tensors);
        }
        Operand::Launch(response) => {
            response.parts().for_each(|part| hash_with(part, hasher, tensors));
        }
        Operand::Language(path) => path.hash(hasher),
        Operand::Method(receiver, name) => {
            hash_with(receiver, hasher, tensors);
            name.hash(hasher);
        }
        Operand::Function(function) => function.hash(hasher),
        Operand::Bound(receiver, member) => {
            hash_with(receiver, hasher, tensors);
            member.hash(hasher);
        }
        Operand::Super(object, class) => {
            hash_with(object, hasher, tensors);
            class.hash(hasher);
        }
        Operand::ConstexprFunction(object) | Operand::Object(object) | Operand::Callable(object) => {
            object.hash(hasher);
        }
        // Ranges are never equal, so they need no hash.
        Operand::Range(_) => {}
    }
}

fn hash_constant(constant: &Constant, hasher: &mut FxHasher) {
    std::mem::discriminant(constant).hash(hasher);
    match constant {
        Constant::None => {}
        Constant::Bool(value) => value.hash(hasher),
        Constant::Int(value) => value.hash(hasher),
        Constant::Float(value) => value.to_bits().hash(hasher),
        Constant::Str(text) => text.hash(hasher),
        Constant::Type(ty) => ty.hash(hasher),
        Constant::LanguageType(ty) => ty.to_string().hash(hasher),
        Constant::Tuple(items) => items.iter().for_each(|item| hash_constant(item, hasher)),
        Constant::Object(object) => object.hash(hasher),
    }
}

/// Creates a plain tuple, which is a compile-time value if all items are.
pub(crate) fn tuple<V>(items: Vec<Operand<V>>) -> Operand<V> {
    whole(items.into())
}

/// Converts a tuple to an operand, which is a compile-time value if all items are.
pub fn whole<V>(items: Tuple<Operand<V>>) -> Operand<V> {
    if items.iter().all(|item| item.constant().is_some()) {
        let constants = items.iter().filter_map(|item| item.constant().cloned()).collect();
        return Operand::Constant(Constant::Tuple(items.with_items(constants)));
    }
    Operand::Tuple(items)
}

/// Returns the items of a tuple. An instance of a user's class has parts, but no items.
pub(crate) fn items<V: Clone>(operand: &Operand<V>) -> Option<Tuple<Operand<V>>> {
    parts(operand).filter(|items| items.class().is_none())
}

/// Returns the class, if the operand is an instance of a user's class.
pub(crate) fn class_of<V>(operand: &Operand<V>) -> Option<ObjectRef> {
    match operand {
        Operand::Tuple(items) => items.class(),
        Operand::Constant(Constant::Tuple(items)) => items.class(),
        _ => None,
    }
}

/// Returns the items of a tuple, or the fields of an instance of a user's class.
pub(crate) fn parts<V: Clone>(operand: &Operand<V>) -> Option<Tuple<Operand<V>>> {
    match operand {
        Operand::Tuple(items) => Some(items.clone()),
        Operand::Constant(Constant::Tuple(items)) => Some(items.map(|item| Operand::Constant(item.clone()))),
        _ => None,
    }
}

/// Returns a noun for a type or a compile-time value in messages.
pub(crate) fn describe(template: &Template) -> String {
    match template {
        Operand::Tensor(ty) => ty.to_string(),
        Operand::Constant(Constant::None) => "None".into(),
        Operand::Constant(Constant::Tuple(items)) if items.class().is_some() => instance(items.fields()),
        Operand::Tuple(items) if items.class().is_some() => instance(items.fields()),
        Operand::Constant(Constant::Tuple(items)) => format!("a tuple of length {}", items.len()),
        Operand::Constant(constant) => format!("the {} {constant}", constant.type_name()),
        Operand::Tuple(items) => {
            let items: Vec<String> = items.iter().map(describe).collect();
            format!("({})", items.join(", "))
        }
        Operand::Descriptor(descriptor) => match descriptor.base() {
            Operand::Tensor(Type { element: Element::Pointer(pointee), .. }) => {
                format!(
                    "{} of {pointee} and blocks of shape {}",
                    descriptor.describe(),
                    descriptor.form.block_shape
                )
            }
            _ => descriptor.describe().into(),
        },
        Operand::Shared(shared) => shared.describe(),
        Operand::Launch(_) => LAUNCH_RESPONSE.into(),
        Operand::Language(path) => language_name(path),
        Operand::Method(..) | Operand::Bound(..) => "a method".into(),
        Operand::Super(..) => "'super()'".into(),
        Operand::Function(_) | Operand::ConstexprFunction(_) | Operand::Callable(_) => "a function".into(),
        Operand::Object(_) => "an object".into(),
        Operand::Range(_) => "a range".into(),
    }
}

/// Describes an instance of a user's class without the name of the class.
fn instance(fields: Option<&Fields>) -> String {
    format!("an object with the fields {}", fields.map_or(String::new(), |fields| fields.join(", ")))
}

/// Returns advice on two values that should have the same type.
pub(crate) fn how_to_unify(expected: &Template, found: &Template) -> String {
    match (expected, found) {
        (Operand::Tensor(expected), Operand::Tensor(found)) if expected.element != found.element => {
            match expected.dtype() {
                Some(dtype) => format!("convert one of them, for example with `.to(tl.{})`", tl_name(dtype)),
                None => "use pointers to the same type on both paths".into(),
            }
        }
        (Operand::Tensor(_), Operand::Tensor(_)) => {
            "give both the same shape, for example with tl.full or tl.broadcast_to".into()
        }
        _ => "give both a value of one type".into(),
    }
}

/// Returns the name of the element type in `triton.language`; `None` for pointers.
pub(crate) fn tl_name_of(ty: &Type) -> Option<String> {
    ty.dtype().map(tl_name)
}

/// Returns the name of a type in `triton.language`: `float32`.
fn tl_name(dtype: Dtype) -> String {
    let name = dtype.name();
    match name.strip_prefix("fp") {
        Some(rest) => format!("float{rest}"),
        None => name.replace("bf16", "bfloat16"),
    }
}

/// Returns Python's truth value of a compile-time operand.
pub(crate) fn constant_truth(operand: &IrOperand) -> Option<bool> {
    match operand {
        Operand::Tensor(_) => None,
        Operand::Constant(constant) => Some(constant.is_true()),
        Operand::Tuple(items) => Some(!items.is_empty()),
        _ => Some(true),
    }
}

/// Converts a value of the host to an operand.
pub fn from_host<V: Clone>(value: HostValue) -> Operand<V> {
    match value {
        HostValue::Constant(constant) | HostValue::PlainGlobal(constant) => Operand::Constant(constant),
        HostValue::Tuple(items) => whole(items.map(|item| from_host(item.clone()))),
        HostValue::Language(path) => match semantic::language(&path) {
            Some(LanguageItem::Constant(constant)) => Operand::Constant(constant),
            _ => Operand::Language(path),
        },
        HostValue::Function(function) => Operand::Function(function),
        HostValue::ConstexprFunction(object) => Operand::ConstexprFunction(object),
        HostValue::Callable(object) => Operand::Callable(object),
        HostValue::Object(object) => Operand::Object(object),
        // A kernel may read such a value from a global variable, and cannot compute with it.
        HostValue::RunTime(_) => Operand::Language("(a value at run time)".into()),
    }
}
