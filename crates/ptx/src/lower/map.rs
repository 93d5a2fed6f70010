//! `map`: emits its function once for every `pack` registers of its tiles.

use smallvec::SmallVec;
use tilewright_ir::{Inst, Value};

use super::builder::Scalar;
use super::{Lowered, Lowering};

impl Lowering<'_> {
    pub(super) fn lower_map(&mut self, inst: Inst, tiles: &[Value], pack: usize) -> Lowered {
        let kernel = self.kernel;
        let data = &kernel.insts[inst];
        let (region, results) = (data.regions[0], &data.results);
        let parameters = &kernel.blocks[region].parameters;
        // All values have one layout.
        let layout = self.layout_of(tiles[0]);
        let columns: SmallVec<[_; 4]> = tiles.iter().map(|tile| self.get_in(*tile, layout)).collect();
        let count = self.count(tiles[0]);
        let mut made: Vec<Vec<Scalar>> = vec![Vec::with_capacity(count); results.len()];
        for first in (0..count).step_by(pack) {
            // The last repetition repeats the last element if `pack` does not divide their number.
            let places: SmallVec<[usize; 8]> =
                (first..first + pack).map(|place| place.min(count - 1)).collect();
            let elements = columns.iter().flat_map(|column| places.iter().map(|&place| column[place]));
            for (&parameter, scalar) in parameters.iter().zip(elements.collect::<SmallVec<[Scalar; 8]>>()) {
                self.set(parameter, [scalar]);
            }
            self.block(region)?;
            for (group, made) in kernel.yielded(region).chunks(pack).zip(&mut made) {
                let kept = pack.min(count - first);
                made.extend(group[..kept].iter().map(|&value| self.scalar(value)));
            }
        }
        for (&result, made) in results.iter().zip(made) {
            self.set(result, made);
        }
        Ok(())
    }
}
