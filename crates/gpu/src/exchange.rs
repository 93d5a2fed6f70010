//! The way of elements between threads, for each instruction that moves some; their places in shared memory come later.

use cranelift_entity::SecondaryMap;
use tilewright_ir::{Block, Function, Inst, Op, Value};
use tilewright_layout::{
    Access, Input, Layout, MatrixAccess, Plan, Reduction, SharedPlan, SwizzleMode, Transfer, convert, f2,
    shared_plan, swizzled,
};

use crate::plan::{Exchange, Product};
use crate::rules::element_bits;
use crate::target::{Feature, Target};

/// Bytes of a bank.
const WORD_BYTES: u32 = 4;
/// Bytes of all banks.
const LINE_BYTES: u32 = 128;
/// The parts of a scratch buffer of a reduction are aligned to this.
const COMBINE_ALIGNMENT: u32 = 16;
/// An operand that is made outside of the loop that uses it stays in registers if it takes no more 32-bit ones than this.
const MOST_OPERAND_REGISTERS: u32 = 32;

/// The exchanges of a function.
pub type Exchanges = SecondaryMap<Inst, Option<Exchange>>;

/// Plans the exchanges; all offsets are 0.
pub fn exchanges(
    function: &Function,
    layouts: &SecondaryMap<Value, Option<Layout>>,
    products: &SecondaryMap<Inst, Option<Product>>,
    target: Target,
) -> Exchanges {
    let uses = Uses::new(function, products);
    let mut planner = Planner { function, layouts, target, uses, exchanges: SecondaryMap::new() };
    planner.block(function.entry);
    planner.exchanges
}

struct Planner<'a> {
    function: &'a Function,
    layouts: &'a SecondaryMap<Value, Option<Layout>>,
    target: Target,
    uses: Uses,
    exchanges: Exchanges,
}

impl Planner<'_> {
    fn block(&mut self, block: Block) {
        for inst in &self.function.blocks[block].insts {
            let data = &self.function.insts[*inst];
            self.exchanges[*inst] = match &data.op {
                Op::Relayout {} => Some(self.relayout(data.operands[0], data.results[0], block)),
                Op::Reduce { axis } => Some(self.combine(&data.operands, *axis)),
                // tidy: wildcard because no other op moves elements between threads
                _ => None,
            };
            for region in &data.regions {
                self.block(*region);
            }
        }
    }

    fn layout(&self, value: Value) -> &Layout {
        self.layouts[value].as_ref().expect("a tile has a layout")
    }

    fn combine(&self, operands: &[Value], axis: u32) -> Exchange {
        let reduction = Reduction::along(self.layout(operands[0]), axis as usize);
        let steps = reduction.steps_of(Input::Warp).count() as u32;
        let elements = 1_u32 << (tilewright_layout::Space::bits(reduction.result.output()) + steps);
        let part = |operand: &Value| {
            let bytes = elements * element_bits(self.function.ty(*operand)) / 8;
            bytes.next_multiple_of(COMBINE_ALIGNMENT)
        };
        let bytes = if steps == 0 { 0 } else { operands.iter().map(part).sum() };
        Exchange::Combine { offset: 0, bytes }
    }

    fn relayout(&self, from: Value, to: Value, block: Block) -> Exchange {
        let (source, target) = (self.layout(from), self.layout(to));
        let bits = element_bits(self.function.ty(from));
        if self.uses.is_of_scalar_product[to] {
            let memory = Box::new(shared_plan(source, target, bits).expect("no element leaves its block"));
            return Exchange::Operand { memory, matrix: None, offset: 0 };
        }
        // There is one block in a cluster.
        let plan = convert(source, target, bits).expect("no element leaves its block");
        let Plan::Shared(plan) = plan else { return Exchange::Relayout { plan, matrix: None, offset: 0 } };
        if !self.uses.are_products[to] {
            return Exchange::Relayout { plan: Plan::Shared(plan), matrix: None, offset: 0 };
        }
        let (memory, matrix) = self.operand(source, target, bits).unwrap_or((plan, None));
        let registers = target.registers() * bits / 32;
        if self.uses.is_in_other_block(to, block) && registers <= MOST_OPERAND_REGISTERS {
            return Exchange::Relayout { plan: Plan::Shared(memory), matrix, offset: 0 };
        }
        Exchange::Operand { memory, matrix, offset: 0 }
    }

    /// A buffer for an operand of the tensor cores that `ldmatrix` loads without conflicts.
    fn operand(
        &self,
        source: &Layout,
        target: &Layout,
        bits: u32,
    ) -> Option<(Box<SharedPlan>, Option<Box<MatrixAccess>>)> {
        if !self.target.features.has(Feature::LdMatrix) {
            return None;
        }
        let shape = source.output().shape();
        let rank = shape.len();
        // Contiguous along the axis along which the source holds the widest vectors; of several along the last.
        let axis = (0..rank).max_by_key(|axis| source.vector_along(*axis).width())?;
        let order: Vec<usize> =
            [axis].into_iter().chain((0..rank).rev().filter(|other| *other != axis)).collect();
        let memory = swizzled(&shape, &order, bits, SwizzleMode::widest(shape[axis] * bits / 8));
        let matrix = target.matrix_access(&memory, bits)?;
        let access = |layout: &Layout| {
            let vector = layout.vector_in(&memory).at_most(128 / bits);
            let offsets = layout.offsets_in(&memory);
            let wavefronts = wavefronts(&offsets, vector.width(), bits);
            Access { vector, offsets, wavefronts }
        };
        let (store, load) = (access(source), access(target));
        let bytes = shape.iter().product::<u32>() * bits / 8;
        Some((Box::new(SharedPlan { memory, store, load, bytes }), Some(Box::new(matrix))))
    }
}

/// The passes of shared memory that an access of each lane takes. All accesses of a thread, and of all warps, take as many: their
/// offsets differ by an XOR with a constant, which permutes the banks.
fn wavefronts(offsets: &Transfer, width: u32, bits: u32) -> u32 {
    let (word, line) = ((WORD_BYTES * 8 / bits).max(1).ilog2(), (LINE_BYTES * 8 / bits).ilog2());
    let lanes = offsets.bases(Input::Lane);
    let together = (LINE_BYTES / (width * bits / 8).max(WORD_BYTES)).ilog2().min(lanes.len() as u32);
    let among = |mask: u32| {
        let columns = lanes[..together as usize].iter().map(|offset| offset & mask);
        f2::rank(&columns.collect::<Vec<_>>()) as u32
    };
    let (words, banks) = (u32::MAX << word, (1 << line) - (1 << word));
    // Lanes that are served together and differ in the line alone are served one after the other.
    1 << (lanes.len() as u32 - together + among(words) - among(banks))
}

/// Where values are used.
struct Uses {
    /// Values that are used as A or B of products, and as nothing else.
    are_products: SecondaryMap<Value, bool>,
    /// Values that are used as A or B of a scalar product.
    is_of_scalar_product: SecondaryMap<Value, bool>,
    /// The block of the last use.
    blocks: SecondaryMap<Value, Option<Block>>,
}

impl Uses {
    fn new(function: &Function, products: &SecondaryMap<Inst, Option<Product>>) -> Self {
        let mut uses = Self {
            are_products: SecondaryMap::with_default(true),
            is_of_scalar_product: SecondaryMap::new(),
            blocks: SecondaryMap::new(),
        };
        let mut blocks = vec![function.entry];
        while let Some(block) = blocks.pop() {
            for inst in &function.blocks[block].insts {
                let data = &function.insts[*inst];
                blocks.extend(data.regions.iter().copied());
                for (place, operand) in data.operands.iter().enumerate() {
                    uses.are_products[*operand] &= matches!(data.op, Op::Dot { .. }) && place < 2;
                    uses.is_of_scalar_product[*operand] |=
                        place < 2 && products[*inst] == Some(Product::Scalar);
                    uses.blocks[*operand] = Some(block);
                }
            }
        }
        uses
    }

    fn is_in_other_block(&self, value: Value, block: Block) -> bool {
        self.blocks[value].is_some_and(|other| other != block)
    }
}
