//! Executes `wmma`: matrix multiplications of a warp with opaque fragments.
//!
//! The ISA leaves open which element a register has. The simulator distributes the elements in
//! row-major order: 32 elements to the first position of all lanes, the next 32 to the second
//! position. An f16 fragment may have more room than the matrix has elements; the elements then
//! repeat.

use super::execute::{read_registers, whole_warp};
use super::fragment::Matrix;
use super::multiply::{IntegerProduct, multiply_floats, multiply_integers};
use super::{Element, MatrixRole};
use crate::asynchronous::Pointer;
use crate::context::{Context, Execute, Flow, ResolvedAddress};
use crate::fault::{FaultKind, OfLane, Outcome};
use crate::registers::{LANES, Lanes, Slot, lanes_of};

pub(crate) type Shape = (usize, usize, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WmmaFragment {
    rows: usize,
    columns: usize,
    element: Element,
    registers: usize,
}

impl WmmaFragment {
    /// Returns the fragment of an operand, if the ISA has it.
    pub fn new(operand: MatrixRole, (m, n, k): Shape, element: Element) -> Option<Self> {
        use Element::{B1, Bf16, E2m1, E2m3, E3m2, E4m3, E5m2, F16, F32, F64, S4, S8, S32, Tf32, U4, U8};
        let (rows, columns) = match operand {
            MatrixRole::A => (m, k),
            MatrixRole::B => (k, n),
            MatrixRole::Accumulator => (m, n),
        };
        let is_factor = operand != MatrixRole::Accumulator;
        let is_large = matches!((m, n), (16, 16) | (8, 32) | (32, 8));
        let exists = match element {
            F16 => is_large && k == 16,
            Bf16 | S8 | U8 => is_factor && is_large && k == 16,
            Tf32 => is_factor && (m, n, k) == (16, 16, 8),
            F64 => (m, n, k) == (8, 8, 4),
            S4 | U4 => is_factor && (m, n, k) == (8, 8, 32),
            B1 => is_factor && (m, n, k) == (8, 8, 128),
            F32 => !is_factor && is_large && matches!(k, 8 | 16),
            S32 => !is_factor && (is_large && k == 16 || (m, n) == (8, 8) && matches!(k, 32 | 128)),
            E4m3 | E5m2 | E2m3 | E3m2 | E2m1 => false,
        };
        let packed = (32 / element.bits()).max(1) as usize;
        // f16 operands A and B have eight registers in every shape.
        let registers = if is_factor && element == F16 { 8 } else { rows * columns / (LANES * packed) };
        exists.then_some(Self { rows, columns, element, registers })
    }

    /// Returns the number of registers of each lane.
    pub fn registers(self) -> usize {
        self.registers
    }

    /// Calls `each` for each element, with the lane, the register, the lowest bit in the register,
    /// and the row-major index.
    fn visit(self, mut each: impl FnMut(usize, usize, u32, usize)) {
        let packed = (32 / self.element.bits()).max(1) as usize;
        for place in 0..self.registers * packed {
            for lane in 0..LANES {
                let shift = (place % packed) as u32 * self.element.bits();
                each(lane, place / packed, shift, (place * LANES + lane) % (self.rows * self.columns));
            }
        }
    }

    fn gather<T: Copy + Default>(self, registers: &[Lanes], decode: impl Fn(Element, u64) -> T) -> Matrix<T> {
        let mut matrix = Matrix::new(self.rows, self.columns);
        self.visit(|lane, register, shift, element| {
            matrix.elements[element] = decode(self.element, registers[register][lane] >> shift);
        });
        matrix
    }

    fn scatter(self, elements: &[u64]) -> Vec<Lanes> {
        let mut registers = vec![[0; LANES]; self.registers];
        let mask = u64::MAX >> (64 - self.element.bits());
        self.visit(|lane, register, shift, element| {
            registers[register][lane] |= (elements[element] & mask) << shift;
        });
        registers
    }
}

pub(crate) struct WmmaMemory {
    pub pointer: Pointer,
    /// The distance between rows, or columns, in elements. `None` without gaps.
    pub stride: Option<Slot>,
    pub by_rows: bool,
    pub fragment: WmmaFragment,
}

impl WmmaMemory {
    /// Returns the address of each element: its first byte, and its first bit there.
    fn places(&self, context: &Context<'_>, instruction: &str) -> Outcome<Vec<(ResolvedAddress, u32)>> {
        whole_warp(context, instruction)?;
        let WmmaFragment { rows, columns, element, .. } = self.fragment;
        let natural = if self.by_rows { columns } else { rows } as u64;
        let of_lane = |lane| {
            let stride = self.stride.map_or(natural, |stride| context.get(stride, lane) & 0xffff_ffff);
            (self.pointer.at(context, lane), stride)
        };
        let first = of_lane(0);
        if let Some(lane) = lanes_of(context.lanes).find(|lane| of_lane(*lane) != first) {
            let text = format!("the address or the stride of {instruction} differs between lanes");
            return Err(FaultKind::Illegal(text).into()).of_lane(lane);
        }
        let place = |index: usize| {
            let (row, column) = ((index / columns) as u64, (index % columns) as u64);
            let at = if self.by_rows { row * first.1 + column } else { column * first.1 + row };
            let bits = at * u64::from(element.bits());
            (context.locate(self.pointer.space, first.0.wrapping_add(bits / 8)), (bits % 8) as u32)
        };
        Ok((0..rows * columns).map(place).collect())
    }

    fn bytes(&self) -> usize {
        self.fragment.element.bits().div_ceil(8) as usize
    }
}

/// `wmma.load`.
pub(crate) struct WmmaLoad {
    pub memory: WmmaMemory,
    pub d: Vec<Slot>,
}

impl Execute for WmmaLoad {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let size = self.memory.bytes();
        let mut elements = Vec::new();
        for (place, bit) in self.memory.places(context, "wmma.load")? {
            let mut bytes = [0; 8];
            context.read(place, 0, size as u32, false, &mut bytes[..size])?;
            elements.push(u64::from_le_bytes(bytes) >> bit);
        }
        context.counters.bytes_read += (elements.len() * size) as u64;
        for (slot, lanes) in self.d.iter().zip(self.memory.fragment.scatter(&elements)) {
            *context.registers.get_mut(*slot) = lanes;
        }
        Ok(Flow::Next)
    }
}

/// `wmma.store`.
pub(crate) struct WmmaStore {
    pub memory: WmmaMemory,
    pub a: Vec<Slot>,
}

impl Execute for WmmaStore {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let size = self.memory.bytes();
        let places = self.memory.places(context, "wmma.store")?;
        let matrix = self.memory.fragment.gather(&read_registers(context, &self.a), |_, bits| bits);
        for ((place, _), bits) in places.into_iter().zip(&matrix.elements) {
            context.write(place, 0, size as u32, false, &bits.to_le_bytes()[..size])?;
        }
        context.counters.bytes_written += (matrix.elements.len() * size) as u64;
        Ok(Flow::Next)
    }
}

/// `wmma.mma`: the fragments of A, B, C and D and their registers.
pub(crate) struct WmmaMultiply {
    pub fragments: [WmmaFragment; 4],
    pub registers: [Vec<Slot>; 4],
    pub product: IntegerProduct,
}

impl Execute for WmmaMultiply {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warp(context, "wmma.mma")?;
        let [a, b, c, d] = &self.fragments;
        let [ra, rb, rc] = [0, 1, 2].map(|operand| read_registers(context, &self.registers[operand]));
        let result = if a.element.is_integer() {
            let [a, b, c] = [
                a.gather(&ra, Element::integer),
                b.gather(&rb, Element::integer),
                c.gather(&rc, Element::integer),
            ];
            multiply_integers(&a, &b.transposed(), Some(&c), self.product)
        } else {
            let [a, b, c] =
                [a.gather(&ra, Element::value), b.gather(&rb, Element::value), c.gather(&rc, Element::value)];
            multiply_floats(&a, &b.transposed(), Some(&c), d.element)
        };
        for (slot, lanes) in self.registers[3].iter().zip(d.scatter(&result.elements)) {
            *context.registers.get_mut(*slot) = lanes;
        }
        context.counters.tensor_operations += 2 * (d.rows * d.columns * a.columns) as u64;
        Ok(Flow::Next)
    }
}
