//! Contexts: the device that the calling thread works on. The rules are those of CUDA's runtime
//! library, which torch uses: all users in the process share a device's primary context, it is made
//! current on a thread that has none, and a current context stays, since the caller has chosen it.

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
    /// The primary context of a device; the thread's current context stays what it is.
    ///
    /// # Errors
    /// A device older than `sm_75`; whatever keeps the driver from making a context.
    pub fn primary(device: Device) -> Result<Self, Error> {
        device.check_supported()?;
        let slot = device.slot();
        let handle = if let Some(handle) = slot.primary.get() {
            *handle
        } else {
            // Two threads may both retain it here, and one more reference does no harm: it is never
            // released.
            let handle = device.driver().retain_primary_context(slot.handle)?;
            *slot.primary.get_or_init(|| handle)
        };
        Ok(Self { device, handle })
    }

    /// The context that is current on this thread, if there is one: the caller's choice of a
    /// device.
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

    /// The current context; if this thread has none, the primary one of `device`, which becomes
    /// current.
    pub fn current_or_primary(device: Device) -> Result<Self, Error> {
        if let Some(context) = Self::current(device.driver())? {
            return Ok(context);
        }
        let context = Self::primary(device)?;
        context.make_current()?;
        Ok(context)
    }

    /// Makes it the current context of this thread, as `torch.cuda.set_device` does.
    pub fn make_current(self) -> Result<(), Error> {
        self.driver().set_current_context(self.handle)
    }

    /// Its device.
    pub fn device(self) -> Device {
        self.device
    }

    /// The driver.
    pub fn driver(self) -> &'static Driver {
        self.device.driver()
    }

    /// Waits for everything that was started in it. An error of a kernel that ran earlier surfaces
    /// here.
    pub fn synchronize(self) -> Result<(), Error> {
        let _entered = self.enter()?;
        self.driver().synchronize_context()
    }

    /// Waits for everything on a stream.
    pub fn synchronize_stream(self, stream: StreamRef<'_>) -> Result<(), Error> {
        let _entered = self.enter()?;
        self.driver().synchronize_stream(stream.handle())
    }

    /// Returns whether a stream is being captured into a graph: then nothing may wait for it.
    pub fn is_capturing(self, stream: StreamRef<'_>) -> Result<bool, Error> {
        let _entered = self.enter()?;
        self.driver().is_capturing(stream.handle())
    }

    /// Free and total bytes of the device's memory.
    pub fn memory_info(self) -> Result<(usize, usize), Error> {
        let _entered = self.enter()?;
        self.driver().memory_info()
    }

    /// Tells if an address lies in memory that kernels can access.
    pub fn is_mapped(self, address: u64) -> Result<bool, Error> {
        let _entered = self.enter()?;
        self.driver().is_mapped(address)
    }

    /// Sets the bytes that hold what kernels print until it is shown. To be called before a kernel
    /// that prints is loaded: afterwards the driver refuses even the size that it has, which is
    /// therefore not set again.
    pub fn set_printf_fifo_size(self, bytes: usize) -> Result<(), Error> {
        let _entered = self.enter()?;
        if self.driver().limit(sys::LIMIT_PRINTF_FIFO_SIZE)? == bytes {
            return Ok(());
        }
        self.driver().set_limit(sys::LIMIT_PRINTF_FIFO_SIZE, bytes)
    }

    /// Has the context current until the answer is dropped: if this thread has another one, that is
    /// current afterwards again; if it has none, this one stays.
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

/// A context is current as long as this lives.
pub(crate) struct Entered {
    driver: &'static Driver,
    is_pushed: bool,
    /// The current context belongs to the thread, so this stays on it.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.is_pushed {
            // The error cannot be returned here; the next call on this thread reports it.
            let _ = self.driver.pop_context();
        }
    }
}
