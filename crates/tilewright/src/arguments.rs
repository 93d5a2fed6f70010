//! Converts values of Rust's types to arguments and grids.

use half::{bf16, f16};
use tilewright_base::{Code, Diagnostic};
use tilewright_frontend::{Constant, HostValue};
use tilewright_ir::Dtype;
use tilewright_runtime::{Device, Error, Grid, Pointer, Region, Value};

/// Memory of a GPU that a launch may write.
#[derive(Clone, Copy, Debug)]
pub struct GpuMemory {
    pub(crate) device: Device,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// The arguments of a launch, which [`args!`](crate::args) makes.
#[derive(Clone, Debug, Default)]
pub struct Arguments<'m> {
    /// The positional arguments.
    pub positional: Vec<Value<'m>>,
    /// The keyword arguments.
    pub keywords: Vec<(&'static str, Value<'m>)>,
    /// The memory of GPUs that a launch may write, for tuners.
    pub(crate) gpu_memory: Vec<GpuMemory>,
}

impl<'m> Arguments<'m> {
    /// Adds an argument by position.
    #[must_use]
    pub fn argument(mut self, value: impl IntoArgument<'m>) -> Self {
        self.gpu_memory.extend(value.written_gpu_memory());
        self.positional.push(value.into_argument());
        self
    }

    /// Adds an argument or option by name.
    #[must_use]
    pub fn keyword(mut self, name: &'static str, value: impl IntoArgument<'m>) -> Self {
        self.gpu_memory.extend(value.written_gpu_memory());
        self.keywords.push((name, value.into_argument()));
        self
    }
}

/// The arguments of a launch: `args![&x, &mut out, n, BLOCK = 1024, num_warps = 8]`.
#[macro_export]
macro_rules! args {
    (@add $built:expr $(,)?) => { $built };
    (@add $built:expr, $name:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::args!(@add $built.keyword(stringify!($name), $value) $(, $($rest)*)?)
    };
    (@add $built:expr, $value:expr $(, $($rest:tt)*)?) => {
        $crate::args!(@add $built.argument($value) $(, $($rest)*)?)
    };
    ($($rest:tt)*) => { $crate::args!(@add $crate::Arguments::default(), $($rest)*) };
}

/// A type that the elements of a tensor can have.
pub trait Element: bytemuck::Pod {
    /// The dtype of the elements in a kernel.
    const DTYPE: Dtype;
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident,)*) => {$(
        impl Element for $ty {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )*};
}
elements! {
    f16 => F16, bf16 => BF16, f32 => F32, f64 => F64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64,
}

/// A type whose values can be arguments of a kernel.
pub trait IntoArgument<'m> {
    /// Converts the value to an argument of a launch.
    fn into_argument(self) -> Value<'m>;

    /// Returns the memory of a GPU that a launch with this argument may write, if there is any.
    fn written_gpu_memory(&self) -> Option<GpuMemory> {
        None
    }
}

impl<'m, T: Element> IntoArgument<'m> for &'m mut [T] {
    fn into_argument(self) -> Value<'m> {
        let region = Region::of(bytemuck::cast_slice_mut(self));
        let address = region.address();
        Value::Pointer(Pointer { pointee: T::DTYPE, address, region, device: Device::Cpu })
    }
}

/// A read-only tensor: a store to it is an error.
impl<'m, T: Element> IntoArgument<'m> for &'m [T] {
    fn into_argument(self) -> Value<'m> {
        let region = Region::read_only(bytemuck::cast_slice(self));
        let address = region.address();
        Value::Pointer(Pointer { pointee: T::DTYPE, address, region, device: Device::Cpu })
    }
}

impl<'m, T: Element> IntoArgument<'m> for &'m Vec<T> {
    fn into_argument(self) -> Value<'m> {
        self.as_slice().into_argument()
    }
}

impl<'m, T: Element> IntoArgument<'m> for &'m mut Vec<T> {
    fn into_argument(self) -> Value<'m> {
        self.as_mut_slice().into_argument()
    }
}

impl<'m, T: Element, const N: usize> IntoArgument<'m> for &'m [T; N] {
    fn into_argument(self) -> Value<'m> {
        self.as_slice().into_argument()
    }
}

impl<'m, T: Element, const N: usize> IntoArgument<'m> for &'m mut [T; N] {
    fn into_argument(self) -> Value<'m> {
        self.as_mut_slice().into_argument()
    }
}

/// A tensor of elements `T` that a kernel reads: a slice, a vector, an array or a [`Buffer`](crate::Buffer).
pub trait ReadTensor<'m, T>: IntoArgument<'m> {}

/// A tensor of elements `T` that a kernel may write: a `&mut` slice, vector, array or
/// [`Buffer`](crate::Buffer).
pub trait WriteTensor<'m, T>: IntoArgument<'m> {}

impl<'m, T: Element> ReadTensor<'m, T> for &'m [T] {}
impl<'m, T: Element> ReadTensor<'m, T> for &'m Vec<T> {}
impl<'m, T: Element, const N: usize> ReadTensor<'m, T> for &'m [T; N] {}
impl<'m, T: Element> WriteTensor<'m, T> for &'m mut [T] {}
impl<'m, T: Element> WriteTensor<'m, T> for &'m mut Vec<T> {}
impl<'m, T: Element, const N: usize> WriteTensor<'m, T> for &'m mut [T; N] {}

macro_rules! plain_arguments {
    ($($ty:ty)*) => {$(
        impl<'m> IntoArgument<'m> for $ty {
            fn into_argument(self) -> Value<'m> {
                self.into()
            }
        }
    )*};
}
plain_arguments!(i8 i16 i32 i64 i128 u8 u16 u32 u64 usize f32 f64 bool);

/// A string, for a `tl.constexpr` parameter.
impl<'m> IntoArgument<'m> for &str {
    fn into_argument(self) -> Value<'m> {
        constant(Constant::Str(self.into()))
    }
}

/// A dtype, for a `tl.constexpr` parameter.
impl<'m> IntoArgument<'m> for Dtype {
    fn into_argument(self) -> Value<'m> {
        constant(Constant::dtype(self))
    }
}

/// `None` is Python's `None`.
impl<'m, T: IntoArgument<'m>> IntoArgument<'m> for Option<T> {
    fn into_argument(self) -> Value<'m> {
        self.map_or(Value::None, T::into_argument)
    }
}

/// A vector of arguments becomes a tuple.
impl<'m, T: IntoArgument<'m>> IntoArgument<'m> for Vec<T> {
    fn into_argument(self) -> Value<'m> {
        Value::Tuple(self.into_iter().map(T::into_argument).collect())
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {$(
        impl<'m, $($name: IntoArgument<'m>),*> IntoArgument<'m> for ($($name,)*) {
            fn into_argument(self) -> Value<'m> {
                #[expect(non_snake_case, reason = "a variable has the name of its type")]
                let ($($name,)*) = self;
                Value::Tuple(vec![$($name.into_argument()),*].into())
            }
        }
    )*};
}
tuples! { A; A B; A B C; A B C D; A B C D E; A B C D E F; }

impl<'m> IntoArgument<'m> for () {
    fn into_argument(self) -> Value<'m> {
        Value::Tuple(Vec::new().into())
    }
}

impl<'m> IntoArgument<'m> for Value<'m> {
    fn into_argument(self) -> Value<'m> {
        self
    }
}

fn constant<'m>(constant: Constant) -> Value<'m> {
    Value::Constant { value: HostValue::Constant(constant), is_explicit: false }
}

/// A type whose values can be the grid of a launch: a number of programs, an array of one to three
/// numbers, or a tuple of two or three numbers.
pub trait IntoGrid {
    /// Returns the checked grid.
    fn into_grid(self) -> Result<Grid, Error>;
}

impl IntoGrid for Grid {
    fn into_grid(self) -> Result<Grid, Error> {
        Ok(self)
    }
}

macro_rules! grids {
    ($($ty:ty)*) => {$(
        impl IntoGrid for $ty {
            fn into_grid(self) -> Result<Grid, Error> {
                Grid::new(&[self as i128])
            }
        }
        impl<const N: usize> IntoGrid for [$ty; N] {
            fn into_grid(self) -> Result<Grid, Error> {
                Grid::new(&self.map(|extent| extent as i128))
            }
        }
        impl IntoGrid for ($ty, $ty) {
            fn into_grid(self) -> Result<Grid, Error> {
                [self.0, self.1].into_grid()
            }
        }
        impl IntoGrid for ($ty, $ty, $ty) {
            fn into_grid(self) -> Result<Grid, Error> {
                [self.0, self.1, self.2].into_grid()
            }
        }
    )*};
}
grids!(i32 i64 u32 u64 usize);

/// Returns the constant in an argument that sets the option `name`. Fails if the argument is
/// something else, such as a tensor or a tuple.
pub(crate) fn to_constant(name: &str, value: &Value<'_>) -> Result<Constant, Error> {
    if let Some(HostValue::Constant(constant)) = value.to_host_value() {
        return Ok(constant);
    }
    let message = format!("the launch option {name} is {}", value.describe());
    Err(Diagnostic::new(Code::InvalidOption, message).into())
}
