//! Allocates and copies device memory, for the Rust API and for tests.

use crate::stream::StreamRef;
use crate::{Context, Error};

/// Memory on a device. Dropping the buffer frees the memory.
#[derive(Debug)]
pub struct DeviceBuffer {
    context: Context,
    address: u64,
    bytes: usize,
}

impl DeviceBuffer {
    /// Allocates an uninitialized buffer. The address is a multiple of 256. An empty buffer has the
    /// address 0.
    pub fn new(context: Context, bytes: usize) -> Result<Self, Error> {
        let _entered = context.enter()?;
        let address = match bytes {
            0 => 0,
            _ => context
                .driver()
                .allocate(bytes)
                .map_err(|e| e.about(|| format!("a buffer of {bytes} bytes")))?,
        };
        Ok(Self { context, address, bytes })
    }

    /// Allocates a buffer with a copy of `bytes`.
    pub fn from_bytes(context: Context, bytes: &[u8]) -> Result<Self, Error> {
        let mut buffer = Self::new(context, bytes.len())?;
        buffer.write(bytes)?;
        Ok(buffer)
    }

    /// Returns the device address of the buffer's first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the size of the buffer in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies bytes of the host to the start of the buffer. Returns when the driver has read the
    /// bytes.
    pub fn write(&mut self, from: &[u8]) -> Result<(), Error> {
        self.copy(from.len(), || self.context.driver().copy_to_device(self.address, from))
    }

    /// Copies the start of the buffer to the host, after the work on the default stream. Returns
    /// when the copy is complete.
    pub fn read(&self, to: &mut [u8]) -> Result<(), Error> {
        self.copy(to.len(), || self.context.driver().copy_to_host(to, self.address))
    }

    /// Copies bytes of the host to the offset `offset` of the buffer. Returns when the driver has
    /// read the bytes.
    pub fn write_at(&mut self, offset: usize, from: &[u8]) -> Result<(), Error> {
        let address = self.address + offset as u64;
        self.copy(offset + from.len(), || self.context.driver().copy_to_device(address, from))
    }

    /// Copies the bytes from offset `offset` of the buffer to the host, after the work on the
    /// default stream. Returns when the copy is complete.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        let address = self.address + offset as u64;
        self.copy(offset + to.len(), || self.context.driver().copy_to_host(to, address))
    }

    /// Allocates a buffer of `bytes` bytes. Copies the device memory at `address` to the buffer, on
    /// the default stream and without waiting.
    pub fn copy_of(context: Context, address: u64, bytes: usize) -> Result<Self, Error> {
        let buffer = Self::new(context, bytes)?;
        buffer.copy(bytes, || {
            let default = StreamRef::DEFAULT.handle();
            context.driver().copy_on_device(buffer.address, address, bytes, default)
        })?;
        Ok(buffer)
    }

    /// Copies the buffer to the device memory at `address`, on a stream and without waiting.
    pub fn copy_to(&self, address: u64, stream: StreamRef<'_>) -> Result<(), Error> {
        let driver = self.context.driver();
        self.copy(self.bytes, || driver.copy_on_device(address, self.address, self.bytes, stream.handle()))
    }

    /// Copies bytes of the host to the start of the buffer, on a stream and without waiting.
    ///
    /// # Safety
    /// `from` must be alive and unchanged until the stream has completed the copy.
    #[expect(unsafe_code, reason = "the driver reads the slice after this has returned")]
    pub unsafe fn write_async(&mut self, from: &[u8], stream: StreamRef<'_>) -> Result<(), Error> {
        // SAFETY: the caller keeps the slice alive until the copy has completed.
        let copy =
            || unsafe { self.context.driver().copy_to_device_async(self.address, from, stream.handle()) };
        self.copy(from.len(), copy)
    }

    /// Copies the start of the buffer to the host, on a stream and without waiting.
    ///
    /// # Safety
    /// `to` must be alive, and must not be accessed, until the stream has completed the copy.
    #[expect(unsafe_code, reason = "the driver writes the slice after this has returned")]
    pub unsafe fn read_async(&self, to: &mut [u8], stream: StreamRef<'_>) -> Result<(), Error> {
        let bytes = to.len();
        // SAFETY: the caller keeps the slice alive until the copy has completed.
        let copy = || unsafe { self.context.driver().copy_to_host_async(to, self.address, stream.handle()) };
        self.copy(bytes, copy)
    }

    /// Copies `bytes` bytes from the start of `from` to the start of this buffer, on a stream and
    /// without waiting.
    pub fn copy_from(&mut self, from: &Self, bytes: usize, stream: StreamRef<'_>) -> Result<(), Error> {
        let capacity = self.bytes.min(from.bytes);
        if bytes > capacity {
            return Err(Error::CopyTooLarge { bytes, capacity });
        }
        self.copy(bytes, || {
            self.context.driver().copy_on_device(self.address, from.address, bytes, stream.handle())
        })
    }

    /// Sets every byte to a value.
    pub fn fill(&mut self, value: u8) -> Result<(), Error> {
        self.copy(self.bytes, || self.context.driver().fill(self.address, value, self.bytes))
    }

    /// Sets every byte to a value, on a stream and without waiting.
    pub fn fill_async(&mut self, value: u8, stream: StreamRef<'_>) -> Result<(), Error> {
        let fill = || self.context.driver().fill_async(self.address, value, self.bytes, stream.handle());
        self.copy(self.bytes, fill)
    }

    /// Makes a call of the driver that accesses the first `bytes` bytes of the buffer. Fails if the
    /// buffer is smaller. Does nothing if `bytes` is 0.
    fn copy(&self, bytes: usize, call: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        if bytes > self.bytes {
            return Err(Error::CopyTooLarge { bytes, capacity: self.bytes });
        }
        if bytes == 0 {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        call().map_err(|error| error.about(|| format!("{bytes} bytes of a buffer of {}", self.bytes)))
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // The context may already be destroyed.
        if self.address != 0
            && let Ok(_entered) = self.context.enter()
        {
            let _ = self.context.driver().free(self.address);
        }
    }
}
