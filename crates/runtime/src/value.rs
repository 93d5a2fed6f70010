//! Defines the arguments of a launch, to which a caller converts its own objects.

use tilewright_base::memory::Region;
use tilewright_frontend::{Constant, HostValue, Tuple};
use tilewright_ir::{Dtype, Literal};

use crate::Device;

/// An argument of a launch.
#[derive(Clone, Debug)]
pub enum Value<'m> {
    /// A tensor.
    Pointer(Pointer<'m>),
    /// A Python int; its value selects `int32`, `int64` or `uint64`.
    Int(i128),
    /// A Python float: `fp32`, unless the parameter is annotated.
    Float(f64),
    /// A Python bool.
    Bool(bool),
    /// A number that has a type: a numpy scalar.
    Scalar(Literal),
    /// `None`: a compile-time value.
    None,
    /// A compile-time value: a string, a dtype, a function, or a value wrapped in `tl.constexpr`. A
    /// parameter that is not a constexpr accepts strings and dtypes only if `is_explicit` is true.
    Constant {
        /// The value.
        value: HostValue,
        /// True if the value was wrapped in `tl.constexpr`, or is a `@jit` function.
        is_explicit: bool,
    },
    /// A tuple or list: each item is a separate argument, unless the parameter is a constexpr.
    Tuple(Tuple<Value<'m>>),
}

/// A pointer argument.
#[derive(Clone, Copy, Debug)]
pub struct Pointer<'m> {
    /// The type of the elements.
    pub pointee: Dtype,
    /// The address of the first element. For a view of a tensor, this is the element `[0, …]` of
    /// the view.
    pub address: u64,
    /// The whole allocation. Accesses through this pointer must stay inside.
    pub region: Region<'m>,
    /// The device that has the memory.
    pub device: Device,
}

impl Pointer<'_> {
    /// Returns whether `device` cannot read the memory. Every device accepts an empty tensor of the
    /// CPU with a null pointer, as in CUDA, because it has no memory. This exception does not apply
    /// to tensors on a GPU: only the start of their region is known, so the region may look empty.
    #[inline]
    pub fn is_elsewhere(&self, device: Device) -> bool {
        let has_none = self.device == Device::Cpu && self.address == 0 && self.region.is_empty();
        self.device != device.memory() && !has_none
    }
}

impl Value<'_> {
    /// Creates a string, which is a compile-time value.
    pub fn from_text(text: &str) -> Self {
        Value::Constant { value: HostValue::Constant(Constant::Str(text.into())), is_explicit: false }
    }

    /// Returns the GPU of the first tensor in the value that is on a GPU; `None` if there is no
    /// such tensor.
    pub fn gpu(&self) -> Option<Device> {
        match self {
            Value::Pointer(pointer) if pointer.device != Device::Cpu => Some(pointer.device),
            Value::Tuple(items) => items.iter().find_map(Value::gpu),
            _ => None,
        }
    }

    /// Returns the value as a compile-time value; `None` if it is or contains a tensor.
    pub fn to_host_value(&self) -> Option<HostValue> {
        Some(match self {
            Value::Pointer(_) => return None,
            Value::Int(value) => HostValue::Constant(Constant::Int(*value)),
            Value::Float(value) => HostValue::Constant(Constant::Float(*value)),
            Value::Bool(value) => HostValue::Constant(Constant::Bool(*value)),
            Value::Scalar(literal) => HostValue::Constant(constant_of(*literal)),
            Value::None => HostValue::Constant(Constant::None),
            Value::Constant { value, .. } => value.clone(),
            Value::Tuple(tuple) => {
                let items: Option<Vec<_>> = tuple.iter().map(Value::to_host_value).collect();
                HostValue::Tuple(tuple.with_items(items?))
            }
        })
    }

    /// Returns the description of the value in messages: `the int 3`, `a tensor of fp32`.
    pub fn describe(&self) -> String {
        match self {
            Value::Pointer(pointer) => format!("a tensor of {}", pointer.pointee),
            Value::Int(value) => format!("the int {value}"),
            Value::Float(value) => format!("the float {value:?}"),
            Value::Bool(true) => "the bool True".into(),
            Value::Bool(false) => "the bool False".into(),
            Value::Scalar(literal) => format!("a number of type {}", literal.dtype),
            Value::None => "None".into(),
            Value::Constant { value: HostValue::Constant(Constant::Str(text)), .. } => {
                format!("the string '{text}'")
            }
            Value::Constant { value: HostValue::Constant(constant), .. } => {
                format!("{constant}, a compile-time value of type {}", constant.type_name())
            }
            Value::Constant { value: HostValue::Function(_), .. } => "a @jit function".into(),
            Value::Constant { .. } => "a compile-time value".into(),
            Value::Tuple(items) => match items.descriptor() {
                Some(form) => format!("a tensor descriptor with blocks of shape {}", form.block_shape),
                None => "a tuple".into(),
            },
        }
    }
}

/// Converts a number to a constant of Python.
fn constant_of(literal: Literal) -> Constant {
    match (literal.dtype, literal.as_int(), literal.as_float()) {
        (Dtype::I1, _, _) => Constant::Bool(literal.bits != 0),
        (_, Some(value), _) => Constant::Int(value),
        (_, _, Some(value)) => Constant::Float(value),
        // Only 8-bit floating-point formats remain, which no numpy scalar has.
        (..) => Constant::None,
    }
}

macro_rules! from_numbers {
    ($($ty:ty => $variant:ident;)*) => {$(
        impl From<$ty> for Value<'_> {
            fn from(value: $ty) -> Self {
                Value::$variant(value.into())
            }
        }
    )*};
}
from_numbers! {
    i8 => Int; i16 => Int; i32 => Int; i64 => Int; u8 => Int; u16 => Int; u32 => Int; u64 => Int; i128 => Int;
    f32 => Float; f64 => Float; bool => Bool;
}

impl From<usize> for Value<'_> {
    fn from(value: usize) -> Self {
        Value::Int(value as i128)
    }
}

impl<'m> From<Pointer<'m>> for Value<'m> {
    fn from(pointer: Pointer<'m>) -> Self {
        Value::Pointer(pointer)
    }
}
