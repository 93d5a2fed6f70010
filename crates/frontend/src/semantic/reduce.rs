//! Defines the rules of `reduce` and `dot`, and code that scans share.

use smallvec::SmallVec;
use tilewright_base::Code;
use tilewright_ir::{Builder, Dtype, InputPrecision, Shape, Type};

use super::arguments::{Arguments, count, flatten};
use super::convert::{broadcast_to, literal, tensor};
use super::shape::{expand, reshape_to};
use super::{Caller, Op, RegionOf, Semantic, SemanticError, ValueOf};
use crate::value::{Constant, Operand};

/// The tiles that a combine function reduces or scans.
pub(super) struct Combined<C: Caller + ?Sized> {
    pub tiles: SmallVec<[ValueOf<C>; 4]>,
    pub types: Vec<Type>,
    /// True if tiles and results are tuples.
    pub is_tuple: bool,
}

impl<C: Caller + ?Sized> Combined<C> {
    /// Reads the first argument of `reduce` or `associative_scan`.
    pub fn new(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Self> {
        let operand = a.at(0)?.clone();
        let is_tuple =
            !matches!(operand, Operand::Tensor(_) | Operand::Constant(Constant::Int(_) | Constant::Float(_)));
        let mut tiles = SmallVec::new();
        let mut types = Vec::new();
        for item in flatten(&operand) {
            let value = tensor(c, &item, 0)?;
            types.push(c.builder().type_of(&value));
            tiles.push(value);
        }
        let name = a.spec.name;
        let Some(first) = types.first() else {
            return Err(SemanticError::new(Code::TypeMismatch, format!("`{name}` takes at least one tile"))
                .argument(0, "this is empty"));
        };
        if let Some(other) = types.iter().find(|ty| ty.shape != first.shape) {
            let message =
                format!("the tiles of `{name}` have different shapes {} and {}", first.shape, other.shape);
            return Err(SemanticError::new(Code::IncompatibleShapes, message)
                .argument(0, format!("these are {types:?}"))
                .hint("give them one shape with `tl.broadcast_to`"));
        }
        Ok(Self { tiles, types, is_tuple })
    }

    pub fn elements(&self) -> Vec<Type> {
        self.types.iter().map(|ty| ty.with_shape(Shape::scalar())).collect()
    }

    pub fn region(&self, c: &mut C, a: &Arguments<'_, C>) -> Semantic<RegionOf<C>> {
        let elements = self.elements();
        let types: Vec<Type> = elements.iter().chain(&elements).cloned().collect();
        c.region(a.at(2)?, &types)
    }

    /// Returns the results as a tuple, or a single result as a value unless `is_tuple` is set.
    pub fn results(is_tuple: bool, mut results: Vec<Op<C>>) -> Op<C> {
        match results.pop() {
            Some(single) if results.is_empty() && !is_tuple => single,
            last => {
                results.extend(last);
                Operand::Tuple(results.into())
            }
        }
    }
}

/// `reduce(input, axis, combine_fn, keep_dims)`.
pub(super) fn reduce<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let mut combined = Combined::new(c, a)?;
    let first = combined.types[0].clone();
    let keep_dims = a.flag(c, 3)?;
    let axis = if a.is_none(1) { None } else { Some(a.axis(c, 1, first.rank())?) };
    let flat = Shape::from([first.shape.elements() as u32]);
    if axis.is_none() {
        for (tile, ty) in combined.tiles.iter_mut().zip(&combined.types) {
            *tile = reshape_to(c, tile.clone(), ty, flat.clone())?;
        }
    }
    let combine = combined.region(c, a)?;
    let elements = combined.elements();
    let reduced = c.builder().reduce(combined.tiles, axis.unwrap_or(0) as u32, combine);
    let reduced = reduced.map_err(|error| combine_error(&error.message, &elements, "reduction"))?;
    let mut results = Vec::with_capacity(reduced.len());
    for mut value in reduced {
        if keep_dims {
            if let Some(axis) = axis {
                value = expand(c, value, axis)?;
            } else {
                let ones = Shape(SmallVec::from_elem(1, first.rank()));
                value = broadcast_to(c, value, &ones)?;
            }
        }
        results.push(Operand::Tensor(value));
    }
    Ok(Combined::<C>::results(combined.is_tuple, results))
}

pub(super) fn combine_error(message: &str, elements: &[Type], what: &str) -> SemanticError {
    let expected: Vec<String> = elements.iter().map(ToString::to_string).collect();
    SemanticError::new(Code::TypeMismatch, "the combine function does not return what it is given")
        .argument(2, "this combines two elements into one of the same type")
        .note(message.to_string())
        .note(format!(
            "expected {} of type {}",
            count(elements.len(), "result", "results"),
            expected.join(", ")
        ))
        .hint(format!("convert in the function with `.to(…)`, or convert the input of the {what}"))
}

pub(super) const PRECISION: &[(&str, InputPrecision)] = &[
    ("tf32", InputPrecision::Tf32),
    ("tf32x3", InputPrecision::Tf32x3),
    ("ieee", InputPrecision::Ieee),
    ("bf16x3", InputPrecision::Bf16x3),
    ("bf16x6", InputPrecision::Bf16x6),
];

/// `dot(input, other, acc, input_precision, allow_tf32, max_num_imprecise_acc, out_dtype)`.
pub(super) fn dot<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (lhs, left) = a.typed(c, 0)?;
    let (rhs, right) = a.typed(c, 1)?;
    let shape = dot_shape(&left, &right)?;
    let operand = dot_operand(&left, &right)?;
    let acc_ty = match a.at(2)? {
        Operand::Constant(Constant::None) => None,
        _ => Some(a.typed(c, 2)?),
    };
    let asked = if a.is_none(6) { None } else { Some(a.dtype(c, 6)?) };
    let wanted = asked.or(acc_ty.as_ref().and_then(|(_, ty)| ty.dtype())).unwrap_or(Dtype::F32);
    let dtype = dot_result(a, operand, wanted, asked.is_some())?;
    let acc = if let Some((acc, ty)) = acc_ty {
        check_acc(acc, &ty, &Type::tile(dtype, shape.clone()))?
    } else {
        let zero = literal(c, &Constant::Int(0), dtype)?;
        broadcast_to(c, zero, &shape)?
    };
    let precision = precision(c, a)?;
    let imprecise = imprecise(c, a, &left)?;
    // The op has at most one batch axis.
    let [lhs, rhs, acc] = [
        one_batch_axis(c, lhs, &left.shape)?,
        one_batch_axis(c, rhs, &right.shape)?,
        one_batch_axis(c, acc, &shape)?,
    ];
    let dot = c.builder().dot(lhs, rhs, acc, precision, imprecise)?;
    let dot = if shape.len() > 3 { c.builder().reshape(dot, shape)? } else { dot };
    Ok(Operand::Tensor(dot))
}

/// Merges the batch axes of a stack of matrices into one batch axis.
fn one_batch_axis<C: Caller + ?Sized>(c: &mut C, tile: ValueOf<C>, shape: &Shape) -> Semantic<ValueOf<C>> {
    let parts = shape.split_last_chunk::<2>().filter(|(batch, _)| batch.len() > 1);
    let Some((batch, &[rows, columns])) = parts else { return Ok(tile) };
    let merged = Shape::from([batch.iter().product(), rows, columns]);
    Ok(c.builder().reshape(tile, merged)?)
}

fn precision<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<InputPrecision> {
    match (a.is_none(3), a.is_none(4)) {
        (true, true) => Ok(c.options().default_dot_precision),
        (false, true) => a.choice(c, 3, PRECISION),
        (true, false) => Ok(if a.flag(c, 4)? { InputPrecision::Tf32 } else { InputPrecision::Ieee }),
        (false, false) => {
            let message = "`dot` takes either `input_precision` or `allow_tf32`";
            Err(SemanticError::new(Code::InvalidValue, message)
                .argument(3, "this sets the precision")
                .argument(4, "this sets it, too")
                .hint("`allow_tf32=False` is `input_precision=\"ieee\"`"))
        }
    }
}

fn imprecise<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, left: &Type) -> Semantic<u32> {
    let depth = left.shape.last().copied().unwrap_or(1);
    let is_fp8 = left.dtype().is_some_and(Dtype::is_fp8);
    if a.is_none(5) {
        let default = c.options().default_imprecise_acc.filter(|count| is_fp8 && *count <= depth);
        return Ok(default.map_or(0, |count| count.max(1)));
    }
    let value = a.int(c, 5)?;
    match u32::try_from(value) {
        // An explicit 0 becomes 1 for fp8, because 0 in the IR requests nothing.
        Ok(count) if !is_fp8 || count <= depth => Ok(if is_fp8 { count.max(1) } else { count }),
        _ => {
            Err(SemanticError::new(Code::InvalidValue, format!("`max_num_imprecise_acc` cannot be {value}"))
                .argument(5, format!("expected a value from 0 to {depth}, the length of the sums")))
        }
    }
}

fn dot_error(message: impl Into<String>, left: &Type, right: &Type) -> SemanticError {
    SemanticError::new(Code::DotMismatch, message)
        .argument(0, format!("this is {left}"))
        .argument(1, format!("this is {right}"))
}

fn dot_shape(left: &Type, right: &Type) -> Semantic<Shape> {
    let rank = left.rank();
    if rank != right.rank() || rank < 2 {
        let error = dot_error("`dot` takes two matrices, or two stacks of matrices", left, right)
            .note(format!("found {rank} and {} axes, expected equal numbers, 2 or more", right.rank()));
        return Err(error.hint(
            "make a vector a matrix with `x[:, None]` or `x[None, :]`, or sum a product with `tl.sum(x * y)`",
        ));
    }
    let (m, k) = (left.shape[rank - 2], left.shape[rank - 1]);
    let (other_k, n) = (right.shape[rank - 2], right.shape[rank - 1]);
    if k != other_k {
        let error =
            dot_error(format!("`dot` cannot multiply {} by {}", left.shape, right.shape), left, right).note(
                format!(
                    "the left operand has {k} columns but the right has {other_k} rows; they must be equal"
                ),
            );
        return Err(if k == n {
            error.hint("transpose the right operand: `tl.dot(a, tl.trans(b))`")
        } else if m == other_k {
            error.hint("transpose the left operand: `tl.dot(tl.trans(a), b)`")
        } else {
            error
        });
    }
    let (batch, other_batch) = (&left.shape[..rank - 2], &right.shape[..rank - 2]);
    if batch != other_batch {
        return Err(dot_error("`dot` takes stacks with equal batch axes", left, right)
            .note(format!("found the batch axes {batch:?} and {other_batch:?}"))
            .hint("give both the same with `tl.broadcast_to`"));
    }
    Ok(batch.iter().copied().chain([m, n]).collect())
}

/// Returns the element type of the left operand. Fails if the types of the operands do not fit.
fn dot_operand(left: &Type, right: &Type) -> Semantic<Dtype> {
    let allowed = |dtype: &Dtype| {
        use Dtype as D;
        dtype.is_fp8() || matches!(dtype, D::I8 | D::U8 | D::F16 | D::BF16 | D::F32 | D::F64)
    };
    let (a, b) = (left.dtype().filter(allowed), right.dtype().filter(allowed));
    match (a, b) {
        (Some(a), Some(b)) if a == b || (a.is_fp8() && b.is_fp8()) || (a.is_int() && b.is_int()) => Ok(a),
        (Some(a), Some(b)) => {
            let narrow = if a.bits() <= b.bits() { a } else { b };
            let name = python_name(narrow);
            Err(dot_error("the operands of `dot` must have one type", left, right)
                .note(format!("found {a} and {b}"))
                .hint(format!("convert one of them, such as `.to(tl.{name})`")))
        }
        _ => Err(dot_error("`dot` does not take these types", left, right)
            .note("expected int8, uint8, fp8, fp16, bf16, fp32 or fp64")
            .hint("convert the operands, such as `.to(tl.float32)`")),
    }
}

fn python_name(dtype: Dtype) -> &'static str {
    super::constants::dtype_name(dtype)
}

/// Returns the element type of the result: `wanted`, fp16 or fp32, for fp8 and fp16 operands. It
/// has no effect for others.
fn dot_result<C: Caller + ?Sized>(
    a: &Arguments<'_, C>,
    operand: Dtype,
    wanted: Dtype,
    is_asked: bool,
) -> Semantic<Dtype> {
    match operand {
        dtype if dtype.is_int() => Ok(Dtype::I32),
        Dtype::F64 => Ok(Dtype::F64),
        Dtype::F32 | Dtype::BF16 => Ok(Dtype::F32),
        _ if matches!(wanted, Dtype::F16 | Dtype::F32) => Ok(wanted),
        _ => {
            let blamed = if is_asked { 6 } else { 2 };
            let message = format!("`{}` of `dot` cannot be {wanted}", a.name(blamed));
            Err(SemanticError::new(Code::DotMismatch, message)
                .argument(blamed, format!("this is {wanted}"))
                .note(format!("found {wanted}, expected fp32 or fp16 for operands of type {operand}"))
                .hint("accumulate in fp32, and convert the result with `.to(…)`"))
        }
    }
}

fn check_acc<V>(acc: V, found: &Type, expected: &Type) -> Semantic<V> {
    if found == expected {
        return Ok(acc);
    }
    let error = SemanticError::new(Code::DotMismatch, "the accumulator does not have the type of the result")
        .argument(2, format!("this is {found}"))
        .note(format!("found {found}, expected {expected}"));
    Err(if found.shape == expected.shape {
        error.hint(format!(
            "accumulate in {}: `tl.zeros(…, dtype=tl.{})`",
            expected.element,
            expected.dtype().map_or("float32", python_name)
        ))
    } else {
        error
    })
}
