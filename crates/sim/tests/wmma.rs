//! Compares `wmma` of every shape and type with multiplications of whole matrices.
#![allow(
    clippy::many_single_char_names,
    reason = "matrices and their extents have the names that the ISA gives them"
)]

mod common;

use common::{Random, launch, memory};
use half::{bf16, f16};

/// The format of a matrix's elements in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    S8,
    U8,
    S32,
    S4,
    B1,
}

impl Kind {
    fn bits(self) -> usize {
        match self {
            Self::B1 => 1,
            Self::S4 => 4,
            Self::S8 | Self::U8 => 8,
            Self::F16 | Self::Bf16 => 16,
            Self::Tf32 | Self::F32 | Self::S32 => 32,
            Self::F64 => 64,
        }
    }

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn value(self, bits: u64) -> f64 {
        match self {
            Self::F16 => f16::from_bits(bits as u16).to_f64(),
            Self::Bf16 => bf16::from_bits(bits as u16).to_f64(),
            Self::Tf32 | Self::F32 => f32::from_bits(bits as u32).into(),
            Self::F64 => f64::from_bits(bits),
            Self::S8 => f64::from(bits as i8),
            Self::U8 | Self::B1 => bits as f64,
            Self::S32 => f64::from(bits as i32),
            Self::S4 => f64::from((bits as i8) << 4 >> 4),
        }
    }

    /// Returns a small number that every format represents exactly.
    fn random(self, random: &mut Random) -> u64 {
        let small = (random.bits() % 8) as f32 - if self == Self::U8 { 0.0 } else { 4.0 };
        match self {
            Self::F16 => f16::from_f32(small).to_bits().into(),
            Self::Bf16 => bf16::from_f32(small).to_bits().into(),
            Self::Tf32 | Self::F32 => small.to_bits().into(),
            Self::F64 => f64::from(small).to_bits(),
            Self::S8 | Self::U8 | Self::S4 => {
                u64::from(small as i32 as u8 & if self == Self::S4 { 15 } else { 255 })
            }
            Self::S32 => (small as i32 as u32).into(),
            Self::B1 => random.bits() & 1,
        }
    }
}

/// A matrix in memory, with a stride.
struct Stored {
    kind: Kind,
    rows: usize,
    columns: usize,
    by_rows: bool,
    stride: usize,
    bytes: Vec<u64>,
}

impl Stored {
    fn new(kind: Kind, rows: usize, columns: usize, by_rows: bool) -> Self {
        let (lines, line) = if by_rows { (rows, columns) } else { (columns, rows) };
        // A gap of 32 bytes separates the lines.
        let stride = line + 256 / kind.bits();
        let bytes = vec![0; (lines * stride * kind.bits()).div_ceil(64)];
        Self { kind, rows, columns, by_rows, stride, bytes }
    }

    fn place(&self, row: usize, column: usize) -> (usize, usize) {
        let index = if self.by_rows { row * self.stride + column } else { column * self.stride + row };
        (index * self.kind.bits() / 64, index * self.kind.bits() % 64)
    }

    fn fill(mut self, random: &mut Random) -> Self {
        for row in 0..self.rows {
            for column in 0..self.columns {
                let (word, shift) = self.place(row, column);
                self.bytes[word] |= self.kind.random(random) << shift;
            }
        }
        self
    }

    fn get(&self, row: usize, column: usize) -> f64 {
        let (word, shift) = self.place(row, column);
        self.kind.value(self.bytes[word] >> shift & u64::MAX >> (64 - self.kind.bits()))
    }

    fn layout(&self) -> &'static str {
        if self.by_rows { "row" } else { "col" }
    }
}

struct Case {
    shape: (usize, usize, usize),
    factors: Kind,
    accumulator: Kind,
    registers: [usize; 3],
}

fn list(prefix: &str, count: usize) -> String {
    let names: Vec<_> = (0..count).map(|index| format!("%{prefix}{index}")).collect();
    format!("{{{}}}", names.join(", "))
}

fn check(case: &Case, layouts: [bool; 3], seed: u64) {
    let Case { shape, factors, accumulator, registers } = *case;
    let (m, n, k) = shape;
    let mut random = Random(seed);
    let mut a = Stored::new(factors, m, k, layouts[0]).fill(&mut random);
    let mut b = Stored::new(factors, k, n, layouts[1]).fill(&mut random);
    let mut c = Stored::new(accumulator, m, n, layouts[2]).fill(&mut random);
    let mut d = Stored::new(accumulator, m, n, layouts[2]);
    let (shape, f, acc) = (format!("m{m}n{n}k{k}"), factors.name(), accumulator.name());
    let width = |kind: Kind| match kind {
        Kind::F64 => "f64",
        Kind::F32 => "f32",
        _ => "b32",
    };
    let types = match factors {
        Kind::F16 => format!("{acc}.{acc}"),
        _ => format!("{acc}.{f}.{f}.{acc}"),
    };
    let operation = if factors == Kind::B1 { ".xor.popc" } else { "" };
    let [ra, rb, rc] = [list("a", registers[0]), list("b", registers[1]), list("c", registers[2])];
    let (la, lb, lc) = (a.layout(), b.layout(), c.layout());
    let text = format!(
        "
.version 8.0
.target sm_90
.address_size 64
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{{
    .reg .{factor_register} %a<8>, %b<8>;
    .reg .{result_register} %c<8>;
    .reg .b64 %pa, %pb, %pc, %pd;
    ld.param.u64 %pa, [a];
    ld.param.u64 %pb, [b];
    ld.param.u64 %pc, [c];
    ld.param.u64 %pd, [d];
    wmma.load.a.sync.aligned.{la}.{shape}.global.{f} {ra}, [%pa], {sa};
    wmma.load.b.sync.aligned.{lb}.{shape}.{f} {rb}, [%pb], {sb};
    wmma.load.c.sync.aligned.{lc}.{shape}.global.{acc} {rc}, [%pc], {sc};
    wmma.mma{operation}.sync.aligned.{la}.{lb}.{shape}.{types} {rc}, {ra}, {rb}, {rc};
    wmma.store.d.sync.aligned.{lc}.{shape}.global.{acc} [%pd], {rc}, {sc};
    ret;
}}
",
        factor_register = width(factors),
        result_register = width(accumulator),
        sa = a.stride,
        sb = b.stride,
        sc = c.stride,
    );
    let arguments =
        vec![memory(&mut a.bytes), memory(&mut b.bytes), memory(&mut c.bytes), memory(&mut d.bytes)];
    launch(&text, 1, 32, arguments).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    for row in 0..m {
        for column in 0..n {
            let product = |depth| match factors {
                Kind::B1 => f64::from(a.get(row, depth) != b.get(depth, column)),
                _ => a.get(row, depth) * b.get(depth, column),
            };
            let expected = c.get(row, column) + (0..k).map(product).sum::<f64>();
            assert_eq!(d.get(row, column), expected, "{shape} {factors:?} {layouts:?} at {row}, {column}");
        }
    }
}

const LARGE: [(usize, usize, usize); 3] = [(16, 16, 16), (8, 32, 16), (32, 8, 16)];

#[test]
fn products_of_all_shapes_and_types() {
    let mut cases = Vec::new();
    let case = |shape, factors, accumulator, registers| Case { shape, factors, accumulator, registers };
    for (shape, of_a, of_b) in [(LARGE[0], 1, 1), (LARGE[1], 0, 2), (LARGE[2], 2, 0)] {
        cases.push(case(shape, Kind::F16, Kind::F32, [8, 8, 8]));
        cases.push(case(shape, Kind::F16, Kind::F16, [8, 8, 4]));
        cases.push(case(shape, Kind::Bf16, Kind::F32, [2 << of_a, 2 << of_b, 8]));
        cases.push(case(shape, Kind::S8, Kind::S32, [1 << of_a, 1 << of_b, 8]));
        cases.push(case(shape, Kind::U8, Kind::S32, [1 << of_a, 1 << of_b, 8]));
    }
    cases.push(case((16, 16, 8), Kind::Tf32, Kind::F32, [4, 4, 8]));
    cases.push(case((8, 8, 4), Kind::F64, Kind::F64, [1, 1, 2]));
    for (index, case) in cases.iter().enumerate() {
        for layouts in 0..8 {
            check(
                case,
                [layouts & 1 == 0, layouts & 2 == 0, layouts & 4 == 0],
                (8 * index + layouts) as u64 + 1,
            );
        }
    }
    // Narrower elements have one layout.
    check(&case((8, 8, 32), Kind::S4, Kind::S32, [1, 1, 2]), [true, false, true], 201);
    check(&case((8, 8, 128), Kind::B1, Kind::S32, [1, 1, 2]), [true, false, false], 202);
}
