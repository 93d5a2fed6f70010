//! Defines tuples of compile-time values, operands, arguments or types. A tuple with field names is
//! a `NamedTuple`. A tuple with a class is an instance of a user's class (`triton.aggregate`).

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::descriptor::DescriptorForm;
use crate::reference::ObjectRef;

/// The names of the fields of a `NamedTuple` or an aggregate.
pub type Fields = Arc<[Arc<str>]>;

/// A tuple or list, which derefs to a slice of its items. A tuple that is collected from an
/// iterator has no field names, even if the iterator yields the items of a `NamedTuple`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tuple<T> {
    items: Vec<T>,
    fields: Option<Fields>,
    class: Option<ObjectRef>,
    descriptor: Option<Arc<DescriptorForm>>,
}

impl<T> Tuple<T> {
    /// Creates a tuple of items. The tuple is a `NamedTuple` if `fields` names each item.
    pub fn new(items: Vec<T>, fields: Option<Fields>) -> Self {
        let fields = fields.filter(|fields| fields.len() == items.len());
        Self { items, fields, class: None, descriptor: None }
    }

    /// Creates an instance of a class that is decorated with `triton.aggregate`. The instance has
    /// fields, and is not a sequence.
    pub fn instance(items: Vec<T>, fields: Fields, class: ObjectRef) -> Self {
        Self { items, fields: Some(fields), class: Some(class), descriptor: None }
    }

    /// Creates a tensor descriptor that is an argument of a launch. Its items are the base, the
    /// extents, and all strides but the last. The last stride is 1.
    pub fn of_descriptor(form: Arc<DescriptorForm>, items: Vec<T>) -> Self {
        let names = form.names().take(2 * form.block_shape.len()).map(Into::into);
        let fields = Some(names.collect());
        Self { descriptor: Some(form), ..Self::new(items, fields) }
    }

    /// Returns the class, if the tuple is an instance of an aggregate.
    pub fn class(&self) -> Option<ObjectRef> {
        self.class
    }

    /// Returns a tuple of the same kind with other items.
    pub fn with_items<U>(&self, items: Vec<U>) -> Tuple<U> {
        let (class, descriptor) = (self.class, self.descriptor.clone());
        Tuple { class, descriptor, ..Tuple::new(items, self.fields.clone()) }
    }

    /// Returns a tuple of the same kind with each item mapped.
    pub fn map<U>(&self, each: impl FnMut(&T) -> U) -> Tuple<U> {
        self.with_items(self.items.iter().map(each).collect())
    }

    /// Returns the names of the fields, if the tuple has any.
    pub fn fields(&self) -> Option<&Fields> {
        self.fields.as_ref()
    }

    /// Returns the form of a tensor descriptor; `None` for every other tuple.
    pub fn descriptor(&self) -> Option<&Arc<DescriptorForm>> {
        self.descriptor.as_ref()
    }

    /// Returns whether another tuple has the same length, fields, class and form of descriptor.
    pub fn is_alike<U>(&self, other: &Tuple<U>) -> bool {
        self.len() == other.len()
            && self.fields == other.fields
            && self.class == other.class
            && self.descriptor == other.descriptor
    }

    /// Returns the item of the field with this name; `None` if there is no such field.
    pub fn field(&self, name: &str) -> Option<&T> {
        let place = self.fields.as_ref()?.iter().position(|field| **field == *name)?;
        self.items.get(place)
    }

    /// Returns the accessor of an item: `[0]`, or `.name`.
    pub fn accessor(&self, index: usize) -> String {
        accessor(self.fields.as_ref(), index)
    }

    /// Returns the items.
    pub fn into_vec(self) -> Vec<T> {
        self.items
    }
}

/// Returns the accessor of the item with this index in a tuple with these fields: `[0]`, or
/// `.name`.
pub fn accessor(fields: Option<&Fields>, index: usize) -> String {
    match fields.and_then(|fields| fields.get(index)) {
        Some(field) => format!(".{field}"),
        None => format!("[{index}]"),
    }
}

impl<T> Deref for Tuple<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> DerefMut for Tuple<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<T> From<Vec<T>> for Tuple<T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, fields: None, class: None, descriptor: None }
    }
}

impl<T> FromIterator<T> for Tuple<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Vec::from_iter(items).into()
    }
}

impl<T> IntoIterator for Tuple<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'t, T> IntoIterator for &'t Tuple<T> {
    type Item = &'t T;
    type IntoIter = std::slice::Iter<'t, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}
