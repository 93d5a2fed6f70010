//! Dispatches the ops of the GPU dialect to their lowerings.

use tilewright_gpu_ir::warps_of_dot;
use tilewright_gpu_ir::{Deferred, GpuVisitor, MmaShape, Scope, Type};
use tilewright_ir::{
    AtomicKind, CacheModifier, ElementwiseFn, EvictionPolicy, InputPrecision, Inst, IntList, MemoryScope,
    MemorySemantics, ScaledFormat, ScaledFormats, Value,
};

use super::memory::Policy;
use super::shared_memory::Loads;
use super::tensor_memory::TensorDotOperands;
use super::wgmma::WgmmaWindow;
use super::{Lowered, Lowering};

impl GpuVisitor for Lowering<'_> {
    type Output = Lowered;

    fn convert_layout(&mut self, inst: Inst, tile: Value) -> Lowered {
        self.lower_convert_layout(inst, tile);
        Ok(())
    }

    fn elementwise(
        &mut self,
        inst: Inst,
        operands: &[Value],
        function: &ElementwiseFn,
        equal_registers: &u32,
    ) -> Lowered {
        self.lower_elementwise(inst, operands, (*function, *equal_registers))
    }

    fn rescale(&mut self, inst: Inst, tile: Value, factor: Value) -> Lowered {
        self.lower_rescale(inst, tile, factor)
    }

    fn load(
        &mut self,
        inst: Inst,
        pointer: Value,
        mask: Option<Value>,
        other: Option<Value>,
        cache: &CacheModifier,
        eviction: &EvictionPolicy,
        volatile: &bool,
        axis: &u32,
        width: &u32,
        equal_registers: &u32,
    ) -> Lowered {
        let policy = Policy::new(*cache, *eviction, *volatile);
        self.lower_load(inst, pointer, [mask, other], ([*axis, *width], *equal_registers), policy);
        Ok(())
    }

    fn store(
        &mut self,
        _: Inst,
        pointer: Value,
        value: Value,
        mask: Option<Value>,
        cache: &CacheModifier,
        eviction: &EvictionPolicy,
        axis: &u32,
        width: &u32,
    ) -> Lowered {
        let policy = Policy::new(*cache, *eviction, false);
        self.lower_store([pointer, value], mask, [*axis, *width], policy);
        Ok(())
    }

    fn atomic_rmw(
        &mut self,
        inst: Inst,
        pointer: Value,
        value: Value,
        mask: Option<Value>,
        kind: &AtomicKind,
        sem: &MemorySemantics,
        scope: &MemoryScope,
        axis: &u32,
        width: &u32,
        _: &bool,
    ) -> Lowered {
        self.lower_atomic_rmw(inst, [pointer, value], mask, *kind, (*sem, *scope), [*axis, *width])
    }

    fn atomic_cas(
        &mut self,
        inst: Inst,
        pointer: Value,
        expected: Value,
        value: Value,
        mask: Option<Value>,
        sem: &MemorySemantics,
        scope: &MemoryScope,
        _: &bool,
    ) -> Lowered {
        self.lower_atomic_cas(inst, [pointer, expected, value], mask, (*sem, *scope));
        Ok(())
    }

    fn atomic_load(
        &mut self,
        inst: Inst,
        pointer: Value,
        mask: Option<Value>,
        sem: &MemorySemantics,
        scope: &MemoryScope,
        _: &bool,
    ) -> Lowered {
        self.lower_atomic_load(inst, pointer, mask, (*sem, *scope));
        Ok(())
    }

    fn atomic_store(
        &mut self,
        _: Inst,
        pointer: Value,
        value: Value,
        mask: Option<Value>,
        sem: &MemorySemantics,
        scope: &MemoryScope,
    ) -> Lowered {
        self.lower_atomic_store([pointer, value], mask, (*sem, *scope));
        Ok(())
    }

    fn atomic_poll(
        &mut self,
        inst: Inst,
        pointer: Value,
        expected: Value,
        timeout: Option<Value>,
        sem: &MemorySemantics,
        scope: &MemoryScope,
        _: &bool,
    ) -> Lowered {
        self.lower_atomic_poll(inst, [pointer, expected], timeout, (*sem, *scope));
        Ok(())
    }

    fn reduce(&mut self, inst: Inst, tiles: &[Value], axis: &u32, scope: &Scope, redux: &bool) -> Lowered {
        self.lower_reduce(inst, tiles, *axis as usize, (*scope, *redux))
    }

    fn scan(&mut self, inst: Inst, tiles: &[Value], axis: &u32, reverse: &bool, scope: &Scope) -> Lowered {
        self.lower_scan(inst, tiles, (*axis as usize, *reverse), *scope)
    }

    fn scan_carry(&mut self, inst: Inst, operands: &[Value], axis: &u32, reverse: &bool) -> Lowered {
        self.lower_scan_carry(inst, operands, *axis as usize, *reverse)
    }

    // An earlier pass has chosen the instruction by the input precision.
    fn mma_sync(
        &mut self,
        inst: Inst,
        a: Value,
        b: Value,
        acc: Value,
        instruction: &MmaShape,
        warps: &IntList,
        _: &InputPrecision,
        _: &u32,
        matrix_a: &bool,
        matrix_b: &bool,
    ) -> Lowered {
        let loads = [matrix_a, matrix_b].map(|by_matrix| Loads::by_matrix(*by_matrix));
        let warps = warps_of_dot(warps).expect("the verifier checks the warps of products");
        self.lower_mma(inst, [a, b, acc], *instruction, warps, loads)
    }

    fn fma_dot(
        &mut self,
        inst: Inst,
        a: Value,
        b: Value,
        acc: Value,
        _: &InputPrecision,
        _: &u32,
    ) -> Lowered {
        self.lower_fma_dot(inst, [a, b, acc])
    }

    fn alloc(&mut self, inst: Inst, offset: &Deferred) -> Lowered {
        self.lower_alloc(inst, offset.0)
    }

    fn dealloc(&mut self, _: Inst, memory: Value) -> Lowered {
        if let Type::Mbarrier { .. } = self.kernel.ty(memory) {
            self.lower_mbarrier_end(memory);
        }
        Ok(())
    }

    fn local_store(&mut self, _: Inst, buffer: Value, value: Value) -> Lowered {
        self.lower_local_store(buffer, value);
        Ok(())
    }

    fn local_histogram(&mut self, _: Inst, buffer: Value, tile: Value, mask: Option<Value>) -> Lowered {
        self.lower_local_histogram(buffer, tile, mask);
        Ok(())
    }

    fn tensor_box(&mut self, inst: Inst, pointer: Value, _: Value, _: &[Value]) -> Lowered {
        let pointers = self.get(pointer);
        self.set_result(inst, pointers);
        Ok(())
    }

    fn local_load(&mut self, inst: Inst, buffer: Value, matrix: &bool) -> Lowered {
        self.lower_local_load(inst, buffer, Loads::by_matrix(*matrix));
        Ok(())
    }

    fn slot(&mut self, inst: Inst, buffer: Value, index: Value) -> Lowered {
        self.lower_slot(inst, buffer, index);
        Ok(())
    }

    fn view(&mut self, inst: Inst, buffer: Value) -> Lowered {
        let address = self.scalar(buffer);
        self.set(self.kernel.insts[inst].results[0], [address]);
        Ok(())
    }

    fn copy_async(
        &mut self,
        inst: Inst,
        buffer: Value,
        pointer: Value,
        mask: Option<Value>,
        cache: &CacheModifier,
        axis: &u32,
        width: &u32,
    ) -> Lowered {
        self.lower_copy_async(inst, [buffer, pointer], mask, *cache, [*axis, *width])
    }

    fn wgmma_init(&mut self, inst: Inst, acc: Value) -> Lowered {
        self.lower_wgmma_init(inst, acc)
    }

    fn commit_group(&mut self, inst: Inst) -> Lowered {
        self.lower_commit_group(inst)
    }

    fn wait_group(&mut self, inst: Inst, pending: &u32) -> Lowered {
        self.lower_wait_group(inst, *pending)
    }

    fn mbarrier_init(&mut self, inst: Inst, barriers: Value, slot: Option<Value>, arrivals: &u32) -> Lowered {
        self.lower_mbarrier_init(inst, (barriers, slot), *arrivals)
    }

    fn mbarrier_expect(&mut self, inst: Inst, barriers: Value, slot: Value, bytes: &u32) -> Lowered {
        self.lower_mbarrier_expect(inst, [barriers, slot], *bytes)
    }

    fn mbarrier_invalidate(&mut self, inst: Inst, barriers: Value, slot: Value) -> Lowered {
        self.lower_mbarrier_invalidate(inst, [barriers, slot])
    }

    fn mbarrier_arrive_times(&mut self, inst: Inst, barriers: Value, slot: Value, arrivals: &u32) -> Lowered {
        self.lower_mbarrier_arrive_times(inst, [barriers, slot], *arrivals)
    }

    fn mbarrier_arrive(&mut self, inst: Inst, barriers: Value, slot: Value) -> Lowered {
        self.lower_mbarrier_arrive(inst, [barriers, slot])
    }

    fn mbarrier_arrive_copies(&mut self, inst: Inst, barriers: Value, slot: Value) -> Lowered {
        self.lower_mbarrier_arrive_copies(inst, [barriers, slot], true)
    }

    fn mbarrier_track_copies(&mut self, inst: Inst, barriers: Value, slot: Value) -> Lowered {
        self.lower_mbarrier_arrive_copies(inst, [barriers, slot], false)
    }

    fn mbarrier_wait(&mut self, inst: Inst, barriers: Value, slot: Value, parity: Value) -> Lowered {
        self.lower_mbarrier_wait(inst, [barriers, slot], parity)
    }

    fn tensor_load(
        &mut self,
        inst: Inst,
        buffer: Value,
        descriptor: Value,
        barriers: Value,
        slot: Value,
        coordinates: &[Value],
    ) -> Lowered {
        self.lower_tensor_load(inst, [buffer, descriptor], [barriers, slot], coordinates)
    }

    fn tensor_load_to(
        &mut self,
        inst: Inst,
        buffer: Value,
        descriptor: Value,
        barriers: Value,
        slot: Value,
        blocks: Value,
        coordinates: &[Value],
        offsets: &u32,
        at_lead: &bool,
    ) -> Lowered {
        self.lower_tensor_load_to(
            inst,
            [buffer, descriptor],
            [barriers, slot, blocks],
            (coordinates, *offsets),
            *at_lead,
        )
    }

    fn gather_blocks(&mut self, inst: Inst, buffer: Value, blocks: &u32) -> Lowered {
        self.lower_gather_blocks(inst, buffer, *blocks)
    }

    fn mbarrier_arrive_at(
        &mut self,
        inst: Inst,
        barriers: Value,
        slot: Value,
        block: Value,
        arrivals: &u32,
        bytes: &u32,
    ) -> Lowered {
        self.lower_mbarrier_arrive_at(inst, [barriers, slot, block], (*arrivals, *bytes))
    }

    fn multicast_loads(&mut self, _: Inst, _: Value, _: Value, _: Value, _: Value) -> Lowered {
        // `ClusterBuffers::of` has collected these ops.
        Ok(())
    }

    fn cluster_arrive(&mut self, inst: Inst) -> Lowered {
        self.lower_cluster_arrive(inst)
    }

    fn cluster_wait(&mut self, inst: Inst) -> Lowered {
        self.lower_cluster_wait(inst)
    }

    fn tensor_fill(&mut self, inst: Inst, _: Value, _: Value, _: &[Value]) -> Lowered {
        Err(self.unsupported(inst, "`tensor_fill`"))
    }

    fn tensor_store(
        &mut self,
        inst: Inst,
        buffer: Value,
        descriptor: Value,
        coordinates: &[Value],
    ) -> Lowered {
        self.lower_tensor_store(inst, [buffer, descriptor], coordinates, None)
    }

    fn tensor_reduce(
        &mut self,
        inst: Inst,
        buffer: Value,
        descriptor: Value,
        coordinates: &[Value],
        kind: &AtomicKind,
    ) -> Lowered {
        self.lower_tensor_store(inst, [buffer, descriptor], coordinates, Some(*kind))
    }

    fn make_tensor_map(&mut self, inst: Inst, buffer: Value, parts: &[Value], map: &u32) -> Lowered {
        self.lower_make_tensor_map(inst, buffer, parts, *map)
    }

    fn fence_global(&mut self, inst: Inst) -> Lowered {
        self.lower_fence_global(inst)
    }

    fn tensor_store_wait(&mut self, inst: Inst, pending: &u32, complete: &bool) -> Lowered {
        self.lower_tensor_store_wait(inst, *pending, *complete)
    }

    fn wgmma(
        &mut self,
        inst: Inst,
        a: Value,
        b: Value,
        acc: Value,
        further: &[Value],
        instruction: &MmaShape,
        warps: &IntList,
        max_imprecise_acc: &u32,
        transposed_a: &bool,
        transposed_b: &bool,
        window: &IntList,
        formats: &Option<ScaledFormats>,
    ) -> Lowered {
        if formats.is_some() {
            return Err(self.unsupported(inst, "only tensor memory has dots with scales"));
        }
        if let Some(after) = further.first() {
            self.keep_after_all(*after);
        }
        let warps = [warps[0] as u32, warps[1] as u32];
        let transposed = [*transposed_a, *transposed_b];
        let depth = self.tile(a).shape[usize::from(!transposed[0])];
        let number = |index: usize| window.get(index).map(|number| *number as u32);
        let parts = WgmmaWindow {
            starts: [0, 2].map(|first| [first, first + 1].map(|index| number(index).unwrap_or(0))),
            depth: number(4).unwrap_or(depth),
        };
        self.lower_wgmma(inst, [a, b, acc], transposed, (*instruction, warps), (*max_imprecise_acc, parts))
    }

    fn tcgen05_alloc(&mut self, inst: Inst, buffer: Value, columns: &u32) -> Lowered {
        self.lower_tcgen05_alloc(inst, buffer, *columns)
    }

    fn tcgen05_dealloc(&mut self, inst: Inst, columns: &u32) -> Lowered {
        self.lower_tcgen05_dealloc(inst, *columns)
    }

    fn tmem_load(&mut self, inst: Inst, memory: Value) -> Lowered {
        self.lower_tmem_load(inst, memory)
    }

    fn tmem_store(&mut self, inst: Inst, memory: Value, value: Value) -> Lowered {
        self.lower_tmem_store(inst, memory, value)
    }

    fn tcgen05_mma(
        &mut self,
        inst: Inst,
        a: Value,
        b: Value,
        acc: Value,
        use_acc: Value,
        transposed_a: &bool,
        transposed_b: &bool,
    ) -> Lowered {
        let transposed = [*transposed_a, *transposed_b];
        self.lower_tcgen05_mma(inst, &TensorDotOperands { a, b, acc, use_acc, transposed })
    }

    fn tcgen05_mma_scaled(
        &mut self,
        inst: Inst,
        a: Value,
        b: Value,
        acc: Value,
        a_scale: Value,
        b_scale: Value,
        use_acc: Value,
        a_format: &ScaledFormat,
        b_format: &ScaledFormat,
        transposed_a: &bool,
        transposed_b: &bool,
    ) -> Lowered {
        let transposed = [*transposed_a, *transposed_b];
        let operands = TensorDotOperands { a, b, acc, use_acc, transposed };
        self.lower_tcgen05_mma_scaled(inst, &operands, [a_scale, b_scale], [*a_format, *b_format])
    }

    fn tcgen05_copy(&mut self, inst: Inst, source: Value, memory: Value) -> Lowered {
        self.lower_tcgen05_copy(inst, [source, memory])
    }

    fn tcgen05_commit(&mut self, inst: Inst, barriers: Value, slot: Value, pair: &bool) -> Lowered {
        self.lower_tcgen05_commit(inst, [barriers, slot], *pair)
    }

    fn clc_try_cancel(
        &mut self,
        inst: Inst,
        buffer: Value,
        barriers: Value,
        slot: Value,
        multicast: &bool,
    ) -> Lowered {
        self.lower_try_cancel(inst, buffer, [barriers, slot], *multicast)
    }

    fn clc_load_result(&mut self, inst: Inst, buffer: Value, blocks: &u32) -> Lowered {
        self.lower_load_result(inst, buffer, *blocks)
    }

    fn wgmma_wait(&mut self, inst: Inst, dot: Value, after: Option<Value>, pending: &Deferred) -> Lowered {
        self.lower_wgmma_wait(inst, dot, after, pending.0)
    }

    fn wgmma_wait_earlier(&mut self, inst: Inst, dot: Value, pending: &u32) -> Lowered {
        self.lower_wgmma_wait_earlier(inst, dot, *pending)
    }

    fn fence_proxy(&mut self, inst: Inst, _slots: &[Value]) -> Lowered {
        self.lower_fence_proxy(inst)
    }

    fn named_barrier(&mut self, _: Inst, barrier: &u32, threads: &u32) -> Lowered {
        self.lower_named_barrier(*barrier, *threads);
        Ok(())
    }

    fn warp_specialize(&mut self, inst: Inst, warps: &IntList, registers: &IntList) -> Lowered {
        self.lower_warp_specialize(inst, warps, registers)
    }

    // An earlier pass has replaced the ops on rings.

    fn acquire(&mut self, inst: Inst, _: Value) -> Lowered {
        Err(self.no_op(inst))
    }

    fn publish(&mut self, inst: Inst, _: Value) -> Lowered {
        Err(self.no_op(inst))
    }

    fn take(&mut self, inst: Inst, _: Value) -> Lowered {
        Err(self.no_op(inst))
    }

    fn release(&mut self, inst: Inst, _: Value) -> Lowered {
        Err(self.no_op(inst))
    }
}
