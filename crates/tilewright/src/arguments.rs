//! Converts Rust values to arguments and grids.

use half::{bf16, f16};
use tilewright_base::{Code, Diagnostic};
use tilewright_frontend::{Constant, HostValue};
use tilewright_ir::Dtype;
use tilewright_runtime::{Device, Error, Grid, Pointer, Region, Value};

/// Memory of a GPU that a launch may write.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "python-syntax"), expect(dead_code, reason = "only kernels of source use it"))]
pub struct GpuMemory {
    pub(crate) device: Device,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// The arguments of a launch. [`args!`](crate::args) creates them. If a program computes the number
/// or the names of the arguments, it adds them one by one.
///
/// ```
/// use tilewright::{Arguments, Module};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
/// let mut x = [1.5_f32; 100];
/// let n = x.len();
/// let arguments = Arguments::default().argument(&mut x).argument(n).keyword("BLOCK", 128);
/// double.launch(1, arguments)?;
/// assert_eq!(x, [3.0; 100]);
/// # Ok(())
/// # }
/// ```
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
    ///
    /// ```
    /// use tilewright::Arguments;
    ///
    /// let arguments = [2, 3, 5].into_iter().fold(Arguments::default(), Arguments::argument);
    /// assert_eq!(arguments.positional.len(), 3);
    /// ```
    #[must_use]
    pub fn argument(mut self, value: impl IntoArgument<'m>) -> Self {
        self.gpu_memory.extend(value.written_gpu_memory());
        self.positional.push(value.into_argument());
        self
    }

    /// Adds an argument or an option by name.
    ///
    /// ```
    /// let arguments = tilewright::args![5].keyword("num_warps", 8);
    /// assert_eq!(arguments.keywords[0].0, "num_warps");
    /// ```
    #[must_use]
    pub fn keyword(mut self, name: &'static str, value: impl IntoArgument<'m>) -> Self {
        self.gpu_memory.extend(value.written_gpu_memory());
        self.keywords.push((name, value.into_argument()));
        self
    }
}

/// Creates the [`Arguments`](crate::Arguments) of a launch. Positional arguments come first. The
/// names of the other arguments are parameters of the kernel or [options](crate::Options) of the
/// launch.
///
/// ```
/// use tilewright::{Dtype, args};
///
/// let (x, mut out) = (vec![1.0_f32; 1000], vec![0.0_f32; 1000]);
/// let arguments = args![&x, &mut out, 2.5, x.len(), BLOCK = 256, num_warps = 8];
/// assert_eq!((arguments.positional.len(), arguments.keywords.len()), (4, 2));
///
/// // `None`, strings and dtypes for `tl.constexpr` parameters; a tuple, and a list of tensors.
/// let more = args![None::<&[f32]>, (&x, 1, true), vec![&x, &x], mode = "sum", dtype = Dtype::F16];
/// ```
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

/// A Rust type of the elements of a tensor.
///
/// ```
/// use tilewright::{Dtype, Element, bf16};
///
/// fn describe<T: Element>(elements: &[T]) -> String {
///     format!("{} elements of {}", elements.len(), T::DTYPE)
/// }
///
/// assert_eq!(bf16::DTYPE, Dtype::BF16);
/// assert_eq!(describe(&[1.0_f32, 2.0]), "2 elements of fp32");
/// ```
pub trait Element: bytemuck::Pod {
    /// The dtype of these elements in a kernel.
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
///
/// | type | argument |
/// |---|---|
/// | [`ReadTensor`] | a tensor that the kernel reads |
/// | [`WriteTensor`] | a tensor that the kernel may write |
/// | integers, floats, `bool` | a number, or a value of a `tl.constexpr` parameter |
/// | `&str`, [`Dtype`] | a value of a `tl.constexpr` parameter |
/// | `Option` | Python's `None`, or the argument in the option |
/// | tuples of at most six items, `Vec` | a tuple |
///
/// A program can implement the trait for its own type, by conversion to one of these types:
///
/// ```
/// use tilewright::{IntoArgument, Module, args, runtime::Value};
///
/// struct Signal {
///     samples: Vec<f32>,
/// }
///
/// impl<'m> IntoArgument<'m> for &'m mut Signal {
///     fn into_argument(self) -> Value<'m> {
///         (&mut self.samples).into_argument()
///     }
/// }
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let mut signal = Signal { samples: vec![1.5; 64] };
/// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
/// double.launch(1, args![&mut signal, 64, BLOCK = 64])?;
/// assert_eq!(signal.samples[63], 3.0);
/// # Ok(())
/// # }
/// ```
pub trait IntoArgument<'m> {
    /// Converts the value to an argument of a launch.
    fn into_argument(self) -> Value<'m>;

    /// Returns the memory of GPUs that a launch with this argument may write. A [`Tuner`] restores
    /// this memory after each measurement. A type that contains other arguments must therefore
    /// return their memory.
    ///
    /// [`Tuner`]: crate::Tuner
    fn written_gpu_memory(&self) -> Vec<GpuMemory> {
        Vec::new()
    }
}

impl<'m, T: Element> IntoArgument<'m> for &'m mut [T] {
    fn into_argument(self) -> Value<'m> {
        let region = Region::of(bytemuck::cast_slice_mut(self));
        let address = region.address();
        Value::Pointer(Pointer { pointee: T::DTYPE, address, region, device: Device::Cpu })
    }
}

/// A read-only tensor. A store to this tensor is an error.
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

/// A tensor of elements `T` that a kernel reads: a slice, a vector, an array or a
/// [`Buffer`](crate::Buffer). The functions of `include_kernels!` have such parameters.
///
/// ```
/// use tilewright::{Buffer, Device, ReadTensor};
///
/// fn takes_input<'m>(_: impl ReadTensor<'m, f32>) {}
///
/// # fn main() -> Result<(), tilewright::Error> {
/// takes_input(&[1.0, 2.0]);
/// takes_input(&vec![1.0; 100]);
/// takes_input(&Buffer::zeros(Device::Cpu, 100)?);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tensor of `{T}` that a kernel reads",
    note = "pass a `&` slice, vector, array or `Buffer` of `{T}`"
)]
pub trait ReadTensor<'m, T>: IntoArgument<'m> {}

/// A tensor of elements `T` that a kernel may write: a `&mut` slice, vector, array or
/// [`Buffer`](crate::Buffer). The functions of `include_kernels!` have such parameters.
///
/// ```
/// use tilewright::{Buffer, Device, WriteTensor};
///
/// fn takes_output<'m>(_: impl WriteTensor<'m, f32>) {}
///
/// # fn main() -> Result<(), tilewright::Error> {
/// takes_output(&mut vec![0.0; 100]);
/// takes_output(Buffer::zeros(Device::Cpu, 100)?.slice_mut(10..20)?);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tensor of `{T}` that a kernel writes",
    note = "pass a `&mut` slice, vector, array or `Buffer` of `{T}`"
)]
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

/// `None` becomes Python's `None`.
impl<'m, T: IntoArgument<'m>> IntoArgument<'m> for Option<T> {
    fn into_argument(self) -> Value<'m> {
        self.map_or(Value::None, T::into_argument)
    }

    fn written_gpu_memory(&self) -> Vec<GpuMemory> {
        self.iter().flat_map(T::written_gpu_memory).collect()
    }
}

/// A vector of arguments becomes a tuple.
impl<'m, T: IntoArgument<'m>> IntoArgument<'m> for Vec<T> {
    fn into_argument(self) -> Value<'m> {
        Value::Tuple(self.into_iter().map(T::into_argument).collect())
    }

    fn written_gpu_memory(&self) -> Vec<GpuMemory> {
        self.iter().flat_map(T::written_gpu_memory).collect()
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

            fn written_gpu_memory(&self) -> Vec<GpuMemory> {
                #[expect(non_snake_case, reason = "a variable has the name of its type")]
                let ($($name,)*) = self;
                let mut written = Vec::new();
                $(written.extend($name.written_gpu_memory());)*
                written
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

/// A type whose values can be the grid of a launch. A grid is a number of programs, an array of one
/// to three numbers, or a tuple of two or three numbers.
///
/// ```
/// use tilewright::{Code, Error, Grid, IntoGrid};
///
/// /// The tiles of a matrix.
/// struct Tiles {
///     rows: usize,
///     columns: usize,
/// }
///
/// impl IntoGrid for Tiles {
///     fn into_grid(self) -> Result<Grid, Error> {
///         (self.rows.div_ceil(64), self.columns.div_ceil(128)).into_grid()
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// assert_eq!(Tiles { rows: 100, columns: 100 }.into_grid()?.extents(), [2, 1, 1]);
/// assert_eq!([4, 3, 2].into_grid()?.extents(), [4, 3, 2]);
/// assert_eq!((-1).into_grid().unwrap_err().code(), Some(Code::InvalidGrid));
/// # Ok(())
/// # }
/// ```
pub trait IntoGrid {
    /// Returns the checked grid.
    ///
    /// # Errors
    /// If the number of extents is not 1, 2 or 3, or if an extent is not between 0 and 2^31 - 1.
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

/// Returns the constant that the argument for the option `name` contains. Fails if the argument is
/// not a constant. For example, a tensor or a tuple is not a constant.
#[cfg_attr(not(feature = "python-syntax"), expect(dead_code, reason = "only kernels of source use it"))]
pub(crate) fn to_constant(name: &str, value: &Value<'_>) -> Result<Constant, Error> {
    if let Some(HostValue::Constant(constant)) = value.to_host_value() {
        return Ok(constant);
    }
    let message = format!("the launch option {name} is {}", value.describe());
    Err(Diagnostic::new(Code::InvalidOption, message).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tensor on a GPU, which contains only its address.
    struct OnGpu(u64);

    impl<'m> IntoArgument<'m> for OnGpu {
        fn into_argument(self) -> Value<'m> {
            self.0.into()
        }

        fn written_gpu_memory(&self) -> Vec<GpuMemory> {
            vec![GpuMemory { device: Device::Cuda(0), address: self.0, bytes: 4 }]
        }
    }

    #[test]
    fn aggregates_have_the_memory_of_their_items() {
        let nested = (Some(OnGpu(3)), None::<OnGpu>, vec![OnGpu(4), OnGpu(5)]);
        let arguments = crate::args![OnGpu(1), (2, OnGpu(2)), nested, last = Some(OnGpu(6)), n = 7];
        let addresses: Vec<u64> = arguments.gpu_memory.iter().map(|memory| memory.address).collect();
        assert_eq!(addresses, [1, 2, 3, 4, 5, 6]);
    }
}
