//! Tests the parser of PTX. The parser never panics. Accepted text must print and parse to the same
//! text.

use tilewright_fuzz::mutate;
use tilewright_ptx::isa::{parse, print};

const SEED: &str = "\
.version 8.3
.target sm_90a, debug
.address_size 64
.extern .func (.param .b32 result) vprintf(.param .b64 a, .param .b64 b);
.extern .shared .align 16 .b8 dynamic[];
.global .align 4 .f32 grid[2][3] = {{1.0, 2.0}, {0f40800000}};
.const .align 8 .u64 places[2] = {generic(grid)+4, (1 << 4 | 3) * 2 - ~0};
.visible .entry k(.param .u64 .ptr .global .align 16 p, .param .align 8 .b8 s[16])
.maxntid 128, 1, 1
{
    .reg .pred %p<4>;
    .reg .b32 %r<9>, t;
    .reg .b64 %d<5>;
    .reg .f32 %f<5>;
    .loc 1 4 5, function_name $name+2, inlined_at 1 3 9
    ld.param.u64 %d1, [p];
    ld.global.L1::evict_last.L2::cache_hint.v4.b32 {%r1, %r2, _, %r4}, [%d1+-16], %d2;
    setp.lt.and.s32 %p1|%p2, %r1, -5, !%p3;
    @!%p1 bra DONE;
    mov.b64 %d2, {%r1, t};
    cvt.rn.satfinite.relu.e4m3x2.f32 %r1, %f1, %f2;
    bar.red.popc.u32 %r1, 0, 64, !%p1;
    cp.async.cg.shared.global.L2::cache_hint [dynamic+16], [%d1], 16, %d2;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1, {%r2, 0}], [%r3], %r4;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d1, %d2, %p1, 1, -1, 0, 1;
    atom.global.gpu.acq_rel.add.f32 %f1, [%d1], 0f3F800000;
    {
        .reg .b32 %r<3>;
        .param .b64 a;
        st.param.b64 [a+0], %d1;
        call.uni (%r1), vprintf, (a, a);
        NEXT: bra.uni NEXT;
    }
    table: .branchtargets DONE, DONE;
    brx.idx %r1, table;
    .pragma \"nounroll\";
DONE:
    ret;
}
.file 1 \"k.py\"
.section .debug_str { $name: .b8 0 }
";

const DICTIONARY: &[&str] = &[
    "%r1",
    "%p1",
    "%d1",
    "%r",
    "_",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    ";",
    ",",
    ":",
    "|",
    "@",
    "!",
    "-",
    "+",
    "*",
    "/",
    "\"",
    ".",
    "0x",
    "0f",
    "0d7FF0000000000000",
    "18446744073709551615",
    "99999999999",
    "1e400",
    ".reg",
    ".shared",
    ".param",
    ".section",
    ".pragma",
    ".callprototype",
    ".b8",
    ".align",
    ".v4",
    ".L2::cache_hint",
    ".rn",
    "mma.sync",
    "call",
    "NEXT",
    "k",
    "grid",
    "/*",
    "*/",
    "//",
    "\n",
    "é",
    "%r999999999",
    "%r007",
    ".global",
];

#[test]
fn parsing_never_panics_and_inverts_printing() {
    assert!(parse(SEED).is_ok());
    tilewright_fuzz::fuzz!(40000, |bytes: &[u8]| {
        let Ok(module) = parse(&mutate(SEED, DICTIONARY, bytes)) else { return };
        let printed = print(&module);
        let again = parse(&printed).expect("printed text parses");
        assert_eq!(print(&again), printed);
    });
}
