//! Lowers scans that cross warps, for [`super::conversions`].
//!
//! Each warp scans its parts, which are runs of elements. Then every warp scans the totals of all
//! parts, through shared memory. Last, each thread combines its elements with the total of the
//! parts before them.
//!
//! ```text
//! %s = scan %x {scope = block}    %p, %t = scan %x {scope = warp} ; %b = alloc ; local_store %b, %t
//!                                 %q = local_load %b ; dealloc %b ; %r = scan %q ; %s = scan_carry %p, %r
//! ```
//! If an axis has too many parts, conversions give each warp whole lines, and convert the result
//! back.

use smallvec::{SmallVec, smallvec};
use tilewright_ir::{Block, Inst, Value};
use tilewright_layout::{Layout, Parts};

use super::conversions::Pass;
use tilewright_gpu_ir::layout_rules::{MAX_PARTIAL_RESULTS, line_layout, partial_results_layout, rows};
use tilewright_gpu_ir::{GpuOp, LayoutId, Op, Scope, Type};

impl Pass<'_> {
    /// Lowers a scan. If warps hold parts of the axis, it is in parts, or in whole lines for too
    /// many parts.
    pub(super) fn scan(&mut self, inst: Inst, block: Block) {
        let Op::Gpu(GpuOp::Scan { axis, reverse, scope: Scope::Block }) = self.cursor.function.insts[inst].op
        else {
            unreachable!("this is called only for scans of the block")
        };
        let layout = self.layout(self.cursor.function.insts[inst].operands[0]).clone();
        let Some(parts) = Parts::along(&layout, axis as usize) else {
            self.cursor.insert(inst);
            return;
        };
        self.goes_through_memory(inst);
        if parts.count() <= MAX_PARTIAL_RESULTS {
            self.scan_in_parts(inst, (axis, reverse), &parts);
        } else {
            self.scan_in_lines(inst, (axis, reverse), &layout, block);
        }
    }

    fn scan_in_parts(&mut self, inst: Inst, (axis, reverse): (u32, bool), parts: &Parts) {
        let operands = self.cursor.function.insts[inst].operands.clone();
        let shape: tilewright_ir::Shape = parts.partials.output().shape().into_iter().collect();
        let [from, to] = [parts.partials.clone(), partial_results_layout(parts)]
            .map(|layout| self.header.layouts.add(layout));
        let part_type = |value: &Value, layout: LayoutId, this: &Self| {
            let tile = this.cursor.function.ty(*value).as_registers().expect("a scan has tiles");
            Type::registers(tile.with_shape(shape.clone()), Some(layout))
        };
        let mut types: Vec<Type> =
            operands.iter().map(|value| self.cursor.function.ty(*value).clone()).collect();
        types.extend(operands.iter().map(|value| part_type(value, from, self)));
        let region = self.cursor.function.clone_region(self.cursor.function.insts[inst].regions[0]);
        let op = GpuOp::Scan { axis, reverse, scope: Scope::Warp };
        let count = operands.len();
        let loaded: Vec<Type> = operands.iter().map(|value| part_type(value, to, self)).collect();
        let scan = self.cursor.emit_with_regions(op, &operands, smallvec![region], types);
        let results = self.cursor.function.insts[scan].results.clone();
        // Store the totals in their order of combination, so few of them are in registers at once.
        let memory = rows(&shape);
        let totals = self.through_memory(&results[count..], |_| memory.clone(), loaded.clone());
        let region = self.cursor.function.clone_region(self.cursor.function.insts[inst].regions[0]);
        let op = GpuOp::Scan { axis: shape.len() as u32 - 1, reverse, scope: Scope::Block };
        let whole = self.cursor.emit_with_regions(op, &totals, smallvec![region], loaded);
        let carries = self.cursor.function.insts[whole].results.clone();
        let data = &mut self.cursor.function.insts[inst];
        data.op = GpuOp::ScanCarry { axis, reverse }.into();
        data.operands = results[..count].iter().copied().chain(carries).collect();
        self.cursor.insert(inst);
    }

    /// Lowers a scan in a layout in which a warp holds whole lines.
    fn scan_in_lines(&mut self, inst: Inst, (axis, reverse): (u32, bool), layout: &Layout, block: Block) {
        let lines = line_layout(&layout.output().shape(), axis as usize, self.warps());
        let data = self.cursor.function.insts[inst].clone();
        let to = self.header.layouts.add(lines);
        let converted: SmallVec<[Value; 4]> =
            data.operands.iter().map(|value| self.converted(*value, to, block)).collect();
        let types: Vec<Type> =
            converted.iter().map(|value| self.cursor.function.ty(*value).clone()).collect();
        let op = GpuOp::Scan { axis, reverse, scope: Scope::Block };
        let region = self.cursor.function.clone_region(data.regions[0]);
        let scan = self.cursor.function.create_inst(
            op.into(),
            converted,
            smallvec![region],
            types,
            self.cursor.location,
        );
        self.scan(scan, block);
        // Convert the results back to their users' layout.
        for (from, result) in self.cursor.function.insts[scan].results.clone().into_iter().zip(data.results) {
            self.convert_to(from, result, block);
        }
    }
}
