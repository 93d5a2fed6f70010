//! Launches kernels. A [`LaunchConfiguration`] has what several launches share, so that a launch
//! allocates nothing.

use bytemuck::NoUninit;
use smallvec::SmallVec;

use crate::calls::Launch;
use crate::stream::StreamRef;
use crate::sys::{LaunchAttribute, StreamHandle, function_attribute};
use crate::{Error, Function, TensorMap};

/// The maximum number of blocks of a grid along each axis.
pub const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// The maximum number of bytes of shared memory of a block whose kernel has not opted in to more.
const SHARED_WITHOUT_OPTIN: u32 = 48 << 10;

/// The maximum number of blocks of a cluster that every device with clusters supports.
const PORTABLE_CLUSTER: u32 = 8;

/// The configuration of a launch, except its grid, stream and arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchOptions {
    /// The number of threads of a block along each axis.
    pub threads: [u32; 3],
    /// The number of bytes of dynamic shared memory of a block. The static bytes that the kernel
    /// declares are not included.
    pub shared_bytes: u32,
    /// The number of blocks of a cluster along each axis: `[1, 1, 1]` without clusters.
    pub cluster: [u32; 3],
    /// True if the kernel may start before the previous kernel on the stream has ended
    /// (programmatic dependent launch).
    pub programmatic: bool,
    /// True if all blocks must be resident at the same time, so that they can wait for each other.
    pub cooperative: bool,
}

impl LaunchOptions {
    /// Returns the options for one-dimensional blocks of `threads` threads.
    pub fn new(threads: u32) -> Self {
        Self {
            threads: [threads, 1, 1],
            shared_bytes: 0,
            cluster: [1; 3],
            programmatic: false,
            cooperative: false,
        }
    }
}

impl Function {
    /// Configures a launch. Opts in to large shared memory if the launch needs it.
    ///
    /// # Errors
    /// - [`Error::OutOfSharedMemory`] and [`Error::InvalidBlock`], with the requested value and the
    ///   limit.
    /// - The driver's errors.
    pub fn configure(&self, options: LaunchOptions) -> Result<LaunchConfiguration, Error> {
        let (driver, limit) = (self.context().driver(), self.attributes().max_threads_per_block);
        let threads = options.threads.iter().try_fold(1_u32, |product, &count| product.checked_mul(count));
        if !threads.is_some_and(|threads| (1..=limit).contains(&threads)) {
            return Err(Error::InvalidBlock {
                kernel: self.name().to_owned(),
                threads: options.threads,
                limit,
            });
        }
        let _entered = self.context().enter()?;
        let set = |attribute, value| {
            let set = driver.set_function_attribute(self.handle(), attribute, value);
            set.map_err(|error| error.about_kernel(self.name()))
        };
        self.opt_in(options.shared_bytes)?;
        let mut attributes = SmallVec::new();
        if options.cluster != [1; 3] {
            if options.cluster.iter().fold(1, |product: u32, &count| product.saturating_mul(count))
                > PORTABLE_CLUSTER
            {
                set(function_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
            }
            attributes.push(LaunchAttribute::new(LaunchAttribute::CLUSTER_DIMENSION, options.cluster));
        }
        for (is_set, id) in [
            (options.programmatic, LaunchAttribute::PROGRAMMATIC_STREAM_SERIALIZATION),
            (options.cooperative, LaunchAttribute::COOPERATIVE),
        ] {
            attributes.extend(is_set.then(|| LaunchAttribute::new(id, [1, 0, 0])));
        }
        Ok(LaunchConfiguration { function: self.clone(), options, attributes })
    }

    /// Lets a block have `dynamic` bytes of dynamic shared memory. Opts in if the dynamic bytes and
    /// the kernel's static bytes together exceed 48 KiB. The kernel's context must be current.
    pub(crate) fn opt_in(&self, dynamic: u32) -> Result<(), Error> {
        let fixed = self.attributes().shared_bytes;
        if dynamic.saturating_add(fixed) <= SHARED_WITHOUT_OPTIN {
            return Ok(());
        }
        let limit = self.context().device().properties()?.shared_memory_per_block_optin;
        if dynamic.saturating_add(fixed) > limit {
            return Err(Error::OutOfSharedMemory { kernel: self.name().to_owned(), dynamic, fixed, limit });
        }
        let driver = self.context().driver();
        let set = driver.prefer_shared_memory(self.handle()).and_then(|()| {
            // The maximum, so that another configuration of the same kernel never lowers it.
            let attribute = function_attribute::MAX_DYNAMIC_SHARED_BYTES;
            driver.set_function_attribute(self.handle(), attribute, limit - fixed)
        });
        set.map_err(|error| error.about_kernel(self.name()))
    }
}

/// A kernel with its launch options. Any thread may launch it.
#[derive(Clone, Debug)]
pub struct LaunchConfiguration {
    function: Function,
    options: LaunchOptions,
    attributes: SmallVec<[LaunchAttribute; 3]>,
}

impl LaunchConfiguration {
    /// Returns the kernel.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Returns the options of the configuration.
    pub fn options(&self) -> LaunchOptions {
        self.options
    }

    /// Starts the kernel on a stream without waiting. A grid with an extent of 0 is legal and
    /// starts nothing.
    ///
    /// `parameters` are the bytes of the kernel's parameter memory; see [`Parameters`]. The
    /// compiler of the kernel must ensure that the kernel only accesses memory that the parameters
    /// point to.
    ///
    /// # Errors
    /// - [`Error::GridTooLarge`] and [`Error::WrongParameters`].
    /// - The driver's errors, including failures of kernels that were launched earlier.
    #[inline]
    pub fn launch(&self, grid: [u32; 3], stream: StreamRef<'_>, parameters: &[u8]) -> Result<(), Error> {
        let ([x, y, z], [max_x, max_y, max_z]) = (grid, MAX_GRID);
        if x == 0 || y == 0 || z == 0 {
            return Ok(());
        }
        if x > max_x || y > max_y || z > max_z {
            return Err(self.too_large(grid));
        }
        if self.function.attributes().parameter_bytes.is_some_and(|bytes| bytes != parameters.len()) {
            return Err(self.wrong_parameters(parameters.len()));
        }
        let context = self.function.context();
        let launch = self.describe(grid, stream.handle());
        let launched = context
            .enter()
            .and_then(|_entered| context.driver().launch(self.function.handle(), launch, parameters));
        launched.map_err(|error| error.about_kernel(self.function.name()))
    }

    /// Returns the maximum number of resident clusters of this configuration on the device.
    pub fn max_active_clusters(&self) -> Result<u32, Error> {
        let context = self.function.context();
        let _entered = context.enter()?;
        let launch = self.describe(self.options.cluster, StreamHandle::NULL);
        let clusters = context.driver().max_active_clusters(self.function.handle(), launch);
        clusters.map_err(|error| error.about_kernel(self.function.name()))
    }

    fn describe(&self, grid: [u32; 3], stream: StreamHandle) -> Launch<'_> {
        let LaunchOptions { threads: block, shared_bytes, .. } = self.options;
        Launch { grid, block, shared_bytes, stream, attributes: &self.attributes }
    }

    #[cold]
    fn too_large(&self, grid: [u32; 3]) -> Error {
        let axis =
            (0..3).find(|&axis| grid[axis] > MAX_GRID[axis]).expect("called for a grid that is too large");
        let kernel = self.function.name().to_owned();
        Error::GridTooLarge { kernel, axis, extent: grid[axis], limit: MAX_GRID[axis] }
    }

    #[cold]
    fn wrong_parameters(&self, found: usize) -> Error {
        let expected = self.function.attributes().parameter_bytes.unwrap_or_default();
        Error::WrongParameters { kernel: self.function.name().to_owned(), found, expected }
    }
}

/// The parameters of a kernel in the layout of PTX's `.param` space. Each parameter follows the
/// previous one at an aligned offset. For an alignment above 16 bytes,
/// [`Function::parameter_offset`] returns the offset.
///
/// A caller reuses one `Parameters` and clears it before each launch, so that a launch does not
/// allocate.
#[derive(Clone, Default, Debug)]
pub struct Parameters {
    /// The buffer. Its first `used` bytes are the parameters.
    bytes: Vec<u8>,
    used: usize,
}

impl Parameters {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a number or an address with the alignment of its type.
    #[inline]
    pub fn push<T: NoUninit>(&mut self, value: T) -> &mut Self {
        self.push_bytes(bytemuck::bytes_of(&value), align_of::<T>())
    }

    /// Appends bytes at a multiple of `alignment`. The alignment is at most 16 bytes.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8], alignment: usize) -> &mut Self {
        debug_assert!(alignment <= 16, "`Function::parameter_offset` returns the offset of such a parameter");
        self.push_at(bytes, self.used.next_multiple_of(alignment))
    }

    /// Appends a tensor map as a parameter that is passed by value. `offset` is the result of
    /// [`Function::parameter_offset`] for this parameter.
    pub fn push_tensor_map(&mut self, map: &TensorMap, offset: usize) -> &mut Self {
        self.push_at(map.as_bytes(), offset)
    }

    /// Appends bytes at the offset `start`, which must not be less than the end of the previous
    /// parameter. Fills the bytes between the two parameters with 0.
    #[inline]
    pub fn push_at(&mut self, bytes: &[u8], start: usize) -> &mut Self {
        let end = start + bytes.len();
        if end > self.bytes.len() {
            self.grow(end);
        }
        self.bytes[self.used..start].fill(0);
        self.bytes[start..end].copy_from_slice(bytes);
        self.used = end;
        self
    }

    #[cold]
    fn grow(&mut self, least: usize) {
        self.bytes.resize(least.next_power_of_two().max(256), 0);
    }

    /// Removes all parameters, but keeps the allocation.
    pub fn clear(&mut self) -> &mut Self {
        self.used = 0;
        self
    }

    /// Returns the parameters for a launch.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}
