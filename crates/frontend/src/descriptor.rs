//! Block pointers and tensor descriptors: compile-time structures of a pointer, extents, strides
//! and offsets. The IR has neither: an access through one is an access through a tile of pointers,
//! with a mask for the checked axes.

use std::sync::Arc;

use tilewright_ir::Shape;

/// A block pointer or a tensor descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DescriptorKind {
    /// A result of `tl.make_block_ptr`: it has a position in the tensor, and an access names the
    /// checked axes.
    BlockPointer,
    /// A result of `tl.make_tensor_descriptor`: an access states where the block begins, and every
    /// axis is checked.
    Tensor,
}

/// The value of a load outside of the tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Padding {
    /// 0.
    #[default]
    Zero,
    /// NaN.
    Nan,
}

/// The compile-time properties of a block pointer or descriptor, without the type of the elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DescriptorForm {
    /// The kind.
    pub kind: DescriptorKind,
    /// The shape of a block.
    pub block_shape: Shape,
    /// The value of a load through a tensor descriptor outside of the tensor.
    pub padding: Padding,
}

impl DescriptorForm {
    /// Returns the names of the parts, in their order: `base`, `shape[0]`, …
    pub fn names(&self) -> impl Iterator<Item = String> {
        let axes = 0..self.block_shape.len();
        let offsets = if self.kind == DescriptorKind::BlockPointer { axes.clone() } else { 0..0 };
        let all = |name: &'static str, axes: std::ops::Range<usize>| {
            axes.map(move |axis| format!("{name}[{axis}]"))
        };
        std::iter::once("base".to_owned())
            .chain(all("shape", axes.clone()))
            .chain(all("strides", axes))
            .chain(all("offsets", offsets))
    }
}

/// A block pointer or tensor descriptor, of parts that are values or compile-time integers. The
/// base of a block pointer already points to the first element of the block, so that a loop only
/// moves a pointer; the offsets are needed only for the checks.
#[derive(Clone, Debug)]
pub struct Descriptor<T> {
    /// The compile-time properties.
    pub form: Arc<DescriptorForm>,
    /// A pointer; the extents of the tensor, its strides in elements, and the offsets of a block
    /// pointer: one an axis, each an integer of any type.
    parts: Vec<T>,
}

impl<T> Descriptor<T> {
    /// Makes one of these parts, in the order of [`DescriptorForm::names`]; `None` if there are
    /// more or fewer.
    pub fn new(form: Arc<DescriptorForm>, parts: Vec<T>) -> Option<Self> {
        (parts.len() == form.names().count()).then_some(Self { form, parts })
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.form.block_shape.len()
    }

    /// Returns the pointer.
    pub fn base(&self) -> &T {
        &self.parts[0]
    }

    /// Returns the extents of the tensor.
    pub fn shape(&self) -> &[T] {
        &self.parts[1..=self.rank()]
    }

    /// Returns the strides of the tensor.
    pub fn strides(&self) -> &[T] {
        &self.parts[1 + self.rank()..][..self.rank()]
    }

    /// Returns the offsets of a block pointer; a descriptor has none.
    pub fn offsets(&self) -> &[T] {
        &self.parts[1 + 2 * self.rank()..]
    }

    /// Returns all parts, in order.
    pub fn parts(&self) -> &[T] {
        &self.parts
    }

    /// Maps each part; the form stays.
    pub fn map<U>(&self, each: impl FnMut(&T) -> U) -> Descriptor<U> {
        Descriptor { form: self.form.clone(), parts: self.parts.iter().map(each).collect() }
    }

    /// Maps each part, up to the first error; the form stays.
    pub fn try_map<U, E>(&self, each: impl FnMut(&T) -> Result<U, E>) -> Result<Descriptor<U>, E> {
        let parts = self.parts.iter().map(each).collect::<Result<_, E>>()?;
        Ok(Descriptor { form: self.form.clone(), parts })
    }

    /// Returns the descriptor at another position of the tensor: another pointer and offsets.
    #[must_use]
    pub fn moved(mut self, base: T, offsets: impl IntoIterator<Item = T>) -> Self {
        self.parts[0] = base;
        let first = 1 + 2 * self.rank();
        for (part, offset) in self.parts[first..].iter_mut().zip(offsets) {
            *part = offset;
        }
        self
    }

    /// Returns the noun for messages.
    pub fn describe(&self) -> &'static str {
        match self.form.kind {
            DescriptorKind::BlockPointer => "a block pointer",
            DescriptorKind::Tensor => "a tensor descriptor",
        }
    }
}
