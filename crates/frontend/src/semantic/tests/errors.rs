//! Tests the texts of the errors that the semantic rules report.
#![expect(clippy::needless_raw_string_hashes, reason = "expect-test writes the strings")]

use expect_test::{Expect, expect};

use super::*;
use crate::semantic::{attribute, subscript, truth};

fn check(result: Semantic<Operand<Value>>, expected: &Expect) {
    expected.assert_eq(&render(&result.expect_err("this is a mistake")));
}

fn operator(operator: BinaryOperator, lhs: &str, rhs: &str, expected: &Expect) {
    let mut f = Fixture::new();
    let (lhs, rhs) = (f.value(lhs), f.value(rhs));
    check(binary(&mut f, operator, &lhs, &rhs), expected);
}

fn call(name: &str, values: &[&str], rest: &[Operand<Value>], expected: &Expect) {
    let mut f = Fixture::new();
    let mut arguments: Vec<_> = values.iter().map(|ty| f.value(ty)).collect();
    arguments.extend_from_slice(rest);
    let result = f.builtin(name, &arguments, &[]);
    check(result, expected);
}

#[test]
fn shapes() {
    operator(
        BinaryOperator::Add,
        "fp32[128]",
        "fp32[64]",
        &expect![[r#"
        TW0004: the operands of `+` have incompatible shapes [128] and [64]
          0: this has shape [128]
          1: this has shape [64]
          note: found extents 128 and 64 along axis 0
          note: expected equal extents, or 1, along every axis, counted from the last one
          hint: for every pair of their elements, a tile of shape [128, 64], write `x[:, None]` and `y[None, :]`
    "#]],
    );
    operator(
        BinaryOperator::Mul,
        "fp32[16]",
        "fp32[16, 32]",
        &expect![[r#"
        TW0004: the operands of `*` have incompatible shapes [16] and [16, 32]
          0: this has shape [16]
          1: this has shape [16, 32]
          note: found extents 16 and 32 along axis 1
          note: expected equal extents, or 1, along every axis, counted from the last one
          hint: a [N] tile is a row; for a column write `x[:, None]`
    "#]],
    );
    operator(
        BinaryOperator::Add,
        "fp32[1024, 1]",
        "fp32[1, 2048]",
        &expect![[r#"
            TW0022: a tile has at most 1048576 elements, and [1024, 2048] has more
              0: this has shape [1024, 1]
              1: this has shape [1, 2048]
              hint: work on smaller blocks: loop over parts, or launch more programs
        "#]],
    );
}

#[test]
fn types() {
    operator(
        BinaryOperator::And,
        "fp32[128]",
        "int32",
        &expect![[r#"
            TW0005: invalid operands of type fp32 for `&`, which takes integers and booleans
              0: this is fp32[128]
              1: this is int32
              note: found fp32, expected an integer type
              hint: compare first (`x > 0`), or take the bits: `x.to(tl.int32, bitcast=True)`
        "#]],
    );
    operator(
        BinaryOperator::FloorDiv,
        "int32",
        "uint32",
        &expect![[r#"
            TW0005: cannot use `//` with int32 and uint32 because they have different signedness
              0: this is int32
              1: this is uint32
              hint: convert one of them, such as `x.to(tl.int64)`
        "#]],
    );
    operator(
        BinaryOperator::FloorDiv,
        "fp32",
        "int32",
        &expect![[r#"
        TW0005: `//` takes integers
          0: this is fp32
          1: this is int32
          note: found fp32, expected an integer type
          hint: write `tl.floor(x / y)`
    "#]],
    );
    operator(
        BinaryOperator::MatMul,
        "fp16[16, 16]",
        "fp16[16, 16]",
        &expect![[r#"
        TW0005: tensors have no operator `@`
          0: this is fp16[16, 16]
          1: this is fp16[16, 16]
          hint: multiply matrices with `tl.dot(a, b)`
    "#]],
    );
    call(
        "exp",
        &["int32[8]"],
        &[],
        &expect![[r#"
        TW0005: `exp` takes floating-point numbers
          0: this is int32[8]
          note: found int32, expected a type such as fp32
          hint: convert it first: `x.to(tl.float32)`
    "#]],
    );
    let mut f = Fixture::new();
    let x = f.value("int8[8]");
    check(
        binary(&mut f, BinaryOperator::Add, &x, &int(300)),
        &expect![[r#"
        TW0016: 300 does not fit the other operand's type int8
          1: expected a value from -128 to 127
          0: this is int8
          hint: convert the tensor to a wider type first, such as `x.to(tl.int32)`
    "#]],
    );
    let y = f.value("uint8[8]");
    check(
        binary(&mut f, BinaryOperator::Mul, &int(-1), &y),
        &expect![[r#"
        TW0016: -1 is negative and the other operand is uint8
          0: expected a value from 0 to 255
          1: this is uint8
          hint: convert the tensor to a signed type first, such as `x.to(tl.int64)`
    "#]],
    );
    let none = Operand::Constant(Constant::None);
    check(
        binary(&mut f, BinaryOperator::Mul, &none, &y),
        &expect![[r#"
        TW0005: a number or tensor is expected, found None
          0: this is None
          hint: test `is None` before using it
    "#]],
    );
    check(
        truth(&mut f, &x).map(Operand::Tensor),
        &expect![[r#"
        TW0005: a tile of many elements is neither true nor false
          0: this is int8[8]
          note: found int8[8], expected a scalar
          hint: choose for each element with `tl.where`, or reduce it first: `tl.max(x.to(tl.int32)) > 0`
    "#]],
    );
}

#[test]
fn ranges() {
    call(
        "arange",
        &[],
        &[int(0), int((1 << 20) + 1)],
        &expect![[r#"
            TW0022: a tile has at most 1048576 elements, and [1048577] has more
              1: this is too large
              hint: work on smaller blocks: loop over parts, or launch more programs
        "#]],
    );
    call(
        "arange",
        &[],
        &[int(8), int(8)],
        &expect![[r#"
        TW0006: `arange` must end after it starts, and 8 is not after 8
          0: this is 8
          1: this is 8
          note: found a range of 0 elements, expected at least 1
    "#]],
    );
    call(
        "arange",
        &["int32"],
        &[int(8)],
        &expect![[r#"
        TW0008: `start` of `arange` must be known at compile time
          0: this is int32, known only at run time
          note: expected a compile-time value, such as a number or a `tl.constexpr` parameter
          hint: if it is a parameter of the kernel, annotate it in the signature, as in `BLOCK: tl.constexpr`
    "#]],
    );
    call(
        "full",
        &[],
        &[ints(&[0]), int(0), dtype("fp32")],
        &expect![[r#"
            TW0016: extents of a tile must be at least 1, and axis 0 has 0
              0: axis 0 of this has extent 0
              note: found 0, expected 1, 2, 3, …
        "#]],
    );
    call(
        "full",
        &[],
        &[ints(&[16]), int(0), text("float32")],
        &expect![[r#"
        TW0016: `dtype` of `full` must be a type
          2: this is 'float32'
          note: found 'float32', expected a type
          hint: write `tl.float32`, without quotes
    "#]],
    );
    call(
        "full",
        &[],
        &[ints(&[16]), int(0), text("torch.half")],
        &expect![[r#"
            TW0016: `dtype` of `full` must be a type
              2: this is 'torch.half'
              note: found 'torch.half', expected a type
              hint: write `tl.float16`, without quotes
        "#]],
    );
    call(
        "full",
        &[],
        &[ints(&[16]), int(0), Operand::Language("builtins.float".into())],
        &expect![[r#"
            TW0016: `dtype` of `full` must be a type
              2: this is float
              note: found float, expected a type
              hint: write `tl.float32`
        "#]],
    );
    call(
        "program_id",
        &[],
        &[int(3)],
        &expect![[r#"
        TW0016: a grid has no axis 3
          0: this is 3
          note: found 3, expected 0, 1 or 2
    "#]],
    );
}

#[test]
fn memory() {
    call(
        "load",
        &["int32[128]"],
        &[],
        &expect![[r#"
        TW0005: `load` takes a pointer or a tile of pointers
          0: this is int32[128]
          note: found int32[128], expected a pointer such as *fp32
          hint: add the offsets to a pointer argument: `tl.load(x_ptr + offsets, …)`
    "#]],
    );
    call(
        "load",
        &["*fp32[128]", "int1[64]"],
        &[],
        &expect![[r#"
            TW0007: the mask has shape [64] and the pointers have shape [128]
              1: this has shape [64]
              0: this has shape [128]
              note: found [64], expected [128] or what broadcasts to it
              hint: make the mask from the same offsets as the pointers
        "#]],
    );
    call(
        "load",
        &["*fp32", "int1[64]"],
        &[],
        &expect![[r#"
            TW0007: the mask has shape [64] and the pointer is a scalar
              1: this has shape [64]
              0: this is a scalar
              note: found [64], expected a scalar
              hint: add a tile of offsets to the pointer: `ptr + tl.arange(0, N)`
        "#]],
    );
    call(
        "load",
        &["*fp32[128]", "int32[128]"],
        &[],
        &expect![[r#"
        TW0007: a mask holds booleans
          1: this is int32[128]
          note: found int32, expected int1
          hint: write a comparison, such as `offsets < n`, or `mask != 0`
    "#]],
    );
    let none = Operand::Constant(Constant::None);
    call(
        "load",
        &["*fp32[128]"],
        &[none, number(0.0)],
        &expect![[r#"
        TW0007: `other` is given without a mask
          2: this would never be used
          note: `other` is what a load gives where the mask is false
          hint: add `mask=`, such as `mask=offsets < n`, or leave `other` out
    "#]],
    );
}

#[test]
fn stores() {
    call(
        "store",
        &["*fp32", "fp32[128]"],
        &[],
        &expect![[r#"
        TW0013: a tile of shape [128] cannot be stored through one pointer
          1: this has shape [128]
          0: this is a scalar
          note: found fp32[128], expected a scalar, or a tile of pointers of shape [128]
          hint: add offsets to the pointer, such as `ptr + tl.arange(0, N)`, or reduce the tile first
    "#]],
    );
    call(
        "store",
        &["*fp32[128]", "fp32[64]"],
        &[],
        &expect![[r#"
        TW0013: a tile of shape [64] cannot be stored through pointers of shape [128]
          1: this has shape [64]
          0: this has shape [128]
          note: found [64], expected [128] or what broadcasts to it
          hint: pointers and values need one shape: make both from the same offsets
    "#]],
    );
    call(
        "store",
        &["*fp32[1, 8]", "fp32[8, 1]"],
        &[],
        &expect![[r#"
        TW0013: a tile of shape [8, 1] cannot be stored through pointers of shape [1, 8]
          1: this has shape [8, 1]
          0: this has shape [1, 8]
          note: found [8, 1], expected [1, 8] or what broadcasts to it
          hint: pointers and values need one shape: make both from the same offsets
    "#]],
    );
    call(
        "store",
        &["*fp32[16, 8]", "fp32[16, 8]", "int1[16]"],
        &[],
        &expect![[r#"
            TW0007: the mask has shape [16] and the pointers have shape [16, 8]
              2: this has shape [16]
              0: this has shape [16, 8]
              note: found [16], expected [16, 8] or what broadcasts to it
              hint: for a mask of rows write `mask[:, None]`
        "#]],
    );
    let mut f = Fixture::new();
    let pointer = f.value("*fp32[8]");
    check(
        f.builtin("load", &[pointer], &[("cache_modifier", text(".cq"))]),
        &expect![[r#"
        TW0016: `cache_modifier` of `load` cannot be ".cq"
          5: this is none of the values that it may have
          note: expected one of "", ".ca", ".cg", ".cs", ".cv"
          hint: did you mean ".ca"?
    "#]],
    );
}

#[test]
fn offsets_and_indices() {
    operator(
        BinaryOperator::Add,
        "*fp32",
        "fp32[128]",
        &expect![[r#"
        TW0014: a pointer is moved by integers, not by fp32
          1: this is fp32[128]
          note: found fp32, expected an integer type
          hint: convert the offset: `offset.to(tl.int32)`; offsets count elements, not bytes
    "#]],
    );
    operator(
        BinaryOperator::Add,
        "*fp32",
        "*fp32",
        &expect![[r#"
        TW0014: two pointers cannot be added
          0: this is *fp32
          1: this is *fp32
          hint: add an integer offset, counted in elements, to one pointer
    "#]],
    );
    let mut f = Fixture::new();
    let x = f.value("fp32[128]");
    let p = f.value("*fp32");
    let i = f.value("int32");
    let x_index = Index::Value(x.clone());
    let i_index = Index::Value(i);
    let result = subscript(&mut f, &x, std::slice::from_ref(&i_index));
    check(
        result,
        &expect![[r#"
            TW0014: a tile is indexed by numbers that are known at compile time
              0: this is fp32[128]
              1: this is int32
              note: expected `:`, `None`, or a compile-time integer or slice
              hint: gather it, `tl.gather(x, tl.full([1], i, tl.int32), 0)`, or load it through a pointer
        "#]],
    );
    check(
        subscript(&mut f, &p, &[i_index]),
        &expect![[r#"
            TW0014: a pointer is not indexed
              0: this is *fp32
              1: this is int32
              hint: add the offset and load: `tl.load(ptr + i)`
        "#]],
    );
    check(
        subscript(&mut f, &p, &[x_index]),
        &expect![[r#"
            TW0014: a pointer is not indexed
              0: this is *fp32
              1: this is fp32[128]
              hint: add an integer offset and load: `tl.load(ptr + i.to(tl.int32))`
        "#]],
    );
    check(
        subscript(&mut f, &x, &[Index::All, Index::All]),
        &expect![[r#"
        TW0014: 2 axes are indexed, and the tensor has 1
          0: this is fp32[128]
          note: found 2 times `:`, expected at most 1
          hint: each `:` keeps one axis, each `None` adds one
    "#]],
    );
}

#[test]
fn names() {
    let mut f = Fixture::new();
    let x = f.value("fp32[128]");
    check(
        attribute(&mut f, &x, "shap"),
        &expect![[r#"
        TW0015: a tensor of type fp32[128] has no attribute `shap`
          0: this is a tensor of type fp32[128]
          hint: did you mean `shape`?
    "#]],
    );
    check(
        attribute(&mut f, &x, "astype"),
        &expect![[r#"
        TW0015: a tensor of type fp32[128] has no attribute `astype`
          0: this is a tensor of type fp32[128]
          hint: write `x.to(dtype)`
    "#]],
    );
    check(
        attribute(&mut f, &x, "frobnicate"),
        &expect![[r#"
        TW0015: a tensor of type fp32[128] has no attribute `frobnicate`
          0: this is a tensor of type fp32[128]
    "#]],
    );
    check(
        attribute(&mut f, &dtype("fp32"), "is_float"),
        &expect![[r#"
            TW0015: the type fp32 has no attribute `is_float`
              0: this is the type fp32
              hint: did you mean `is_floating`?
        "#]],
    );
    check(
        attribute(&mut f, &dtype("fp32"), "element_ty"),
        &expect![[r#"
        TW0015: the type fp32 has no attribute `element_ty`
          0: this is the type fp32
          note: pointers and tiles have an element type
          hint: the type is the element type itself; of a pointer `p` it is `p.dtype.element_ty`
    "#]],
    );
    call(
        "atomic_add",
        &["*int8", "int8"],
        &[],
        &expect![[r#"
        TW0005: `atomic_add` does not support int8
          0: this is *int8
          note: found int8, expected a type of 16, 32 or 64 bits
          hint: use a wider type, such as int32, for values that several programs change
    "#]],
    );
}

#[test]
fn reductions() {
    let mut f = Fixture::new();
    let x = f.value("bf16[8]");
    let combine = Operand::Language("maximum".into());
    let widening = Operand::Language("fdiv".into());
    check(
        f.builtin("reduce", &[x.clone(), int(0), widening], &[]),
        &expect![[r#"
        TW0005: the combine function does not return what it is given
          2: this combines two elements into one of the same type
          note: results of the combine region: found [fp32], expected [bf16]
          note: expected 1 result of type bf16
          hint: convert in the function with `.to(…)`, or convert the input of the reduction
    "#]],
    );
    let y = f.value("fp32[8]");
    check(
        f.builtin("reduce", &[y, int(1), combine], &[]),
        &expect![[r#"
            TW0016: axis 1 of `reduce` does not exist: the tile has 1 axis
              1: this is 1
              note: expected an axis from -1 to 0
        "#]],
    );
}

#[test]
fn products() {
    call(
        "dot",
        &["fp16[16, 32]", "fp16[16, 32]"],
        &[],
        &expect![[r#"
        TW0019: `dot` cannot multiply [16, 32] by [16, 32]
          0: this is fp16[16, 32]
          1: this is fp16[16, 32]
          note: the left operand has 32 columns but the right has 16 rows; they must be equal
          hint: transpose the right operand: `tl.dot(a, tl.trans(b))`
    "#]],
    );
    call(
        "dot",
        &["fp16[16, 32]", "fp32[32, 16]"],
        &[],
        &expect![[r#"
            TW0019: the operands of `dot` must have one type
              0: this is fp16[16, 32]
              1: this is fp32[32, 16]
              note: found fp16 and fp32
              hint: convert one of them, such as `.to(tl.float16)`
        "#]],
    );
    call(
        "dot",
        &["fp16[16, 16]", "fp16[16, 16]", "bf16[16, 16]"],
        &[],
        &expect![[r#"
        TW0019: `acc` of `dot` cannot be bf16
          2: this is bf16
          note: found bf16, expected fp32 or fp16 for operands of type fp16
          hint: accumulate in fp32, and convert the result with `.to(…)`
    "#]],
    );
    call(
        "dot",
        &["fp32[16, 16]", "fp32[16, 16]", "fp16[16, 16]"],
        &[],
        &expect![[r#"
        TW0019: the accumulator does not have the type of the result
          2: this is fp16[16, 16]
          note: found fp16[16, 16], expected fp32[16, 16]
          hint: accumulate in fp32: `tl.zeros(…, dtype=tl.float32)`
    "#]],
    );
    call(
        "dot",
        &["fp32[16]", "fp32[16]"],
        &[],
        &expect![[r#"
        TW0019: `dot` takes two matrices, or two stacks of matrices
          0: this is fp32[16]
          1: this is fp32[16]
          note: found 1 and 1 axes, expected equal numbers, 2 or more
          hint: make a vector a matrix with `x[:, None]` or `x[None, :]`, or sum a product with `tl.sum(x * y)`
    "#]],
    );
}

#[test]
fn other_values() {
    call(
        "permute",
        &["fp32[16, 16]"],
        &[ints(&[0, 0])],
        &expect![[r#"
        TW0016: (0, 0) is not an order of the axes of fp32[16, 16]
          0: this has 2 axes
          note: expected each of the axes 0 to 1 once
    "#]],
    );
    call(
        "cast",
        &["fp32"],
        &[dtype("fp16"), Operand::Constant(Constant::None), int(1)],
        &expect![[r#"
        TW0005: the bits of fp32 cannot be read as fp16
          0: this has 32 bits an element
          1: this has 16 bits
          note: expected types of one width
          hint: without `bitcast=True` the numbers are converted
    "#]],
    );
    call(
        "static_assert",
        &[],
        &[int(0), text("BLOCK is too small")],
        &expect![[r#"
        TW0017: BLOCK is too small
          0: this is false
    "#]],
    );
}
