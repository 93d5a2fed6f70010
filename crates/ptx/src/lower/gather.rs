//! Gathers: threads load elements by index from a row-major tile in shared memory.

use tilewright_ir::{Inst, Value};
use tilewright_layout::Input;

use super::Lowering;
use super::builder::{Scalar, Width};
use super::integer::Bitwise;

impl Lowering<'_> {
    /// Lowers a gather. Each index is taken modulo the extent, a power of two, so accesses stay in
    /// the tile.
    pub(super) fn lower_gather(&mut self, inst: Inst, tile: Value, index: Value, axis: usize) {
        let (layout, memory) = (self.layout(index), self.layout(tile).output());
        let (element, start, indices) = (self.element(tile), self.scalar(tile), self.get(index));
        let bytes = element.bytes() as u32;
        // Returns the byte offset of an element's line along the axis.
        let line = |place: u32| {
            let mut coordinates = layout.output().coordinates(place);
            coordinates[axis] = 0;
            memory.index(&coordinates) * bytes
        };
        let thread = [layout.bases(Input::Lane), layout.bases(Input::Warp)].concat();
        let images: Vec<u32> = thread.into_iter().map(line).collect();
        let own = self.linear(&images);
        let last = Scalar::constant((memory.size(axis) - 1).into());
        let step = Scalar::constant(u64::from(bytes) << memory.shift(axis));
        let scalars: Vec<Scalar> = (0..layout.registers())
            .map(|register| {
                let begin = self.displaced(own, &images, line(layout.at(&[(Input::Register, register)])));
                let along = self.builder.bitwise(Bitwise::And, Width::B32, indices[register as usize], last);
                let along = self.builder.mul(Width::B32, along, step);
                let place = self.builder.add(Width::B32, begin, along);
                let address = self.builder.add(Width::B32, start, place);
                self.load_shared(element, address, 1)[0]
            })
            .collect();
        self.set_result(inst, scalars);
    }
}
