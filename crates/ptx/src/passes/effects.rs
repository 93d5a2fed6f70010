//! Classifies instructions by their effects. Passes may move and merge the pure instructions.

use crate::isa::{Instruction, LoadSemantics, Source, SpecialRegister, StateSpace};

/// The effect of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// The instruction only writes its results, which depend only on its operands. For a shuffle or
    /// `redux.sync`, the operands of all lanes count.
    Pure,
    /// The results depend on the position, or moving does not pay. Examples: loads, matrix
    /// instructions, votes, and changing special registers.
    Value,
    /// The instruction has another effect.
    Other,
}

/// Returns the effect of an instruction.
#[expect(clippy::too_many_lines, reason = "one line an instruction")]
pub(super) fn effect(instruction: &Instruction) -> Effect {
    use Instruction as I;
    match instruction {
        I::Add(add) => carry(add.carry_out),
        I::Sub(sub) => carry(sub.carry_out),
        I::Mad(mad) => carry(mad.carry_out),
        I::Mov(mov) if mov.a.0.iter().any(is_changing) => Effect::Value,
        I::Ld(load) if !matches!(load.semantics, None | Some(LoadSemantics::Weak)) => Effect::Other,
        I::Ld(load) if load.space == Some(StateSpace::Param) => Effect::Pure,
        I::Mov(_)
        | I::Mul(_)
        | I::Mul24(_)
        | I::Mad24(_)
        | I::Sad(_)
        | I::Div(_)
        | I::Rem(_)
        | I::Abs(_)
        | I::Neg(_)
        | I::Min(_)
        | I::Max(_)
        | I::Fma(_)
        | I::AddMixed(_)
        | I::SubMixed(_)
        | I::FmaMixed(_)
        | I::Popc(_)
        | I::Clz(_)
        | I::Bfind(_)
        | I::Fns(_)
        | I::Brev(_)
        | I::Bfe(_)
        | I::Bfi(_)
        | I::Bmsk(_)
        | I::Szext(_)
        | I::Dp4a(_)
        | I::Dp2a(_)
        | I::Sqrt(_)
        | I::Rsqrt(_)
        | I::Rcp(_)
        | I::Sin(_)
        | I::Cos(_)
        | I::Lg2(_)
        | I::Ex2(_)
        | I::Tanh(_)
        | I::Testp(_)
        | I::Copysign(_)
        | I::Set(_)
        | I::Setp(_)
        | I::Selp(_)
        | I::Slct(_)
        | I::And(_)
        | I::Or(_)
        | I::Xor(_)
        | I::Not(_)
        | I::Cnot(_)
        | I::Lop3(_)
        | I::Shf(_)
        | I::Shl(_)
        | I::Shr(_)
        | I::Prmt(_)
        | I::Cvt(_)
        | I::CvtPack(_)
        | I::Cvta(_)
        | I::Isspacep(_)
        | I::Mapa(_)
        | I::Getctarank(_)
        | I::CreatepolicyFractional(_)
        | I::CreatepolicyRange(_)
        | I::CreatepolicyCvt(_)
        | I::MbarrierPendingCount(_)
        | I::ClusterIsCanceled(_)
        | I::ClusterFirstBlock(_)
        | I::ClusterFirstBlockDimension(_)
        | I::Shfl(_)
        | I::Redux(_) => Effect::Pure,
        I::Ld(_)
        | I::Ldu(_)
        | I::Vote(_)
        | I::Match(_)
        | I::Activemask(_)
        | I::Elect(_)
        | I::Ldmatrix(_)
        | I::Movmatrix(_)
        | I::Mma(_)
        | I::WmmaLoad(_)
        | I::WmmaHalf(_)
        | I::Wmma(_)
        | I::MbarrierTestWait(_) => Effect::Value,
        I::Addc(_)
        | I::Subc(_)
        | I::Madc(_)
        | I::St(_)
        | I::StAsync(_)
        | I::Prefetch(_)
        | I::Prefetchu(_)
        | I::Discard(_)
        | I::Applypriority(_)
        | I::Atom(_)
        | I::Red(_)
        | I::RedAsync(_)
        | I::CpAsync(_)
        | I::CpAsyncCommitGroup(_)
        | I::CpAsyncWaitGroup(_)
        | I::CpAsyncWaitAll(_)
        | I::CpAsyncMbarrierArrive(_)
        | I::CpAsyncBulk(_)
        | I::CpAsyncBulkPrefetch(_)
        | I::CpAsyncBulkTensorLoad(_)
        | I::CpAsyncBulkTensorStore(_)
        | I::CpAsyncBulkPrefetchTensor(_)
        | I::CpReduceAsyncBulk(_)
        | I::CpReduceAsyncBulkTensor(_)
        | I::CpAsyncBulkCommitGroup(_)
        | I::CpAsyncBulkWaitGroup(_)
        | I::TensormapReplace(_)
        | I::TensormapCpFenceproxy(_)
        | I::MbarrierInit(_)
        | I::MbarrierInval(_)
        | I::MbarrierExpectTx(_)
        | I::MbarrierCompleteTx(_)
        | I::MbarrierArrive(_)
        | I::MbarrierArriveDrop(_)
        | I::MbarrierTryWait(_)
        | I::Membar(_)
        | I::MembarProxy(_)
        | I::Fence(_)
        | I::FenceProxy(_)
        | I::FenceProxyAsyncGeneric(_)
        | I::FenceProxyTensormap(_)
        | I::FenceMbarrierInit(_)
        | I::BarrierSync(_)
        | I::BarrierArrive(_)
        | I::BarrierReduce(_)
        | I::BarWarpSync(_)
        | I::BarrierClusterArrive(_)
        | I::BarrierClusterWait(_)
        | I::Griddepcontrol(_)
        | I::Stmatrix(_)
        | I::WmmaStore(_)
        | I::Wgmma(_)
        | I::WgmmaFence(_)
        | I::WgmmaCommitGroup(_)
        | I::WgmmaWaitGroup(_)
        | I::Setmaxnreg(_)
        | I::Tcgen05Alloc(_)
        | I::Tcgen05Dealloc(_)
        | I::Tcgen05RelinquishAllocPermit(_)
        | I::Tcgen05Ld(_)
        | I::Tcgen05St(_)
        | I::Tcgen05WaitLd(_)
        | I::Tcgen05WaitSt(_)
        | I::Tcgen05Mma(_)
        | I::Tcgen05MmaScaled(_)
        | I::Tcgen05Commit(_)
        | I::Tcgen05Cp(_)
        | I::Tcgen05Shift(_)
        | I::Tcgen05FenceBefore(_)
        | I::Tcgen05FenceAfter(_)
        | I::ClusterTryCancel(_)
        | I::Bra(_)
        | I::BrxIdx(_)
        | I::Call(_)
        | I::Ret(_)
        | I::Exit(_)
        | I::Trap(_)
        | I::Brkpt(_)
        | I::Nanosleep(_)
        | I::Pmevent(_) => Effect::Other,
    }
}

/// Returns whether passes may move an instruction and merge it with equal ones.
pub(super) fn is_pure(instruction: &Instruction) -> bool {
    effect(instruction) == Effect::Pure
}

/// Returns the effect of an addition, subtraction or multiply-add. An instruction that writes the
/// carry flag (`is_left`) stays before its reader.
fn carry(is_left: bool) -> Effect {
    if is_left { Effect::Other } else { Effect::Pure }
}

/// Returns whether an operand is a special register that may change while a thread runs.
fn is_changing(source: &Source) -> bool {
    match source {
        Source::Special(register) => may_change(*register),
        Source::Register(_) | Source::Immediate(_) | Source::Symbol(..) => false,
    }
}

fn may_change(register: SpecialRegister) -> bool {
    use SpecialRegister as S;
    matches!(
        register,
        S::WarpId
            | S::SmId
            | S::Clock
            | S::ClockHi
            | S::Clock64
            | S::GlobalTimer
            | S::GlobalTimerLo
            | S::GlobalTimerHi
    )
}
