//! Barriers in shared memory, which count arrivals and bytes in phases.
//!
//! PTX ISA, "Parallel Synchronization and Communication Instructions: `mbarrier`".
//!
//! The state space is `.shared::cta`, except for arrivals in a cluster (`clusters.rs`). An arrival
//! is a release, and a wait an acquire, both of block scope.

use tilewright_gpu_ir::Feature;
use tilewright_gpu_ir::Type;
use tilewright_ir::{Inst, Value};

use super::asynchronous::MBARRIER_BYTES;
use super::builder::{Scalar, Width};
use super::control::jump;
use super::{LANES, Lowered, Lowering};
use crate::isa::{self, Address, Destination, Predicate, ScalarType, Source, StateSpace};

const SPACE: Option<StateSpace> = Some(StateSpace::SharedCta);
const TYPE: ScalarType = ScalarType::B64;

impl Lowering<'_> {
    /// Returns the address of the barrier of a slot.
    pub(super) fn mbarrier(&mut self, barriers: Value, slot: Value) -> Address {
        let address = self.indexed(barriers, slot, MBARRIER_BYTES);
        self.builder.address(Width::B32, address)
    }

    /// Returns the addresses of the barriers of all slots.
    fn mbarriers(&mut self, barriers: Value) -> Vec<Address> {
        let Type::Mbarrier { slots } = *self.kernel.ty(barriers) else {
            unreachable!("the verifier checks what is a barrier")
        };
        let start = self.scalar(barriers);
        let place = |number: u32| start.plus(Width::B32, u64::from(number * MBARRIER_BYTES));
        (0..slots).map(|number| self.builder.address(Width::B32, place(number))).collect()
    }

    pub(super) fn lower_mbarrier_init(
        &mut self,
        inst: Inst,
        (barriers, slot): (Value, Option<Value>),
        arrivals: u32,
    ) -> Lowered {
        self.require(inst, Feature::Tma)?;
        let elected = self.elected();
        let addresses = match slot {
            Some(slot) => vec![self.mbarrier(barriers, slot)],
            None => self.mbarriers(barriers),
        };
        for address in addresses {
            let count = i64::from(arrivals * self.arrivals(barriers)).into();
            self.builder.emit_if(Some(elected), isa::MbarrierInit { space: SPACE, ty: TYPE, address, count });
        }
        Ok(())
    }

    /// Ends the lifetime of barriers; their memory may then hold other data.
    pub(super) fn lower_mbarrier_end(&mut self, barriers: Value) {
        let elected = self.elected();
        for address in self.mbarriers(barriers) {
            self.builder.emit_if(Some(elected), isa::MbarrierInval { space: SPACE, ty: TYPE, address });
        }
    }

    pub(super) fn lower_mbarrier_invalidate(&mut self, inst: Inst, [barriers, slot]: [Value; 2]) -> Lowered {
        self.require(inst, Feature::Tma)?;
        let elected = self.elected();
        let address = self.mbarrier(barriers, slot);
        self.builder.emit_if(Some(elected), isa::MbarrierInval { space: SPACE, ty: TYPE, address });
        Ok(())
    }

    pub(super) fn lower_mbarrier_arrive_times(
        &mut self,
        inst: Inst,
        barrier: [Value; 2],
        arrivals: u32,
    ) -> Lowered {
        self.require(inst, Feature::Tma)?;
        let elected = self.elected();
        let count = (arrivals > 1).then(|| i64::from(arrivals).into());
        self.arrive(Some(elected), barrier, (false, count));
        Ok(())
    }

    pub(super) fn lower_mbarrier_expect(
        &mut self,
        inst: Inst,
        [barriers, slot]: [Value; 2],
        bytes: u32,
    ) -> Lowered {
        self.require(inst, Feature::Tma)?;
        let elected = self.elected();
        self.arrive(Some(elected), [barriers, slot], (true, Some(i64::from(bytes).into())));
        Ok(())
    }

    pub(super) fn lower_mbarrier_arrive(&mut self, inst: Inst, barrier: [Value; 2]) -> Lowered {
        self.require(inst, Feature::Tma)?;
        // The accesses of all lanes precede the arrival. One lane arrives, or in a cluster one lane
        // for each block's barrier.
        self.builder.emit(isa::BarWarpSync { mask: (-1).into() });
        if self.arrivals(barrier[0]) > 1 {
            self.arrive_in_cluster(barrier);
            return Ok(());
        }
        let is_first = self.is_first(LANES - 1, 0);
        let guard = self.builder.predicate(is_first);
        self.arrive(Some(guard), barrier, (false, None));
        Ok(())
    }

    /// Emits an arrival at a barrier. With `expect_tx`, the phase waits until copies have written
    /// `count` bytes. Otherwise, `count` is a number of arrivals.
    fn arrive(
        &mut self,
        guard: Option<Predicate>,
        [barriers, slot]: [Value; 2],
        (expect_tx, count): (bool, Option<Source>),
    ) {
        let address = self.mbarrier(barriers, slot);
        let arrival = isa::MbarrierArrive {
            expect_tx,
            no_complete: false,
            semantics: None,
            scope: None,
            space: SPACE,
            ty: TYPE,
            d: Destination::Sink,
            address,
            count,
        };
        self.builder.emit_if(guard, arrival);
    }

    pub(super) fn lower_mbarrier_arrive_copies(
        &mut self,
        inst: Inst,
        [barriers, slot]: [Value; 2],
        are_counted: bool,
    ) -> Lowered {
        self.require(inst, Feature::Tma)?;
        let mbarrier = self.mbarrier(barriers, slot);
        // With `.noinc`, the barrier's count includes these arrivals.
        self.builder.emit(isa::CpAsyncMbarrierArrive {
            no_increment: are_counted,
            space: SPACE,
            ty: TYPE,
            mbarrier,
        });
        Ok(())
    }

    pub(super) fn lower_mbarrier_wait(
        &mut self,
        inst: Inst,
        [barriers, slot]: [Value; 2],
        parity: Value,
    ) -> Lowered {
        self.require(inst, Feature::Tma)?;
        let address = self.mbarrier(barriers, slot);
        let parity = self.scalar(parity);
        let state = Source::Register(self.builder.register(Width::B32, parity));
        let d = self.builder.fresh(Width::Pred);
        let again = self.builder.label("wait");
        self.builder.place(again);
        self.builder.emit(isa::MbarrierTryWait {
            parity: true,
            semantics: None,
            scope: None,
            space: SPACE,
            ty: TYPE,
            d,
            address,
            state,
            suspend_time: None,
        });
        let not_yet = self.builder.predicate(Scalar::from(d).plus(Width::Pred, 1));
        self.builder.emit_if(Some(not_yet), jump(again));
        Ok(())
    }
}
