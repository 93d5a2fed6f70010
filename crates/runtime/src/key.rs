//! Defines the key of a compiled variant in the cache of its kernel.
//!
//! A key is a sequence of words. Launches that need different code have different keys.

use std::borrow::Borrow;

use smallvec::SmallVec;
use tilewright_frontend::{Constant, DescriptorForm, HostValue, Padding, Tuple};
use tilewright_ir::{Element, Type};

/// A sequence of words that encodes values without ambiguity. A key of up to 32 words needs no
/// allocation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Key(SmallVec<[u64; 32]>);

impl Borrow<[u64]> for Key {
    fn borrow(&self) -> &[u64] {
        &self.0
    }
}

/// The kind of a compile-time value, in the low byte of its first word. Equal values of Python
/// (`1`, `1.0`, `True`) have different kinds, because they have different types in a kernel.
#[derive(Clone, Copy)]
enum Tag {
    None = 1,
    Bool,
    Int,
    Float,
    Str,
    Type,
    LanguageType,
    Tuple,
    NamedTuple,
    Descriptor,
    Object,
    Language,
    Function,
    ConstexprFunction,
    PlainGlobal,
    Callable,
    Other,
    RunTime,
}

impl Key {
    #[inline]
    pub(crate) fn push(&mut self, word: u64) {
        self.0.push(word);
    }

    pub(crate) fn push_host_value(&mut self, value: &HostValue) {
        match value {
            HostValue::Constant(constant) => self.push_constant(constant),
            HostValue::Tuple(items) => {
                self.push_tuple(items);
                for item in items {
                    self.push_host_value(item);
                }
            }
            HostValue::Language(path) => self.push_text(Tag::Language, path),
            HostValue::Function(function) => self.push_tag(Tag::Function, function.0.into()),
            HostValue::ConstexprFunction(object) => self.push_tag(Tag::ConstexprFunction, object.0.into()),
            HostValue::PlainGlobal(constant) => {
                self.push_tag(Tag::PlainGlobal, 0);
                self.push_constant(constant);
            }
            HostValue::Callable(object) => self.push_tag(Tag::Callable, object.0.into()),
            HostValue::Object(object) => self.push_tag(Tag::Other, object.0.into()),
            // A run-time value occurs here only during the call of a compile-time function.
            HostValue::RunTime(value) => self.push_tag(Tag::RunTime, value.id),
        }
    }

    /// Adds a compile-time value.
    pub(crate) fn push_constant(&mut self, constant: &Constant) {
        match constant {
            Constant::None => self.push_tag(Tag::None, 0),
            Constant::Bool(value) => self.push_tag(Tag::Bool, u64::from(*value)),
            Constant::Int(value) => {
                let is_wide = i64::try_from(*value).is_err();
                self.push_tag(Tag::Int, u64::from(is_wide));
                self.push(*value as u64);
                if is_wide {
                    self.push((*value >> 64) as u64);
                }
            }
            Constant::Float(value) => {
                self.push_tag(Tag::Float, 0);
                self.push(value.to_bits());
            }
            Constant::Str(text) => self.push_text(Tag::Str, text),
            Constant::Type(ty) => self.push_type(ty),
            Constant::LanguageType(ty) => self.push_text(Tag::LanguageType, &ty.to_string()),
            Constant::Tuple(items) => {
                self.push_tuple(items);
                for item in items {
                    self.push_constant(item);
                }
            }
            Constant::Object(object) => self.push_tag(Tag::Object, object.0.into()),
        }
    }

    /// Adds the shape of the blocks and the padding of a tensor descriptor, but not its items.
    pub(crate) fn push_descriptor(&mut self, form: &DescriptorForm) {
        let padding = u64::from(form.padding == Padding::Nan);
        self.push_tag(Tag::Descriptor, form.block_shape.len() as u64 | padding << 8);
        form.block_shape.iter().for_each(|&extent| self.push(extent.into()));
        if let Some(layout) = &form.layout {
            self.push_text(Tag::Str, layout);
        }
        if let Some(window) = &form.window {
            self.push_text(Tag::Str, &window.to_string());
        }
    }

    /// Adds the class, the length and the field names of a tuple, but not its items.
    pub(crate) fn push_tuple<T>(&mut self, items: &Tuple<T>) {
        if let Some(class) = items.class() {
            self.push_tag(Tag::Object, class.0.into());
        }
        match items.fields() {
            None => self.push_tag(Tag::Tuple, items.len() as u64),
            Some(fields) => {
                self.push_tag(Tag::NamedTuple, items.len() as u64);
                fields.iter().for_each(|field| self.push_text(Tag::Str, field));
            }
        }
    }

    fn push_tag(&mut self, tag: Tag, detail: u64) {
        self.push(tag as u64 | detail << 8);
    }

    fn push_type(&mut self, ty: &Type) {
        let element = match ty.element {
            Element::Value(dtype) => dtype as u64,
            Element::Pointer(dtype) => dtype as u64 | 1 << 8,
        };
        self.push_tag(Tag::Type, element | (ty.rank() as u64) << 16);
        ty.shape.iter().for_each(|&extent| self.push(extent.into()));
    }

    fn push_text(&mut self, tag: Tag, text: &str) {
        self.push_tag(tag, text.len() as u64);
        for chunk in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.push(u64::from_le_bytes(word));
        }
    }
}

/// Returns whether code that was compiled for one value is correct for the other. Unlike `==`, this
/// function distinguishes `0.0` from `-0.0`, and a NaN equals itself.
pub fn is_same_value(one: &HostValue, other: &HostValue) -> bool {
    let key = |value: &HostValue| {
        let mut key = Key::default();
        key.push_host_value(value);
        key
    };
    key(one) == key(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_ir::Dtype;

    #[test]
    fn different_values_have_different_keys() {
        let values = [
            Constant::None,
            Constant::Bool(true),
            Constant::Int(1),
            Constant::Int(-1),
            Constant::Int(1 << 64),
            Constant::Int(1 << 65),
            Constant::Float(1.0),
            Constant::Float(-0.0),
            Constant::Float(0.0),
            Constant::Str("".into()),
            Constant::Str("a".into()),
            Constant::Str("a\0".into()),
            Constant::Str("a longer text".into()),
            Constant::Tuple(vec![].into()),
            Constant::Tuple(vec![Constant::Int(1)].into()),
            Constant::Tuple(Tuple::new(vec![Constant::Int(1)], Some(["a".into()].into()))),
            Constant::Tuple(Tuple::new(vec![Constant::Int(1)], Some(["b".into()].into()))),
            Constant::Tuple(vec![Constant::Tuple(vec![Constant::Int(1)].into())].into()),
            Constant::dtype(Dtype::F32),
            Constant::dtype(Dtype::F16),
            Constant::Type(Type::pointer(Dtype::F32)),
            Constant::Type(Type::tile(Dtype::F32, [1])),
        ];
        let keys: Vec<Key> = values
            .iter()
            .map(|value| {
                let mut key = Key::default();
                key.push_constant(value);
                key
            })
            .collect();
        for (index, key) in keys.iter().enumerate() {
            for other in &keys[..index] {
                assert_ne!(key, other);
            }
        }
    }
}
