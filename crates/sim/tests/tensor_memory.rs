//! Tests dots and moves in tensor memory, with and without mistakes.
//!
//! The tests compute the layouts in shared memory themselves.

mod support;

use support::{Argument, Shape, launch};
use tilewright_fuzz::random::Random;
use tilewright_sim::FaultKind;

/// The bytes of shared memory that a kernel copies from its input.
const IMAGE: usize = 48 << 10;

/// A kernel of four warps on tensor memory. These registers have values:
///
/// - `%r2`: the address of shared memory, whose first [`IMAGE`] bytes are the input;
/// - `%r9`: the address of the allocated columns;
/// - `%r8`: the address of the warp's lanes in these columns;
/// - `%rd9`: the fixed bits of matrix descriptors plus `%r2 / 16`.
struct Kernel<'a> {
    columns: u32,
    /// The instructions of one thread, before the commit.
    issue: &'a str,
    /// The instructions of all threads after the wait.
    end: &'a str,
    blocks: u32,
}

const PAIR: &str = "cta_group::2";

impl Kernel<'_> {
    fn text(&self) -> String {
        let Self { columns, issue, end, blocks } = self;
        let (group, commit) = if *blocks == 2 {
            (PAIR, ".shared::cluster.multicast::cluster.b64 [%r7], %h3")
        } else {
            ("cta_group::1", ".shared::cluster.b64 [%r7]")
        };
        let (first, sync) = if *blocks == 2 {
            (
                "setp.eq.and.u32 %p2, %r5, 0, %p2;",
                "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
            )
        } else {
            ("", "bar.sync 0;")
        };
        format!(
            ".version 8.8
.target sm_100a
.address_size 64
.visible .entry kernel(.param .u64 source, .param .u64 target)
{{
    .reg .pred %p<16>; .reg .b16 %h<4>; .reg .b32 %r<300>; .reg .f32 %f<300>; .reg .b64 %rd<32>; .reg .b128 %q<2>;
    .shared .align 1024 .b8 memory[{IMAGE}];
    .shared .align 16 .b8 state[64];
    mov.b16 %h3, 3;
    ld.param.u64 %rd1, [source];
    ld.param.u64 %rd2, [target];
    mov.u32 %r1, %tid.x;
    mov.u32 %r5, %cluster_ctarank;
    mul.wide.u32 %rd3, %r5, {IMAGE};
    add.u64 %rd1, %rd1, %rd3;
    mov.u32 %r2, memory;
    shr.u32 %r4, %r1, 5;
    shl.b32 %r3, %r1, 4;
COPY:
    cvt.u64.u32 %rd4, %r3;
    add.u64 %rd5, %rd1, %rd4;
    add.u32 %r6, %r2, %r3;
    ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd5];
    st.shared.v4.b32 [%r6], {{%r10, %r11, %r12, %r13}};
    add.u32 %r3, %r3, 2048;
    setp.lt.u32 %p1, %r3, {IMAGE};
    @%p1 bra COPY;
    fence.proxy.async.shared::cta;
    mov.u32 %r7, state;
    setp.eq.u32 %p2, %r1, 0;
    setp.eq.u32 %p3, %r4, 0;
    @%p2 mbarrier.init.shared::cta.b64 [%r7], 1;
    @%p2 fence.mbarrier_init.release.cluster;
    @%p3 tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [%r7+8], {columns};
    {sync}
    ld.shared.b32 %r9, [%r7+8];
    shl.b32 %r8, %r4, 21;
    add.u32 %r8, %r8, %r9;
    shr.u32 %r3, %r2, 4;
    cvt.u64.u32 %rd9, %r3;
    or.b64 %rd9, %rd9, 0x400000000000;
    {first}
    @!%p2 bra ISSUED;
    {issue}
    tcgen05.commit.{group}.mbarrier::arrive::one{commit};
ISSUED:
    mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r7], 0;
    @!%p4 bra ISSUED;
    {end}
    {sync}
    @%p3 tcgen05.dealloc.{group}.sync.aligned.b32 %r9, {columns};
    ret;
}}
"
        )
    }

    fn run(&self, image: &[u8], output: &mut [u8]) -> Result<(), FaultKind> {
        run_text(&self.text(), self.blocks, image, output)
    }
}

fn run_text(text: &str, blocks: u32, image: &[u8], output: &mut [u8]) -> Result<(), FaultKind> {
    let mut input = image.to_vec();
    input.resize(IMAGE * blocks as usize, 0);
    let shape = Shape { grid: [blocks, 1, 1], threads: 128, cluster: blocks, shared_bytes: 0 };
    launch(text, &shape, vec![Argument::Input(&input), Argument::Output(output)]).map(|_| ())
}

/// Stores columns of tensor memory: thread t writes those of lane t to row t of the output.
fn store_columns(columns: u32) -> String {
    let registers: Vec<String> = (0..columns).map(|column| format!("%r{}", 20 + column)).collect();
    let store = |group: usize| {
        let four = registers[group * 4..][..4].join(", ");
        format!("st.global.v4.b32 [%rd6+{}], {{{four}}};\n", 16 * group)
    };
    let stores = (0..columns as usize / 4).map(store).collect::<Vec<_>>().concat();
    format!(
        "tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {{{}}}, [%r8];
    tcgen05.wait::ld.sync.aligned;
    mad.lo.u32 %r3, %r5, 128, %r1;
    mul.wide.u32 %rd6, %r3, {};
    add.u64 %rd6, %rd6, %rd2;
    {stores}
    tcgen05.fence::before_thread_sync;",
        registers.join(", "),
        4 * columns
    )
}

/// The layout of a K-major matrix in shared memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    /// Core matrices of 8 rows of 16 bytes, 8 rows after another.
    Plain,
    /// Lines of 32, 64 or 128 bytes with permuted chunks.
    Swizzled(usize),
}

impl Layout {
    /// Returns the offset of a byte of a row of 32 bytes.
    fn offset(self, row: usize, byte: usize) -> usize {
        let (chunk, rest) = (byte / 16, byte % 16);
        match self {
            Self::Plain => row / 8 * 256 + chunk * 128 + row % 8 * 16 + rest,
            Self::Swizzled(line) => {
                let at = row * line + chunk * 16;
                // A chunk moves to its index XOR the index of the 128-byte line.
                let permuted = (at / 16 % (line / 16)) ^ (at / 128 % (line / 16));
                at / line * line + permuted * 16 + rest
            }
        }
    }

    /// Returns the bits of the descriptor other than address and version.
    fn descriptor(self) -> u64 {
        let field = |bytes: u64, low: u32| bytes >> 4 << low;
        match self {
            Self::Plain => field(128, 16) | field(256, 32),
            Self::Swizzled(line) => {
                let mode: u64 = match line {
                    128 => 2,
                    64 => 4,
                    _ => 6,
                };
                field(16, 16) | field(8 * line as u64, 32) | mode << 61
            }
        }
    }
}

/// The element type of an operand: its name, code, bits and value.
#[derive(Clone, Copy)]
struct Type {
    name: &'static str,
    code: u32,
    bits: usize,
    value: fn(u32) -> f64,
    /// Elements of 16 bytes.
    in_chunk: usize,
}

fn minifloat(bits: u32, exponent: u32, mantissa: u32) -> f64 {
    let sign = if bits >> (exponent + mantissa) & 1 == 1 { -1.0 } else { 1.0 };
    let (e, m) = (bits >> mantissa & ((1 << exponent) - 1), bits & ((1 << mantissa) - 1));
    let offset = (1 << (exponent - 1)) - 1;
    let fraction = f64::from(m) / f64::from(1 << mantissa);
    sign * if e == 0 {
        fraction * 2_f64.powi(1 - offset)
    } else {
        (1.0 + fraction) * 2_f64.powi(e as i32 - offset)
    }
}

const F16: Type = Type {
    name: "f16",
    code: 0,
    bits: 16,
    value: |bits| half::f16::from_bits(bits as u16).to_f64(),
    in_chunk: 8,
};
const BF16: Type = Type {
    name: "bf16",
    code: 1,
    bits: 16,
    value: |bits| half::bf16::from_bits(bits as u16).to_f64(),
    in_chunk: 8,
};
const TF32: Type = Type {
    name: "tf32",
    code: 2,
    bits: 32,
    value: |bits| f32::from_bits(bits & !0x1fff).into(),
    in_chunk: 4,
};
const E4M3: Type = Type { name: "e4m3", code: 0, bits: 8, value: |bits| minifloat(bits, 4, 3), in_chunk: 16 };
const E5M2: Type = Type { name: "e5m2", code: 1, bits: 8, value: |bits| minifloat(bits, 5, 2), in_chunk: 16 };
const E2M3: Type = Type { name: "e2m3", code: 3, bits: 6, value: |bits| minifloat(bits, 2, 3), in_chunk: 16 };
const E3M2: Type = Type { name: "e3m2", code: 4, bits: 6, value: |bits| minifloat(bits, 3, 2), in_chunk: 16 };
const E2M1: Type = Type { name: "e2m1", code: 5, bits: 4, value: |bits| minifloat(bits, 2, 1), in_chunk: 16 };
const PACKED: Type =
    Type { name: "packed e2m1", code: 1, bits: 4, value: |bits| minifloat(bits, 2, 1), in_chunk: 32 };
const S8: Type = Type { name: "s8", code: 1, bits: 8, value: |bits| f64::from(bits as i8), in_chunk: 16 };
const U8: Type = Type { name: "u8", code: 0, bits: 8, value: |bits| f64::from(bits as u8), in_chunk: 16 };

/// A matrix of `rows` rows of 32 bytes, and its image in shared memory.
struct Matrix {
    values: Vec<Vec<f64>>,
    image: Vec<u8>,
}

fn matrix(random: &mut Random, rows: usize, ty: Type, layout: Layout) -> Matrix {
    let mut image = vec![0; 16 << 10];
    let k = 2 * ty.in_chunk;
    let mut values = Vec::new();
    for row in 0..rows {
        let mut bytes = [0_u8; 32];
        let mut line = Vec::new();
        for element in 0..k {
            // Small numbers, so that all sums are exact.
            let bits = loop {
                let bits = match ty.bits {
                    16 | 32 => {
                        let value = random.below(9) as f32 - 4.0;
                        match ty.name {
                            "f16" => half::f16::from_f32(value).to_bits().into(),
                            "bf16" => half::bf16::from_f32(value).to_bits().into(),
                            _ => value.to_bits() | 0x7ff,
                        }
                    }
                    bits => random.bits() as u32 & ((1 << bits) - 1),
                };
                if (ty.value)(bits).abs() <= 448.0 {
                    break bits;
                }
            };
            line.push((ty.value)(bits));
            let at = element % ty.in_chunk * ty.bits;
            let chunk = &mut bytes[element / ty.in_chunk * 16..][..16];
            let word = u128::from_le_bytes((&*chunk).try_into().expect("16 bytes")) | u128::from(bits) << at;
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        for (byte, value) in bytes.into_iter().enumerate() {
            image[layout.offset(row, byte)] = value;
        }
        values.push(line);
    }
    Matrix { values, image }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn lane(m: usize, row: usize) -> usize {
    if m == 64 { row / 16 * 32 + row % 16 } else { row }
}

#[test]
fn dots_of_all_kinds_from_all_layouts() {
    let layouts = [Layout::Plain, Layout::Swizzled(32), Layout::Swizzled(64), Layout::Swizzled(128)];
    let kinds = [
        ("f16", F16, F16, 1),
        ("f16", BF16, BF16, 1),
        ("f16", F16, F16, 0),
        ("tf32", TF32, TF32, 1),
        ("f8f6f4", E4M3, E5M2, 1),
        ("f8f6f4", E2M3, E3M2, 1),
        ("f8f6f4", E2M1, E4M3, 1),
        ("i8", S8, U8, 2),
    ];
    let mut random = Random(1);
    for (index, (kind, a_ty, b_ty, d_code)) in kinds.into_iter().enumerate() {
        let (layout_a, layout_b) = (layouts[index % 4], layouts[(index + 1) % 4]);
        let (m, n) = ([128, 64][index % 2], 32);
        let (a, b) = (matrix(&mut random, m, a_ty, layout_a), matrix(&mut random, n, b_ty, layout_b));
        let image = [&a.image[..], &b.image[..]].concat();
        let bits =
            (m as u32 / 16) << 24 | (n as u32 / 8) << 17 | b_ty.code << 10 | a_ty.code << 7 | d_code << 4;
        // The second dot adds to the first.
        let issue = format!(
            "or.b64 %rd10, %rd9, {:#x};
    add.u64 %rd11, %rd9, 1024;
    or.b64 %rd11, %rd11, {:#x};
    setp.ne.u32 %p5, %r1, %r1;
    tcgen05.mma.cta_group::1.kind::{kind} [%r9], %rd10, %rd11, {bits:#x}, %p5;
    tcgen05.mma.cta_group::1.kind::{kind} [%r9], %rd10, %rd11, {bits:#x}, !%p5;",
            layout_a.descriptor(),
            layout_b.descriptor()
        );
        let lanes = if m == 64 { "shl.b32 %r3, %r4, 21; add.u32 %r8, %r3, %r9;" } else { "" };
        let end = format!("{lanes}{}", store_columns(32));
        // A dot of 64 rows leaves half of the lanes uninitialized.
        let end = if m == 64 {
            end.replace("32x32b.x32", "16x32bx2.x32").replace("[%r8];", "[%r8], 0;")
        } else {
            end
        };
        let mut output = vec![0; 128 * 32 * 4];
        let kernel = Kernel { columns: 32, issue: &issue, end: &end, blocks: 1 };
        kernel
            .run(&image, &mut output)
            .unwrap_or_else(|fault| panic!("{} {}: {fault}", a_ty.name, b_ty.name));
        for row in 0..m {
            for column in 0..n {
                let at = (lane(m, row) * 32 + column) * 4;
                let word = u32::from_le_bytes(output[at..at + 4].try_into().unwrap());
                let found = match d_code {
                    0 => half::f16::from_bits(word as u16).to_f64(),
                    1 => f32::from_bits(word).into(),
                    _ => f64::from(word as i32),
                };
                let expected = 2.0 * dot(&a.values[row], &b.values[column]);
                let rounded = if d_code == 1 { f64::from(expected as f32) } else { expected };
                let error = (found - rounded).abs();
                assert!(
                    error <= rounded.abs() * 1e-6,
                    "{} {layout_a:?} {} {layout_b:?} at {row}, {column}: {found}, not {rounded}",
                    a_ty.name,
                    b_ty.name
                );
            }
        }
    }
}

/// Copies the scale factors of up to 128 rows from shared memory. A line of 16 bytes has four bytes
/// for each of the rows r, r + 32, r + 64 and r + 96.
fn copy_scales() -> String {
    let plain = Layout::Plain.descriptor();
    format!(
        "add.u64 %rd12, %rd9, 2048;
    or.b64 %rd12, %rd12, {plain:#x};
    add.u32 %r15, %r9, 64;
    tcgen05.cp.cta_group::1.32x128b.warpx4 [%r15], %rd12;
    add.u64 %rd13, %rd12, 64;
    tcgen05.cp.cta_group::1.32x128b.warpx4 [%r15+4], %rd13;"
    )
}

#[test]
fn dots_with_scale_factors() {
    // The kind, the types of A and B, the elements of a block, and the first bytes of the factors.
    let kinds = [
        ("mxf8f6f4.block_scale.scale_vec::1X", E4M3, E2M1, 32, 3, 1),
        ("mxf8f6f4.block_scale.block32", E5M2, E3M2, 32, 0, 2),
        ("mxf4.block_scale.block32", PACKED, PACKED, 32, 2, 0),
        ("mxf4nvf4.block_scale.scale_vec::2X", PACKED, PACKED, 32, 0, 2),
        ("mxf4nvf4.block_scale.block16", PACKED, PACKED, 16, 0, 0),
    ];
    let mut random = Random(2);
    for (index, (kind, a_ty, b_ty, block, byte_a, byte_b)) in kinds.into_iter().enumerate() {
        let (m, n, layout) = (128, 64, [Layout::Plain, Layout::Swizzled(128)][index % 2]);
        let (a, b) = (matrix(&mut random, m, a_ty, layout), matrix(&mut random, n, b_ty, layout));
        let is_small = kind.ends_with("block16");
        // 32 rows of 16 bytes of scale factors, in core matrices.
        let mut scales = vec![0_u8; 2048];
        for part in scales.chunks_mut(1024) {
            for byte in &mut part[..512] {
                *byte = if is_small { 0x30 + random.below(16) as u8 } else { 124 + random.below(6) as u8 };
            }
        }
        let factor = |matrix: usize, row: usize, byte: usize| {
            let (line, chunk) = (row % 32, row / 32);
            let bits = scales[matrix * 1024 + line / 8 * 128 + line % 8 * 16 + chunk * 4 + byte];
            if is_small { minifloat(bits.into(), 4, 3) } else { 2_f64.powi(i32::from(bits) - 127) }
        };
        // The core matrices of four times eight rows are 128 bytes apart.
        let image = [&a.image[..], &b.image[..], &scales[..]].concat();
        let copies = copy_scales().replace(&format!("{:#x}", Layout::Plain.descriptor()), "0x800000000");
        let is_power = u32::from(!is_small);
        let bits = byte_a << 29
            | 8 << 24
            | is_power << 23
            | (n as u32 / 8) << 17
            | b_ty.code << 10
            | a_ty.code << 7
            | byte_b << 4;
        let issue = format!(
            "{copies}
    or.b64 %rd10, %rd9, {layout:#x};
    add.u64 %rd11, %rd9, 1024;
    or.b64 %rd11, %rd11, {layout:#x};
    tcgen05.mma.cta_group::1.kind::{kind} [%r9], %rd10, %rd11, {bits:#x}, [%r15], [%r15+4], 0;",
            layout = layout.descriptor()
        );
        let mut output = vec![0; 128 * 64 * 4];
        let end = store_columns(64);
        let kernel = Kernel { columns: 128, issue: &issue, end: &end, blocks: 1 };
        kernel.run(&image, &mut output).unwrap_or_else(|fault| panic!("{kind}: {fault}"));
        for row in 0..m {
            for column in 0..n {
                let terms = a.values[row].iter().zip(&b.values[column]).enumerate().map(|(k, (x, y))| {
                    let (byte_a, byte_b) = (byte_a as usize + k / block, byte_b as usize + k / block);
                    x * factor(0, row, byte_a) * y * factor(1, column, byte_b)
                });
                let expected: f64 = terms.sum();
                let at = (row * 64 + column) * 4;
                let found = f64::from(f32::from_le_bytes(output[at..at + 4].try_into().unwrap()));
                assert!(
                    (found - expected).abs() <= expected.abs() * 1e-6,
                    "{kind} at {row}, {column}: {found}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn pairs_of_blocks_multiply_together() {
    for (m, n) in [(256, 64), (128, 64)] {
        let mut random = Random(3);
        let layout = Layout::Swizzled(128);
        let half = m / 2;
        let a: Vec<_> = (0..2).map(|_| matrix(&mut random, half, F16, layout)).collect();
        let b: Vec<_> = (0..2).map(|_| matrix(&mut random, n / 2, F16, layout)).collect();
        let mut image = Vec::new();
        for rank in 0..2 {
            let mut block = [&a[rank].image[..], &b[rank].image[..]].concat();
            block.resize(IMAGE, 0);
            image.extend(block);
        }
        let bits = (m as u32 / 16) << 24 | (n as u32 / 8) << 17 | 1 << 4;
        let issue = format!(
            "or.b64 %rd10, %rd9, {layout:#x};
    add.u64 %rd11, %rd9, 1024;
    or.b64 %rd11, %rd11, {layout:#x};
    tcgen05.mma.cta_group::2.kind::f16 [%r9], %rd10, %rd11, {bits:#x}, 0;",
            layout = layout.descriptor()
        );
        let width = if m == 128 { n / 2 } else { n };
        let end = store_columns(width as u32);
        let mut output = vec![0; 256 * width * 4];
        Kernel { columns: 64, issue: &issue, end: &end, blocks: 2 }.run(&image, &mut output).unwrap();
        for row in 0..m {
            for column in 0..n {
                let (rank, row) = (row / half, row % half);
                let (lane, at) =
                    if m == 128 { (row + column / width * 64, column % width) } else { (row, column) };
                let at = ((rank * 128 + lane) * width + at) * 4;
                let found = f32::from_le_bytes(output[at..at + 4].try_into().unwrap());
                let right = &b[column / (n / 2)].values[column % (n / 2)];
                assert_eq!(f64::from(found), dot(&a[rank].values[row], right), "{m}: {rank} {row} {column}");
            }
        }
    }
}

#[test]
fn pairs_of_blocks_read_both_copies_of_the_left_operand() {
    let mut random = Random(5);
    let layout = Layout::Plain;
    let a: Vec<_> = (0..2).map(|_| matrix(&mut random, 64, F16, layout)).collect();
    let b: Vec<_> = (0..2).map(|_| matrix(&mut random, 16, F16, layout)).collect();
    let mut image = Vec::new();
    for rank in 0..2 {
        let mut block = [&a[rank].image[..], &b[rank].image[..]].concat();
        block.resize(IMAGE, 0);
        image.extend(block);
    }
    // Each copy moves 16 bytes of each row: half of the rows to quarters 0 and 2, the others to 1
    // and 3.
    let issue = format!(
        "or.b64 %rd10, %rd9, {layout:#x};
    add.u64 %rd11, %rd9, 1024;
    or.b64 %rd11, %rd11, {layout:#x};
    add.u64 %rd12, %rd10, 8;
    add.u32 %r15, %r9, 32;
    tcgen05.cp.cta_group::2.64x128b.warpx2::02_13 [%r15], %rd10;
    tcgen05.cp.cta_group::2.64x128b.warpx2::02_13 [%r15+4], %rd12;
    tcgen05.mma.cta_group::2.kind::f16 [%r9], [%r15], %rd11, 0x8080010, 0;",
        layout = layout.descriptor()
    );
    let mut output = vec![0; 256 * 16 * 4];
    let kernel = Kernel { columns: 64, issue: &issue, end: &store_columns(16), blocks: 2 };
    kernel.run(&image, &mut output).unwrap();
    for (row, column) in (0..128).flat_map(|row| (0..32).map(move |column| (row, column))) {
        let (rank, lane) = (row / 64, row % 64 + column / 16 * 64);
        let at = ((rank * 128 + lane) * 16 + column % 16) * 4;
        let found = f32::from_le_bytes(output[at..at + 4].try_into().unwrap());
        let expected = dot(&a[rank].values[row % 64], &b[column / 16].values[column % 16]);
        assert_eq!(f64::from(found), expected, "{row}, {column}");
    }
    let other = issue.replacen("02_13 [%r15+4]", "01_23 [%r15+4]", 1);
    let found = Kernel { issue: &other, ..kernel }.run(&image, &mut output).expect_err("the copies differ");
    assert!(matches!(&found, FaultKind::Illegal(text) if text.contains("halves of the lanes")), "{found}");
}

#[test]
fn the_left_operand_may_be_in_tensor_memory() {
    let mut random = Random(4);
    let layout = Layout::Plain;
    let (a, b) = (matrix(&mut random, 128, BF16, layout), matrix(&mut random, 32, BF16, layout));
    let image = [&a.image[..], &b.image[..]].concat();
    let bits = 8 << 24 | 4 << 17 | 1 << 10 | 1 << 7 | 1 << 4;
    // A is copied to the columns from 32 on. The second dot adds to half of the first result. A
    // mask keeps lanes 32 to 63.
    let issue = format!(
        "or.b64 %rd10, %rd9, {layout:#x};
    add.u64 %rd11, %rd9, 1024;
    or.b64 %rd11, %rd11, {layout:#x};
    add.u32 %r15, %r9, 32;
    tcgen05.cp.cta_group::1.128x256b [%r15], %rd10;
    tcgen05.mma.cta_group::1.kind::f16 [%r9], [%r9+32], %rd11, {bits:#x}, 0;
    mov.b32 %r16, 0;
    mov.b32 %r17, -1;
    tcgen05.mma.cta_group::1.kind::f16 [%r9], [%r15], %rd11, {bits:#x}, {{%r16, %r17, %r16, %r16}}, 1, 1;",
        layout = layout.descriptor()
    );
    let mut output = vec![0; 128 * 32 * 4];
    Kernel { columns: 64, issue: &issue, end: &store_columns(32), blocks: 1 }
        .run(&image, &mut output)
        .unwrap();
    for row in 0..128 {
        for column in 0..32 {
            let at = (row * 32 + column) * 4;
            let found = f32::from_le_bytes(output[at..at + 4].try_into().unwrap());
            let once = dot(&a.values[row], &b.values[column]);
            let expected = if row / 32 == 1 { once } else { once / 2.0 + once };
            assert_eq!(f64::from(found), expected, "at {row}, {column}");
        }
    }
}

#[test]
fn copies_reach_the_lanes_of_their_shape() {
    // The shape, and the row that each lane receives.
    type Rows = fn(usize) -> Option<usize>;
    let shapes: [(&str, Rows); 6] = [
        ("128x256b", Some),
        ("128x128b", Some),
        ("4x256b", |lane| lane.is_multiple_of(32).then_some(lane / 32)),
        ("64x128b.warpx2::02_13", |lane| Some(lane % 64)),
        ("64x128b.warpx2::01_23", |lane| Some(lane / 64 * 32 + lane % 32)),
        ("32x128b.warpx4", |lane| Some(lane % 32)),
    ];
    let image: Vec<u8> = (0..4096_u32).flat_map(|word| (word * 7919).to_le_bytes()).collect();
    let clear = "mov.b32 %r3, 0;
    tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8], {%r3, %r3, %r3, %r3, %r3, %r3, %r3, %r3};
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;";
    for (shape, row_of) in shapes {
        let issue = format!(
            "or.b64 %rd10, %rd9, {:#x};\n    tcgen05.cp.cta_group::1.{shape} [%r9], %rd10;",
            Layout::Plain.descriptor()
        );
        let kernel = Kernel { columns: 32, issue: &issue, end: &store_columns(8), blocks: 1 };
        let text = kernel.text().replacen(
            "    @!%p2 bra ISSUED;",
            &format!("    {clear}\n    @!%p2 bra ISSUED;"),
            1,
        );
        let mut output = vec![0; 128 * 8 * 4];
        run_text(&text, 1, &image, &mut output).unwrap_or_else(|fault| panic!("{shape}: {fault}"));
        let chunks = if shape.contains("256b") { 2 } else { 1 };
        for lane in 0..128 {
            let mut expected = [0; 32];
            if let Some(row) = row_of(lane) {
                for byte in 0..16 * chunks {
                    expected[byte] = image[Layout::Plain.offset(row, byte)];
                }
            }
            assert_eq!(output[lane * 32..][..32], expected, "{shape}, lane {lane}");
        }
    }
}

#[test]
fn registers_move_to_tensor_memory_and_back() {
    // A load of one shape reads the cells that a store of another shape writes. Thread t has 100 t
    // + i in register i.
    type Place = fn(usize, usize) -> (usize, usize);
    let value = |i: usize| {
        format!("and.b32 %r{0}, %r1, 31; mul.lo.u32 %r{0}, %r{0}, 100; add.u32 %r{0}, %r{0}, {i};\n", 30 + i)
    };
    let set = (0..8).map(value).collect::<Vec<_>>().concat();
    let shapes: [(&str, Place); 3] = [
        ("16x64b.x8", |lane, column| (lane % 8 * 4 + column % 2 * 2 + lane / 8, column / 2)),
        ("16x128b.x4", |lane, column| (lane % 8 * 4 + column % 4, column / 4 * 2 + lane / 8)),
        ("16x256b.x2", |lane, column| {
            (lane % 8 * 4 + column % 8 / 2, column / 8 * 4 + lane / 8 * 2 + column % 2)
        }),
    ];
    let eight = "{%r30, %r31, %r32, %r33, %r34, %r35, %r36, %r37}";
    for (shape, place) in shapes {
        let end = format!(
            "{set}
    tcgen05.st.sync.aligned.{shape}.b32 [%r8], {eight};
    add.u32 %r14, %r8, 1048576;
    tcgen05.st.sync.aligned.{shape}.b32 [%r14], {eight};
    tcgen05.wait::st.sync.aligned;
    {}",
            store_columns(16)
        );
        let mut output = vec![0; 128 * 16 * 4];
        Kernel { columns: 32, issue: "", end: &end, blocks: 1 }.run(&[], &mut output).unwrap();
        for (index, word) in output.as_chunks::<4>().0.iter().enumerate() {
            let (lane, column) = (index / 16 % 16, index % 16);
            let (thread, register) = place(lane, column);
            assert_eq!(
                u32::from_le_bytes(*word) as usize,
                100 * thread + register,
                "{shape}: {lane} {column}"
            );
        }
    }
    // Packed: a register has the low halves of two columns.
    let end = format!(
        "{set}
    mov.b32 %r30, 0x00020001;
    tcgen05.st.sync.aligned.32x32b.x2.unpack::16b.b32 [%r8], {{%r30, %r31}};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x1.pack::16b.b32 {{%r40}}, [%r8+1];
    tcgen05.wait::ld.sync.aligned;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8+4], {{%r40}};
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8+5], {{%r40}};
    tcgen05.st.sync.aligned.32x32b.x2.b32 [%r8+6], {{%r40, 5}};
    tcgen05.wait::st.sync.aligned;
    {}",
        store_columns(8)
    );
    let mut output = vec![0; 128 * 8 * 4];
    Kernel { columns: 32, issue: "", end: &end, blocks: 1 }.run(&[], &mut output).unwrap();
    for (thread, row) in output.chunks(32).enumerate() {
        let words: Vec<u32> = row.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let low = (thread as u32 % 32 * 100 + 1) & 0xffff;
        let packed = 2 | low << 16;
        assert_eq!(words, [1, 2, low, 0, packed, packed, packed, 5], "thread {thread}");
    }
}

/// Returns the fault of a kernel on tensor memory.
fn mistake(text: &str) -> FaultKind {
    run_text(text, 1, &[], &mut vec![0; 128 * 32 * 4]).expect_err(text)
}

/// A correct dot, whose text the tests change.
fn correct() -> String {
    let issue = format!(
        "or.b64 %rd10, %rd9, {0:#x};
    add.u64 %rd11, %rd9, 1024;
    or.b64 %rd11, %rd11, {0:#x};
    tcgen05.mma.cta_group::1.kind::f16 [%r9], %rd10, %rd11, 0x8080010, 0;",
        Layout::Plain.descriptor()
    );
    Kernel { columns: 32, issue: &issue, end: &store_columns(32), blocks: 1 }.text()
}

#[test]
fn missing_synchronization_is_a_race() {
    let correct = correct();
    run_text(&correct, 1, &[], &mut vec![0; 128 * 32 * 4]).unwrap();
    let without = |part: &str| {
        assert!(correct.contains(part), "{part}");
        mistake(&correct.replacen(part, "", 1))
    };
    // The accumulators are read before the dot is complete.
    let found = without("@!%p4 bra ISSUED;");
    assert!(matches!(found, FaultKind::TensorMemoryRace { is_write: false, .. }), "{found}");
    let found = without("tcgen05.wait::ld.sync.aligned;");
    assert!(matches!(&found, FaultKind::Illegal(text) if text.contains("tcgen05.wait::ld")), "{found}");
    let found = without("fence.proxy.async.shared::cta;");
    assert!(matches!(found, FaultKind::MissingProxyFence { .. }), "{found}");
    // Mistakes: no wait for a store, and memory that is freed too early.
    let store = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8], {%r1};";
    let end = "tcgen05.fence::before_thread_sync;";
    let found = mistake(&correct.replacen(end, &format!("{store}{end}"), 1));
    assert!(matches!(found, FaultKind::TensorMemoryRace { is_write: true, .. }), "{found}");
    // An operand is overwritten before the dot is complete.
    let overwrite = "ISSUED:\n    @%p3 st.shared.b32 [%r2], %r1;";
    let found = mistake(&correct.replacen("ISSUED:", overwrite, 1));
    assert!(matches!(found, FaultKind::Race { is_write: true, .. }), "{found}");
}

#[test]
fn mistakes_of_allocation_are_faults() {
    let correct = correct();
    let changed = |from: &str, to: &str| {
        assert!(correct.contains(from), "{from}");
        mistake(&correct.replacen(from, to, 1))
    };
    let says = |found: FaultKind, part: &str| {
        assert!(matches!(&found, FaultKind::Illegal(text) if text.contains(part)), "{found}");
    };
    says(changed("@%p3 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, 32;", ""), "dealloc is missing");
    says(changed("sync.aligned.b32 %r9, 32;", "sync.aligned.b32 %r9, 64;"), "no tcgen05.alloc");
    let relinquish = "    @%p3 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n";
    says(changed("    @%p3 tcgen05.alloc", &format!("{relinquish}    @%p3 tcgen05.alloc")), "relinquish");
    // A number of columns that is known only at run time.
    says(changed("[%r7+8], 32;", "[%r7+8], %r16;"), "power of two");
    // Mistakes: lanes of another warp, and columns that are not allocated.
    says(changed("shl.b32 %r8, %r4, 21;", "mov.b32 %r8, 0;"), "the warp accesses the lanes 32 to 63");
    says(changed("0x8080010, 0;", "0x8100010, 0;"), "has not allocated");
    // A second allocation of all columns waits forever.
    let all = "[%r7+8], 512;\n    @%p3 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7+12], 32;";
    let found = changed("[%r7+8], 32;", all);
    assert!(matches!(found, FaultKind::Deadlock { .. }), "{found}");
    let found = changed("0x8080010, 0;", "0x8080010, 1;");
    assert!(matches!(found, FaultKind::UnwrittenTensorMemory { lane: 0, column: 0 }), "{found}");
    says(changed("0x8080010, 0;", "0x0080010, 0;"), "instruction descriptor");
    says(changed("or.b64 %rd9, %rd9, 0x400000000000;", ""), "version");
}

#[test]
fn a_warp_waits_until_columns_are_free() {
    // Both warps need all columns. Each stores its index and loads it again.
    let text = ".version 8.8
.target sm_103a
.address_size 64
.visible .entry kernel(.param .u64 target)
{
    .reg .b32 %r<20>; .reg .b64 %rd<8>;
    .shared .align 4 .b8 state[8];
    ld.param.u64 %rd1, [target];
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 5;
    shl.b32 %r3, %r2, 2;
    mov.u32 %r4, state;
    add.u32 %r4, %r4, %r3;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r4], 512;
    bar.warp.sync -1;
    ld.shared.b32 %r5, [%r4];
    shl.b32 %r6, %r2, 21;
    add.u32 %r6, %r6, %r5;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r6+511], {%r2};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r7}, [%r6+511];
    tcgen05.wait::ld.sync.aligned;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd2, %rd2, %rd1;
    st.global.b32 [%rd2], %r7;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 512;
    ret;
}
";
    let mut output = vec![7; 64 * 4];
    let shape = Shape { grid: [1, 1, 1], threads: 64, cluster: 1, shared_bytes: 0 };
    launch(text, &shape, vec![Argument::Output(&mut output)]).unwrap();
    let words: Vec<u32> = output.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    assert_eq!(words, [[0; 32], [1; 32]].concat());
}
