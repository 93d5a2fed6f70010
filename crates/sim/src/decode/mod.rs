//! Decodes a kernel from typed instructions to steps over the registers of a warp.
//!
//! Every operand becomes a register, and calls are inlined as far as possible (see
//! [`crate::call`]). The decoder evaluates the modifiers, so a step is a call of one closure.
//!
//! - `operands`: registers, constants, variables and addresses;
//! - `instructions`: one method per instruction, in the file of its family;
//! - `call`: functions of the module, and system functions (`vprintf`, `__assertfail`).

#![allow(clippy::many_single_char_names, reason = "operands have the names that the ISA gives them")]

mod arithmetic;
mod asynchronous;
mod atomics;
mod barriers;
mod call;
mod compare;
mod convert;
mod instructions;
mod lift;
mod logic;
mod memory;
mod moves;
mod operands;
mod tensor;
mod tensor_memory;
mod uninitialized_registers;
mod warp;
mod wmma;

use rustc_hash::FxHashMap;
use tilewright_ptx::isa::{
    Function, FunctionId, FunctionKind, GlobalId, LabelId, Module, RegisterId, SpecialRegister, Statement,
    StatementKind, VariableId,
};

use crate::call::{Call, Functions, Stack};
use crate::context::{Context, Execute};
use crate::fault::FaultKind;
use crate::registers::{Registers, Slot};
use crate::tensor::WgmmaRegisterAccess;
use uninitialized_registers::StepRegisters;
pub(crate) use uninitialized_registers::Watched;

/// The class under which reports count an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Loads from global memory, or by generic addresses.
    GlobalLoad,
    /// Stores to global memory, or by generic addresses.
    GlobalStore,
    /// Loads from shared memory.
    SharedLoad,
    /// Stores to shared memory.
    SharedStore,
    /// Accesses to local memory.
    Local,
    /// Loads of parameters and constants.
    Parameter,
    /// Atomic operations.
    Atomic,
    /// Asynchronous copies, and the instructions that commit and wait for them.
    Asynchronous,
    /// Arithmetic in f16 and bf16.
    Half,
    /// Arithmetic in f32.
    Single,
    /// Arithmetic in f64.
    Double,
    /// Functions of the special function units.
    Function,
    /// Integer arithmetic and bit manipulation.
    Integer,
    /// Comparisons and selections.
    Compare,
    /// Conversions.
    Convert,
    /// Moves.
    Move,
    /// Shuffles, votes, matches and reductions.
    Warp,
    /// Barriers of the block and of the cluster, and barriers in shared memory.
    Barrier,
    /// Fences.
    Fence,
    /// Tensor cores, and the loads and stores of their fragments.
    Tensor,
    /// Branches, calls, returns.
    Control,
    /// Hints, and instructions without effect in the simulator.
    Hint,
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::GlobalLoad => "global load",
            Self::GlobalStore => "global store",
            Self::SharedLoad => "shared load",
            Self::SharedStore => "shared store",
            Self::Local => "local memory",
            Self::Parameter => "parameter",
            Self::Atomic => "atomic",
            Self::Asynchronous => "asynchronous",
            Self::Half => "f16 and bf16",
            Self::Single => "f32",
            Self::Double => "f64",
            Self::Function => "function",
            Self::Integer => "integer",
            Self::Compare => "compare",
            Self::Convert => "convert",
            Self::Move => "move",
            Self::Warp => "warp",
            Self::Barrier => "barrier",
            Self::Fence => "fence",
            Self::Tensor => "tensor",
            Self::Control => "control",
            Self::Hint => "hint",
        })
    }
}

/// The lanes that have to arrive at a step before it executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gather {
    /// No other lanes: the step executes for the lanes that are present.
    Any,
    /// All lanes of the warp that have not exited: `.aligned`.
    Warp,
    /// The members of each lane's mask that have not exited.
    Members(Slot),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    /// The index of the barrier, 0 to 15.
    pub number: Slot,
    /// The number of participating threads, by default all of the block.
    pub threads: Option<Slot>,
    /// True if the instruction is `.aligned`.
    pub aligned: bool,
    pub kind: BarrierKind,
}

/// The operation of an arrival at a barrier of the block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BarrierKind {
    Arrive,
    Wait,
    /// Waits, and combines the predicates of all arriving threads.
    Reduce {
        operation: tilewright_ptx::isa::BarrierReduction,
        predicate: Slot,
        negated: bool,
        destination: Slot,
    },
}

/// A computation on registers, for the lanes of a mask.
pub(crate) type Compute = Box<dyn Fn(&mut Registers, u32) + Send + Sync>;

/// The effect of a step.
pub(crate) enum Action {
    /// A computation that cannot fault.
    Compute(Compute),
    /// Any other effect that continues with the next step.
    Execute(Box<dyn Execute>),
    /// Branches to a step.
    Branch(u32),
    /// Branches to one of several steps. An index out of range is a fault.
    Choose { index: Slot, targets: Vec<u32> },
    /// Calls a function that is not inlined.
    Call(Box<Call>),
    /// Returns from a function that is not inlined.
    Return,
    /// Executes a barrier of the block.
    Barrier(Barrier),
    /// Arrives at the barrier of the cluster.
    ClusterArrive,
    /// Waits at the barrier of the cluster.
    ClusterWait,
    /// Exits.
    Exit,
    /// Has no effect.
    Nothing,
}

/// A step of the executable form: an instruction, or a part of one.
pub(crate) struct Step {
    /// The predicate, and its value in the executing lanes.
    pub guard: Option<(Slot, bool)>,
    pub action: Action,
    pub gather: Gather,
    /// The index of the step's origin in [`Program::sites`].
    pub site: u32,
    /// The accesses to registers of `wgmma`s in flight.
    pub wgmma_registers: Vec<WgmmaRegisterAccess>,
    /// The registers to check for uninitialized reads or to mark as written, if any.
    pub watched: Option<Box<Watched>>,
}

/// The instruction of steps. Its counters count the executions of each of its steps.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The line of the PTX text.
    pub line: u32,
    /// The file index and line of the kernel's source.
    pub kernel: Option<(u32, u32)>,
    pub opcode: Box<str>,
    pub class: Class,
}

/// The initial value of a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Fill {
    Constant(u64),
    Special(SpecialRegister),
    /// The offset of the dynamic shared memory.
    DynamicShared,
    /// The end of the statically sized local memory.
    LocalEnd,
}

pub(crate) struct Program {
    pub steps: Vec<Step>,
    pub sites: Vec<Site>,
    /// The functions that are not inlined.
    pub functions: Functions,
    /// True if the kernel may poll global memory: it has an atomic or volatile load, or an atomic
    /// operation with a result.
    pub may_wait_for_others: bool,
    /// True if the kernel has bulk copies from global memory.
    pub has_bulk_loads: bool,
    /// The bytes of the smallest element that may be accessed in global memory, at most 8.
    pub least_access: usize,
    /// The number of registers of a warp.
    pub registers: usize,
    /// True if the kernel may read an uninitialized register.
    pub watches_registers: bool,
    /// Registers with initial values.
    pub fills: Vec<(Slot, Fill)>,
    /// The local memory of a lane in bytes.
    pub local_bytes: usize,
    /// The statically sized shared memory in bytes.
    pub static_shared: usize,
    /// The offset of the dynamic shared memory.
    pub dynamic_shared: usize,
    /// The offset and the size of each parameter.
    pub parameters: Vec<Parameter>,
}

/// The layout of a kernel parameter in the parameter buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The offset in bytes.
    pub offset: usize,
    /// The size in bytes.
    pub bytes: usize,
}

pub(crate) type Decoded<T = Action> = Result<T, FaultKind>;

/// The storage of a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binding {
    Param(u64),
    Local(u64),
    /// An offset in the frame of the called function.
    Frame(u64),
    Shared(u64),
    Global(u64),
    /// The dynamic shared memory, after all static shared memory.
    DynamicShared,
}

/// A function that is being decoded, inlined or not.
struct Frame<'a> {
    function: &'a Function,
    id: FunctionId,
    registers: FxHashMap<RegisterId, Slot>,
    variables: FxHashMap<VariableId, Binding>,
    labels: FxHashMap<LabelId, u32>,
    /// The unresolved branches: the step and the target.
    jumps: Vec<(u32, Jump)>,
}

/// The target of an unresolved branch.
#[derive(Clone, Copy)]
enum Jump {
    Label(LabelId),
    Entry(usize, LabelId),
    End,
}

/// Decodes one kernel.
pub(crate) struct Decoder<'a> {
    module: &'a Module,
    /// The addresses of the module's variables in global and constant memory.
    addresses: &'a dyn Fn(GlobalId) -> u64,
    /// The module's variables in shared memory that the kernel uses.
    shared: FxHashMap<GlobalId, Binding>,
    frames: Vec<Frame<'a>>,
    steps: Vec<Step>,
    sites: Vec<Site>,
    slots: u32,
    fills: FxHashMap<Fill, Slot>,
    local_bytes: u64,
    shared_bytes: u64,
    dynamic_alignment: u64,
    /// The class of the current instruction, and the lanes that must arrive before it.
    class: Class,
    gather: Gather,
    /// The guard of the current instruction.
    guard: Option<(Slot, bool)>,
    /// The register of the carry flag, if an instruction uses it.
    carry: Option<Slot>,
    site: u32,
    kernel_line: Option<(u32, u32)>,
    wgmma_registers: tensor::WgmmaRegisters,
    /// The stack registers, if a call uses the stack.
    stack: Option<Stack>,
    /// The end of the frame of a called function.
    frame_bytes: Option<u64>,
    functions: Functions,
    may_wait_for_others: bool,
    has_bulk_loads: bool,
    least_access: usize,
    /// The number of decoded direct calls.
    expansions: usize,
    /// The called functions that are not decoded yet.
    called: Vec<FunctionId>,
    step_registers: Vec<StepRegisters>,
    /// The names of PTX registers, for messages.
    names: FxHashMap<Slot, Box<str>>,
}

/// Decodes a kernel of a module.
pub(crate) fn decode(
    module: &Module,
    id: FunctionId,
    addresses: &dyn Fn(GlobalId) -> u64,
) -> Decoded<Program> {
    let function = &module.functions[id];
    if function.kind != FunctionKind::Entry || function.body.is_none() {
        return Err(FaultKind::Illegal(format!("`{}` is not a kernel with a body", function.name)));
    }
    let mut decoder = Decoder {
        module,
        addresses,
        shared: FxHashMap::default(),
        frames: Vec::new(),
        steps: Vec::new(),
        sites: Vec::new(),
        slots: 0,
        fills: FxHashMap::default(),
        local_bytes: 0,
        shared_bytes: 0,
        dynamic_alignment: 16,
        guard: None,
        class: Class::Hint,
        gather: Gather::Any,
        carry: None,
        site: 0,
        kernel_line: None,
        wgmma_registers: tensor::WgmmaRegisters::new(module),
        stack: None,
        frame_bytes: None,
        functions: Functions::default(),
        may_wait_for_others: false,
        has_bulk_loads: false,
        least_access: 8,
        expansions: 0,
        called: Vec::new(),
        step_registers: Vec::new(),
        names: FxHashMap::default(),
    };
    let mut parameters = Vec::new();
    let mut bindings = FxHashMap::default();
    let mut end = 0_u64;
    for &id in &function.parameters {
        let variable = &function.variables[id];
        let offset = end.next_multiple_of(u64::from(variable.alignment()));
        end = offset + variable.bytes();
        bindings.insert(id, Binding::Param(offset));
        parameters.push(Parameter { offset: offset as usize, bytes: variable.bytes() as usize });
    }
    decoder.body(id, bindings)?;
    decoder.push(Action::Exit, None);
    while let Some(id) = decoder.called.pop() {
        decoder.called_function(id);
    }
    decoder.wgmma_registers.attach(&mut decoder.steps);
    let entries: Vec<_> = decoder.functions.values().map(|function| function.entry).collect();
    let watches_registers = decoder.watch_registers(&entries);
    Ok(Program {
        registers: decoder.slots as usize,
        watches_registers,
        fills: decoder.fills.iter().map(|(fill, slot)| (*slot, *fill)).collect(),
        steps: decoder.steps,
        sites: decoder.sites,
        functions: decoder.functions,
        may_wait_for_others: decoder.may_wait_for_others,
        has_bulk_loads: decoder.has_bulk_loads,
        least_access: decoder.least_access,
        local_bytes: decoder.local_bytes as usize,
        static_shared: decoder.shared_bytes as usize,
        dynamic_shared: decoder.shared_bytes.next_multiple_of(decoder.dynamic_alignment) as usize,
        parameters,
    })
}

/// Returns an action that is a fault when it executes.
fn failing(kind: FaultKind) -> Action {
    Action::Execute(Box::new(move |_: &mut Context<'_>| Err(kind.clone().into())))
}

impl<'a> Decoder<'a> {
    /// Decodes the body of a function whose parameters are bound.
    fn body(&mut self, id: FunctionId, mut variables: FxHashMap<VariableId, Binding>) -> Decoded<()> {
        let function = &self.module.functions[id];
        let Some(body) = &function.body else {
            return Err(FaultKind::Unsupported(format!(
                "the function `{}`, which has no body",
                function.name
            )));
        };
        let unbound: Vec<_> =
            function.variables.iter().filter(|(id, _)| !variables.contains_key(id)).collect();
        for (id, variable) in unbound {
            variables.insert(id, self.bind(variable)?);
        }
        let registers = FxHashMap::default();
        let (labels, jumps) = (FxHashMap::default(), Vec::new());
        self.frames.push(Frame { function, id, registers, variables, labels, jumps });
        for statement in body {
            self.statement(statement);
        }
        let frame = self.frames.pop().expect("it was pushed above");
        let end = self.steps.len() as u32;
        for (step, jump) in frame.jumps {
            let target = |label| {
                let name = &frame.function.labels[label].name;
                frame
                    .labels
                    .get(&label)
                    .copied()
                    .ok_or_else(|| FaultKind::Illegal(format!("the label `{name}` is not defined")))
            };
            match (&mut self.steps[step as usize].action, jump) {
                (Action::Branch(to), Jump::End) => *to = end,
                (Action::Branch(to), Jump::Label(label)) => *to = target(label)?,
                (Action::Choose { targets, .. }, Jump::Entry(index, label)) => {
                    targets[index] = target(label)?;
                }
                _ => unreachable!("only branches are noted as jumps"),
            }
        }
        Ok(())
    }

    fn statement(&mut self, statement: &'a Statement) {
        match &statement.kind {
            StatementKind::Label(label) => {
                let here = self.steps.len() as u32;
                self.frame().labels.insert(*label, here);
            }
            StatementKind::Location(location) => {
                self.kernel_line = (location.line != 0).then_some((location.file, location.line));
            }
            StatementKind::Instruction { guard, instruction } => {
                self.site = self.sites.len() as u32;
                (self.class, self.gather) = (Class::Hint, Gather::Any);
                let guard = guard.map(|predicate| (self.named(predicate.register), !predicate.negated));
                self.sites.push(Site {
                    line: statement.line,
                    kernel: self.kernel_line,
                    opcode: instruction.opcode().into(),
                    class: Class::Hint,
                });
                let site = self.site;
                self.guard = guard;
                // An instruction that cannot be decoded is a fault at execution, not at load.
                let action = instruction.accept(self).unwrap_or_else(failing);
                self.site = site;
                self.sites[site as usize].class = self.class;
                self.push(action, guard);
                self.note_wgmma_registers(instruction);
                self.note_registers(instruction);
                if let Some(Step { action: Action::Branch(_) | Action::Choose { .. }, .. }) =
                    self.steps.last()
                {
                    let last = self.steps.len() as u32 - 1;
                    // Resolves the branches that were recorded before the index of their step was
                    // known.
                    for (step, _) in &mut self.frame().jumps {
                        if *step == u32::MAX {
                            *step = last;
                        }
                    }
                }
            }
            StatementKind::Verbatim(_) => {
                // Only code generation creates verbatim text, for inline assembly.
                self.site = self.sites.len() as u32;
                self.sites.push(Site {
                    line: statement.line,
                    kernel: self.kernel_line,
                    opcode: "inline assembly".into(),
                    class: Class::Hint,
                });
                self.push(failing(FaultKind::Unsupported("text that was not parsed".into())), None);
            }
            StatementKind::Pragma(_) | StatementKind::Comment(_) => {}
        }
    }

    fn push(&mut self, action: Action, guard: Option<(Slot, bool)>) {
        let wgmma_registers = Vec::new();
        let (gather, site) = (self.gather, self.site);
        self.steps.push(Step { guard, action, gather, site, wgmma_registers, watched: None });
    }

    fn frame(&mut self) -> &mut Frame<'a> {
        self.frames.last_mut().expect("a function is being decoded")
    }

    fn slot(&mut self) -> Slot {
        self.slots += 1;
        Slot(self.slots - 1)
    }
}
