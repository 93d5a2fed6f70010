//! Lowers slots of buffers, `cp.async`, and the synchronization of copies. PTX ISA: "Data Movement
//! and Conversion Instructions: `cp.async`", and "Parallel Synchronization and Communication
//! Instructions: `barrier`, `elect.sync`, `fence.proxy`".

use tilewright_base::Diagnostic;
use tilewright_gpu_ir::Feature;
use tilewright_gpu_ir::{Buffer, Type};
use tilewright_ir::{CacheModifier, Inst, Value};
use tilewright_layout::Input;

use super::builder::{Scalar, Width};
use super::integer::Bitwise;
use super::{LANES, Lowered, Lowering, memory_bits};
use crate::isa::{
    self, Comparison, CopyCache, Destination, DestinationPair, Predicate, ProxyKind, Source, StateSpace,
};

/// The largest copy of one instruction, in bytes. Only these copies may bypass L1.
const WIDEST_COPY: u32 = 16;

/// The size of an `mbarrier`, in bytes.
pub(super) const MBARRIER_BYTES: u32 = 8;

impl Lowering<'_> {
    pub(super) fn lower_alloc(&mut self, inst: Inst, offset: Option<u32>) -> Lowered {
        if self.kernel.ty(self.kernel.insts[inst].results[0]).as_tensor_memory().is_some() {
            return self.lower_tensor_memory(inst, offset);
        }
        let offset = offset.ok_or_else(|| self.unsupported(inst, "shared memory without an offset"))?;
        let address = self.shared_address(offset);
        self.set_result(inst, [address]);
        Ok(())
    }

    pub(super) fn lower_slot(&mut self, inst: Inst, buffer: Value, index: Value) {
        let distance = match self.kernel.ty(buffer) {
            Type::Buffer(buffer) => buffer.slot_bytes(),
            Type::TensorMemory(memory) => memory.slot_columns(),
            other => unreachable!("the verifier checks that {other} has slots"),
        };
        let address = self.indexed(buffer, index, distance);
        self.set(self.kernel.insts[inst].results[0], [address]);
    }

    /// Returns the address of a slot or a barrier by its index. `distance` is the one between
    /// consecutive slots or barriers.
    pub(super) fn indexed(&mut self, memory: Value, index: Value, distance: u32) -> Scalar {
        let (start, index) = (self.scalar(memory), self.scalar(index));
        let offset = self.builder.mul(Width::B32, index, Scalar::constant(distance.into()));
        self.builder.add(Width::B32, start, offset)
    }

    /// Returns the type of a buffer or slot.
    pub(super) fn memory(&self, value: Value) -> &Buffer {
        self.kernel.ty(value).as_memory().expect("the verifier checks what is in shared memory")
    }

    /// Returns a predicate that is true in one of the running threads, always the same. All of them
    /// must execute the election.
    pub(super) fn elected(&mut self) -> Predicate {
        let place = (self.builder.labels, self.warps.first);
        if let Some((labels, first, leader)) = self.leader
            && (labels, first) == place
        {
            return leader;
        }
        let leader = self.builder.fresh(Width::Pred);
        // `elect.sync` tells the assembler that only one lane is active.
        self.builder.emit(isa::Elect {
            d: DestinationPair { first: Destination::Sink, second: Some(Destination::Register(leader)) },
            mask: (-1).into(),
        });
        let mut condition = Scalar::from(leader);
        if self.warps.count > 1 {
            let (thread, lanes) = (self.thread(), Scalar::constant(LANES.into()));
            let is_first_warp = self.builder.compare(Width::B32, false, Comparison::Lt, thread, lanes);
            condition = self.builder.bitwise(Bitwise::And, Width::Pred, condition, is_first_warp);
        }
        let leader = self.builder.predicate(condition);
        self.leader = Some((place.0, place.1, leader));
        leader
    }

    /// Emits one `cp.async` for each vector of pointers. A copy with a false mask fills its
    /// destination with zeros.
    pub(super) fn lower_copy_async(
        &mut self,
        inst: Inst,
        [buffer, pointer]: [Value; 2],
        mask: Option<Value>,
        cache: CacheModifier,
        vector: [u32; 2],
    ) -> Lowered {
        self.require(inst, Feature::CpAsync)?;
        let layout = self.layout(pointer);
        let element = self.memory(buffer).element;
        let (bytes, size) = (memory_bits(element) / 8, memory_bits(element) / 8 * vector[1]);
        let is_wide = size == WIDEST_COPY;
        let cache = match cache {
            CacheModifier::All => CopyCache::All,
            // Threads read the data from shared memory, not from L1.
            _ if is_wide => CopyCache::Global,
            _ => CopyCache::All,
        };
        let (pointers, masks) = (self.get(pointer), mask.map(|mask| self.get_in(mask, Some(layout))));
        let is_first = self.is_first(layout.free_bits(Input::Lane), layout.free_bits(Input::Warp));
        let guard = (is_first != Scalar::TRUE).then(|| self.builder.predicate(is_first));
        let offsets = layout.offsets_in(self.layout(buffer));
        let images: Vec<u32> = Self::thread_images(&offsets).iter().map(|image| image * bytes).collect();
        let ty = self.memory(buffer).clone();
        let thread = self.padded_position(images, self.scalar(buffer), &ty);
        for registers in Self::accesses(Some(layout), vector) {
            let first = registers[0] as usize;
            let own = offsets.at(&[(Input::Register, registers[0])]) * bytes;
            let place = self.shared_position(&thread, own);
            let mask = masks.as_ref().map_or(Scalar::TRUE, |masks| masks[first]);
            let source_size = (mask != Scalar::TRUE).then(|| {
                let wanted = Scalar::constant(size.into());
                let read = self.builder.select(Width::B32, mask, wanted, Scalar::constant(0));
                self.builder.source(Width::B32, read)
            });
            let destination = self.builder.address(Width::B32, place);
            let source = self.builder.address(Width::B64, pointers[first]);
            let copy = isa::CpAsync {
                cache,
                destination_space: StateSpace::Shared,
                source_space: StateSpace::Global,
                cache_hint: false,
                prefetch: None,
                destination,
                source,
                size: i64::from(size).into(),
                source_size,
                policy: None,
            };
            self.builder.emit_if(guard, copy);
        }
        Ok(())
    }

    pub(super) fn lower_commit_group(&mut self, inst: Inst) -> Lowered {
        self.require(inst, Feature::CpAsync)?;
        self.builder.emit(isa::CpAsyncCommitGroup {});
        Ok(())
    }

    pub(super) fn lower_wait_group(&mut self, inst: Inst, pending: u32) -> Lowered {
        self.require(inst, Feature::CpAsync)?;
        self.builder.emit(isa::CpAsyncWaitGroup { n: i64::from(pending).into() });
        Ok(())
    }

    pub(super) fn lower_fence_proxy(&mut self, inst: Inst) -> Lowered {
        self.require(inst, Feature::Tma)?;
        self.builder.emit(isa::FenceProxy { kind: ProxyKind::AsyncSharedCta });
        Ok(())
    }

    pub(super) fn lower_fence_global(&mut self, inst: Inst) -> Lowered {
        self.require(inst, Feature::Tma)?;
        self.builder.emit(isa::FenceProxy { kind: ProxyKind::AsyncGlobal });
        Ok(())
    }

    pub(super) fn lower_named_barrier(&mut self, barrier: u32, threads: u32) {
        let [barrier, threads] = [barrier, threads].map(|number| Source::from(i64::from(number)));
        self.builder.emit(isa::BarrierSync { aligned: true, barrier, threads: Some(threads) });
    }

    /// Emits the barrier of all threads of the block. Fails in a partition, because other threads
    /// do not run its code.
    pub(super) fn lower_barrier(&mut self, inst: Inst) -> Result<(), Box<Diagnostic>> {
        if self.warps.count != self.program.header.num_warps {
            return Err(self.unsupported(inst, "a barrier of the block in a partition"));
        }
        self.wait();
        Ok(())
    }
}
