//! Defines a kernel with its cache of compiled variants.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::thread::ThreadId;

use rustc_hash::FxHashMap;
use tilewright_compiler::{
    CodegenOptions, CompiledKernel, DumpHook, Job, Target, compile, compile_lowered, lower, parse_lowered,
};
use tilewright_frontend::{Argument, FunctionRef, FunctionSource, Host, Lowered, Request};

use crate::handle::{Attachment, Handle};
use crate::key::Key;
use crate::lock::{self, Found};
use crate::signature::{Binding, Signature};
use crate::specialize::{Misfit, Why, argument, encode};
use crate::{Device, Error, Grid, Interrupt, Knobs, Options, Value, dump};

/// A `@jit` function and all code that was compiled from it. Threads may share a kernel. Only the
/// [`Host`] that the caller passes for a compilation may need Python.
///
/// ```text
/// bind            assigns arguments to parameters (errors TW0101, TW0102, TW0107)
/// lookup          arguments and options -> handle, if compiled (errors TW0105, TW0106, TW0109)
/// specialize      as lookup; compiles a missing variant, or waits for a thread that compiles it
/// Handle::launch  runs the kernel (errors TW02xx)
/// ```
#[derive(Debug)]
pub struct Kernel {
    signature: Arc<Signature>,
    function: FunctionRef,
    device: Option<Device>,
    /// The device of launches whose tensors are in main memory.
    processor: Device,
    compiled: RwLock<CompiledVariants>,
    /// The running compilations, by the key of the variant.
    in_flight: Mutex<FxHashMap<Key, Flight>>,
    /// Notified when a compilation ends.
    landed: Condvar,
}

#[derive(Debug, Default)]
struct CompiledVariants {
    /// All variants, by the key of the arguments and options of their launches.
    by_key: FxHashMap<Key, Arc<Handle>>,
    /// The variants whose code is also correct for other options. Their keys have only what the
    /// code depends on.
    shareable: FxHashMap<Key, Arc<Handle>>,
}

/// A running compilation.
#[derive(Clone, Copy, Debug)]
struct Flight {
    thread: ThreadId,
}

impl Kernel {
    /// Creates a kernel without compiled variants. The compiler requests the source of `function`
    /// from the [`Host`]. Without a `device`, each launch runs on the device of its tensors.
    pub fn new(signature: Signature, function: FunctionRef, device: Option<Device>) -> Self {
        Self {
            signature: Arc::new(signature),
            function,
            device,
            processor: Device::Cpu,
            compiled: RwLock::default(),
            in_flight: Mutex::default(),
            landed: Condvar::new(),
        }
    }

    /// Returns the kernel with `device` in place of the processor. For a kernel that only GPUs can
    /// run, such as a Gluon kernel, the device is the simulator.
    #[must_use]
    pub fn in_place_of_processor(mut self, device: Device) -> Self {
        self.processor = device;
        self.device = self.device.map(|own| if own == Device::Cpu { device } else { own });
        self
    }

    /// Returns the name and the parameters.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Returns the same kernel for a device, without compiled variants.
    #[must_use]
    pub fn on(&self, device: Device) -> Self {
        let kernel = Self::new(Signature::clone(&self.signature), self.function, Some(device));
        kernel.in_place_of_processor(self.processor)
    }

    /// Returns the device that a launch with these arguments runs on.
    #[inline]
    pub fn device_of<'a, 'm: 'a>(&self, arguments: impl IntoIterator<Item = &'a Value<'m>>) -> Device {
        self.device.unwrap_or_else(|| arguments.into_iter().find_map(Value::gpu).unwrap_or(self.processor))
    }

    /// Binds the arguments of a call to the parameters; see [`Signature::bind`].
    pub fn bind(&self, positional: usize, keywords: &[&str]) -> Result<Binding, Error> {
        self.signature.bind(positional, keywords)
    }

    /// Returns the compiled variant for these options and for `arguments`, one for each parameter.
    /// Returns `None` if there is none yet. Does not compile, and does not allocate if the key of
    /// the variant has at most 32 words.
    pub fn lookup(&self, arguments: &[Value<'_>], options: &Options) -> Result<Option<Arc<Handle>>, Error> {
        let key = self.key(arguments, options)?;
        Ok(self.find(&key))
    }

    /// Returns the compiled variant, and compiles it if there is none. If several threads request
    /// the same variant at the same time, one thread compiles and the others wait. A Python caller
    /// therefore releases the GIL around this call, and its `host` acquires the GIL in each method.
    pub fn specialize(
        &self,
        arguments: &[Value<'_>],
        options: &Options,
        host: &mut dyn Host,
    ) -> Result<Arc<Handle>, Error> {
        self.specialize_with(arguments, options, host, &mut || Some(Arc::new(())))
    }

    /// Specializes as [`specialize`](Self::specialize) does, and attaches data. Calls `attach`
    /// after the compilation. Stores the result in the handle before another launch can find the
    /// handle. If `attach` returns `None`, the handle is not cached.
    ///
    /// Does not call `attach` if the code already exists. Then another thread has compiled it, or
    /// the code does not depend on the options that differ. A handle with existing code may be out
    /// of date, like a handle that [`lookup`](Self::lookup) returns: values that the compilation
    /// read may have changed.
    pub fn specialize_with(
        &self,
        arguments: &[Value<'_>],
        options: &Options,
        host: &mut dyn Host,
        attach: &mut dyn FnMut() -> Option<Attachment>,
    ) -> Result<Arc<Handle>, Error> {
        let key = self.key(arguments, options)?;
        if let Some(handle) = self.find(&key) {
            return Ok(handle);
        }
        let _landing = match self.take_off(&key) {
            TakeOff::Landed(handle) => return Ok(handle),
            TakeOff::Ours(landing) => Some(landing),
            TakeOff::Nested => None,
        };
        let shared_key = self.shared_key(arguments, options)?;
        if let Some(handle) = shared_key.as_ref().and_then(|shared_key| self.share(shared_key, options)) {
            self.write().by_key.insert(key.clone(), Arc::clone(&handle));
            return Ok(handle);
        }
        let mut handle = self.compile(arguments, options, host)?;
        handle.attachment = attach();
        let is_kept = handle.attachment.is_some();
        let handle = Arc::new(handle);
        if is_kept {
            let mut variants = self.write();
            variants.by_key.insert(key.clone(), Arc::clone(&handle));
            if let Some(shared_key) = shared_key.filter(|_| handle.compiled.is_shareable) {
                variants.shareable.insert(shared_key, Arc::clone(&handle));
            }
        }
        Ok(handle)
    }

    /// Returns the key of what the code depends on. Returns `None` for a GPU, whose code depends on
    /// all options, and while stages are dumped. Also returns `None` during a recording, because the
    /// code for the other targets of the recording depends on all options.
    fn shared_key(&self, arguments: &[Value<'_>], options: &Options) -> Result<Option<Key>, Error> {
        let is_for_cpu = self.device_of(arguments).target()? == Target::Cpu;
        if !is_for_cpu || dump::is_on(&Knobs::current()) || lock::is_recording_here() {
            return Ok(None);
        }
        self.key(arguments, &options.of_language()).map(Some)
    }

    /// Returns a handle that shares the code of another variant, if the code does not depend on the
    /// options that differ.
    fn share(&self, shared_key: &Key, options: &Options) -> Option<Arc<Handle>> {
        let variants = self.compiled.read().unwrap_or_else(PoisonError::into_inner);
        let handle = variants.shareable.get(shared_key)?;
        Some(Arc::new(handle.shared(options)))
    }

    /// Launches the kernel: looks up the variant, compiles it if there is none, and runs it.
    pub fn run(
        &self,
        grid: Grid,
        arguments: &[Value<'_>],
        options: &Options,
        host: &mut dyn Host,
    ) -> Result<Arc<Handle>, Error> {
        let handle = self.specialize(arguments, options, host)?;
        handle.launch(grid, arguments, Interrupt::Never)?;
        Ok(handle)
    }

    /// Returns every compiled variant.
    pub fn handles(&self) -> Vec<Arc<Handle>> {
        self.compiled.read().unwrap_or_else(PoisonError::into_inner).by_key.values().cloned().collect()
    }

    /// Returns every compiled variant. Returns `None` instead of waiting if another thread is
    /// changing the variants.
    pub fn try_handles(&self) -> Option<Vec<Arc<Handle>>> {
        Some(self.compiled.try_read().ok()?.by_key.values().cloned().collect())
    }

    /// Removes every compiled variant. A caller uses this when the kernel's source has changed.
    pub fn clear(&self) {
        // Dropping the attachments may run code of the program, so the lock is released first.
        let forgotten = std::mem::take(&mut *self.write());
        drop(forgotten);
    }

    /// Removes a compiled variant that is out of date, and the variants that share its code.
    /// Returns these variants, so that the caller drops them after the release of the lock.
    /// Dropping their attachments may run code of the program.
    pub fn forget(&self, handle: &Handle) -> Vec<Arc<Handle>> {
        let mut forgotten = Vec::new();
        let CompiledVariants { by_key, shareable } = &mut *self.write();
        for variants in [by_key, shareable] {
            variants.retain(|_, other| {
                let stays = !other.shares_code_with(handle);
                if !stays {
                    forgotten.push(Arc::clone(other));
                }
                stays
            });
        }
        forgotten
    }

    fn write(&self) -> RwLockWriteGuard<'_, CompiledVariants> {
        self.compiled.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: &Key) -> Option<Arc<Handle>> {
        self.compiled.read().unwrap_or_else(PoisonError::into_inner).by_key.get(key).cloned()
    }

    fn key(&self, arguments: &[Value<'_>], options: &Options) -> Result<Key, Error> {
        let mut key = Key::default();
        let device = self.device_of(arguments);
        key.push(match device {
            Device::Cpu | Device::Sim(_) => 0,
            Device::Cuda(number) => 1 + u64::from(number),
        });
        options.encode(&mut key);
        let parameters = &self.signature.parameters;
        if arguments.len() != parameters.len() {
            return Err(self.signature.wrong_number(arguments.len()));
        }
        for (index, (parameter, value)) in parameters.iter().zip(arguments).enumerate() {
            encode(parameter, value, device, &mut key)
                .map_err(|misfit| self.misfit(index, misfit, device))?;
        }
        Ok(key)
    }

    #[cold]
    fn misfit(&self, index: usize, misfit: Misfit, device: Device) -> Error {
        let Misfit { place, why } = misfit;
        match why {
            Why::Value { found, note, hint } => self.signature.misfit(index, &place, &found, &note, &hint),
            Why::Device(found) => {
                let expected = device.memory().to_string();
                self.signature.wrong_device(index, &place, &found.to_string(), &expected)
            }
        }
    }

    fn compile(
        &self,
        arguments: &[Value<'_>],
        options: &Options,
        host: &mut dyn Host,
    ) -> Result<Handle, Error> {
        let device = self.device_of(arguments);
        self.compile_on(device, self.classify(arguments, device)?, options, true, host)
    }

    /// Returns the compiler's description of the arguments of a launch on a device.
    pub(crate) fn classify(&self, arguments: &[Value<'_>], device: Device) -> Result<Vec<Argument>, Error> {
        let parameters = &self.signature.parameters;
        if arguments.len() != parameters.len() {
            return Err(self.signature.wrong_number(arguments.len()));
        }
        let mut classified = Vec::with_capacity(parameters.len());
        for (index, (parameter, value)) in parameters.iter().zip(arguments).enumerate() {
            let argument =
                argument(parameter, value, device).map_err(|misfit| self.misfit(index, misfit, device))?;
            classified.push(argument);
        }
        Ok(classified)
    }

    /// Compiles the kernel for described arguments, one for each parameter, without the cache. With
    /// `tensor_maps`, the code may use tensor maps. Only the launch of a [`Handle`] creates these.
    pub fn compile_for(
        &self,
        arguments: Vec<Argument>,
        options: &Options,
        tensor_maps: bool,
        host: &mut dyn Host,
    ) -> Result<Handle, Error> {
        self.compile_on(self.device.unwrap_or_default(), arguments, options, tensor_maps, host)
    }

    /// Compiles the kernel from the text of its stage `ir`. Another process has lowered this text
    /// for these arguments and options.
    pub fn compile_ir(
        &self,
        arguments: Vec<Argument>,
        options: &Options,
        tensor_maps: bool,
        text: &str,
    ) -> Result<Handle, Error> {
        let knobs = Knobs::current();
        let path = |job: &Job, dump: &mut DumpHook<'_>| {
            self.compile_or_restore(job, None, parse_lowered(text)?, &knobs, dump)
        };
        self.compile_with(self.device.unwrap_or_default(), arguments, options, tensor_maps, path)
    }

    /// Compiles a kernel from its IR, or restores it from the lock of this process.
    fn compile_or_restore(
        &self,
        job: &Job,
        source: Option<FunctionSource>,
        lowered: Lowered,
        knobs: &Knobs,
        dump: &mut DumpHook<'_>,
    ) -> Result<CompiledKernel, Error> {
        let Some(lock) = lock::active(knobs)? else {
            return Ok(compile_lowered(job, source, lowered, dump)?);
        };
        lock::prepare_for(&lock, job.target);
        match lock.restore((&self.signature.name, job), source, lowered, knobs)? {
            Found::Restored(kernel) => Ok(kernel),
            Found::Missing(source, lowered) => Ok(compile_lowered(job, source, lowered, dump)?),
        }
    }

    fn compile_on(
        &self,
        device: Device,
        arguments: Vec<Argument>,
        options: &Options,
        tensor_maps: bool,
        host: &mut dyn Host,
    ) -> Result<Handle, Error> {
        let name = &*self.signature.name;
        let knobs = Knobs::current();
        let path = |job: &Job, dump: &mut DumpHook<'_>| {
            let compiled = if lock::active(&knobs)?.is_none() {
                compile(job, host, dump)?
            } else {
                let source = host.source(job.request.kernel).ok();
                let lowered = lower(job, host)?;
                self.compile_or_restore(job, source, lowered, &knobs, dump)?
            };
            if let Some(recorder) = lock::recorder(&knobs) {
                recorder.record((name, job), device, options, host)?;
            }
            Ok(compiled)
        };
        self.compile_with(device, arguments, options, tensor_maps, path)
    }

    /// Adds a compiled kernel to the recording of this process. Also adds the variants of the
    /// kernel for tensors that tensor maps cannot describe. Does nothing if this process makes no
    /// recording.
    ///
    /// # Errors
    /// If the recording cannot be written.
    pub fn record(&self, handle: &Handle, host: &mut dyn Host) -> Result<(), Error> {
        match lock::recorder(&Knobs::current()) {
            Some(recorder) => self.record_to(&recorder, handle, host),
            None => Ok(()),
        }
    }

    /// Adds a compiled kernel and its variants to the recording of `recorder`.
    ///
    /// # Errors
    /// If the recording cannot be written.
    pub fn record_to(
        &self,
        recorder: &lock::Recorder,
        handle: &Handle,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        let (device, options) = (handle.device(), handle.options());
        let job = self.job(device, handle.arguments().to_vec(), options, true)?;
        recorder.record((&self.signature.name, &job), device, options, host)?;
        let variants = handle.variants.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        variants.iter().try_for_each(|variant| recorder.record_variant(handle, &variant.kind))
    }

    fn compile_with(
        &self,
        device: Device,
        arguments: Vec<Argument>,
        options: &Options,
        tensor_maps: bool,
        path: impl FnOnce(&Job, &mut DumpHook<'_>) -> Result<CompiledKernel, Error>,
    ) -> Result<Handle, Error> {
        let job = self.job(device, arguments, options, tensor_maps)?;
        let codegen = job.codegen;
        let knobs = Knobs::current();
        let number = dump::number(&knobs);
        let compiled = path(&job, &mut dump::hook(&knobs, &self.signature.name, number, codegen))?;
        let signature = Arc::clone(&self.signature);
        Ok(Handle::new(compiled, (device, number), signature, job.request.arguments, options.clone()))
    }

    /// Returns the input of a compilation for a device.
    fn job(
        &self,
        device: Device,
        arguments: Vec<Argument>,
        options: &Options,
        tensor_maps: bool,
    ) -> Result<Job, Error> {
        let target = device.target()?;
        options.check(target)?;
        // Code for the simulator checks the indices of gathers, unless it may also run on a GPU.
        // Code of a lock may, and so may code without tensor maps. Code with tensor maps stays in
        // this process, because only a `Handle` creates the maps.
        let has_lock = lock::is_locked() || lock::is_recording();
        let check_indices = tensor_maps && matches!(device, Device::Sim(_)) && !has_lock;
        let parameters = self.signature.parameters.iter();
        Ok(Job {
            request: Request {
                kernel: self.function,
                arguments,
                options: options.language_for(target, check_indices),
            },
            parameters: parameters.map(|parameter| Arc::clone(&parameter.name)).collect(),
            target,
            codegen: CodegenOptions { tensor_maps, ..options.codegen() },
        })
    }

    /// Registers this thread for the compilation of a key, or waits for the thread that compiles
    /// it.
    fn take_off<'a>(&'a self, key: &'a Key) -> TakeOff<'a> {
        let thread = std::thread::current().id();
        let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(handle) = self.find(key) {
                return TakeOff::Landed(handle);
            }
            match in_flight.entry(key.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(Flight { thread });
                    return TakeOff::Ours(Landing { kernel: self, key });
                }
                Entry::Occupied(entry) if entry.get().thread == thread => return TakeOff::Nested,
                Entry::Occupied(_) => {
                    in_flight = self.landed.wait(in_flight).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// The next step of a thread that found nothing in the cache.
enum TakeOff<'a> {
    /// Use this handle, because another thread has compiled it meanwhile.
    Landed(Arc<Handle>),
    /// Compile. Other threads wait until the landing is dropped.
    Ours(Landing<'a>),
    /// Compile, without a [`Landing`]. The host of this thread's compilation of the same variant
    /// has launched the kernel again, so the thread must not wait for itself.
    Nested,
}

/// Marks a compilation of this thread. Dropping it wakes the waiting threads.
struct Landing<'a> {
    kernel: &'a Kernel,
    key: &'a Key,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.kernel.in_flight.lock().unwrap_or_else(PoisonError::into_inner).remove(self.key);
        self.kernel.landed.notify_all();
    }
}
