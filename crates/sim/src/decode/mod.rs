//! From the typed instructions of a function to its executable form: a list of steps over the registers of a warp.
//!
//! Everything an instruction reads becomes a register (see [`crate::registers`]); calls are expanded in place as far as
//! possible (see [`crate::call`]); what the modifiers say is decided here, so that a step is a call of one closure.
//!
//! - `operands`: registers, constants, variables and addresses;
//! - `instructions`: one method an instruction, each in the file of its family;
//! - `call`: functions of the module, and those of the system (`vprintf`, `__assertfail`).

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
mod warp;
mod wmma;
mod written;

use rustc_hash::FxHashMap;
use tilewright_ptx::isa::{
    Function, FunctionId, FunctionKind, GlobalId, LabelId, Module, RegisterId, SpecialRegister, Statement,
    StatementKind, VariableId,
};

use crate::call::{Call, Functions, Stack};
use crate::context::{Context, Execute};
use crate::fault::FaultKind;
use crate::registers::{Registers, Slot};
use crate::tensor::ProductAccess;
use written::StepRegisters;
pub(crate) use written::Watched;

/// What an instruction counts as.
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
    /// Asynchronous copies, and what starts and ends them.
    Asynchronous,
    /// Arithmetic in f16 and bf16.
    Half,
    /// Arithmetic in f32.
    Single,
    /// Arithmetic in f64.
    Double,
    /// Functions that the special units compute.
    Function,
    /// Arithmetic and bits of integers.
    Integer,
    /// Comparisons and selections.
    Compare,
    /// Conversions.
    Convert,
    /// Moves.
    Move,
    /// Shuffles, votes, and the like.
    Warp,
    /// Barriers of the block and of the cluster, and barriers in shared memory.
    Barrier,
    /// Fences.
    Fence,
    /// Tensor cores, and the loads and stores of their fragments.
    Tensor,
    /// Branches, calls, returns.
    Control,
    /// Hints, and what has no effect here.
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

/// Which lanes have to be together before a step executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gather {
    /// Those that are there.
    Any,
    /// All of the warp that have not exited: `.aligned`.
    Warp,
    /// Each lane's members by its mask, as far as they have not exited.
    Members(Slot),
}

/// A barrier of the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    /// Its number, 0 to 15.
    pub number: Slot,
    /// How many threads take part, all if not given.
    pub threads: Option<Slot>,
    /// Whether the warp executes it together.
    pub aligned: bool,
    pub kind: BarrierKind,
}

/// What a barrier of the block does for who arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BarrierKind {
    Arrive,
    Wait,
    /// Waits for the combination of the lanes' predicates.
    Reduce {
        operation: tilewright_ptx::isa::BarrierReduction,
        predicate: Slot,
        negated: bool,
        destination: Slot,
    },
}

/// A computation on registers alone, for the lanes of a mask.
pub(crate) type Compute = Box<dyn Fn(&mut Registers, u32) + Send + Sync>;

/// What a step does.
pub(crate) enum Action {
    /// A computation that cannot fail.
    Compute(Compute),
    /// Everything else that goes on to the next step.
    Execute(Box<dyn Execute>),
    /// Jumps, to a step.
    Branch(u32),
    /// Jumps to one of several steps, by an index; out of range is a fault.
    Choose { index: Slot, targets: Vec<u32> },
    /// Calls a function that is not expanded in place.
    Call(Box<Call>),
    /// Returns from one.
    Return,
    /// A barrier of the block.
    Barrier(Barrier),
    /// Arrives at the barrier of the cluster.
    ClusterArrive,
    /// Waits at the barrier of the cluster.
    ClusterWait,
    /// Ends the lanes.
    Exit,
    /// Has no effect.
    Nothing,
}

/// An instruction in executable form.
pub(crate) struct Step {
    /// The lanes that execute: those where the predicate is so.
    pub guard: Option<(Slot, bool)>,
    pub action: Action,
    pub gather: Gather,
    /// Its entry in [`Program::sites`].
    pub site: u32,
    /// How it accesses registers of asynchronous products.
    pub product_registers: Vec<ProductAccess>,
    /// The registers that it may read before somebody has written them.
    pub watched: Option<Box<Watched>>,
}

/// Where a step comes from. An instruction that became several steps is counted at its last.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The line of the PTX text.
    pub line: u32,
    /// File number and line of the kernel's source.
    pub kernel: Option<(u32, u32)>,
    /// The opcode.
    pub opcode: Box<str>,
    pub class: Class,
}

/// What a register holds before the warp starts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Fill {
    Constant(u64),
    Special(SpecialRegister),
    /// The offset of the dynamic shared memory.
    DynamicShared,
    /// The end of the local memory whose size is known.
    LocalEnd,
}

/// A kernel in executable form.
pub(crate) struct Program {
    pub steps: Vec<Step>,
    pub sites: Vec<Site>,
    /// What is called and not expanded.
    pub functions: Functions,
    /// Whether it reads global memory in ways by which blocks wait for others.
    pub may_wait_for_others: bool,
    /// The least bytes of an element that an instruction accesses in global memory.
    pub least_access: usize,
    /// How many registers a warp has.
    pub registers: usize,
    /// Whether one of them may be read before it is written.
    pub watches_registers: bool,
    /// The registers that are filled before it starts.
    pub fills: Vec<(Slot, Fill)>,
    /// Bytes of local memory of a lane.
    pub local_bytes: usize,
    /// Bytes of shared memory whose size the module knows.
    pub static_shared: usize,
    /// Where the dynamic part begins behind it.
    pub dynamic_shared: usize,
    /// Offset, size and alignment of each parameter.
    pub parameters: Vec<Parameter>,
}

impl Program {
    /// Whether bulk copies read boxes of tensors.
    pub fn has_tensor_copies(&self) -> bool {
        self.sites.iter().any(|site| site.opcode.starts_with("cp.async.bulk.tensor"))
    }
}

/// A parameter of a kernel in the buffer of parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its offset in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub bytes: usize,
}

pub(crate) type Decoded<T = Action> = Result<T, FaultKind>;

/// Where a variable lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binding {
    Param(u64),
    Local(u64),
    /// Behind the beginning of the frame of the function that is called.
    Frame(u64),
    Shared(u64),
    Global(u64),
    /// Behind all shared memory whose size the module knows.
    DynamicShared,
}

/// A function that is being decoded: the kernel, or a call of a function that is expanded in it.
struct Frame<'a> {
    function: &'a Function,
    id: FunctionId,
    registers: FxHashMap<RegisterId, Slot>,
    variables: FxHashMap<VariableId, Binding>,
    labels: FxHashMap<LabelId, u32>,
    /// Steps that jump to a label that is not placed yet; [`None`] is the end of the function.
    jumps: Vec<(u32, Jump)>,
}

/// A jump that waits for the place of its target.
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
    /// The module's variables in shared memory, as far as the kernel names them.
    shared: FxHashMap<GlobalId, Binding>,
    frames: Vec<Frame<'a>>,
    steps: Vec<Step>,
    sites: Vec<Site>,
    slots: u32,
    fills: FxHashMap<Fill, Slot>,
    local_bytes: u64,
    shared_bytes: u64,
    dynamic_alignment: u64,
    /// What the instruction that is being decoded counts as, and which lanes it gathers.
    class: Class,
    gather: Gather,
    /// Its guard.
    guard: Option<(Slot, bool)>,
    /// The carry of extended-precision arithmetic.
    carry: Option<Slot>,
    site: u32,
    kernel_line: Option<(u32, u32)>,
    product_registers: tensor::ProductRegisters,
    /// The registers of the stack, where there is one.
    stack: Option<Stack>,
    /// The end of the frame, of a function that is called.
    frame_bytes: Option<u64>,
    functions: Functions,
    may_wait_for_others: bool,
    least_access: usize,
    /// How many calls were expanded.
    expansions: usize,
    /// Functions that are called and not decoded yet.
    called: Vec<FunctionId>,
    step_registers: Vec<StepRegisters>,
    /// The names of registers.
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
        return Err(FaultKind::Illegal(format!("`{}` is no kernel with a body", function.name)));
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
        product_registers: tensor::ProductRegisters::new(module),
        stack: None,
        frame_bytes: None,
        functions: Functions::default(),
        may_wait_for_others: false,
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
    decoder.product_registers.attach(&mut decoder.steps);
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
        least_access: decoder.least_access,
        local_bytes: decoder.local_bytes as usize,
        static_shared: decoder.shared_bytes as usize,
        dynamic_shared: decoder.shared_bytes.next_multiple_of(decoder.dynamic_alignment) as usize,
        parameters,
    })
}

/// The fault of what cannot be decoded, when it is executed.
fn failing(kind: FaultKind) -> Action {
    Action::Execute(Box::new(move |_: &mut Context<'_>| Err(kind.clone().into())))
}

impl<'a> Decoder<'a> {
    /// Decodes the body of a function, with its parameters bound already.
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
                    .ok_or_else(|| FaultKind::Illegal(format!("the label `{name}` is nowhere")))
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
                // What cannot be decoded is a fault where it is executed, not before.
                let action = instruction.accept(self).unwrap_or_else(failing);
                self.site = site;
                self.sites[site as usize].class = self.class;
                self.push(action, guard);
                self.note_product_registers(instruction);
                self.note_registers(instruction);
                if let Some(Step { action: Action::Branch(_) | Action::Choose { .. }, .. }) =
                    self.steps.last()
                {
                    let last = self.steps.len() as u32 - 1;
                    // The jumps of this instruction were noted before its step had a place.
                    for (step, _) in &mut self.frame().jumps {
                        if *step == u32::MAX {
                            *step = last;
                        }
                    }
                }
            }
            StatementKind::Verbatim(_) => {
                // The parser makes none: only who loads data instead of text comes here.
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
        let product_registers = Vec::new();
        let (gather, site) = (self.gather, self.site);
        self.steps.push(Step { guard, action, gather, site, product_registers, watched: None });
    }

    fn frame(&mut self) -> &mut Frame<'a> {
        self.frames.last_mut().expect("a function is being decoded")
    }

    fn slot(&mut self) -> Slot {
        self.slots += 1;
        Slot(self.slots - 1)
    }
}
