//! Random kernels that every device must agree on: legal, in bounds, free of races, and with results that do not depend on
//! how sums are ordered or contracted.
//!
//! A kernel is built with the builder, whose type rules refuse what is no kernel; what is refused is left out. `fact` knows
//! enough of each value to go on from there: an access is in bounds by the ranges of its offsets, a floating-point sum is
//! exact while its terms are small integers. One file a family: `address` makes pointers and accesses, `compute` tiles,
//! `control` loops, branches and calls, `outside` what is text of a target or seen from outside.

mod address;
mod compute;
mod control;
mod fact;
mod outside;

use std::sync::Arc;

use tilewright_base::entity::{PrimaryMap, SecondaryMap};
use tilewright_ir::{
    Block, Builder, Dtype, Element, Function, IrBuilder, Literal, Module, Op, Parameter, Shape, Type, Value,
};

use crate::random::Random;
use fact::{Fact, Memory, Range};

/// The bytes of each input, and of what one program may write of each output.
const BYTES: usize = 1 << 14;

/// The most elements of a tile.
const MOST_ELEMENTS: u32 = 1 << 10;

/// A kernel and what to launch it with.
#[derive(Debug)]
pub struct Kernel {
    /// The kernel, and the functions that it calls.
    pub module: Module,
    /// How many programs run.
    pub programs: u32,
    /// One for each parameter.
    pub arguments: Vec<Argument>,
    /// Whether devices agree on every bit. One kernel of eight has functions that are approximations, on which they need
    /// not; the passes leave its results alone nonetheless.
    pub is_exact: bool,
}

/// What a parameter is bound to.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A pointer to this memory, so many bytes behind a multiple of 16.
    Memory {
        /// What is there before the launch.
        bytes: Vec<u8>,
        /// How far the first of them is from a multiple of 16.
        skew: usize,
        /// Whether the kernel may write it.
        is_output: bool,
    },
    /// Addresses of the first byte of the memory of parameter 0, in each 8 bytes.
    Addresses,
    /// The bits of a number.
    Number(u64, Dtype),
}

struct Generator {
    random: Random,
    builder: IrBuilder,
    functions: PrimaryMap<tilewright_ir::FuncId, Function>,
    facts: SecondaryMap<Value, Option<Fact>>,
    /// The values in scope.
    pool: Vec<Value>,
    /// The pointers that addresses begin with.
    bases: Vec<Value>,
    arguments: Vec<Argument>,
    programs: u32,
    /// How many regions are around what is built.
    depth: u32,
    /// Whether all functions are exact.
    is_exact: bool,
}

const RIGHT: &str = "the generator follows the type rules";

/// The numbers that arguments and constants of integer types are.
const NUMBERS: [i128; 18] = [
    0,
    1,
    2,
    3,
    5,
    7,
    16,
    64,
    -1,
    -4,
    -17,
    1000,
    (1 << 31) - 1,
    -(1 << 31),
    (1 << 32) - 16,
    (1 << 33) + 3,
    -(1 << 40),
    (1 << 62) + 8,
];

/// The kernel with this seed.
pub fn kernel(seed: u64) -> Kernel {
    let mut random = Random(seed);
    let programs = random.pick(&[1, 1, 2, 3]);
    let mut functions = PrimaryMap::new();
    let entry = functions.push(Function::new("k"));
    let mut generator = Generator {
        random,
        builder: IrBuilder::new(Function::new("k")),
        functions,
        facts: SecondaryMap::new(),
        pool: Vec::new(),
        bases: Vec::new(),
        arguments: Vec::new(),
        programs,
        depth: 0,
        is_exact: seed % 8 != 7,
    };
    generator.parameters();
    generator.load();
    generator.statements(24);
    generator.results();
    generator.builder.return_values([]).expect("a kernel returns nothing");
    let Generator { builder, mut functions, arguments, is_exact, .. } = generator;
    functions[entry] = builder.function;
    let module = Module::new(functions, entry, Arc::default());
    Kernel { module, programs, arguments, is_exact }
}

impl Generator {
    fn ty(&self, value: Value) -> Type {
        self.builder.function.ty(value).clone()
    }

    fn fact(&self, value: Value) -> Fact {
        self.facts[value].unwrap_or_else(|| Fact::unknown(self.builder.function.ty(value)))
    }

    fn range(&self, value: Value) -> Option<Range> {
        self.fact(value).range
    }

    /// The result of a pure op without regions, if the type rules allow it.
    #[expect(clippy::needless_pass_by_value, reason = "ops are made for the call")]
    fn pure(&mut self, op: Op, operands: &[Value]) -> Option<Value> {
        let result = self.builder.emit_one(op.clone(), operands.into()).ok()?;
        let types: Vec<(Type, Fact)> =
            operands.iter().map(|&value| (self.ty(value), self.fact(value))).collect();
        let known: Vec<(&Type, Fact)> = types.iter().map(|(ty, fact)| (ty, *fact)).collect();
        self.facts[result] = Some(fact::of_result(&op, self.builder.function.ty(result), &known));
        Some(result)
    }

    /// The same, of an op whose operands are right by construction.
    fn sure(&mut self, op: Op, operands: &[Value]) -> Value {
        self.pure(op, operands).expect(RIGHT)
    }

    fn constant(&mut self, dtype: Dtype, number: i128) -> Value {
        let value = if dtype.is_int() {
            Literal::int(dtype, number)
        } else {
            Literal::float(dtype, number as f64).unwrap_or(Literal { dtype, bits: 0 })
        };
        self.sure(Op::Constant { value }, &[])
    }

    fn splat(&mut self, scalar: Value, shape: &Shape) -> Value {
        if shape.is_empty() { scalar } else { self.sure(Op::Splat { shape: shape.clone() }, &[scalar]) }
    }

    /// The parameters: inputs, outputs, numbers.
    fn parameters(&mut self) {
        let first = self.random.pick(Dtype::ALL);
        self.input(first, 0);
        for _ in 0..3 {
            let dtype = self.random.pick(Dtype::ALL);
            let skew = if self.random.chance(2) { 0 } else { self.random.below(16) * dtype.bytes() % 16 };
            self.input(dtype, skew);
        }
        let table = self.parameter(Type::pointer(Dtype::I64), 16, Argument::Addresses);
        let mut outputs = Vec::new();
        for dtype in [Dtype::I32, self.random.pick(Dtype::ALL), self.random.pick(Dtype::ALL)] {
            let bytes = vec![0; BYTES * self.programs as usize];
            let memory = Argument::Memory { bytes, skew: 0, is_output: true };
            let divisibility = self.random.pick(&[1, 16]);
            outputs.push(self.parameter(Type::pointer(dtype), divisibility, memory));
        }
        for dtype in [Dtype::I32, Dtype::I32, Dtype::I64, Dtype::U32, Dtype::I8, Dtype::U64] {
            self.number(dtype);
        }
        self.own_slices(outputs);
        self.address_of_first(table);
    }

    fn parameter(&mut self, ty: Type, divisibility: u32, argument: Argument) -> Value {
        let name: Arc<str> = format!("p{}", self.arguments.len()).into();
        let function = &mut self.builder.function;
        function.parameters.push(Parameter { name: name.clone(), divisibility });
        self.arguments.push(argument);
        function.add_parameter(function.entry, ty, Some(name))
    }

    /// Memory of small numbers, which every format holds, and integers of all sizes.
    fn input(&mut self, dtype: Dtype, skew: usize) {
        let bytes = (0..BYTES / dtype.bytes()).flat_map(|_| {
            let any = self.random.bits() as i64;
            let small = any % if dtype.is_float() { 8 } else { 100 };
            let number = if self.random.chance(3) { any } else { small };
            let bits = match dtype {
                Dtype::I1 => any as u64 & 1,
                _ if dtype.is_int() => Literal::int(dtype, number.into()).bits,
                _ => small_float(dtype, small),
            };
            bits.to_le_bytes().into_iter().take(dtype.bytes())
        });
        let memory = Argument::Memory { bytes: bytes.collect(), skew, is_output: false };
        let divisibility = if skew == 0 { self.random.pick(&[16, 16, 1]) } else { 1 };
        let pointer = self.parameter(Type::pointer(dtype), divisibility, memory);
        self.facts[pointer] = Some(Fact::exactly(0, Memory::Input));
        self.bases.push(pointer);
    }

    fn number(&mut self, dtype: Dtype) {
        let number = Literal::int(dtype, self.random.pick(&NUMBERS));
        let exact = number.as_int().expect("it is an integer");
        let divisibility = if exact % 16 == 0 { 16 } else { 1 };
        let value = self.parameter(Type::scalar(dtype), divisibility, Argument::Number(number.bits, dtype));
        self.facts[value] = Some(Fact::exactly(exact, Memory::Any));
        self.pool.push(value);
    }

    fn statements(&mut self, most: usize) {
        for _ in 0..=self.random.below(most) {
            match self.random.below(26) {
                0..=4 => self.load(),
                5 | 6 => self.store(),
                7 => self.pointer(),
                8..=10 => self.shape(),
                11 => self.cast(),
                12 if self.random.chance(2) => self.exchange(),
                12 => self.reduce(),
                13 => self.dot(),
                14..=16 => self.control(),
                17 => self.promise(),
                18 => self.atomic(),
                19 => self.assembly(),
                20 => self.outside(),
                21 => self.map(),
                _ => self.elementwise(),
            }
        }
    }

    /// A value in scope, mostly one of the last.
    fn any(&mut self) -> Value {
        let count = self.pool.len();
        let index = self.random.below(count).max(self.random.below(count));
        self.pool[index]
    }

    /// A value in scope that something holds for.
    fn find(&mut self, holds: impl Fn(&Self, Value) -> bool) -> Option<Value> {
        let found: Vec<Value> = self.pool.iter().copied().filter(|&value| holds(self, value)).collect();
        (!found.is_empty()).then(|| self.random.pick(&found))
    }

    /// A value of a type: one in scope, or one that is made of one.
    fn value_of(&mut self, ty: &Type) -> Value {
        let Element::Value(dtype) = ty.element else {
            let same = self.find(|this, value| this.builder.function.ty(value) == ty);
            return same.unwrap_or_else(|| self.fresh_pointer(ty));
        };
        if !self.random.chance(4)
            && let Some(same) = self.find(|this, value| this.builder.function.ty(value) == ty)
        {
            return same;
        }
        let elements = ty.shape.elements();
        let like = self.find(|this, value| {
            let found = this.builder.function.ty(value);
            found.shape.elements() == elements
                && found.is_scalar() == ty.is_scalar()
                && found.dtype().is_some()
        });
        let Some(mut value) = like.filter(|_| !self.random.chance(8)) else {
            let number = self.random.pick(&NUMBERS);
            let scalar = self.constant(dtype, if dtype.is_float() { number % 8 } else { number });
            return self.splat(scalar, &ty.shape);
        };
        if self.ty(value).shape != ty.shape {
            value = self.sure(Op::Reshape { shape: ty.shape.clone() }, &[value]);
        }
        self.cast_to(value, dtype)
    }

    /// A random shape of a number of axes.
    fn shape_of_rank(&mut self, rank: usize) -> Shape {
        let mut left = MOST_ELEMENTS >> self.random.below(8);
        // One shape of three is of any extents.
        let is_odd = self.random.chance(3);
        (0..rank)
            .map(|axis| {
                let most =
                    if axis + 1 == rank && !self.random.chance(4) { left } else { 1 << self.random.below(7) };
                let most = most.min(left);
                let extent =
                    if is_odd { most - self.random.below(most as usize / 2 + 1) as u32 } else { most };
                left /= extent;
                extent
            })
            .collect()
    }

    /// A shape that some tile has, or a new one.
    fn any_shape(&mut self) -> Shape {
        let like = self.find(|this, value| !this.builder.function.ty(value).is_scalar());
        if let Some(value) = like.filter(|_| !self.random.chance(3)) {
            return self.ty(value).shape;
        }
        let rank = self.random.pick(&[1, 1, 2, 2, 2, 3, 4]);
        self.shape_of_rank(rank)
    }

    /// A region with parameters of these types, about which these facts are known. Its values are not in scope afterwards.
    fn region(
        &mut self,
        parameters: &[(Type, Fact)],
        body: impl FnOnce(&mut Self, &[Value]) -> Vec<Value>,
    ) -> Block {
        let scope = self.pool.len();
        let (block, outer) = self.builder.begin_region(parameters.iter().map(|(ty, _)| ty.clone()));
        let values = self.builder.function.blocks[block].parameters.clone();
        for (&value, (_, fact)) in values.iter().zip(parameters) {
            self.facts[value] = Some(*fact);
        }
        self.pool.extend(&values);
        self.depth += 1;
        let results = body(self, &values);
        self.depth -= 1;
        self.builder.yield_values(results).expect(RIGHT);
        self.builder.switch_to(outer);
        self.pool.truncate(scope);
        block
    }
}

/// The bits of an integer below 8 in a floating-point format.
pub(crate) fn small_float(dtype: Dtype, number: i64) -> u64 {
    Literal::float(dtype, number as f64).map_or_else(|| small_fp8(dtype, number), |literal| literal.bits)
}

/// The bits of an integer below 8 in an 8-bit format: its exponent's bias, its bits of mantissa.
fn small_fp8(dtype: Dtype, number: i64) -> u64 {
    let (bias, mantissa) = match dtype {
        Dtype::F8E4NV => (7, 3),
        Dtype::F8E4B8 => (8, 3),
        Dtype::F8E5 => (15, 2),
        Dtype::F8E5B16 => (16, 2),
        // tidy: wildcard because the last format ends below 2: what it holds is any bits.
        _ => return number as u64 & 0xff,
    };
    let size = number.unsigned_abs();
    if size == 0 {
        return 0;
    }
    let exponent = size.ilog2();
    let fraction = (size << mantissa >> exponent) & ((1 << mantissa) - 1);
    u64::from(number < 0) << 7 | u64::from(exponent + bias) << mantissa | fraction
}
