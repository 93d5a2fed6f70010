//! Tests classes that `triton.aggregate` decorates, in a module that Python has not executed.
//! `UPDATE_EXPECT=1 cargo test` rewrites the expected texts.

mod common;

use common::check;
use expect_test::expect;

#[test]
#[expect(clippy::too_many_lines, reason = "a module and all its code")]
fn an_instance_is_made_and_its_methods_are_called() {
    check(
        r"
@triton.aggregate
class Block:
    x: tl.tensor
    size: tl.constexpr

    LEAST = tl.constexpr(2)

    @triton.constexpr_function
    def __init__(self, x, size):
        self.x = x
        self.size = tl.constexpr(size)

    @triton.jit
    def scaled(self, by):
        return Block(self.x * by, self.size)

    @property
    @triton.jit
    def total(self):
        return tl.sum(self.x, 0)

    @triton.jit
    def __add__(self, other):
        return Block(self.x + other.x, self.size)

    @staticmethod
    @triton.jit
    def half(x):
        return x * 0.5

    @classmethod
    @triton.jit
    def of(cls, ptr, size: tl.constexpr):
        return cls(tl.load(ptr + tl.arange(0, size)), size)

@triton.aggregate
class Shifted(Block):
    by: 'tl.tensor'
    inner: Block

    def __init__(self, x, size, by, inner):
        super().__init__(x, size)
        self.by = by
        self.inner = inner

    @triton.jit
    def scaled(self, by):
        return Block(super().scaled(by).x + self.by, self.size)

@triton.jit
def k(ptr, n: tl.constexpr):
    block = Block.of(ptr, n)
    both = Shifted(block.x, n, 7.0, block).scaled(3.0) + block
    tl.static_assert(isinstance(both, Block) and not isinstance(both, Shifted))
    tl.static_assert(both.size == Block.LEAST * 2)
    shifted = tl.aggregate_replace(Shifted(both.x, n, 1.0, both), by=2.0)
    tl.store(ptr, Block.half(shifted.total) + shifted.by + shifted.inner.total)
",
        "*fp32, 4",
        expect![[r#"
            kernel func0 @k(%ptr: *fp32) {
              %0 = call %ptr {callee = func1, results = (fp32[4])} : fp32[4]
              %1, %2, %3 = call %0, %0 {callee = func3, results = (fp32[4]; fp32; fp32[4])} : fp32[4], fp32, fp32[4]
              %4 = call %1, %2, %3 {callee = func5, results = (fp32[4])} : fp32[4]
              %5 = call %4, %0 {callee = func7, results = (fp32[4])} : fp32[4]
              %6, %7, %8 = call %5, %5 {callee = func8, results = (fp32[4]; fp32; fp32[4])} : fp32[4], fp32, fp32[4]
              %9 = constant {value = 2.0:fp32} : fp32
              %10 = call %6, %9, %8 {callee = func9, results = (fp32)} : fp32
              %11 = call %10 {callee = func12, results = (fp32)} : fp32
              %12 = add %11, %9 : fp32
              %13 = call %8 {callee = func13, results = (fp32)} : fp32
              %14 = add %12, %13 : fp32
              store %ptr, %14 {cache = "", eviction = ""}
              return_values
            }
            func1 @of(%ptr: *fp32) {
              %0 = arange {start = 0, end = 4} : int32[4]
              %1 = splat %ptr {shape = [4]} : *fp32[4]
              %2 = ptr_add %1, %0 : *fp32[4]
              %3 = load %2 {cache = "", eviction = "", volatile = false} : fp32[4]
              %4 = call %3 {callee = func2, results = (fp32[4])} : fp32[4]
              return_values %4
            }
            func2 @__init__(%x: fp32[4]) {
              return_values %x
            }
            func3 @__init__(%x: fp32[4], %inner.x: fp32[4]) {
              %0 = call %x {callee = func4, results = (fp32[4])} : fp32[4]
              %1 = constant {value = 7.0:fp32} : fp32
              return_values %0, %1, %inner.x
            }
            func4 @__init__(%x: fp32[4]) {
              return_values %x
            }
            func5 @scaled(%self.x: fp32[4], %self.by: fp32, %self.inner.x: fp32[4]) {
              %0 = call %self.x, %self.by, %self.inner.x {callee = func6, results = (fp32[4])} : fp32[4]
              %1 = splat %self.by {shape = [4]} : fp32[4]
              %2 = add %0, %1 : fp32[4]
              %3 = call %2 {callee = func2, results = (fp32[4])} : fp32[4]
              return_values %3
            }
            func6 @scaled(%self.x: fp32[4], %self.by: fp32, %self.inner.x: fp32[4]) {
              %0 = constant {value = 3.0:fp32} : fp32
              %1 = splat %0 {shape = [4]} : fp32[4]
              %2 = mul %self.x, %1 : fp32[4]
              %3 = call %2 {callee = func2, results = (fp32[4])} : fp32[4]
              return_values %3
            }
            func7 @__add__(%self.x: fp32[4], %other.x: fp32[4]) {
              %0 = add %self.x, %other.x : fp32[4]
              %1 = call %0 {callee = func2, results = (fp32[4])} : fp32[4]
              return_values %1
            }
            func8 @__init__(%x: fp32[4], %inner.x: fp32[4]) {
              %0 = call %x {callee = func4, results = (fp32[4])} : fp32[4]
              %1 = constant {value = 1.0:fp32} : fp32
              return_values %0, %1, %inner.x
            }
            func9 @total(%self.x: fp32[4], %self.by: fp32, %self.inner.x: fp32[4]) {
              %0 = call %self.x {callee = func10, results = (fp32)} : fp32
              return_values %0
            }
            func10 @sum(%input: fp32[4]) {
              %0 = reduce %input {axis = 0} (%1: fp32, %2: fp32) {
                %3 = call %1, %2 {callee = func11, results = (fp32)} : fp32
                yield_values %3
              } : fp32
              return_values %0
            }
            func11 @_sum_combine(%a: fp32, %b: fp32) {
              %0 = add %a, %b : fp32
              return_values %0
            }
            func12 @half(%x: fp32) {
              %0 = constant {value = 0.5:fp32} : fp32
              %1 = mul %x, %0 : fp32
              return_values %1
            }
            func13 @total(%self.x: fp32[4]) {
              %0 = call %self.x {callee = func10, results = (fp32)} : fp32
              return_values %0
            }
        "#]],
    );
}

#[test]
fn fields_and_methods_come_from_bases_in_pythons_order() {
    check(
        r"
class Named:
    @triton.jit
    def which(self):
        return 1

    @triton.jit
    def value(self):
        return self.which() + self.a

@triton.aggregate
class Left(Named):
    a: tl.tensor
    def __init__(self, a):
        self.a = a

@triton.aggregate
class Right(Named):
    b: tl.tensor
    def __init__(self, b):
        self.b = b

    @triton.jit
    def which(self):
        return 20

@triton.aggregate
class Both(Left, Right):
    def __init__(self, a, b):
        Left.__init__(self, a)
        Right.__init__(self, b)

@triton.jit
def k(ptr, a):
    tl.store(ptr, Both(a, a).value())
",
        "*int32, int32",
        expect![[r#"
            kernel func0 @k(%ptr: *int32, %a: int32) {
              %0, %1 = call %a, %a {callee = func1, results = (int32; int32)} : int32, int32
              %2 = call %1, %0 {callee = func4, results = (int32)} : int32
              store %ptr, %2 {cache = "", eviction = ""}
              return_values
            }
            func1 @__init__(%a: int32, %b: int32) {
              %0 = call %a {callee = func2, results = (int32)} : int32
              %1, %2 = call %0, %b {callee = func3, results = (int32; int32)} : int32, int32
              return_values %1, %2
            }
            func2 @__init__(%a: int32) {
              return_values %a
            }
            func3 @__init__(%self.a: int32, %b: int32) {
              return_values %self.a, %b
            }
            func4 @value(%self.b: int32, %self.a: int32) {
              call %self.b, %self.a {callee = func5, results = ()}
              %0 = constant {value = 20:int32} : int32
              %1 = add %0, %self.a : int32
              return_values %1
            }
            func5 @which(%self.b: int32, %self.a: int32) {
              return_values
            }
        "#]],
    );
}
