//! Loads modules of device code on a device, and finds their kernels.

use std::borrow::Cow;
use std::sync::Arc;

use crate::assemble::{AssembleOptions, assemble};
use crate::image::Image;
use crate::sys::{FunctionHandle, ModuleHandle, function_attribute as attribute, needed_version};
use crate::{Context, Error};

/// Loaded device code. The driver unloads the code when the module and all its [`Function`]s are
/// dropped.
#[derive(Clone, Debug)]
pub struct Module(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    context: Context,
    handle: ModuleHandle,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // The context may already be destroyed.
        if let Ok(_entered) = self.context.enter() {
            let _ = self.context.driver().unload_module(self.handle);
        }
    }
}

impl Module {
    /// Loads a cubin, a fat binary or PTX. PTX is first assembled with the default options. Errors
    /// name `kernel` as their subject.
    pub fn load(context: Context, kernel: &str, image: &[u8]) -> Result<Self, Error> {
        let invalid = |reason| Error::InvalidImage { kernel: kernel.to_owned(), reason };
        let image = if Image::is_binary(image) {
            Cow::Borrowed(image)
        } else {
            let ptx = std::str::from_utf8(image).map_err(|_| invalid("it is neither a cubin nor PTX"))?;
            Cow::Owned(assemble(context, kernel, ptx, AssembleOptions::default())?.cubin)
        };
        let image = Image::new(&image).map_err(invalid)?;
        let _entered = context.enter()?;
        let handle = context.driver().load_module(image).map_err(|error| error.about_kernel(kernel))?;
        Ok(Self(Arc::new(Loaded { context, handle })))
    }

    /// Returns the context in which the module is loaded.
    pub fn context(&self) -> Context {
        self.0.context
    }

    /// Returns the handle of the module for other libraries (`CUmodule`).
    pub fn raw(&self) -> u64 {
        self.0.handle.0.addr() as u64
    }

    /// Returns the kernel with this name.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        self.find(name, None)
    }

    /// Returns the kernel with this name, given its number of parameters.
    /// [`function`](Self::function) does not have this number. It queries the driver for one
    /// parameter after the other until a query fails.
    pub fn function_of(&self, name: &str, parameters: usize) -> Result<Function, Error> {
        self.find(name, Some(parameters))
    }

    fn find(&self, name: &str, count: Option<usize>) -> Result<Function, Error> {
        let (context, driver) = (self.context(), self.context().driver());
        let _entered = context.enter()?;
        let named = |error: Error| error.about_kernel(name);
        let handle = driver.function(self.0.handle, name).map_err(named)?;
        let get = |attribute| driver.function_attribute(handle, attribute).map_err(named);
        let parameters = driver.parameters(handle, count).map_err(named)?;
        let attributes = FunctionAttributes {
            registers: get(attribute::REGISTERS)?,
            local_bytes: get(attribute::LOCAL_BYTES)?,
            shared_bytes: get(attribute::SHARED_BYTES)?,
            constant_bytes: get(attribute::CONSTANT_BYTES)?,
            max_threads_per_block: get(attribute::MAX_THREADS_PER_BLOCK)?,
            binary_version: get(attribute::BINARY_VERSION)?,
            parameter_bytes: parameters
                .as_ref()
                .map(|list| list.last().map_or(0, |(offset, bytes)| offset + bytes)),
        };
        let parameters = parameters.map(Arc::from);
        Ok(Function { module: self.clone(), handle, name: name.into(), attributes, parameters })
    }

    /// Returns the address and the size in bytes of a global variable.
    pub fn global(&self, name: &str) -> Result<(u64, usize), Error> {
        let _entered = self.context().enter()?;
        let find = self.context().driver().global(self.0.handle, name);
        find.map_err(|error| error.about(|| format!("global variable `{name}`")))
    }
}

/// The resources of a kernel. The driver reports them when the kernel is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionAttributes {
    /// The number of registers of a thread.
    pub registers: u32,
    /// The local memory of a thread in bytes: spilled registers and indexed arrays.
    pub local_bytes: u32,
    /// The static shared memory of a block in bytes, which the kernel declares.
    pub shared_bytes: u32,
    /// The constant memory in bytes.
    pub constant_bytes: u32,
    /// The maximum number of threads of a block, which the number of registers limits.
    pub max_threads_per_block: u32,
    /// The compute capability that the code is compiled for, as `10 * major + minor`.
    pub binary_version: u32,
    /// The size of the parameters in bytes. `None` if the driver is older than CUDA 12.4.
    pub parameter_bytes: Option<usize>,
}

impl FunctionAttributes {
    /// Returns the number of spilled registers of a thread. As in Triton, this number is the local
    /// memory in words of 4 bytes. It therefore includes indexed arrays.
    pub fn spills(&self) -> u32 {
        self.local_bytes / 4
    }
}

/// A kernel of a module. The module stays loaded while the kernel is alive.
#[derive(Clone, Debug)]
pub struct Function {
    module: Module,
    handle: FunctionHandle,
    name: Arc<str>,
    attributes: FunctionAttributes,
    /// The offset and the size in bytes of each parameter. `None` if the driver does not provide
    /// them.
    parameters: Option<Arc<[(usize, usize)]>>,
}

impl Function {
    /// Returns the name of the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the attributes of the kernel.
    pub fn attributes(&self) -> FunctionAttributes {
        self.attributes
    }

    /// Returns the offset in bytes of the parameter with this index in the buffer of parameters.
    ///
    /// Parameters such as tensor maps are aligned to more than 16 bytes. Such a parameter is
    /// aligned in the device's constant bank, not in the buffer. The buffer begins at an offset in
    /// the bank that depends on the architecture. The offset of the parameter must therefore be
    /// queried from the driver.
    ///
    /// # Errors
    /// - [`Error::NotInThisDriver`] if the driver is older than CUDA 12.4.
    /// - [`Error::NoSuchParameter`] if the kernel has no parameter with this index.
    pub fn parameter_offset(&self, index: usize) -> Result<usize, Error> {
        let Some(parameters) = &self.parameters else {
            let call = "cuFuncGetParamInfo";
            let found = self.context().driver().version();
            return Err(Error::NotInThisDriver { call, found, needed: needed_version(call) });
        };
        let missing =
            || Error::NoSuchParameter { kernel: self.name.to_string(), index, count: parameters.len() };
        parameters.get(index).map(|(offset, _)| *offset).ok_or_else(missing)
    }

    /// Returns the context in which the module is loaded.
    pub fn context(&self) -> Context {
        self.module.context()
    }

    /// Returns the handle of the kernel for other libraries (`CUfunction`).
    pub fn raw(&self) -> u64 {
        self.handle.0.addr() as u64
    }

    pub(crate) fn handle(&self) -> FunctionHandle {
        self.handle
    }

    /// Returns the maximum number of blocks that are resident on a multiprocessor at the same time.
    ///
    /// A block has `threads` threads and `shared_bytes` bytes of dynamic shared memory.
    ///
    /// # Errors
    /// [`Error::OutOfSharedMemory`] if a block cannot have `shared_bytes` bytes of dynamic shared
    /// memory.
    pub fn max_active_blocks(&self, threads: u32, shared_bytes: u32) -> Result<u32, Error> {
        let _entered = self.context().enter()?;
        self.opt_in(shared_bytes)?;
        let blocks = self.context().driver().max_active_blocks(self.handle, threads, shared_bytes);
        blocks.map_err(|error| error.about_kernel(&self.name))
    }
}
