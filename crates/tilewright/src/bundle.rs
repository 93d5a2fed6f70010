//! Launches the kernels of a lock without their source.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use tilewright_base::{Code, Diagnostic};
use tilewright_runtime::{self as runtime, Device, Error, Grid, Value};

use crate::launch::launch;
use crate::{Arguments, IntoArgument, IntoGrid, Stream};

/// The kernels of a lock that `tilewright lock` or [`record_lock`](crate::record_lock) has written.
/// Launches need neither the source of the kernels nor Python. The first launch of a kernel
/// prepares its code. On the CPU, it generates the machine code. On a GPU, the driver assembles the
/// PTX, unless the lock has a cubin. [`prepare`](Self::prepare) does this work earlier.
///
/// ```
/// use tilewright::{Bundle, Code, Device, Stream, args};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// # use tilewright::{Module, Target, record_lock};
/// # let folder = std::env::temp_dir().join(format!("tilewright-bundle-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("the folder can be made");
/// # let path = folder.join("serve.lock");
/// # let targets: Vec<_> = ["cpu", "sm_90"].into_iter().filter_map(Target::parse).collect();
/// # record_lock(&path, &targets, || {
/// #     let scale = Module::from_file("examples/kernels.py")?.kernel("scale")?;
/// #     let (x, mut out) = (vec![0.0_f32; 64], vec![0.0_f32; 64]);
/// #     scale.launch(1, args![&x, &mut out, 1.5, 63, BLOCK = 256])
/// # })?;
/// let bundle = Bundle::open(&path)?;
/// let (x, mut out) = (vec![1.0_f32; 1000], vec![0.0_f32; 1000]);
/// // The lock has one value of `BLOCK`, so the arguments need not name it.
/// bundle.launch("scale", 4, args![x_ptr = &x, out_ptr = &mut out, factor = 2.5, n = x.len()])?;
/// assert_eq!(out, [2.5; 1000]);
///
/// let stream = Stream::new(Device::Sim(90))?;
/// let arguments = args![x_ptr = &x, out_ptr = &mut out, factor = 0.5, n = x.len()];
/// bundle.on(Device::Sim(90)).launch_on(&stream, "scale", 4, arguments)?;
/// stream.synchronize()?;
/// assert_eq!(out, [0.5; 1000]);
///
/// let misspelled = bundle.launch("scael", 4, args![]).unwrap_err();
/// assert_eq!(misspelled.code(), Some(Code::NotLocked));
///
/// // A server makes the code of all kernels before the first request.
/// bundle.prepare(Device::Cpu)?;
/// assert_eq!(bundle.prepare(Device::Sim(100)).unwrap_err().code(), Some(Code::NotLocked));
/// # std::fs::remove_dir_all(&folder).expect("the folder can be removed");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Bundle {
    bundle: Arc<runtime::lock::Bundle>,
    /// The device on which launches run. If `None`, each launch runs on the device of its tensors.
    device: Option<Device>,
}

impl Bundle {
    /// Reads a lock or a packed lock. For a lock `NAME.lock`, the first launch of a kernel reads
    /// its code from the folder `NAME.artifacts` next to the lock. Launches run on the device that
    /// [`Device::select`] or `TILEWRIGHT_DEVICE` has selected. If no device is selected, each
    /// launch runs on the device of its tensors.
    ///
    /// ```
    /// use tilewright::{Bundle, Code};
    ///
    /// let error = Bundle::open("no/such/file.lock").unwrap_err();
    /// assert_eq!(error.code(), Some(Code::InvalidLock));
    /// ```
    ///
    /// # Errors
    /// If the lock cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let bundle = Arc::new(runtime::lock::Bundle::open(path.as_ref())?);
        Ok(Self { bundle, device: Device::selected()? })
    }

    /// Reads a packed lock from memory. Errors show `name` as the name of its file.
    /// [`open`](Self::open) describes the device of launches.
    ///
    /// ```
    /// use tilewright::{Bundle, Code};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// # use tilewright::{Module, args, record_lock, runtime::lock};
    /// # let folder = format!("tilewright-packed-{}", std::process::id());
    /// # let folder = std::env::temp_dir().join(folder);
    /// # std::fs::create_dir_all(&folder).expect("the folder can be made");
    /// # let path = folder.join("serve.lock");
    /// # record_lock(&path, &[], || {
    /// #     let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
    /// #     double.launch(1, args![&mut vec![1.0_f32; 64], 63, BLOCK = 64])
    /// # })?;
    /// # let (file, artifacts) = lock::open(&path).expect("the lock is complete");
    /// # let bytes = lock::pack(&file, &artifacts).expect("the lock is complete");
    /// # std::fs::remove_dir_all(&folder).expect("the folder can be removed");
    /// // `bytes` are those of a file that `tilewright lock pack` writes, such as
    /// // `include_bytes!("serve.tar")`.
    /// let bundle = Bundle::from_bytes("serve.tar", &bytes)?;
    /// let error = Bundle::from_bytes("serve.tar", &bytes[..20]).unwrap_err();
    /// assert_eq!(error.code(), Some(Code::InvalidLock));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the bytes are not a packed lock.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        let bundle = Arc::new(runtime::lock::Bundle::from_bytes(name, bytes)?);
        Ok(Self { bundle, device: Device::selected()? })
    }

    /// Restores all kernels for a device. Generates the machine code for a CPU, or loads the code
    /// on a GPU. Without this call, the first launch of each kernel does this work.
    ///
    /// # Errors
    /// If the lock has no kernel for the device, or if its code cannot be read or loaded.
    pub fn prepare(&self, device: Device) -> Result<(), Error> {
        self.bundle.prepare(device)
    }

    /// Returns the same kernels for launches on `device`.
    #[must_use]
    pub fn on(&self, device: Device) -> Self {
        Self { bundle: Arc::clone(&self.bundle), device: Some(device) }
    }

    /// Runs a kernel for every program of a grid. On a GPU, queues the launch on the default stream
    /// and returns. On other devices, returns when all programs have ended. Every argument needs
    /// its name. If the lock has only one value for a compile-time argument, the argument may be
    /// omitted.
    ///
    /// # Errors
    /// If the lock has no kernel for these arguments, or if the kernel fails.
    pub fn launch(&self, kernel: &str, grid: impl IntoGrid, arguments: Arguments<'_>) -> Result<(), Error> {
        self.start(None, kernel, grid.into_grid()?, arguments)
    }

    /// Does the same as [`launch`](Self::launch), but on a stream. The device of the stream runs
    /// the kernel.
    ///
    /// # Errors
    /// The errors of [`launch`](Self::launch).
    pub fn launch_on(
        &self,
        stream: &Stream,
        kernel: &str,
        grid: impl IntoGrid,
        arguments: Arguments<'_>,
    ) -> Result<(), Error> {
        self.start(Some(stream), kernel, grid.into_grid()?, arguments)
    }

    fn start(
        &self,
        stream: Option<&Stream>,
        kernel: &str,
        grid: Grid,
        arguments: Arguments<'_>,
    ) -> Result<(), Error> {
        let Arguments { positional, keywords, .. } = arguments;
        if !positional.is_empty() {
            let message = format!("kernel '{kernel}' of a lock got an argument without a name");
            let error = Diagnostic::new(Code::InvalidArgument, message);
            return Err(error.hint("name each argument: `args![x_ptr = &x, n = 5]`").into());
        }
        let named: Vec<(&str, Value<'_>)> = keywords;
        let of_tensors = || named.iter().find_map(|(_, value)| value.gpu()).unwrap_or(Device::Cpu);
        let device = stream.map(Stream::device).or(self.device).unwrap_or_else(of_tensors);
        let (handle, values) = self.bundle.find(kernel, device, &named)?;
        launch(&handle, stream, grid, &values)
    }
}

/// A packed lock that `include_kernels!` has embedded in the binary.
#[doc(hidden)]
#[derive(Debug)]
pub struct EmbeddedBundle {
    name: &'static str,
    bytes: &'static [u8],
    bundle: OnceLock<Bundle>,
}

impl EmbeddedBundle {
    /// Creates the bundle of a packed lock. The first use of the bundle reads the lock.
    pub const fn new(name: &'static str, bytes: &'static [u8]) -> Self {
        Self { name, bytes, bundle: OnceLock::new() }
    }

    /// Returns the bundle.
    ///
    /// # Errors
    /// If the bytes are not a packed lock.
    pub fn get(&self) -> Result<&Bundle, Error> {
        if let Some(bundle) = self.bundle.get() {
            return Ok(bundle);
        }
        let bundle = Bundle::from_bytes(self.name, self.bytes)?;
        Ok(self.bundle.get_or_init(|| bundle))
    }

    /// Begins a launch of a kernel.
    pub fn kernel<'m>(&'static self, kernel: &'static str) -> KernelLaunch<'m> {
        KernelLaunch { bundle: self, kernel, device: None, arguments: Arguments::default() }
    }
}

/// A kernel in the binary and the arguments of a launch. [`run`](Self::run) or
/// [`run_on`](Self::run_on) launches the kernel. The functions that `include_kernels!` defines
/// return this type.
///
/// ```standalone_crate
/// use tilewright::{Device, Stream};
///
/// tilewright::include_kernels! {
///     mod kernels;
///     targets = ["cpu", "sm_90"];
///     from "../examples/kernels.py" { double("*i32, i32, BLOCK=64"); }
/// }
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let mut x = vec![1; 1000];
/// let grid = x.len().div_ceil(64);
/// kernels::double(&mut x, 1000).run(grid)?;
/// kernels::double(&mut x, 1000).on(Device::Sim(90)).run(grid)?;
/// let stream = Stream::new(Device::Cpu)?;
/// kernels::double(&mut x, 1000).run_on(&stream, grid)?;
/// stream.synchronize()?;
/// assert_eq!(x, [8; 1000]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "`run` starts the launch"]
pub struct KernelLaunch<'m> {
    bundle: &'static EmbeddedBundle,
    kernel: &'static str,
    device: Option<Device>,
    arguments: Arguments<'m>,
}

impl<'m> KernelLaunch<'m> {
    /// Adds an argument by name.
    #[doc(hidden)]
    pub fn with(mut self, name: &'static str, value: impl IntoArgument<'m>) -> Self {
        self.arguments = self.arguments.keyword(name, value);
        self
    }

    /// Selects the device of the launch, such as the simulator. Without this call, the launch runs
    /// on the selected device of the process. If the process has not selected a device, the launch
    /// runs on the device of its tensors (see [`Bundle::open`]).
    pub fn on(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// Runs the kernel for every program of a grid. On a GPU, queues the launch on the default
    /// stream and returns. On other devices, returns when all programs have ended.
    ///
    /// # Errors
    /// If the lock has no code for the device or for these arguments, or if the kernel fails.
    pub fn run(self, grid: impl IntoGrid) -> Result<(), Error> {
        let bundle = self.bundle.get()?;
        match self.device {
            None => bundle.launch(self.kernel, grid, self.arguments),
            Some(device) => bundle.on(device).launch(self.kernel, grid, self.arguments),
        }
    }

    /// Does the same as [`run`](Self::run), but on a stream. The device of the stream runs the
    /// kernel.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run).
    pub fn run_on(self, stream: &Stream, grid: impl IntoGrid) -> Result<(), Error> {
        self.bundle.get()?.launch_on(stream, self.kernel, grid, self.arguments)
    }
}
