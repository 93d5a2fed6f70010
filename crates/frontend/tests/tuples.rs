//! Tests the IR of tuples, `NamedTuple`s and functions that are not inlined. `UPDATE_EXPECT=1 cargo
//! test` rewrites the expected IR.

mod common;

use common::check;
use expect_test::expect;

#[test]
fn the_parts_of_a_tuple_become_parameters() {
    check(
        r"
@triton.jit
def k(ptrs, sizes, args):
    a, b = ptrs
    x = tl.load(a) + sizes[0] + sizes[1]
    x = x + args.n + args.n
    x = x + 1.0
    tl.store(b, x)
    tl.store(args.y_ptr, len(ptrs) + len(sizes))
",
        "(*fp32:16; *fp32), (3; int32:16), (y_ptr=*int32; n=int64)",
        expect![[r#"
            kernel func0 @k(%ptrs.0: *fp32 {divisibility = 16}, %ptrs.1: *fp32, %sizes.1: int32 {divisibility = 16}, %args.y_ptr: *int32, %args.n: int64) {
              %0 = load %ptrs.0 {cache = "", eviction = "", volatile = false} : fp32
              %1 = constant {value = 3.0:fp32} : fp32
              %2 = add %0, %1 : fp32
              %3 = cast %sizes.1 {element = fp32, rounding = "rtne"} : fp32
              %x = add %2, %3 : fp32
              %4 = cast %args.n {element = fp32, rounding = "rtne"} : fp32
              %5 = add %x, %4 : fp32
              %6 = cast %args.n {element = fp32, rounding = "rtne"} : fp32
              %x.1 = add %5, %6 : fp32
              %7 = constant {value = 1.0:fp32} : fp32
              %x.2 = add %x.1, %7 : fp32
              store %ptrs.1, %x.2 {cache = "", eviction = ""}
              %8 = constant {value = 4:int32} : int32
              store %args.y_ptr, %8 {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn tuples_of_constants_and_empty_tuples_are_compile_time_values() {
    check(
        r"
@triton.jit
def k(x_ptr, none, one, dims):
    tl.static_assert(none == ())
    tl.static_assert(len(one) == 1)
    tl.static_assert(dims.rows * dims.cols == 12)
    tl.store(x_ptr + tl.arange(0, one[0]), 1.0)
",
        "*fp32, (), (4), (rows=3; cols=4)",
        expect![[r#"
            kernel func0 @k(%x_ptr: *fp32) {
              %0 = arange {start = 0, end = 4} : int32[4]
              %1 = splat %x_ptr {shape = [4]} : *fp32[4]
              %2 = ptr_add %1, %0 : *fp32[4]
              %3 = constant {value = 1.0:fp32} : fp32
              %4 = splat %3 {shape = [4]} : fp32[4]
              store %2, %4 {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn named_tuples_are_made_passed_and_returned() {
    check(
        r#"
from typing import NamedTuple

class View(NamedTuple):
    ptr: tl.tensor
    size: int
    step: int = 2

@triton.jit
def advance(view):
    return View(view.ptr + view.step, size=view.size - 1)

@triton.jit
def k(view, flag):
    view = advance(View(*view))
    if flag:
        view = advance(view)
    for i in range(view.size):
        view = advance(view)
    tl.store(view.ptr, getattr(view, "size") + view[2])
"#,
        "(ptr=*int32; size=int32), int1",
        expect![[r#"
            kernel func0 @k(%view.ptr: *int32, %view.size: int32, %flag: int1) {
              %0, %1 = call %view.ptr, %view.size {callee = func1, results = (*int32; int32)} : *int32, int32
              %2 = constant {value = 2:int32} : int32
              %3, %4, %5 = if_else %flag () {
                %6, %7 = call %0, %1, %2 {callee = func2, results = (*int32; int32)} : *int32, int32
                %8 = constant {value = 2:int32} : int32
                yield_values %6, %7, %8
              } () {
                yield_values %0, %1, %2
              } : *int32, int32, int32
              %9 = constant {value = 0:int32} : int32
              %10 = constant {value = 1:int32} : int32
              %11, %12, %13 = for_loop %9, %4, %10, %3, %4, %5 {options = "stages=0 unroll=0"} (%i: int32, %14: *int32, %15: int32, %16: int32) {
                %17, %18 = call %14, %15, %16 {callee = func2, results = (*int32; int32)} : *int32, int32
                %19 = constant {value = 2:int32} : int32
                yield_values %17, %18, %19
              } : *int32, int32, int32
              %20 = add %12, %13 : int32
              store %11, %20 {cache = "", eviction = ""}
              return_values
            }
            func1 @advance(%view.ptr: *int32, %view.size: int32) {
              %0 = constant {value = 2:int32} : int32
              %1 = ptr_add %view.ptr, %0 : *int32
              %2 = constant {value = 1:int32} : int32
              %3 = sub %view.size, %2 : int32
              return_values %1, %3
            }
            func2 @advance(%view.ptr: *int32, %view.size: int32, %view.step: int32) {
              %0 = ptr_add %view.ptr, %view.step : *int32
              %1 = constant {value = 1:int32} : int32
              %2 = sub %view.size, %1 : int32
              return_values %0, %2
            }
        "#]],
    );
}

#[test]
fn mistakes_with_fields() {
    check(
        r"
import typing

class View(typing.NamedTuple):
    ptr: tl.tensor
    size: int

@triton.jit
def k(view, x_ptr):
    tl.store(x_ptr, view.sise)
    tl.store(x_ptr, view.offset)
    one = View(x_ptr)
    two = View(x_ptr, 1, length=2)
",
        "(ptr=*int32; size=int32), *int32",
        expect![[r"
            error[TW0015]: (*int32, int32) has no attribute 'sise'
              --> k.py:13:26
               |
            13 |     tl.store(x_ptr, view.sise)
               |                          ^^^^
               |
               = help: did you mean 'size'?

            error[TW0015]: (*int32, int32) has no attribute 'offset'
              --> k.py:14:26
               |
            14 |     tl.store(x_ptr, view.offset)
               |                          ^^^^^^
               |
               = help: its fields are ptr, size

            error[TW0009]: missing argument 'size' of View
              --> k.py:15:11
               |
            15 |     one = View(x_ptr)
               |           ^^^^^^^^^^^
               |
               = help: its parameters are ptr, size

            error[TW0009]: View has no parameter 'length'
              --> k.py:16:26
               |
            16 |     two = View(x_ptr, 1, length=2)
               |                          ^^^^^^
               |
               = help: its parameters are ptr, size
        "]],
    );
}

#[test]
fn a_tuple_at_run_time_for_a_constexpr() {
    check(
        r"
@triton.jit
def k(sizes: tl.constexpr):
    pass
",
        "(int32; 4)",
        expect![[r"
            error[TW0008]: 'sizes' is a tl.constexpr, but its argument is known at run time only
             --> k.py:6:7
              |
            6 | def k(sizes: tl.constexpr):
              |       ^^^^^
        "]],
    );
}

#[test]
fn calls_of_noinline_functions_stay() {
    check(
        r"
@triton.jit(noinline=True)
def store_next(x_ptr, value):
    tl.store(x_ptr, value)
    return x_ptr + 1

@triton.jit(noinline=True)
def k(x_ptr, n, m):
    x_ptr = store_next(x_ptr, n)
    x_ptr = store_next(x_ptr, m)
    store_next(x_ptr, 1.5)
",
        "*fp32, fp32, fp32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *fp32, %n: fp32, %m: fp32) {
              %x_ptr.1 = call %x_ptr, %n {callee = func1, results = (*fp32)} : *fp32
              %x_ptr.2 = call %x_ptr.1, %m {callee = func1, results = (*fp32)} : *fp32
              %0 = call %x_ptr.2 {callee = func2, results = (*fp32)} : *fp32
              return_values
            }
            func1 @store_next(%x_ptr: *fp32, %value: fp32) noinline {
              store %x_ptr, %value {cache = "", eviction = ""}
              %0 = constant {value = 1:int32} : int32
              %1 = ptr_add %x_ptr, %0 : *fp32
              return_values %1
            }
            func2 @store_next(%x_ptr: *fp32) noinline {
              %0 = constant {value = 1.5:fp32} : fp32
              store %x_ptr, %0 {cache = "", eviction = ""}
              %1 = constant {value = 1:int32} : int32
              %2 = ptr_add %x_ptr, %1 : *fp32
              return_values %2
            }
        "#]],
    );
}
