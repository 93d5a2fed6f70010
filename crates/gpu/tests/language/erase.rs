//! From the language back to tile IR: what a program computes, without a word on where.
//!
//! | language | tile IR |
//! |---|---|
//! | `convert_layout` | the value itself |
//! | a buffer that is stored to once | the value that is stored |
//! | a product by an instruction, or of single elements | `dot` |
//! | the end of an asynchronous product | the product |
//! | a reduction in each warp, and one of the parts | nothing, and the reduction of the whole tile |
//! | an atomic load, which volatile scalars become | a volatile load |
//! | all else that both have | itself, without layouts and without what is decided about it |

use smallvec::{SmallVec, smallvec};
use tilewright_base::entity::packed_option::PackedOption;
use tilewright_base::entity::{PrimaryMap, SecondaryMap};
use tilewright_gpu_ir::{Function, GpuOp, InstData, Op, Scope};
use tilewright_ir::{Block, BlockData, CacheModifier, EvictionPolicy, InputPrecision, Module, Value, verify};

use crate::{Program, text};

/// A program as tile IR.
pub struct Erased {
    /// Tile IR.
    pub module: Module,
    /// The value in tile IR of each value of the program that has one.
    pub values: SecondaryMap<Value, PackedOption<Value>>,
}

/// The tile IR of a program; none if it hands tiles from thread to thread by other means than buffers that are stored to
/// once.
pub fn erase_if_simple(program: &Program) -> Option<Erased> {
    let old = program.kernel();
    let mut new = tilewright_ir::Function::new(old.name.clone());
    new.parameters.clone_from(&old.parameters);
    let mut eraser = Eraser { old, new, values: SecondaryMap::new(), parts: SecondaryMap::new() };
    let entry = eraser.new.entry;
    eraser.block(old.entry, entry)?;
    let Eraser { new, values, .. } = eraser;
    let mut functions = PrimaryMap::new();
    let entry = functions.push(new);
    let module = Module::new(functions, entry, program.sources.clone());
    verify(&module).unwrap_or_else(|error| panic!("{error}\n{}", text(program)));
    Some(Erased { module, values })
}

/// The tile IR of a program that has one.
pub fn erase(program: &Program) -> Erased {
    erase_if_simple(program).unwrap_or_else(|| panic!("it is not simple:\n{}", text(program)))
}

struct Eraser<'a> {
    old: &'a Function,
    new: tilewright_ir::Function,
    values: SecondaryMap<Value, PackedOption<Value>>,
    /// Of a value that stands for parts of a tile that each warp has reduced: the axis.
    parts: SecondaryMap<Value, Option<u32>>,
}

impl Eraser<'_> {
    fn get(&self, old: Value) -> Option<Value> {
        self.values[old].expand()
    }

    /// Two values of the program are one in tile IR.
    fn alias(&mut self, result: Value, operand: Value) -> Option<()> {
        self.values[result] = Some(self.get(operand)?).into();
        self.parts[result] = self.parts[operand];
        Some(())
    }

    /// The transpose of a matrix.
    fn transpose(&mut self, value: Value, block: Block) -> Value {
        let op = tilewright_ir::Op::Transpose { permutation: [1, 0].into_iter().collect() };
        let tile = self.new.ty(value).clone();
        let ty = tile.with_shape(tile.shape.iter().rev().copied().collect());
        let inst = self.new.create_inst(op, smallvec![value], smallvec![], [ty], None.into());
        self.new.blocks[block].insts.push(inst);
        self.new.insts[inst].results[0]
    }

    fn block(&mut self, old: Block, new: Block) -> Option<()> {
        let function = self.old;
        for parameter in &function.blocks[old].parameters {
            let ty = function.ty(*parameter).as_registers()?.clone();
            let name = function.values[*parameter].name.clone();
            self.values[*parameter] = Some(self.new.add_parameter(new, ty, name)).into();
        }
        for inst in &function.blocks[old].insts {
            self.inst(&function.insts[*inst], new)?;
        }
        Some(())
    }

    fn inst(&mut self, data: &InstData, block: Block) -> Option<()> {
        use tilewright_ir::Op as Tile;
        let op = match data.op.clone() {
            Op::Tile(op) => op,
            Op::Gpu(GpuOp::Alloc { .. } | GpuOp::Dealloc {} | GpuOp::FenceProxy {}) => return Some(()),
            Op::Gpu(GpuOp::ConvertLayout {} | GpuOp::LocalLoad { .. } | GpuOp::WgmmaWait { .. }) => {
                return self.alias(data.results[0], data.operands[0]);
            }
            Op::Gpu(GpuOp::LocalStore {}) => {
                let [buffer, value] = data.operands[..] else { return None };
                return if self.get(buffer).is_none() { self.alias(buffer, value) } else { None };
            }
            Op::Gpu(GpuOp::Reduce { axis, scope: Scope::Warp, .. }) => {
                for (result, operand) in data.results.iter().zip(&data.operands) {
                    self.alias(*result, *operand)?;
                    self.parts[*result] = Some(axis);
                }
                return Some(());
            }
            Op::Gpu(GpuOp::Reduce { axis, scope: Scope::Block, .. }) => {
                Tile::Reduce { axis: self.parts[data.operands[0]].unwrap_or(axis) }
            }
            Op::Gpu(GpuOp::Elementwise { function, .. }) => Tile::Elementwise { function },
            Op::Gpu(GpuOp::Load { cache, eviction, volatile, .. }) => {
                Tile::Load { cache, eviction, volatile }
            }
            // A volatile load of a scalar, which one thread makes for all.
            Op::Gpu(GpuOp::AtomicLoad { .. }) => Tile::Load {
                cache: CacheModifier::Default,
                eviction: EvictionPolicy::Default,
                volatile: true,
            },
            Op::Gpu(GpuOp::Store { cache, eviction, .. }) => Tile::Store { cache, eviction },
            Op::Gpu(
                GpuOp::MmaSync { precision, max_imprecise_acc, .. }
                | GpuOp::FmaDot { precision, max_imprecise_acc },
            ) => Tile::Dot { precision, max_imprecise_acc },
            Op::Gpu(GpuOp::Wgmma { max_imprecise_acc, .. }) => {
                Tile::Dot { precision: InputPrecision::Tf32, max_imprecise_acc }
            }
            // tidy: wildcard because rings, copies and roles are more than the values that they move
            Op::Gpu(_) => return None,
        };
        // Behind what a product starts is no part of it.
        let most = if matches!(op, Tile::Dot { .. }) { 3 } else { usize::MAX };
        let mut operands: SmallVec<[Value; 4]> =
            data.operands.iter().take(most).map(|value| self.get(*value)).collect::<Option<_>>()?;
        if let Op::Gpu(gpu) = &data.op {
            for (place, operand) in operands.iter_mut().enumerate() {
                if gpu.reads_transpose(place) {
                    *operand = self.transpose(*operand, block);
                }
            }
        }
        let mut regions = smallvec![];
        for region in &data.regions {
            let new = self.new.blocks.push(BlockData::default());
            self.block(*region, new)?;
            regions.push(new);
        }
        let types: Option<Vec<_>> = data.results.iter().map(|value| self.old.ty(*value).tile()).collect();
        let inst = self.new.create_inst(op, operands, regions, types?, None.into());
        self.new.blocks[block].insts.push(inst);
        for (place, result) in data.results.iter().enumerate() {
            let made = self.new.insts[inst].results[place];
            self.new.values[made].name.clone_from(&self.old.values[*result].name);
            self.values[*result] = Some(made).into();
        }
        Some(())
    }
}
