//! Checks of asynchronous dots and of waits for them.

use tilewright_ir as ir;
use tilewright_ir::ScaledFormats;
use tilewright_layout::Input;

use super::{Check, Checker, ensure};
use crate::scaled_dots::ScaledDot;
use crate::{Feature, GpuOp, MmaShape, Op, TensorMemory, Type};

impl Checker<'_> {
    pub(super) fn wgmma(&self, op: &GpuOp, instruction: MmaShape, warps: &[i64]) -> Check {
        let formats = self.scaled_formats();
        let scales = if formats.is_some() { 2 } else { 0 };
        let operands = self.inst.operands.len();
        ensure((scales + 3..=scales + 4).contains(&operands), || {
            format!("{} with formats takes scales, and without formats none", self.name())
        })?;
        self.dependence(scales + 3)?;
        ensure(formats.is_none() || self.header.target.features.has(Feature::Tcgen05), || {
            format!("{} has no dots with scales", self.header.target.name)
        })?;
        for index in 0..2 {
            let ty = self.operand(index);
            ensure(!op.reads_transpose(index) || ty.as_memory().is_some(), || {
                format!("{ty} is not in shared memory, where its transpose can be read")
            })?;
        }
        if self.header.target.features.has(Feature::Tcgen05) {
            return self.dot_in_tensor_memory();
        }
        self.mma(instruction, warps, true)
    }

    /// Checks an asynchronous dot whose accumulator a later pass moves to tensor memory.
    fn dot_in_tensor_memory(&self) -> Check {
        let (Type::Registers { tile, layout: Some(layout) } | Type::Pending { tile, layout }) =
            self.operand(2)
        else {
            return Err(format!("{} is not an accumulator", self.operand(2)));
        };
        let [a, b, acc] = &self.dot_tiles()?;
        let found = self.header.layouts.get(*layout);
        let warps = 1 << found.bits_of(Input::Warp);
        let wanted = TensorMemory::of_accumulator(tile).and_then(|memory| memory.register_layout(warps));
        ensure(wanted.as_ref() == Some(found), || {
            format!("no instruction moves {} to tensor memory", self.operand(2))
        })?;
        if let Some(ScaledFormats(formats)) = self.scaled_formats() {
            let scales = [self.registers(3)?, self.registers(4)?];
            let dot = ScaledDot::of(formats, [a, b, acc], scales)?;
            let wanted = dot.scale_layouts(warps).ok_or("no instruction stores the scales")?;
            for (index, wanted) in [3, 4].into_iter().zip(wanted) {
                ensure(self.layout(self.operand(index)) == Some(&wanted), || {
                    format!("no instruction moves {} to tensor memory", self.operand(index))
                })?;
            }
        }
        for index in 0..2 {
            match self.operand(index) {
                Type::Registers { .. } if !self.header.synchronized => {}
                Type::Buffer(buffer) | Type::Full(buffer) if buffer.slots == 1 => {}
                other => return Err(format!("a dot of tensor memory cannot read {other}")),
            }
        }
        self.results(&[Type::Pending { tile: tile.clone(), layout: *layout }])
    }

    /// Returns the formats of an asynchronous dot with scales.
    pub(super) fn scaled_formats(&self) -> Option<ScaledFormats> {
        match &self.inst.op {
            Op::Gpu(GpuOp::Wgmma { formats, .. }) => *formats,
            // tidy: wildcard because other ops have their scales in tensor memory, or none
            _ => None,
        }
    }

    pub(super) fn wgmma_wait(&self) -> Check {
        let dot @ Type::Pending { tile, layout } = self.operand(0) else {
            return Err(format!("{} takes a dot in flight, found {}", self.name(), self.operand(0)));
        };
        if matches!(self.inst.op, Op::Gpu(GpuOp::WgmmaWaitEarlier { .. })) {
            return self.results(std::slice::from_ref(dot));
        }
        self.dependence(1)?;
        self.results(&[Type::registers(tile.clone(), Some(*layout))])
    }

    pub(super) fn wgmma_init(&self) -> Check {
        let Type::Registers { tile, layout: Some(layout) } = self.operand(0) else {
            return Err(format!("wgmma_init takes a tile, found {}", self.operand(0)));
        };
        self.results(&[Type::Pending { tile: tile.clone(), layout: *layout }])
    }

    /// Replaces A and B by the parts in the window of a `wgmma`.
    pub(super) fn narrow(&self, [a, b]: [&mut ir::Type; 2], acc: &ir::Type) -> Check {
        let Op::Gpu(GpuOp::Wgmma { window, .. }) = &self.inst.op else { return Ok(()) };
        if window.is_empty() {
            return Ok(());
        }
        let [row_a, column_a, row_b, column_b, depth] = window[..] else {
            return Err("the window of a wgmma has five numbers".into());
        };
        let (rows, columns) = (i64::from(acc.shape[0]), i64::from(acc.shape[1]));
        let parts = [([row_a, column_a], [rows, depth]), ([row_b, column_b], [depth, columns])];
        for (index, (tile, (start, part))) in [a, b].into_iter().zip(parts).enumerate() {
            let is_inside = start.iter().zip(part).zip(&tile.shape[..]).all(|((start, part), extent)| {
                *start >= 0 && part > 0 && *start <= i64::from(*extent) && part <= i64::from(*extent) - *start
            });
            ensure(tile.rank() == 2 && is_inside, || format!("the window is not in {tile}"))?;
            if self.operand(index).as_memory().is_some() {
                *tile = tile.with_shape(part.iter().map(|extent| *extent as u32).collect());
            }
        }
        Ok(())
    }
}
