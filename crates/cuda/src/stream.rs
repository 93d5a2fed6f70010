//! Manages streams and events, which order the work on a device and measure its time.

use std::marker::PhantomData;

use crate::sys::{EventHandle, StreamHandle};
use crate::{Context, Error};

/// A borrowed stream: torch's current stream, a [`Stream`], or the default stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamRef<'stream> {
    handle: StreamHandle,
    lifetime: PhantomData<&'stream ()>,
}

impl StreamRef<'static> {
    /// The default stream of the context of a launch.
    pub const DEFAULT: Self = Self { handle: StreamHandle::NULL, lifetime: PhantomData };
}

impl StreamRef<'_> {
    /// Creates a reference from a handle such as `torch.cuda.current_stream().cuda_stream`.
    ///
    /// # Safety
    /// The handle must be that of a stream that outlives this value, because the driver
    /// dereferences the handle.
    #[expect(unsafe_code, reason = "the caller knows what the number means")]
    pub const unsafe fn from_raw(number: u64) -> Self {
        let handle = StreamHandle(std::ptr::without_provenance_mut(number as usize));
        Self { handle, lifetime: PhantomData }
    }

    /// Returns the handle of the stream for other libraries.
    pub fn raw(self) -> u64 {
        self.handle.0.addr() as u64
    }

    pub(crate) fn handle(self) -> StreamHandle {
        self.handle
    }
}

/// An owned stream, which does not synchronize with the default stream.
#[derive(Debug)]
pub struct Stream {
    context: Context,
    handle: StreamHandle,
}

impl Stream {
    /// Creates a stream.
    pub fn new(context: Context) -> Result<Self, Error> {
        let _entered = context.enter()?;
        Ok(Self { context, handle: context.driver().create_stream()? })
    }

    /// Borrows the stream for launches.
    pub fn borrow(&self) -> StreamRef<'_> {
        StreamRef { handle: self.handle, lifetime: PhantomData }
    }

    /// Waits for all work on the stream.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.context.synchronize_stream(self.borrow())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Work on the stream continues. The context may already be destroyed.
        if let Ok(_entered) = self.context.enter() {
            let _ = self.context.driver().destroy_stream(self.handle);
        }
    }
}

/// A point in the work of a stream. The event stores the time at which the device reaches this
/// point.
#[derive(Debug)]
pub struct Event {
    context: Context,
    handle: EventHandle,
}

impl Event {
    /// Creates an event that is not recorded yet.
    pub fn new(context: Context) -> Result<Self, Error> {
        let _entered = context.enter()?;
        Ok(Self { context, handle: context.driver().create_event()? })
    }

    /// Records the event after all current work on the stream.
    pub fn record(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        let _entered = self.context.enter()?;
        self.context.driver().record_event(self.handle, stream.handle())
    }

    /// Waits until the device has reached the event.
    pub fn synchronize(&self) -> Result<(), Error> {
        let _entered = self.context.enter()?;
        self.context.driver().synchronize_event(self.handle)
    }

    /// Makes later work on `stream` wait for the event.
    pub fn block(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        let _entered = self.context.enter()?;
        self.context.driver().wait_event(stream.handle(), self.handle)
    }

    /// Returns the milliseconds from this event to a later event. Fails if the device has not
    /// reached both events.
    pub fn milliseconds_until(&self, later: &Event) -> Result<f32, Error> {
        let _entered = self.context.enter()?;
        self.context.driver().elapsed_milliseconds(self.handle, later.handle)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // The context may already be destroyed.
        if let Ok(_entered) = self.context.enter() {
            let _ = self.context.driver().destroy_event(self.handle);
        }
    }
}
