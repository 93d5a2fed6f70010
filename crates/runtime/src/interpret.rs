//! Implements interpret mode: the caller runs the body of the kernel operation by operation.
//!
//! An operation (`x + y`, `tl.load(p, mask=m)`) is compiled as a small program, once for each
//! combination of types and compile-time values. The program is then evaluated on the run-time
//! values. So the operation has the meaning, errors and result bits of a compiled kernel.

mod form;

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use tilewright_base::Diagnostic;
use tilewright_compiler::{CompileError, CompiledOperation, compile_operation};
use tilewright_cpu as cpu;
use tilewright_cpu::{EvaluationError, Interrupt, PaddedReads, Surroundings};
use tilewright_frontend::{
    Argument, Constant, Host, Operand, Operation, hash_with, map_operand, name_parts, operand_of_argument,
    same_operand,
};
use tilewright_ir::{Literal, Type};

use crate::specialize::cpu_argument;
use crate::{Device, Error, Grid, Kernel, Options, Region, Value, padded};

pub use form::{Form, Piece};
pub use tilewright_compiler::locate;
pub use tilewright_cpu::Held;
pub use tilewright_frontend::Site;

/// A scalar or tile at run time. It stays on the thread of its launch.
#[derive(Clone, Debug)]
pub struct Tile {
    /// The type of the scalar or tile.
    pub ty: Type,
    /// The elements.
    pub held: Held,
    /// True if a compiled kernel has this value as a constant, such as a number that was assigned
    /// to a variable. The value is then a scalar, and may be used as a compile-time value.
    pub is_known: bool,
    /// For a pointer to read-only memory, the name of the parameter that declares the memory
    /// read-only. The name is empty for a pointer that was cast to a const pointer.
    pub read_only: Option<Arc<str>>,
}

impl Tile {
    /// Creates a value that is neither a known constant nor read-only.
    pub fn new(ty: Type, held: Held) -> Self {
        Self { ty, held, is_known: false, read_only: None }
    }

    /// Creates a scalar that a compiled kernel has as a constant.
    pub fn constant(literal: Literal) -> Self {
        let (ty, held) = (Type::scalar(literal.dtype), Held::scalar(literal.bits));
        Self { is_known: true, ..Self::new(ty, held) }
    }

    /// Returns the constant that a compiled kernel has for this value, if it has one.
    fn literal(&self) -> Option<Literal> {
        let dtype = self.ty.dtype().filter(|_| self.is_known && self.ty.is_scalar())?;
        Some(Literal { dtype, bits: self.held.uniform_bits()? })
    }
}

/// A launch in interpret mode.
pub struct Launch {
    /// The name of the kernel.
    pub name: String,
    arguments: Vec<cpu::Argument<'static>>,
    names: Vec<Arc<str>>,
    regions: RefCell<Vec<Region<'static>>>,
    grid: Cell<[u32; 3]>,
    id: Cell<[u32; 3]>,
    language: tilewright_frontend::Options,
    /// The compiled operations that refer to functions or objects of the program, which may change
    /// before the next launch.
    cache: RefCell<Cache>,
    /// The errors that loads from the padding of a tensor would have caused.
    padded: RefCell<Vec<CompileError>>,
}

/// The services that a launch uses.
pub struct Environment<'a> {
    /// The host, which resolves the names that an operation refers to.
    pub host: &'a mut dyn Host,
    /// Returns further memory that the kernel may access. Used if a pointer is outside of the
    /// memory of the arguments.
    pub foreign: &'a mut dyn FnMut() -> Vec<Region<'static>>,
    /// Ends a long loop within an operation when the caller interrupts it.
    pub interrupt: Interrupt<'a>,
}

/// Compiled operations, by a hash of the [`Form`], the operands' types and the known constants.
#[derive(Default)]
struct Cache {
    known: FxHashMap<u64, SmallVec<[Rc<Compiled>; 1]>>,
    count: usize,
}

/// A compiled operation, with the [`Form`], the operands and the options that it was compiled for.
struct Compiled {
    form: Form,
    arguments: Vec<Operand<Type>>,
    marks: Marks,
    language: tilewright_frontend::Options,
    operation: CompiledOperation,
}

/// The known constants and the read-only pointers among the operands' run-time values, by index.
#[derive(PartialEq, Default)]
struct Marks {
    known: SmallVec<[(usize, Literal); 4]>,
    read_only: SmallVec<[(usize, Arc<str>); 1]>,
}

impl Marks {
    fn new(tiles: &[Tile]) -> Self {
        let mut marks = Self::default();
        for (index, tile) in tiles.iter().enumerate() {
            marks.known.extend(tile.literal().map(|literal| (index, literal)));
            marks.read_only.extend(tile.read_only.iter().map(|owner| (index, Arc::clone(owner))));
        }
        marks
    }
}

/// The maximum number of operations in a cache. A full cache is cleared.
const MAX_KNOWN: usize = 1 << 13;

thread_local! {
    /// The compiled operations that refer to no function or object of the program.
    static SHARED: RefCell<Cache> = RefCell::default();
}

impl Cache {
    fn find(
        &self,
        hash: u64,
        form: &Form,
        (given, marks): (&[Operand<Tile>], &Marks),
        language: &tilewright_frontend::Options,
    ) -> Option<Rc<Compiled>> {
        let is_same = |known: &&Rc<Compiled>| {
            let mut pairs = given.iter().zip(&known.arguments);
            known.form == *form
                && known.arguments.len() == given.len()
                && known.language == *language
                && known.marks == *marks
                && pairs.all(|(given, argument)| same_operand(given, argument, &|tile, ty| tile.ty == *ty))
        };
        self.known.get(&hash)?.iter().find(is_same).cloned()
    }

    fn insert(&mut self, hash: u64, compiled: Rc<Compiled>) {
        if self.count >= MAX_KNOWN {
            *self = Self::default();
        }
        self.count += 1;
        self.known.entry(hash).or_default().push(compiled);
    }
}

impl Launch {
    /// Creates a launch of a kernel, and the values that the parameters have in the kernel's body.
    /// Pointers point to main memory. The memory of the parameters with the indices in `constant`
    /// is read-only.
    pub fn new(
        kernel: &Kernel,
        grid: Grid,
        (values, constant): (&[Value<'static>], &[usize]),
        options: &Options,
    ) -> Result<(Self, Vec<Operand<Tile>>), Error> {
        let classified = kernel.classify(values, Device::Cpu)?;
        let mut arguments = Vec::new();
        let mut names = Vec::new();
        let mut operands = Vec::with_capacity(values.len());
        let parameters = kernel.signature().parameters.iter();
        for (index, ((argument, value), parameter)) in
            classified.iter().zip(values).zip(parameters).enumerate()
        {
            let template = operand_of_argument(argument);
            let first = arguments.len();
            pass(argument, value, &mut arguments);
            let read_only = constant.contains(&index).then(|| Arc::from(&*parameter.name));
            let mut own_names = Vec::new();
            name_parts(&template, &parameter.name, &mut own_names);
            names.extend(own_names.into_iter().map(Arc::from));
            let mut next = first;
            operands.push(map_operand(&template, &mut |ty: &Type| {
                let held = match arguments.get(next) {
                    Some(argument) => Held::argument(next, argument, ty),
                    None => Held::scalar(0),
                };
                next += 1;
                let read_only = read_only.clone().filter(|_| ty.element.pointee().is_some());
                Tile { read_only, ..Tile::new(ty.clone(), held) }
            }));
        }
        let regions = arguments.iter().filter_map(|argument| match argument {
            cpu::Argument::Pointer { region, .. } => Some(*region),
            cpu::Argument::Scalar(_) => None,
        });
        let language = tilewright_frontend::Options {
            num_warps: options.codegen().num_warps,
            capability: 0,
            // Python itself reads the kernel's globals.
            allow_plain_globals: true,
            ..options.language()
        };
        let launch = Self {
            name: kernel.signature().name.to_string(),
            regions: RefCell::new(regions.collect()),
            arguments,
            names,
            padded: RefCell::default(),
            grid: Cell::new(grid.extents()),
            id: Cell::new([0; 3]),
            language,
            cache: RefCell::default(),
        };
        Ok((launch, operands))
    }

    /// Returns the index of the current program in the grid.
    pub fn id(&self) -> [u32; 3] {
        self.id.get()
    }

    /// Sets the index of the current program in the grid.
    pub fn set_id(&self, id: [u32; 3]) {
        self.id.set(id);
    }

    /// Returns the number of programs along each axis.
    pub fn grid(&self) -> [u32; 3] {
        self.grid.get()
    }

    /// Sets the number of programs along each axis.
    pub fn set_grid(&self, grid: [u32; 3]) {
        self.grid.set(grid);
    }

    /// Returns the name and the address of the run-time argument with this index, if it is a
    /// pointer.
    pub fn argument(&self, index: usize) -> Option<(&Arc<str>, u64)> {
        match (self.names.get(index)?, self.arguments.get(index)?) {
            (name, cpu::Argument::Pointer { address, .. }) => Some((name, *address)),
            (_, cpu::Argument::Scalar(_)) => None,
        }
    }

    /// Evaluates an operation on its operands, `given`. Use [`locate`] to move an error to its
    /// position in the user's source.
    pub fn evaluate(
        &self,
        form: &Form,
        given: &[Operand<Tile>],
        environment: &mut Environment<'_>,
    ) -> Result<Operand<Tile>, Box<CompileError>> {
        let mut inputs: SmallVec<[Tile; 8]> = SmallVec::new();
        for operand in given {
            collect(operand, &mut inputs);
        }
        let compiled = self.compiled(form, given, &inputs, environment.host)?;
        let mut asked = false;
        let reads = padded::are_padded_reads_allowed().then(PaddedReads::default);
        let results = loop {
            let regions = self.regions.borrow();
            let surroundings = Surroundings {
                arguments: &self.arguments,
                names: &self.names,
                regions: &regions,
                grid: self.grid.get(),
                id: self.id.get(),
                interrupt: environment.interrupt,
                padded: reads.as_ref(),
            };
            let program = &compiled.operation.program;
            match program.evaluate(inputs.iter().map(|tile| &tile.held), &surroundings) {
                Ok(results) => {
                    let found = reads
                        .as_ref()
                        .map_or_else(Vec::new, |reads| reads.of_evaluation(program, &surroundings));
                    self.padded.borrow_mut().extend(found.into_iter().map(|diagnostic| {
                        compiled
                            .operation
                            .failure(EvaluationError { diagnostic, is_outside_of_regions: false })
                    }));
                    break results;
                }
                Err(error) if error.is_outside_of_regions && !asked => {
                    drop(regions);
                    asked = true;
                    self.regions.borrow_mut().extend((environment.foreign)());
                }
                Err(error) => return Err(Box::new(compiled.operation.failure(*error))),
            }
        };
        let CompiledOperation { result, known, read_only, .. } = &compiled.operation;
        let mut results = results.into_iter().enumerate();
        Ok(map_operand(result, &mut |ty: &Type| {
            let (index, held) = results.next().unwrap_or_else(|| (usize::MAX, Held::scalar(0)));
            let owner = read_only.iter().find(|(place, _)| *place == index);
            Tile {
                ty: ty.clone(),
                held,
                is_known: known.contains(&index),
                read_only: owner.map(|(_, owner)| Arc::clone(owner)),
            }
        }))
    }

    /// Returns the errors that loads from padding would have caused since the last call. Use
    /// [`locate`] to move the errors to their positions in the user's source.
    pub fn take_padded_reads(&self) -> Vec<CompileError> {
        self.padded.take()
    }

    fn compiled(
        &self,
        form: &Form,
        given: &[Operand<Tile>],
        tiles: &[Tile],
        host: &mut dyn Host,
    ) -> Result<Rc<Compiled>, Box<CompileError>> {
        let mut hasher = FxHasher::default();
        form.hash(&mut hasher);
        for given in given {
            hash_with(given, &mut hasher, &|tile: &Tile, hasher| tile.ty.hash(hasher));
        }
        let marks = Marks::new(tiles);
        marks.known.hash(&mut hasher);
        let hash = hasher.finish();
        let is_local = given.iter().any(refers_to_program);
        let find = |cache: &RefCell<Cache>| cache.borrow().find(hash, form, (given, &marks), &self.language);
        let known = if is_local { find(&self.cache) } else { SHARED.with(find) };
        if let Some(known) = known {
            return Ok(known);
        }
        let arguments: Vec<Operand<Type>> =
            given.iter().map(|given| map_operand(given, &mut |tile: &Tile| tile.ty.clone())).collect();
        let text = form.text();
        let (known, read_only) = (&marks.known, &marks.read_only);
        let operation = Operation { text: &text, arguments: &arguments, known, read_only };
        let operation = compile_operation(&operation, &self.language, host).map_err(Box::new)?;
        let form = form.clone();
        let language = self.language;
        let compiled = Rc::new(Compiled { form, arguments, marks, language, operation });
        let insert = |cache: &RefCell<Cache>| cache.borrow_mut().insert(hash, Rc::clone(&compiled));
        if !prints(given) {
            if is_local { insert(&self.cache) } else { SHARED.with(insert) }
        }
        Ok(compiled)
    }

    /// Adds the current program to a diagnostic about this launch.
    pub fn in_program(&self, diagnostic: Diagnostic) -> Diagnostic {
        let [x, y, z] = self.id.get();
        diagnostic.note(format!("in program ({x}, {y}, {z})"))
    }
}

/// Returns whether an operation prints during its compilation. It is then compiled at each use.
fn prints(given: &[Operand<Tile>]) -> bool {
    given
        .first()
        .is_some_and(|given| matches!(given, Operand::Language(path) if path.ends_with("static_print")))
}

/// Returns whether an operand refers to a function or an object of the program, which may change
/// later.
fn refers_to_program<V>(operand: &Operand<V>) -> bool {
    fn has_object(constant: &Constant) -> bool {
        match constant {
            Constant::Object(_) => true,
            Constant::Tuple(items) => items.class().is_some() || items.iter().any(has_object),
            Constant::None
            | Constant::Bool(_)
            | Constant::Int(_)
            | Constant::Float(_)
            | Constant::Str(_)
            | Constant::Type(_)
            | Constant::LanguageType(_) => false,
        }
    }
    match operand {
        Operand::Tensor(_) | Operand::Language(_) => false,
        Operand::Constant(constant) => has_object(constant),
        Operand::Tuple(items) => items.class().is_some() || items.iter().any(refers_to_program),
        Operand::Descriptor(descriptor) => descriptor.parts().iter().any(refers_to_program),
        Operand::Launch(response) => response.parts().any(refers_to_program),
        Operand::Shared(shared) => refers_to_program(&shared.memory) || refers_to_program(&shared.slot),
        Operand::Method(receiver, _) => refers_to_program(receiver),
        Operand::Function(_)
        | Operand::Bound(..)
        | Operand::Super(..)
        | Operand::ConstexprFunction(_)
        | Operand::Object(_)
        | Operand::Callable(_)
        | Operand::Range(_) => true,
    }
}

/// Appends the run-time values in an operand to `tiles`, in order.
fn collect(operand: &Operand<Tile>, tiles: &mut SmallVec<[Tile; 8]>) {
    match operand {
        Operand::Tensor(tile) => tiles.push(tile.clone()),
        Operand::Constant(_) | Operand::Language(_) | Operand::Function(_) => {}
        // tidy: wildcard because other operands are rare, so the general walk suffices.
        other => {
            map_operand(other, &mut |tile: &Tile| tiles.push(tile.clone()));
        }
    }
}

/// Appends the run-time parts of an argument to `arguments`, in order.
fn pass(argument: &Argument, value: &Value<'static>, arguments: &mut Vec<cpu::Argument<'static>>) {
    use tilewright_ir::Element;
    let element = match (argument, value) {
        (Argument::Pointer { pointee, .. }, _) => Element::Pointer(*pointee),
        (Argument::Scalar { dtype, .. }, _) => Element::Value(*dtype),
        (Argument::Tuple(items), Value::Tuple(values)) => {
            for (item, value) in items.iter().zip(values) {
                pass(item, value, arguments);
            }
            return;
        }
        (Argument::Tuple(_) | Argument::Constexpr(_), _) => return,
    };
    // `Kernel::classify` has checked the kind and the range of the value.
    arguments.push(cpu_argument(element, value).unwrap_or(cpu::Argument::Scalar(0)));
}
