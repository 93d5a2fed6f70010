//! Replaces calls of dots with scales by `dot_scaled`, if the target has an instruction for them.
//!
//! ```text
//! %d = call %a, %a_scale, %b, %b_scale  =>  %d = dot_scaled %a, %b, %zeros, %a_scale, %b_scale
//! ```
//! The library writes such a dot in the kernel language: threads apply the scales, and the dot
//! multiplies bf16. The optimizer inlines the calls that stay.
//!
//! An instruction multiplies e2m1 by e2m1. Threads convert e2m1 beside another format to e4m3, which
//! represents all its numbers.
//!
//! Tensor memory holds the accumulators and the scales of all selected dots at once, so a dot that
//! needs more columns than are left is not selected.

use smallvec::smallvec;
use tilewright_ir::{
    Block, Cursor, Dtype, Element, ElementwiseFn, FuncId, Function, Inst, Literal, Op, Rounding,
    ScaledFormat, ScaledFormats, Shape, Type, Value,
};

use crate::assign::tcgen05_selection::{scaled_columns, scaled_instruction};
use crate::preparation::Preparation;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::tensor_memory::TENSOR_MEMORY_COLUMNS;

/// The sign and the magnitude of a number of e2m1, and the distance to their bits in fp16.
const E2M1_IN_FP16: [(u64, u64); 2] = [(8, 12), (7, 9)];
/// The factor that corrects the bias of the exponent of a number of e2m1 in fp16.
const E2M1_FACTOR: f64 = 16384.0;

/// Selects the dots of a kernel, and lets the optimizer inline the other calls. Returns whether the
/// kernel has any.
pub fn select(kernel: &mut Preparation<'_>) -> bool {
    let Preparation { module, target, num_warps, launcher, .. } = kernel;
    let entry = module.entry;
    let mut found = Vec::new();
    find(&module.functions[entry], module.functions[entry].entry, &mut found);
    let mut free_columns = TENSOR_MEMORY_COLUMNS;
    for (block, inst, callee) in found {
        let Some(ScaledFormats(formats)) = module.functions[callee].scaled_dot else { continue };
        let function = &mut module.functions[entry];
        let instruction = |formats: [ScaledFormat; 2], [a, a_scale, b, b_scale, result]: &[Type; 5]| {
            scaled_instruction(formats, [a, b, result], [a_scale, b_scale], *target, *num_warps)
        };
        let plan = match types(function, inst) {
            _ if launcher.cluster > 1 => Err("the program may be divided between blocks"),
            Err(reason) => Err(reason),
            Ok(tiles) => {
                let converted = formats.map(after_conversion);
                let convert = || instruction(converted, &converted_types(formats, &tiles));
                let found = instruction(formats, &tiles).map(|dot| (dot, formats));
                found.or_else(|reason| convert().map(|dot| (dot, converted)).map_err(|_| reason))
            }
        };
        let plan = plan.and_then(|(dot, formats)| {
            let left = free_columns.checked_sub(scaled_columns(&dot));
            free_columns = left.ok_or("tensor memory has too few columns for its accumulator")?;
            Ok((dot.kind, formats))
        });
        remarks::about(
            "scaled_dots",
            function,
            inst,
            || "dot with scales".into(),
            || match plan {
                Ok((kind, _)) => {
                    RemarkReason::done(format!("tcgen05.mma, {kind:?}"), "the instruction applies the scales")
                }
                Err(reason) => RemarkReason::missed("threads apply the scales", reason),
            },
        );
        if let Ok((_, selected)) = plan {
            replace(function, block, inst, (formats, selected));
        }
    }
    let mut has_calls = false;
    for function in module.functions.values_mut() {
        has_calls |= function.scaled_dot.take().is_some();
    }
    has_calls
}

/// Finds the calls of a block, in the order of the program.
fn find(function: &Function, block: Block, found: &mut Vec<(Block, Inst, FuncId)>) {
    for &inst in &function.blocks[block].insts {
        let data = &function.insts[inst];
        if let Op::Call { callee, .. } = data.op {
            found.push((block, inst, callee));
        }
        for &region in &data.regions {
            find(function, region, found);
        }
    }
}

/// Returns the types of the operands of a call and of its result.
fn types(function: &Function, call: Inst) -> Result<[Type; 5], &'static str> {
    let data = &function.insts[call];
    let (&[a, a_scale, b, b_scale], &[result]) = (&data.operands[..], &data.results[..]) else {
        return Err("the call has other operands than a dot with scales");
    };
    Ok([a, a_scale, b, b_scale, result].map(|value| function.ty(value).clone()))
}

/// Returns the format of an operand that threads convert for an operand of another format.
fn after_conversion(format: ScaledFormat) -> ScaledFormat {
    if format == ScaledFormat::E2m1 { ScaledFormat::E4m3 } else { format }
}

/// Returns the types of the operands and of the result after the conversion of e2m1.
fn converted_types(formats: [ScaledFormat; 2], types: &[Type; 5]) -> [Type; 5] {
    let mut types = types.clone();
    for (index, (place, k_axis)) in [(0, 1), (2, 0)].into_iter().enumerate() {
        if formats[index] == ScaledFormat::E2m1 && types[place].rank() == 2 {
            types[place] = converted_type(&types[place], k_axis);
        }
    }
    types
}

/// Returns the type of a tile of e2m1 after its conversion to e4m3.
fn converted_type(packed: &Type, k_axis: usize) -> Type {
    let mut shape = packed.shape.clone();
    shape.0[k_axis] = shape[k_axis].saturating_mul(ScaledFormat::E2m1.in_byte());
    packed.with_shape(shape).with_dtype(Dtype::F8E4NV)
}

/// Replaces a call by a dot with an accumulator of zeros. The result stays the same value.
fn replace(
    function: &mut Function,
    block: Block,
    call: Inst,
    (formats, selected): ([ScaledFormat; 2], [ScaledFormat; 2]),
) {
    let data = &function.insts[call];
    let ty = function.ty(data.results[0]).clone();
    let [mut a, a_scale, mut b, b_scale] = [0, 1, 2, 3].map(|index: usize| data.operands[index]);
    let mut cursor = Cursor::before(function, block, call);
    for (operand, k_axis, index) in [(&mut a, 1, 0), (&mut b, 0, 1)] {
        if formats[index] != selected[index] {
            *operand = e2m1_to_e4m3(&mut cursor, *operand, k_axis);
        }
    }
    let zero = cursor.constant(Literal { dtype: Dtype::F32, bits: 0 });
    let zeros = cursor.value(Op::Splat { shape: ty.shape.clone() }, &[zero], ty);
    let [a_format, b_format] = selected;
    let data = &mut function.insts[call];
    data.op = Op::DotScaled { a_format, b_format };
    data.operands = smallvec![a, b, zeros, a_scale, b_scale];
}

/// Converts a tile of e2m1, which is packed along K, to e4m3.
fn e2m1_to_e4m3(cursor: &mut Cursor<'_, tilewright_ir::Tile>, packed: Value, k_axis: usize) -> Value {
    let ty = cursor.function.ty(packed).clone();
    let result = converted_type(&ty, k_axis);
    // The two numbers of a byte are along an axis of their own, after K.
    let mut pairs: Shape = ty.shape.clone();
    pairs.0.insert(k_axis + 1, ScaledFormat::E2m1.in_byte());
    let word = |shape: &Shape| Type::new(Element::Value(Dtype::U16), shape.clone());
    let splat = |cursor: &mut Cursor<'_, tilewright_ir::Tile>, value: Literal, shape: &Shape| {
        let scalar = cursor.constant(value);
        let ty = Type::new(Element::Value(value.dtype), shape.clone());
        cursor.value(Op::Splat { shape: shape.clone() }, &[scalar], ty)
    };
    let u16_of = |bits: u64| Literal { dtype: Dtype::U16, bits };
    let cast = |dtype: Dtype| Op::Cast { element: Element::Value(dtype), rounding: Rounding::default() };

    let wide = cursor.value(cast(Dtype::U16), &[packed], word(&ty.shape));
    let mut ones = pairs.clone();
    ones.0[k_axis + 1] = 1;
    let axis = k_axis as u32 + 1;
    let wide = cursor.value(Op::ExpandDims { axis }, &[wide], word(&ones));
    let wide = cursor.value(Op::Broadcast { shape: pairs.clone() }, &[wide], word(&pairs));

    let line = Shape::from([ScaledFormat::E2m1.in_byte()]);
    let index = Op::Arange { start: 0, end: i64::from(ScaledFormat::E2m1.in_byte()) };
    let index = cursor.value(index, &[], Type::new(Element::Value(Dtype::I32), line.clone()));
    let index = cursor.value(cast(Dtype::U16), &[index], word(&line));
    let four = splat(cursor, u16_of(4), &line);
    let shifts = cursor.elementwise(ElementwiseFn::Mul, &[index, four], word(&line));
    let mut along: Shape = pairs.clone();
    for (axis, extent) in along.0.iter_mut().enumerate() {
        *extent = if axis == k_axis + 1 { *extent } else { 1 };
    }
    let shifts = cursor.value(Op::Reshape { shape: along.clone() }, &[shifts], word(&along));
    let shifts = cursor.value(Op::Broadcast { shape: pairs.clone() }, &[shifts], word(&pairs));

    let numbers = cursor.elementwise(ElementwiseFn::Shr, &[wide, shifts], word(&pairs));
    let mut place = |(mask, shift): (u64, u64)| {
        let [mask, shift] = [mask, shift].map(|bits| splat(cursor, u16_of(bits), &pairs));
        let bits = cursor.elementwise(ElementwiseFn::And, &[numbers, mask], word(&pairs));
        cursor.elementwise(ElementwiseFn::Shl, &[bits, shift], word(&pairs))
    };
    let parts = E2M1_IN_FP16.map(&mut place);
    let bits = cursor.elementwise(ElementwiseFn::Or, &parts, word(&pairs));
    let half = word(&pairs).with_dtype(Dtype::F16);
    let numbers = cursor.value(Op::Bitcast { element: Element::Value(Dtype::F16) }, &[bits], half.clone());
    let factor = Literal::float(Dtype::F16, E2M1_FACTOR).expect("fp16 has literals");
    let factor = splat(cursor, factor, &pairs);
    let numbers = cursor.elementwise(ElementwiseFn::Mul, &[numbers, factor], half.clone());
    let narrow = cursor.value(cast(Dtype::F8E4NV), &[numbers], half.with_dtype(Dtype::F8E4NV));
    cursor.value(Op::Reshape { shape: result.shape.clone() }, &[narrow], result)
}
