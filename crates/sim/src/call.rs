//! Executes calls that are not inlined: recursion, pointers, and calls beyond the limits.
//!
//! The steps of such a function are placed once, after those of the kernel. Its variables are in a
//! frame on the stack of the lane, in local memory after the variables of the kernel. A call saves
//! the registers of the function, and the return restores them, because the function may already be
//! active.

use std::ops::Range;

use rustc_hash::FxHashMap;
use tilewright_ptx::isa::{FunctionId, Module};

use crate::decode::Program;
use crate::fault::{FaultKind, OfLane, Outcome, Stop};
use crate::memory::Local;
use crate::registers::{LANES, Slot, lanes_of};
use crate::warp::Warp;

/// The maximum local memory of a thread in bytes, as on the hardware.
const LOCAL_LIMIT: usize = 512 << 10;
/// The alignment of frames in bytes.
const FRAME_ALIGNMENT: u64 = 16;
/// The window of the generic addresses of functions. Function `i` is at
/// `FUNCTION_WINDOW + (i + 1) * FUNCTION_STEP`.
const FUNCTION_WINDOW: u64 = 0x4000_0000_0000_0000;
/// The distance between the addresses of functions.
const FUNCTION_STEP: u64 = 16;

/// Resolves an alias without a body to its target.
pub(crate) fn resolved(module: &Module, id: FunctionId) -> FunctionId {
    let function = &module.functions[id];
    let alias = module.aliases.iter().find(|(name, _)| *name == function.name);
    alias.filter(|_| function.body.is_none()).map_or(id, |(_, id)| *id)
}

pub(crate) fn address_of(module: &Module, id: FunctionId) -> u64 {
    FUNCTION_WINDOW + (u64::from(resolved(module, id).as_u32()) + 1) * FUNCTION_STEP
}

fn function_at(address: u64) -> Option<FunctionId> {
    let distance = address.checked_sub(FUNCTION_WINDOW)?;
    let number = (distance / FUNCTION_STEP).checked_sub(1)?;
    (distance % FUNCTION_STEP == 0).then(|| u32::try_from(number).ok().map(FunctionId::from_u32))?
}

/// The address of a variable in local memory: the value of a register plus an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalAddress {
    pub base: Slot,
    pub offset: u64,
}

/// The registers with the stack pointers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    /// The start of the frame of the active function.
    pub frame: Slot,
    /// The end of the used local memory.
    pub top: Slot,
}

/// A parameter or a result in the frame of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameVariable {
    pub offset: u64,
    pub bytes: u64,
}

pub(crate) struct CalledFunction {
    pub entry: u32,
    pub registers: Range<u32>,
    pub frame_bytes: u64,
    pub parameters: Vec<FrameVariable>,
    pub returns: Vec<FrameVariable>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum CallTarget {
    Function(FunctionId),
    /// The function whose address is in the register.
    Address(Slot),
}

/// A call in executable form.
pub(crate) struct Call {
    pub target: CallTarget,
    /// The argument variables and their sizes in bytes.
    pub arguments: Vec<(LocalAddress, u64)>,
    pub results: Vec<(LocalAddress, u64)>,
    pub stack: Stack,
}

/// The state that a return restores.
pub(crate) struct Return {
    call: u32,
    function: FunctionId,
    frame: u64,
    top: u64,
    registers: Vec<u64>,
}

impl Call {
    fn function(&self, warp: &Warp, lane: usize) -> Outcome<FunctionId> {
        match self.target {
            CallTarget::Function(function) => Ok(function),
            CallTarget::Address(slot) => {
                let address = warp.registers.get(slot)[lane];
                let illegal = || format!("calls {address:#x}, which is not the address of a function");
                function_at(address)
                    .ok_or_else(|| Box::<Stop>::from(FaultKind::Illegal(illegal())))
                    .of_lane(lane)
            }
        }
    }

    fn enter(
        &self,
        warp: &mut Warp,
        lane: usize,
        step: u32,
        id: FunctionId,
        function: &CalledFunction,
    ) -> Outcome {
        let bytes = |variables: &[FrameVariable]| variables.iter().map(|one| one.bytes).collect::<Vec<_>>();
        let passed =
            |places: &[(LocalAddress, u64)]| places.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>();
        if bytes(&function.parameters) != passed(&self.arguments)
            || bytes(&function.returns) != passed(&self.results)
        {
            return Err(FaultKind::Illegal(
                "the arguments and results of a call differ from those of the called function".into(),
            )
            .into());
        }
        let registers = &mut warp.registers;
        let (frame, top) = (registers.get(self.stack.frame)[lane], registers.get(self.stack.top)[lane]);
        let start = top.next_multiple_of(FRAME_ALIGNMENT);
        let end = start + function.frame_bytes;
        grow(&mut warp.local, end as usize)?;
        for ((from, bytes), to) in self.arguments.iter().zip(&function.parameters) {
            let from = (registers.get(from.base)[lane] + from.offset) as usize;
            warp.local.copy(lane, from..from + *bytes as usize, (start + to.offset) as usize);
        }
        let saved = function.registers.clone().map(|slot| registers.get(Slot(slot))[lane]).collect();
        warp.returns[lane].push(Return { call: step, function: id, frame, top, registers: saved });
        registers.get_mut(self.stack.frame)[lane] = start;
        registers.get_mut(self.stack.top)[lane] = end;
        Ok(())
    }

    fn leave(&self, warp: &mut Warp, lane: usize, back: Return, function: &CalledFunction) {
        let frame = warp.registers.get(self.stack.frame)[lane];
        for (slot, value) in function.registers.clone().zip(back.registers) {
            warp.registers.get_mut(Slot(slot))[lane] = value;
        }
        warp.registers.get_mut(self.stack.frame)[lane] = back.frame;
        warp.registers.get_mut(self.stack.top)[lane] = back.top;
        for ((to, bytes), from) in self.results.iter().zip(&function.returns) {
            let (from, to) = (frame + from.offset, warp.registers.get(to.base)[lane] + to.offset);
            warp.local.copy(lane, from as usize..(from + bytes) as usize, to as usize);
        }
    }
}

/// Grows local memory to `bytes` bytes per lane.
fn grow(local: &mut Local, bytes: usize) -> Outcome {
    if local.holds(bytes) {
        return Ok(());
    }
    if bytes > LOCAL_LIMIT {
        let text = format!("calls need more than {LOCAL_LIMIT} bytes of local memory a thread");
        return Err(FaultKind::Illegal(text).into());
    }
    local.grow(bytes);
    Ok(())
}

pub(crate) fn call(
    warp: &mut Warp,
    program: &Program,
    group: usize,
    lanes: u32,
    call: &Call,
) -> Outcome<bool> {
    let step = warp.groups[group].step;
    let mut targets = [0; LANES];
    for lane in lanes_of(lanes) {
        let id = call.function(warp, lane)?;
        let Some(function) = program.functions.get(&id) else {
            let text = "a call to a function without a body, or through a pointer to no function".to_owned();
            return Err(Box::<Stop>::from(FaultKind::Unsupported(text))).of_lane(lane);
        };
        call.enter(warp, lane, step, id, function).of_lane(lane)?;
        targets[lane] = function.entry;
    }
    warp.scatter(group, lanes, &targets);
    Ok(true)
}

pub(crate) fn leave(warp: &mut Warp, program: &Program, group: usize, lanes: u32) -> bool {
    let mut targets = [0; LANES];
    for lane in lanes_of(lanes) {
        let back = warp.returns[lane].pop().expect("only a call leads to a function's steps");
        let step = back.call;
        let crate::decode::Action::Call(call) = &program.steps[step as usize].action else {
            unreachable!("the call decoded this function")
        };
        let function = &program.functions[&back.function];
        call.leave(warp, lane, back, function);
        targets[lane] = step + 1;
    }
    warp.scatter(group, lanes, &targets);
    true
}

/// The functions of a program with steps of their own.
pub(crate) type Functions = FxHashMap<FunctionId, CalledFunction>;
