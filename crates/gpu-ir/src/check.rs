//! Checks single instructions: types, layouts and sizes of buffers.

use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{ElementwiseFn, OpFamily, Operation, RegionTypes, RuleInput, ScaledFormats, Value};
use tilewright_layout::{Fragment, Input, Layout, Mma};

use super::attributes::MmaShape;
use super::header::Header;
use super::ops::{GpuOp, Op};
use super::tensor_memory::TensorMemory;
use super::types::{Buffer, Type};
use super::{Function, InstData};
use crate::layout_rules::{element_bits, fma_operand_layout, operand_layout, renames_registers, rows};
use crate::target::{ACCESS_BYTES, Feature, MAX_PARTITIONS};
use crate::warp_instructions::{can_use_ldmatrix, warps_of_dot};

mod buffers;
mod clusters;
mod reductions;
mod results;
mod shapes;
mod tensor_maps;
mod tensor_memory;
mod wgmma;

type Check = Result<(), String>;

/// Checks an instruction.
pub fn instruction(header: &Header, function: &Function, inst: &InstData) -> Check {
    let checker = Checker { header, function, inst };
    for value in &inst.results {
        checker.value_type(*value)?;
    }
    for region in &inst.regions {
        function.blocks[*region].parameters.iter().try_for_each(|value| checker.value_type(*value))?;
    }
    match &inst.op {
        Op::Tile(op) => checker.tile_op(op),
        Op::Gpu(op) => {
            checker.arity(op)?;
            checker.gpu_op(op)
        }
    }
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(message()) }
}

fn ensure_holds(buffer: &Buffer, tile: &ir::Type) -> Check {
    ensure(buffer.tile() == *tile, || format!("a buffer for {} does not hold {tile}", buffer.tile()))
}

struct Checker<'a> {
    header: &'a Header,
    function: &'a Function,
    inst: &'a InstData,
}

impl<'a> Checker<'a> {
    fn ty(&self, value: Value) -> &'a Type {
        self.function.ty(value)
    }

    fn operand(&self, index: usize) -> &'a Type {
        self.ty(self.inst.operands[index])
    }

    fn layout(&self, ty: &Type) -> Option<&'a Layout> {
        ty.layout().map(|id| self.header.layouts.get(id))
    }

    fn name(&self) -> &'static str {
        self.inst.op.name()
    }

    fn results(&self, expected: &[Type]) -> Check {
        self.function.check_types(&self.inst.results, expected, &format!("the results of {}", self.name()))
    }

    /// Checks that the header lists a value's layout, and that it fits the tile. A layout of
    /// registers distributes the tile over the warps of the block or a partition. A layout of
    /// memory maps offsets to elements.
    fn value_type(&self, value: Value) -> Check {
        let ty = self.ty(value);
        ty.as_tensor_memory().map_or(Ok(()), TensorMemory::check)?;
        let Some(id) = ty.layout() else { return Ok(()) };
        ensure(self.header.layouts.contains(id), || format!("{id} is not a layout of the module"))?;
        let (layout, tile) =
            (self.header.layouts.get(id), ty.tile().expect("a type with a layout has a tile"));
        ensure(layout.output().shape()[..] == tile.shape[..], || format!("{id} is not a layout for {tile}"))?;
        ensure(layout.is_surjective(), || format!("{ty}: the layout lacks some elements"))?;
        let is_memory = matches!(ty, Type::Buffer(_) | Type::Ring(_) | Type::Empty(_) | Type::Full(_));
        let found = [Input::Lane, Input::Warp].map(|input| layout.bits_of(input));
        let offsets = layout.bits_of(Input::Offset) as usize;
        if is_memory {
            let fits = layout.is_injective() && offsets == layout.columns().len();
            ensure(fits, || format!("{ty}: {id} is not a layout of memory"))
        } else {
            let is_for_threads = found[0] == 5 && self.may_be_for(1 << found[1]);
            let fits = is_for_threads && offsets == 0 && layout.bits_of(Input::Block) == 0;
            ensure(fits, || format!("{ty}: {id} is not for {} warps", self.header.num_warps))?;
            ensure(layout.free_bits(Input::Register) == 0, || {
                format!("{ty}: a thread holds an element twice")
            })
        }
    }

    /// Returns whether the block or some partition has `count` warps. The check of
    /// `warp_specialize` compares layouts with each partition.
    fn may_be_for(&self, count: u32) -> bool {
        let is_partition = |inst: &InstData| match &inst.op {
            Op::Gpu(GpuOp::WarpSpecialize { warps, .. }) => warps.contains(&i64::from(count)),
            Op::Gpu(_) | Op::Tile(_) => false,
        };
        count == self.header.num_warps || self.function.insts.values().any(is_partition)
    }

    fn arity(&self, op: &GpuOp) -> Check {
        self.padding(op)?;
        let info = op.info();
        info.check_operand_count(self.inst.operands.len())?;
        let regions = self.inst.regions.len();
        let fits = info.regions == ir::ANY_REGIONS || info.regions == regions;
        ensure(fits, || format!("{} has {} regions, found {regions}", info.name, info.regions))?;
        if results::gives_nothing(op) { self.results(&[]) } else { Ok(()) }
    }

    fn registers(&self, index: usize) -> Result<&'a ir::Type, String> {
        let ty = self.operand(index);
        ty.as_registers().ok_or_else(|| format!("{} takes a value in registers, found {ty}", self.name()))
    }

    fn memory(&self, index: usize) -> Result<&'a Buffer, String> {
        let ty = self.operand(index);
        let memory = ty.as_memory().filter(|buffer| buffer.slots == 1);
        memory.ok_or_else(|| format!("{} takes a buffer of one slot, found {ty}", self.name()))
    }

    fn barriers(&self, index: usize) -> Check {
        let Type::Mbarrier { .. } = self.operand(index) else {
            return Err(format!("{} takes barriers, found {}", self.name(), self.operand(index)));
        };
        match self.inst.operands.get(index + 1) {
            Some(slot) => self.index(*slot),
            None => Ok(()),
        }
    }

    fn index(&self, value: Value) -> Check {
        let is_index = *self.ty(value) == Type::scalar(ir::Type::scalar(ir::Dtype::I32));
        ensure(is_index, || format!("an index must be an int32, found {}", self.ty(value)))
    }

    fn same_layouts(&self, values: &[Value]) -> Check {
        let Some((first, rest)) = values.split_first() else { return Ok(()) };
        let layout = self.ty(*first).layout();
        let other = rest.iter().find(|value| self.ty(**value).layout() != layout);
        ensure(other.is_none(), || {
            let types: Vec<&Type> = values.iter().map(|value| self.ty(*value)).collect();
            format!("the operands of {} have different layouts: {types:?}", self.name())
        })
    }

    /// Returns the types of the results by the rule of tile IR.
    fn tile_results(&self, op: &ir::Op) -> Result<Vec<ir::Type>, String> {
        let may_be_moved = op.family() == OpFamily::Movement;
        let types = |values: &[Value]| -> Result<Vec<ir::Type>, String> {
            let tile = |value: &Value| {
                let ty = self.ty(*value);
                let moved = || ty.as_memory().filter(|_| may_be_moved).map(Buffer::tile);
                ty.as_registers()
                    .cloned()
                    .or_else(moved)
                    .ok_or_else(|| format!("{} takes values in registers, found {ty}", self.name()))
            };
            values.iter().map(tile).collect()
        };
        let regions: Result<Vec<RegionTypes>, String> = self
            .inst
            .regions
            .iter()
            .map(|region| {
                let parameters = types(&self.function.blocks[*region].parameters)?;
                Ok(RegionTypes { parameters, yields: types(self.function.yielded(*region))? })
            })
            .collect();
        let operands = types(&self.inst.operands)?;
        let input = RuleInput { operands: &operands, regions: &regions? };
        op.result_types(&input).map_err(|error| error.message)
    }

    /// Checks that the results are in registers and have these tiles.
    fn tiles(&self, expected: &[ir::Type]) -> Check {
        let found: Vec<Option<&ir::Type>> =
            self.inst.results.iter().map(|value| self.ty(*value).as_registers()).collect();
        ensure(found == expected.iter().map(Some).collect::<Vec<_>>(), || {
            format!("{} has results {found:?}, but its type rule gives {expected:?}", self.name())
        })
    }

    fn tile_op(&self, op: &ir::Op) -> Check {
        let family = op.family();
        if let OpFamily::Loop | OpFamily::Branch | OpFamily::Terminator = family {
            return self.control(op);
        }
        self.tiles(&self.tile_results(op)?)?;
        let refuse = || Err(format!("{} exists only in tile IR", op.name()));
        match family {
            OpFamily::Pointwise if matches!(op, ir::Op::Elementwise { .. }) => refuse(),
            OpFamily::Pointwise => {
                let values: SmallVec<[Value; 4]> =
                    self.inst.operands.iter().chain(&self.inst.results).copied().collect();
                self.same_layouts(&values)
            }
            OpFamily::Shape => self.shape_op(op),
            OpFamily::Movement => self.movement(),
            OpFamily::Check => self.same_layouts(&self.inst.operands),
            OpFamily::Scan if !matches!(op, ir::Op::Scan { .. }) => {
                self.same_layouts(&[self.inst.operands[0], self.inst.results[0]])
            }
            // The lowering of conversions replaces a `histogram` by `local_histogram`.
            OpFamily::Reduction if matches!(op, ir::Op::Histogram { .. }) => {
                self.same_layouts(&self.inst.operands)
            }
            OpFamily::Scalar | OpFamily::Source | OpFamily::Barrier => Ok(()),
            OpFamily::Load
            | OpFamily::Store
            | OpFamily::Atomic
            | OpFamily::Dot
            | OpFamily::Reduction
            | OpFamily::Scan
            | OpFamily::Identity
            | OpFamily::Promise
            | OpFamily::Memory
            | OpFamily::Partitions
            | OpFamily::Call
            | OpFamily::Loop
            | OpFamily::Branch
            | OpFamily::Terminator => refuse(),
        }
    }

    /// Checks that the source is in registers, or in a row-major buffer after the lowering. The
    /// indices have the layout of the result.
    fn movement(&self) -> Check {
        let moved = self.operand(0);
        let values: SmallVec<[Value; 4]> =
            self.inst.operands[1..].iter().chain(&self.inst.results).copied().collect();
        self.same_layouts(&values)?;
        if moved.as_registers().is_some() {
            return Ok(());
        }
        let memory = self.header.layouts.get(self.memory(0)?.layout);
        let is_readable = !matches!(moved, Type::Empty(_)) && *memory == rows(&memory.output().shape());
        ensure(is_readable, || format!("{} takes a row-major buffer, found {moved}", self.name()))
    }

    /// Checks that each register of the result is a register of the operand.
    fn shape_op(&self, op: &ir::Op) -> Check {
        let (operand, result) = (self.operand(0), self.ty(self.inst.results[0]));
        let (Some(found), Some(layout)) = (self.layout(operand), self.layout(result)) else { return Ok(()) };
        let tile = operand.tile().expect("it has a layout");
        if let ir::Op::Slice { starts, steps, shape } = op {
            ensure(renames_registers(&tile.shape, starts, steps, shape), || {
                format!(
                    "{} renames registers, but the selected elements of {operand} do not fill whole registers",
                    op.name()
                )
            })?;
        }
        let wanted = operand_layout(op, &tile, layout).expect("neither is a scalar");
        ensure(wanted == *found, || format!("{} cannot make {result} of {operand}", op.name()))
    }

    fn control(&self, op: &ir::Op) -> Check {
        let inst = self.inst;
        let same = |values: &[Value]| -> Check {
            let results: Vec<Type> = inst.results.iter().map(|value| self.ty(*value).clone()).collect();
            self.function.check_types(values, &results, &format!("the carried values of {}", op.name()))
        };
        let is_bool = |value: Option<&Value>| {
            ensure(
                value.is_some_and(|value| *self.ty(*value) == Type::scalar(ir::Type::scalar(ir::Dtype::I1))),
                || format!("the condition of {} must be a scalar int1", op.name()),
            )
        };
        let parameters = |region: usize| &self.function.blocks[inst.regions[region]].parameters[..];
        let yielded = |region: usize| self.function.yielded(inst.regions[region]);
        let (regions, operands) = match op {
            ir::Op::For { .. } => (1, 3),
            ir::Op::While {} => (2, 0),
            ir::Op::If {} => (2, 1),
            // tidy: wildcard because terminators are checked with the instruction that has the region
            _ => (0, 0),
        };
        let fits = inst.regions.len() == regions && inst.operands.len() >= operands;
        ensure(fits, || format!("{} takes {operands} operands and {regions} regions", op.name()))?;
        match op {
            ir::Op::For { .. } => {
                let bound = self.registers(0)?;
                let is_int = bound.dtype().is_some_and(|dtype| dtype.is_int() && !dtype.is_bool());
                ensure(is_int && bound.is_scalar(), || {
                    format!("a bound of a loop must be a scalar integer, found {bound}")
                })?;
                let [index, carried @ ..] = parameters(0) else {
                    return Err("the body of a loop must take its index".into());
                };
                let bounds = [inst.operands[1], inst.operands[2], *index];
                let same_bounds = bounds.iter().all(|value| self.ty(*value) == self.operand(0));
                ensure(same_bounds, || "the bounds and the index of a loop must have one type".into())?;
                same(&inst.operands[3..])?;
                same(carried)?;
                same(yielded(0))
            }
            ir::Op::While {} => {
                same(&inst.operands)?;
                same(parameters(0))?;
                is_bool(yielded(0).first().filter(|_| yielded(0).len() == 1))?;
                same(parameters(1))?;
                same(yielded(1))
            }
            ir::Op::If {} => {
                is_bool(inst.operands.first())?;
                (0..2).try_for_each(|region| same(yielded(region)))
            }
            // tidy: wildcard because terminators are checked with the instruction that has the region
            _ => self.results(&[]),
        }
    }

    fn atomic(&self, op: &GpuOp) -> Check {
        let (op, axis, width) = match *op {
            GpuOp::AtomicRmw { kind, sem, scope, axis, width, .. } => {
                (ir::Op::AtomicRmw { kind, sem, scope }, axis, width)
            }
            GpuOp::AtomicCas { sem, scope, .. } => (ir::Op::AtomicCas { sem, scope }, 0, 1),
            GpuOp::AtomicLoad { sem, scope, .. } => (ir::Op::AtomicLoad { sem, scope }, 0, 1),
            GpuOp::AtomicStore { sem, scope } => (ir::Op::AtomicStore { sem, scope }, 0, 1),
            GpuOp::AtomicPoll { sem, scope, .. } => (ir::Op::AtomicPoll { sem, scope }, 0, 1),
            // tidy: wildcard because the caller passes only atomic ops
            _ => return Ok(()),
        };
        self.tiles(&self.tile_results(&op)?)?;
        self.access(self.inst.operands.iter().chain(&self.inst.results), axis, width)
    }

    /// Checks the optional operand `after`, a tile of 32-bit elements.
    fn dependence(&self, index: usize) -> Check {
        if self.inst.operands.len() <= index {
            return Ok(());
        }
        let dependence = self.registers(index)?;
        ensure(element_bits(dependence) == 32, || {
            format!("{} must wait for a tile of 32-bit elements, found {dependence}", self.inst.op.name())
        })
    }

    fn named_barrier(&self, barrier: u32, threads: u32) -> Check {
        let most = self.header.num_warps * 32;
        let fits = (1..16).contains(&barrier) && threads.is_multiple_of(32) && threads <= most;
        ensure(fits, || {
            let found = format!("{barrier} and {threads}");
            format!("named_barrier takes ids 1 to 15 and whole warps, at most {most} threads, found {found}")
        })
    }

    fn gpu_op(&self, op: &GpuOp) -> Check {
        match op {
            GpuOp::ConvertLayout {} => {
                self.tiles(&[self.registers(0)?.clone()])?;
                ensure(self.operand(0).layout().is_some(), || "convert_layout takes a tile".into())
            }
            GpuOp::Elementwise { function, .. } => self.elementwise(*function),
            GpuOp::Rescale {} => self.elementwise(ElementwiseFn::Mul),
            GpuOp::Load { cache, eviction, volatile, axis, width, .. } => {
                let (cache, eviction, volatile) = (*cache, *eviction, *volatile);
                self.tiles(&self.tile_results(&ir::Op::Load { cache, eviction, volatile })?)?;
                self.access(self.inst.operands.iter().chain(&self.inst.results), *axis, *width)
            }
            GpuOp::Store { cache, eviction, axis, width } => {
                self.tile_results(&ir::Op::Store { cache: *cache, eviction: *eviction })?;
                self.results(&[])?;
                self.access(&self.inst.operands, *axis, *width)
            }
            GpuOp::AtomicRmw { .. }
            | GpuOp::AtomicCas { .. }
            | GpuOp::AtomicLoad { .. }
            | GpuOp::AtomicStore { .. }
            | GpuOp::AtomicPoll { .. } => self.atomic(op),
            GpuOp::Reduce { axis, scope, redux } => self.reduce(*axis, *scope, *redux),
            GpuOp::Scan { axis, reverse, scope } => self.scan(*axis, *reverse, *scope),
            GpuOp::ScanCarry { axis, .. } => self.scan_carry(*axis),
            GpuOp::MmaSync { instruction, warps, matrix_a, matrix_b, .. } => {
                self.mma(*instruction, warps, false)?;
                self.fragment_loads(*instruction, warps, [*matrix_a, *matrix_b])
            }
            GpuOp::FmaDot { .. } => self.fma_dot(),
            GpuOp::Alloc { .. } => self.alloc(),
            GpuOp::Dealloc {} => match self.operand(0) {
                Type::Buffer(_) | Type::Ring(_) | Type::Mbarrier { .. } | Type::TensorMemory(_) => Ok(()),
                other => Err(format!("dealloc takes memory, found {other}")),
            },
            GpuOp::Slot {} => self.slot(),
            GpuOp::View {} => self.view(),
            GpuOp::LocalStore {} => {
                ensure(!matches!(self.operand(0), Type::Full(_)), || {
                    "local_store writes a full slot".into()
                })?;
                ensure_holds(self.memory(0)?, self.registers(1)?)
            }
            GpuOp::LocalHistogram {} => self.local_histogram(),
            GpuOp::LocalLoad { matrix } => self.local_load(*matrix),
            GpuOp::Tcgen05Alloc { .. }
            | GpuOp::Tcgen05Dealloc { .. }
            | GpuOp::TmemLoad {}
            | GpuOp::TmemStore {}
            | GpuOp::Tcgen05Mma { .. }
            | GpuOp::Tcgen05MmaScaled { .. }
            | GpuOp::Tcgen05Copy {}
            | GpuOp::Tcgen05Commit { .. } => self.tensor_memory_op(op),
            GpuOp::Wgmma { instruction, warps, .. } => self.wgmma(op, *instruction, warps),
            GpuOp::WgmmaInit {} => self.wgmma_init(),
            GpuOp::WgmmaWait { .. } | GpuOp::WgmmaWaitEarlier { .. } => self.wgmma_wait(),
            GpuOp::CopyAsync { axis, width, .. } => self.copy_async(*axis, *width),
            GpuOp::MbarrierInit { .. }
            | GpuOp::MbarrierInvalidate {}
            | GpuOp::MbarrierExpect { .. }
            | GpuOp::MbarrierArriveTimes { .. }
            | GpuOp::MbarrierArrive {}
            | GpuOp::MbarrierArriveCopies {}
            | GpuOp::MbarrierTrackCopies {} => self.barriers(0),
            GpuOp::MbarrierWait {} => {
                self.barriers(0)?;
                self.index(self.inst.operands[2])
            }
            GpuOp::TensorLoad {} => {
                self.barriers(2)?;
                self.tensor_copy(4)
            }
            GpuOp::TensorStore {} => self.tensor_copy(2),
            GpuOp::TensorReduce { kind } => self.tensor_reduce(*kind),
            GpuOp::TensorBox {} => self.tensor_box(),
            GpuOp::MakeTensorMap { map } => self.make_tensor_map(*map),
            GpuOp::TensorFill {} => self.tensor_fill(),
            GpuOp::NamedBarrier { barrier, threads } => self.named_barrier(*barrier, *threads),
            GpuOp::WarpSpecialize { warps, registers } => self.warp_specialize(warps, registers),
            GpuOp::Acquire {} | GpuOp::Take {} | GpuOp::Publish {} | GpuOp::Release {} => self.ring_op(op),
            GpuOp::CommitGroup {}
            | GpuOp::WaitGroup { .. }
            | GpuOp::TensorStoreWait { .. }
            | GpuOp::FenceGlobal {} => Ok(()),
            GpuOp::FenceProxy {} => {
                (0..self.inst.operands.len()).try_for_each(|slot| self.memory(slot).map(drop))
            }
            GpuOp::ClcTryCancel { multicast } => self.try_cancel(*multicast),
            GpuOp::ClcLoadResult { blocks } => self.load_result(*blocks),
            GpuOp::GatherBlocks { .. }
            | GpuOp::TensorLoadTo { .. }
            | GpuOp::MbarrierArriveAt { .. }
            | GpuOp::MulticastLoads {}
            | GpuOp::ClusterArrive {}
            | GpuOp::ClusterWait {} => self.cluster_op(op),
        }
    }

    /// Checks a load from a buffer; with `matrix`, by `ldmatrix`.
    fn local_load(&self, matrix: bool) -> Check {
        ensure(!matches!(self.operand(0), Type::Empty(_)), || "local_load reads an empty slot".into())?;
        let buffer = self.memory(0)?;
        self.tiles(&[buffer.tile()])?;
        let result = self.ty(self.inst.results[0]);
        let is_there = || {
            let memory = self.header.layouts.get(buffer.layout);
            let access = self.layout(result)?.matrix_access(memory, element_bits(&buffer.tile()))?;
            self.header.target.features.has(Feature::LdMatrix).then_some(access)
        };
        ensure(!matrix || is_there().is_some(), || {
            format!("ldmatrix does not load {result} from {}", self.operand(0))
        })
    }

    /// Checks that `ldmatrix` can load each operand for which `by_matrix` is set.
    fn fragment_loads(&self, shape: MmaShape, warps: &[i64], by_matrix: [bool; 2]) -> Check {
        let warps = warps_of_dot(warps).ok_or("a dot must have counts of warps")?;
        by_matrix.into_iter().enumerate().try_for_each(|(index, by_matrix)| {
            let operand = self.operand(index);
            let is_there = || can_use_ldmatrix(self.header, operand, index, shape, warps);
            ensure(!by_matrix || is_there(), || format!("ldmatrix does not load a fragment of {operand}"))
        })
    }

    fn elementwise(&self, function: ElementwiseFn) -> Check {
        self.tiles(&self.tile_results(&ir::Op::Elementwise { function })?)?;
        let values: SmallVec<[Value; 4]> =
            self.inst.operands.iter().chain(&self.inst.results).copied().collect();
        self.same_layouts(&values)
    }

    /// Checks that the pointers' layout allows accesses of `width` elements along an axis.
    fn access<'v>(&self, values: impl IntoIterator<Item = &'v Value>, axis: u32, width: u32) -> Check {
        let is_global = matches!(self.inst.op, Op::Gpu(GpuOp::Load { .. } | GpuOp::Store { .. }));
        let max_bytes = if is_global { self.header.target.access_bytes() } else { ACCESS_BYTES };
        let values: SmallVec<[Value; 4]> = values.into_iter().copied().collect();
        self.same_layouts(&values)?;
        let ty = self.ty(values[0]);
        let tile = ty.as_registers().expect("the rule says so");
        let bytes = tile.element.pointee().map_or(1, ir::Dtype::bytes) as u32;
        let widest = match self.layout(ty) {
            Some(layout) if (axis as usize) < tile.rank() => layout.vector_along(axis as usize).width(),
            Some(_) => 0,
            None => 1,
        };
        ensure(width.is_power_of_two() && width <= widest && width * bytes <= max_bytes.max(bytes), || {
            format!("{} cannot move {width} elements of {ty} along axis {axis} at once", self.name())
        })
    }

    fn alloc(&self) -> Check {
        let types: SmallVec<[&Type; 1]> = self.inst.results.iter().map(|value| self.ty(*value)).collect();
        match types[..] {
            [Type::Buffer(_) | Type::Ring(_) | Type::Mbarrier { .. } | Type::TensorMemory(_)] => Ok(()),
            _ => Err(format!("alloc makes memory, found {types:?}")),
        }
    }

    fn copy_async(&self, axis: u32, width: u32) -> Check {
        let (buffer, pointer) = (self.memory(0)?, self.registers(1)?);
        let copied = pointer.element.pointee().map(ir::Element::Value);
        ensure(copied == Some(buffer.element) && pointer.shape == buffer.shape, || {
            format!("a buffer for {} is not filled from {pointer}", buffer.tile())
        })?;
        if let Some(mask) = self.inst.operands.get(2) {
            let mask = self.ty(*mask).as_registers();
            ensure(mask == Some(&pointer.with_dtype(ir::Dtype::I1)), || format!("{mask:?} is not a mask"))?;
        }
        self.access(&self.inst.operands[1..], axis, width)?;
        let bytes = width * buffer.element.bytes() as u32;
        ensure(matches!(bytes, 4 | 8 | 16), || format!("copy_async moves 4, 8 or 16 bytes, found {bytes}"))?;
        let layout = self.layout(self.operand(1)).ok_or("copy_async takes tiles")?;
        let memory = self.header.layouts.get(buffer.layout);
        let contiguous = layout.vector_in(memory).width().min(buffer.padding.max_vector());
        ensure(contiguous >= width, || {
            format!(
                "{contiguous} elements that a thread copies are contiguous in the buffer, {width} are \
                 required"
            )
        })?;
        // Elements that are contiguous in the buffer must be contiguous in global memory.
        let offsets = layout.offsets_in(memory);
        let registers = layout.vector_along(axis as usize).at_most(width).registers(0);
        let offset = |register: u32| offsets.at(&[(Input::Register, register)]);
        let is_one_run = (0..).zip(&registers).all(|(index, register)| offset(*register) == index);
        ensure(is_one_run, || {
            format!("elements that are contiguous along axis {axis} are not contiguous in the buffer")
        })
    }

    /// Checks a dot. Each operand has the layout of its fragment, or is in shared memory. Before
    /// barriers are inserted, `wgmma` operands may have any layout.
    fn mma(&self, shape: MmaShape, warps: &[i64], is_async: bool) -> Check {
        let Some(warps) = warps_of_dot(warps) else {
            return Err("the warps must be counts along M and N, or along a batch, M and N".into());
        };
        let [batches, m, n] = warps;
        let acc = self.operand(2);
        let layout = self.layout(acc).ok_or_else(|| format!("{acc} is not an operand of a dot"))?;
        let count = 1 << layout.bits_of(Input::Warp);
        let found = m.checked_mul(n).and_then(|found| found.checked_mul(batches));
        ensure(found == Some(count), || {
            format!("a dot of {batches} x {m} x {n} warps has an accumulator for {count} warps")
        })?;
        let tiles = self.dot_tiles()?;
        let is_batch = tiles[0].rank() > 2 && tiles[0].shape[0] >= batches;
        ensure(batches == 1 || is_batch, || format!("{} is not a batch of {batches} dots", tiles[0]))?;
        let bits = element_bits(&tiles[0]);
        let mma = Mma::new(shape.m, shape.n, shape.k, bits);
        ensure(shapes::is_instruction(mma, &tiles, warps, is_async), || {
            format!("{} has no {mma:?} for {} and {} by {m} x {n} warps", self.name(), tiles[0], tiles[1])
        })?;
        // Before conversions are lowered, operands of `wgmma` may be in registers in any layout.
        // The header records only the later insertion of barriers.
        let n_first = mma.is_n_first(layout, warps);
        let may_be_anywhere = is_async && !self.header.synchronized;
        for (index, fragment) in [Fragment::A, Fragment::B].into_iter().enumerate() {
            match self.operand(index) {
                Type::Registers { .. } if may_be_anywhere => {}
                Type::Registers { .. } if is_async && index == 1 => {
                    return Err("wgmma must read B from shared memory".into());
                }
                ty @ Type::Registers { .. } => self.fragment(mma, fragment, ty, (warps, n_first))?,
                Type::Buffer(buffer) | Type::Full(buffer) if buffer.slots == 1 => {}
                other => return Err(format!("a dot cannot read {other}")),
            }
        }
        self.fragment(mma, Fragment::Accumulator, acc, (warps, n_first))?;
        match acc {
            Type::Registers { tile, layout: Some(layout) } | Type::Pending { tile, layout } if is_async => {
                self.results(&[Type::Pending { tile: tile.clone(), layout: *layout }])
            }
            other => self.results(std::slice::from_ref(other)),
        }
    }

    /// Returns the tiles of A, B and the accumulator after transposes. Fails if no dot combines
    /// them.
    fn dot_tiles(&self) -> Result<[ir::Type; 3], String> {
        let mut tiles: SmallVec<[ir::Type; 3]> = SmallVec::new();
        for index in 0..3 {
            let ty = self.operand(index);
            let mut tile = ty.tile().ok_or_else(|| format!("{} takes tiles, found {ty}", self.name()))?;
            if self.inst.op.as_gpu().is_some_and(|op| op.reads_transpose(index)) {
                tile = tile.with_shape(tile.shape.iter().rev().copied().collect());
            }
            tiles.push(tile);
        }
        let [mut a, mut b, acc]: [ir::Type; 3] = tiles.into_inner().expect("there are three");
        self.narrow([&mut a, &mut b], &acc)?;
        let mut operands: SmallVec<[ir::Type; 5]> = [a, b, acc].into_iter().collect();
        let op = match self.scaled_formats() {
            Some(ScaledFormats([a_format, b_format])) => {
                operands.extend([self.registers(3)?.clone(), self.registers(4)?.clone()]);
                ir::Op::DotScaled { a_format, b_format }
            }
            None => ir::Op::Dot { precision: ir::InputPrecision::default(), max_imprecise_acc: 0 },
        };
        op.result_types(&RuleInput { operands: &operands, regions: &[] }).map_err(|error| error.message)?;
        operands.truncate(3);
        let mut tiles = operands.into_iter();
        Ok(std::array::from_fn(|_| tiles.next().expect("there are three tiles")))
    }

    fn fragment(&self, mma: Mma, fragment: Fragment, ty: &Type, (warps, n_first): ([u32; 3], bool)) -> Check {
        let layout = self.layout(ty).ok_or_else(|| format!("{ty} is not an operand of a dot"))?;
        let shape = layout.output().shape();
        let wanted = mma.layout_by(fragment, &shape, warps, n_first);
        ensure(wanted == *layout, || format!("{ty} is not the {fragment:?} of {mma:?}"))
    }

    /// Checks that operands are in shared memory, or in registers before conversions are lowered.
    fn fma_dot(&self) -> Check {
        let [a, ..] = self.dot_tiles()?;
        let accumulator = self.layout(self.operand(2)).ok_or("fma_dot takes tiles")?;
        for index in 0..2 {
            let ty = self.operand(index);
            if ty.as_registers().is_none() {
                self.memory(index)?;
                continue;
            }
            let wanted = fma_operand_layout(accumulator, index, a.shape[a.rank() - 1]);
            ensure(self.layout(ty) == Some(&wanted), || {
                format!("{ty} is not what the threads of {accumulator} need")
            })?;
        }
        self.results(std::slice::from_ref(self.operand(2)))
    }

    fn warp_specialize(&self, warps: &[i64], registers: &[i64]) -> Check {
        let partitions = self.inst.regions.len();
        ensure(warps.len() == partitions && registers.len() == partitions, || {
            format!(
                "{partitions} partitions, but {} counts of warps and {} of registers",
                warps.len(),
                registers.len()
            )
        })?;
        ensure(partitions <= MAX_PARTITIONS, || {
            format!("{partitions} partitions, but a block has barriers for {MAX_PARTITIONS}")
        })?;
        ensure(warps.iter().sum::<i64>() == i64::from(self.header.num_warps), || {
            format!("the partitions take {} warps of {}", warps.iter().sum::<i64>(), self.header.num_warps)
        })?;
        for (partition, (&count, &registers)) in warps.iter().zip(registers).enumerate() {
            ensure(count > 0, || format!("partition {partition} has {count} warps"))?;
            let is_number = registers == 0 || ((24..=256).contains(&registers) && registers % 8 == 0);
            ensure(is_number, || {
                format!("a thread must take 24 to 256 registers in steps of 8, not {registers}")
            })?;
            self.partition(partition, count)?;
        }
        let changing = warps.iter().zip(registers).filter(|(_, registers)| **registers != 0);
        let (sum, count) = changing
            .fold((0, 0), |(sum, count), (warps, registers)| (sum + warps * registers, count + warps));
        // A thread's registers before and after `warp_specialize`, rounded up to a multiple of
        // eight.
        let average = if count == 0 { 0 } else { (sum as u64).div_ceil(8 * count as u64) * 8 };
        let budget = average * u64::from(self.header.num_warps) * 32;
        ensure(budget <= 65_536, || {
            format!("the partitions take {budget} registers at the start, but a multiprocessor has 65536")
        })
    }

    /// Checks that tiles in a partition are distributed over its warps.
    fn partition(&self, partition: usize, count: i64) -> Check {
        let mut checked = Ok(());
        self.function.walk(self.inst.regions[partition], &mut |inst| {
            let data = &self.function.insts[inst];
            let regions = data.regions.iter().flat_map(|region| &self.function.blocks[*region].parameters);
            let mut values = data.results.iter().chain(regions);
            let is_foreign = |value: &&Value| match self.ty(**value) {
                Type::Registers { layout: Some(id), .. } | Type::Pending { layout: id, .. } => {
                    1 << self.header.layouts.get(*id).bits_of(Input::Warp) != count
                }
                Type::Registers { layout: None, .. }
                | Type::Buffer(_)
                | Type::Ring(_)
                | Type::Empty(_)
                | Type::Full(_)
                | Type::Mbarrier { .. }
                | Type::TensorMemory(_) => false,
            };
            if let (Ok(()), Some(foreign)) = (&checked, values.find(is_foreign)) {
                checked = Err(format!("{} in a partition of {count} warps", self.ty(*foreign)));
            }
        });
        checked
    }
}
