//! Checks of ops for clusters.

use tilewright_ir as ir;
use tilewright_layout::Input;

use super::{Check, Checker, ensure};
use crate::target::CLC_RESPONSE_BYTES;
use crate::{GpuOp, Type};

impl Checker<'_> {
    /// Checks a load from several blocks of the cluster.
    fn gather_blocks(&self, blocks: u32) -> Check {
        ensure(blocks < self.header.cluster, || {
            format!("{} from the blocks {blocks:#x} of {}", self.name(), self.header.cluster)
        })?;
        let tile = self.memory(0)?.tile();
        let (bits, result) = (blocks.count_ones(), self.ty(self.inst.results[0]));
        let shape = [1 << bits].into_iter().chain(tile.shape.iter().copied()).collect();
        self.tiles(&[tile.with_shape(shape)])?;
        let elements = tile.shape.elements() as u32;
        let first: Vec<u32> = (0..bits).map(|bit| elements << bit).collect();
        let is_first = self.layout(result).is_some_and(|layout| {
            let others = layout.columns().iter().skip(first.len()).all(|column| *column < elements);
            layout.bases(Input::Register).starts_with(&first) && others
        });
        ensure(is_first, || format!("the blocks are not along the lowest registers of {result}"))
    }

    /// Checks a tensor load of pixels, or one to several blocks.
    fn tensor_load_to(&self, offsets: u32, at_lead: bool) -> Check {
        /// The operands before the coordinates.
        const BEFORE: usize = 5;
        let is_own =
            ir::constant_int(self.function, self.inst.operands[BEFORE - 1]).is_some_and(|mask| mask == 0);
        if !is_own || at_lead {
            self.has_clusters()?;
        }
        ensure(is_own || !at_lead, || {
            format!("{} to several blocks signals the mbarrier of each block", self.name())
        })?;
        self.barriers(2)?;
        self.index(self.inst.operands[BEFORE - 1])?;
        let axes = self.inst.operands.len() - BEFORE;
        // A tensor of `n` axes has `n` coordinates. The `n - 2` axes between images and channels
        // have offsets.
        let fits = offsets == 0 || (1..=3).contains(&offsets) && axes == 2 * offsets as usize + 2;
        ensure(fits, || {
            format!("{} has {axes} coordinates and offsets, {offsets} of them offsets", self.name())
        })?;
        self.tensor_copy(BEFORE)
    }

    /// Checks a request for a cluster that has not begun.
    pub(super) fn try_cancel(&self, multicast: bool) -> Check {
        self.response()?;
        self.barriers(1)?;
        if multicast { self.has_clusters() } else { Ok(()) }
    }

    /// Checks a load of the response to such a request.
    pub(super) fn load_result(&self, blocks: u32) -> Check {
        self.response()?;
        ensure(blocks > 0, || format!("{} divides an index by 0", self.name()))?;
        let types = [ir::Dtype::I1, ir::Dtype::I32, ir::Dtype::I32, ir::Dtype::I32];
        self.results(&types.map(|dtype| Type::scalar(ir::Type::scalar(dtype))))
    }

    /// Checks the buffer of a response.
    fn response(&self) -> Check {
        let bytes = self.memory(0)?.slot_bytes();
        ensure(bytes == CLC_RESPONSE_BYTES, || {
            format!("{} needs a buffer of {CLC_RESPONSE_BYTES} bytes, found {}", self.name(), self.operand(0))
        })
    }

    /// Checks an op for clusters.
    pub(super) fn cluster_op(&self, op: &GpuOp) -> Check {
        match op {
            GpuOp::TensorLoadTo { offsets, at_lead } => return self.tensor_load_to(*offsets, *at_lead),
            GpuOp::GatherBlocks { blocks } => self.gather_blocks(*blocks)?,
            GpuOp::MbarrierArriveAt { .. } => {
                self.barriers(0)?;
                self.index(self.inst.operands[2])?;
            }
            GpuOp::MulticastLoads {} => self.multicast_loads()?,
            // tidy: wildcard because other ops for clusters have no operands
            _ => {}
        }
        self.has_clusters()
    }

    fn has_clusters(&self) -> Check {
        ensure(self.header.paired || self.header.cluster > 1, || {
            format!("{} in a kernel without clusters", self.name())
        })
    }

    fn multicast_loads(&self) -> Check {
        let are_barriers = [1, 2].iter().all(|index| matches!(self.operand(*index), Type::Mbarrier { .. }));
        ensure(matches!(self.operand(0), Type::Buffer(_)) && are_barriers, || {
            "multicast_loads takes a buffer and the barriers of its slots".into()
        })?;
        let condition = self.registers(3)?;
        let is_condition = condition.is_scalar() && condition.element.value() == Some(ir::Dtype::I1);
        ensure(is_condition, || format!("the condition of multicast_loads must be int1, found {condition}"))
    }
}
