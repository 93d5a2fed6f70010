//! Dispatches each instruction to the decoder of its family.

use tilewright_ptx::isa;

use super::arithmetic::Extremum;
use super::{Action, Class, Decoded, Decoder};
use crate::context::Context;
use crate::fault::FaultKind;
use crate::numeric::approximate::Function;

impl isa::InstructionVisitor for Decoder<'_> {
    type Output = Decoded;

    fn add(&mut self, i: &isa::Add) -> Decoded {
        self.decode_add(i)
    }

    fn addc(&mut self, i: &isa::Addc) -> Decoded {
        self.decode_addc(i)
    }

    fn sub(&mut self, i: &isa::Sub) -> Decoded {
        self.decode_sub(i)
    }

    fn subc(&mut self, i: &isa::Subc) -> Decoded {
        self.decode_subc(i)
    }

    fn mul(&mut self, i: &isa::Mul) -> Decoded {
        self.decode_mul(i)
    }

    fn mad(&mut self, i: &isa::Mad) -> Decoded {
        self.decode_mad(i)
    }

    fn madc(&mut self, i: &isa::Madc) -> Decoded {
        self.decode_madc(i)
    }

    fn mul24(&mut self, i: &isa::Mul24) -> Decoded {
        self.decode_mul24(i)
    }

    fn mad24(&mut self, i: &isa::Mad24) -> Decoded {
        self.decode_mad24(i)
    }

    fn sad(&mut self, i: &isa::Sad) -> Decoded {
        self.decode_sad(i)
    }

    fn div(&mut self, i: &isa::Div) -> Decoded {
        self.decode_div(i)
    }

    fn rem(&mut self, i: &isa::Rem) -> Decoded {
        self.decode_rem(i)
    }

    fn abs(&mut self, i: &isa::Abs) -> Decoded {
        self.decode_abs(i)
    }

    fn neg(&mut self, i: &isa::Neg) -> Decoded {
        self.decode_neg(i)
    }

    fn min(&mut self, i: &isa::Min) -> Decoded {
        let isa::Min { ftz, nan, xorsign_abs, relu, ty, d, a, b, c } = *i;
        self.decode_extremum(&Extremum { largest: false, ftz, nan, xorsign_abs, relu, ty, d, a, b, c })
    }

    fn max(&mut self, i: &isa::Max) -> Decoded {
        let isa::Max { ftz, nan, xorsign_abs, relu, ty, d, a, b, c } = *i;
        self.decode_extremum(&Extremum { largest: true, ftz, nan, xorsign_abs, relu, ty, d, a, b, c })
    }

    fn fma(&mut self, i: &isa::Fma) -> Decoded {
        self.decode_fma(i)
    }

    fn add_mixed(&mut self, i: &isa::AddMixed) -> Decoded {
        self.decode_mixed_add((i.ty, i.rounding, i.saturate), i.d, [i.a, i.c], false)
    }

    fn sub_mixed(&mut self, i: &isa::SubMixed) -> Decoded {
        self.decode_mixed_add((i.ty, i.rounding, i.saturate), i.d, [i.a, i.c], true)
    }

    fn fma_mixed(&mut self, i: &isa::FmaMixed) -> Decoded {
        self.decode_mixed_fma(i)
    }

    fn popc(&mut self, i: &isa::Popc) -> Decoded {
        self.bits(i.ty, i.d, i.a, |a| u64::from(a.count_ones()))
    }

    fn clz(&mut self, i: &isa::Clz) -> Decoded {
        let bits = i.ty.bits();
        self.bits(i.ty, i.d, i.a, move |a| u64::from(a.leading_zeros() - (64 - bits)))
    }

    fn bfind(&mut self, i: &isa::Bfind) -> Decoded {
        self.decode_bfind(i)
    }

    fn fns(&mut self, i: &isa::Fns) -> Decoded {
        self.decode_fns(i)
    }

    fn brev(&mut self, i: &isa::Brev) -> Decoded {
        let bits = i.ty.bits();
        self.bits(i.ty, i.d, i.a, move |a| a.reverse_bits() >> (64 - bits))
    }

    fn bfe(&mut self, i: &isa::Bfe) -> Decoded {
        self.decode_bfe(i)
    }

    fn bfi(&mut self, i: &isa::Bfi) -> Decoded {
        self.decode_bfi(i)
    }

    fn bmsk(&mut self, i: &isa::Bmsk) -> Decoded {
        self.decode_bmsk(i)
    }

    fn szext(&mut self, i: &isa::Szext) -> Decoded {
        self.decode_szext(i)
    }

    fn dp4a(&mut self, i: &isa::Dp4a) -> Decoded {
        self.decode_dp4a(i)
    }

    fn dp2a(&mut self, i: &isa::Dp2a) -> Decoded {
        self.decode_dp2a(i)
    }

    fn sqrt(&mut self, i: &isa::Sqrt) -> Decoded {
        self.function(Function::Root, (i.approx, i.rounding, i.ftz, i.ty), (i.d, i.a))
    }

    fn rsqrt(&mut self, i: &isa::Rsqrt) -> Decoded {
        self.function(Function::ReciprocalRoot, (i.approx, None, i.ftz, i.ty), (i.d, i.a))
    }

    fn rcp(&mut self, i: &isa::Rcp) -> Decoded {
        self.function(Function::Reciprocal, (i.approx, i.rounding, i.ftz, i.ty), (i.d, i.a))
    }

    fn sin(&mut self, i: &isa::Sin) -> Decoded {
        self.function(Function::Sine, (i.approx, None, i.ftz, i.ty), (i.d, i.a))
    }

    fn cos(&mut self, i: &isa::Cos) -> Decoded {
        self.function(Function::Cosine, (i.approx, None, i.ftz, i.ty), (i.d, i.a))
    }

    fn lg2(&mut self, i: &isa::Lg2) -> Decoded {
        self.function(Function::Log2, (i.approx, None, i.ftz, i.ty), (i.d, i.a))
    }

    fn ex2(&mut self, i: &isa::Ex2) -> Decoded {
        self.function(Function::Exp2, (i.approx, None, i.ftz, i.ty), (i.d, i.a))
    }

    fn tanh(&mut self, i: &isa::Tanh) -> Decoded {
        self.function(Function::Tanh, (i.approx, None, false, i.ty), (i.d, i.a))
    }

    fn testp(&mut self, i: &isa::Testp) -> Decoded {
        self.decode_testp(i)
    }

    fn copysign(&mut self, i: &isa::Copysign) -> Decoded {
        self.decode_copysign(i)
    }

    fn set(&mut self, i: &isa::Set) -> Decoded {
        self.decode_set(i)
    }

    fn setp(&mut self, i: &isa::Setp) -> Decoded {
        self.decode_setp(i)
    }

    fn selp(&mut self, i: &isa::Selp) -> Decoded {
        self.select(i)
    }

    fn slct(&mut self, i: &isa::Slct) -> Decoded {
        self.decode_slct(i)
    }

    fn and(&mut self, i: &isa::And) -> Decoded {
        self.bitwise(i.ty, i.d, (i.a, i.b), |a, b| a & b)
    }

    fn or(&mut self, i: &isa::Or) -> Decoded {
        self.bitwise(i.ty, i.d, (i.a, i.b), |a, b| a | b)
    }

    fn xor(&mut self, i: &isa::Xor) -> Decoded {
        self.bitwise(i.ty, i.d, (i.a, i.b), |a, b| a ^ b)
    }

    fn not(&mut self, i: &isa::Not) -> Decoded {
        self.decode_not(i)
    }

    fn cnot(&mut self, i: &isa::Cnot) -> Decoded {
        self.bits(i.ty, i.d, i.a, |a| u64::from(a == 0))
    }

    fn lop3(&mut self, i: &isa::Lop3) -> Decoded {
        self.decode_lop3(i)
    }

    fn shf(&mut self, i: &isa::Shf) -> Decoded {
        self.decode_shf(i)
    }

    fn shl(&mut self, i: &isa::Shl) -> Decoded {
        self.decode_shl(i)
    }

    fn shr(&mut self, i: &isa::Shr) -> Decoded {
        self.decode_shr(i)
    }

    fn prmt(&mut self, i: &isa::Prmt) -> Decoded {
        self.decode_prmt(i)
    }

    fn mov(&mut self, i: &isa::Mov) -> Decoded {
        self.decode_mov(i)
    }

    fn cvt(&mut self, i: &isa::Cvt) -> Decoded {
        self.decode_cvt(i)
    }

    fn cvt_pack(&mut self, i: &isa::CvtPack) -> Decoded {
        self.decode_cvt_pack(i)
    }

    fn cvta(&mut self, i: &isa::Cvta) -> Decoded {
        self.decode_cvta(i)
    }

    fn isspacep(&mut self, i: &isa::Isspacep) -> Decoded {
        self.decode_isspacep(i)
    }

    fn mapa(&mut self, i: &isa::Mapa) -> Decoded {
        self.decode_mapa(i)
    }

    fn getctarank(&mut self, i: &isa::Getctarank) -> Decoded {
        self.decode_getctarank(i)
    }

    fn ld(&mut self, i: &isa::Ld) -> Decoded {
        self.decode_ld(i)
    }

    fn ldu(&mut self, i: &isa::Ldu) -> Decoded {
        self.decode_ldu(i)
    }

    fn st(&mut self, i: &isa::St) -> Decoded {
        self.decode_st(i)
    }

    fn st_async(&mut self, i: &isa::StAsync) -> Decoded {
        self.decode_st_async(i)
    }

    fn prefetch(&mut self, _: &isa::Prefetch) -> Decoded {
        Ok(Action::Nothing)
    }

    fn prefetchu(&mut self, _: &isa::Prefetchu) -> Decoded {
        Ok(Action::Nothing)
    }

    fn discard(&mut self, _: &isa::Discard) -> Decoded {
        Ok(Action::Nothing)
    }

    fn applypriority(&mut self, _: &isa::Applypriority) -> Decoded {
        Ok(Action::Nothing)
    }

    fn createpolicy_fractional(&mut self, i: &isa::CreatepolicyFractional) -> Decoded {
        Ok(self.decode_policy(i.d))
    }

    fn createpolicy_range(&mut self, i: &isa::CreatepolicyRange) -> Decoded {
        Ok(self.decode_policy(i.d))
    }

    fn createpolicy_cvt(&mut self, i: &isa::CreatepolicyCvt) -> Decoded {
        Ok(self.decode_policy(i.d))
    }

    fn atom(&mut self, i: &isa::Atom) -> Decoded {
        self.decode_atom(i)
    }

    fn red(&mut self, i: &isa::Red) -> Decoded {
        self.reduce(i)
    }

    fn red_async(&mut self, i: &isa::RedAsync) -> Decoded {
        self.decode_red_async(i)
    }

    fn cp_async(&mut self, i: &isa::CpAsync) -> Decoded {
        self.decode_cp_async(i)
    }

    fn cp_async_commit_group(&mut self, _: &isa::CpAsyncCommitGroup) -> Decoded {
        Ok(self.decode_cp_async_commit_group())
    }

    fn cp_async_wait_group(&mut self, i: &isa::CpAsyncWaitGroup) -> Decoded {
        self.decode_cp_async_wait_group(i)
    }

    fn cp_async_wait_all(&mut self, _: &isa::CpAsyncWaitAll) -> Decoded {
        Ok(self.decode_cp_async_wait_all())
    }

    fn cp_async_mbarrier_arrive(&mut self, i: &isa::CpAsyncMbarrierArrive) -> Decoded {
        self.decode_cp_async_mbarrier_arrive(i)
    }

    fn cp_async_bulk(&mut self, i: &isa::CpAsyncBulk) -> Decoded {
        self.decode_cp_async_bulk(i)
    }

    fn cp_async_bulk_prefetch(&mut self, _: &isa::CpAsyncBulkPrefetch) -> Decoded {
        Ok(Action::Nothing)
    }

    fn cp_async_bulk_tensor_load(&mut self, i: &isa::CpAsyncBulkTensorLoad) -> Decoded {
        self.decode_cp_async_bulk_tensor_load(i)
    }

    fn cp_async_bulk_tensor_store(&mut self, i: &isa::CpAsyncBulkTensorStore) -> Decoded {
        self.decode_cp_async_bulk_tensor_store(i)
    }

    fn cp_async_bulk_prefetch_tensor(&mut self, _: &isa::CpAsyncBulkPrefetchTensor) -> Decoded {
        Ok(Action::Nothing)
    }

    fn cp_reduce_async_bulk(&mut self, i: &isa::CpReduceAsyncBulk) -> Decoded {
        self.decode_cp_reduce_async_bulk(i)
    }

    fn cp_reduce_async_bulk_tensor(&mut self, i: &isa::CpReduceAsyncBulkTensor) -> Decoded {
        self.decode_cp_reduce_async_bulk_tensor(i)
    }

    fn cp_async_bulk_commit_group(&mut self, _: &isa::CpAsyncBulkCommitGroup) -> Decoded {
        Ok(self.decode_cp_async_bulk_commit_group())
    }

    fn cp_async_bulk_wait_group(&mut self, i: &isa::CpAsyncBulkWaitGroup) -> Decoded {
        self.decode_cp_async_bulk_wait_group(i)
    }

    fn tensormap_replace(&mut self, i: &isa::TensormapReplace) -> Decoded {
        self.decode_tensormap_replace(i)
    }

    fn tensormap_cp_fenceproxy(&mut self, i: &isa::TensormapCpFenceproxy) -> Decoded {
        self.decode_tensormap_cp_fenceproxy(i)
    }

    fn mbarrier_init(&mut self, i: &isa::MbarrierInit) -> Decoded {
        self.decode_mbarrier_init(i)
    }

    fn mbarrier_inval(&mut self, i: &isa::MbarrierInval) -> Decoded {
        self.decode_mbarrier_inval(i)
    }

    fn mbarrier_expect_tx(&mut self, i: &isa::MbarrierExpectTx) -> Decoded {
        self.decode_mbarrier_expect_tx(i)
    }

    fn mbarrier_complete_tx(&mut self, i: &isa::MbarrierCompleteTx) -> Decoded {
        self.decode_mbarrier_complete_tx(i)
    }

    fn mbarrier_arrive(&mut self, i: &isa::MbarrierArrive) -> Decoded {
        self.decode_mbarrier_arrive(i)
    }

    fn mbarrier_arrive_drop(&mut self, i: &isa::MbarrierArriveDrop) -> Decoded {
        self.decode_mbarrier_arrive_drop(i)
    }

    fn mbarrier_test_wait(&mut self, i: &isa::MbarrierTestWait) -> Decoded {
        self.decode_mbarrier_test_wait(i)
    }

    fn mbarrier_try_wait(&mut self, i: &isa::MbarrierTryWait) -> Decoded {
        self.decode_mbarrier_try_wait(i)
    }

    fn mbarrier_pending_count(&mut self, i: &isa::MbarrierPendingCount) -> Decoded {
        self.decode_mbarrier_pending_count(i)
    }

    fn membar(&mut self, _: &isa::Membar) -> Decoded {
        Ok(self.fence_threads())
    }

    fn membar_proxy(&mut self, i: &isa::MembarProxy) -> Decoded {
        Ok(self.decode_proxy_fence(i.kind))
    }

    fn fence(&mut self, _: &isa::Fence) -> Decoded {
        Ok(self.fence_threads())
    }

    fn fence_proxy(&mut self, i: &isa::FenceProxy) -> Decoded {
        Ok(self.decode_proxy_fence(i.kind))
    }

    fn fence_proxy_async_generic(&mut self, _: &isa::FenceProxyAsyncGeneric) -> Decoded {
        Ok(self.decode_proxy_fence(isa::ProxyKind::Async))
    }

    fn fence_proxy_tensormap(&mut self, i: &isa::FenceProxyTensormap) -> Decoded {
        self.decode_map_fence(i)
    }

    fn fence_mbarrier_init(&mut self, _: &isa::FenceMbarrierInit) -> Decoded {
        Ok(self.decode_mbarrier_init_fence())
    }

    fn barrier_sync(&mut self, i: &isa::BarrierSync) -> Decoded {
        self.decode_barrier_sync(i)
    }

    fn barrier_arrive(&mut self, i: &isa::BarrierArrive) -> Decoded {
        self.decode_barrier_arrive(i)
    }

    fn barrier_reduce(&mut self, i: &isa::BarrierReduce) -> Decoded {
        self.decode_barrier_reduce(i)
    }

    fn bar_warp_sync(&mut self, i: &isa::BarWarpSync) -> Decoded {
        self.decode_bar_warp_sync(i)
    }

    fn barrier_cluster_arrive(&mut self, i: &isa::BarrierClusterArrive) -> Decoded {
        Ok(self.decode_cluster_arrive(i))
    }

    fn barrier_cluster_wait(&mut self, i: &isa::BarrierClusterWait) -> Decoded {
        Ok(self.decode_cluster_wait(i))
    }

    fn griddepcontrol(&mut self, _: &isa::Griddepcontrol) -> Decoded {
        Ok(Action::Nothing)
    }

    fn shfl(&mut self, i: &isa::Shfl) -> Decoded {
        self.decode_shfl(i)
    }

    fn vote(&mut self, i: &isa::Vote) -> Decoded {
        Decoder::vote(self, i)
    }

    fn match_sync(&mut self, i: &isa::Match) -> Decoded {
        self.decode_match(i)
    }

    fn activemask(&mut self, i: &isa::Activemask) -> Decoded {
        Ok(self.decode_activemask(i))
    }

    fn redux(&mut self, i: &isa::Redux) -> Decoded {
        self.decode_redux(i)
    }

    fn elect(&mut self, i: &isa::Elect) -> Decoded {
        Decoder::elect(self, i)
    }

    fn ldmatrix(&mut self, i: &isa::Ldmatrix) -> Decoded {
        self.decode_ldmatrix(i)
    }

    fn stmatrix(&mut self, i: &isa::Stmatrix) -> Decoded {
        self.decode_stmatrix(i)
    }

    fn movmatrix(&mut self, i: &isa::Movmatrix) -> Decoded {
        self.decode_movmatrix(i)
    }

    fn mma(&mut self, i: &isa::Mma) -> Decoded {
        self.decode_mma(i)
    }

    fn wmma_load(&mut self, i: &isa::WmmaLoad) -> Decoded {
        self.decode_wmma_load(i)
    }

    fn wmma_store(&mut self, i: &isa::WmmaStore) -> Decoded {
        self.decode_wmma_store(i)
    }

    fn wmma_half(&mut self, i: &isa::WmmaHalf) -> Decoded {
        self.decode_wmma_half(i)
    }

    fn wmma(&mut self, i: &isa::Wmma) -> Decoded {
        self.decode_wmma(i)
    }

    fn wgmma(&mut self, i: &isa::Wgmma) -> Decoded {
        self.decode_wgmma(i)
    }

    fn wgmma_fence(&mut self, _: &isa::WgmmaFence) -> Decoded {
        Ok(self.decode_wgmma_fence())
    }

    fn wgmma_commit_group(&mut self, _: &isa::WgmmaCommitGroup) -> Decoded {
        Ok(self.decode_wgmma_commit_group())
    }

    fn wgmma_wait_group(&mut self, i: &isa::WgmmaWaitGroup) -> Decoded {
        self.decode_wgmma_wait_group(i)
    }

    fn setmaxnreg(&mut self, i: &isa::Setmaxnreg) -> Decoded {
        self.decode_setmaxnreg(i)
    }

    fn tcgen05_alloc(&mut self, i: &isa::Tcgen05Alloc) -> Decoded {
        self.decode_tcgen05_alloc(i)
    }

    fn tcgen05_dealloc(&mut self, i: &isa::Tcgen05Dealloc) -> Decoded {
        self.decode_tcgen05_dealloc(i)
    }

    fn tcgen05_relinquish_alloc_permit(&mut self, _: &isa::Tcgen05RelinquishAllocPermit) -> Decoded {
        Ok(self.decode_tcgen05_relinquish())
    }

    fn tcgen05_ld(&mut self, i: &isa::Tcgen05Ld) -> Decoded {
        self.decode_tcgen05_ld(i)
    }

    fn tcgen05_st(&mut self, i: &isa::Tcgen05St) -> Decoded {
        self.decode_tcgen05_st(i)
    }

    fn tcgen05_wait_ld(&mut self, _: &isa::Tcgen05WaitLd) -> Decoded {
        Ok(self.decode_tcgen05_wait(true))
    }

    fn tcgen05_wait_st(&mut self, _: &isa::Tcgen05WaitSt) -> Decoded {
        Ok(self.decode_tcgen05_wait(false))
    }

    fn tcgen05_mma(&mut self, i: &isa::Tcgen05Mma) -> Decoded {
        self.decode_tcgen05_mma(i)
    }

    fn tcgen05_mma_scaled(&mut self, i: &isa::Tcgen05MmaScaled) -> Decoded {
        self.decode_tcgen05_mma_scaled(i)
    }

    fn tcgen05_commit(&mut self, i: &isa::Tcgen05Commit) -> Decoded {
        self.decode_tcgen05_commit(i)
    }

    fn tcgen05_cp(&mut self, i: &isa::Tcgen05Cp) -> Decoded {
        self.decode_tcgen05_cp(i)
    }

    fn tcgen05_shift(&mut self, i: &isa::Tcgen05Shift) -> Decoded {
        self.decode_tcgen05_shift(i)
    }

    fn tcgen05_fence_before(&mut self, _: &isa::Tcgen05FenceBefore) -> Decoded {
        self.class = Class::Fence;
        Ok(Action::Nothing)
    }

    fn tcgen05_fence_after(&mut self, _: &isa::Tcgen05FenceAfter) -> Decoded {
        self.class = Class::Fence;
        Ok(Action::Nothing)
    }

    fn cluster_try_cancel(&mut self, i: &isa::ClusterTryCancel) -> Decoded {
        self.decode_cluster_try_cancel(i)
    }

    fn cluster_is_canceled(&mut self, i: &isa::ClusterIsCanceled) -> Decoded {
        self.decode_cluster_is_canceled(i)
    }

    fn cluster_first_block(&mut self, i: &isa::ClusterFirstBlock) -> Decoded {
        self.decode_cluster_first_block(i)
    }

    fn cluster_first_block_dimension(&mut self, i: &isa::ClusterFirstBlockDimension) -> Decoded {
        self.decode_cluster_first_block_dimension(i)
    }

    fn bra(&mut self, i: &isa::Bra) -> Decoded {
        Ok(self.jump(i.target))
    }

    fn brx_idx(&mut self, i: &isa::BrxIdx) -> Decoded {
        self.jump_by_index(i)
    }

    fn call(&mut self, i: &isa::Call) -> Decoded {
        self.call_function(i)
    }

    fn ret(&mut self, _: &isa::Ret) -> Decoded {
        Ok(self.return_from_function())
    }

    fn exit(&mut self, _: &isa::Exit) -> Decoded {
        self.class = Class::Control;
        Ok(Action::Exit)
    }

    fn trap(&mut self, _: &isa::Trap) -> Decoded {
        self.class = Class::Control;
        Ok(Action::Execute(Box::new(|_: &mut Context<'_>| Err(FaultKind::Trap.into()))))
    }

    fn brkpt(&mut self, _: &isa::Brkpt) -> Decoded {
        Ok(Action::Nothing)
    }

    fn nanosleep(&mut self, i: &isa::Nanosleep) -> Decoded {
        self.sleep(i)
    }

    fn pmevent(&mut self, _: &isa::Pmevent) -> Decoded {
        Ok(Action::Nothing)
    }
}
