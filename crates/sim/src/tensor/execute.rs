//! Executes `mma.sync`, `ldmatrix`, `stmatrix` and `movmatrix`.

use super::ldmatrix::{self, Block};
use super::{MatrixRole, Mma, QuadMma};
use crate::asynchronous::Pointer;
use crate::context::{Context, Execute, Flow, ResolvedAddress};
use crate::events::{Detail, EventKind};
use crate::fault::{FaultKind, OfLane, Outcome};
use crate::registers::{Lanes, Slot};

/// Checks that all lanes execute an `.aligned` instruction.
pub(super) fn whole_warp(context: &Context<'_>, instruction: &str) -> Outcome {
    if context.lanes == u32::MAX {
        return Ok(());
    }
    let text = format!(
        "{instruction} has to be executed by all 32 threads of the warp together, but only lanes {:#010x} execute it",
        context.lanes
    );
    Err(FaultKind::Illegal(text).into())
}

pub(super) fn read_registers(context: &Context<'_>, slots: &[Slot]) -> Vec<Lanes> {
    slots.iter().map(|&slot| *context.registers.get(slot)).collect()
}

/// Sets D to `product` of A, B and C.
fn multiply(
    context: &mut Context<'_>,
    abc: [&[Slot]; 3],
    d: &[Slot],
    product: impl FnOnce(&[Lanes], &[Lanes], &[Lanes]) -> Vec<Lanes>,
) -> Outcome {
    whole_warp(context, "mma.sync")?;
    let [a, b, c] = abc.map(|slots| read_registers(context, slots));
    for (&slot, lanes) in d.iter().zip(product(&a, &b, &c)) {
        *context.registers.get_mut(slot) = lanes;
    }
    Ok(())
}

/// `mma.sync`.
pub(crate) struct MmaStep {
    pub mma: Mma,
    pub a: Vec<Slot>,
    pub b: Vec<Slot>,
    pub c: Vec<Slot>,
    pub d: Vec<Slot>,
}

impl Execute for MmaStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        multiply(context, [&self.a, &self.b, &self.c], &self.d, |a, b, c| self.mma.execute(a, b, c))?;
        let (rows, columns) = (self.mma.m, self.mma.n);
        let depth = self.mma.fragment(MatrixRole::A).columns;
        context.counters.tensor_operations += 2 * (rows * columns * depth) as u64;
        context.record(EventKind::SyncDot, Detail { count: 1, ..Detail::default() });
        Ok(Flow::Next)
    }
}

/// `mma.sync.m8n8k4` of f16.
pub(crate) struct QuadMmaStep {
    pub mma: QuadMma,
    pub a: Vec<Slot>,
    pub b: Vec<Slot>,
    pub c: Vec<Slot>,
    pub d: Vec<Slot>,
}

impl Execute for QuadMmaStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        multiply(context, [&self.a, &self.b, &self.c], &self.d, |a, b, c| self.mma.execute(a, b, c))?;
        // Four multiplications of 8x8x4.
        context.counters.tensor_operations += 2 * 4 * 8 * 8 * 4;
        Ok(Flow::Next)
    }
}

/// The bytes of a row of 8 elements of 16 bits.
const ROW_BYTES: usize = 16;

fn row_places(context: &Context<'_>, pointer: &Pointer, matrices: usize) -> Vec<ResolvedAddress> {
    (0..matrices * 8).map(|lane| pointer.place(context, lane)).collect()
}

fn count_rows(context: &mut Context<'_>, places: &[ResolvedAddress]) {
    let mut offsets = Vec::with_capacity(places.len());
    for (lane, place) in places.iter().enumerate() {
        if let ResolvedAddress::Shared { offset, .. } = *place {
            offsets.push((lane, offset));
        }
    }
    context.counters.shared(&offsets, ROW_BYTES);
}

/// `ldmatrix.m8n8.b16`.
pub(crate) struct LoadMatrices {
    pub pointer: Pointer,
    pub is_transposed: bool,
    pub d: Vec<Slot>,
}

impl Execute for LoadMatrices {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warp(context, "ldmatrix")?;
        let places = row_places(context, &self.pointer, self.d.len());
        for (matrix, &slot) in self.d.iter().enumerate() {
            let mut block = Block::default();
            for (row, elements) in block.iter_mut().enumerate() {
                let lane = ldmatrix::address_lane(matrix, row);
                let mut bytes = [0; ROW_BYTES];
                context.read(places[lane], lane, ROW_BYTES as u32, false, &mut bytes).of_lane(lane)?;
                for (element, bytes) in elements.iter_mut().zip(bytes.as_chunks().0) {
                    *element = u16::from_le_bytes(*bytes);
                }
            }
            *context.registers.get_mut(slot) = ldmatrix::distribute(&block, self.is_transposed);
        }
        count_rows(context, &places);
        context.counters.bytes_read += (places.len() * ROW_BYTES) as u64;
        Ok(Flow::Next)
    }
}

/// `stmatrix.m8n8.b16`.
pub(crate) struct StoreMatrices {
    pub pointer: Pointer,
    pub is_transposed: bool,
    pub a: Vec<Slot>,
}

impl Execute for StoreMatrices {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warp(context, "stmatrix")?;
        let places = row_places(context, &self.pointer, self.a.len());
        for (matrix, &slot) in self.a.iter().enumerate() {
            let block = ldmatrix::collect(context.registers.get(slot), self.is_transposed);
            for (row, elements) in block.iter().enumerate() {
                let lane = ldmatrix::address_lane(matrix, row);
                let mut bytes = [0; ROW_BYTES];
                for (bytes, element) in bytes.as_chunks_mut().0.iter_mut().zip(elements) {
                    *bytes = element.to_le_bytes();
                }
                context.write(places[lane], lane, ROW_BYTES as u32, false, &bytes).of_lane(lane)?;
            }
        }
        count_rows(context, &places);
        context.counters.bytes_written += (places.len() * ROW_BYTES) as u64;
        Ok(Flow::Next)
    }
}

/// `movmatrix.m8n8.trans.b16`.
pub(crate) struct TransposeMatrix {
    pub d: Slot,
    pub a: Slot,
}

impl Execute for TransposeMatrix {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warp(context, "movmatrix")?;
        *context.registers.get_mut(self.d) = ldmatrix::transpose(context.registers.get(self.a));
        Ok(Flow::Next)
    }
}
