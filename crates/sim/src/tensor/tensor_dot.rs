//! Executes `tcgen05.mma`.
//!
//! The simulator computes a dot when a thread issues it, as a separate agent. Nothing is ordered
//! after it until a `tcgen05.commit` and a wait for its barrier. The dots and copies of a warp are
//! ordered, because the ISA pipelines them. An access to D, the operands or the scale factors
//! without the wait is a race.
//!
//! # Layouts
//! D has a row per lane and an element per column. Row r of 128 is in lane r, and row r of 64 in
//! lane 32 ⌊r / 16⌋ + r mod 16. Each block of a pair has half of the rows. If a block of a pair has
//! 64 rows, lanes 0 to 63 have the first half of the columns. Lanes 64 to 127 have the second half.
//!
//! In shared memory, each block of a pair has its rows of A and half of the columns of B. A in
//! tensor memory has its rows in the lanes of D, with packed elements. A block with 64 rows of a
//! pair has a copy of A in each half of the lanes.
//! The scale factors of row r of A, or column r of B, are in lane r mod 32 and column ⌊r / 32⌋.
//! Each quarter of the lanes has a copy.

use tilewright_ptx::isa::ScaledDotKind;

use super::descriptor::{Descriptor, Major};
use super::fragment::Matrix;
use super::instruction_descriptor::{ScaleFactors, TensorDot, TensorKind, TensorOperand};
use super::multiply::{IntegerProduct, multiply_floats, multiply_integers};
use super::wgmma::Values;
use super::{Element, Swizzle, TensorAddress};
use crate::asynchronous::Channel;
use crate::context::{Context, Execute, Flow, ResolvedAddress};
use crate::events::{Detail, EventKind};
use crate::fault::{FaultKind, OfLane, Outcome};
use crate::memory::shared::Accessor;
use crate::memory::{Agent, Proxy};
use crate::registers::{Slot, lanes_of};

#[derive(Clone, Copy, Debug)]
pub(crate) enum DotCondition {
    /// The value of the register, or its negation.
    Register(Slot, bool),
    Constant(bool),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum TensorLeftOperand {
    /// A descriptor of shared memory.
    Descriptor(Slot),
    TensorMemory(TensorAddress),
}

/// `tcgen05.mma`.
pub(crate) struct TensorDotStep {
    pub kind: TensorKind,
    /// True for `.cta_group::2`.
    pub is_pair: bool,
    pub d: TensorAddress,
    pub a: TensorLeftOperand,
    pub b: Slot,
    /// The instruction descriptor.
    pub layout: Slot,
    /// The lanes that stay unchanged, 32 lanes per register, or empty.
    pub disabled_lanes: Vec<Slot>,
    pub accumulates: DotCondition,
    /// The dot multiplies the old D by 2 to the power of minus this number.
    pub scale_d: u32,
    pub scales: Option<[TensorAddress; 2]>,
}

/// A dot of one thread.
struct Issued<'a> {
    step: &'a TensorDotStep,
    dot: TensorDot,
    agent: &'a Agent,
    lane: usize,
    /// The ranks of the blocks that compute the dot.
    ranks: Vec<usize>,
}

/// Adjacent cells of a row of D: the first column of the matrix, the position of the first cell,
/// and the number of cells.
struct Run {
    first: usize,
    lane: usize,
    column: usize,
    len: usize,
}

impl Execute for TensorDotStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        for lane in lanes_of(context.lanes) {
            let bits = context.get(self.layout, lane) as u32;
            let dot = TensorDot::decode(bits, self.kind, self.is_pair).map_err(Into::into).of_lane(lane)?;
            let ranks = blocks_of_group(context, self.is_pair).of_lane(lane)?;
            let agent = context.fork(Channel::TensorDots(context.warp));
            let issued = Issued { step: self, dot, agent: &agent, lane, ranks };
            issued.execute(context).of_lane(lane)?;
            let warp = context.warp;
            context.block().asynchronous.tensor_memory(warp).begin_dot(agent.completed());
            context.record(EventKind::Dot, Detail { count: 1, ..Detail::default() });
        }
        Ok(Flow::Next)
    }
}

/// Returns the ranks of a `.cta_group`: this block, or both blocks of its pair.
pub(super) fn blocks_of_group(context: &Context<'_>, is_pair: bool) -> Outcome<Vec<usize>> {
    if !is_pair {
        return Ok(vec![context.rank]);
    }
    let first = context.rank & !1;
    if first + 1 < context.blocks.len() {
        return Ok(vec![first, first + 1]);
    }
    let text = "`.cta_group::2` needs two blocks of a cluster: one with an even rank, and the next one";
    Err(FaultKind::Illegal(text.into()).into())
}

pub(super) fn tensor_accessor(agent: &Agent, instruction: u32) -> Accessor<'_> {
    Accessor::generic(agent, instruction, false)
}

impl Issued<'_> {
    fn execute(&self, context: &mut Context<'_>) -> Outcome {
        let TensorDot { m, n, k, .. } = self.dot;
        let rows = m / self.ranks.len();
        let mut b = self.right(context)?;
        let a_scales = self.scale_factors(context, 0, rows)?;
        let b_scales = self.scale_factors(context, 1, n)?;
        if let (Values::Floats(b), Some(scales)) = (&mut b, b_scales.first()) {
            apply_scales(b, scales);
        }
        let accumulates = match self.step.accumulates {
            DotCondition::Constant(value) => value,
            DotCondition::Register(slot, is_negated) => (context.get(slot, self.lane) & 1 == 1) != is_negated,
        };
        for (index, &rank) in self.ranks.iter().enumerate() {
            let mut a = self.left(context, rank, rows)?;
            if let (Values::Floats(a), Some(scales)) = (&mut a, a_scales.get(index)) {
                apply_scales(a, scales);
            }
            let c = if accumulates { Some(self.accumulators(context, rank, rows)?) } else { None };
            let result = self.multiply(&a, &b, c);
            self.store(context, (index, rank), &result)?;
        }
        context.counters.tensor_operations += 2 * (m * n * k) as u64;
        Ok(())
    }

    fn multiply(&self, a: &Values, b: &Values, c: Option<Matrix<u64>>) -> Matrix<u64> {
        match (a, b) {
            (Values::Integers(a), Values::Integers(b)) => {
                let product =
                    if self.dot.clamps { IntegerProduct::Saturating } else { IntegerProduct::Wrapping };
                let c = c.map(|c| map(&c, |bits| Element::S32.integer(bits)));
                multiply_integers(a, b, c.as_ref(), product)
            }
            (Values::Floats(a), Values::Floats(b)) => {
                let scale = 2_f64.powi(-(self.step.scale_d as i32));
                let c = c.map(|c| map(&c, |bits| self.dot.d.value(bits) * scale));
                multiply_floats(a, b, c.as_ref(), self.dot.d)
            }
            (Values::Integers(_), Values::Floats(_)) | (Values::Floats(_), Values::Integers(_)) => {
                unreachable!("A and B are both integers or both not: {:?}", self.dot)
            }
        }
    }

    /// Returns the cells of a row of D in one block.
    fn runs(&self, context: &Context<'_>, row: usize) -> Outcome<Vec<Run>> {
        let (lane, column) = self.step.d.position(context, self.lane);
        let TensorDot { m, n, .. } = self.dot;
        let (row_lane, parts) = match (self.ranks.len(), m) {
            (1, 64) => (row / 16 * 32 + row % 16, 1),
            (2, 128) => (row, 2),
            _ => (row, 1),
        };
        let has_lane = lane == 0 || lane == 16 && m == 64 && self.ranks.len() == 1;
        if !has_lane {
            let text = format!("tcgen05.mma with D at lane {lane}: D of {m} rows begins at lane 0");
            return Err(FaultKind::Illegal(text).into());
        }
        let len = n / parts;
        let run = |part| Run { first: part * len, lane: lane + row_lane + part * 64, column, len };
        Ok((0..parts).map(run).collect())
    }

    fn accumulators(&self, context: &mut Context<'_>, rank: usize, rows: usize) -> Outcome<Matrix<u64>> {
        let mut matrix = Matrix::new(rows, self.dot.n);
        let mut cells = vec![0; self.dot.n];
        for row in 0..rows {
            for run in self.runs(context, row)? {
                let accessor = tensor_accessor(self.agent, context.instruction);
                let cells = &mut cells[..run.len];
                context.blocks[rank].tensor.read(&accessor, (run.lane, run.column), cells)?;
                for (index, &cell) in cells.iter().enumerate() {
                    matrix[(row, run.first + index)] = cell.into();
                }
            }
        }
        Ok(matrix)
    }

    fn store(
        &self,
        context: &mut Context<'_>,
        (index, rank): (usize, usize),
        result: &Matrix<u64>,
    ) -> Outcome {
        let disabled: Vec<u32> =
            self.step.disabled_lanes.iter().map(|&slot| context.get(slot, self.lane) as u32).collect();
        for row in 0..result.rows {
            for run in self.runs(context, row)? {
                let bit = index * 128 + run.lane;
                if disabled.get(bit / 32).is_some_and(|mask| mask >> (bit % 32) & 1 == 1) {
                    continue;
                }
                let accessor = tensor_accessor(self.agent, context.instruction);
                let cells: Vec<u32> =
                    result.row(row)[run.first..run.first + run.len].iter().map(|&bits| bits as u32).collect();
                context.blocks[rank].tensor.write(&accessor, (run.lane, run.column), &cells)?;
            }
        }
        Ok(())
    }

    fn left(&self, context: &mut Context<'_>, rank: usize, rows: usize) -> Outcome<Values> {
        match self.step.a {
            TensorLeftOperand::Descriptor(slot) => {
                let descriptor = context.get(slot, self.lane);
                self.in_shared_memory(context, rank, descriptor, rows, self.dot.a)
            }
            TensorLeftOperand::TensorMemory(address) => self.in_tensor_memory(context, rank, address, rows),
        }
    }

    /// Returns B, transposed: n rows of k.
    fn right(&self, context: &mut Context<'_>) -> Outcome<Values> {
        let descriptor = context.get(self.step.b, self.lane);
        let rows = self.dot.n / self.ranks.len();
        let mut whole: Option<Values> = None;
        for &rank in &self.ranks {
            let part = self.in_shared_memory(context, rank, descriptor, rows, self.dot.b)?;
            match (&mut whole, part) {
                (None, part) => whole = Some(part),
                (Some(Values::Floats(whole)), Values::Floats(part)) => append(whole, part),
                (Some(Values::Integers(whole)), Values::Integers(part)) => append(whole, part),
                (Some(_), _) => unreachable!("both parts have the same element type"),
            }
        }
        Ok(whole.expect("a group has a block"))
    }

    fn in_shared_memory(
        &self,
        context: &mut Context<'_>,
        rank: usize,
        bits: u64,
        rows: usize,
        operand: TensorOperand,
    ) -> Outcome<Values> {
        let descriptor = shared_descriptor(bits)?;
        let TensorOperand { element, major, is_negated } = operand;
        let is_padded = self.is_padded(element);
        let has_pairs = descriptor.swizzle == Swizzle::Bytes128Pairs;
        let is_unsupported = match major {
            Major::K => has_pairs,
            Major::Mn => element.bits() < 8 || element == Element::Tf32 && !has_pairs,
        };
        if is_unsupported {
            let text = format!(
                "`tcgen05.mma` with a {major:?}-major operand of {element:?} and the swizzle {:?}",
                descriptor.swizzle
            );
            return Err(FaultKind::Unsupported(text).into());
        }
        let place = ResolvedAddress::Shared { rank, offset: u64::from(descriptor.start) };
        context.visit(place, self.agent.index, self.agent.step())?;
        let accessor = Accessor {
            agent: self.agent,
            instruction: context.instruction,
            proxy: Proxy::Async,
            is_atomic: false,
        };
        let mut bytes_read = 0;
        let shared = &mut context.blocks[rank].shared;
        let in_chunk = if is_padded { 16 } else { 128 / element.bits() } as usize;
        // The padding may be uninitialized.
        let used = in_chunk * element.bits() as usize / 8;
        let mut read = |address: u32| {
            let mut chunk = [0; 16];
            shared.read(&accessor, u64::from(address), &mut chunk[..used])?;
            bytes_read += used as u64;
            Outcome::Ok(u128::from_le_bytes(chunk))
        };
        let format = (element, in_chunk);
        let values = if element.is_integer() {
            Values::Integers(descriptor.read(
                0..rows,
                self.dot.k,
                format,
                major,
                Element::integer,
                &mut read,
            )?)
        } else {
            let mut matrix =
                descriptor.read(0..rows, self.dot.k, format, major, Element::value, &mut read)?;
            negate(&mut matrix, is_negated);
            Values::Floats(matrix)
        };
        context.counters.bytes_read += bytes_read;
        Ok(values)
    }

    /// Returns whether 16 elements narrower than a byte are padded to 16 bytes.
    fn is_padded(&self, element: Element) -> bool {
        let is_packed =
            matches!(self.step.kind, TensorKind::Scaled(ScaledDotKind::Mxf4 | ScaledDotKind::Mxf4nvf4, _));
        element.bits() < 8 && !is_packed
    }

    fn in_tensor_memory(
        &self,
        context: &mut Context<'_>,
        rank: usize,
        address: TensorAddress,
        rows: usize,
    ) -> Outcome<Values> {
        let TensorOperand { element, major, is_negated } = self.dot.a;
        if major == Major::Mn {
            let text = "tcgen05.mma with an MN-major A in tensor memory: it has to be K-major";
            return Err(FaultKind::Illegal(text.into()).into());
        }
        if self.is_padded(element) {
            let text = format!("`tcgen05.mma` with A of {element:?} in tensor memory");
            return Err(FaultKind::Unsupported(text).into());
        }
        let is_copied = self.ranks.len() == 2 && rows == 64;
        let (lane, column) = address.position(context, self.lane);
        let in_cell = (32 / element.bits()) as usize;
        let mut cells = vec![0; self.dot.k / in_cell];
        let (mut floats, mut integers) = (Matrix::new(rows, self.dot.k), Matrix::new(rows, self.dot.k));
        for row in 0..rows {
            let row_lane = if rows == 64 && !is_copied { row / 16 * 32 + row % 16 } else { row };
            let accessor = tensor_accessor(self.agent, context.instruction);
            let memory = &mut context.blocks[rank].tensor;
            memory.read(&accessor, (lane + row_lane, column), &mut cells)?;
            if is_copied {
                let mut copy = vec![0; cells.len()];
                memory.read(&accessor, (lane + row_lane + 64, column), &mut copy)?;
                if copy != cells {
                    let text =
                        format!("row {row} of A differs between the halves of the lanes of tensor memory");
                    return Err(FaultKind::Illegal(text).into());
                }
            }
            for k in 0..self.dot.k {
                let bits = u64::from(cells[k / in_cell]) >> ((k % in_cell) as u32 * element.bits());
                if element.is_integer() {
                    integers[(row, k)] = element.integer(bits);
                } else {
                    floats[(row, k)] = element.value(bits);
                }
            }
        }
        negate(&mut floats, is_negated);
        Ok(if element.is_integer() { Values::Integers(integers) } else { Values::Floats(floats) })
    }

    /// Returns the scale factors of A (operand 0) or B (operand 1): a matrix per block, or none.
    /// All blocks must have the same matrix of B.
    fn scale_factors(
        &self,
        context: &mut Context<'_>,
        operand: usize,
        rows: usize,
    ) -> Outcome<Vec<Matrix<f64>>> {
        let (Some(factors), Some(addresses)) = (self.dot.scales, self.step.scales) else { return Ok(vec![]) };
        let byte = if operand == 0 { factors.byte_a } else { factors.byte_b };
        let found = self
            .ranks
            .iter()
            .map(|&rank| self.scale_factors_of(context, rank, addresses[operand], (rows, byte), factors))
            .collect::<Outcome<Vec<_>>>()?;
        let bits = |factors: &Matrix<f64>| factors.elements.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        if operand == 1 && found.windows(2).any(|pair| bits(&pair[0]) != bits(&pair[1])) {
            let text = "the blocks of a pair have different scale factors of B in tensor memory";
            return Err(FaultKind::Illegal(text.into()).into());
        }
        Ok(found)
    }

    fn scale_factors_of(
        &self,
        context: &mut Context<'_>,
        rank: usize,
        address: TensorAddress,
        (rows, byte): (usize, usize),
        factors: ScaleFactors,
    ) -> Outcome<Matrix<f64>> {
        let (_, column) = address.position(context, self.lane);
        let mut matrix = Matrix::new(rows, factors.count);
        for row in 0..rows {
            let mut first = None;
            for quarter in 0..4 {
                let mut cell = [0];
                let accessor = tensor_accessor(self.agent, context.instruction);
                let place = (quarter * 32 + row % 32, column + row / 32);
                context.blocks[rank].tensor.read(&accessor, place, &mut cell)?;
                let width = 8 * factors.count as u32;
                let bits = (u64::from(cell[0]) >> (8 * byte as u32)) & ((1 << width) - 1);
                if *first.get_or_insert(bits) != bits {
                    let text = format!(
                        "the scale factors of row {row} differ between the quarters of the lanes of tensor memory, \
                         at column {}",
                        place.1
                    );
                    return Err(FaultKind::Illegal(text).into());
                }
            }
            let bits = first.expect("there are four quarters");
            for index in 0..factors.count {
                matrix[(row, index)] = factor((bits >> (8 * index)) as u8, factors.is_power);
            }
        }
        Ok(matrix)
    }
}

/// Decodes the descriptor of a matrix in shared memory: that of `wgmma` with a version field.
pub(super) fn shared_descriptor(bits: u64) -> Outcome<Descriptor> {
    let illegal = |text: String| Err(FaultKind::Illegal(text).into());
    if bits >> 46 & 7 != 1 {
        return illegal(format!(
            "the matrix descriptor {bits:#018x} has the version {}: that of tcgen05 is 1",
            bits >> 46 & 7
        ));
    }
    let swizzle = bits >> 61;
    if !matches!(swizzle, 0 | 1 | 2 | 4 | 6) {
        return illegal(format!("the matrix descriptor {bits:#018x} has the swizzle {swizzle}"));
    }
    if bits >> 52 & 1 == 1 {
        let text = "a matrix descriptor with an absolute leading dimension".into();
        return Err(FaultKind::Unsupported(text).into());
    }
    let descriptor = Descriptor::from(bits);
    Ok(if swizzle == 1 { Descriptor { swizzle: Swizzle::Bytes128Pairs, ..descriptor } } else { descriptor })
}

fn factor(bits: u8, is_power: bool) -> f64 {
    match (is_power, bits) {
        (false, _) => Element::E4m3.value(u64::from(bits & 0x7f)),
        (true, 0xff) => f64::NAN,
        (true, _) => 2_f64.powi(i32::from(bits) - 127),
    }
}

/// Multiplies each row by the scale factors of its blocks.
fn apply_scales(matrix: &mut Matrix<f64>, scales: &Matrix<f64>) {
    let block = matrix.columns / scales.columns;
    for row in 0..matrix.rows {
        for k in 0..matrix.columns {
            matrix[(row, k)] *= scales[(row, k / block)];
        }
    }
}

fn negate(matrix: &mut Matrix<f64>, is_negated: bool) {
    if is_negated {
        matrix.elements.iter_mut().for_each(|element| *element = -*element);
    }
}

fn append<T>(whole: &mut Matrix<T>, part: Matrix<T>) {
    whole.rows += part.rows;
    whole.elements.extend(part.elements);
}

fn map<T: Copy + Default>(matrix: &Matrix<u64>, value: impl Fn(u64) -> T) -> Matrix<T> {
    let mut result = Matrix::new(matrix.rows, matrix.columns);
    for (to, &from) in result.elements.iter_mut().zip(&matrix.elements) {
        *to = value(from);
    }
    result
}
