//! Converts a GPU program back to tile IR, without layouts and memory.
//!
//! | GPU dialect | tile IR |
//! |---|---|
//! | `convert_layout` | the value itself |
//! | a buffer with one store | the stored value |
//! | a dot by `mma.sync`, `wgmma` or `fma` | `dot` |
//! | a wait for an asynchronous dot | the dot |
//! | a reduction per warp, then one of the partial results | nothing, then the reduction of the tile |
//! | an atomic load, the lowering of volatile scalar loads | a volatile load |
//! | other ops of both dialects | the same op without layouts and attributes of the lowering |

use smallvec::{SmallVec, smallvec};
use tilewright_base::entity::packed_option::PackedOption;
use tilewright_base::entity::{PrimaryMap, SecondaryMap};
use tilewright_gpu_ir::{Function, GpuOp, InstData, Op, Scope};
use tilewright_ir::{Block, BlockData, CacheModifier, EvictionPolicy, InputPrecision, Module, Value, verify};

use crate::{Program, text};

/// A program converted to tile IR.
pub struct Erased {
    /// The tile IR.
    pub module: Module,
    /// For each program value that has one, the value in tile IR.
    pub values: SecondaryMap<Value, PackedOption<Value>>,
}

/// Converts a program to tile IR.
///
/// Returns `None` if threads exchange tiles by other means than buffers with one store.
pub fn erase_if_simple(program: &Program) -> Option<Erased> {
    let old = program.kernel();
    let mut new = tilewright_ir::Function::new(old.name.clone());
    new.parameters.clone_from(&old.parameters);
    let mut eraser = Eraser { old, new, values: SecondaryMap::new(), partial_results: SecondaryMap::new() };
    let entry = eraser.new.entry;
    eraser.block(old.entry, entry)?;
    let Eraser { new, values, .. } = eraser;
    let mut functions = PrimaryMap::new();
    let entry = functions.push(new);
    let module = Module::new(functions, entry, program.sources.clone());
    verify(&module).unwrap_or_else(|error| panic!("{error}\n{}", text(program)));
    Some(Erased { module, values })
}

/// Converts a program to tile IR; panics if [`erase_if_simple`] cannot.
pub fn erase(program: &Program) -> Erased {
    erase_if_simple(program).unwrap_or_else(|| panic!("the program has no tile IR:\n{}", text(program)))
}

struct Eraser<'a> {
    old: &'a Function,
    new: tilewright_ir::Function,
    values: SecondaryMap<Value, PackedOption<Value>>,
    /// The axis of each partial result.
    partial_results: SecondaryMap<Value, Option<u32>>,
}

impl Eraser<'_> {
    fn get(&self, old: Value) -> Option<Value> {
        self.values[old].expand()
    }

    /// Maps two values of the program to one value in tile IR.
    fn alias(&mut self, result: Value, operand: Value) -> Option<()> {
        self.values[result] = Some(self.get(operand)?).into();
        self.partial_results[result] = self.partial_results[operand];
        Some(())
    }

    /// Emits the transpose of a matrix.
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
                    self.partial_results[*result] = Some(axis);
                }
                return Some(());
            }
            Op::Gpu(GpuOp::Reduce { axis, scope: Scope::Block, .. }) => {
                Tile::Reduce { axis: self.partial_results[data.operands[0]].unwrap_or(axis) }
            }
            Op::Gpu(GpuOp::Elementwise { function, .. }) => Tile::Elementwise { function },
            Op::Gpu(GpuOp::Load { cache, eviction, volatile, .. }) => {
                Tile::Load { cache, eviction, volatile }
            }
            // One thread executes a volatile load of a scalar for all threads.
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
            // tidy: wildcard because rings, copies and partitions have no equivalent in tile IR
            Op::Gpu(_) => return None,
        };
        // The operands of a dot after the first three only order the dot.
        let max_operands = if matches!(op, Tile::Dot { .. }) { 3 } else { usize::MAX };
        let mut operands: SmallVec<[Value; 4]> =
            data.operands.iter().take(max_operands).map(|value| self.get(*value)).collect::<Option<_>>()?;
        if let Op::Gpu(gpu) = &data.op {
            for (position, operand) in operands.iter_mut().enumerate() {
                if gpu.reads_transpose(position) {
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
        for (position, result) in data.results.iter().enumerate() {
            let created = self.new.insts[inst].results[position];
            self.new.values[created].name.clone_from(&self.old.values[*result].name);
            self.values[*result] = Some(created).into();
        }
        Some(())
    }
}
