//! Loads modules: the text, the functions, and the memory of the variables.

use std::fmt;
use std::sync::{Arc, Mutex};

use rustc_hash::FxHashMap;
use tilewright_ptx::isa::{
    self, FunctionId, FunctionKind, GlobalId, Immediate, Initializer, ScalarType, StateSpace, Symbol,
};

use crate::call::address_of;
use crate::decode::{Parameter, Program, decode};
use crate::fault::{Fault, FaultKind, Location};
use crate::memory::variables::{ALIGNMENT, Storage};
use crate::memory::{Global, Region};
use crate::numeric::Format;
use crate::numeric::convert::Conversion;
use crate::target::SimTarget;

/// The reason why a module cannot be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The text is not valid PTX.
    Parse(isa::ParseError),
    /// The simulated device does not run modules for this target.
    Target {
        /// The target of the module.
        module: String,
        /// The target of the simulated device.
        device: String,
    },
    /// An assembler would reject the module: the violated rule, and the lines that show it.
    Refused(isa::Misuse, String),
    /// A feature, by name, that the simulator does not support.
    Unsupported(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse(error) => write!(f, "{error}"),
            Self::Target { module, device } => {
                write!(f, "the module is for {module}, the simulated device is {device}")
            }
            Self::Refused(_, shown) => f.write_str(shown),
            Self::Unsupported(what) => write!(f, "the simulator does not support {what}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// A loaded module. Its variables keep their values between launches.
pub struct LoadedModule {
    pub(crate) target: SimTarget,
    isa: isa::Module,
    /// The lines of the text, if there is one.
    lines: Vec<String>,
    storage: Storage,
    /// The addresses of the variables in global and constant memory.
    addresses: FxHashMap<GlobalId, u64>,
    programs: Mutex<FxHashMap<String, Arc<Program>>>,
}

impl fmt::Debug for LoadedModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedModule").field("target", &self.isa.target).finish_non_exhaustive()
    }
}

/// The maximum size of a variable, and of all global variables together, in bytes of host memory.
const MAX_VARIABLE_BYTES: u64 = 1 << 30;

impl LoadedModule {
    pub(crate) fn load(target: &SimTarget, isa: isa::Module, text: &str) -> Result<Self, LoadError> {
        if !target.runs(&isa.target) {
            return Err(LoadError::Target { module: isa.target, device: target.name().into() });
        }
        isa::check(&isa).map_err(|misuse| {
            let shown = misuse.render(text);
            LoadError::Refused(misuse, shown)
        })?;
        if isa.address_size != 64 {
            return Err(LoadError::Unsupported(format!("addresses of {} bits", isa.address_size)));
        }
        let functions = isa.functions.values().flat_map(|function| function.variables.values());
        if let Some(large) = isa.globals.values().chain(functions).find(|variable| {
            variable.bytes() > MAX_VARIABLE_BYTES || u64::from(variable.alignment()) > MAX_VARIABLE_BYTES
        }) {
            let (name, bytes) = (&large.name, large.bytes());
            return Err(LoadError::Unsupported(format!("the variable `{name}` of {bytes} bytes")));
        }
        let mut offsets = FxHashMap::default();
        let mut end = 0;
        for (id, variable) in &isa.globals {
            if !matches!(variable.space, StateSpace::Global | StateSpace::Const) {
                continue;
            }
            if u64::from(variable.alignment()) > ALIGNMENT {
                let (name, bytes) = (&variable.name, variable.alignment());
                let what = format!("the variable `{name}` with an alignment of {bytes} bytes");
                return Err(LoadError::Unsupported(what));
            }
            // A gap separates variables, so that an access past the end of one is not in the next.
            let start = (end + 1_u64).next_multiple_of(u64::from(variable.alignment()).max(16));
            offsets.insert(id, start);
            end = start + variable.bytes();
        }
        if end > MAX_VARIABLE_BYTES {
            return Err(LoadError::Unsupported(format!("variables of {end} bytes")));
        }
        let storage = Storage::new(end as usize);
        let base = storage.region().address();
        let addresses = offsets.into_iter().map(|(id, offset)| (id, base + offset)).collect();
        let lines = text.lines().map(str::to_owned).collect();
        let target = target.clone();
        let module = Self { target, isa, lines, storage, addresses, programs: Mutex::default() };
        module.initialize()?;
        Ok(module)
    }

    /// Writes the initial values of the variables.
    fn initialize(&self) -> Result<(), LoadError> {
        let memory = Global::new(&[self.storage.region()]);
        for (id, address) in &self.addresses {
            let variable = &self.isa.globals[*id];
            let size = variable.ty.bytes() as usize;
            for (index, element) in variable.initializer.iter().enumerate() {
                let value = self.initial(element, variable.ty)?;
                let at = address + (index * size) as u64;
                memory.write(&mut 0, at, &value.to_le_bytes()[..size]).map_err(|_| {
                    LoadError::Unsupported(format!(
                        "the variable `{}`, which has more initial values than elements",
                        variable.name
                    ))
                })?;
            }
        }
        Ok(())
    }

    fn initial(&self, element: &Initializer, ty: ScalarType) -> Result<u64, LoadError> {
        match *element {
            Initializer::Value(Immediate::Integer(value)) => Ok(value as u64),
            Initializer::Value(Immediate::F32(bits)) if ty == ScalarType::F64 => {
                Ok(Conversion::plain(Format::F32, Format::F64).apply(bits.into()))
            }
            Initializer::Value(Immediate::F32(bits)) => Ok(bits.into()),
            Initializer::Value(Immediate::F64(bits)) if ty == ScalarType::F32 => {
                Ok(Conversion::plain(Format::F64, Format::F32).apply(bits))
            }
            Initializer::Value(Immediate::F64(bits)) => Ok(bits),
            Initializer::Address { symbol: Symbol::Global(id), offset, mask, .. } => {
                let address = self.addresses.get(&id).ok_or_else(|| {
                    LoadError::Unsupported("a variable that holds the address of shared memory".into())
                })?;
                let address = address.wrapping_add_signed(offset);
                Ok(masked(address, mask))
            }
            Initializer::Address { symbol: Symbol::Function(id), offset: 0, mask, .. } => {
                Ok(masked(address_of(&self.isa, id), mask))
            }
            Initializer::Address { symbol: Symbol::Function(_) | Symbol::Variable(_), .. } => Err(
                LoadError::Unsupported("a variable that holds the address of a part of a function".into()),
            ),
        }
    }

    /// Returns the names of the kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        let functions = self.isa.functions.values();
        let kernels =
            functions.filter(|function| function.kind == FunctionKind::Entry && function.body.is_some());
        kernels.map(|function| function.name.as_str())
    }

    /// Returns the layout of a kernel's parameters in the parameter buffer.
    pub fn parameters(&self, kernel: &str) -> Result<Vec<Parameter>, Box<Fault>> {
        Ok(self.program(kernel)?.1.parameters.clone())
    }

    /// Returns the address of a variable in global or constant memory, and its size in bytes.
    pub fn variable(&self, name: &str) -> Option<(u64, u64)> {
        let (id, variable) = self.isa.globals.iter().find(|(_, variable)| variable.name == name)?;
        Some((*self.addresses.get(&id)?, variable.bytes()))
    }

    pub(crate) fn region(&self) -> Region<'_> {
        self.storage.region()
    }

    /// Returns a kernel in executable form, decoded at the first use.
    pub(crate) fn program(&self, kernel: &str) -> Result<(FunctionId, Arc<Program>), Box<Fault>> {
        let fault = |kind| Fault::of_launch(kernel, kind);
        let id = self
            .isa
            .function(kernel)
            .ok_or_else(|| fault(FaultKind::Illegal(format!("the module has no kernel `{kernel}`"))))?;
        let mut programs = self.programs.lock().expect("no thread panics while it holds the lock");
        if let Some(program) = programs.get(kernel) {
            return Ok((id, Arc::clone(program)));
        }
        let addresses = |id: GlobalId| self.addresses[&id];
        let program = decode(&self.isa, id, &addresses).map_err(fault)?;
        let program = Arc::new(program);
        programs.insert(kernel.into(), Arc::clone(&program));
        Ok((id, program))
    }

    pub(crate) fn function(&self, id: FunctionId) -> &isa::Function {
        &self.isa.functions[id]
    }

    /// Returns the location of a PTX line. `kernel` is the file and the line of its `.loc`.
    pub(crate) fn location(&self, ptx_line: u32, kernel: Option<(u32, u32)>) -> Location {
        let kernel = kernel.map(|(file, line)| {
            let found = self.isa.files.iter().find(|known| known.number == file);
            (found.map_or_else(|| format!("file {file}"), |file| file.path.clone()), line)
        });
        Location { ptx_line, kernel }
    }

    /// Returns the text of a line, if the module was loaded from a text.
    pub(crate) fn line(&self, line: u32) -> Option<String> {
        Some(self.lines.get((line as usize).checked_sub(1)?)?.trim().to_owned())
    }
}

/// Returns the bits of an address that a mask selects, shifted to bit 0.
fn masked(address: u64, mask: Option<u64>) -> u64 {
    mask.map_or(address, |mask| (address & mask) >> mask.trailing_zeros())
}
