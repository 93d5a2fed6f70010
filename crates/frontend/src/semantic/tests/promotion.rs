//! Tests type promotion: compares the common types of operands with tables.

use super::*;
use crate::semantic::{CompareOperator, compare};

/// The type of the sum of two tensors, or `-` if they have no common type. The columns have the
/// order of the rows.
const SUMS: &str = "
int1     int1  int8  int16 int32 int64 uint8  uint16 uint32 uint64 -      -       fp16 fp32 fp32 fp64
int8     int8  int8  int16 int32 int64 uint8  uint16 uint32 uint64 -      -       fp16 fp32 fp32 fp64
int16    int16 int16 int16 int32 int64 int16  uint16 uint32 uint64 -      -       fp16 fp32 fp32 fp64
int32    int32 int32 int32 int32 int64 int32  int32  uint32 uint64 -      -       fp16 fp32 fp32 fp64
int64    int64 int64 int64 int64 int64 int64  int64  int64  uint64 -      -       fp16 fp32 fp32 fp64
uint8    uint8 uint8 int16 int32 int64 uint8  uint16 uint32 uint64 -      -       fp16 fp32 fp32 fp64
uint16   uint16 uint16 uint16 int32 int64 uint16 uint16 uint32 uint64 -   -       fp16 fp32 fp32 fp64
uint32   uint32 uint32 uint32 uint32 int64 uint32 uint32 uint32 uint64 -  -       fp16 fp32 fp32 fp64
uint64   uint64 uint64 uint64 uint64 uint64 uint64 uint64 uint64 uint64 - -       fp16 fp32 fp32 fp64
fp8e5    -     -     -     -     -     -      -      -      -      fp8e5  fp16    fp16 fp32 fp32 fp64
fp8e4nv  -     -     -     -     -     -      -      -      -      fp16   fp8e4nv fp16 fp32 fp32 fp64
fp16     fp16  fp16  fp16  fp16  fp16  fp16   fp16   fp16   fp16   fp16   fp16    fp16 fp16 fp32 fp64
bf16     fp32  fp32  fp32  fp32  fp32  fp32   fp32   fp32   fp32   fp32   fp32    fp16 bf16 fp32 fp64
fp32     fp32  fp32  fp32  fp32  fp32  fp32   fp32   fp32   fp32   fp32   fp32    fp32 fp32 fp32 fp64
fp64     fp64  fp64  fp64  fp64  fp64  fp64   fp64   fp64   fp64   fp64   fp64    fp64 fp64 fp64 fp64
";

fn result(operator: BinaryOperator, lhs: &str, rhs: &str) -> String {
    let mut f = Fixture::new();
    let (lhs, rhs) = (f.value(lhs), f.value(rhs));
    match binary(&mut f, operator, &lhs, &rhs) {
        Ok(value) => f.show(&value),
        Err(_) => "-".into(),
    }
}

#[test]
fn tensors_promote_as_the_table_says() {
    let rows: Vec<Vec<&str>> = SUMS.trim().lines().map(|line| line.split_whitespace().collect()).collect();
    for row in &rows {
        assert_eq!(row.len(), rows.len() + 1);
        for (other, expected) in rows.iter().zip(&row[1..]) {
            let (lhs, rhs) = (row[0], other[0]);
            for operator in [BinaryOperator::Add, BinaryOperator::Sub, BinaryOperator::Mul] {
                assert_eq!(result(operator, lhs, rhs), *expected, "{lhs} {} {rhs}", operator.symbol());
            }
            let integers = !expected.starts_with(['f', 'b', '-']);
            let bitwise = if integers { expected } else { "-" };
            for operator in
                [BinaryOperator::And, BinaryOperator::Or, BinaryOperator::Xor, BinaryOperator::Shl]
            {
                assert_eq!(result(operator, lhs, rhs), bitwise, "{lhs} {} {rhs}", operator.symbol());
            }
            assert_eq!(result(BinaryOperator::Shr, lhs, rhs), bitwise, "{lhs} >> {rhs}");
        }
    }
}

#[test]
fn divisions_widen_halves_and_want_one_signedness() {
    use BinaryOperator::{Div, FloorDiv, Mod};
    let cases = [
        (Div, "fp16", "fp16", "fp32"),
        (Div, "bf16", "bf16", "fp32"),
        (Div, "fp16", "int32", "fp32"),
        (Div, "fp32", "fp64", "fp64"),
        (Div, "int32", "int32", "fp32"),
        (Div, "int64", "int64", "fp32"),
        (Div, "int1", "int1", "fp32"),
        (Div, "int32", "uint32", "fp32"),
        (Div, "fp8e5", "fp8e5", "fp32"),
        (Div, "fp8e5", "fp8e4nv", "fp32"),
        (Div, "fp8e5", "int32", "fp32"),
        (Div, "uint8", "fp8e5", "fp32"),
        (Mod, "fp8e4nv", "fp8e4nv", "fp32"),
        (Mod, "int1", "fp8e5", "fp32"),
        (FloorDiv, "int8", "int32", "int32"),
        (FloorDiv, "uint8", "uint64", "uint64"),
        (FloorDiv, "int32", "uint32", "-"),
        (FloorDiv, "int1", "int32", "-"),
        (FloorDiv, "fp32", "fp32", "-"),
        (FloorDiv, "int32", "fp32", "-"),
        (Mod, "int8", "int32", "int32"),
        (Mod, "int32", "uint32", "-"),
        (Mod, "fp16", "fp16", "fp32"),
        (Mod, "fp32", "int32", "fp32"),
        (BinaryOperator::Pow, "fp32", "fp32", "-"),
        (BinaryOperator::MatMul, "fp32[16, 16]", "fp32[16, 16]", "-"),
    ];
    for (operator, lhs, rhs, expected) in cases {
        assert_eq!(result(operator, lhs, rhs), expected, "{lhs} {} {rhs}", operator.symbol());
    }
}

#[test]
fn numbers_give_way_to_tensors() {
    use BinaryOperator::{Add, Div, FloorDiv, Mod, Shr};
    let flag = Operand::Constant(Constant::Bool(true));
    let cases: Vec<(BinaryOperator, &str, Operand<Value>, &str)> = vec![
        (Add, "int8", int(1), "int8"),
        (Add, "int8", int(127), "int8"),
        (Add, "int8", int(128), "-"),
        (Add, "int8", int(-129), "-"),
        (Add, "uint8", int(255), "uint8"),
        (Add, "uint8", int(-1), "-"),
        (Add, "int64", int(1 << 40), "int64"),
        (Add, "int32", int(1 << 40), "-"),
        (Add, "int32", int(1 << 80), "-"),
        (Add, "int8", flag.clone(), "int8"),
        (Add, "int1", flag.clone(), "int1"),
        (Add, "int1", int(1), "int32"),
        (Add, "int1", int(1 << 31), "uint32"),
        (Add, "int1", int(1 << 40), "int64"),
        (Add, "int8", number(1.5), "fp32"),
        (Add, "int64", number(1.5), "fp32"),
        (Add, "int32", number(1e300), "fp64"),
        (Add, "fp16", int(3), "fp16"),
        (Add, "fp16", number(1e300), "fp16"),
        (Add, "bf16", number(1.5), "bf16"),
        (Add, "fp8e5", number(1.5), "fp8e5"),
        (Add, "fp32", number(1e300), "fp32"),
        (Add, "fp64", flag, "fp64"),
        (Div, "fp16", int(3), "fp32"),
        (Div, "bf16", number(2.0), "fp32"),
        (Div, "int32", int(2), "fp32"),
        (FloorDiv, "uint32", int(2), "uint32"),
        (Mod, "fp16", int(2), "fp32"),
        (Shr, "uint64", int(2), "uint64"),
        (Shr, "fp32", int(2), "-"),
    ];
    for (operator, tensor, constant, expected) in cases {
        let mut f = Fixture::new();
        let tensor_operand = f.value(tensor);
        for (lhs, rhs) in [(&tensor_operand, &constant), (&constant, &tensor_operand)] {
            let found = match binary(&mut f, operator, lhs, rhs) {
                Ok(value) => f.show(&value),
                Err(_) => "-".into(),
            };
            assert_eq!(found, expected, "{tensor} {} {constant:?}", operator.symbol());
        }
    }
}

#[test]
fn shapes_broadcast() {
    let cases = [
        ("fp32[128]", "fp32", "fp32[128]"),
        ("fp32", "int32[8, 4]", "fp32[8, 4]"),
        ("fp32[16, 1]", "fp32[1, 32]", "fp32[16, 32]"),
        ("fp32[32]", "fp32[16, 32]", "fp32[16, 32]"),
        ("fp32[1]", "fp32[32]", "fp32[32]"),
        ("fp32[2, 1, 4]", "fp32[8, 1]", "fp32[2, 8, 4]"),
        ("fp32[128]", "fp32[64]", "-"),
        ("fp32[16]", "fp32[16, 32]", "-"),
        ("fp32[1024, 1]", "fp32[1, 2048]", "-"),
        ("*fp32", "int32[128]", "*fp32[128]"),
        ("int32[16, 1]", "*fp32[1, 8]", "*fp32[16, 8]"),
        ("*fp32[16]", "uint8", "*fp32[16]"),
        ("*fp32", "fp32", "-"),
        ("*fp32", "*fp32", "-"),
    ];
    for (lhs, rhs, expected) in cases {
        assert_eq!(result(BinaryOperator::Add, lhs, rhs), expected, "{lhs} + {rhs}");
    }
    assert_eq!(result(BinaryOperator::Sub, "*fp32", "int32[4]"), "*fp32[4]");
    assert_eq!(result(BinaryOperator::Sub, "int32[4]", "*fp32"), "-");
    assert_eq!(result(BinaryOperator::Mul, "*fp32", "int32"), "-");
}

#[test]
fn comparisons_give_booleans() {
    // The results of `<` and of `==`. A 64-bit integer may be an address. A pointer compared with
    // another number is an error, because it is usually a tensor that was passed in place of a
    // number.
    let cases = [
        ("fp32[8]", "int32", "int1[8]", "int1[8]"),
        ("int1", "int1", "int1", "int1"),
        ("*fp32", "*fp32", "int1", "int1"),
        ("*fp32[4]", "int64", "-", "int1[4]"),
        ("uint64", "*fp32[4]", "-", "int1[4]"),
        ("int32[8]", "*int64", "-", "-"),
        ("*int64", "int1", "-", "-"),
        ("*fp32", "*fp16", "-", "-"),
        ("*fp32", "fp32", "-", "-"),
        ("fp8e5", "int32", "-", "-"),
    ];
    for (lhs, rhs, order, equality) in cases {
        for (operator, expected) in [(CompareOperator::Lt, order), (CompareOperator::Eq, equality)] {
            let mut f = Fixture::new();
            let (left, right) = (f.value(lhs), f.value(rhs));
            let found = match compare(&mut f, operator, &left, &right) {
                Ok(value) => f.show(&value),
                Err(_) => "-".into(),
            };
            assert_eq!(found, expected, "{lhs} {} {rhs}", operator.symbol());
        }
    }
}
