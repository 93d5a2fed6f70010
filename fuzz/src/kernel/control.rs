//! Generates loops with carried values, branches, and function calls.

use smallvec::SmallVec;
use tilewright_base::entity::SecondaryMap;
use tilewright_ir::{
    Builder, Dtype, Element, ElementwiseFn as F, Function, IrBuilder, LoopOptions, Op, Parameter, Type,
    TypeList, Value,
};

use super::fact::{Fact, Range, limits};
use super::{Generator, VALID};

/// The maximum number of iterations of a loop.
const MAX_TRIPS: i128 = 4;

/// A loop-carried value.
struct Carried {
    initial: Value,
    ty: Type,
    /// The fact that is true in all iterations and after the loop.
    fact: Fact,
    /// The maximum change per iteration.
    budget: i128,
}

impl Generator {
    pub(super) fn control(&mut self) {
        if self.depth == 2 {
            return;
        }
        match self.random.below(9) {
            0..=3 => self.for_loop(),
            4 => self.while_loop(),
            5..=7 => self.branch(),
            _ => self.call(),
        }
    }

    fn carried(&mut self) -> Vec<Carried> {
        (0..self.random.below(4))
            .map(|_| {
                let initial = self.any();
                let (ty, mut fact) = (self.ty(initial), self.fact(initial));
                let budget = match ty.element {
                    Element::Pointer(pointee) => 64 * pointee.bytes() as i128,
                    Element::Value(_) => 32,
                };
                let drift = Range::new(-MAX_TRIPS * budget, MAX_TRIPS * budget);
                fact.range = fact
                    .range
                    .map(|range| range.plus(drift))
                    .filter(|range| range.is_within(limits(ty.element)));
                let unknown = Fact::unknown(&ty);
                fact = if fact.range.is_some() { Fact { spread: unknown.spread, ..fact } } else { unknown };
                Carried { initial, ty, fact, budget }
            })
            .collect()
    }

    /// Returns the value for the next iteration.
    fn next(&mut self, parameter: Value, carried: &Carried) -> Value {
        let Carried { initial, ty, fact, budget } = carried;
        let initial = self.fact(*initial).range;
        let drift = Range::new(-budget, *budget);
        let is_known = *fact != Fact::unknown(ty);
        let (candidate, allowed) = if self.random.chance(3) {
            (Some(self.value_of(ty)), initial)
        } else {
            (self.advanced(parameter, ty), fact.range.map(|range| range.plus(drift)))
        };
        let fits = |found: Fact| {
            let is_there = found.range.zip(allowed).is_some_and(|(found, allowed)| found.is_within(allowed));
            !is_known || is_there && found.memory == fact.memory
        };
        candidate.filter(|&value| fits(self.fact(value))).unwrap_or(parameter)
    }

    /// Changes a value by a small amount. The value may be a pointer, an offset or a sum.
    fn advanced(&mut self, value: Value, ty: &Type) -> Option<Value> {
        let dtype = match ty.element {
            Element::Pointer(_) => self.random.pick(&[Dtype::I32, Dtype::I32, Dtype::I64, Dtype::I8]),
            Element::Value(dtype) => dtype,
        };
        let is_matrix = ty.rank() == 2 && [Dtype::F32, Dtype::F64, Dtype::I32].contains(&dtype);
        if is_matrix && ty.dtype().is_some() && self.random.chance(2) {
            let from = match dtype {
                Dtype::I32 => self.random.pick(&[Dtype::I8, Dtype::U8]),
                Dtype::F64 => Dtype::F64,
                // tidy: wildcard because it is one of three.
                _ => self.random.pick(&[Dtype::F16, Dtype::BF16, Dtype::F32]),
            };
            let k = 16;
            let a = self.small(&Type::tile(from, [ty.shape[0], k]));
            let b = self.small(&Type::tile(from, [k, ty.shape[1]]));
            return self.dot_of([a, b, value]);
        }
        let number = self.random.below(64) as i128 - 24;
        let mut step = self.constant(dtype, number);
        step = self.splat(step, &ty.shape);
        if !ty.is_scalar() && self.random.chance(3) {
            step = self.small(&Type::tile(dtype, ty.shape.clone()));
        }
        match ty.element {
            Element::Pointer(_) => self.pure(Op::PtrAdd {}, &[value, step]),
            Element::Value(_) => self.pure(Op::Elementwise { function: F::Add }, &[value, step]),
        }
    }

    /// Returns the bounds and the step of a loop, and the range of its induction variable.
    fn bounds(&mut self) -> ([Value; 3], Range) {
        let dtype =
            self.random.pick(&[Dtype::I32, Dtype::I32, Dtype::I32, Dtype::I64, Dtype::U32, Dtype::I16]);
        let unknown = self.find(|this, value| *this.builder.function.ty(value) == Type::scalar(dtype));
        if let Some(unknown) = unknown.filter(|_| self.random.chance(2)) {
            let [zero, one, mask] = [0, 1, MAX_TRIPS - 1].map(|number| self.constant(dtype, number));
            let upper = self.elementwise_of(F::And, &[unknown, mask]);
            return ([zero, upper, one], Range::new(0, MAX_TRIPS - 2));
        }
        let all = limits(Element::Value(dtype));
        let trips = self.random.below(MAX_TRIPS as usize + 1) as i128;
        let step = self.random.pick(&[1, 1, 2, 7, if dtype.is_signed() { -1 } else { 3 }]);
        let lower = self.random.pick(&[0, 0, 3, all.high - 40, all.low + 40]);
        let upper = lower + trips * step;
        let last = lower + (trips - 1).max(0) * step;
        let values = [lower, upper, step].map(|number| self.constant(dtype, number));
        (values, Range::exactly(lower).hull(Range::exactly(last)))
    }

    fn for_loop(&mut self) {
        let carried = self.carried();
        let (bounds, numbers) = self.bounds();
        let ty = self.ty(bounds[0]);
        let counter = Fact { range: Some(numbers), ..Fact::unknown(&ty) };
        let parameters: Vec<(Type, Fact)> =
            std::iter::once((ty, counter)).chain(carried.iter().map(|c| (c.ty.clone(), c.fact))).collect();
        let body = self.region(&parameters, |this, values| {
            this.statements(5);
            values[1..].iter().zip(&carried).map(|(&value, carried)| this.next(value, carried)).collect()
        });
        let options = LoopOptions {
            num_stages: self.random.below(5) as u32,
            unroll_factor: self.random.below(4) as u32,
            flatten: self.random.chance(4),
            warp_specialize: self.random.chance(8),
            disallow_acc_multi_buffer: self.random.chance(8),
            disable_licm: self.random.chance(4),
        };
        let operands = bounds.into_iter().chain(carried.iter().map(|carried| carried.initial)).collect();
        self.finish(Op::For { options }, operands, &[body], carried.iter().map(|carried| carried.fact));
    }

    /// Generates a loop that counts down to zero.
    fn while_loop(&mut self) {
        let mut carried = self.carried();
        let ty = Type::scalar(Dtype::I32);
        let count = self.random.below(MAX_TRIPS as usize) as i128;
        let initial = self.constant(Dtype::I32, count);
        let fact = Fact { range: Some(Range::new(0, count)), ..Fact::unknown(&ty) };
        carried.insert(0, Carried { initial, ty, fact, budget: 0 });
        let parameters: Vec<(Type, Fact)> = carried.iter().map(|c| (c.ty.clone(), c.fact)).collect();
        let condition = self.region(&parameters, |this, values| {
            this.statements(2);
            let zero = this.constant(Dtype::I32, 0);
            vec![this.elementwise_of(F::Gt, &[values[0], zero])]
        });
        let body = self.region(&parameters, |this, values| {
            this.statements(4);
            let one = this.constant(Dtype::I32, 1);
            let mut next = vec![this.elementwise_of(F::Sub, &[values[0], one])];
            next.extend(
                values[1..].iter().zip(&carried[1..]).map(|(&value, carried)| this.next(value, carried)),
            );
            next
        });
        let operands = carried.iter().map(|carried| carried.initial).collect();
        self.finish(Op::While {}, operands, &[condition, body], carried.iter().map(|carried| carried.fact));
    }

    fn branch(&mut self) {
        let condition = self.value_of(&Type::scalar(Dtype::I1));
        let values: Vec<Value> = (0..self.random.below(3)).map(|_| self.any()).collect();
        let types: Vec<Type> = values.into_iter().map(|value| self.ty(value)).collect();
        let mut facts: Vec<Vec<Fact>> = Vec::new();
        let regions = [(); 2].map(|()| {
            self.region(&[], |this, _| {
                this.statements(4);
                let values: Vec<Value> = types.iter().map(|ty| this.value_of(ty)).collect();
                facts.push(values.iter().map(|&value| this.fact(value)).collect());
                values
            })
        });
        let facts: Vec<Fact> = facts[0].iter().zip(&facts[1]).map(|(x, y)| x.or(*y)).collect();
        self.finish(Op::If {}, SmallVec::from_slice(&[condition]), &regions, facts);
    }

    /// Generates a function and its only call. The arguments are base pointers and values in scope.
    fn call(&mut self) {
        let values: Vec<Value> = (0..2).map(|_| self.any()).collect();
        let arguments: SmallVec<[Value; 4]> = self.bases.iter().chain(&values).copied().collect();
        let facts: Vec<Fact> = arguments.iter().map(|&value| self.fact(value)).collect();
        let callee = self.functions.push(Function::new("callee"));
        let mut function = Function::new(format!("callee{}", callee.as_u32()));
        function.noinline = self.random.chance(2);
        let entry = function.entry;
        let mut parameters = Vec::new();
        for &argument in &arguments {
            function
                .parameters
                .push(Parameter { name: format!("x{}", parameters.len()).into(), divisibility: 1 });
            parameters.push(function.add_parameter(entry, self.ty(argument), None));
        }
        let builder = std::mem::replace(&mut self.builder, IrBuilder::new(function));
        let outer_facts = std::mem::replace(&mut self.facts, SecondaryMap::new());
        for (&parameter, fact) in parameters.iter().zip(facts) {
            self.facts[parameter] = Some(fact);
        }
        let bases = parameters[..self.bases.len()].to_vec();
        let outer_pool = std::mem::replace(&mut self.pool, parameters[bases.len()..].to_vec());
        let outer_bases = std::mem::replace(&mut self.bases, bases);
        self.depth += 1;
        self.statements(6);
        self.depth -= 1;
        let results: Vec<Value> = (0..2).map(|_| self.any()).collect();
        let facts: Vec<Fact> = results.iter().map(|&value| self.fact(value)).collect();
        let types: Vec<Type> = results.iter().map(|&value| self.ty(value)).collect();
        self.builder.return_values(results).expect(VALID);
        self.functions[callee] = std::mem::replace(&mut self.builder, builder).function;
        (self.facts, self.pool, self.bases) = (outer_facts, outer_pool, outer_bases);
        self.finish(Op::Call { callee, results: TypeList(types) }, arguments, &[], facts);
    }

    /// Emits an op, and records the facts of its results.
    fn finish(
        &mut self,
        op: Op,
        operands: SmallVec<[Value; 4]>,
        regions: &[tilewright_ir::Block],
        facts: impl IntoIterator<Item = Fact>,
    ) {
        let results = self.builder.emit(op, operands, regions.into()).expect(VALID);
        for (&result, fact) in results.iter().zip(facts) {
            self.facts[result] = Some(fact);
        }
        self.pool.extend(results);
    }
}
