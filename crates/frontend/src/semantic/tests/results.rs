//! Tests the types that the semantic rules return, and the ops that they emit.

use super::*;
use crate::semantic::{
    BooleanOperator, UnaryOperator, attribute, boolean, loop_dtype, select, subscript, truth, unary,
};

fn call(name: &str, values: &[&str], rest: &[Operand<Value>]) -> String {
    let mut f = Fixture::new();
    let mut arguments: Vec<_> = values.iter().map(|ty| f.value(ty)).collect();
    arguments.extend_from_slice(rest);
    match f.builtin(name, &arguments, &[]) {
        Ok(value) => f.show(&value),
        Err(error) => error.code.name().into(),
    }
}

#[test]
fn shapes_change() {
    assert_eq!(call("arange", &[], &[int(0), int(128)]), "int32[128]");
    assert_eq!(call("full", &[], &[ints(&[16, 8]), number(0.5), dtype("bf16")]), "bf16[16, 8]");
    assert_eq!(call("full", &[], &[ints(&[]), int(1), dtype("int8")]), "int8");
    assert_eq!(call("full", &[], &[ints(&[4]), int(300), dtype("int8")]), "int8[4]");
    assert_eq!(call("full", &[], &[ints(&[4]), number(0.5), dtype("int8")]), "TW0016");
    assert_eq!(call("full", &[], &[ints(&[12]), int(0), dtype("int8")]), "int8[12]");
    assert_eq!(call("full", &[], &[ints(&[-2]), int(0), dtype("int8")]), "TW0016");
    assert_eq!(call("full", &[], &[ints(&[2048, 1024]), int(0), dtype("int8")]), "TW0022");
    assert_eq!(call("expand_dims", &["fp32[8]"], &[int(0)]), "fp32[1, 8]");
    assert_eq!(call("expand_dims", &["fp32[8]"], &[int(-1)]), "fp32[8, 1]");
    assert_eq!(call("expand_dims", &["fp32[8]"], &[ints(&[0, -1])]), "fp32[1, 8, 1]");
    assert_eq!(call("expand_dims", &["fp32"], &[ints(&[0, 1])]), "fp32[1, 1]");
    assert_eq!(call("expand_dims", &["fp32[8]"], &[int(2)]), "TW0016");
    assert_eq!(call("broadcast_to", &["fp32[1, 8]"], &[int(4), int(8)]), "fp32[4, 8]");
    assert_eq!(call("broadcast_to", &["fp32"], &[ints(&[4, 8])]), "fp32[4, 8]");
    assert_eq!(call("broadcast_to", &["fp32[8]"], &[ints(&[4, 8])]), "TW0004");
    assert_eq!(call("broadcast", &["fp32[1, 8]", "fp32[4, 1]"], &[]), "(fp32[4, 8], fp32[4, 8])");
    assert_eq!(call("reshape", &["fp32[4, 8]"], &[ints(&[8, 4])]), "fp32[8, 4]");
    assert_eq!(call("reshape", &["fp32[4, 8]"], &[int(-1)]), "fp32[32]");
    assert_eq!(call("view", &["fp32[4, 8]"], &[int(16)]), "TW0004");
    assert_eq!(call("trans", &["fp32[4, 8]"], &[]), "fp32[8, 4]");
    assert_eq!(call("trans", &["fp32[2, 4, 8]"], &[]), "fp32[2, 8, 4]");
    assert_eq!(call("permute", &["fp32[2, 4, 8]"], &[ints(&[2, 0, 1])]), "fp32[8, 2, 4]");
    assert_eq!(call("permute", &["fp32[2, 4, 8]"], &[ints(&[0, 0, 1])]), "TW0016");
    assert_eq!(call("tensor.item", &["fp32[1, 1]"], &[]), "fp32");
}

#[test]
fn tiles_are_joined_and_taken_apart() {
    assert_eq!(call("join", &["fp32[4, 8]", "fp32[4, 8]"], &[]), "fp32[4, 8, 2]");
    assert_eq!(call("join", &["fp32", "fp32"], &[]), "fp32[2]");
    assert_eq!(call("join", &["int32[4, 1]", "fp32[8]"], &[]), "fp32[4, 8, 2]");
    assert_eq!(call("join", &["fp32[4]", "fp32[8]"], &[]), "TW0004");
    assert_eq!(call("split", &["fp32[4, 2]"], &[]), "(fp32[4], fp32[4])");
    assert_eq!(call("split", &["fp32[2]"], &[]), "(fp32, fp32)");
    assert_eq!(call("split", &["fp32[4]"], &[]), "TW0004");
    assert_eq!(call("split", &["fp32"], &[]), "TW0004");
    let cat = |rest: &[Operand<Value>], values: &[&str]| call("cat", values, rest);
    let (no, yes) = (Operand::Constant(Constant::Bool(false)), Operand::Constant(Constant::Bool(true)));
    assert_eq!(cat(&[no.clone(), int(0)], &["fp32[4, 8]", "fp32[4, 8]"]), "fp32[8, 8]");
    assert_eq!(cat(&[yes, int(-1)], &["fp32[4, 8]", "fp32[4, 3]"]), "fp32[4, 11]");
    assert_eq!(cat(&[no.clone(), int(0)], &["fp32[4, 8]", "fp32[4, 3]"]), "TW0004");
    assert_eq!(cat(&[no.clone(), int(2)], &["fp32[4, 8]", "fp32[4, 8]"]), "TW0016");
    assert_eq!(cat(&[no, int(0)], &["fp32", "fp32"]), "TW0016");
    assert_eq!(call("gather", &["fp32[4, 8]", "int64[4, 32]"], &[int(1)]), "fp32[4, 32]");
    assert_eq!(call("gather", &["*fp32[4]", "int8[2]"], &[int(-1)]), "*fp32[2]");
    assert_eq!(call("gather", &["fp32[4, 8]", "int32[8, 8]"], &[int(1)]), "TW0004");
    assert_eq!(call("gather", &["fp32[4, 8]", "int32[8]"], &[int(1)]), "TW0004");
    assert_eq!(call("gather", &["fp32[4]", "fp32[4]"], &[int(0)]), "TW0005");
    assert_eq!(call("gather", &["fp32[4]", "int1[4]"], &[int(0)]), "fp32[4]");
    assert_eq!(call("gather", &["fp32[4]", "int32[4]"], &[int(1)]), "TW0016");
}

#[test]
fn memory_has_the_type_of_the_pointer() {
    assert_eq!(call("load", &["*fp16[128]"], &[]), "fp16[128]");
    assert_eq!(call("load", &["*int1"], &[]), "int1");
    assert_eq!(call("load", &["*fp16[1, 8]", "int1[4, 1]"], &[]), "fp16[4, 8]");
    assert_eq!(call("load", &["*fp16[8]", "int1[8]"], &[number(-1.0)]), "fp16[8]");
    assert_eq!(call("load", &["*fp16[8]", "int1[8]", "int32[8]"], &[]), "fp16[8]");
    assert_eq!(call("store", &["*fp16[8]", "fp32"], &[]), "None");
    assert_eq!(call("store", &["*int32[8]", "fp32[8]"], &[]), "None");
    assert_eq!(call("store", &["*int64", "*fp32"], &[]), "None");
    assert_eq!(call("store", &["*int1[8]", "int32[8]", "int1"], &[]), "None");
    assert_eq!(call("store", &["*int32", "*fp32"], &[]), "TW0013");
}

#[test]
fn booleans_are_bytes_in_memory() {
    let mut f = Fixture::new();
    let pointer = f.value("*int1[8]");
    let value = f.value("int32[8]");
    f.builtin("store", &[pointer, value], &[]).expect("it is stored");
    assert_eq!(f.ops(), "cast cast cast store");
}

#[test]
fn functions_of_elements() {
    assert_eq!(call("exp", &["fp16[8]"], &[]), "fp16[8]");
    assert_eq!(call("math.exp2", &[], &[number(1.0)]), "fp32");
    assert_eq!(call("exp", &["int32[8]"], &[]), "TW0005");
    assert_eq!(call("abs", &["uint8[8]"], &[]), "uint8[8]");
    assert_eq!(call("maximum", &["bf16[8]", "bf16[8]"], &[]), "bf16[8]");
    assert_eq!(call("maximum", &["fp16[8]"], &[number(0.0)]), "fp16[8]");
    assert_eq!(call("minimum", &["int64[8]"], &[int(3)]), "int64[8]");
    assert_eq!(call("clamp", &["fp32[8]"], &[number(0.0), number(1.0)]), "fp32[8]");
    assert_eq!(call("maximum", &["bf16[8]", "fp16"], &[]), "fp16[8]");
    assert_eq!(call("maximum", &["fp16[8]"], &[int(0)]), "fp16[8]");
    assert_eq!(call("fma", &["bf16[8]", "bf16", "bf16"], &[]), "bf16[8]");
    assert_eq!(call("fma", &["fp16[8]", "fp16"], &[number(1.0)]), "fp16[8]");
    assert_eq!(call("fdiv", &["fp16[8]", "fp16"], &[]), "fp32[8]");
    assert_eq!(call("div_rn", &["fp32[8]"], &[int(3)]), "fp32[8]");
    assert_eq!(call("umulhi", &["uint32[8]", "uint32[8]"], &[]), "uint32[8]");
    assert_eq!(call("umulhi", &["int32[8]", "int32"], &[]), "int32[8]");
    assert_eq!(call("umulhi", &["int16[8]", "int16[8]"], &[]), "TW0005");
    assert_eq!(call("clamp", &["int8[8]"], &[int(2), int(90)]), "int8[8]");
    assert_eq!(call("clamp", &["int8[8]"], &[int(2), int(300)]), "TW0016");
    assert_eq!(call("tensor.to", &["fp32[8]"], &[dtype("int8")]), "int8[8]");
    assert_eq!(call("cast", &["int64[8]"], &[dtype("*fp32")]), "*fp32[8]");
    assert_eq!(call("cast", &["int32[8]"], &[dtype("*fp32")]), "TW0005");
}

#[test]
fn constants_of_a_higher_kind_choose_the_branch_type() {
    let mut f = Fixture::new();
    let (condition, x) = (f.value("int1[8]"), f.value("int32"));
    let chosen = select(&mut f, &condition, &x, &number(0.5)).expect("they have a common type");
    assert_eq!(f.show(&chosen), "fp32[8]");
    let (p, q) = (f.value("*fp32"), f.value("*fp32[8]"));
    let chosen = select(&mut f, &condition, &p, &q).expect("they have a common type");
    assert_eq!(f.show(&chosen), "*fp32[8]");
}

#[test]
fn reductions() {
    let reduce = |tile: &str, rest: &[Operand<Value>]| {
        let mut f = Fixture::new();
        let tile = f.value(tile);
        let mut arguments = vec![tile, rest[0].clone(), Operand::Language("maximum".into())];
        arguments.extend_from_slice(&rest[1..]);
        match f.builtin("reduce", &arguments, &[]) {
            Ok(value) => f.show(&value),
            Err(error) => error.code.name().into(),
        }
    };
    let none = Operand::Constant(Constant::None);
    let keep = Operand::Constant(Constant::Bool(true));
    assert_eq!(reduce("fp32[16, 8]", &[int(1)]), "fp32[16]");
    assert_eq!(reduce("fp32[16, 8]", &[int(-2)]), "fp32[8]");
    assert_eq!(reduce("fp32[16, 8]", &[int(0), keep.clone()]), "fp32[1, 8]");
    assert_eq!(reduce("fp32[16, 8]", std::slice::from_ref(&none)), "fp32");
    assert_eq!(reduce("fp32[16, 8]", &[none.clone(), keep]), "fp32[1, 1]");
    assert_eq!(reduce("fp32", &[none]), "fp32");
    assert_eq!(reduce("fp32[16, 8]", &[int(2)]), "TW0016");
    assert_eq!(reduce("bf16[8]", &[int(0)]), "bf16");
}

#[test]
fn products_of_matrices() {
    assert_eq!(call("dot", &["fp16[16, 32]", "fp16[32, 64]"], &[]), "fp32[16, 64]");
    assert_eq!(call("dot", &["fp16[4, 16, 32]", "fp16[4, 32, 64]"], &[]), "fp32[4, 16, 64]");
    assert_eq!(call("dot", &["int8[16, 32]", "int8[32, 16]"], &[]), "int32[16, 16]");
    assert_eq!(call("dot", &["fp64[2, 2]", "fp64[2, 2]"], &[]), "fp64[2, 2]");
    assert_eq!(call("dot", &["fp16[2, 2]", "fp16[2, 2]", "fp16[2, 2]"], &[]), "fp16[2, 2]");
    assert_eq!(call("dot", &["fp8e5[2, 2]", "fp8e4nv[2, 2]"], &[]), "fp32[2, 2]");
    let mut f = Fixture::new();
    let (a, b) = (f.value("fp16[2, 2]"), f.value("fp16[2, 2]"));
    let half = f.builtin("dot", &[a.clone(), b.clone()], &[("out_dtype", dtype("fp16"))]).expect("it fits");
    assert_eq!(f.show(&half), "fp16[2, 2]");
    let wrong =
        f.builtin("dot", &[a, b], &[("out_dtype", dtype("bf16"))]).expect_err("bf16 sums are refused");
    assert_eq!(wrong.code.name(), "TW0019");
    for (operands, result) in [("bf16", "fp32"), ("fp32", "fp32"), ("fp64", "fp64"), ("int8", "int32")] {
        let value = f.value(&format!("{operands}[2, 2]"));
        let found = f
            .builtin("dot", &[value.clone(), value], &[("out_dtype", dtype("fp16"))])
            .expect("it is ignored");
        assert_eq!(f.show(&found), format!("{result}[2, 2]"));
    }
}

#[test]
fn operators_of_one_value() {
    let mut f = Fixture::new();
    let x = f.value("fp32[8]");
    for (operator, expected) in
        [(UnaryOperator::Plus, "fp32[8]"), (UnaryOperator::Neg, "fp32[8]"), (UnaryOperator::Not, "int1[8]")]
    {
        let value = unary(&mut f, operator, &x).expect("it applies");
        assert_eq!(f.show(&value), expected);
    }
    let error = unary(&mut f, UnaryOperator::Invert, &x).expect_err("floats have no complement");
    assert_eq!(error.code.name(), "TW0005");
    let y = f.value("int32");
    let both = boolean(&mut f, BooleanOperator::And, &x, &y).expect("it applies");
    assert_eq!(f.show(&both), "int1[8]");
    assert!(truth(&mut f, &y).is_ok());
    let single = f.value("int32[1, 1]");
    let condition = truth(&mut f, &single).map(Operand::Tensor).expect("it has one element");
    assert_eq!(f.show(&condition), "int1");
}

#[test]
fn subscripts_add_axes() {
    let mut f = Fixture::new();
    let x = f.value("fp32[8]");
    let y = f.value("fp32");
    let mut shape = |value: &Operand<Value>, indices: &[Index<Value>]| {
        subscript(&mut f, value, indices).map_or_else(|error| render(&error), |value| f.show(&value))
    };
    assert_eq!(shape(&x, &[Index::All, Index::NewAxis]), "fp32[8, 1]");
    assert_eq!(shape(&x, &[Index::NewAxis, Index::All]), "fp32[1, 8]");
    assert_eq!(shape(&x, &[Index::NewAxis, Index::All, Index::NewAxis]), "fp32[1, 8, 1]");
    assert_eq!(shape(&x, &[Index::Ellipsis, Index::NewAxis]), "fp32[8, 1]");
    assert_eq!(shape(&x, &[Index::All]), "fp32[8]");
    assert_eq!(shape(&y, &[Index::NewAxis, Index::NewAxis]), "fp32[1, 1]");
}

#[test]
fn attributes() {
    let mut f = Fixture::new();
    let mut get = |ty: &str, path: &str| {
        let mut value = f.value(ty);
        for name in path.split('.') {
            value = attribute(&mut f, &value, name).expect("the attribute exists");
        }
        f.show(&value)
    };
    assert_eq!(get("fp32[8, 4]", "shape"), "(8, 4)");
    assert_eq!(get("fp32[8, 4]", "T"), "fp32[4, 8]");
    assert_eq!(get("fp32[8, 4]", "numel"), "32");
    assert_eq!(get("fp32[8, 4]", "dtype"), "fp32");
    assert_eq!(get("fp32[8, 4]", "type"), "fp32[8, 4]");
    assert_eq!(get("*fp16[8]", "dtype.element_ty"), "fp16");
    assert_eq!(get("*fp16[8]", "type.element_ty.element_ty"), "fp16");
    assert_eq!(get("fp8e4nv", "dtype.primitive_bitwidth"), "8");
    assert_eq!(get("fp16", "dtype.is_floating"), "method dtype.is_floating");
    assert_eq!(get("fp16", "to"), "method tensor.to");
    assert_eq!(get("fp16", "sum"), "method sum");
    let method = |name: &str, ty: &str| {
        let mut f = Fixture::new();
        let found = f.builtin(name, &[dtype(ty)], &[]).expect("it applies");
        f.show(&found)
    };
    assert_eq!(method("dtype.is_floating", "fp8e5"), "True");
    assert_eq!(method("dtype.is_fp16", "fp16"), "True");
    assert_eq!(method("dtype.is_int_unsigned", "int1"), "True");
    assert_eq!(method("dtype.is_ptr", "*fp16"), "True");
    assert_eq!(method("dtype.get_int_max_value", "uint8"), "255");
}

#[test]
fn compile_time_functions() {
    let mut f = Fixture::new();
    f.builtin("static_print", &[text("n ="), int(3)], &[]).expect("it prints");
    let x = f.value("fp32[8]");
    f.builtin("static_print", &[x, number(1.5)], &[("sep", text("|")), ("end", text(""))])
        .expect("it prints");
    assert_eq!(f.printed, "n = 3\nfp32[constexpr[8]]|1.5");
    assert_eq!(call("next_power_of_2", &[], &[int(100)]), "128");
    assert_eq!(call("next_power_of_2", &[], &[int(64)]), "64");
    assert_eq!(call("constexpr", &[], &[int(64)]), "64");
    assert_eq!(call("constexpr", &["int32"], &[]), "int32");
    assert_eq!(call("get_int_dtype", &[], &[int(16), int(0)]), "uint16");
    let ty = |ty: &str| Type::parse(ty).expect("the type is well formed");
    assert_eq!(
        loop_dtype(&ty("int32"), &ty("int64"), &ty("int32")).ok().map(tilewright_ir::Dtype::name),
        Some("int64")
    );
    assert!(loop_dtype(&ty("int32"), &ty("fp32"), &ty("int32")).is_err());
    assert!(loop_dtype(&ty("int32"), &ty("int32[8]"), &ty("int32")).is_err());
}

#[test]
fn no_builtin_panics_on_strange_arguments() {
    let operands = |f: &mut Fixture| {
        let mut operands =
            vec![int(0), int(-1), int(1 << 100), number(f64::NAN), text("x"), ints(&[]), ints(&[3, -1])];
        operands.push(ints(&[1 << 40, 1 << 40, 1 << 40, 1 << 40]));
        operands.push(Operand::Constant(Constant::None));
        operands.push(Operand::Tuple(Vec::new().into()));
        operands.push(Operand::Language("load".into()));
        operands.push(dtype("*fp32[8]"));
        for ty in ["int1", "fp8e5[8]", "*fp32", "*int1[8, 8]", "int64[1]", "uint8[2, 2, 2]", "fp16[16, 16]"] {
            operands.push(f.value(ty));
        }
        operands
    };
    for entry in crate::semantic::language_entries() {
        let Some(LanguageItem::Builtin(spec)) = language(entry.path) else { continue };
        if matches!(spec.name, "reduce" | "associative_scan" | "map_elementwise") {
            continue;
        }
        let mut f = Fixture::new();
        let pool = operands(&mut f);
        for (start, _) in pool.iter().enumerate() {
            for step in [1, 2, 5, 7] {
                let count = spec.parameters.len();
                let arguments: Vec<_> =
                    (0..count).map(|index| pool[(start + index * step) % pool.len()].clone()).collect();
                let _ = call_builtin(&mut f, spec, &arguments);
                // In this call, the first argument is an operand of the pool. Each other argument
                // is the default of its parameter, or an operand of the pool if it has no default.
                let usual = spec.parameters.iter().skip(1).map(|parameter| {
                    parameter
                        .default
                        .clone()
                        .map_or(pool[(start + step) % pool.len()].clone(), Operand::Constant)
                });
                let mixed: Vec<_> = std::iter::once(pool[start].clone()).chain(usual).take(count).collect();
                let _ = call_builtin(&mut f, spec, &mixed);
            }
        }
    }
}
