//! Defines [`Buffer`], the memory of a tensor on any device.

use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};

use bytemuck::{Pod, Zeroable};
use tilewright_base::{Code, Diagnostic};
use tilewright_runtime::{Device, DeviceBuffer, Error, Pointer, Region, Value};

use crate::arguments::GpuMemory;
use crate::{Element, IntoArgument, ReadTensor, WriteTensor};

/// The elements of a tensor on a device. A buffer for a GPU is in the memory of the GPU. A buffer
/// for the CPU or the simulator is in main memory. Dropping the buffer frees the memory.
///
/// ```
/// use tilewright::{Buffer, Device};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let mut buffer = Buffer::from_slice(Device::Cpu, &[1.0_f32, 2.0, 3.0])?;
/// buffer.slice_mut(1..)?.copy_from_slice(&[7.0, 8.0])?;
/// assert_eq!(buffer.to_vec()?, [1.0, 7.0, 8.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Buffer<T> {
    memory: Memory,
    device: Device,
    len: usize,
    elements: PhantomData<T>,
}

#[derive(Debug)]
enum Memory {
    Host(Vec<CacheLine>),
    Gpu(DeviceBuffer),
}

/// The unit of allocation in main memory. Its alignment is sufficient for every vector instruction.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

impl<T: Element> Buffer<T> {
    /// Allocates `len` elements, which are all 0.
    ///
    /// ```
    /// use tilewright::{Buffer, Device};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let counts = Buffer::<i32>::zeros(Device::Sim(90), 1000)?;
    /// assert_eq!((counts.len(), counts.device()), (1000, Device::Sim(90)));
    /// assert_eq!(counts.to_vec()?, [0; 1000]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - This machine does not have the device.
    /// - The GPU has too little memory, or the number of bytes exceeds a `usize`.
    /// - The driver reports an error, such as the fault of an earlier kernel.
    pub fn zeros(device: Device, len: usize) -> Result<Self, Error> {
        let mut buffer = Self::allocate(device, len)?;
        if let Memory::Gpu(memory) = &mut buffer.memory {
            memory.fill(0)?;
        }
        Ok(buffer)
    }

    /// Allocates a buffer with a copy of `elements`.
    ///
    /// ```
    /// use tilewright::{Buffer, Device, f16};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let weights = Buffer::from_slice(Device::Cpu, &[f16::ONE; 256])?;
    /// assert!(!weights.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`zeros`](Self::zeros).
    pub fn from_slice(device: Device, elements: &[T]) -> Result<Self, Error> {
        let mut buffer = Self::allocate(device, elements.len())?;
        buffer.copy_from_slice(elements)?;
        Ok(buffer)
    }

    fn allocate(device: Device, len: usize) -> Result<Self, Error> {
        device.target()?;
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| too_large(len))?;
        let memory = match device.memory() {
            Device::Cuda(_) => Memory::Gpu(DeviceBuffer::new(device.context()?, bytes)?),
            _ => Memory::Host(vec![CacheLine::zeroed(); bytes.div_ceil(size_of::<CacheLine>())]),
        };
        Ok(Self { memory, device, len, elements: PhantomData })
    }

    /// Returns the device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the elements if they are in main memory. Returns `None` for a GPU. The address of
    /// the first element is a multiple of 64.
    ///
    /// ```
    /// use tilewright::{Buffer, Device};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let x = Buffer::from_slice(Device::Cpu, &[3, 1, 2])?;
    /// assert_eq!(x.as_slice().and_then(|x| x.iter().max()), Some(&3));
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_slice(&self) -> Option<&[T]> {
        let Memory::Host(lines) = &self.memory else { return None };
        Some(bytemuck::cast_slice(&bytemuck::cast_slice::<_, u8>(lines)[..self.len * size_of::<T>()]))
    }

    /// Returns the elements for writing if they are in main memory. Returns `None` for a GPU.
    ///
    /// ```
    /// use tilewright::{Buffer, Device};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let mut x = Buffer::from_slice(Device::Cpu, &[3, 1, 2])?;
    /// if let Some(x) = x.as_mut_slice() {
    ///     x.sort();
    /// }
    /// assert_eq!(x.to_vec()?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_mut_slice(&mut self) -> Option<&mut [T]> {
        let Memory::Host(lines) = &mut self.memory else { return None };
        let bytes = self.len * size_of::<T>();
        Some(bytemuck::cast_slice_mut(&mut bytemuck::cast_slice_mut::<_, u8>(lines)[..bytes]))
    }

    /// Borrows a range of the elements for a copy or as an argument of a launch.
    ///
    /// ```
    /// use tilewright::{Buffer, Device, Module, args};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let scale = Module::from_file("examples/kernels.py")?.kernel("scale")?;
    /// let x = Buffer::from_slice(Device::Cpu, &[1.0_f32, 2.0, 3.0, 4.0])?;
    /// let mut out = [0.0_f32; 2];
    /// scale.launch(1, args![x.slice(2..)?, &mut out, 10.0, 2, BLOCK = 16])?;
    /// assert_eq!(out, [30.0, 40.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the range is not in the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<BufferSlice<'_, T>, Error> {
        let range = self.range(range)?;
        Ok(BufferSlice { buffer: self, range })
    }

    /// Borrows a range of the elements for writing. On the CPU and in the simulator, a kernel that
    /// writes outside of the range fails. A GPU does not check the range.
    ///
    /// ```
    /// use tilewright::{Buffer, Code, Device, Module, args};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
    /// let mut x = Buffer::from_slice(Device::Cpu, &[1, 2, 3, 4])?;
    /// double.launch(1, args![x.slice_mut(..2)?, 2, BLOCK = 4])?;
    /// let error = double.launch(1, args![x.slice_mut(..2)?, 3, BLOCK = 4]).unwrap_err();
    /// assert_eq!(error.code(), Some(Code::OutOfBounds));
    /// assert_eq!(x.to_vec()?, [2, 4, 3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the range is not in the buffer.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<BufferSliceMut<'_, T>, Error> {
        let range = self.range(range)?;
        Ok(BufferSliceMut { buffer: self, range })
    }

    fn range(&self, range: impl RangeBounds<usize>) -> Result<Range<usize>, Error> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        if start <= end && end <= self.len {
            return Ok(start..end);
        }
        let message = format!("the range {start}..{end} is not in a buffer of {} elements", self.len);
        Err(Diagnostic::new(Code::InvalidArgument, message).into())
    }

    /// Waits for all work on the device, and copies elements to the buffer.
    ///
    /// ```
    /// use tilewright::{Buffer, Code, Device};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let mut x = Buffer::<f32>::zeros(Device::Cpu, 3)?;
    /// x.copy_from_slice(&[1.0, 2.0, 3.0])?;
    /// assert_eq!(x.copy_from_slice(&[1.0]).unwrap_err().code(), Some(Code::InvalidArgument));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the lengths differ, or if an earlier launch on the device has failed.
    pub fn copy_from_slice(&mut self, elements: &[T]) -> Result<(), Error> {
        let len = self.len;
        self.write(0..len, elements)
    }

    /// Waits for all work on the device, and copies the buffer to `elements`.
    ///
    /// ```
    /// use tilewright::{Buffer, Device};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let x = Buffer::from_slice(Device::Cpu, &[1.0_f32, 2.0])?;
    /// let mut copy = [0.0; 2];
    /// x.copy_to_slice(&mut copy)?;
    /// assert_eq!(copy, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`copy_from_slice`](Self::copy_from_slice).
    pub fn copy_to_slice(&self, elements: &mut [T]) -> Result<(), Error> {
        self.read(0..self.len, elements)
    }

    /// Waits for all work on the device, and returns a copy of the elements.
    ///
    /// ```
    /// use tilewright::{Buffer, Device, Module, args};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
    /// // The last device is a GPU, if this machine has one.
    /// let device = Device::available().last().copied().unwrap_or_default();
    /// let mut x = Buffer::from_slice(device, &[1.0_f32; 100])?;
    /// double.launch(1, args![&mut x, 100, BLOCK = 128])?;
    /// assert_eq!(x.to_vec()?, [2.0; 100]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If an earlier launch on the device has failed.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        let mut elements = vec![T::zeroed(); self.len];
        self.copy_to_slice(&mut elements)?;
        Ok(elements)
    }

    fn write(&mut self, range: Range<usize>, elements: &[T]) -> Result<(), Error> {
        check_length(range.len(), elements.len())?;
        if let Some(own) = self.as_mut_slice() {
            own[range].copy_from_slice(elements);
            return Ok(());
        }
        self.wait()?;
        match &mut self.memory {
            Memory::Gpu(memory) => {
                Ok(memory.write_at(range.start * size_of::<T>(), bytemuck::cast_slice(elements))?)
            }
            Memory::Host(_) => unreachable!("the buffer has a slice then"),
        }
    }

    fn read(&self, range: Range<usize>, elements: &mut [T]) -> Result<(), Error> {
        check_length(range.len(), elements.len())?;
        if let Some(own) = self.as_slice() {
            elements.copy_from_slice(&own[range]);
            return Ok(());
        }
        self.wait()?;
        match &self.memory {
            Memory::Gpu(memory) => {
                Ok(memory.read_at(range.start * size_of::<T>(), bytemuck::cast_slice_mut(elements))?)
            }
            Memory::Host(_) => unreachable!("the buffer has a slice then"),
        }
    }

    /// Waits for the launches on every stream of the device, because any of them may use the
    /// buffer.
    fn wait(&self) -> Result<(), Error> {
        Ok(self.device.context()?.synchronize()?)
    }

    /// Returns the pointer to the element `start`. `region` is a range of main memory; the CPU and
    /// the simulator check accesses against this range. On a GPU, the region is empty.
    fn pointer<'m>(&self, start: usize, region: Region<'m>) -> Value<'m> {
        let address = match &self.memory {
            Memory::Host(_) => region.address(),
            Memory::Gpu(memory) => memory.address() + (start * size_of::<T>()) as u64,
        };
        Value::Pointer(Pointer { pointee: T::DTYPE, address, region, device: self.device.memory() })
    }

    pub(crate) fn as_argument(&self, range: Range<usize>) -> Value<'_> {
        let elements = self.as_slice().map_or(&[][..], |elements| &elements[range.clone()]);
        self.pointer(range.start, Region::read_only(bytemuck::cast_slice(elements)))
    }

    pub(crate) fn as_written_argument(&mut self, range: Range<usize>) -> Value<'_> {
        let start = range.start;
        if let Memory::Gpu(_) = self.memory {
            return self.pointer(start, Region::read_only(&[]));
        }
        let elements = self.as_mut_slice().expect("the elements are in main memory");
        let region = Region::of(bytemuck::cast_slice_mut(&mut elements[range]));
        let address = region.address();
        Value::Pointer(Pointer { pointee: T::DTYPE, address, region, device: Device::Cpu })
    }

    /// Returns the memory of a range if the range is on a GPU. Returns `None` for main memory.
    pub(crate) fn gpu_memory(&self, range: &Range<usize>) -> Option<GpuMemory> {
        let Memory::Gpu(memory) = &self.memory else { return None };
        let address = memory.address() + (range.start * size_of::<T>()) as u64;
        Some(GpuMemory { device: self.device, address, bytes: range.len() * size_of::<T>() })
    }
}

/// A range of a [`Buffer`], as an argument that a kernel reads.
///
/// ```
/// use tilewright::{Buffer, BufferSlice, Device};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let keys = Buffer::from_slice(Device::Cpu, &[10, 11, 12, 13, 14, 15])?;
/// let rows: Vec<BufferSlice<'_, i32>> =
///     (0..3).map(|row| keys.slice(2 * row..2 * row + 2)).collect::<Result<_, _>>()?;
/// let mut second = [0; 2];
/// rows[1].copy_to_slice(&mut second)?;
/// assert_eq!(second, [12, 13]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BufferSlice<'m, T> {
    pub(crate) buffer: &'m Buffer<T>,
    pub(crate) range: Range<usize>,
}

/// A range of a [`Buffer`], as an argument that a kernel may write.
///
/// ```
/// use tilewright::{Buffer, Device};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let mut cache = Buffer::<f32>::zeros(Device::Cpu, 6)?;
/// cache.slice_mut(2..4)?.copy_from_slice(&[0.5, 0.25])?;
/// assert_eq!(cache.to_vec()?, [0.0, 0.0, 0.5, 0.25, 0.0, 0.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BufferSliceMut<'m, T> {
    pub(crate) buffer: &'m mut Buffer<T>,
    pub(crate) range: Range<usize>,
}

impl<T> Clone for BufferSlice<'_, T> {
    fn clone(&self) -> Self {
        Self { buffer: self.buffer, range: self.range.clone() }
    }
}

impl<T: Element> BufferSlice<'_, T> {
    /// Waits for all work on the device, and copies the range to `elements`.
    ///
    /// # Errors
    /// The errors of [`Buffer::copy_to_slice`].
    pub fn copy_to_slice(&self, elements: &mut [T]) -> Result<(), Error> {
        self.buffer.read(self.range.clone(), elements)
    }
}

impl<T: Element> BufferSliceMut<'_, T> {
    /// Waits for all work on the device, and copies elements to the range.
    ///
    /// # Errors
    /// The errors of [`Buffer::copy_from_slice`].
    pub fn copy_from_slice(&mut self, elements: &[T]) -> Result<(), Error> {
        self.buffer.write(self.range.clone(), elements)
    }
}

impl<'m, T: Element> IntoArgument<'m> for &'m Buffer<T> {
    fn into_argument(self) -> Value<'m> {
        self.as_argument(0..self.len())
    }
}

impl<'m, T: Element> IntoArgument<'m> for &'m mut Buffer<T> {
    fn into_argument(self) -> Value<'m> {
        let len = self.len();
        self.as_written_argument(0..len)
    }

    fn written_gpu_memory(&self) -> Vec<GpuMemory> {
        self.gpu_memory(&(0..self.len())).into_iter().collect()
    }
}

impl<'m, T: Element> IntoArgument<'m> for BufferSlice<'m, T> {
    fn into_argument(self) -> Value<'m> {
        self.buffer.as_argument(self.range)
    }
}

impl<'m, T: Element> IntoArgument<'m> for BufferSliceMut<'m, T> {
    fn into_argument(self) -> Value<'m> {
        self.buffer.as_written_argument(self.range)
    }

    fn written_gpu_memory(&self) -> Vec<GpuMemory> {
        self.buffer.gpu_memory(&self.range).into_iter().collect()
    }
}

impl<'m, T: Element> ReadTensor<'m, T> for &'m Buffer<T> {}
impl<'m, T: Element> ReadTensor<'m, T> for BufferSlice<'m, T> {}
impl<'m, T: Element> WriteTensor<'m, T> for &'m mut Buffer<T> {}
impl<'m, T: Element> WriteTensor<'m, T> for BufferSliceMut<'m, T> {}

fn check_length(expected: usize, found: usize) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    let message =
        format!("the lengths differ: the buffer's range has {expected} elements, the slice {found}");
    Err(Diagnostic::new(Code::InvalidArgument, message).into())
}

fn too_large(len: usize) -> Error {
    Diagnostic::new(Code::InvalidArgument, format!("a buffer of {len} elements is too large")).into()
}
