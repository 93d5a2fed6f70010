//! Generates random functions, whose results do not depend on the payload of any NaN.
//!
//! A function accesses four regions, each with one kind of elements, so a NaN in memory is never
//! read as an integer. A function replaces each NaN before it reads the bits of floats.
//!
//! A step is one operation, a loop, or a branch.

mod arithmetic;
mod memory;

use tilewright_native::ir::{Compare, Function, IntBinary, IntCompare, Lane, Type, Value};
use tilewright_native::{Builder, Place};

use crate::callees;
use crate::random::Random;
pub use arithmetic::conversion_range;

/// The bytes of a region. The steps access the first half, and the results are in the second.
pub const REGION: usize = 2048;

/// The bytes of a region that the steps access.
const DATA: usize = REGION / 2;

const REGIONS: usize = 4;

/// The number of bytes of an arena: two pages of 4096 bytes.
pub const ARENA: usize = REGIONS * REGION;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Integers,
    /// binary32.
    Single,
    /// binary64.
    Double,
}

pub struct Program {
    pub function: Function,
    pub layout: [Kind; REGIONS],
    /// The content of the arena before the function runs.
    pub arena: Vec<u8>,
}

pub fn generate(seed: u64, lanes: usize) -> Program {
    let mut random = Random::new(seed);
    let mut layout = [Kind::Integers, Kind::Single, Kind::Double, Kind::Integers];
    layout[3] = random.pick(&layout);
    for index in 1..REGIONS {
        layout.swap(index, random.below(index + 1));
    }
    let arena = layout.iter().flat_map(|&kind| region(&mut random, kind)).collect();
    let all = [Lane::I8, Lane::I16, Lane::I32, Lane::I64, Lane::F32, Lane::F64];
    let mut chosen: Vec<Lane> = all.into_iter().filter(|_| random.chance(50)).collect();
    if chosen.is_empty() {
        chosen.push(random.pick(&all));
    }
    let mut generator = Generator {
        builder: Builder::new(lanes),
        layout,
        lanes: chosen,
        values: Vec::new(),
        depth: 0,
        remaining: 3 + random.pick(&[5, 20, 20, 60, 60, 150, 400]),
        recent_places: Vec::new(),
        recent: random.pick(&[10, 50, 90]),
        new: random.pick(&[3, 8, 30]),
        constants: random.pick(&[10, 40, 80]),
        weights: std::array::from_fn(|_| random.pick(&[0, 1, 1, 4])),
        random,
    };
    generator.run();
    Program { function: generator.builder.finish(), layout, arena }
}

fn region(random: &mut Random, kind: Kind) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < REGION {
        let lane = match kind {
            Kind::Integers => random.pick(&[Lane::I8, Lane::I16, Lane::I32, Lane::I64]),
            Kind::Single => Lane::F32,
            Kind::Double => Lane::F64,
        };
        bytes.extend(&random.bits(lane).to_le_bytes()[..lane.bytes()]);
    }
    bytes.truncate(REGION);
    bytes
}

/// The number of kinds of steps with random weights. Accesses to single integers have the weight 1.
const STEPS: usize = 14;

struct Generator {
    random: Random,
    builder: Builder,
    layout: [Kind; REGIONS],
    /// The lane types of 95% of the choices.
    lanes: Vec<Lane>,
    /// The values that dominate the current position.
    values: Vec<Value>,
    depth: usize,
    recent_places: Vec<i32>,
    /// The percentage of recent operands. A low percentage results in long live ranges.
    recent: usize,
    /// The percentage of new operands: constants or loads.
    new: usize,
    /// The percentage of constants among the new values.
    constants: usize,
    /// The number of steps that the generator may still append.
    remaining: usize,
    /// The weight of each kind of steps.
    weights: [usize; STEPS],
}

impl Generator {
    fn run(&mut self) {
        while self.remaining > 0 {
            self.step();
        }
        self.finish();
    }

    /// Appends at most `count` steps.
    fn steps(&mut self, count: usize) {
        for _ in 0..count.min(self.remaining) {
            self.step();
        }
    }

    fn step(&mut self) {
        self.remaining = self.remaining.saturating_sub(1);
        let total: usize = self.weights.iter().sum();
        let mut choice = self.random.below(total + 1);
        let mut kind = 0;
        while kind < STEPS && choice >= self.weights[kind] {
            choice -= self.weights[kind];
            kind += 1;
        }
        let value = match kind {
            0 => self.int_step(),
            1 | 2 => self.arithmetic(),
            3 => self.compare(),
            4 => self.select(),
            5 => self.convert(),
            6 => self.shuffle(),
            7 => self.load(),
            8 => return self.store(),
            9 => return self.gather_or_scatter(),
            10 => self.mask_step(),
            11 => self.call(),
            12 => return self.loops(),
            13 => return self.branches(),
            _ => self.int_memory(),
        };
        self.values.push(value);
    }

    fn lane(&mut self) -> Lane {
        if self.random.chance(95) {
            self.random.pick(&self.lanes)
        } else {
            self.random.pick(&[Lane::I8, Lane::I16, Lane::I32, Lane::I64, Lane::F32, Lane::F64])
        }
    }

    fn ty(&mut self) -> Type {
        match self.random.below(10) {
            0 | 1 => Type::Int,
            2 => Type::Mask,
            _ => Type::Vector(self.lane()),
        }
    }

    fn value(&mut self, ty: Type) -> Value {
        let known: Vec<Value> =
            self.values.iter().copied().filter(|&value| self.builder.ty(value) == ty).collect();
        if known.is_empty() || self.random.chance(self.new) {
            return self.fresh(ty);
        }
        let first = if self.random.chance(self.recent) { known.len().saturating_sub(4) } else { 0 };
        known[first + self.random.below(known.len() - first)]
    }

    fn fresh(&mut self, ty: Type) -> Value {
        match ty {
            Type::Int if self.random.chance(self.constants) => {
                let bits = self.random.bits(Lane::I64);
                self.builder.int(bits as i64)
            }
            Type::Int => self.load_int(),
            Type::Mask => match self.random.below(4) {
                0 => {
                    let holds = self.random.chance(50);
                    self.builder.mask(holds)
                }
                1 => {
                    let x = self.load_int();
                    self.builder.mask_of_bits(x)
                }
                2 => {
                    let x = self.load_int();
                    let count = self.int_mod(x, 31);
                    self.builder.first_lanes(count)
                }
                _ => {
                    let lane = self.lane();
                    let (x, y) = (self.load_vector(lane), self.load_vector(lane));
                    self.builder.compare(Compare::Lt, x, y)
                }
            },
            Type::Vector(lane) if self.random.chance(self.constants) => {
                if lane.is_float() || self.random.chance(70) {
                    let bits = self.random.bits(lane);
                    self.builder.constant(lane, bits)
                } else {
                    self.builder.iota(lane)
                }
            }
            Type::Vector(lane) => self.load_vector(lane),
        }
    }

    fn int(&mut self) -> Value {
        self.value(Type::Int)
    }

    fn vector(&mut self, lane: Lane) -> Value {
        self.value(Type::Vector(lane))
    }

    fn mask(&mut self) -> Value {
        self.value(Type::Mask)
    }

    /// Returns the conjunction of an integer and a constant.
    fn int_mod(&mut self, x: Value, mask: i64) -> Value {
        let mask = self.builder.int(mask);
        self.builder.int_binary(IntBinary::And, x, mask)
    }

    fn add(&mut self, x: Value, y: i64) -> Value {
        let y = self.builder.int(y);
        self.builder.int_binary(IntBinary::Add, x, y)
    }

    fn call(&mut self) -> Value {
        let arguments: Vec<Value> = (0..self.random.below(5)).map(|_| self.int()).collect();
        if self.random.chance(30) {
            let start = self.region(Kind::Integers);
            let offset = self.within(start, DATA - 8, 1);
            let argument = self.builder.argument();
            let address = self.add(argument, offset.into());
            let x = self.int();
            return self.builder.call(callees::exchange(), &[address, x]);
        }
        self.builder.call(callees::mix(arguments.len()), &arguments)
    }

    fn some_values(&mut self) -> Vec<Value> {
        (0..self.random.below(6))
            .map(|_| {
                let ty = self.ty();
                self.value(ty)
            })
            .collect()
    }

    fn values_like(&mut self, like: &[Value]) -> Vec<Value> {
        like.iter().map(|&value| self.value(self.builder.ty(value))).collect()
    }

    fn loops(&mut self) {
        if self.depth >= 2 {
            return;
        }
        let carried = self.some_values();
        let start = self.random.below(5) as i64;
        let start = self.builder.int(start);
        let end = if self.random.chance(50) {
            let end = self.random.below(9) as i64;
            self.builder.int(end)
        } else {
            let x = self.load_int();
            self.int_mod(x, 7)
        };
        if self.random.chance(50) {
            let step = 1 + self.random.below(3) as i64;
            self.counted_loop([start, end], step, &carried);
        } else {
            self.loop_with_exit(end, &carried);
        }
    }

    fn counted_loop(&mut self, range: [Value; 2], step: i64, carried: &[Value]) {
        let known = self.values.len();
        self.depth += 1;
        let count = 1 + self.random.below(20);
        let repeated = self.builder.begin_loop(range, carried);
        self.values.push(repeated.index);
        self.values.extend(&repeated.values);
        self.steps(count);
        let next = self.values_like(&repeated.values);
        let (index, last) = self.builder.end_loop(repeated, step, &next);
        self.depth -= 1;
        self.values.truncate(known);
        self.values.push(index);
        self.values.extend(last);
    }

    /// Appends a loop of at most 8 iterations that two branches leave.
    fn loop_with_exit(&mut self, end: Value, carried: &[Value]) {
        let known = self.values.len();
        self.depth += 1;
        let (header, latch, after) = (self.builder.block(), self.builder.block(), self.builder.block());
        let types: Vec<Type> = carried.iter().map(|&value| self.builder.ty(value)).collect();
        let index = self.builder.parameter(header, Type::Int);
        let values: Vec<Value> = types.iter().map(|&ty| self.builder.parameter(header, ty)).collect();
        let last: Vec<Value> = types.iter().map(|&ty| self.builder.parameter(after, ty)).collect();
        let zero = self.builder.int(0);
        let first: Vec<Value> = std::iter::once(zero).chain(carried.iter().copied()).collect();
        self.builder.jump(header, &first);
        self.builder.switch_to(header);
        self.values.push(index);
        self.values.extend(&values);
        let count = self.random.below(10);
        self.steps(count);
        let leaves = self.int_compare();
        let results = self.values_like(&values);
        self.builder.branch(leaves, (after, &results), (latch, &[]));
        self.builder.switch_to(latch);
        let count = self.random.below(10);
        self.steps(count);
        let next = self.add(index, 1);
        let again = self.builder.int_compare(IntCompare::LtSigned, next, end);
        let arguments: Vec<Value> = std::iter::once(next).chain(self.values_like(&values)).collect();
        let results = self.values_like(&values);
        self.builder.branch(again, (header, &arguments), (after, &results));
        self.builder.switch_to(after);
        self.depth -= 1;
        self.values.truncate(known);
        self.values.extend(last);
    }

    fn branches(&mut self) {
        if self.depth >= 3 {
            return;
        }
        let known = self.values.len();
        let condition = if self.random.chance(60) { self.int_compare() } else { self.int() };
        let passed = self.some_values();
        let join = self.builder.block();
        let types: Vec<Type> = passed.iter().map(|&value| self.builder.ty(value)).collect();
        let results: Vec<Value> = types.iter().map(|&ty| self.builder.parameter(join, ty)).collect();
        if self.random.chance(15) {
            // Both jumps go to the same block, with different arguments.
            let others = self.values_like(&passed);
            self.builder.branch(condition, (join, &passed), (join, &others));
        } else {
            self.depth += 1;
            let (then, other) = (self.builder.block(), self.builder.block());
            if self.random.chance(40) {
                self.builder.branch(condition, (then, &[]), (join, &passed));
            } else {
                self.builder.branch(condition, (then, &[]), (other, &[]));
            }
            for block in [then, other] {
                self.builder.switch_to(block);
                let count = self.random.below(10);
                self.steps(count);
                if block == other && self.random.chance(5) {
                    let value = self.int();
                    self.builder.ret(value);
                } else {
                    let arguments = self.values_like(&passed);
                    self.builder.jump(join, &arguments);
                }
                self.values.truncate(known);
            }
            self.depth -= 1;
        }
        self.builder.switch_to(join);
        self.values.truncate(known);
        self.values.extend(results);
    }

    /// Ends the function. Stores its last vectors, and returns a hash of its last integers and
    /// masks.
    fn finish(&mut self) {
        let argument = self.builder.argument();
        let most = self.random.pick(&[5, 40, 100]);
        let first = self.values.len().saturating_sub(most);
        let mut used = [0; REGIONS];
        let mut result = self.builder.int(0);
        let factor = self.builder.int(0x9e37_79b9);
        for value in self.values.split_off(first) {
            let int = match self.builder.ty(value) {
                Type::Int => value,
                Type::Mask => self.builder.mask_bits(value),
                Type::Vector(lane) => {
                    let (start, _) = self.region_of(lane);
                    let (used, bytes) = (&mut used[start / REGION], self.vector_bytes(lane));
                    if *used + bytes <= REGION - DATA {
                        let offset = (start + DATA + *used) as i32;
                        *used += bytes;
                        self.builder.store(Place { base: argument, index: None, offset }, value, None, false);
                    }
                    continue;
                }
            };
            result = self.builder.int_binary(IntBinary::Mul, result, factor);
            result = self.builder.int_binary(IntBinary::Xor, result, int);
        }
        self.builder.ret(result);
    }
}
