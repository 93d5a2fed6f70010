//! Lowers requests for clusters that have not begun: PTX ISA, "Parallel Synchronization and
//! Communication Instructions: `clusterlaunchcontrol`".

use tilewright_gpu_ir::Feature;
use tilewright_ir::{Dtype, Inst, Value};

use super::arithmetic::Integer;
use super::builder::{Scalar, Width, destinations};
use super::memory::plain_load;
use super::{Lowered, Lowering};
use crate::isa::{self, ClusterDimension, Completion, Register, ScalarType, StateSpace};

const RESPONSE: ScalarType = ScalarType::B128;
const DIMENSIONS: [ClusterDimension; 3] = [ClusterDimension::X, ClusterDimension::Y, ClusterDimension::Z];

impl Lowering<'_> {
    pub(super) fn lower_try_cancel(
        &mut self,
        inst: Inst,
        buffer: Value,
        [barriers, slot]: [Value; 2],
        multicast: bool,
    ) -> Lowered {
        self.require(inst, Feature::ClusterLaunchControl)?;
        let elected = self.elected();
        let response = self.scalar(buffer);
        let response = self.builder.address(Width::B32, response);
        let mbarrier = self.mbarrier(barriers, slot);
        let request = isa::ClusterTryCancel {
            space: Some(StateSpace::SharedCta),
            completion: Completion::Mbarrier,
            multicast,
            ty: RESPONSE,
            response,
            mbarrier,
        };
        self.builder.emit_if(Some(elected), request);
        Ok(())
    }

    pub(super) fn lower_load_result(&mut self, inst: Inst, buffer: Value, blocks: u32) -> Lowered {
        self.require(inst, Feature::ClusterLaunchControl)?;
        let place = self.scalar(buffer);
        let place = self.builder.address(Width::B32, place);
        let response = self.builder.function.registers.push(Register { name: Box::default(), ty: RESPONSE });
        let load = plain_load(destinations(&[response]), place, RESPONSE);
        self.builder.emit(isa::Ld { space: Some(StateSpace::Shared), ..load });
        let is_canceled = self.builder.pure(Width::Pred, |d| isa::ClusterIsCanceled {
            ty: ScalarType::Pred,
            response_ty: RESPONSE,
            d,
            response: response.into(),
        });
        let guard = self.builder.predicate(is_canceled);
        let mut results = vec![is_canceled];
        for dimension in DIMENSIONS {
            // Without a cluster, the instruction is not defined.
            let d = self.builder.fresh(Width::B32);
            self.builder.assign(Width::B32, d, Scalar::constant(0));
            let query = isa::ClusterFirstBlockDimension {
                dimension,
                ty: ScalarType::B32,
                response_ty: RESPONSE,
                d,
                response: response.into(),
            };
            self.builder.emit_if(Some(guard), query);
            results.push(d.into());
        }
        if blocks > 1 {
            let ty = Integer::of(Dtype::U32);
            results[1] = self.builder.quotient(ty, results[1], Scalar::constant(blocks.into()));
        }
        let values = self.kernel.insts[inst].results.clone();
        for (value, result) in values.into_iter().zip(results) {
            self.set(value, [result]);
        }
        Ok(())
    }
}
