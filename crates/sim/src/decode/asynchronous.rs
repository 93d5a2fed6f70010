//! Decodes asynchronous copies, barriers in shared memory, and fences between proxies.

use tilewright_ptx::isa::{
    AtomicOperation, Completion, Coordinates, CpAsync, CpAsyncBulk, CpAsyncBulkTensorLoad,
    CpAsyncBulkTensorStore, CpAsyncBulkWaitGroup, CpAsyncMbarrierArrive, CpAsyncWaitGroup, CpReduceAsyncBulk,
    CpReduceAsyncBulkTensor, CtaGroup, Destination, FenceProxyTensormap, MbarrierArrive, MbarrierArriveDrop,
    MbarrierCompleteTx, MbarrierExpectTx, MbarrierInit, MbarrierInval, MbarrierPendingCount,
    MbarrierTestWait, MbarrierTryWait, ProxyKind, RedAsync, ScalarType, Semantics, Source, StAsync,
    StateSpace, TensorAddress, TensorMode, TensormapCpFenceproxy, TensormapField, TensormapReplace,
};

use super::tensor::immediate;
use super::{Action, Class, Decoded, Decoder, Gather};
use crate::asynchronous::tensor_map::{self, Field, TensorDataType};
use crate::asynchronous::{barriers, bulk, copies, device_tensor_maps, fences, tensor_copies};
use crate::fault::FaultKind;
use crate::registers::Slot;

impl Decoder<'_> {
    fn asynchronous_step(&mut self, step: impl crate::context::Execute + 'static) -> Action {
        self.class = Class::Asynchronous;
        Action::Execute(Box::new(step))
    }

    fn barrier_step(&mut self, step: impl crate::context::Execute + 'static) -> Action {
        self.class = Class::Barrier;
        Action::Execute(Box::new(step))
    }

    pub(super) fn decode_cp_async(&mut self, instruction: &CpAsync) -> Decoded {
        let bytes = immediate(instruction.size)?;
        if ![4, 8, 16].contains(&bytes) {
            return Err(FaultKind::Illegal(format!(
                "cp.async of {bytes} bytes: the size has to be 4, 8 or 16"
            )));
        }
        let source_size = match instruction.source_size {
            None => copies::SourceSize::All,
            Some(Source::Register(register)) if self.width(register) == 1 => {
                copies::SourceSize::IgnoredIf(self.register(register))
            }
            Some(source) => copies::SourceSize::Bytes(self.source(source, ScalarType::U32)?),
        };
        let step = copies::Copy {
            destination: self.address(&instruction.destination, Some(instruction.destination_space))?,
            source: self.address(&instruction.source, Some(instruction.source_space))?,
            bytes: bytes as usize,
            source_size,
        };
        Ok(self.asynchronous_step(step))
    }

    pub(super) fn decode_cp_async_commit_group(&mut self) -> Action {
        self.asynchronous_step(copies::Commit)
    }

    pub(super) fn decode_cp_async_wait_group(&mut self, instruction: &CpAsyncWaitGroup) -> Decoded {
        let keep = Some(immediate(instruction.n)? as usize);
        Ok(self.asynchronous_step(copies::Wait { keep }))
    }

    pub(super) fn decode_cp_async_wait_all(&mut self) -> Action {
        self.asynchronous_step(copies::Wait { keep: None })
    }

    pub(super) fn decode_cp_async_mbarrier_arrive(&mut self, instruction: &CpAsyncMbarrierArrive) -> Decoded {
        let step = copies::ArriveAfterCopies {
            barrier: self.address(&instruction.mbarrier, instruction.space)?,
            is_expected: instruction.no_increment,
        };
        Ok(self.asynchronous_step(step))
    }

    fn completion(
        &mut self,
        completion: Completion,
        barrier: Option<&tilewright_ptx::isa::Address>,
    ) -> Decoded<bulk::Completion> {
        match (completion, barrier) {
            (Completion::BulkGroup, None) => Ok(bulk::Completion::Group),
            (Completion::Mbarrier, Some(barrier)) => {
                Ok(bulk::Completion::Barrier(self.address(barrier, Some(StateSpace::Shared))?))
            }
            (Completion::BulkGroup, Some(_)) | (Completion::Mbarrier, None) => Err(FaultKind::Illegal(
                "a bulk copy has a barrier if and only if it completes by .mbarrier::complete_tx".into(),
            )),
        }
    }

    fn optional(&mut self, source: Option<Source>, ty: ScalarType) -> Decoded<Option<Slot>> {
        source.map(|source| self.source(source, ty)).transpose()
    }

    pub(super) fn decode_cp_async_bulk(&mut self, instruction: &CpAsyncBulk) -> Decoded {
        if instruction.byte_mask {
            return Err(FaultKind::Unsupported("`.cp_mask`".into()));
        }
        self.has_bulk_loads |= instruction.source_space == StateSpace::Global;
        let step = bulk::BulkCopy {
            destination: self.address(&instruction.destination, Some(instruction.destination_space))?,
            source: self.address(&instruction.source, Some(instruction.source_space))?,
            bytes: self.source(instruction.size, ScalarType::U32)?,
            completion: self.completion(instruction.completion, instruction.mbarrier.as_ref())?,
            mask: self.optional(instruction.mask.filter(|_| instruction.multicast), ScalarType::U16)?,
            reduction: None,
        };
        Ok(self.asynchronous_step(step))
    }

    pub(super) fn decode_cp_reduce_async_bulk(&mut self, instruction: &CpReduceAsyncBulk) -> Decoded {
        let step = bulk::BulkCopy {
            destination: self.address(&instruction.destination, Some(instruction.destination_space))?,
            source: self.address(&instruction.source, Some(instruction.source_space))?,
            bytes: self.source(instruction.size, ScalarType::U32)?,
            completion: self.completion(instruction.completion, instruction.mbarrier.as_ref())?,
            mask: None,
            reduction: Some(reduction(instruction.operation, instruction.ty, true)?),
        };
        Ok(self.asynchronous_step(step))
    }

    fn tensor_box(
        &mut self,
        address: &TensorAddress,
        mode: Option<TensorMode>,
        offsets: Option<&Coordinates>,
    ) -> Decoded<tensor_copies::TensorBox> {
        let is_rows = match (mode, offsets) {
            (None | Some(TensorMode::Tile), None) | (Some(TensorMode::Im2col), Some(_)) => false,
            (Some(TensorMode::TileGather4 | TensorMode::TileScatter4), None) => true,
            (Some(TensorMode::Im2col), None) | (None, Some(_)) => {
                let text = "a tensor copy has offsets if and only if it is `.im2col`";
                return Err(FaultKind::Illegal(text.into()));
            }
            (Some(other), _) => return Err(FaultKind::Unsupported(format!("tensor copies with `{other}`"))),
        };
        let coordinates = &address.coordinates.0;
        Ok(tensor_copies::TensorBox {
            map: self.address(&address.map, None)?,
            coordinates: coordinates
                .iter()
                .map(|&coordinate| self.source(coordinate, ScalarType::S32))
                .collect::<Decoded<_>>()?,
            is_rows,
            offsets: offsets
                .map(|offsets| {
                    let offset = |source: &Source| self.source(*source, ScalarType::U16);
                    offsets.0.iter().map(offset).collect::<Decoded<_>>()
                })
                .transpose()?,
        })
    }

    pub(super) fn decode_cp_async_bulk_tensor_load(
        &mut self,
        instruction: &CpAsyncBulkTensorLoad,
    ) -> Decoded {
        if instruction.completion != Completion::Mbarrier {
            let text = "a tensor load has to complete by .mbarrier::complete_tx";
            return Err(FaultKind::Illegal(text.into()));
        }
        self.has_bulk_loads = true;
        let step = tensor_copies::TensorLoad {
            destination: self.address(&instruction.destination, Some(instruction.destination_space))?,
            source: self.tensor_box(&instruction.source, instruction.mode, instruction.offsets.as_ref())?,
            barrier: self.address(&instruction.mbarrier, Some(StateSpace::Shared))?,
            mask: self.optional(instruction.cta_mask.filter(|_| instruction.multicast), ScalarType::U16)?,
            is_pair: instruction.cta_group == Some(CtaGroup::Two),
        };
        Ok(self.asynchronous_step(step))
    }

    pub(super) fn decode_cp_async_bulk_tensor_store(
        &mut self,
        instruction: &CpAsyncBulkTensorStore,
    ) -> Decoded {
        let step = tensor_copies::TensorStore {
            destination: self.tensor_box(&instruction.destination, instruction.mode, None)?,
            source: self.address(&instruction.source, Some(instruction.source_space))?,
            reduction: None,
        };
        Ok(self.asynchronous_step(step))
    }

    pub(super) fn decode_cp_reduce_async_bulk_tensor(
        &mut self,
        instruction: &CpReduceAsyncBulkTensor,
    ) -> Decoded {
        let operation = instruction.operation;
        let step = tensor_copies::TensorStore {
            destination: self.tensor_box(&instruction.destination, instruction.mode, None)?,
            source: self.address(&instruction.source, Some(instruction.source_space))?,
            reduction: Some(Box::new(move |ty| reduction(operation, tensor_type(ty, operation)?, false))),
        };
        Ok(self.asynchronous_step(step))
    }

    pub(super) fn decode_cp_async_bulk_commit_group(&mut self) -> Action {
        self.asynchronous_step(bulk::Commit)
    }

    pub(super) fn decode_cp_async_bulk_wait_group(&mut self, instruction: &CpAsyncBulkWaitGroup) -> Decoded {
        let keep = immediate(instruction.n)? as usize;
        Ok(self.asynchronous_step(bulk::Wait { keep, reads_only: instruction.read }))
    }

    pub(super) fn decode_tensormap_replace(&mut self, instruction: &TensormapReplace) -> Decoded {
        let TensormapReplace { field, value, dimension_value, .. } = instruction;
        // The first operand is the dimension, and the second is the value.
        let (number, value) = match dimension_value {
            Some(replacement) => (immediate(*value)? as usize, *replacement),
            None => (0, *value),
        };
        if number >= tensor_map::MAX_RANK {
            return Err(FaultKind::Illegal(format!(
                "`tensormap.replace` of dimension {number}: it has to be below {}",
                tensor_map::MAX_RANK
            )));
        }
        let field = match field {
            TensormapField::GlobalAddress => Field::Address,
            TensormapField::Rank => Field::Rank,
            TensormapField::BoxDim => Field::BoxExtent(number),
            TensormapField::GlobalDim => Field::Extent(number),
            TensormapField::GlobalStride => Field::Stride(number),
            TensormapField::ElementStride => Field::ElementStride(number),
            TensormapField::Elemtype => Field::ElementType,
            TensormapField::InterleaveLayout => Field::Interleave,
            TensormapField::SwizzleMode => Field::Swizzle,
            TensormapField::FillMode => Field::Fill,
            TensormapField::SwizzleAtomicity => {
                return Err(FaultKind::Unsupported("`tensormap.replace.tile.swizzle_atomicity`".into()));
            }
        };
        let step = tensor_copies::Replace {
            map: self.address(&instruction.address, instruction.space)?,
            field,
            value: self.source(value, instruction.ty)?,
        };
        Ok(self.asynchronous_step(step))
    }

    pub(super) fn decode_tensormap_cp_fenceproxy(&mut self, instruction: &TensormapCpFenceproxy) -> Decoded {
        let step = tensor_copies::Publish {
            destination: self.address(&instruction.destination, Some(instruction.destination_space))?,
            source: self.address(&instruction.source, Some(instruction.source_space))?,
        };
        self.gather = Gather::Warp;
        Ok(self.asynchronous_step(step))
    }

    pub(super) fn decode_st_async(&mut self, instruction: &StAsync) -> Decoded {
        let step = bulk::RemoteStore {
            destination: self
                .address(&instruction.address, instruction.space.or(Some(StateSpace::Shared)))?,
            values: self.sources(&instruction.b, instruction.ty)?,
            element_bytes: instruction.ty.bytes() as usize,
            barrier: self.address(&instruction.mbarrier, Some(StateSpace::Shared))?,
            reduction: None,
        };
        Ok(self.asynchronous_step(step))
    }

    pub(super) fn decode_red_async(&mut self, instruction: &RedAsync) -> Decoded {
        let step = bulk::RemoteStore {
            destination: self
                .address(&instruction.address, instruction.space.or(Some(StateSpace::Shared)))?,
            values: vec![self.source(instruction.b, instruction.ty)?],
            element_bytes: instruction.ty.bytes() as usize,
            barrier: self.address(&instruction.mbarrier, Some(StateSpace::Shared))?,
            reduction: Some(reduction(instruction.operation, instruction.ty, false)?),
        };
        Ok(self.asynchronous_step(step))
    }

    pub(super) fn decode_mbarrier_init(&mut self, instruction: &MbarrierInit) -> Decoded {
        let step = barriers::Init {
            barrier: self.address(&instruction.address, instruction.space)?,
            count: self.source(instruction.count, ScalarType::U32)?,
        };
        Ok(self.barrier_step(step))
    }

    pub(super) fn decode_mbarrier_inval(&mut self, instruction: &MbarrierInval) -> Decoded {
        let barrier = self.address(&instruction.address, instruction.space)?;
        Ok(self.barrier_step(barriers::Invalidate { barrier }))
    }

    pub(super) fn decode_mbarrier_expect_tx(&mut self, instruction: &MbarrierExpectTx) -> Decoded {
        let step = barriers::Transact {
            barrier: self.address(&instruction.address, instruction.space)?,
            bytes: self.source(instruction.bytes, ScalarType::U32)?,
            is_complete: false,
        };
        Ok(self.barrier_step(step))
    }

    pub(super) fn decode_mbarrier_complete_tx(&mut self, instruction: &MbarrierCompleteTx) -> Decoded {
        let step = barriers::Transact {
            barrier: self.address(&instruction.address, instruction.space)?,
            bytes: self.source(instruction.bytes, ScalarType::U32)?,
            is_complete: true,
        };
        Ok(self.barrier_step(step))
    }

    fn token(&mut self, destination: Destination) -> Option<Slot> {
        match destination {
            Destination::Register(register) => Some(self.register(register)),
            Destination::Sink => None,
        }
    }

    pub(super) fn decode_mbarrier_arrive(&mut self, instruction: &MbarrierArrive) -> Decoded {
        let count = self.optional(instruction.count, ScalarType::U32)?;
        let step = barriers::Arrive {
            barrier: self.address(&instruction.address, instruction.space)?,
            kind: barriers::ArrivalKind { drops: false, may_complete: !instruction.no_complete },
            count: count.filter(|_| !instruction.expect_tx),
            expected_bytes: count.filter(|_| instruction.expect_tx),
            releases: instruction.semantics != Some(Semantics::Relaxed),
            token: self.token(instruction.d),
        };
        Ok(self.barrier_step(step))
    }

    pub(super) fn decode_mbarrier_arrive_drop(&mut self, instruction: &MbarrierArriveDrop) -> Decoded {
        let count = self.optional(instruction.count, ScalarType::U32)?;
        let step = barriers::Arrive {
            barrier: self.address(&instruction.address, instruction.space)?,
            kind: barriers::ArrivalKind { drops: true, may_complete: !instruction.no_complete },
            count: count.filter(|_| !instruction.expect_tx),
            expected_bytes: count.filter(|_| instruction.expect_tx),
            releases: instruction.semantics != Some(Semantics::Relaxed),
            token: self.token(instruction.d),
        };
        Ok(self.barrier_step(step))
    }

    fn phase(&mut self, is_parity: bool, state: Source) -> Decoded<barriers::Phase> {
        Ok(if is_parity {
            barriers::Phase::Parity(self.source(state, ScalarType::U32)?)
        } else {
            barriers::Phase::Token(self.source(state, ScalarType::B64)?)
        })
    }

    pub(super) fn decode_mbarrier_test_wait(&mut self, instruction: &MbarrierTestWait) -> Decoded {
        let step = barriers::Test {
            barrier: self.address(&instruction.address, instruction.space)?,
            phase: self.phase(instruction.parity, instruction.state)?,
            is_complete: self.register(instruction.d),
            may_wait: false,
            acquires: instruction.semantics != Some(Semantics::Relaxed),
        };
        Ok(self.barrier_step(step))
    }

    pub(super) fn decode_mbarrier_try_wait(&mut self, instruction: &MbarrierTryWait) -> Decoded {
        let step = barriers::Test {
            barrier: self.address(&instruction.address, instruction.space)?,
            phase: self.phase(instruction.parity, instruction.state)?,
            is_complete: self.register(instruction.d),
            may_wait: true,
            acquires: instruction.semantics != Some(Semantics::Relaxed),
        };
        Ok(self.barrier_step(step))
    }

    pub(super) fn decode_mbarrier_pending_count(&mut self, instruction: &MbarrierPendingCount) -> Decoded {
        let step = barriers::PendingCount {
            d: self.register(instruction.d),
            token: self.source(instruction.state, ScalarType::B64)?,
        };
        Ok(self.barrier_step(step))
    }

    /// Decodes `fence.proxy`. Without address aliases, only fences of the asynchronous proxy have
    /// an effect.
    pub(super) fn decode_proxy_fence(&mut self, kind: ProxyKind) -> Action {
        self.class = Class::Fence;
        match kind {
            ProxyKind::Alias => Action::Nothing,
            ProxyKind::Async | ProxyKind::AsyncGlobal => {
                Action::Execute(Box::new(fences::ProxyFence { of_global: true }))
            }
            ProxyKind::AsyncSharedCta | ProxyKind::AsyncSharedCluster => {
                Action::Execute(Box::new(fences::ProxyFence { of_global: false }))
            }
        }
    }

    pub(super) fn decode_map_fence(&mut self, instruction: &FenceProxyTensormap) -> Decoded {
        self.class = Class::Fence;
        let map = match (instruction.semantics, &instruction.address) {
            (Semantics::Acquire, Some(address)) => Some(self.address(address, None)?),
            (Semantics::Release, None) => None,
            // tidy: wildcard because the ISA has no other combination.
            _ => {
                let text = "fence.proxy.tensormap has to acquire with an address or release without one";
                return Err(FaultKind::Illegal(text.into()));
            }
        };
        Ok(Action::Execute(Box::new(device_tensor_maps::MapFence { map })))
    }

    pub(super) fn decode_mbarrier_init_fence(&mut self) -> Action {
        self.class = Class::Fence;
        Action::Execute(Box::new(fences::BarrierInitFence))
    }
}

/// Returns the reduction of a type by an operation. With `flush`, f32 addition flushes subnormals.
fn reduction(operation: AtomicOperation, ty: ScalarType, flush: bool) -> Decoded<bulk::Reduction> {
    let change = super::atomics::change(operation, ty, flush)?;
    let combine = Box::new(move |old, new| change(old, new, 0));
    Ok(bulk::Reduction { element_bytes: ty.bytes() as usize, combine })
}

/// Returns the type in which a reduction combines elements of a tensor.
fn tensor_type(data_type: TensorDataType, operation: AtomicOperation) -> Decoded<ScalarType> {
    let is_bitwise = matches!(operation, AtomicOperation::And | AtomicOperation::Or | AtomicOperation::Xor);
    Ok(match data_type {
        TensorDataType::U8 => ScalarType::U8,
        TensorDataType::U16 => ScalarType::U16,
        TensorDataType::U32 | TensorDataType::S32 if is_bitwise => ScalarType::B32,
        TensorDataType::U64 if is_bitwise => ScalarType::B64,
        // An H200 rejects this reduction (observed).
        TensorDataType::S64 if is_bitwise => {
            let text = "a bitwise reduction cannot combine a tensor of signed elements of 64 bits";
            return Err(FaultKind::Illegal(text.into()));
        }
        TensorDataType::U32 => ScalarType::U32,
        TensorDataType::S32 => ScalarType::S32,
        TensorDataType::U64 => ScalarType::U64,
        TensorDataType::S64 => ScalarType::S64,
        TensorDataType::F16 => ScalarType::F16,
        TensorDataType::Bf16 => ScalarType::Bf16,
        TensorDataType::F32 | TensorDataType::F32Ftz | TensorDataType::Tf32 | TensorDataType::Tf32Ftz => {
            ScalarType::F32
        }
        TensorDataType::F64 => ScalarType::F64,
    })
}
