//! Manages contexts. The current context of a thread determines its device.
//!
//! The rules are those of CUDA's runtime library, which torch uses:
//!
//! - All users in the process share a device's primary context.
//! - If a thread without a current context uses a device, the device's primary context becomes
//!   current.
//! - Only [`Context::make_current`] replaces a current context.

use std::marker::PhantomData;

use crate::stream::StreamRef;
use crate::sys::{self, ContextHandle};
use crate::{Device, Driver, Error};

/// A context of a device. Primary contexts live as long as the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    device: Device,
    handle: ContextHandle,
}

impl Context {
    /// Returns the primary context of a device. The thread's current context does not change.
    ///
    /// # Errors
    /// A device older than `sm_75`, or an error of the driver.
    pub fn primary(device: Device) -> Result<Self, Error> {
        device.check_supported()?;
        let slot = device.slot();
        let handle = if let Some(handle) = slot.primary.get() {
            *handle
        } else {
            // Two threads may both retain the context. Primary contexts are never released, so this
            // is harmless.
            let handle = device.driver().retain_primary_context(slot.handle)?;
            *slot.primary.get_or_init(|| handle)
        };
        Ok(Self { device, handle })
    }

    /// Returns the current context of this thread. Returns `None` if the thread has no current
    /// context.
    pub fn current(driver: &'static Driver) -> Result<Option<Self>, Error> {
        let handle = driver.current_context()?;
        if handle == ContextHandle::NULL {
            return Ok(None);
        }
        let number = driver.current_device()?;
        let device = driver.devices().find(|device| device.slot().handle == number);
        let missing = Error::NoSuchDevice { ordinal: number.max(0) as u32, count: driver.num_devices() };
        let device = device.ok_or(missing)?;
        device.check_supported()?;
        Ok(Some(Self { device, handle }))
    }

    /// Returns the current context. If this thread has none, makes the primary context of `device`
    /// current and returns it.
    pub fn current_or_primary(device: Device) -> Result<Self, Error> {
        if let Some(context) = Self::current(device.driver())? {
            return Ok(context);
        }
        let context = Self::primary(device)?;
        context.make_current()?;
        Ok(context)
    }

    /// Makes this context the current context of the thread, as `torch.cuda.set_device` does.
    pub fn make_current(self) -> Result<(), Error> {
        self.driver().set_current_context(self.handle)
    }

    /// Returns the device of the context.
    pub fn device(self) -> Device {
        self.device
    }

    /// Returns the driver.
    pub fn driver(self) -> &'static Driver {
        self.device.driver()
    }

    /// Waits for all work in the context. Returns the error of an earlier kernel that failed.
    pub fn synchronize(self) -> Result<(), Error> {
        let _entered = self.enter()?;
        self.driver().synchronize_context()
    }

    /// Waits for all work on a stream.
    pub fn synchronize_stream(self, stream: StreamRef<'_>) -> Result<(), Error> {
        let _entered = self.enter()?;
        self.driver().synchronize_stream(stream.handle())
    }

    /// Returns whether a stream is being captured into a graph. Waiting for such a stream is an
    /// error.
    pub fn is_capturing(self, stream: StreamRef<'_>) -> Result<bool, Error> {
        let _entered = self.enter()?;
        self.driver().is_capturing(stream.handle())
    }

    /// Returns the number of free bytes and the total number of bytes of the device's memory.
    pub fn memory_info(self) -> Result<(usize, usize), Error> {
        let _entered = self.enter()?;
        self.driver().memory_info()
    }

    /// Returns whether kernels can access an address.
    pub fn is_mapped(self, address: u64) -> Result<bool, Error> {
        let _entered = self.enter()?;
        self.driver().is_mapped(address)
    }

    /// Sets the size in bytes of the buffer for the output of kernels that print. Must be called
    /// before such a kernel is loaded. Afterwards, the driver refuses every size, even the current
    /// size. This method therefore does nothing if the buffer already has this size.
    pub fn set_printf_fifo_size(self, bytes: usize) -> Result<(), Error> {
        let _entered = self.enter()?;
        if self.driver().limit(sys::LIMIT_PRINTF_FIFO_SIZE)? == bytes {
            return Ok(());
        }
        self.driver().set_limit(sys::LIMIT_PRINTF_FIFO_SIZE, bytes)
    }

    /// Makes the context current on this thread. Dropping the returned guard restores the context
    /// that was current before. If no context was current, this context stays current.
    #[inline]
    pub(crate) fn enter(self) -> Result<Entered, Error> {
        let driver = self.driver();
        let current = driver.current_context()?;
        let is_pushed = current != self.handle && current != ContextHandle::NULL;
        if is_pushed {
            driver.push_context(self.handle)?;
        } else if current == ContextHandle::NULL {
            driver.set_current_context(self.handle)?;
        }
        Ok(Entered { driver, is_pushed, thread: PhantomData })
    }
}

/// The guard that [`Context::enter`] returns. The context is current while the guard is alive.
pub(crate) struct Entered {
    driver: &'static Driver,
    is_pushed: bool,
    /// Keeps the guard on its thread, because each thread has its own current context.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.is_pushed {
            // The next call on this thread reports the error.
            let _ = self.driver.pop_context();
        }
    }
}
