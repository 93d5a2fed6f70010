//! Generates random kernels with the same results on every device. The kernels are legal, in bounds
//! and race-free. Their results do not depend on the order and contraction of sums.
//!
//! The IR builder builds the kernels. Its type rules reject invalid ops, and the generator then
//! skips the op. The modules are:
//!
//! - `fact` computes facts about each value. With these facts, later ops keep accesses in bounds
//!   and floating-point sums exact.
//! - `address` generates pointers and accesses.
//! - `compute` generates ops on tiles.
//! - `control` generates loops, branches and calls.
//! - `outside` generates inline assembly and ops with external effects.

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

/// The size in bytes of each input, and of a program's slice of each output.
const BYTES: usize = 1 << 14;

/// The maximum number of elements of a tile.
const MAX_ELEMENTS: u32 = 1 << 10;

/// A kernel and its launch arguments.
#[derive(Debug)]
pub struct Kernel {
    /// The kernel, and the functions that it calls.
    pub module: Module,
    /// The number of programs.
    pub programs: u32,
    /// The arguments, one for each parameter.
    pub arguments: Vec<Argument>,
    /// True if devices agree on every bit. One kernel in eight uses approximate functions, for
    /// which devices may differ. Even then, the passes must not change the results on the CPU.
    pub is_exact: bool,
}

/// The argument of a parameter.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A pointer to memory.
    Memory {
        /// The initial content.
        bytes: Vec<u8>,
        /// The distance in bytes of the first byte from the preceding multiple of 16.
        skew: usize,
        /// True if the kernel may write to the memory.
        is_output: bool,
    },
    /// A pointer to copies of the address of parameter 0's memory, 8 bytes each.
    Addresses,
    /// The bits of a number and its type.
    Number(u64, Dtype),
}

struct Generator {
    random: Random,
    builder: IrBuilder,
    functions: PrimaryMap<tilewright_ir::FuncId, Function>,
    facts: SecondaryMap<Value, Option<Fact>>,
    /// The values in scope.
    pool: Vec<Value>,
    /// The base pointers from which the generator computes addresses.
    bases: Vec<Value>,
    arguments: Vec<Argument>,
    programs: u32,
    /// The number of enclosing regions.
    depth: u32,
    /// True if only exact functions may be used.
    is_exact: bool,
}

const VALID: &str = "the generator follows the type rules";

/// The numbers for integer arguments and constants.
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

/// Returns the kernel with this seed.
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

    /// Emits a pure op without regions. Returns `None` if the type rules reject the op.
    #[expect(clippy::needless_pass_by_value, reason = "ops are made for the call")]
    fn pure(&mut self, op: Op, operands: &[Value]) -> Option<Value> {
        let result = self.builder.emit_one(op.clone(), operands.into()).ok()?;
        let types: Vec<(Type, Fact)> =
            operands.iter().map(|&value| (self.ty(value), self.fact(value))).collect();
        let known: Vec<(&Type, Fact)> = types.iter().map(|(ty, fact)| (ty, *fact)).collect();
        self.facts[result] = Some(fact::of_result(&op, self.builder.function.ty(result), &known));
        Some(result)
    }

    /// Emits a pure op whose operands are valid by construction.
    fn sure(&mut self, op: Op, operands: &[Value]) -> Value {
        self.pure(op, operands).expect(VALID)
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

    /// Adds the parameters: inputs, outputs and numbers.
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

    /// Adds an input. Floats are small integers that every format represents. Integers are mostly
    /// small, but may have any size.
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
                12 if self.random.chance(2) => self.lane_op(),
                12 => self.reduce(),
                13 => self.dot(),
                14..=16 => self.control(),
                17 => self.hint(),
                18 => self.atomic(),
                19 => self.assembly(),
                20 => self.outside(),
                21 => self.map(),
                _ => self.elementwise(),
            }
        }
    }

    /// Returns a value in scope. Recent values are more likely.
    fn any(&mut self) -> Value {
        let count = self.pool.len();
        let index = self.random.below(count).max(self.random.below(count));
        self.pool[index]
    }

    /// Returns a value in scope that satisfies a predicate.
    fn find(&mut self, holds: impl Fn(&Self, Value) -> bool) -> Option<Value> {
        let found: Vec<Value> = self.pool.iter().copied().filter(|&value| holds(self, value)).collect();
        (!found.is_empty()).then(|| self.random.pick(&found))
    }

    /// Returns a value of a type. The value is in scope, derived from a value in scope, or a
    /// constant.
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

    /// Returns a random shape with `rank` axes.
    fn shape_of_rank(&mut self, rank: usize) -> Shape {
        let mut left = MAX_ELEMENTS >> self.random.below(8);
        // One shape in three has extents that are not powers of two.
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

    /// Returns the shape of a tile in scope, or a new shape.
    fn any_shape(&mut self) -> Shape {
        let like = self.find(|this, value| !this.builder.function.ty(value).is_scalar());
        if let Some(value) = like.filter(|_| !self.random.chance(3)) {
            return self.ty(value).shape;
        }
        let rank = self.random.pick(&[1, 1, 2, 2, 2, 3, 4]);
        self.shape_of_rank(rank)
    }

    /// Generates a region with parameters of these types and facts. Values of the region are not in
    /// scope after the region.
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
        self.builder.yield_values(results).expect(VALID);
        self.builder.switch_to(outer);
        self.pool.truncate(scope);
        block
    }
}

/// Returns the bits of an integer in a floating-point format. The magnitude of the integer is less
/// than 8.
pub(crate) fn small_float(dtype: Dtype, number: i64) -> u64 {
    Literal::float(dtype, number as f64).map_or_else(|| small_fp8(dtype, number), |literal| literal.bits)
}

/// Returns the bits of an integer in an 8-bit format. Computes them from the exponent bias and the
/// mantissa width of the format. The magnitude of the integer is less than 8.
fn small_fp8(dtype: Dtype, number: i64) -> u64 {
    let (bias, mantissa) = match dtype {
        Dtype::F8E4NV => (7, 3),
        Dtype::F8E4B8 => (8, 3),
        Dtype::F8E5 => (15, 2),
        Dtype::F8E5B16 => (16, 2),
        // tidy: wildcard because the last format ends below 2: its elements are arbitrary bits.
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
