//! Defines block pointers and tensor descriptors: a pointer, extents and strides.
//!
//! They exist only in the frontend. Lowering turns an access to a block into an access through a
//! tile of pointers, with a mask for the checked axes.

use std::sync::Arc;

use tilewright_ir::{PixelWindow, Shape};

/// A block pointer or a tensor descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DescriptorKind {
    /// The result of `tl.make_block_ptr`. It contains the offsets of its block, and each access
    /// names the axes whose bounds it checks.
    BlockPointer,
    /// The result of `tl.make_tensor_descriptor`, or a descriptor that is an argument of the
    /// launch. Each access states the offsets of its block, and checks every axis.
    Tensor,
}

/// The value that a load returns for elements outside of the tensor.
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
    /// The kind: block pointer or tensor descriptor.
    pub kind: DescriptorKind,
    /// The shape of a block.
    pub block_shape: Shape,
    /// The value that a load through a tensor descriptor returns outside of the tensor.
    pub padding: Padding,
    /// The layout of a block in shared memory, as the expression that creates the layout (Gluon).
    pub layout: Option<Arc<str>>,
    /// The window of an im2col descriptor (Gluon). The blocks of such a descriptor are pixels with
    /// some of their channels.
    pub window: Option<Arc<PixelWindow>>,
}

impl DescriptorForm {
    /// Returns the number of axes of the tensor.
    pub fn rank(&self) -> usize {
        self.window.as_ref().map_or(self.block_shape.len(), |window| window.steps.len())
    }

    /// Returns the names of the parts of a [`Descriptor`], in order: `base`, `shape[0]`, ……
    pub fn names(&self) -> impl Iterator<Item = String> {
        let axes = 0..self.rank();
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

/// A block pointer or tensor descriptor. `T` is the type of its parts, which are values or
/// compile-time integers.
///
/// The base of a block pointer points to the first element of the block. Only checks of bounds use
/// the offsets. So a loop that advances a block pointer without checks carries only the base.
#[derive(Clone, Debug)]
pub struct Descriptor<T> {
    /// The compile-time properties.
    pub form: Arc<DescriptorForm>,
    /// The base pointer, the extents of the tensor, its strides in elements, and, in a block
    /// pointer, the offsets of the block in elements. Extents, strides and offsets have one integer
    /// of any type for each axis.
    parts: Vec<T>,
}

impl<T> Descriptor<T> {
    /// Creates a descriptor from its parts, in the order of [`DescriptorForm::names`]. Returns
    /// `None` if their number is wrong.
    pub fn new(form: Arc<DescriptorForm>, parts: Vec<T>) -> Option<Self> {
        (parts.len() == form.names().count()).then_some(Self { form, parts })
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.form.rank()
    }

    /// Returns the base pointer.
    pub fn base(&self) -> &T {
        &self.parts[0]
    }

    /// Returns the extents of the tensor, one for each axis.
    pub fn shape(&self) -> &[T] {
        &self.parts[1..=self.rank()]
    }

    /// Returns the strides of the tensor in elements, one for each axis.
    pub fn strides(&self) -> &[T] {
        &self.parts[1 + self.rank()..][..self.rank()]
    }

    /// Returns the offsets of a block pointer; a tensor descriptor has none.
    pub fn offsets(&self) -> &[T] {
        &self.parts[1 + 2 * self.rank()..]
    }

    /// Returns all parts, in order.
    pub fn parts(&self) -> &[T] {
        &self.parts
    }

    /// Maps each part, and keeps the form.
    pub fn map<U>(&self, each: impl FnMut(&T) -> U) -> Descriptor<U> {
        Descriptor { form: self.form.clone(), parts: self.parts.iter().map(each).collect() }
    }

    /// Maps each part up to the first error, and keeps the form.
    pub fn try_map<U, E>(&self, each: impl FnMut(&T) -> Result<U, E>) -> Result<Descriptor<U>, E> {
        let parts = self.parts.iter().map(each).collect::<Result<_, E>>()?;
        Ok(Descriptor { form: self.form.clone(), parts })
    }

    /// Returns a block pointer to another block of the tensor, with this base and these offsets.
    #[must_use]
    pub fn moved(mut self, base: T, offsets: impl IntoIterator<Item = T>) -> Self {
        self.parts[0] = base;
        let first = 1 + 2 * self.rank();
        for (part, offset) in self.parts[first..].iter_mut().zip(offsets) {
            *part = offset;
        }
        self
    }

    /// Returns a noun for messages.
    pub fn describe(&self) -> &'static str {
        match self.form.kind {
            DescriptorKind::BlockPointer => "a block pointer",
            DescriptorKind::Tensor => "a tensor descriptor",
        }
    }
}
