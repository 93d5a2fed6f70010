//! Tests random programs on large 2-D tiles.
//!
//! The programs have loads, transposes, reductions, reshapes, dots and loops. Layouts fit, barriers
//! suffice, and results are equal to the executor's.

use smallvec::{SmallVec, smallvec};
use tilewright_base::entity::PrimaryMap;
use tilewright_ir::{
    Builder, CacheModifier, Dtype, Element, ElementwiseFn, EvictionPolicy, Function, InputPrecision, IntList,
    IrBuilder, Literal, LoopOptions, Module, Op, Parameter, Rounding, Shape, Type, Value,
};

use crate::check::{check, check_lowered};
use crate::common::{Random, seeds};
use crate::erase::{erase, erase_if_simple};
use crate::hazards;
use crate::meaning::execute;
use crate::{stages_if_it_fits, text};

const RIGHT: &str = "the generator follows the type rules";
const EXTENTS: [u32; 4] = [8, 16, 32, 64];
/// The number of elements of each pointer parameter.
const ELEMENTS: usize = 64 * 64 * 4;

struct Generator {
    builder: IrBuilder,
    random: Random,
    /// The fp32 tiles with two axes so far.
    tiles: Vec<Value>,
    pointers: [Value; 2],
}

pub fn program(seed: u64) -> Module {
    let mut function = Function::new("tiles");
    let entry = function.entry;
    let pointers = ["in", "out"].map(|name| {
        function.parameters.push(Parameter { name: name.into(), divisibility: 16 });
        function.add_parameter(entry, Type::pointer(Dtype::F32), Some(name.into()))
    });
    let builder = IrBuilder::new(function);
    let mut generator = Generator { builder, random: Random(seed), tiles: Vec::new(), pointers };
    generator.load();
    generator.statements(10, 2);
    generator.store();
    generator.builder.return_values([]).expect(RIGHT);
    let mut functions = PrimaryMap::new();
    let entry = functions.push(generator.builder.function);
    Module::new(functions, entry, std::sync::Arc::default())
}

impl Generator {
    fn statements(&mut self, count: usize, depth: u32) {
        for _ in 0..count {
            match self.random.below(9) {
                0 => self.load(),
                1 | 2 => self.pointwise(),
                3 => self.transpose(),
                4 => self.subtract_maximum(),
                5 => self.reshape(),
                6 => self.dot(),
                7 if depth > 0 => self.emit_loop(depth),
                _ => self.store(),
            }
        }
    }

    fn shape(&self, tile: Value) -> Shape {
        self.builder.function.ty(tile).shape.clone()
    }

    fn tile(&mut self) -> Value {
        let tiles = self.tiles.clone();
        self.random.pick(&tiles)
    }

    fn tile_of(&mut self, shape: &Shape) -> Value {
        let fitting: Vec<Value> =
            self.tiles.iter().copied().filter(|tile| self.shape(*tile) == *shape).collect();
        if fitting.is_empty() { self.load_of(shape) } else { self.random.pick(&fitting) }
    }

    fn new_shape(&mut self) -> Shape {
        (0..2).map(|_| self.random.pick(&EXTENTS)).collect()
    }

    /// Emits pointers to a tile, in row-major or column-major order.
    fn pointers(&mut self, base: Value, shape: &Shape) -> Value {
        let mut sum = self.builder.splat(base, shape.clone()).expect(RIGHT);
        let fast = self.random.below(2);
        for axis in 0..2 {
            let index = self.builder.arange(0, i64::from(shape[axis])).expect(RIGHT);
            let index = self.builder.expand_dims(index, 1 - axis as u32).expect(RIGHT);
            let stride = if axis == fast { 1 } else { i128::from(shape[fast]) };
            let stride = self.builder.constant(Literal::int(Dtype::I32, stride)).expect(RIGHT);
            let own = self.builder.function.ty(index).shape.clone();
            let stride = self.builder.splat(stride, own).expect(RIGHT);
            let offset = self.builder.binary(ElementwiseFn::Mul, index, stride).expect(RIGHT);
            let offset = self.builder.broadcast(offset, shape.clone()).expect(RIGHT);
            sum = self.builder.ptr_add(sum, offset).expect(RIGHT);
        }
        sum
    }

    fn load(&mut self) {
        let shape = self.new_shape();
        self.load_of(&shape);
    }

    fn load_of(&mut self, shape: &Shape) -> Value {
        let pointers = self.pointers(self.pointers[0], shape);
        let how = (CacheModifier::default(), EvictionPolicy::default(), false);
        let tile = self.builder.load(pointers, None, None, how).expect(RIGHT);
        self.tiles.push(tile);
        tile
    }

    fn store(&mut self) {
        let tile = self.tile();
        let shape = self.shape(tile);
        let pointers = self.pointers(self.pointers[1], &shape);
        let how = (CacheModifier::default(), EvictionPolicy::default());
        self.builder.store(pointers, tile, None, how).expect(RIGHT);
    }

    fn pointwise(&mut self) {
        let a = self.tile();
        let shape = self.shape(a);
        let b = self.tile_of(&shape);
        let function = self.random.pick(&[ElementwiseFn::Add, ElementwiseFn::Max, ElementwiseFn::Sub]);
        let tile = self.builder.binary(function, a, b).expect(RIGHT);
        self.tiles.push(tile);
    }

    fn transpose(&mut self) {
        let tile = self.tile();
        let tile = self.builder.transpose(tile, IntList::from_slice(&[1, 0])).expect(RIGHT);
        self.tiles.push(tile);
    }

    fn reshape(&mut self) {
        let tile = self.tile();
        let shape = self.shape(tile);
        if shape[0] > 8 && shape[1] < 64 {
            let tile = self.builder.reshape(tile, Shape::from([shape[0] / 2, shape[1] * 2])).expect(RIGHT);
            self.tiles.push(tile);
        }
    }

    /// Emits the difference between a tile and its maximum along an axis.
    fn subtract_maximum(&mut self) {
        let tile = self.tile();
        let (shape, axis) = (self.shape(tile), self.random.below(2) as u32);
        let scalar = Type::scalar(Dtype::F32);
        let (region, outer) = self.builder.begin_region([scalar.clone(), scalar]);
        let parameters = self.builder.function.blocks[region].parameters.clone();
        let greater = self.builder.binary(ElementwiseFn::Max, parameters[0], parameters[1]).expect(RIGHT);
        self.builder.yield_values([greater]).expect(RIGHT);
        self.builder.switch_to(outer);
        let reduced = self.builder.reduce(smallvec![tile], axis, region).expect(RIGHT)[0];
        let column = self.builder.expand_dims(reduced, axis).expect(RIGHT);
        let wide = self.builder.broadcast(column, shape).expect(RIGHT);
        let difference = self.builder.binary(ElementwiseFn::Sub, tile, wide).expect(RIGHT);
        self.tiles.push(difference);
    }

    fn dot(&mut self) {
        let left = self.tile();
        let columns = self.random.pick(&EXTENTS);
        let (rows, depth) = (self.shape(left)[0], self.shape(left)[1]);
        let right = self.tile_of(&Shape::from([depth, columns]));
        let shape = Shape::from([rows, columns]);
        let mut sum = self.tile_of(&shape);
        if self.random.chance(2) {
            let zero = Literal::float(Dtype::F32, 0.0).expect("it is a float");
            let zero = self.builder.constant(zero).expect(RIGHT);
            sum = self.builder.splat(zero, shape).expect(RIGHT);
        }
        let mut operands = [left, right];
        let precision = self.random.pick(&[InputPrecision::Ieee, InputPrecision::Tf32]);
        if self.random.chance(2) {
            let half = Element::Value(Dtype::F16);
            operands = operands.map(|tile| self.builder.cast(tile, half, Rounding::default()).expect(RIGHT));
        }
        let tile = self.builder.dot(operands[0], operands[1], sum, precision, 0).expect(RIGHT);
        self.tiles.push(tile);
    }

    /// Emits a loop that carries two tiles.
    fn emit_loop(&mut self, depth: u32) {
        let bound = |value: i128, this: &mut Self| {
            this.builder.constant(Literal::int(Dtype::I32, value)).expect(RIGHT)
        };
        let bounds = [bound(0, self), bound(2, self), bound(1, self)];
        let carried = [self.tile(), self.tile()];
        let types = carried.map(|tile| self.builder.function.ty(tile).clone());
        let index = Type::scalar(Dtype::I32);
        let (region, outer) = self.builder.begin_region([index].into_iter().chain(types.clone()));
        let outside = self.tiles.clone();
        self.tiles.extend_from_slice(&self.builder.function.blocks[region].parameters[1..]);
        self.statements(5, depth - 1);
        let next = types.map(|ty| self.tile_of(&ty.shape));
        self.builder.yield_values(next).expect(RIGHT);
        self.builder.switch_to(outer);
        self.tiles = outside;
        let operands: SmallVec<[Value; 4]> = bounds.into_iter().chain(carried).collect();
        let op = Op::For { options: LoopOptions::default() };
        let results = self.builder.emit(op, operands, smallvec![region]).expect(RIGHT);
        self.tiles.extend(results);
    }
}

#[test]
fn random_programs_on_large_tiles() {
    let (mut conversions, mut compared, mut lowered) = (0, 0, 0);
    for seed in seeds(400) {
        let module = program(seed);
        let target = ["sm_75", "sm_80", "sm_90"][(seed % 3) as usize];
        let num_warps = [1, 2, 4, 8][(seed % 4) as usize];
        let Some(stages) = stages_if_it_fits(&module, target, num_warps) else { continue };
        let (first, last) = (&stages[0], &stages[stages.len() - 1]);
        check(first);
        check_lowered(last);
        hazards::check(last);
        conversions += text(first).matches("= convert_layout").count();
        let erased = [Some(erase(first)), erase_if_simple(last)].map(|erased| Some(erased?.module));
        // A dot in another type rounds differently.
        let casts = |module: &Module| {
            module.kernel().insts.values().filter(|data| matches!(data.op, Op::Cast { .. })).count()
        };
        if erased[0].as_ref().is_some_and(|erased| casts(&module) != casts(erased)) {
            continue;
        }
        let expected = execute(&module, [1, 1, 1], ELEMENTS, &[]);
        for (stage, erased) in erased.iter().enumerate() {
            let Some(erased) = erased else { continue };
            compared += 1;
            lowered += stage;
            let found = execute(erased, [1, 1, 1], ELEMENTS, &[]);
            assert!(expected == found, "seed {seed}:\n{}", text([first, last][stage]));
        }
    }
    assert!(
        conversions > 300 && compared - lowered > 60 && lowered > 60,
        "{conversions} conversions, {compared} compared, {lowered} of them after all passes"
    );
}
