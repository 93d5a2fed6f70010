//! Generates random structured programs. The builder of tile IR builds them, so they are valid.

use smallvec::SmallVec;
use tilewright_ir::{
    Builder, CacheModifier, Domain, Dtype, Element, ElementwiseFn, EvictionPolicy, FuncId, Function,
    InputPrecision, IntList, IrBuilder, Literal, LoopOptions, Module, Op, Parameter, Rounding, Shape,
    Signature, Type, TypeList, Value,
};

use super::Random;

/// The ops and types of random programs.
#[derive(Clone, Copy)]
pub struct Style {
    pub dtypes: &'static [Dtype],
    pub functions: &'static [ElementwiseFn],
    /// True if programs load, store, compute dots, and have `while` loops.
    pub has_effects: bool,
    pub statements: usize,
}

use ElementwiseFn as F;

pub const EVERYTHING: Style = Style {
    dtypes: &[
        Dtype::I1,
        Dtype::I8,
        Dtype::I16,
        Dtype::I32,
        Dtype::I32,
        Dtype::I64,
        Dtype::U8,
        Dtype::U32,
        Dtype::U64,
        Dtype::F16,
        Dtype::BF16,
        Dtype::F32,
        Dtype::F32,
        Dtype::F64,
    ],
    functions: &[
        F::Add,
        F::Add,
        F::Sub,
        F::Mul,
        F::Div,
        F::DivRn,
        F::IntDiv,
        F::IntRem,
        F::FloatRem,
        F::Neg,
        F::Abs,
        F::Min,
        F::Max,
        F::MinNan,
        F::MaxNan,
        F::And,
        F::Or,
        F::Xor,
        F::Not,
        F::Shl,
        F::Shr,
        F::Eq,
        F::Ne,
        F::Lt,
        F::Le,
        F::Gt,
        F::Ge,
        F::Select,
        F::Fma,
        F::MulHigh,
        F::Exp,
        F::Sqrt,
        F::SqrtRn,
        F::Floor,
        F::Ceil,
    ],
    has_effects: true,
    statements: 30,
};

/// The ops of index arithmetic.
pub const INDICES: Style = Style {
    dtypes: &[Dtype::I32, Dtype::I32, Dtype::I32, Dtype::I64, Dtype::I8, Dtype::U8, Dtype::U32, Dtype::I1],
    functions: &[
        F::Add,
        F::Add,
        F::Add,
        F::Sub,
        F::Mul,
        F::Mul,
        F::IntDiv,
        F::IntRem,
        F::IntRem,
        F::Neg,
        F::Abs,
        F::Min,
        F::Max,
        F::And,
        F::And,
        F::Or,
        F::Xor,
        F::Not,
        F::Shl,
        F::Shr,
        F::Eq,
        F::Lt,
        F::Le,
        F::Gt,
        F::Ge,
        F::Select,
        F::Select,
    ],
    has_effects: false,
    statements: 25,
};

/// The parameters of every program: three pointers to these types, then [`INTEGERS`].
pub const POINTERS: [Dtype; 3] = [Dtype::I32, Dtype::F32, Dtype::I8];
pub const INTEGERS: [Dtype; 4] = [Dtype::I32, Dtype::I32, Dtype::I64, Dtype::I8];
/// The number of elements of each pointer's memory. Offsets are below it in programs with effects.
pub const ELEMENTS: u64 = 256;

const EXTENTS: [u32; 5] = [1, 2, 4, 8, 6];

pub fn program(seed: u64, style: Style) -> Module {
    let mut random = Random(seed);
    let mut function = Function::new("kernel");
    let entry = function.entry;
    let mut pool = Vec::new();
    let pointers = POINTERS.iter().map(|&dtype| (Type::pointer(dtype), 16));
    let integers = INTEGERS.iter().map(|&dtype| Type::scalar(dtype));
    let mut parameters: Vec<(Type, u32)> = pointers.collect();
    parameters.extend(integers.map(|ty| (ty, [1, 1, 4, 16][random.below(4)])));
    for (index, (ty, divisibility)) in parameters.into_iter().enumerate() {
        function.parameters.push(Parameter { name: format!("p{index}").into(), divisibility });
        pool.push(function.add_parameter(entry, ty, Some(format!("p{index}").into())));
    }
    let mut functions = tilewright_base::entity::PrimaryMap::new();
    let mut generator =
        Generator { builder: IrBuilder::new(function), pool, random: &mut random, style, depth: 0 };
    generator.statements(style.statements);
    if style.has_effects {
        for _ in 0..4 {
            generator.store();
        }
    }
    generator.builder.return_values([]).expect("a function may return nothing");
    let kernel = functions.push(generator.builder.function);
    functions.push(helper(&mut random, style));
    Module::new(functions, kernel, std::sync::Arc::default())
}

/// Returns a function with two int32 parameters and an int32 result.
fn helper(random: &mut Random, style: Style) -> Function {
    let mut function = Function::new("helper");
    let entry = function.entry;
    let ty = Type::scalar(Dtype::I32);
    let pool: Vec<Value> = (0..2).map(|_| function.add_parameter(entry, ty.clone(), None)).collect();
    function.parameters = vec![Parameter { name: "x".into(), divisibility: 1 }; 2];
    let style = Style { dtypes: &[Dtype::I32], has_effects: false, ..style };
    let mut generator = Generator { builder: IrBuilder::new(function), pool, random, style, depth: 1 };
    generator.statements(6);
    let result = generator.value_of(&ty);
    generator.builder.return_values([result]).expect("a function may return a scalar");
    generator.builder.function
}

struct Generator<'a> {
    builder: IrBuilder,
    /// The values in scope.
    pool: Vec<Value>,
    random: &'a mut Random,
    style: Style,
    depth: u32,
}

const RIGHT: &str = "the generator follows the type rules";

impl Generator<'_> {
    fn statements(&mut self, count: usize) {
        for _ in 0..count {
            self.statement();
        }
    }

    fn ty(&self, value: Value) -> Type {
        self.builder.function.ty(value).clone()
    }

    fn statement(&mut self) {
        match self.random.below(24) {
            0 => drop(self.literal()),
            1 => {
                let axis = 0;
                let value = if self.random.chance(2) {
                    self.builder.program_id(axis)
                } else {
                    self.builder.num_programs(axis)
                };
                self.pool.push(value.expect(RIGHT));
            }
            2 => {
                let start = self.random.pick(&[0, 0, 0, 1, 4, 8, -8]);
                let extent = i64::from(self.random.pick(&EXTENTS));
                let value = self.builder.arange(start, start + extent).expect(RIGHT);
                self.pool.push(value);
            }
            3 | 4 => self.splat(),
            5 => self.shape(),
            6 => self.cast(),
            7 => self.pointer(),
            8 if self.style.has_effects => self.load(),
            9 if self.style.has_effects => self.store(),
            10 if self.depth < 3 => self.branch(),
            11 if self.depth < 3 => self.for_loop(),
            12 if self.depth < 3 && self.style.has_effects => self.while_loop(),
            13 => self.reduce(),
            14 if self.depth == 0 => self.call(),
            15 if self.style.has_effects => self.dot(),
            _ => self.elementwise(),
        }
    }

    fn pick(&mut self) -> Value {
        // Recent values are more likely.
        let count = self.pool.len();
        let recent = self.random.below(count.min(8));
        if self.random.chance(3) {
            self.pool[self.random.below(count)]
        } else {
            self.pool[count - 1 - recent]
        }
    }

    fn pick_where(&mut self, is: impl Fn(&Type) -> bool) -> Option<Value> {
        let candidates: Vec<Value> =
            self.pool.iter().copied().filter(|&value| is(self.builder.function.ty(value))).collect();
        if candidates.is_empty() { None } else { Some(self.random.pick(&candidates)) }
    }

    /// Returns a value of this type: one in scope, or a constant.
    fn value_of(&mut self, ty: &Type) -> Value {
        if !self.random.chance(4)
            && let Some(value) = self.pick_where(|found| found == ty)
        {
            return value;
        }
        let scalar = match ty.element {
            Element::Value(dtype) => self.literal_of(dtype),
            Element::Pointer(target) => {
                self.pick_where(|found| *found == Type::pointer(target)).expect("pointers are parameters")
            }
        };
        if ty.is_scalar() { scalar } else { self.builder.splat(scalar, ty.shape.clone()).expect(RIGHT) }
    }

    fn literal(&mut self) -> Value {
        let dtype = self.random.pick(self.style.dtypes);
        self.literal_of(dtype)
    }

    fn literal_of(&mut self, dtype: Dtype) -> Value {
        let special = [0, 1, -1, 2, 4, 16, 3, 7, 8, -4, i128::from(i64::MIN), i128::from(i64::MAX), 31, 64];
        let value = if dtype.is_int() {
            let picked = self.random.pick(&special);
            Literal::int(dtype, picked)
        } else {
            let special =
                [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 1e30, f64::INFINITY, f64::NAN, 0.1, 1e-40, 65519.9];
            Literal::float(dtype, self.random.pick(&special)).expect(RIGHT)
        };
        let value = self.builder.constant(value).expect(RIGHT);
        self.pool.push(value);
        value
    }

    fn splat(&mut self) {
        if let Some(scalar) = self.pick_where(Type::is_scalar) {
            let shape = self.shape_like();
            let value = self.builder.splat(scalar, shape).expect(RIGHT);
            self.pool.push(value);
        }
    }

    fn shape_like(&mut self) -> Shape {
        if let Some(tile) = self.pick_where(|ty| !ty.is_scalar())
            && !self.random.chance(4)
        {
            return self.ty(tile).shape;
        }
        let rank = 1 + self.random.below(3);
        (0..rank).map(|_| self.random.pick(&EXTENTS)).collect()
    }

    fn shape(&mut self) {
        let Some(tile) = self.pick_where(|ty| !ty.is_scalar()) else { return };
        let shape = self.ty(tile).shape;
        let value = match self.random.below(4) {
            0 if shape.len() < 4 => {
                let axis = self.random.below(shape.len() + 1) as u32;
                self.builder.expand_dims(tile, axis)
            }
            1 => {
                let extents =
                    shape.iter().map(|&extent| if extent == 1 { self.random.pick(&EXTENTS) } else { extent });
                let shape: Shape = extents.collect();
                if shape.elements() > 128 {
                    return;
                }
                self.builder.broadcast(tile, shape)
            }
            2 => {
                let elements = shape.elements() as u32;
                let split = self.random.pick(&[1, 2, 4]);
                let shape = if elements.is_multiple_of(split) && self.random.chance(2) {
                    Shape::from([elements / split, split])
                } else {
                    Shape::from([elements])
                };
                self.builder.reshape(tile, shape)
            }
            _ => {
                let mut axes: Vec<i64> = (0..shape.len() as i64).collect();
                for place in 0..axes.len() {
                    let other = self.random.below(axes.len());
                    axes.swap(place, other);
                }
                self.builder.transpose(tile, IntList::from_vec(axes))
            }
        };
        self.pool.push(value.expect(RIGHT));
    }

    fn cast(&mut self) {
        let dtype = self.random.pick(self.style.dtypes);
        if let Some(value) = self.pick_where(|ty| ty.dtype().is_some()) {
            let value = self.builder.cast(value, Element::Value(dtype), Rounding::NearestEven).expect(RIGHT);
            self.pool.push(value);
        }
    }

    fn elementwise(&mut self) {
        let function = self.random.pick(self.style.functions);
        let x = self.pick();
        let ty = self.ty(x);
        let Some(dtype) = ty.dtype().filter(|_| function.info().domain.contains(ty.element)) else { return };
        if function.info().domain == Domain::Any && function == F::Select {
            let condition = self.value_of(&ty.with_dtype(Dtype::I1));
            let y = self.value_of(&ty);
            let value = self.builder.ternary(function, condition, x, y).expect(RIGHT);
            return self.pool.push(value);
        }
        let mut y = self.value_of(&ty);
        if matches!(function, F::IntDiv | F::IntRem) && self.random.chance(2) {
            // The passes and the analysis handle division by a constant best.
            let constant = Literal::int(dtype, self.random.pick(&[0, 1, 2, 4, 8, -1]));
            let constant = self.builder.constant(constant).expect(RIGHT);
            y = if ty.is_scalar() {
                constant
            } else {
                self.builder.splat(constant, ty.shape.clone()).expect(RIGHT)
            };
        }
        let result = match (function.info().operands.len(), function.info().signature) {
            (1, _) => self.builder.unary(function, x),
            (2, Signature::Same | Signature::Compare) => self.builder.binary(function, x, y),
            _ => {
                let z = self.value_of(&ty);
                self.builder.ternary(function, x, y, z)
            }
        };
        self.pool.push(result.expect(RIGHT));
    }

    /// Adds a pointer with an offset, inside of its memory in programs with effects.
    fn pointer(&mut self) {
        let Some(offset) = self.pick_where(|ty| matches!(ty.dtype(), Some(Dtype::I32 | Dtype::I64))) else {
            return;
        };
        let ty = self.ty(offset);
        let target = self.random.pick(&POINTERS);
        if self.pick_where(|found| *found == Type::pointer(target)).is_none() {
            return;
        }
        let mut pointer = self.value_of(&ty.with_element(Element::Pointer(target)));
        if self.style.has_effects {
            let start = self
                .pool
                .iter()
                .copied()
                .find(|&value| *self.builder.function.ty(value) == Type::pointer(target));
            pointer = start.expect("pointers are parameters");
            if !ty.is_scalar() {
                pointer = self.builder.splat(pointer, ty.shape.clone()).expect(RIGHT);
            }
            for _ in 0..=self.random.below(2) {
                let constant =
                    self.builder.constant(Literal::int(ty.dtype().expect(RIGHT), 63)).expect(RIGHT);
                let mask = if ty.is_scalar() {
                    constant
                } else {
                    self.builder.splat(constant, ty.shape.clone()).expect(RIGHT)
                };
                let offset = self.value_of(&ty);
                let offset = self.builder.binary(F::And, offset, mask).expect(RIGHT);
                pointer = self.builder.ptr_add(pointer, offset).expect(RIGHT);
            }
        } else {
            pointer = self.builder.ptr_add(pointer, offset).expect(RIGHT);
        }
        self.pool.push(pointer);
    }

    fn load(&mut self) {
        let Some(pointer) = self.pick_where(|ty| ty.element.pointee().is_some()) else { return };
        let ty = self.ty(pointer);
        let target = ty.element.pointee().expect("it is a pointer");
        let mask = self.random.chance(2).then(|| self.value_of(&ty.with_dtype(Dtype::I1)));
        let other = self.random.chance(2).then(|| self.value_of(&ty.with_dtype(target)));
        let how = (CacheModifier::Default, EvictionPolicy::Default, self.random.chance(8));
        let value = self.builder.load(pointer, mask, other, how).expect(RIGHT);
        self.pool.push(value);
    }

    fn store(&mut self) {
        let Some(pointer) = self.pick_where(|ty| ty.element.pointee().is_some()) else { return };
        let ty = self.ty(pointer);
        let target = ty.element.pointee().expect("it is a pointer");
        let value = self.value_of(&ty.with_dtype(target));
        let mask = self.random.chance(2).then(|| self.value_of(&ty.with_dtype(Dtype::I1)));
        let how = (CacheModifier::Default, EvictionPolicy::Default);
        self.builder.store(pointer, value, mask, how).expect(RIGHT);
    }

    /// Runs `body` in a new region and yields its values. The values of the region are then out of
    /// scope.
    fn region(
        &mut self,
        parameters: Vec<Type>,
        body: impl FnOnce(&mut Self, &[Value]) -> Vec<Value>,
    ) -> tilewright_ir::Block {
        let scope = self.pool.len();
        let (block, outer) = self.builder.begin_region(parameters);
        let parameters = self.builder.function.blocks[block].parameters.clone();
        self.pool.extend(&parameters);
        self.depth += 1;
        let values = body(self, &parameters);
        self.depth -= 1;
        self.builder.yield_values(values).expect(RIGHT);
        self.builder.switch_to(outer);
        self.pool.truncate(scope);
        block
    }

    fn branch(&mut self) {
        let condition = self.value_of(&Type::scalar(Dtype::I1));
        let values: Vec<Value> = (0..self.random.below(3)).map(|_| self.pick()).collect();
        let types: Vec<Type> = values.into_iter().map(|value| self.ty(value)).collect();
        let mut arm = || {
            let count = self.random.below(5);
            self.region(Vec::new(), |this, _| {
                this.statements(count);
                types.iter().map(|ty| this.value_of(ty)).collect()
            })
        };
        let regions = [arm(), arm()];
        let results =
            self.builder.emit(Op::If {}, SmallVec::from_slice(&[condition]), regions.into()).expect(RIGHT);
        self.pool.extend(results);
    }

    /// Returns the carried values of a loop: some values in scope.
    fn carried(&mut self) -> (Vec<Value>, Vec<Type>) {
        let values: Vec<Value> = (0..self.random.below(4)).map(|_| self.pick()).collect();
        let types = values.iter().map(|&value| self.ty(value)).collect();
        (values, types)
    }

    fn for_loop(&mut self) {
        let dtype = self.random.pick(&[Dtype::I32, Dtype::I32, Dtype::I64]);
        let (carried, types) = self.carried();
        let mut bound = |choices: &[i128]| {
            let value = self.random.pick(choices);
            self.builder.constant(Literal::int(dtype, value)).expect(RIGHT)
        };
        let lower = bound(&[0, 0, 4, -3]);
        let mut upper = bound(&[0, 1, 3, 8, 5]);
        let step = bound(&[1, 1, 1, 2, 4, -1]);
        if self.random.chance(2)
            && let Some(limit) = self.pick_where(|ty| *ty == Type::scalar(dtype))
        {
            // A bound that is unknown at compile time.
            let eight = self.builder.constant(Literal::int(dtype, 7)).expect(RIGHT);
            upper = self.builder.binary(F::And, limit, eight).expect(RIGHT);
        }
        let parameters = std::iter::once(Type::scalar(dtype)).chain(types.iter().cloned()).collect();
        let count = 1 + self.random.below(6);
        let body = self.region(parameters, |this, parameters| {
            this.statements(count);
            let next = |(index, ty): (usize, &Type)| {
                if this.random.chance(4) { parameters[index + 1] } else { this.value_of(ty) }
            };
            types.iter().enumerate().map(next).collect()
        });
        let options = LoopOptions { disable_licm: self.random.chance(6), ..LoopOptions::default() };
        let operands = [lower, upper, step].into_iter().chain(carried).collect();
        let results =
            self.builder.emit(Op::For { options }, operands, [body].into_iter().collect()).expect(RIGHT);
        self.pool.extend(results);
    }

    /// Adds a loop that counts down to zero.
    fn while_loop(&mut self) {
        let ty = Type::scalar(Dtype::I32);
        let (mut carried, mut types) = self.carried();
        let count = self.random.pick(&[0, 1, 3]);
        let count = self.builder.constant(Literal::int(Dtype::I32, count)).expect(RIGHT);
        carried.insert(0, count);
        types.insert(0, ty);
        let (before, after) = (self.random.below(3), 1 + self.random.below(4));
        let condition = self.region(types.clone(), |this, parameters| {
            this.statements(before);
            let zero = this.builder.constant(Literal::int(Dtype::I32, 0)).expect(RIGHT);
            vec![this.builder.binary(F::Gt, parameters[0], zero).expect(RIGHT)]
        });
        let body = self.region(types.clone(), |this, parameters| {
            this.statements(after);
            let one = this.builder.constant(Literal::int(Dtype::I32, 1)).expect(RIGHT);
            let mut next = vec![this.builder.binary(F::Sub, parameters[0], one).expect(RIGHT)];
            next.extend(types[1..].iter().map(|ty| this.value_of(ty)));
            next
        });
        let regions = [condition, body].into_iter().collect();
        let results = self.builder.emit(Op::While {}, carried.into_iter().collect(), regions).expect(RIGHT);
        self.pool.extend(results);
    }

    fn reduce(&mut self) {
        let Some(tile) = self.pick_where(|ty| !ty.is_scalar() && ty.dtype().is_some()) else { return };
        let ty = self.ty(tile);
        let axis = self.random.below(ty.rank());
        let scalar = ty.with_shape(Shape::scalar());
        let function = self.random.pick(&[F::Add, F::Max, F::Min, F::Mul]);
        let twice = self.random.chance(2);
        let make = |this: &mut Self| {
            let combine = this.region(vec![scalar.clone(); 2], |this, parameters| {
                vec![this.builder.binary(function, parameters[0], parameters[1]).expect(RIGHT)]
            });
            let tiles = SmallVec::from_slice(&[tile]);
            let results = this.builder.reduce(tiles, axis as u32, combine).expect(RIGHT);
            this.pool.extend(results);
        };
        make(self);
        if twice {
            make(self);
        }
    }

    fn call(&mut self) {
        let ty = Type::scalar(Dtype::I32);
        let arguments = [self.value_of(&ty), self.value_of(&ty)];
        let op = Op::Call { callee: FuncId::from_u32(1), results: TypeList(vec![ty]) };
        let results = self.builder.emit(op, SmallVec::from_slice(&arguments), SmallVec::new()).expect(RIGHT);
        self.pool.extend(results);
    }

    /// Adds a dot of int8 tiles and, at random, an addition to its result.
    fn dot(&mut self) {
        let a = self.value_of(&Type::tile(Dtype::I8, [2, 4]));
        let b = self.value_of(&Type::tile(Dtype::I8, [4, 8]));
        let ty = Type::tile(Dtype::I32, [2, 8]);
        let acc = self.value_of(&ty);
        let value = self.builder.dot(a, b, acc, InputPrecision::Ieee, 0).expect(RIGHT);
        self.pool.push(value);
        if self.random.chance(2) {
            let other = self.value_of(&ty);
            let value = self.builder.binary(F::Add, other, value).expect(RIGHT);
            self.pool.push(value);
        }
    }
}
