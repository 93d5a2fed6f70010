//! Generates ops with external text or effects: inline assembly, printing, machine queries.

use smallvec::SmallVec;
use tilewright_ir::{
    Dtype, ElementwiseFn as F, GridDependency, IntList, MachineQuantity, Op, Shape, Type, Value,
};

use super::{Generator, VALID};

/// Inline assembly. A row contains the text, the constraints, the bytes per element, the numbers of
/// arguments and results, and the elements per call. A result depends only on the elements at its
/// own position, because the grouping of elements is unspecified.
const FORMS: [(&str, &str, usize, [usize; 2], u32); 11] = [
    ("not.b32 $0, $1;", "=r,r", 1, [1, 1], 4),
    ("xor.b32 $0, $1, $2;", "=r,r,r", 1, [2, 1], 4),
    ("not.b16 $0, $1;", "=h,h", 2, [1, 1], 1),
    ("{ and.b32 $0, $2, $3; or.b32 $1, $2, $3; }", "=r,=r,r,r", 2, [2, 2], 2),
    ("xor.b32 $0, $1, 0x00ff00ff;", "=r,r", 2, [1, 1], 2),
    ("add.s32 $0, $1, $2;", "=r,r,r", 4, [2, 1], 1),
    ("{ add.s32 $0, $2, $3; sub.s32 $1, $2, $3; }", "=r,=&r,r,r", 4, [2, 2], 1),
    ("{ .reg .pred p; setp.lt.s32 p, $1, $2; selp.b32 $0, $1, $2, p; }", "=r,r,r", 4, [2, 1], 1),
    ("{ xor.b32 $0, $2, 5; xor.b32 $1, $3, 5; }", "=r,=r,r,r", 4, [1, 1], 2),
    ("add.s64 $0, $1, $2;", "=l,l,l", 8, [2, 1], 1),
    ("not.b64 $0, $1;", "=l,l", 8, [1, 1], 1),
];

/// Returns the integer types of a size in bytes.
fn integers(bytes: usize) -> [Dtype; 2] {
    match bytes {
        1 => [Dtype::I8, Dtype::U8],
        2 => [Dtype::I16, Dtype::U16],
        4 => [Dtype::I32, Dtype::U32],
        // tidy: wildcard because integers have no other sizes.
        _ => [Dtype::I64, Dtype::U64],
    }
}

impl Generator {
    pub(super) fn assembly(&mut self) {
        let (text, constraints, bytes, [arguments, results], pack) = self.random.pick(&FORMS);
        let shape = self.any_shape();
        let shape = if self.random.chance(6) { Shape::scalar() } else { shape };
        let operands: SmallVec<[Value; 4]> = (0..arguments)
            .map(|_| {
                let dtype = self.random.pick(&integers(bytes));
                self.value_of(&Type::scalar(dtype).with_shape(shape.clone()))
            })
            .collect();
        let dtypes = (0..results).map(|_| self.random.pick(&integers(bytes))).collect();
        let (text, constraints) = (text.to_owned(), constraints.to_owned());
        let dtypes = tilewright_ir::DtypeList(dtypes);
        let op = if self.random.chance(3) {
            Op::VolatileAsm { text, constraints, dtypes, pack }
        } else {
            Op::InlineAsm { text, constraints, dtypes, pack }
        };
        let results = self.emit(op, operands);
        self.pool.extend(results);
    }

    /// Generates a print, a machine query with a predictable property, or a grid dependency.
    pub(super) fn outside(&mut self) {
        match self.random.below(4) {
            0 => {
                let quantity =
                    self.random.pick(&[MachineQuantity::GlobalTimer, MachineQuantity::Multiprocessor]);
                let value = self.emit(Op::Machine { quantity }, SmallVec::new())[0];
                let dtype = self.ty(value).dtype().expect("it is a number");
                let zero = self.constant(dtype, 0);
                let holds = self.elementwise_of(F::Ge, &[value, zero]);
                self.pool.push(holds);
            }
            1 => {
                let action = self.random.pick(&[GridDependency::Wait, GridDependency::LaunchDependents]);
                self.emit(Op::Dependency { action }, SmallVec::new());
            }
            2 => {
                let op = Op::Print { prefix: " here %d".into(), digits: 0, extents: IntList::new() };
                self.emit(op, SmallVec::new());
            }
            _ => self.print(),
        }
    }

    fn print(&mut self) {
        let is_short = |ty: &Type| ty.shape.elements() <= 40 && ty.dtype().is_some_and(Dtype::is_int);
        let Some(value) = self.find(|this, value| is_short(&this.ty(value))) else { return };
        let dtype = self.random.pick(&[Dtype::I32, Dtype::U32, Dtype::I64, Dtype::U64]);
        let value = self.cast_to(value, dtype);
        let shape = self.ty(value).shape;
        let mut extents = IntList::new();
        if self.random.chance(4) {
            extents = shape.iter().map(|&extent| 1 + self.random.below(extent as usize) as i64).collect();
        }
        let digits = if self.random.chance(3) { dtype.bits() / 4 } else { 0 };
        self.emit(Op::Print { prefix: " value: ".into(), digits, extents }, [value].into_iter().collect());
    }

    fn emit(&mut self, op: Op, operands: SmallVec<[Value; 4]>) -> SmallVec<[Value; 1]> {
        tilewright_ir::Builder::emit(&mut self.builder, op, operands, SmallVec::new())
            .expect(VALID)
            .into_iter()
            .collect()
    }
}
