//! Decodes `tcgen05` and `clusterlaunchcontrol`.

use tilewright_ptx::isa::{
    Address, AddressBase, ClusterDimension, ClusterFirstBlock, ClusterFirstBlockDimension, ClusterIsCanceled,
    ClusterTryCancel, Condition, CtaGroup, LeftOperand, ScalarType, Source, StateSpace, Tcgen05Alloc,
    Tcgen05Commit, Tcgen05Cp, Tcgen05Dealloc, Tcgen05Ld, Tcgen05Mma, Tcgen05MmaScaled, Tcgen05Shift,
    Tcgen05St, TensorMemoryShape,
};

use super::tensor::immediate;
use super::{Action, Class, Decoded, Decoder};
use crate::asynchronous::cluster_launches::{TryCancel, is_canceled, response_dimension};
use crate::context::{Context, Flow};
use crate::fault::FaultKind;
use crate::registers::{Slot, lanes_of};
use crate::tensor::{
    DotCondition, TensorAddress, TensorAllocate, TensorCommitStep, TensorCopyStep, TensorDotStep,
    TensorFragment, TensorFree, TensorKind, TensorLeftOperand, TensorLoadStep, TensorRelinquish,
    TensorStoreStep, TensorWaitStep,
};

impl Decoder<'_> {
    fn tensor_address(&mut self, address: &Address) -> Decoded<TensorAddress> {
        match address.base {
            AddressBase::Register(id) => {
                Ok(TensorAddress { base: self.register(id), offset: address.offset })
            }
            AddressBase::Symbol(_) | AddressBase::Absolute => {
                Err(FaultKind::Illegal("an address of tensor memory has to be a register".into()))
            }
        }
    }

    /// Returns the step of a tensor core instruction that single threads issue.
    fn issued_step(&mut self, step: impl crate::context::Execute + 'static) -> Action {
        self.class = Class::Tensor;
        Action::Execute(Box::new(step))
    }

    pub(super) fn decode_tcgen05_alloc(&mut self, i: &Tcgen05Alloc) -> Decoded {
        let step = TensorAllocate {
            destination: self.address(&i.destination, i.space)?,
            columns: self.source(i.columns, ScalarType::U32)?,
            is_pair: is_pair(i.group),
        };
        Ok(self.tensor_step(step))
    }

    pub(super) fn decode_tcgen05_dealloc(&mut self, i: &Tcgen05Dealloc) -> Decoded {
        let step = TensorFree {
            address: self.source(i.address, ScalarType::U32)?,
            columns: self.source(i.columns, ScalarType::U32)?,
        };
        Ok(self.tensor_step(step))
    }

    pub(super) fn decode_tcgen05_relinquish(&mut self) -> Action {
        self.tensor_step(TensorRelinquish)
    }

    pub(super) fn decode_tcgen05_ld(&mut self, i: &Tcgen05Ld) -> Decoded {
        let step = TensorLoadStep {
            fragment: fragment(i.shape, i.split, i.pack)?,
            address: self.tensor_address(&i.address)?,
            d: i.d.0.iter().map(|&register| self.register(register)).collect(),
        };
        Ok(self.tensor_step(step))
    }

    pub(super) fn decode_tcgen05_st(&mut self, i: &Tcgen05St) -> Decoded {
        let step = TensorStoreStep {
            fragment: fragment(i.shape, i.split, i.unpack)?,
            address: self.tensor_address(&i.address)?,
            a: self.words(&i.a.0)?,
        };
        Ok(self.tensor_step(step))
    }

    pub(super) fn decode_tcgen05_wait(&mut self, is_load: bool) -> Action {
        self.tensor_step(TensorWaitStep { is_load })
    }

    fn words(&mut self, sources: &[Source]) -> Decoded<Vec<Slot>> {
        sources.iter().map(|&source| self.source(source, ScalarType::B32)).collect()
    }

    fn left_operand(&mut self, a: &LeftOperand) -> Decoded<TensorLeftOperand> {
        Ok(match a {
            LeftOperand::Descriptor(source) => {
                TensorLeftOperand::Descriptor(self.source(*source, ScalarType::B64)?)
            }
            LeftOperand::TensorMemory(address) => {
                TensorLeftOperand::TensorMemory(self.tensor_address(address)?)
            }
        })
    }

    fn condition(&mut self, condition: Condition) -> DotCondition {
        match condition {
            Condition::Predicate(predicate) => {
                DotCondition::Register(self.register(predicate.register), predicate.negated)
            }
            Condition::Constant(value) => DotCondition::Constant(value != 0),
        }
    }

    pub(super) fn decode_tcgen05_mma(&mut self, i: &Tcgen05Mma) -> Decoded {
        if i.shift_a {
            return Err(FaultKind::Unsupported("`tcgen05.mma` with `.ashift`".into()));
        }
        let disabled_lanes = i.disabled_lanes.as_ref().map_or(&[][..], |lanes| &lanes.0[..]);
        let step = TensorDotStep {
            kind: TensorKind::Plain(i.kind),
            is_pair: is_pair(i.group),
            d: self.tensor_address(&i.d)?,
            a: self.left_operand(&i.a)?,
            b: self.source(i.b, ScalarType::B64)?,
            layout: self.source(i.layout, ScalarType::B32)?,
            disabled_lanes: self.words(disabled_lanes)?,
            accumulates: self.condition(i.accumulate),
            scale_d: i.scale_d.map_or(Ok(0), immediate)? as u32,
            scales: None,
        };
        Ok(self.issued_step(step))
    }

    pub(super) fn decode_tcgen05_mma_scaled(&mut self, i: &Tcgen05MmaScaled) -> Decoded {
        let step = TensorDotStep {
            kind: TensorKind::Scaled(i.kind, i.vector_size),
            is_pair: is_pair(i.group),
            d: self.tensor_address(&i.d)?,
            a: self.left_operand(&i.a)?,
            b: self.source(i.b, ScalarType::B64)?,
            layout: self.source(i.layout, ScalarType::B32)?,
            disabled_lanes: Vec::new(),
            accumulates: self.condition(i.accumulate),
            scale_d: 0,
            scales: Some([self.tensor_address(&i.scales_a)?, self.tensor_address(&i.scales_b)?]),
        };
        Ok(self.issued_step(step))
    }

    pub(super) fn decode_tcgen05_commit(&mut self, i: &Tcgen05Commit) -> Decoded {
        let step = TensorCommitStep {
            barrier: self.address(&i.mbarrier, i.space)?,
            mask: i
                .mask
                .filter(|_| i.multicast)
                .map(|mask| self.source(mask, ScalarType::U16))
                .transpose()?,
            is_pair: is_pair(i.group),
        };
        Ok(self.issued_step(step))
    }

    pub(super) fn decode_tcgen05_cp(&mut self, i: &Tcgen05Cp) -> Decoded {
        let step = TensorCopyStep {
            destination: self.tensor_address(&i.destination)?,
            source: self.source(i.source, ScalarType::B64)?,
            is_pair: is_pair(i.group),
            shape: i.shape,
            multicast: i.multicast,
            format: i.format,
        };
        Ok(self.issued_step(step))
    }

    #[expect(clippy::unused_self, reason = "as the other instructions")]
    pub(super) fn decode_tcgen05_shift(&mut self, _: &Tcgen05Shift) -> Decoded {
        Err(FaultKind::Unsupported("`tcgen05.shift`".into()))
    }

    pub(super) fn decode_cluster_try_cancel(&mut self, i: &ClusterTryCancel) -> Decoded {
        let space = i.space.or(Some(StateSpace::Shared));
        let step = TryCancel {
            response: self.address(&i.response, space)?,
            barrier: self.address(&i.mbarrier, space)?,
            is_multicast: i.multicast,
        };
        self.class = Class::Asynchronous;
        Ok(Action::Execute(Box::new(step)))
    }

    pub(super) fn decode_cluster_is_canceled(&mut self, i: &ClusterIsCanceled) -> Decoded {
        let (d, response) = (self.register(i.d), self.source(i.response, ScalarType::B128)?);
        Ok(self.query(vec![d], response, |response| vec![is_canceled(response)]))
    }

    pub(super) fn decode_cluster_first_block(&mut self, i: &ClusterFirstBlock) -> Decoded {
        let d = self.results(&i.d.0);
        let response = self.source(i.response, ScalarType::B128)?;
        let values = |response| {
            let dimension = |dimension| response_dimension(response, dimension);
            vec![dimension(0), dimension(1), dimension(2), 0]
        };
        Ok(self.query(d, response, values))
    }

    pub(super) fn decode_cluster_first_block_dimension(&mut self, i: &ClusterFirstBlockDimension) -> Decoded {
        let dimension = match i.dimension {
            ClusterDimension::X => 0,
            ClusterDimension::Y => 1,
            ClusterDimension::Z => 2,
        };
        let (d, response) = (self.register(i.d), self.source(i.response, ScalarType::B128)?);
        Ok(self.query(vec![d], response, move |response| vec![response_dimension(response, dimension)]))
    }

    /// Returns the step that sets registers to fields of a cancellation response.
    fn query(
        &mut self,
        d: Vec<Slot>,
        response: Slot,
        values: impl Fn(u128) -> Vec<u64> + Send + Sync + 'static,
    ) -> Action {
        self.class = Class::Asynchronous;
        Action::Execute(Box::new(move |context: &mut Context<'_>| {
            for lane in lanes_of(context.lanes) {
                let low = u128::from(context.get(response, lane));
                let high = u128::from(context.get(response.next(), lane));
                for (&slot, value) in d.iter().zip(values(low | high << 64)) {
                    context.set(slot, lane, value);
                }
            }
            Ok(Flow::Next)
        }))
    }
}

fn is_pair(group: CtaGroup) -> bool {
    group == CtaGroup::Two
}

fn fragment(shape: TensorMemoryShape, split: Option<Source>, is_packed: bool) -> Decoded<TensorFragment> {
    Ok(TensorFragment { shape, split: split.map_or(Ok(0), immediate)?, is_packed })
}
