//! Reduces tiles whose parts are in different blocks of a cluster. Each block reduces its part,
//! stores the result, loads all results and reduces them.
//!
//! ```text
//! %s = reduce %x {axis = 0}    ──>    %p = reduce %part {axis = 0}
//!                                     device "store" %memory, %p
//!                                     device "cluster_arrive" ; device "cluster_wait"
//!                                     %all = device "gather_blocks" %memory : [2]
//!                                     device "cluster_arrive" ; device "cluster_wait"
//!                                     %s = reduce %all {axis = 0}
//! ```
//! After the second barrier, a block may reuse its memory or end.

use std::sync::Arc;

use smallvec::SmallVec;
use tilewright_base::Code;
use tilewright_ir::{
    Block, DeviceFn, Dtype, Inst, InstData, Op, Regions, Shape, SharedTiles, StatedBuffer, StatedLayout,
    Type, Value,
};
use tilewright_layout::{Bases, Division, Sizes};

use super::{Writer, Written, held_by_all};

/// The result of a part, which each block stores to shared memory.
struct Partial {
    /// The type of the result in each block.
    ty: Type,
    tiles: SharedTiles,
    memory: Value,
    /// The layout of the results of all blocks.
    layout: Arc<StatedLayout>,
}

impl Writer<'_> {
    /// Writes the reduction of a tile along an axis that is split between blocks.
    pub(super) fn exchange_reduction(&mut self, inst: Inst, axis: usize, division: &Division) -> Written {
        if self.is_in_worker || self.has_workers() {
            let message = "a reduction over blocks of the cluster in a kernel with `warp_specialize`";
            let hint = "give the tile a layout whose cga_layout does not split the axis";
            let found = self.error(inst, Code::PartitionMisuse, message);
            return Err(Box::new(found.hint(hint)));
        }
        let mut blocks = 0;
        for (bit, basis) in (0..).zip(&division.bases) {
            if basis[axis] != 0 {
                blocks |= 1_u32 << bit;
                if basis.iter().filter(|each| **each != 0).count() > 1 {
                    return Err(self.unsupported(inst, "a reduction of parts along several axes at once"));
                }
            }
        }
        let InstData { op, operands, results, regions, .. } = self.data(inst).clone();
        let warps = self.cursor.function.ty(operands[0]).layout.as_ref().map_or(1, |layout| layout.warps());
        self.go_before(inst);
        let types: Vec<Type> = results.iter().map(|result| self.part(*result)).collect();
        let of_part = self.cursor.emit_with_regions(op, &operands, regions.clone(), types.clone());
        let stored = self.data(of_part).results.clone();
        let zero = self.cursor.int(Dtype::I32, 0);
        let partials: Vec<Partial> = stored
            .iter()
            .zip(&types)
            .map(|(value, ty)| self.store_partial((*value, ty), zero, (warps, blocks)))
            .collect();
        self.cluster_barrier();
        let mut gathered = Vec::new();
        for Partial { tiles, memory, layout, .. } in &partials {
            let (tiles, layout) = (tiles.clone(), layout.clone());
            let count = 1 << blocks.count_ones();
            let shape: Shape = [count].into_iter().chain(tiles.shape.iter().copied()).collect();
            let ty = Type::tile(tiles.dtype, shape).with_layout(Some(layout.clone()));
            let function = DeviceFn::GatherBlocks { tiles, layout, blocks };
            gathered.push(self.cursor.value(Op::Device { function }, &[*memory, zero], ty));
        }
        self.cluster_barrier();
        let mut reduced = self.reduce_first_axis(&regions, &gathered);
        if types[0].is_scalar() {
            reduced = self.reduce_first_axis(&regions, &reduced);
        }
        for ((result, partial), made) in results.iter().zip(&partials).zip(reduced) {
            let last = match &partial.ty.layout {
                Some(layout) => {
                    let op = Op::SetLayout { layout: (**layout).clone() };
                    self.cursor.value(op, &[made], partial.ty.clone())
                }
                None => made,
            };
            let function = &mut *self.cursor.function;
            let last_inst = function.defining_inst(last).expect("it is the result of an instruction");
            let index = function.insts[last_inst].results.iter().position(|value| *value == last);
            function.redefine(*result, last_inst, index.expect("the instruction has this result"));
        }
        self.cursor.take_next();
        Ok(())
    }

    fn store_partial(
        &mut self,
        (value, ty): (Value, &Type),
        zero: Value,
        (warps, blocks): (u32, u32),
    ) -> Partial {
        let dtype = ty.dtype().unwrap_or(Dtype::I64);
        let mut tile = value;
        let (shape, own) = if ty.is_scalar() {
            let shape: Shape = [1].into_iter().collect();
            let plain = Type::tile(dtype, shape.clone());
            let layout = held_by_all(warps);
            tile = self.cursor.value(Op::Splat { shape: shape.clone() }, &[value], plain.clone());
            let stated = plain.with_layout(Some(Arc::new(layout.clone())));
            tile = self.cursor.value(Op::SetLayout { layout: layout.clone() }, &[tile], stated);
            (shape, layout)
        } else {
            let layout = ty.layout.as_deref().expect("the tile is divided");
            let linear = layout.linear(&ty.shape).expect("the layout fits the tile");
            (ty.shape.clone(), StatedLayout::of_linear(&linear))
        };
        let layout = StatedBuffer::Swizzled {
            vec: 1,
            per_phase: 1,
            max_phase: 1,
            order: (0..shape.len() as u32).rev().collect(),
            cga: Bases::new(),
        };
        let tiles = SharedTiles { slots: 1, dtype, shape, layout: Arc::new(layout) };
        let function = DeviceFn::Allocate { tiles: tiles.clone() };
        let memory = self.cursor.value(Op::Device { function }, &[], Type::scalar(Dtype::I32));
        let function = DeviceFn::Store { tiles: tiles.clone() };
        self.cursor.emit(Op::Device { function }, &[memory, zero, tile], []);
        let layout = Arc::new(gathered(&own, blocks.count_ones()));
        Partial { ty: ty.clone(), tiles, memory, layout }
    }

    fn reduce_first_axis(&mut self, regions: &[Block], tiles: &[Value]) -> SmallVec<[Value; 1]> {
        let regions: Regions =
            regions.iter().map(|region| self.cursor.function.clone_region(*region)).collect();
        let types: Vec<Type> = tiles
            .iter()
            .map(|tile| {
                let ty = self.cursor.function.ty(*tile);
                let slice =
                    |parent: &Arc<StatedLayout>| StatedLayout::Slice { dim: 0, parent: parent.clone() };
                let layout = ty.layout.as_ref().map(|layout| Arc::new(slice(layout)));
                let made = ty.with_shape(ty.shape.without(0));
                if made.is_scalar() { made.with_layout(None) } else { made.with_layout(layout) }
            })
            .collect();
        let inst = self.cursor.emit_with_regions(Op::Reduce { axis: 0 }, tiles, regions, types);
        self.data(inst).results.clone()
    }

    fn cluster_barrier(&mut self) {
        for function in [DeviceFn::ClusterArrive {}, DeviceFn::ClusterWait {}] {
            self.cursor.emit(Op::Device { function }, &[], []);
        }
    }
}

/// Returns the layout of `2^bits` blocks' tiles, with all tiles in each thread.
fn gathered(layout: &StatedLayout, bits: u32) -> StatedLayout {
    let StatedLayout::Linear { bases, shape, .. } = layout else {
        unreachable!("the caller makes a linear layout")
    };
    let inner = |basis: &Sizes| [0].into_iter().chain(basis.iter().copied()).collect::<Sizes>();
    let mut bases = bases.each_ref().map(|bases| bases.iter().map(inner).collect::<Bases>());
    let first = |bit: u32| [1 << bit].into_iter().chain(shape.iter().map(|_| 0)).collect::<Sizes>();
    bases[0] = (0..bits).map(first).chain(std::mem::take(&mut bases[0])).collect();
    let shape = [1 << bits].into_iter().chain(shape.iter().copied()).collect();
    StatedLayout::Linear { bases, blocks: Bases::new(), shape }
}
