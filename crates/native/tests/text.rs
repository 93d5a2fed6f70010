//! Tests the text of functions, and the errors of the verifier.

use expect_test::expect;
use tilewright_native::ir::{
    Binary, Compare, Conversion, Function, Inst, IntBinary, IntCompare, Lane, MaskBinary, Op, Target,
    Terminator, Unary,
};
use tilewright_native::{Builder, Place, verify};

fn sum() -> Function {
    let mut builder = Builder::new(16);
    let base = builder.argument();
    let end = builder.int_load(4, base, -8);
    let (start, zero) = (builder.int(0), builder.constant(Lane::F32, 0));
    let repeated = builder.begin_loop([start, end], &[zero]);
    let (index, total) = (repeated.index, repeated.values[0]);
    let left = builder.int_binary(IntBinary::Sub, end, index);
    let mask = builder.first_lanes(left);
    let x = builder.load(Lane::F32, Place { base, index: Some((index, 4)), offset: 64 }, Some(mask));
    let total = builder.binary(Binary::Add, total, x);
    builder.store(Place { base, index: Some((index, 1)), offset: 0 }, x, Some(mask), false);
    let (_, totals) = builder.end_loop(repeated, 16, &[total]);
    builder.store(Place::at(base), totals[0], None, true);
    builder.ret(start);
    builder.finish()
}

#[test]
fn functions_have_text() {
    expect![[r"
        function of 16 lanes
        block0(v0: int):
            v13 = int 16
            v3 = constant f32 0x00000000 (0.0)
            v2 = int 0
            v1 = load int32 [v0 - 8]
            v8 = lt_signed int v2, v1
            branch v8, block1(v2, v3), block2(v2, v3)
        block1(v4: int, v6: vector f32):
            v9 = sub int v1, v4
            v10 = first_lanes v9
            v11 = load f32 [v0 + v4 * 4 + 64] if v10
            v12 = add f32 v6, v11
            store f32 [v0 + v4], v11 if v10
            v14 = add int v4, v13
            v15 = lt_signed int v14, v1
            branch v15, block1(v14, v12), block2(v14, v12)
        block2(v5: int, v7: vector f32):
            store_streaming f32 [v0], v7
            return v2
    "]]
    .assert_eq(&sum().to_string());
}

#[test]
#[expect(clippy::many_single_char_names, reason = "operands without a meaning")]
fn operations_have_text() {
    let mut builder = Builder::new(8);
    let base = builder.argument();
    let place = Place { base, index: None, offset: -4 };
    let x = builder.int_extend(16, true, base);
    let y = builder.int_extend(8, false, x);
    let z = builder.int_compare(IntCompare::LtUnsigned, x, y);
    let z = builder.int_select(z, x, y);
    builder.int_store(2, base, 12, z);
    let v = builder.splat(Lane::I16, z);
    let w = builder.iota(Lane::I16);
    let mask = builder.compare(Compare::LeUnsigned, v, w);
    let v = builder.binary(Binary::MulHighSigned, v, w);
    let v = builder.select(mask, v, w);
    let v = builder.rotate(3, v);
    let f = builder.convert(Conversion::HalfToFloat, Lane::F32, v);
    let f = builder.unary(Unary::Sqrt, f);
    let one = builder.constant(Lane::F32, 0x3f80_0000);
    let f = builder.multiply_add(f, one, f);
    let f = builder.convert(Conversion::FloatToFloat, Lane::F64, f);
    let offsets = builder.load_splat(Lane::I64, place);
    let bits = builder.mask_of_bits(z);
    let bits = builder.mask_binary(MaskBinary::AndNot, bits, mask);
    let bits = builder.mask_not(bits);
    let bits = builder.mask_select(bits, mask, bits);
    let gathered = builder.gather(Lane::F64, base, offsets, bits);
    builder.scatter(base, offsets, gathered, mask);
    builder.prefetch(place);
    let first = builder.first(f);
    let bits = builder.mask_bits(bits);
    let called = builder.call(0x1234, &[first, bits]);
    let (then, other) = (builder.block(), builder.block());
    builder.branch(called, (then, &[]), (other, &[]));
    builder.switch_to(then);
    builder.ret(first);
    builder.switch_to(other);
    builder.ret(bits);
    let function = builder.finish();
    verify(&function).expect("the function is well formed");
    expect![[r"
        function of 8 lanes
        block0(v0: int):
            v13 = constant f32 0x3f800000 (1.0)
            v6 = iota i16
            v1 = sign_extend int v0 from 16
            v2 = zero_extend int v1 from 8
            v3 = lt_unsigned int v1, v2
            v4 = select int v3, v1, v2
            store int16 [v0 + 12], v4
            v5 = splat i16 v4
            v7 = le_unsigned i16 v5, v6
            v8 = mul_high_signed i16 v5, v6
            v9 = select i16 v7, v8, v6
            v10 = rotate i16 v9 by 3
            v11 = half_to_float i16 v10 to f32
            v12 = sqrt f32 v11
            v14 = multiply_add f32 v12, v13, v12
            v15 = float_to_float f32 v14 to f64
            v16 = load_splat i64 [v0 - 4]
            v17 = mask_of_bits v4
            v18 = and_not mask v17, v7
            v19 = not mask v18
            v20 = select mask v19, v7, v19
            v21 = gather f64 [v0 + v16] if v20
            scatter f64 [v0 + v16], v21 if v7
            prefetch [v0 - 4]
            v22 = first f64 v15
            v23 = mask_bits v20
            v24 = call 0x1234(v22, v23)
            branch v24, block1(), block2()
        block1():
            return v22
        block2():
            return v23
    "]]
    .assert_eq(&function.to_string());
}

/// Returns the verifier's error for each change of a well-formed function.
fn errors(changes: &[&dyn Fn(&mut Function)]) -> String {
    let mut text = String::new();
    for change in changes {
        let mut function = sum();
        verify(&function).expect("the function is well formed");
        change(&mut function);
        let error = verify(&function).expect_err("the function is ill formed");
        text += &error.to_string().replace("`: ", "`:\n    ");
        text.push('\n');
    }
    text
}

/// Returns the instruction of the loop that `is_chosen` accepts.
fn find(function: &mut Function, is_chosen: fn(&Op) -> bool) -> &mut Inst {
    let insts = &mut function.blocks[1].insts;
    insts.iter_mut().find(|inst| is_chosen(&inst.op)).expect("the loop has the operation")
}

fn add(function: &mut Function) -> &mut Inst {
    find(function, |op| matches!(op, Op::Binary(_)))
}

#[test]
fn the_verifier_checks_operations() {
    let text = errors(&[
        &|function| function.lanes = 12,
        &|function| {
            let argument = function.blocks[0].parameters[0];
            add(function).operands[1] = argument;
        },
        &|function| add(function).op = Op::Binary(Binary::Shl),
        &|function| add(function).operands.truncate(1),
        &|function| add(function).result = None,
        &|function| {
            add(function).operands.pop();
            add(function).op = Op::Rotate(16);
        },
        &|function| {
            add(function).operands.pop();
            add(function).op = Op::Convert(Conversion::Truncate, Lane::F32);
        },
        &|function| {
            if let Op::Load { address, .. } = &mut find(function, |op| matches!(op, Op::Load { .. })).op {
                address.scale = 3;
            }
        },
        &|function| {
            if let Op::Store { streaming, .. } = &mut find(function, |op| matches!(op, Op::Store { .. })).op {
                *streaming = true;
            }
        },
        &|function| {
            let inst = find(function, |op| matches!(op, Op::IntBinary(_)));
            inst.op = Op::Call { function: 1 };
            let operand = inst.operands[0];
            inst.operands.extend([operand; 3]);
        },
    ]);
    expect![[r"
        the function has 12 lanes, but the number of lanes must be 4, 8 or 16
        block1: `v12 = add f32 v6, v0`:
            v0 is of type int, but must be of type vector f32
        block1: `v12 = shl f32 v6, v11`:
            the lanes are f32, but must be integers
        block1: `v12 = add f32 v6`:
            the instruction has 1 operands, but must have 2
        block1: `add f32 v6, v11`:
            the operation has a result of type vector f32, but defines no value
        block1: `v12 = rotate f32 v6 by 16`:
            the count is 16, but must be below the 16 lanes
        block1: `v12 = truncate f32 v6 to f32`:
            the conversion does not convert f32 to f32
        block1: `v11 = load f32 [v0 + v4 * 3 + 64] if v10`:
            the scale is 3, but must be 1, 2, 4 or 8
        block1: `store_streaming f32 [v0 + v4], v11 if v10`:
            a streaming store has no mask
        block1: `v9 = call 0x1(v1, v4, v1, v1, v1)`:
            the call has 5 arguments, but must have at most 4
    "]]
    .assert_eq(&text);
}

#[test]
fn the_verifier_checks_blocks() {
    let text = errors(&[
        &|function| function.blocks[2].terminator = None,
        &|function| {
            let value = function.blocks[1].parameters[0];
            function.blocks[0].terminator = Some(Terminator::Return(value));
        },
        &|function| function.blocks[1].insts.reverse(),
        &|function| function.blocks[2].parameters.truncate(1),
        &|function| function.blocks[2].parameters.swap(0, 1),
        &|function| {
            let inst = function.blocks[1].insts[0].clone();
            function.blocks[1].insts.push(inst);
        },
        &|function| {
            if let Some(Terminator::Branch(_, target, _)) = &mut function.blocks[1].terminator {
                *target = Target { block: Builder::new(16).current(), arguments: vec![] };
            }
        },
        &|function| function.blocks[0].parameters.clear(),
        &|function| {
            let total = function.blocks[2].parameters[1];
            function.blocks[2].terminator = Some(Terminator::Return(total));
        },
    ]);
    expect![[r"
        block2 has no terminator
        block0 uses v4, but block1 defines it, which does not dominate the use
        block1 uses v14 before it defines it
        block0: `branch v8, block1(v2, v3), block2(v2, v3)`:
            block2 receives 2 arguments but has 1 parameters
        block0: `branch v8, block1(v2, v3), block2(v2, v3)`:
            v2 is of type int, but must be of type vector f32
        block1 defines v9, which block1 also defines
        block1: `branch v15, block0(), block2(v14, v12)`:
            no terminator continues with the entry, block0
        block0 has 0 parameters, but the entry must have one, of type int
        block2: `return v7`:
            v7 is of type vector f32, but must be of type int
    "]]
    .assert_eq(&text);
}
