//! Launches device code with arguments that the caller writes one by one.

use std::cell::Cell;

use tilewright_base::{Code, Diagnostic};
use tilewright_cuda::{Function, LaunchConfiguration, Parameters, StreamRef, TensorMap};
use tilewright_ir::{Dtype, Element};

use super::{Slot, invalid};
use crate::specialize::pack;
use crate::{Error, Grid, Handle, Loaded, Value};

thread_local! {
    /// The buffer of parameters, reused from launch to launch. A launch takes it out of the cell,
    /// because reading an argument may launch another kernel.
    static PARAMETERS: Cell<Parameters> = Cell::new(Parameters::new());
}

/// A launch whose arguments are being written.
#[derive(Debug)]
pub struct Call<'l> {
    launch: &'l LaunchConfiguration,
    /// The kernel's [`Handle`], if this process has compiled the kernel. The launch then makes the
    /// tensor maps.
    handle: Option<&'l Handle>,
    parameters: Parameters,
    /// The number of arguments that were written.
    count: usize,
}

impl<'l> Call<'l> {
    /// Creates a launch without arguments.
    #[inline]
    pub fn new(launch: &'l LaunchConfiguration) -> Self {
        let mut parameters = PARAMETERS.take();
        parameters.clear();
        Self { launch, handle: None, parameters, count: 0 }
    }

    /// Creates a launch of a kernel that this process has compiled. The launch also makes the
    /// kernel's tensor maps. Fails if the kernel is not compiled for a GPU, or if the GPU is
    /// simulated.
    pub fn of_handle(handle: &'l Handle) -> Result<Self, Error> {
        let launch = match handle.loaded()? {
            Some(Loaded::Cuda { launch, .. }) => launch,
            Some(Loaded::Sim { .. }) | None => {
                let name = &handle.compiled.name;
                let message = format!("kernel '{name}' must be compiled for a real GPU");
                return Err(invalid(message).into());
            }
        };
        Ok(Self { handle: Some(handle), ..Self::new(launch) })
    }

    fn function(&self) -> &'l Function {
        self.launch.function()
    }

    /// Returns the slots for a call with `given` arguments: all slots, or only the run-time slots.
    /// Callers for some releases of Triton pass all arguments. Callers for other releases omit the
    /// compile-time values. Fails if `given` is neither of these counts.
    pub fn slots<'s>(
        &self,
        slots: &'s [Slot],
        given: usize,
    ) -> Result<impl Iterator<Item = &'s Slot> + use<'s>, Error> {
        let is_passed = |slot: &&Slot| !matches!(slot, Slot::Constexpr);
        let is_each_given = given == slots.len();
        let count = || slots.iter().filter(is_passed).count();
        if !is_each_given && given != count() {
            let (name, all, passed) = (self.function().name(), slots.len(), count());
            let message = format!(
                "kernel '{name}' is launched with {given} arguments, and takes {all} ({passed} without compile-time values)"
            );
            return Err(invalid(message).into());
        }
        Ok(slots.iter().filter(move |slot| is_each_given || is_passed(slot)))
    }

    /// Passes an address.
    #[inline]
    pub fn address(&mut self, address: u64) {
        self.parameters.push(address);
        self.count += 1;
    }

    /// Passes a number, converted to a type. Returns `None` if the type cannot represent the
    /// number.
    #[inline]
    pub fn number(&mut self, dtype: Dtype, number: &Value<'_>) -> Option<()> {
        pack(Element::Value(dtype), number, &mut self.parameters)?;
        self.count += 1;
        Some(())
    }

    /// Passes a tensor map.
    pub fn tensor_map(&mut self, map: &TensorMap) -> Result<(), Error> {
        let offset = self.function().parameter_offset(self.count)?;
        self.parameters.push_tensor_map(map, offset);
        self.count += 1;
        Ok(())
    }

    /// Returns whether the kernel has a parameter for one more address. Triton's kernels have two
    /// parameters for scratch memory after their arguments.
    pub fn takes_scratch(&self) -> bool {
        if self.handle.is_some() {
            // The other parameters are tensor maps.
            return false;
        }
        let expected = self.function().attributes().parameter_bytes.unwrap_or_default();
        let used = self.parameters.as_bytes().len().next_multiple_of(size_of::<u64>());
        used + size_of::<u64>() <= expected
    }

    /// Starts the launch for a grid of `programs`. The blocks of a program form a cluster.
    pub fn start(mut self, programs: [i64; 3], stream: StreamRef<'_>) -> Result<(), Error> {
        let [x, y, z] = Grid::new(&programs.map(i128::from))?.extents();
        let blocks = [x.saturating_mul(self.launch.options().cluster[0]), y, z];
        let started = match self.handle {
            // `launch_passed` multiplies the programs by the blocks of a cluster.
            Some(handle) => handle.launch_passed(stream, [x, y, z], &mut self.parameters),
            None => self.launch.launch(blocks, stream, self.parameters.as_bytes()).map_err(Error::from),
        };
        PARAMETERS.set(self.parameters);
        started
    }

    /// Returns the error for an argument that does not fit the next parameter.
    #[cold]
    pub fn misfit(&self, found: &str, expected: &str) -> Error {
        let (count, name) = (self.count, self.function().name());
        let message = format!("parameter {count} of kernel '{name}' cannot be passed");
        let note = format!("found {found}, expected {expected}; parameters are counted from 0");
        invalid(message).note(note).into()
    }

    /// Returns the error for an argument whose memory the GPU cannot read. `class` is the Python
    /// class of the argument.
    #[cold]
    pub fn in_main_memory(&self, class: &str) -> Error {
        let (count, name) = (self.count, self.function().name());
        let message = format!("parameter {count} of kernel '{name}' is on device 'cpu'");
        let note = format!(
            "found a {class} in main memory, which the GPU cannot read; parameters are counted from 0"
        );
        let hint = "move it with `.to('cuda')`, or pin it";
        Diagnostic::new(Code::WrongDevice, message).note(note).hint(hint).into()
    }
}
