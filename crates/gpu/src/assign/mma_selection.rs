//! How each `dot` is computed: by which instruction of the tensor cores, or element by element, and in which layouts.

use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{
    Block, Dtype, Element, Function, InputPrecision, Inst, Op, OpFamily, Rounding, Type, Value,
};
use tilewright_layout::{Fragment, Layout, Mma, blocked};

use crate::assign::cost::LayoutCosts;
use crate::assign::transposed_products::is_loaded_by_columns;
use crate::assign::wgmma_selection;
use crate::cost_model;
use crate::remarks::{self, Because};
use tilewright_gpu_ir::LayoutId;
use tilewright_gpu_ir::layout_rules::{LANES, element_bits, fma_operand_layout};
use tilewright_gpu_ir::target::{Feature, GpuTarget};

/// How a product is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    /// By `mma.sync`. Operands of fp32 are rounded to tf32.
    MmaSync {
        /// The instruction.
        mma: Mma,
        /// The warps along the first axis of a batch, M and N.
        warps: [u32; 3],
    },
    /// By `wgmma`. B goes through shared memory, and A where it has no layout. Operands of fp32 lose all but the bits of tf32.
    Wgmma {
        /// The instruction.
        mma: Mma,
        /// The warps along M and N.
        warps: [u32; 2],
    },
    /// By multiplications and additions of single elements, in the type of the accumulator.
    Fma,
}

impl Product {
    /// Whether warps compute products of their own.
    pub fn is_of_parts(self) -> bool {
        matches!(self, Self::MmaSync { warps: [count, ..], .. } if count > 1)
    }
}

/// A product with its layouts.
#[derive(Clone, Copy)]
pub struct Planned {
    /// How it is computed.
    pub product: Product,
    /// The layouts of A and B in registers; none where the product reads from shared memory what may be in any layout.
    pub operands: [Option<LayoutId>; 2],
    /// Which of them a thread has registers for beside its part of the result: the others go through shared memory, from which a
    /// product loads what it needs when it needs it.
    pub fits: [bool; 2],
    /// The layout of the accumulator and of the result.
    pub accumulator: LayoutId,
}

/// All products of a function.
pub struct Products {
    planned: SecondaryMap<Inst, Option<Planned>>,
}

impl Products {
    /// Decides how each product is computed.
    pub fn new(function: &Function, target: GpuTarget, num_warps: u32, layouts: &mut LayoutCosts) -> Self {
        let places = places(function);
        let dots: Vec<Inst> = places.iter().map(|(_, inst)| *inst).collect();
        let chained = chained(function, &dots);
        let mut planned = SecondaryMap::new();
        for (block, inst) in places {
            let types = Types::of(function, inst);
            let shape = Shape3::of(&types);
            let product = if let Ok((mma, warps)) = types.wgmma(target, num_warps) {
                Product::Wgmma { mma, warps }
            } else if let Some(mma) = types.tensor_core(shape, target) {
                let first = &types.operands[0];
                let batch = if first.rank() > 2 { first.shape[0] } else { 1 };
                let warps = split_warps(mma, shape, batch, num_warps, chained.contains(inst));
                Product::MmaSync { mma, warps }
            } else {
                Product::Fma
            };
            let subject = || types.subject();
            remarks::about("mma_selection", function, inst, subject, || {
                types.because(product, target, num_warps)
            });
            let in_registers = match product {
                Product::Wgmma { .. } => {
                    let is_computed = wgmma_selection::is_computed_beside(function, inst);
                    [is_computed || is_loaded_by_columns(function, block, inst, target, num_warps), false]
                }
                Product::MmaSync { .. } | Product::Fma => [true; 2],
            };
            let (operands, accumulator) = fragments(product, &types, num_warps, in_registers);
            let words = |layout: &Layout, place: usize| {
                (layout.registers() * element_bits(&types.operands[place])).div_ceil(32)
            };
            let threads = num_warps * LANES;
            let sum = words(&accumulator, 2);
            let fits = [0, 1].map(|place: usize| {
                let Some(layout) = &operands[place] else { return true };
                let ty = &types.operands[place];
                let bytes = ty.shape.iter().product::<u32>() * element_bits(ty) / 8;
                // Where the sum itself does not fit, or there is no memory either, registers spill.
                let can_go =
                    cost_model::fits(sum, threads, target.tuning) && bytes <= target.max_shared_bytes / 2;
                !can_go || cost_model::fits(words(layout, place) + sum, threads, target.tuning)
            });
            let mut add = |layout| layouts.add(layout);
            let operands = operands.map(|layout| layout.map(&mut add));
            planned[inst] = Some(Planned { product, operands, fits, accumulator: add(accumulator) });
        }
        Self { planned }
    }

    /// A product.
    pub fn of(&self, inst: Inst) -> Option<Planned> {
        self.planned[inst]
    }
}

/// Converts operands that no instruction takes to a type that one does, and accumulators of 16 bits to fp32 where they are
/// not the tensor cores'.
pub fn convert_operands(function: &mut Function, target: GpuTarget, num_warps: u32) {
    for (block, inst) in places(function) {
        let types = Types::of(function, inst);
        let wanted = types.supported(target, num_warps);
        if wanted == types.dtypes {
            continue;
        }
        let data = function.insts[inst].clone();
        let mut before: SmallVec<[Inst; 4]> = smallvec![];
        let cast = |function: &mut Function, value: Value, dtype: Dtype| {
            if function.ty(value).dtype() == Some(dtype) {
                return None;
            }
            let op = Op::Cast { element: Element::Value(dtype), rounding: Rounding::default() };
            let ty = function.ty(value).with_dtype(dtype);
            Some(function.create_inst(op, smallvec![value], smallvec![], [ty], data.location))
        };
        let mut operands = data.operands.clone();
        for (operand, dtype) in operands.iter_mut().zip(wanted) {
            if let Some(inst) = cast(function, *operand, dtype) {
                *operand = function.insts[inst].results[0];
                before.push(inst);
            }
        }
        let result = data.results[0];
        function.insts[inst].operands = operands;
        let mut after = None;
        if wanted[2] != types.dtypes[2] {
            // The result keeps its value: the product gets a new one, which is converted to it.
            let ty = function.ty(result).with_dtype(wanted[2]);
            let product = function.create_inst(
                data.op.clone(),
                function.insts[inst].operands.clone(),
                smallvec![],
                [ty],
                data.location,
            );
            let sum = function.insts[product].results[0];
            let element = Element::Value(types.dtypes[2]);
            function.insts[inst].op = Op::Cast { element, rounding: Rounding::default() };
            function.insts[inst].operands = smallvec![sum];
            after = Some(product);
        }
        let insts = &mut function.blocks[block].insts;
        let place = insts.iter().position(|other| *other == inst).expect("the block holds the product");
        insts.splice(place..place, before.into_iter().chain(after));
    }
}

/// Whether tensor cores compute a product if its operands and sum are of these types, fp32 as tf32.
pub fn has_instruction(
    function: &Function,
    inst: Inst,
    dtypes: [Dtype; 3],
    target: GpuTarget,
    num_warps: u32,
) -> bool {
    let types = Types { precision: InputPrecision::Tf32, ..Types::of(function, inst).with(dtypes) };
    types.wgmma(target, num_warps).is_ok() || types.tensor_core(Shape3::of(&types), target).is_some()
}

/// Whether warpgroups compute a product, and its transpose.
pub fn is_of_warpgroups_either_way(
    function: &Function,
    inst: Inst,
    target: GpuTarget,
    num_warps: u32,
) -> bool {
    let types = Types::of(function, inst);
    if types.wgmma(target, num_warps).is_err() {
        return false;
    }
    let (Shape3 { m, n, k }, [a, b, sum]) = (Shape3::of(&types), types.dtypes);
    wgmma_selection::instruction([b, a, sum], types.precision, [n, m, k], target, num_warps).is_ok()
}

/// The instruction of single warps that computes a product of two matrices of 16-bit elements in fp32.
pub fn of_one_warp(function: &Function, inst: Inst, target: GpuTarget) -> Option<Mma> {
    let types = Types::of(function, inst);
    let is_half = |dtype: &Dtype| matches!(dtype, Dtype::F16 | Dtype::BF16);
    let is_known = types.dtypes[..2].iter().all(is_half) && types.dtypes[2] == Dtype::F32;
    let is_matrix = types.operands[0].rank() == 2;
    types.tensor_core(Shape3::of(&types), target).filter(|_| is_known && is_matrix)
}

/// Every product with its block.
pub fn places(function: &Function) -> Vec<(Block, Inst)> {
    let mut found = Vec::new();
    let mut blocks = vec![function.entry];
    while let Some(block) = blocks.pop() {
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            blocks.extend(data.regions.iter().copied());
            if data.op.family() == OpFamily::Dot {
                found.push((block, *inst));
            }
        }
    }
    found
}

/// The dots whose result becomes an operand of another one, those others, and the dots whose result is the accumulator of such a
/// one. When all warps lie along M, the result of one is the operand of the next in the same warp.
fn chained(function: &Function, dots: &[Inst]) -> EntitySet<Inst> {
    let mut found = EntitySet::new();
    for dot in dots {
        let made_of = products_of(function, &function.insts[*dot].operands[..2]);
        if !made_of.is_empty() {
            found.insert(*dot);
            found.extend(made_of);
        }
    }
    // Those that are added up later have their sums in the same places.
    for dot in dots.iter().rev().filter(|dot| found.contains(**dot)).copied().collect::<Vec<_>>() {
        found.extend(products_of(function, &function.insts[dot].operands[2..]));
    }
    found
}

/// The products that values are computed of, element by element.
fn products_of(function: &Function, values: &[Value]) -> Vec<Inst> {
    let mut seen: EntitySet<Value> = EntitySet::new();
    let mut stack: Vec<Value> = values.to_vec();
    let mut found = Vec::new();
    while let Some(value) = stack.pop() {
        let Some(inst) = function.defining_inst(value).filter(|_| seen.insert(value)) else { continue };
        match function.insts[inst].op.family() {
            OpFamily::Dot => found.push(inst),
            OpFamily::Pointwise | OpFamily::Identity | OpFamily::Shape => {
                stack.extend(function.insts[inst].operands.iter().copied());
            }
            // tidy: wildcard because what comes from elsewhere is no longer a part of the product
            _ => {}
        }
    }
    found
}

/// The extents along M, N and K.
#[derive(Clone, Copy)]
struct Shape3 {
    m: u32,
    n: u32,
    k: u32,
}

impl Shape3 {
    fn of(types: &Types) -> Self {
        let (a, b) = (&types.operands[0].shape, &types.operands[1].shape);
        let rank = a.len();
        Self { m: a[rank - 2], n: b[rank - 1], k: a[rank - 1] }
    }
}

struct Types {
    operands: [Type; 3],
    dtypes: [Dtype; 3],
    precision: InputPrecision,
}

impl Types {
    fn of(function: &Function, inst: Inst) -> Self {
        let data = &function.insts[inst];
        let operands = [0, 1, 2].map(|place| function.ty(data.operands[place]).clone());
        let dtypes = [0, 1, 2].map(|place: usize| {
            operands[place].dtype().expect("the verifier checks that products are of numbers")
        });
        let precision = match data.op {
            Op::Dot { precision, .. } => precision,
            // tidy: wildcard because only products come here
            _ => InputPrecision::default(),
        };
        Self { operands, dtypes, precision }
    }

    /// The types of operands and accumulator that the product is computed in.
    fn supported(&self, target: GpuTarget, num_warps: u32) -> [Dtype; 3] {
        let [a, b, accumulator] = self.dtypes;
        let has_instruction = |types: &Self| {
            types.wgmma(target, num_warps).is_ok() || types.tensor_core(Shape3::of(types), target).is_some()
        };
        if has_instruction(self) || !accumulator.is_float() {
            return self.dtypes;
        }
        // Every number of 8 bits is one of fp16.
        let wider = |dtype: Dtype| if dtype.is_fp8() { Dtype::F16 } else { dtype };
        let sum = if accumulator == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
        for dtypes in [[wider(a), wider(b), accumulator], [wider(a), wider(b), sum]] {
            if has_instruction(&self.with(dtypes)) {
                return dtypes;
            }
        }
        [sum; 3]
    }

    fn with(&self, dtypes: [Dtype; 3]) -> Self {
        let operands = [0, 1, 2].map(|place: usize| self.operands[place].with_dtype(dtypes[place]));
        Self { operands, dtypes, precision: self.precision }
    }

    /// The product as text: `dot of fp16[128, 64] x fp16[64, 128] -> fp32`.
    fn subject(&self) -> String {
        let [a, b, _] = &self.operands;
        format!("dot of {a} x {b} -> {}", self.dtypes[2])
    }

    /// The instruction that was chosen, and why no better one.
    fn because(&self, product: Product, target: GpuTarget, num_warps: u32) -> Because {
        let Shape3 { m, n, k } = Shape3::of(self);
        let name = |mma: Mma| format!("m{}n{}k{}", mma.m, mma.n, mma.k);
        let of_warps = |warps: &[u32]| match *warps {
            [1, m, n] | [m, n] => format!("{m} warps along M, {n} along N"),
            _ => format!("{} warps along the batch, {} along M, {} along N", warps[0], warps[1], warps[2]),
        };
        let no_wgmma = || self.wgmma(target, num_warps).err().unwrap_or_default();
        match product {
            Product::Wgmma { mma, warps } => {
                let reason = "four warps together compute the most, from shared memory";
                Because::done(format!("wgmma {}, {}", name(mma), of_warps(&warps)), reason)
            }
            Product::MmaSync { mma, warps } => {
                Because::done(format!("mma.sync {}, {}", name(mma), of_warps(&warps)), no_wgmma())
            }
            Product::Fma => {
                let decision = "multiplications and additions of single elements, no tensor core";
                let has_large = self.tensor_core(Shape3 { m: 64, n: 64, k: 64 }, target).is_some();
                let reason = if has_large {
                    format!("the tile is smaller than an instruction: m = {m}, n = {n}, k = {k}")
                } else if self.precision == InputPrecision::Ieee && self.dtypes[0] == Dtype::F32 {
                    "input_precision is ieee: tensor cores round fp32 to tf32".to_owned()
                } else {
                    let [a, b, sum] = self.dtypes;
                    format!("the tensor cores of {} do not take {a} x {b} -> {sum}", target.name)
                };
                Because::missed(decision, reason)
            }
        }
    }

    /// The instruction of warpgroups for these types and the warps along M and N; or why there is none.
    fn wgmma(&self, target: GpuTarget, num_warps: u32) -> Result<(Mma, [u32; 2]), &'static str> {
        if self.operands[0].rank() != 2 {
            return Err("wgmma takes matrices, and this is a batch of them");
        }
        let Shape3 { m, n, k } = Shape3::of(self);
        wgmma_selection::instruction(self.dtypes, self.precision, [m, n, k], target, num_warps)
    }

    /// The instruction for these types, if the target has one and the tiles are not smaller.
    fn tensor_core(&self, shape: Shape3, target: GpuTarget) -> Option<Mma> {
        use Dtype as D;
        let has = |feature| target.features.has(feature);
        let [a, b, accumulator] = self.dtypes;
        let has_wide = has(Feature::MmaSyncWide);
        let is_fp8 = |dtype| matches!(dtype, D::F8E5 | D::F8E4NV);
        // Of each instruction m, k and the bits of an operand; the largest k first.
        let candidates: &[(u32, u32, u32)] = match (a, b, accumulator) {
            (D::F16, D::F16, D::F32 | D::F16) | (D::BF16, D::BF16, D::F32) if has_wide => {
                &[(16, 16, 16), (16, 8, 16)]
            }
            (D::F16, D::F16, D::F32 | D::F16) if has(Feature::MmaSync) => &[(16, 8, 16)],
            (D::F32, D::F32, D::F32) if has_wide && self.precision == InputPrecision::Tf32 => {
                &[(16, 8, 32), (16, 4, 32)]
            }
            (D::I8 | D::U8, D::I8 | D::U8, D::I32) if has_wide => &[(16, 32, 8), (16, 16, 8)],
            (D::I8 | D::U8, D::I8 | D::U8, D::I32) if has(Feature::MmaSync) => &[(8, 16, 8)],
            (a, b, D::F32) if is_fp8(a) && is_fp8(b) && has(Feature::MmaSyncFp8) => &[(16, 32, 8)],
            (D::F64, D::F64, D::F64) if has_wide => &[(8, 4, 64)],
            // The others have no instruction.
            _ => &[],
        };
        let fits = |(m, k, _): &&(u32, u32, u32)| shape.m >= *m && shape.n >= 8 && shape.k >= *k;
        let (m, k, bits) = *candidates.iter().find(fits)?;
        Some(Mma::new(m, 8, k, bits))
    }
}

/// The warps along a batch, M and N: those with which a warp loads the least, without two that compute the same where possible.
fn split_warps(mma: Mma, shape: Shape3, batch: u32, num_warps: u32, is_chained: bool) -> [u32; 3] {
    let (most_m, most_n) = (shape.m / mma.m, shape.n / mma.n);
    if is_chained {
        let m = num_warps.min(most_m);
        return [1, m, num_warps / m];
    }
    let splits = (0..=num_warps.min(batch).ilog2()).flat_map(|bits| {
        let each = num_warps >> bits;
        (0..=each.ilog2()).map(move |bit| [1 << bits, each >> bit, 1 << bit])
    });
    let cost = |[batches, m, n]: &[u32; 3]| {
        let idle = (m / most_m.min(*m)) * (n / most_n.min(*n));
        (idle, batch / batches * (shape.m.div_ceil(*m) + shape.n.div_ceil(*n)))
    };
    splits.min_by_key(cost).expect("there is a warp")
}

/// The layouts of A and B, as far as they are wanted in registers, and of the accumulator.
fn fragments(
    product: Product,
    types: &Types,
    num_warps: u32,
    in_registers: [bool; 2],
) -> ([Option<Layout>; 2], Layout) {
    let shapes = [0, 1, 2].map(|place: usize| &types.operands[place].shape[..]);
    match product {
        Product::MmaSync { mma, warps } => in_fragments(mma, &warps, shapes, in_registers),
        Product::Wgmma { mma, warps } => in_fragments(mma, &warps, shapes, in_registers),
        Product::Fma => {
            let accumulator = scalar_accumulator(shapes[2], num_warps);
            let k = shapes[0][shapes[0].len() - 1];
            ([0, 1].map(|place| Some(fma_operand_layout(&accumulator, place, k))), accumulator)
        }
    }
}

fn in_fragments(
    mma: Mma,
    warps: &[u32],
    shapes: [&[u32]; 3],
    in_registers: [bool; 2],
) -> ([Option<Layout>; 2], Layout) {
    let operand = |place: usize| {
        let kind = [Fragment::A, Fragment::B][place];
        in_registers[place].then(|| mma.layout(kind, shapes[place], warps))
    };
    ([0, 1].map(operand), mma.layout(Fragment::Accumulator, shapes[2], warps))
}

/// The layout of an accumulator that is computed element by element: a square of elements a thread, so that each element of
/// an operand that a thread loads serves several products.
fn scalar_accumulator(shape: &[u32], num_warps: u32) -> Layout {
    let rank = shape.len();
    let (m, n) = (shape[rank - 2], shape[rank - 1]);
    let per_thread = (m * n / (LANES * num_warps)).max(1);
    let side = |limit: u32| limit.min(4);
    let along_n = side(n).min(per_thread);
    let along_m = side(m).min(per_thread / along_n).max(1);
    let lanes_n = (n / along_n).clamp(1, 8);
    let lanes_m = LANES / lanes_n;
    let box_of = |m: u32, n: u32| {
        let mut sizes: SmallVec<[u32; 6]> = SmallVec::from_elem(1, rank);
        (sizes[rank - 2], sizes[rank - 1]) = (m, n);
        sizes
    };
    let left_m = (m / (along_m * lanes_m)).max(1);
    let warps_m = num_warps.min(left_m);
    let order: SmallVec<[usize; 6]> = (0..rank).rev().collect();
    blocked(
        shape,
        &box_of(along_m, along_n),
        &box_of(lanes_m, lanes_n),
        &box_of(warps_m, num_warps / warps_m),
        &order,
    )
}
