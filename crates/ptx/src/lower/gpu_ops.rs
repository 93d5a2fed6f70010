//! The ops that the language of the GPU path has beyond tile IR.

use tilewright_gpu::language::{Deferred, GpuVisitor, MmaShape, Scope};
use tilewright_ir::{CacheModifier, ElementwiseFn, EvictionPolicy, InputPrecision, Inst, IntList, Value};

use super::memory::Policy;
use super::shared_memory::Loads;
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
    ) -> Lowered {
        let policy = Policy::new(*cache, *eviction, *volatile);
        self.lower_load(inst, pointer, [mask, other], [*axis, *width], policy);
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

    fn reduce(&mut self, inst: Inst, tiles: &[Value], axis: &u32, scope: &Scope) -> Lowered {
        self.lower_reduce(inst, tiles, *axis as usize, *scope)
    }

    // The instruction is chosen by the precision.
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
    ) -> Lowered {
        self.lower_mma(inst, [a, b, acc], *instruction, [warps[0] as u32, warps[1] as u32])
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
        let offset = offset.0.ok_or_else(|| self.unsupported(inst, "shared memory without a place"))?;
        let address = self.shared_address(offset);
        self.set_result(inst, [address]);
        Ok(())
    }

    fn dealloc(&mut self, _: Inst, _: Value) -> Lowered {
        Ok(())
    }

    fn local_store(&mut self, _: Inst, buffer: Value, value: Value) -> Lowered {
        self.lower_local_store(buffer, value);
        Ok(())
    }

    fn local_load(&mut self, inst: Inst, buffer: Value, matrix: &bool) -> Lowered {
        let loads = if *matrix { Loads::Widest } else { Loads::Vectors };
        self.lower_local_load(inst, buffer, loads);
        Ok(())
    }

    fn slot(&mut self, inst: Inst, _: Value, _: Value) -> Lowered {
        Err(self.unsupported(inst, "`slot`"))
    }

    fn copy_async(
        &mut self,
        inst: Inst,
        _: Value,
        _: Value,
        _: Option<Value>,
        _: &CacheModifier,
        _: &u32,
        _: &u32,
    ) -> Lowered {
        Err(self.unsupported(inst, "`copy_async`"))
    }

    fn commit_group(&mut self, inst: Inst) -> Lowered {
        Err(self.unsupported(inst, "`commit_group`"))
    }

    fn wait_group(&mut self, inst: Inst, _: &u32) -> Lowered {
        Err(self.unsupported(inst, "`wait_group`"))
    }

    fn mbarrier_init(&mut self, inst: Inst, _: Value, _: &u32) -> Lowered {
        Err(self.unsupported(inst, "`mbarrier_init`"))
    }

    fn mbarrier_expect(&mut self, inst: Inst, _: Value, _: Value, _: &u32) -> Lowered {
        Err(self.unsupported(inst, "`mbarrier_expect`"))
    }

    fn mbarrier_arrive(&mut self, inst: Inst, _: Value, _: Value) -> Lowered {
        Err(self.unsupported(inst, "`mbarrier_arrive`"))
    }

    fn mbarrier_arrive_copies(&mut self, inst: Inst, _: Value, _: Value) -> Lowered {
        Err(self.unsupported(inst, "`mbarrier_arrive_copies`"))
    }

    fn mbarrier_wait(&mut self, inst: Inst, _: Value, _: Value, _: Value) -> Lowered {
        Err(self.unsupported(inst, "`mbarrier_wait`"))
    }

    fn tensor_load(&mut self, inst: Inst, _: Value, _: Value, _: Value, _: Value, _: &[Value]) -> Lowered {
        Err(self.unsupported(inst, "`tensor_load`"))
    }

    fn tensor_fill(&mut self, inst: Inst, _: Value, _: Value, _: &[Value]) -> Lowered {
        Err(self.unsupported(inst, "`tensor_fill`"))
    }

    fn tensor_store(&mut self, inst: Inst, _: Value, _: Value, _: &[Value]) -> Lowered {
        Err(self.unsupported(inst, "`tensor_store`"))
    }

    fn tensor_store_wait(&mut self, inst: Inst, _: &u32) -> Lowered {
        Err(self.unsupported(inst, "`tensor_store_wait`"))
    }

    fn wgmma(
        &mut self,
        inst: Inst,
        _: Value,
        _: Value,
        _: Value,
        _: &MmaShape,
        _: &IntList,
        _: &u32,
    ) -> Lowered {
        Err(self.unsupported(inst, "`wgmma`"))
    }

    fn finish(&mut self, inst: Inst, _: Value, _: &Deferred) -> Lowered {
        Err(self.unsupported(inst, "`finish`"))
    }

    fn fence_proxy(&mut self, inst: Inst) -> Lowered {
        Err(self.unsupported(inst, "`fence_proxy`"))
    }

    fn named_barrier(&mut self, inst: Inst, _: &u32, _: &u32) -> Lowered {
        Err(self.unsupported(inst, "`named_barrier`"))
    }

    fn warp_roles(&mut self, inst: Inst, _: &IntList, _: &IntList) -> Lowered {
        Err(self.unsupported(inst, "`warp_roles`"))
    }

    fn acquire(&mut self, inst: Inst, _: Value) -> Lowered {
        Err(self.unsupported(inst, "`acquire`"))
    }

    fn publish(&mut self, inst: Inst, _: Value) -> Lowered {
        Err(self.unsupported(inst, "`publish`"))
    }

    fn take(&mut self, inst: Inst, _: Value) -> Lowered {
        Err(self.unsupported(inst, "`take`"))
    }

    fn release(&mut self, inst: Inst, _: Value) -> Lowered {
        Err(self.unsupported(inst, "`release`"))
    }
}
