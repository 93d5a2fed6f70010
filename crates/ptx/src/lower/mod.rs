//! Lowers a module of the GPU dialect to PTX, the code of one thread. Each family of ops has a
//! file.
//!
//! ```text
//! gpu::Module ──> listing     one file per op family, through builder.rs
//! listing     ──> listing     passes/
//! listing     ──> isa::Module epilogue.rs: names of registers, source lines
//! ```
//! A tile is a list of [`Scalar`]s: element `i` is register `i` of its layout. Every thread also
//! computes the kernel's scalar values. The ops state layouts, access widths and instructions. The
//! lowering only simplifies locally, for example folds constants. `passes` removes duplicates and
//! dead code, and hoists loop-invariant code. `thread.rs` applies linear layouts to the thread id.
//!
//! # Decisions
//!
//! - Registers have only a width. Booleans are predicates, and fp16 and bf16 have 16-bit registers.
//!   fp8 and narrow integers are in 32-bit registers, extended by sign or zeros.
//! - Floating-point `add` and `mul` have no rounding modifier. So the assembler may contract them
//!   to `fma`, unless the program forbids it. If each rounding matters, the instructions have
//!   `.rn`.
//! - Signed 32-bit offsets are assumed not to overflow. So the 64-bit extension of
//!   `offset + constant` is that of `offset`, plus the constant. A tile's registers share one
//!   extension, and addresses have the constants.
//! - `elect.sync` selects one lane of a warp. In the first warp that runs the code, this lane does
//!   the work of a single thread, such as tensor copies. In a partition, the thread id counts from
//!   its first warp.
//! - A register has one writer, with the exceptions that `builder.rs` lists. One of them is the
//!   accumulator of `wgmma`. No op reads it before the dot has finished. Passes treat the wait for
//!   the dot as another write.

mod arithmetic;
mod assertion;
mod asynchronous;
mod atomics;
mod builder;
mod cast;
mod cluster_launches;
mod clusters;
mod control;
mod convert_layout;
mod device_tensor_maps;
mod diagnostics;
mod dispatch;
mod division;
mod dot;
mod elementwise;
mod epilogue;
mod exchange;
mod float;
mod fp8;
mod gather;
mod inline_asm;
mod integer;
mod long_division;
mod map;
mod math32;
mod math64;
mod matrix_descriptor;
mod mbarrier;
mod memory;
mod mma;
mod packed_fp32;
mod packed_int8;
mod print;
mod program_id_remap;
mod reduce;
mod reduced_tiles;
mod remainder;
mod scan;
mod shape;
mod shared_memory;
mod tensor_copy;
mod tensor_memory;
mod thread;
mod trigonometry;
mod trigonometry64;
mod value_ranges;
mod warp_specialize;
mod wgmma;

use std::borrow::Cow;
use std::rc::Rc;

use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;
use tilewright_base::Diagnostic;
use tilewright_gpu_ir::{self as gpu, GpuOp, Op, Type};
use tilewright_gpu_ir::{Feature, GpuTarget};
use tilewright_ir as ir;
use tilewright_ir::{
    AtomicKind, Block, CacheModifier, DeviceFn, Dtype, DtypeList, Element, ElementwiseFn, EvictionPolicy,
    FuncId, GridDependency, HintKind, InputPrecision, Inst, IntList, Literal, LoopOptions, MachineQuantity,
    MemoryScope, MemorySemantics, OpVisitor, Rounding, ScaledFormat, Shape, StatedLayout, TypeList,
    UseCounts, Value,
};
use tilewright_layout::Layout;

use crate::isa::{
    self, Function, FunctionKind, GlobalId, Linkage, PointerAttribute, ScalarType, SpecialRegister,
    StateSpace, Symbol, Variable,
};
use builder::{Builder, Scalar, Width};

/// The number of lanes of a warp.
const LANES: u32 = 32;

/// The name of the dynamic shared memory of a block; the launch sets its size.
const SHARED_MEMORY: &str = "shared_memory";

/// Success, or the reason why an op cannot be lowered.
type Lowered = Result<(), Box<Diagnostic>>;

/// One element of each operand of an op on several tiles.
type Elements = SmallVec<[Scalar; 2]>;

/// Returns the name of a kernel in PTX. A name of ASCII letters, digits and underscores stays, if a
/// letter follows the leading underscores. Other names get the prefix `k_`. Other characters become
/// their code point (`α` becomes `_u3b1_`).
pub fn entry_name(kernel: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = kernel.trim_start_matches('_').starts_with(|c: char| c.is_ascii_alphabetic());
    if kernel.chars().all(is_plain) && begins {
        return kernel.into();
    }
    let escaped = kernel.chars().map(|c| if is_plain(c) { c.into() } else { format!("_u{:x}_", c as u32) });
    std::iter::once("k_".to_owned()).chain(escaped).collect::<String>().into()
}

/// Lowers a kernel. Returns a diagnostic for a feature that the target or the lowering lacks.
pub fn lower(program: &gpu::Module) -> Result<isa::Module, Box<Diagnostic>> {
    let mut lowering = Lowering::new(program);
    lowering.parameters();
    lowering.end_without_program();
    lowering.prefetch_tensor_maps();
    lowering.claim_map_memory();
    lowering.remap_program_ids();
    lowering.block(lowering.kernel.entry)?;
    Ok(lowering.finish())
}

struct Lowering<'p> {
    program: &'p gpu::Module,
    kernel: &'p gpu::Function,
    module: isa::Module,
    builder: Builder,
    values: SecondaryMap<Value, Option<Rc<[Scalar]>>>,
    shared: Option<GlobalId>,
    /// The warps that run the code being lowered.
    warps: Warps,
    /// The number of instructions that read each value.
    reads: UseCounts,
    /// Pointers of asynchronous copies in blocks with asynchronous dots (see `between_dots`).
    between_dots: EntitySet<Value>,
    /// The tiles that reductions read.
    reduced_tiles: EntitySet<Value>,
    /// The last election of one thread: the value of [`Builder::labels`] at the election, the first
    /// warp, and the predicate of the elected thread. While the first two are unchanged, the code
    /// is straight-line for the same warps, so the predicate is reused.
    leader: Option<(u32, u32, isa::Predicate)>,
    /// The program ids that `program_id_remap` changed; else they are the block ids.
    program_ids: Option<[Scalar; 3]>,
    /// The memory of the tensor maps that the kernel makes.
    map_memory: Option<device_tensor_maps::MapMemory>,
    /// The tensor maps that are made before the next op that is no `make_tensor_map`, `alloc` or
    /// `dealloc`.
    pending_maps: Vec<device_tensor_maps::PendingMap>,
    /// The address of the tensor memory of the block.
    tensor_memory: Option<Scalar>,
    /// The buffers that the blocks of a cluster fill by multicast.
    cluster_buffers: clusters::ClusterBuffers,
}

/// Consecutive warps that run code together.
#[derive(Clone, Copy, Debug)]
struct Warps {
    /// The index of the first of these warps in the block.
    first: u32,
    count: u32,
}

/// Returns the width of the register that holds an element.
fn width_of(element: Element) -> Width {
    match element {
        Element::Pointer(_) => Width::B64,
        Element::Value(dtype) => match (dtype, dtype.bits()) {
            (Dtype::I1, _) => Width::Pred,
            (Dtype::F16 | Dtype::BF16, _) => Width::B16,
            (_, 64) => Width::B64,
            _ => Width::B32,
        },
    }
}

/// Returns the size of an element in memory, in bits.
fn memory_bits(element: Element) -> u32 {
    element.bytes() as u32 * 8
}

impl<'p> Lowering<'p> {
    fn new(program: &'p gpu::Module) -> Self {
        let kernel = program.kernel();
        let target = &program.header.target;
        let mut function =
            Function::new(entry_name(&kernel.name).into_owned(), FunctionKind::Entry, Linkage::Visible);
        function.directives.required_threads = Some(vec![program.header.num_warps * LANES]);
        Self {
            program,
            kernel,
            module: isa::Module::new(target.ptx_version, target.name),
            builder: Builder::new(function),
            values: SecondaryMap::new(),
            shared: None,
            warps: Warps { first: 0, count: program.header.num_warps },
            reads: UseCounts::new(kernel),
            between_dots: between_dots(kernel),
            reduced_tiles: reduced_tiles::reduced_tiles(kernel),
            leader: None,
            program_ids: None,
            map_memory: None,
            pending_maps: Vec::new(),
            tensor_memory: None,
            cluster_buffers: clusters::ClusterBuffers::of(kernel),
        }
    }

    /// Returns whether an instruction reads a value.
    fn is_used(&self, value: Value) -> bool {
        self.reads.of(value) > 0
    }

    /// Declares and loads the parameters.
    fn parameters(&mut self) {
        let entry = &self.kernel.blocks[self.kernel.entry];
        let maps = self.tensor_map_parameters();
        for (index, &value) in entry.parameters.iter().enumerate() {
            if maps.contains(&index) {
                self.tensor_map_parameter(index, value);
                continue;
            }
            let element = self.element(value);
            let name = format!("{}_param_{index}", self.builder.function.name);
            let mut variable = Variable::scalar(name, StateSpace::Param, parameter_type(element));
            if matches!(element, Element::Pointer(_)) {
                let divisibility = self.kernel.parameters.get(index).map_or(1, |known| known.divisibility);
                let alignment = if divisibility.is_multiple_of(16) { 16 } else { 1 };
                let (space, alignment) = (Some(StateSpace::Global), Some(alignment));
                variable.pointer = Some(PointerAttribute { space, alignment });
            }
            let id = self.builder.function.variables.push(variable);
            self.builder.function.parameters.push(id);
            let scalar = self.load_parameter(Symbol::Variable(id), element);
            self.set(value, vec![scalar]);
        }
    }

    /// Returns the indices of the parameters that are tensor maps. They are the last ones. In a
    /// kernel for pairs (`Header::paired`), one more parameter follows: the number of programs.
    fn tensor_map_parameters(&self) -> std::ops::Range<usize> {
        let header = &self.program.header;
        let count = self.kernel.blocks[self.kernel.entry].parameters.len();
        let end = count - usize::from(header.paired);
        end.saturating_sub(header.tensor_maps.len())..end
    }

    fn load_parameter(&mut self, symbol: Symbol, element: Element) -> Scalar {
        let address = isa::Address { base: isa::AddressBase::Symbol(symbol), offset: 0 };
        let width = if element == Element::Value(Dtype::I1) { Width::B32 } else { width_of(element) };
        let ty = parameter_type(element);
        let loaded = self.builder.pure(width, |d| isa::Ld {
            space: Some(StateSpace::Param),
            ..memory::plain_load(d.into(), address, ty)
        });
        self.register_form(element, loaded)
    }

    /// Lowers the ops of a block.
    fn block(&mut self, block: Block) -> Lowered {
        let kernel = self.kernel;
        for &inst in &kernel.blocks[block].insts {
            self.builder.location = kernel.insts[inst].location.expand();
            let data = &kernel.insts[inst];
            let is_between_maps = matches!(
                data.op,
                Op::Gpu(GpuOp::MakeTensorMap { .. } | GpuOp::Alloc { .. } | GpuOp::Dealloc {})
            );
            if !is_between_maps {
                self.make_maps();
            }
            match &data.op {
                Op::Tile(op) => ir::visit_op(op, inst, &data.operands, self)?,
                Op::Gpu(op) => gpu::visit(op, inst, &data.operands, self)?,
            }
        }
        Ok(())
    }

    fn wait(&mut self) {
        self.builder.emit(isa::BarrierSync { aligned: true, barrier: 0.into(), threads: None });
    }

    fn set(&mut self, value: Value, scalars: impl Into<Rc<[Scalar]>>) {
        self.values[value] = Some(scalars.into());
    }

    fn set_result(&mut self, inst: Inst, scalars: impl Into<Rc<[Scalar]>>) {
        self.set(self.kernel.insts[inst].results[0], scalars);
    }

    fn get(&self, value: Value) -> Rc<[Scalar]> {
        self.values[value].clone().expect("a value is defined before it is used")
    }

    fn scalar(&self, value: Value) -> Scalar {
        self.get(value)[0]
    }

    fn layout(&self, value: Value) -> &'p Layout {
        self.layout_of(value).expect("the verifier checks that a tile has a layout")
    }

    /// Returns the layout of a tile; a scalar has none.
    fn layout_of(&self, value: Value) -> Option<&'p Layout> {
        self.kernel.ty(value).layout().map(|layout| self.program.header.layouts.get(layout))
    }

    /// Returns the element and shape of a scalar or tile in registers.
    fn ty(&self, value: Value) -> &'p ir::Type {
        self.kernel.ty(value).as_registers().expect("the verifier checks what is in registers")
    }

    /// Returns the element and shape of a tile in registers or memory.
    fn tile(&self, value: Value) -> ir::Type {
        self.kernel.ty(value).tile().expect("the verifier checks what is a tile")
    }

    fn count(&self, value: Value) -> usize {
        self.layout_of(value).map_or(1, |layout| layout.registers() as usize)
    }

    /// Returns the registers of a value in the order of `layout`. It may differ from the value's
    /// layout only in the numbering of registers.
    fn get_in(&self, value: Value, layout: Option<&Layout>) -> Rc<[Scalar]> {
        let own = self.get(value);
        match (self.layout_of(value), layout) {
            (Some(from), Some(to)) if from != to => {
                let registers =
                    to.registers_from(from).expect("the verifier checks that the threads are the same");
                registers.iter().map(|&register| own[register as usize]).collect()
            }
            _ => own,
        }
    }

    /// Returns the width of the registers of a value. For a value in shared memory, a register
    /// holds its address. For a dot in flight, a register holds one accumulator, or a pair of
    /// 16-bit ones.
    fn width(&self, value: Value) -> Width {
        match self.kernel.ty(value) {
            Type::Registers { tile, .. } => width_of(tile.element),
            Type::Pending { tile, .. } => width_of(tile.element).max(Width::B32),
            Type::Buffer(_)
            | Type::Ring(_)
            | Type::Empty(_)
            | Type::Full(_)
            | Type::Mbarrier { .. }
            | Type::TensorMemory(_) => Width::B32,
        }
    }

    fn element(&self, value: Value) -> Element {
        self.tile(value).element
    }

    fn target(&self) -> &'p GpuTarget {
        &self.program.header.target
    }

    fn has(&self, feature: Feature) -> bool {
        self.program.header.target.features.has(feature)
    }

    /// Fails if the target lacks the feature that an op needs.
    fn require(&self, inst: Inst, feature: Feature) -> Lowered {
        if self.has(feature) { Ok(()) } else { Err(self.no_op(inst)) }
    }

    /// Returns the diagnostic for an unavailable op.
    fn no_op(&self, inst: Inst) -> Box<Diagnostic> {
        self.unsupported(inst, &format!("`{}`", ir::Operation::name(&self.kernel.insts[inst].op)))
    }

    /// Returns the diagnostic for an op that exists only in tile IR. The verifier rejects these
    /// ops, except `histogram`, which a pass replaces.
    fn only_in_tile_ir(&self, inst: Inst) -> Box<Diagnostic> {
        self.unsupported(inst, &format!("`{}` of tile IR", ir::Operation::name(&self.kernel.insts[inst].op)))
    }
}

/// Returns copies' source pointers in blocks with asynchronous dots. This includes the pointers of
/// the same block from which these pointers are computed. [`Lowering::lower_ptr_add`] avoids 64-bit
/// multiplications for them. Between a dot's instructions, a multiplication takes several times as
/// long as an addition (H200: 8 % of a grouped matmul).
fn between_dots(kernel: &gpu::Function) -> EntitySet<Value> {
    let mut found = EntitySet::new();
    for block in kernel.blocks.values() {
        let is_product = |inst: &Inst| matches!(kernel.insts[*inst].op, Op::Gpu(GpuOp::Wgmma { .. }));
        if !block.insts.iter().any(is_product) {
            continue;
        }
        for inst in block.insts.iter().rev() {
            let data = &kernel.insts[*inst];
            let is_copied = matches!(data.op, Op::Gpu(GpuOp::CopyAsync { .. }));
            let is_sum = matches!(data.op, Op::Tile(ir::Op::PtrAdd {})) && found.contains(data.results[0]);
            if is_copied {
                found.insert(data.operands[1]);
            } else if is_sum {
                found.insert(data.operands[0]);
            }
        }
    }
    found
}

fn parameter_type(element: Element) -> ScalarType {
    let Element::Value(dtype) = element else { return ScalarType::U64 };
    match dtype {
        Dtype::I1
        | Dtype::U8
        | Dtype::F8E5
        | Dtype::F8E4NV
        | Dtype::F8E4B15
        | Dtype::F8E4B8
        | Dtype::F8E5B16 => ScalarType::U8,
        Dtype::I8 => ScalarType::S8,
        Dtype::I16 => ScalarType::S16,
        Dtype::U16 => ScalarType::U16,
        Dtype::I32 => ScalarType::S32,
        Dtype::U32 => ScalarType::U32,
        Dtype::I64 => ScalarType::S64,
        Dtype::U64 => ScalarType::U64,
        Dtype::F16 | Dtype::BF16 => ScalarType::B16,
        Dtype::F32 => ScalarType::F32,
        Dtype::F64 => ScalarType::F64,
    }
}

impl OpVisitor for Lowering<'_> {
    type Output = Lowered;

    fn constant(&mut self, inst: Inst, value: &Literal) -> Lowered {
        let bits = match value.as_int() {
            Some(number) => width_of(Element::Value(value.dtype)).cut(number as u64),
            None => value.bits,
        };
        self.set_result(inst, [Scalar::constant(bits)]);
        Ok(())
    }

    fn program_id(&mut self, inst: Inst, axis: &u8) -> Lowered {
        let id = self.program_id_along(usize::from(*axis));
        self.set_result(inst, [id]);
        Ok(())
    }

    fn num_programs(&mut self, inst: Inst, axis: &u8) -> Lowered {
        let registers = [SpecialRegister::NctaidX, SpecialRegister::NctaidY, SpecialRegister::NctaidZ];
        let count = self.special(registers[usize::from(*axis)]);
        self.set_result(inst, [count]);
        Ok(())
    }

    fn arange(&mut self, inst: Inst, start: &i64, _end: &i64) -> Lowered {
        self.lower_arange(inst, *start);
        Ok(())
    }

    fn splat(&mut self, inst: Inst, scalar: Value, _shape: &Shape) -> Lowered {
        let scalar = self.scalar(scalar);
        let count = self.count(self.kernel.insts[inst].results[0]);
        self.set_result(inst, vec![scalar; count]);
        Ok(())
    }

    fn expand_dims(&mut self, inst: Inst, tile: Value, axis: &u32) -> Lowered {
        self.rename(inst, tile, |layout| layout.insert_axis(*axis as usize));
        Ok(())
    }

    fn broadcast(&mut self, inst: Inst, tile: Value, _shape: &Shape) -> Lowered {
        self.lower_broadcast(inst, tile);
        Ok(())
    }

    fn slice(&mut self, inst: Inst, tile: Value, starts: &IntList, steps: &IntList, _: &Shape) -> Lowered {
        self.lower_slice(inst, tile, starts, steps);
        Ok(())
    }

    fn gather(&mut self, inst: Inst, tile: Value, index: Value, axis: &u32) -> Lowered {
        self.lower_gather(inst, tile, index, *axis as usize);
        Ok(())
    }

    fn reshape(&mut self, inst: Inst, tile: Value, shape: &Shape) -> Lowered {
        self.rename(inst, tile, |layout| layout.reshape(shape));
        Ok(())
    }

    fn transpose(&mut self, inst: Inst, tile: Value, permutation: &IntList) -> Lowered {
        let permutation: Vec<usize> = permutation.iter().map(|&axis| axis as usize).collect();
        self.rename(inst, tile, |layout| layout.transpose(&permutation));
        Ok(())
    }

    fn cast(&mut self, inst: Inst, value: Value, element: &Element, rounding: &Rounding) -> Lowered {
        self.lower_cast(inst, value, *element, *rounding)
    }

    fn bitcast(&mut self, inst: Inst, value: Value, element: &Element) -> Lowered {
        self.lower_bitcast(inst, value, *element);
        Ok(())
    }

    fn inline_asm(
        &mut self,
        inst: Inst,
        arguments: &[Value],
        text: &String,
        constraints: &String,
        _: &DtypeList,
        pack: &u32,
    ) -> Lowered {
        self.lower_inline_asm(inst, arguments, text, constraints, *pack, false);
        Ok(())
    }

    fn volatile_asm(
        &mut self,
        inst: Inst,
        arguments: &[Value],
        text: &String,
        constraints: &String,
        _: &DtypeList,
        pack: &u32,
    ) -> Lowered {
        self.lower_inline_asm(inst, arguments, text, constraints, *pack, true);
        Ok(())
    }

    fn map(&mut self, inst: Inst, tiles: &[Value], pack: &u32) -> Lowered {
        self.lower_map(inst, tiles, *pack as usize)
    }

    fn ptr_add(&mut self, inst: Inst, pointer: Value, offset: Value) -> Lowered {
        self.lower_ptr_add(inst, pointer, offset);
        Ok(())
    }

    fn barrier(&mut self, inst: Inst) -> Lowered {
        self.lower_barrier(inst)
    }

    fn assert(
        &mut self,
        inst: Inst,
        condition: Value,
        mask: Option<Value>,
        failure: &ir::Failure,
    ) -> Lowered {
        self.lower_assert(inst, condition, mask, failure);
        Ok(())
    }

    fn print(
        &mut self,
        _inst: Inst,
        value: Option<Value>,
        prefix: &String,
        digits: &u32,
        extents: &IntList,
    ) -> Lowered {
        self.lower_print(value, prefix, *digits, extents);
        Ok(())
    }

    fn machine(&mut self, inst: Inst, quantity: &MachineQuantity) -> Lowered {
        let (width, register) = match quantity {
            MachineQuantity::GlobalTimer => (Width::B64, SpecialRegister::GlobalTimer),
            MachineQuantity::Multiprocessor => (Width::B32, SpecialRegister::SmId),
        };
        // Not pure: each read may return another value.
        let d = self.builder.fresh(width);
        self.builder.emit(isa::Mov { ty: width.ty(), d: d.into(), a: register.into() });
        self.set_result(inst, [Scalar::from(d)]);
        Ok(())
    }

    fn dependency(&mut self, _inst: Inst, action: &GridDependency) -> Lowered {
        // Before sm_90, dependent grids do not overlap.
        if self.target().capability < 90 {
            return Ok(());
        }
        let action = match action {
            GridDependency::Wait => isa::GridDependency::Wait,
            GridDependency::LaunchDependents => isa::GridDependency::LaunchDependents,
        };
        self.builder.emit(isa::Griddepcontrol { action });
        Ok(())
    }

    fn for_loop(
        &mut self,
        inst: Inst,
        lower: Value,
        upper: Value,
        step: Value,
        _: &[Value],
        _: &LoopOptions,
    ) -> Lowered {
        self.lower_for(inst, [lower, upper, step])
    }

    fn while_loop(&mut self, inst: Inst, _: &[Value]) -> Lowered {
        self.lower_while(inst)
    }

    fn if_else(&mut self, inst: Inst, condition: Value) -> Lowered {
        self.lower_if(inst, condition)
    }

    fn yield_values(&mut self, _inst: Inst, _values: &[Value]) -> Lowered {
        // The op with the region reads the yielded values.
        Ok(())
    }

    fn return_values(&mut self, _inst: Inst, _values: &[Value]) -> Lowered {
        self.release_map_memory();
        self.builder.emit(isa::Ret { uniform: false });
        Ok(())
    }

    fn elementwise(&mut self, inst: Inst, _: &[Value], _: &ElementwiseFn) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn load(
        &mut self,
        inst: Inst,
        _: Value,
        _: Option<Value>,
        _: Option<Value>,
        _: &CacheModifier,
        _: &EvictionPolicy,
        _: &bool,
    ) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn store(
        &mut self,
        inst: Inst,
        _: Value,
        _: Value,
        _: Option<Value>,
        _: &CacheModifier,
        _: &EvictionPolicy,
    ) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn atomic_rmw(
        &mut self,
        inst: Inst,
        _: Value,
        _: Value,
        _: Option<Value>,
        _: &AtomicKind,
        _: &MemorySemantics,
        _: &MemoryScope,
    ) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn atomic_cas(
        &mut self,
        inst: Inst,
        _: Value,
        _: Value,
        _: Value,
        _: Option<Value>,
        _: &MemorySemantics,
        _: &MemoryScope,
    ) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn atomic_load(
        &mut self,
        inst: Inst,
        _: Value,
        _: Option<Value>,
        _: &MemorySemantics,
        _: &MemoryScope,
    ) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn atomic_store(
        &mut self,
        inst: Inst,
        _: Value,
        _: Value,
        _: Option<Value>,
        _: &MemorySemantics,
        _: &MemoryScope,
    ) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn atomic_poll(
        &mut self,
        inst: Inst,
        _: Value,
        _: Value,
        _: Option<Value>,
        _: &MemorySemantics,
        _: &MemoryScope,
    ) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn dot(&mut self, inst: Inst, _: Value, _: Value, _: Value, _: &InputPrecision, _: &u32) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn dot_scaled(
        &mut self,
        inst: Inst,
        _: Value,
        _: Value,
        _: Value,
        _: Value,
        _: Value,
        _: &ScaledFormat,
        _: &ScaledFormat,
    ) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn reduce(&mut self, inst: Inst, _: &[Value], _: &u32) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn scan(&mut self, inst: Inst, _: &[Value], _: &u32, _: &bool) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn histogram(&mut self, inst: Inst, _: Value, _: Option<Value>, _: &u32) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }

    fn butterfly(&mut self, inst: Inst, tile: Value, axis: &u32, mask: &u32) -> Lowered {
        self.lower_butterfly(inst, tile, *axis as usize, *mask)
    }

    fn bitonic(
        &mut self,
        inst: Inst,
        tile: Value,
        axis: &u32,
        high: &u32,
        low: &u32,
        block: &u32,
        descending: &bool,
    ) -> Lowered {
        self.lower_bitonic(inst, tile, *axis as usize, [*high, *low, *block], *descending)
    }

    fn hint(&mut self, inst: Inst, _: Value, _: &HintKind, _: &IntList) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }
    fn set_layout(&mut self, inst: Inst, _: Value, _: &StatedLayout) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }
    fn device(&mut self, inst: Inst, _: &[Value], _: &DeviceFn) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }
    fn start_workers(&mut self, inst: Inst, _: &IntList, _: &IntList) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }
    fn assume(&mut self, inst: Inst, _: Value) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }
    fn call(&mut self, inst: Inst, _: &[Value], _: &FuncId, _: &TypeList) -> Lowered {
        Err(self.only_in_tile_ir(inst))
    }
}
