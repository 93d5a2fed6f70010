//! Defines [`Stream`], which orders the launches on a device, and [`Event`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use tilewright_base::{Code, Diagnostic};
use tilewright_runtime::{CudaEvent, CudaStream, Device, Error, StreamRef};

/// A queue of launches on a device. The launches of one stream run in order. Launches on different
/// streams of a GPU may run at the same time. On the CPU and in the simulator, each launch is
/// complete when the call returns.
///
/// ```
/// use tilewright::{Device, Stream};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let stream = Stream::new(Device::Cpu)?;
/// let start = stream.record()?;
/// let end = stream.record()?;
/// stream.synchronize()?;
/// assert!(start.duration_until(&end)?.as_secs() < 60);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    device: Device,
    /// The stream of the driver. `None` for the default stream, and for devices that are not GPUs.
    own: Option<Arc<CudaStream>>,
}

impl Stream {
    /// Creates a stream. It does not wait for the default stream of the device.
    ///
    /// ```
    /// use tilewright::{Buffer, Device, Module, Stream, args};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let device = Device::available().last().copied().unwrap_or_default();
    /// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
    /// let stream = Stream::new(device)?;
    /// let mut x = Buffer::from_slice(device, &[1.0_f32; 64])?;
    /// double.on(device).launch_on(&stream, 1, args![&mut x, 64, BLOCK = 64])?;
    /// stream.synchronize()?;
    /// assert_eq!(x.to_vec()?, [2.0; 64]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If this machine does not have the device.
    pub fn new(device: Device) -> Result<Self, Error> {
        device.target()?;
        let own = match device {
            Device::Cuda(_) => Some(Arc::new(CudaStream::new(device.context()?)?)),
            _ => None,
        };
        Ok(Self { device, own })
    }

    /// Returns the default stream of a device. Launches without a stream run on the default stream.
    ///
    /// ```
    /// use tilewright::{Device, Stream};
    ///
    /// assert_eq!(Stream::default_of(Device::Cpu).device(), Device::Cpu);
    /// ```
    pub fn default_of(device: Device) -> Self {
        Self { device, own: None }
    }

    /// Returns the device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Waits for all launches on the stream.
    ///
    /// ```
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let stream = tilewright::Stream::new(tilewright::Device::Sim(90))?;
    /// stream.synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of a kernel that failed on the device.
    pub fn synchronize(&self) -> Result<(), Error> {
        match self.device {
            Device::Cuda(_) => Ok(self.device.context()?.synchronize_stream(self.handle())?),
            _ => Ok(()),
        }
    }

    /// Records an event after all current launches on the stream.
    ///
    /// ```
    /// use tilewright::{Device, Stream};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let event = Stream::default_of(Device::Cpu).record()?;
    /// event.synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn record(&self) -> Result<Event, Error> {
        let point = match self.device {
            Device::Cuda(_) => {
                let event = CudaEvent::new(self.device.context()?)?;
                event.record(self.handle())?;
                Point::Gpu(event)
            }
            _ => Point::Host(Instant::now()),
        };
        Ok(Event { point })
    }

    /// Makes later launches on this stream wait for an event of another stream.
    ///
    /// ```
    /// use tilewright::{Device, Stream};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let (copies, dots) = (Stream::new(Device::Cpu)?, Stream::new(Device::Cpu)?);
    /// // … launches on `copies` that write the operands …
    /// dots.wait(&copies.record()?)?;
    /// // … launches on `dots` that read them …
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn wait(&self, event: &Event) -> Result<(), Error> {
        match (&event.point, self.device) {
            (Point::Gpu(event), Device::Cuda(_)) => Ok(event.block(self.handle())?),
            (Point::Gpu(event), _) => Ok(event.synchronize()?),
            (Point::Host(_), _) => Ok(()),
        }
    }

    pub(crate) fn handle(&self) -> StreamRef<'_> {
        self.own.as_ref().map_or(StreamRef::DEFAULT, |stream| stream.borrow())
    }

    /// Checks that this stream belongs to `device`, the device of a launch.
    pub(crate) fn check(&self, device: Device) -> Result<(), Error> {
        if device == self.device {
            return Ok(());
        }
        let message = format!("the stream is on {}, and the launch on {device}", self.device);
        let hint = format!("launch `kernel.on(Device::{:?})`, with tensors of that device", self.device);
        Err(Diagnostic::new(Code::InvalidArgument, message).hint(hint).into())
    }
}

/// A point in the work of a [`Stream`]. [`Stream::record`] returns events.
///
/// ```
/// use tilewright::{Device, Module, Stream, args};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
/// let stream = Stream::new(Device::Cpu)?;
/// let start = stream.record()?;
/// double.launch_on(&stream, 4, args![&mut [1.0_f32; 1000], 1000, BLOCK = 256])?;
/// let time = start.duration_until(&stream.record()?)?;
/// println!("{:.1} us", time.as_secs_f64() * 1e6);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Event {
    point: Point,
}

#[derive(Debug)]
enum Point {
    Gpu(CudaEvent),
    Host(Instant),
}

impl Event {
    /// Waits until the device has reached the point.
    ///
    /// ```
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let stream = tilewright::Stream::new(tilewright::Device::Cpu)?;
    /// stream.record()?.synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of a kernel that failed on the device.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.point {
            Point::Gpu(event) => Ok(event.synchronize()?),
            Point::Host(_) => Ok(()),
        }
    }

    /// Waits for both events, and returns the time between them. Returns 0 if `later` was earlier.
    /// A GPU measures the time with a resolution of half a microsecond.
    ///
    /// ```
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let stream = tilewright::Stream::new(tilewright::Device::Cpu)?;
    /// let (first, second) = (stream.record()?, stream.record()?);
    /// assert!(second.duration_until(&first)? <= first.duration_until(&second)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If only one of the events is on a GPU, or if a kernel failed on the device.
    pub fn duration_until(&self, later: &Self) -> Result<Duration, Error> {
        match (&self.point, &later.point) {
            (Point::Host(start), Point::Host(end)) => Ok(end.saturating_duration_since(*start)),
            (Point::Gpu(start), Point::Gpu(end)) => {
                start.synchronize()?;
                end.synchronize()?;
                let milliseconds = start.milliseconds_until(end)?;
                Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
            }
            _ => {
                let message = "the two events are on different devices";
                Err(Diagnostic::new(Code::InvalidArgument, message).into())
            }
        }
    }
}
