//! Tests the text of machine code for NEON, on any processor.

#[path = "common/disassembler.rs"]
mod disassembler;

use expect_test::expect;
use tilewright_native::ir::{Binary, Compare, IntBinary, Lane};
use tilewright_native::{Builder, Isa, Place, Target, compile};

use disassembler::{check_instructions, disassembly};

fn code_of(builder: Builder) -> String {
    let code = compile(&builder.finish(), &Target::new(Isa::Neon)).expect("the function compiles");
    check_instructions(Isa::Neon, code.instructions());
    disassembly(Isa::Neon, code.instructions())
}

#[test]
fn loops_have_text() {
    let mut builder = Builder::new(4);
    let base = builder.argument();
    let end = builder.int_load(4, base, -8);
    let (start, zero) = (builder.int(0), builder.constant(Lane::F32, 0));
    let tenth = builder.constant(Lane::F32, u64::from(0.1_f32.to_bits()));
    let repeated = builder.begin_loop([start, end], &[zero]);
    let (index, total) = (repeated.index, repeated.values[0]);
    let x = builder.load(Lane::F32, Place { base, index: Some((index, 4)), offset: 0 }, None);
    let total = builder.multiply_add(x, tenth, total);
    let is_less = builder.compare(Compare::Lt, x, tenth);
    let chosen = builder.select(is_less, x, total);
    let left = builder.int_binary(IntBinary::Sub, end, index);
    let mask = builder.first_lanes(left);
    builder.store(Place { base, index: Some((index, 4)), offset: 1 << 20 }, chosen, Some(mask), false);
    let (_, totals) = builder.end_loop(repeated, 4, &[total]);
    builder.store(Place::at(base), totals[0], None, true);
    builder.ret(start);

    expect![[r"
        0000 ldur w7, [x0, #-0x8]
        0004 cmp x7, #0x0
        0008 b.le $+0x14
        000c ldr q17, $+0xc4
        0010 mov x8, #0x0
        0014 movi v16.2d, #0x0
        0018 b $+0x28
        001c movi v16.2d, #0x0
        0020 b $+0x9c
        0024 nop
        0028 nop
        002c nop
        0030 nop
        0034 nop
        0038 nop
        003c nop
        0040 add x1, x0, x8, lsl #2
        0044 ldr q22, [x1]
        0048 fmla v16.4s, v22.4s, v17.4s
        004c fcmgt v28.4s, v17.4s, v22.4s
        0050 bsl v28.16b, v22.16b, v16.16b
        0054 sub x1, x7, x8
        0058 fmov d0, x1
        005c sqxtn s0, d0
        0060 mov v0.4s, v0.s[0]
        0064 ldr q1, $+0x7c
        0068 cmgt v0.4s, v0.4s, v1.4s
        006c ldr q1, $+0x84
        0070 and v0.16b, v0.16b, v1.16b
        0074 addv s0, v0.4s
        0078 fmov w1, s0
        007c add x2, x0, x8, lsl #2
        0080 add x2, x2, #0x100, lsl #12
        0084 tbz w1, #0x0, $+0x8
        0088 st1 {v28.s}[0], [x2]
        008c add x3, x2, #0x4
        0090 tbz w1, #0x1, $+0x8
        0094 st1 {v28.s}[1], [x3]
        0098 add x3, x2, #0x8
        009c tbz w1, #0x2, $+0x8
        00a0 st1 {v28.s}[2], [x3]
        00a4 add x2, x2, #0xc
        00a8 tbz w1, #0x3, $+0x8
        00ac st1 {v28.s}[3], [x2]
        00b0 add x8, x8, #0x4
        00b4 cmp x8, x7
        00b8 b.lt $-0x78
        00bc str q16, [x0]
        00c0 mov x0, #0x0
        00c4 ret
    "]]
    .assert_eq(&code_of(builder));
}

#[test]
fn operations_on_wide_and_narrow_lanes_have_text() {
    let mut builder = Builder::new(4);
    let base = builder.argument();
    let place = |offset| Place { base, index: None, offset };
    let x = builder.load(Lane::I64, place(0), None);
    let y = builder.load(Lane::I64, place(32), None);
    let product = builder.binary(Binary::Mul, x, y);
    let shifted = builder.binary(Binary::Sar, product, y);
    let mask = builder.compare(Compare::LtUnsigned, shifted, x);
    let narrow = builder.load(Lane::I8, place(64), None);
    let five = builder.constant(Lane::I8, 5);
    let high = builder.binary(Binary::MulHighSigned, narrow, five);
    let chosen = builder.select(mask, high, narrow);
    builder.store(place(68), chosen, None, false);
    builder.ret(base);

    expect![[r"
        0000 ldr q4, [x0]
        0004 ldr q6, [x0, #0x10]
        0008 ldr q17, [x0, #0x20]
        000c ldr q16, [x0, #0x30]
        0010 fmov x12, d4
        0014 fmov x14, d17
        0018 mul x1, x12, x14
        001c mov x2, v4.d[1]
        0020 mov x3, v17.d[1]
        0024 mul x2, x2, x3
        0028 fmov d25, x1
        002c mov v25.d[1], x2
        0030 fmov x1, d6
        0034 fmov x2, d16
        0038 mul x1, x1, x2
        003c mov x2, v6.d[1]
        0040 mov x3, v16.d[1]
        0044 mul x2, x2, x3
        0048 fmov d0, x1
        004c mov v0.d[1], x2
        0050 ldr q1, $+0x60
        0054 cmhi v2.2d, v1.2d, v17.2d
        0058 bsl v2.16b, v17.16b, v1.16b
        005c neg v1.2d, v2.2d
        0060 sshl v1.2d, v25.2d, v1.2d
        0064 ldr q2, $+0x4c
        0068 cmhi v3.2d, v2.2d, v16.2d
        006c bsl v3.16b, v16.16b, v2.16b
        0070 neg v2.2d, v3.2d
        0074 sshl v0.2d, v0.2d, v2.2d
        0078 cmhi v1.2d, v4.2d, v1.2d
        007c cmhi v3.2d, v6.2d, v0.2d
        0080 uzp1 v5.4s, v1.4s, v3.4s
        0084 ldr s16, [x0, #0x40]
        0088 movi v17.16b, #0x5
        008c smull v17.8h, v16.8b, v17.8b
        0090 shrn v17.8b, v17.8h, #0x8
        0094 xtn v18.4h, v5.4s
        0098 xtn v18.8b, v18.8h
        009c bit v16.16b, v17.16b, v18.16b
        00a0 str s16, [x0, #0x44]
        00a4 ret
    "]]
    .assert_eq(&code_of(builder));
}
