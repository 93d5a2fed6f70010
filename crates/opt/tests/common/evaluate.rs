//! Evaluates one program of a kernel, element by element.

use tilewright_base::entity::SecondaryMap;
use tilewright_ir::{
    Block, Dtype, Element, ElementwiseFamily, ElementwiseFn, Function, Inst, Op, Type, Value,
};

use super::number;

pub type Tile = Vec<u64>;

/// The address and the bytes of each pointer parameter.
#[derive(Clone, Default)]
pub struct Memory(pub Vec<(u64, Vec<u8>)>);

impl Memory {
    fn byte(&mut self, address: u64) -> Result<&mut u8> {
        let area =
            self.0.iter_mut().find(|(start, bytes)| (*start..*start + bytes.len() as u64).contains(&address));
        let (start, bytes) = area.ok_or(Stopped("out of bounds"))?;
        Ok(&mut bytes[(address - *start) as usize])
    }
}

/// The program is wrong or runs too long.
#[derive(Debug)]
pub struct Stopped(pub &'static str);

pub struct Evaluator<'a> {
    pub function: &'a Function,
    pub memory: Memory,
    pub programs: [u64; 2],
    /// True if a signed sum, difference, product or negation wrapped.
    pub overflowed: bool,
    /// Called with each value when it is computed.
    pub observe: &'a mut dyn FnMut(Value, &Type, &Tile),
    pub values: SecondaryMap<Value, Tile>,
    pub steps_left: u64,
}

type Result<T> = std::result::Result<T, Stopped>;

impl<'a> Evaluator<'a> {
    pub fn new(
        function: &'a Function,
        memory: Memory,
        programs: [u64; 2],
        observe: &'a mut dyn FnMut(Value, &Type, &Tile),
    ) -> Self {
        let values = SecondaryMap::new();
        Self { function, memory, programs, overflowed: false, observe, values, steps_left: 5_000 }
    }

    pub fn run(&mut self, arguments: &[u64]) -> Result<()> {
        let entry = self.function.entry;
        for (index, &argument) in arguments.iter().enumerate() {
            self.set(self.function.blocks[entry].parameters[index], vec![argument]);
        }
        self.block(entry).map(drop)
    }

    fn set(&mut self, value: Value, tile: Tile) {
        let ty = self.function.ty(value);
        assert_eq!(tile.len(), ty.shape.elements(), "{value} of {ty}");
        (self.observe)(value, ty, &tile);
        self.values[value] = tile;
    }

    fn enter(&mut self, block: Block, arguments: Vec<Tile>) -> Result<Vec<Tile>> {
        for (index, tile) in arguments.into_iter().enumerate() {
            self.set(self.function.blocks[block].parameters[index], tile);
        }
        self.block(block)
    }

    fn block(&mut self, block: Block) -> Result<Vec<Tile>> {
        let function = self.function;
        for &inst in &function.blocks[block].insts {
            self.steps_left = self.steps_left.checked_sub(1).ok_or(Stopped("too long"))?;
            if function.insts[inst].op.is_terminator() {
                break;
            }
            let results = self.inst(inst)?;
            for (index, tile) in results.into_iter().enumerate() {
                self.set(function.insts[inst].results[index], tile);
            }
        }
        Ok(function.yielded(block).iter().map(|&value| self.values[value].clone()).collect())
    }

    fn inst(&mut self, inst: Inst) -> Result<Vec<Tile>> {
        let function = self.function;
        let data = &function.insts[inst];
        let operands: Vec<Tile> = data.operands.iter().map(|&value| self.values[value].clone()).collect();
        match &data.op {
            Op::For { .. } => self.for_loop(inst, &operands),
            Op::While {} => self.while_loop(inst, operands),
            Op::If {} => self.enter(data.regions[usize::from(operands[0][0] == 0)], Vec::new()),
            Op::Reduce { axis } => self.reduce(inst, *axis as usize, &operands),
            Op::Load { .. } => self.load(inst, &operands).map(|tile| vec![tile]),
            Op::Store { .. } => self.store(inst, &operands).map(|()| Vec::new()),
            Op::Barrier {} | Op::Print { .. } | Op::Dependency { .. } => Ok(Vec::new()),
            Op::Assert { .. } | Op::Assume {} => {
                let mask = operands.get(1);
                let holds = (0..operands[0].len())
                    .all(|i| operands[0][i] != 0 || mask.is_some_and(|mask| mask[i] == 0));
                if holds { Ok(Vec::new()) } else { Err(Stopped("a promise is broken")) }
            }
            // tidy: wildcard because the others are pure
            _ => Ok(vec![self.pure(inst, &operands)]),
        }
    }

    fn for_loop(&mut self, inst: Inst, operands: &[Tile]) -> Result<Vec<Tile>> {
        let data = &self.function.insts[inst];
        let dtype = self.function.ty(data.operands[0]).dtype().expect("bounds are integers");
        let [mut index, upper, step] = [0, 1, 2].map(|place| number::integer(dtype, operands[place][0]));
        if step == 0 {
            return Err(Stopped("the step is zero"));
        }
        let mut carried = operands[3..].to_vec();
        while if step > 0 { index < upper } else { index > upper } {
            let mut arguments = vec![vec![number::wrap(dtype, index)]];
            arguments.append(&mut carried);
            carried = self.enter(data.regions[0], arguments)?;
            index += step;
        }
        Ok(carried)
    }

    fn while_loop(&mut self, inst: Inst, mut carried: Vec<Tile>) -> Result<Vec<Tile>> {
        let data = &self.function.insts[inst];
        while self.enter(data.regions[0], carried.clone())?[0][0] != 0 {
            carried = self.enter(data.regions[1], carried)?;
        }
        Ok(carried)
    }

    fn reduce(&mut self, inst: Inst, axis: usize, tiles: &[Tile]) -> Result<Vec<Tile>> {
        let data = &self.function.insts[inst];
        let shape = self.function.ty(data.operands[0]).shape.clone();
        let inner: usize = shape[axis + 1..].iter().map(|&extent| extent as usize).product();
        let extent = shape[axis] as usize;
        let outer = shape.elements() / (inner * extent);
        let mut results: Vec<Tile> = vec![Vec::new(); tiles.len()];
        for place in 0..outer * inner {
            let at = |tile: &Tile, i: usize| tile[(place / inner * extent + i) * inner + place % inner];
            let mut accumulated: Vec<u64> = tiles.iter().map(|tile| at(tile, 0)).collect();
            for i in 1..extent {
                let next = tiles.iter().map(|tile| at(tile, i));
                let arguments = accumulated.iter().copied().chain(next).map(|bits| vec![bits]).collect();
                accumulated =
                    self.enter(data.regions[0], arguments)?.into_iter().map(|tile| tile[0]).collect();
            }
            for (result, bits) in results.iter_mut().zip(accumulated) {
                result.push(bits);
            }
        }
        Ok(results)
    }

    fn load(&mut self, inst: Inst, operands: &[Tile]) -> Result<Tile> {
        let result = self.function.insts[inst].results[0];
        let bytes = self.function.ty(result).element.bytes() as u64;
        let mut tile = Tile::new();
        for (i, &address) in operands[0].iter().enumerate() {
            let is_on = operands.get(1).is_none_or(|mask| mask[i] != 0);
            let mut bits = operands.get(2).map_or(0, |other| other[i]);
            if is_on {
                bits = 0;
                for byte in 0..bytes {
                    bits |= u64::from(*self.memory.byte(address + byte)?) << (8 * byte);
                }
            }
            tile.push(bits);
        }
        Ok(tile)
    }

    fn store(&mut self, inst: Inst, operands: &[Tile]) -> Result<()> {
        let value = self.function.insts[inst].operands[1];
        let bytes = self.function.ty(value).element.bytes() as u64;
        for (i, &address) in operands[0].iter().enumerate() {
            if operands.get(2).is_none_or(|mask| mask[i] != 0) {
                for byte in 0..bytes {
                    *self.memory.byte(address + byte)? = (operands[1][i] >> (8 * byte)) as u8;
                }
            }
        }
        Ok(())
    }

    fn pure(&mut self, inst: Inst, operands: &[Tile]) -> Tile {
        let function = self.function;
        let data = &function.insts[inst];
        let ty = function.ty(data.results[0]);
        let elements = ty.shape.elements();
        let source = data.operands.first().map(|&value| function.ty(value));
        match &data.op {
            Op::Constant { value } => vec![value.bits],
            Op::ProgramId { .. } => vec![self.programs[0]],
            Op::NumPrograms { .. } => vec![self.programs[1]],
            Op::Arange { start, end } => {
                (*start..*end).map(|i| number::wrap(Dtype::I32, i128::from(i))).collect()
            }
            Op::Splat { .. } => vec![operands[0][0]; elements],
            Op::ExpandDims { .. } | Op::Reshape { .. } | Op::Hint { .. } | Op::Bitcast { .. } => {
                operands[0].clone()
            }
            Op::Broadcast { .. } => {
                let from = &source.expect("it has an operand").shape;
                let places = (0..elements).map(|i| {
                    let index = unravel(i, &ty.shape);
                    ravel(from, |axis| if from[axis] == 1 { 0 } else { index[axis] })
                });
                places.map(|place| operands[0][place]).collect()
            }
            Op::Transpose { permutation } => {
                let from = &source.expect("it has an operand").shape;
                let places = (0..elements).map(|i| {
                    let index = unravel(i, &ty.shape);
                    let at = |axis: usize| {
                        permutation.iter().position(|&p| p as usize == axis).expect("it is one")
                    };
                    ravel(from, |axis| index[at(axis)])
                });
                places.map(|place| operands[0][place]).collect()
            }
            Op::Slice { starts, steps, .. } => {
                let from = &source.expect("it has an operand").shape;
                let places = (0..elements).map(|i| {
                    let index = unravel(i, &ty.shape);
                    ravel(from, |axis| (starts[axis] + steps[axis] * index[axis] as i64) as usize)
                });
                places.map(|place| operands[0][place]).collect()
            }
            Op::Gather { axis } => {
                let from = &source.expect("it has an operand").shape;
                let places = (0..elements).map(|i| {
                    let index = unravel(i, &ty.shape);
                    let along = number::integer(Dtype::I32, operands[1][i]);
                    ravel(from, |place| if place == *axis as usize { along as usize } else { index[place] })
                });
                places.map(|place| operands[0][place]).collect()
            }
            Op::Elementwise { function: elementwise } => {
                let element = function.ty(data.operands[operands.len() - 1]).element;
                let each = (0..elements).map(|i| {
                    let bits: Vec<u64> = operands.iter().map(|tile| tile[i]).collect();
                    self.elementwise(*elementwise, element, &bits)
                });
                each.collect()
            }
            Op::Cast { element, rounding } => {
                let from = source.expect("it has an operand").element;
                let each = operands[0].iter().map(|&bits| match (from, element) {
                    (Element::Value(from), Element::Value(to)) => number::cast(from, *to, *rounding, bits),
                    (Element::Pointer(_), Element::Value(Dtype::I1)) => u64::from(bits != 0),
                    _ => bits,
                });
                each.collect()
            }
            Op::PtrAdd {} => {
                let dtype = function.ty(data.operands[1]).dtype().expect("offsets are integers");
                let bytes = ty.element.pointee().expect("it is a pointer").bytes() as i128;
                let each = operands[0].iter().zip(&operands[1]).map(|(&pointer, &offset)| {
                    number::wrap(Dtype::U64, i128::from(pointer) + number::integer(dtype, offset) * bytes)
                });
                each.collect()
            }
            Op::Dot { .. } => {
                let [m, k] = source.expect("it has operands").shape[..] else { panic!("dot of two axes") };
                let n = ty.shape[1];
                let dtype =
                    |place: usize| function.ty(data.operands[place]).dtype().expect("dot takes numbers");
                let at = |place: usize, i: u32| number::integer(dtype(place), operands[place][i as usize]);
                let each = (0..m * n).map(|i| {
                    let products = (0..k).map(|l| at(0, i / n * k + l) * at(1, l * n + i % n));
                    number::wrap(dtype(2), at(2, i) + products.sum::<i128>())
                });
                each.collect()
            }
            // tidy: wildcard because the generator makes no others
            other => panic!("{} is not of this test", other.name()),
        }
    }

    fn elementwise(&mut self, function: ElementwiseFn, element: Element, operands: &[u64]) -> u64 {
        if function == ElementwiseFn::Select {
            return operands[if operands[0] != 0 { 1 } else { 2 }];
        }
        let dtype = element.value().unwrap_or(Dtype::U64);
        if dtype.is_int() {
            self.overflowed |= overflows(function, dtype, operands);
            return number::int_function(function, dtype, operands);
        }
        if let ElementwiseFamily::Comparison(comparison) = function.family() {
            let [x, y] = [0, 1].map(|place| number::float(dtype, operands[place]));
            return u64::from(number::compare(comparison, x, y));
        }
        number::float_function(function, dtype, operands)
    }
}

fn overflows(function: ElementwiseFn, dtype: Dtype, operands: &[u64]) -> bool {
    use ElementwiseFn as F;
    let (low, high) = dtype.int_range().expect("it is an integer");
    let x = number::integer(dtype, operands[0]);
    let y = operands.get(1).map_or(0, |&bits| number::integer(dtype, bits));
    let exact = match function {
        F::Add => x + y,
        F::Sub => x - y,
        F::Mul if dtype.is_signed() => x * y,
        F::Neg => -x,
        // tidy: wildcard because the others do not overflow
        _ => return false,
    };
    dtype.is_signed() && !(low..=high).contains(&exact)
}

fn unravel(mut place: usize, shape: &[u32]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        index[axis] = place % shape[axis] as usize;
        place /= shape[axis] as usize;
    }
    index
}

fn ravel(shape: &[u32], index: impl Fn(usize) -> usize) -> usize {
    (0..shape.len()).fold(0, |place, axis| place * shape[axis] as usize + index(axis))
}
