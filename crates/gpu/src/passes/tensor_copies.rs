//! Tiles that the tensor memory accelerator copies to shared memory, where the text says what box of a tensor they are
//! (`tensor_box`) and they go to a buffer in a layout that it can write.
//!
//! ```text
//! %p = tensor_box %q, %map, %i, %j                    %e = acquire %r
//! %x = load %p, %mask                                 tensor_fill %e, %map, %i, %j
//! …                                            ──>    publish %e
//! %b = alloc ; local_store %b, %x                     %b = take %r
//! … ; dealloc %b                                      … ; release %b
//! ```
//! A ring of one slot takes the place of the buffer. The box and the swizzle of a tensor map are those of the buffers; what no
//! copy needs is not passed to the kernel. Behind this pass there is no `tensor_box`.

use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{Block, Definition, Inst, Value};

use crate::box_layout::BoxLayout;
use crate::language::{
    Buffer, Deferred, Function, GpuOp, Header, LaunchInteger, Module, Op, TensorMapBox, Type,
};
use crate::layout_rules::element_bits;
use crate::target::Feature;

/// Lets tensor copies do what they can.
pub fn use_tensor_copies(module: &mut Module) {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    if header.target.features.has(Feature::Tma) {
        let mut pass = Pass { places: Places::new(function), header, function };
        for store in pass.stores() {
            pass.store(store);
        }
    }
    erase_marks(function);
    remove_unused_maps(header, function);
}

/// Where instructions stand, and who uses values.
struct Places {
    blocks: SecondaryMap<Inst, Option<Block>>,
    owners: SecondaryMap<Block, Option<Inst>>,
    uses: SecondaryMap<Value, SmallVec<[Inst; 2]>>,
}

impl Places {
    fn new(function: &Function) -> Self {
        let mut places =
            Self { blocks: SecondaryMap::new(), owners: SecondaryMap::new(), uses: SecondaryMap::new() };
        places.block(function, function.entry);
        places
    }

    fn block(&mut self, function: &Function, block: Block) {
        for &inst in &function.blocks[block].insts {
            self.blocks[inst] = Some(block);
            for operand in &function.insts[inst].operands {
                self.uses[*operand].push(inst);
            }
            for &region in &function.insts[inst].regions {
                self.owners[region] = Some(inst);
                self.block(function, region);
            }
        }
    }
}

struct Pass<'m> {
    header: &'m mut Header,
    function: &'m mut Function,
    places: Places,
}

/// What was found: a load of a box that goes to a buffer.
struct Found {
    load: Inst,
    mark: Inst,
    alloc: Inst,
    store: Inst,
    dealloc: Inst,
    buffer: Buffer,
    /// The axis of the load that each axis of the buffer is.
    axes: SmallVec<[usize; 5]>,
    boxes: BoxLayout,
    block: Block,
}

impl Pass<'_> {
    fn stores(&self) -> Vec<Inst> {
        let mut stores = Vec::new();
        self.function.walk(self.function.entry, &mut |inst| {
            if matches!(self.function.insts[inst].op, Op::Gpu(GpuOp::LocalStore {})) {
                stores.push(inst);
            }
        });
        stores
    }

    fn store(&mut self, store: Inst) {
        if let Some(found) = self.find(store)
            && let Some(map) = self.map(&found)
        {
            self.replace(&found, map);
        }
    }

    /// The load of a box that is stored to a buffer, and to nothing else.
    fn find(&self, store: Inst) -> Option<Found> {
        let function = &*self.function;
        let &[buffer, value] = &function.insts[store].operands[..] else { return None };
        let (loaded, axes) = self.transposed(value)?;
        let load = function.defining_inst(loaded)?;
        let Op::Gpu(GpuOp::Load { volatile: false, .. }) = function.insts[load].op else { return None };
        let mark = function.defining_inst(function.insts[load].operands[0])?;
        let Op::Gpu(GpuOp::TensorBox {}) = function.insts[mark].op else { return None };
        let alloc = function.defining_inst(buffer)?;
        let Op::Gpu(GpuOp::Alloc { .. }) = function.insts[alloc].op else { return None };
        let Type::Buffer(ty) = function.ty(buffer).clone() else { return None };
        let mut dealloc = None;
        for user in &self.places.uses[buffer] {
            match function.insts[*user].op {
                Op::Gpu(GpuOp::Dealloc {}) => dealloc = Some(*user),
                Op::Gpu(
                    GpuOp::LocalLoad { .. }
                    | GpuOp::MmaSync { .. }
                    | GpuOp::FmaDot { .. }
                    | GpuOp::Wgmma { .. },
                ) => {}
                // tidy: wildcard because anything else but the store may write to the buffer, or hand it on
                _ if *user == store => {}
                _ => return None,
            }
        }
        let (dealloc, block) = (dealloc?, self.places.blocks[store]?);
        let is_one_block = [load, alloc, dealloc].iter().all(|inst| self.places.blocks[*inst] == Some(block));
        let is_only_use = self.places.uses[loaded].len() == 1 && ty.slots == 1 && !self.is_in_role(block);
        let boxes = BoxLayout::of(self.header.layouts.get(ty.layout), element_bits(&ty.tile()))?;
        (is_one_block && is_only_use).then_some(Found {
            load,
            mark,
            alloc,
            store,
            dealloc,
            buffer: ty,
            axes,
            boxes,
            block,
        })
    }

    /// What a tile is the transpose of, if nothing else uses the tiles between: a value, and which of its axes each axis is.
    fn transposed(&self, mut value: Value) -> Option<(Value, SmallVec<[usize; 5]>)> {
        let function = &*self.function;
        let rank = function.ty(value).as_registers()?.rank();
        let mut axes: SmallVec<[usize; 5]> = (0..rank).collect();
        while let Some(inst) = function.defining_inst(value)
            && let Op::Tile(ir::Op::Transpose { permutation }) = &function.insts[inst].op
        {
            if self.places.uses[value].len() != 1 {
                return None;
            }
            axes = axes.iter().map(|axis| permutation[*axis] as usize).collect();
            value = function.insts[inst].operands[0];
        }
        Some((value, axes))
    }

    /// Whether a block is run by some warps alone, or decides whether a loop goes on.
    fn is_in_role(&self, mut block: Block) -> bool {
        while let Some(owner) = self.places.owners[block] {
            let data = &self.function.insts[owner];
            let is_condition = matches!(data.op, Op::Tile(ir::Op::While {})) && data.regions[0] == block;
            if is_condition || matches!(data.op, Op::Gpu(GpuOp::WarpRoles { .. })) {
                return true;
            }
            block = self.places.blocks[owner].expect("what has a region is in a block");
        }
        false
    }

    /// The parameter that is the tensor map for these boxes. The map has an axis for each of the tile, behind those of its own.
    fn map(&mut self, found: &Found) -> Option<Value> {
        let map = self.function.insts[found.mark].operands[1];
        let number = map_number(self.header, self.function, map)?;
        let plan = &self.header.tensor_maps[number];
        let own = plan.strides.len().checked_sub(found.buffer.shape.len())?;
        let plan = plan.transposed(&found.axes);
        if plan.strides[own + found.boxes.order[0]] != LaunchInteger::constant(1) {
            return None;
        }
        let extents = std::iter::repeat_n(1, own).chain(found.boxes.extents(&found.buffer.shape)).collect();
        let copied = Some(TensorMapBox { extents, swizzle: found.boxes.swizzle });
        let entry = self.function.blocks[self.function.entry].parameters.clone();
        let first = entry.len() - self.header.tensor_maps.len();
        let wanted = crate::language::TensorMapPlan { copied, ..plan };
        if let Some(same) = self.header.tensor_maps.iter().position(|other| *other == wanted) {
            return Some(entry[first + same]);
        }
        if self.header.tensor_maps[number].copied.is_none() {
            self.header.tensor_maps[number] = wanted;
            return Some(map);
        }
        // The same tensor in other boxes.
        let name = format!("tensor_map{}", self.header.tensor_maps.len());
        let ty = self.function.ty(map).clone();
        let value = self.function.add_parameter(self.function.entry, ty, Some(name.as_str().into()));
        let known = self.function.parameters.last()?.divisibility;
        self.function.parameters.push(ir::Parameter { name: name.as_str().into(), divisibility: known });
        self.header.tensor_maps.push(wanted);
        Some(value)
    }

    fn create(
        &mut self,
        op: GpuOp,
        operands: SmallVec<[Value; 4]>,
        result: Option<Type>,
        like: Inst,
    ) -> Inst {
        let location = self.function.insts[like].location;
        self.function.create_inst(op.into(), operands, smallvec![], result, location)
    }

    fn replace(&mut self, found: &Found, map: Value) {
        let slot = Buffer { slots: 1, ..found.buffer.clone() };
        let alloc = self.create(
            GpuOp::Alloc { offset: Deferred(None) },
            smallvec![],
            Some(Type::Ring(slot.clone())),
            found.alloc,
        );
        let ring = self.function.insts[alloc].results[0];
        let acquire =
            self.create(GpuOp::Acquire {}, smallvec![ring], Some(Type::Empty(slot.clone())), found.load);
        let empty = self.function.insts[acquire].results[0];
        let mut operands: SmallVec<[Value; 4]> = smallvec![empty, map];
        let coordinates = &self.function.insts[found.mark].operands[2..];
        let (own, of_tile) = coordinates.split_at(coordinates.len() - found.axes.len());
        operands.extend_from_slice(own);
        operands.extend(found.axes.iter().map(|axis| of_tile[*axis]));
        let fill = self.create(GpuOp::TensorFill {}, operands, None, found.load);
        let publish = self.create(GpuOp::Publish {}, smallvec![empty], None, found.load);
        let take = self.create(GpuOp::Take {}, smallvec![ring], Some(Type::Full(slot)), found.store);
        let taken = self.function.insts[take].results[0];
        let release = self.create(GpuOp::Release {}, smallvec![taken], None, found.dealloc);
        let end = self.create(GpuOp::Dealloc {}, smallvec![ring], None, found.dealloc);
        let old = self.function.insts[found.store].operands[0];
        for user in self.places.uses[old].clone() {
            for operand in &mut self.function.insts[user].operands {
                if *operand == old {
                    *operand = taken;
                }
            }
        }
        let mut value = self.function.insts[found.store].operands[1];
        while let Some(inst) = self.function.defining_inst(value).filter(|inst| *inst != found.load) {
            value = self.function.insts[inst].operands[0];
            let block = self.places.blocks[inst].expect("it is in a block");
            self.exchange(block, inst, &[]);
        }
        self.exchange(found.block, found.load, &[acquire, fill, publish]);
        self.exchange(found.block, found.alloc, &[]);
        self.exchange(found.block, found.store, &[take]);
        self.exchange(found.block, found.dealloc, &[release]);
        // The ring lives around the outermost instruction that it is used in: its barrier is made once.
        let (mut first, mut last) = (acquire, release);
        self.places.blocks[acquire] = Some(found.block);
        self.places.blocks[release] = Some(found.block);
        while let Some(owner) = self.places.owners[self.places.blocks[first].expect("it is in a block")] {
            (first, last) = (owner, owner);
        }
        let entry = self.function.entry;
        self.exchange(entry, first, &[alloc, first]);
        self.exchange(entry, last, &[last, end]);
        self.places.blocks[alloc] = Some(entry);
    }

    /// Puts instructions in the place of one.
    fn exchange(&mut self, block: Block, old: Inst, new: &[Inst]) {
        let insts = &mut self.function.blocks[block].insts;
        let place = insts.iter().position(|inst| *inst == old).expect("it stands in this block");
        insts.splice(place..=place, new.iter().copied());
        for inst in new {
            self.places.blocks[*inst] = Some(block);
        }
    }
}

/// The number of the tensor map that a parameter of the kernel is.
fn map_number(header: &Header, function: &Function, map: Value) -> Option<usize> {
    let parameters = &function.blocks[function.entry].parameters;
    let first = parameters.len().checked_sub(header.tensor_maps.len())?;
    parameters[first..].iter().position(|parameter| *parameter == map)
}

/// Pointers are what they were before somebody said which box they are.
fn erase_marks(function: &mut Function) {
    let mut marks = SecondaryMap::new();
    let mut any = false;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if let Op::Gpu(GpuOp::TensorBox {}) = data.op {
            marks[data.results[0]] = Some(data.operands[0]);
            any = true;
        }
    });
    if !any {
        return;
    }
    for data in function.insts.values_mut() {
        for operand in &mut data.operands {
            while let Some(pointers) = marks[*operand] {
                *operand = pointers;
            }
        }
    }
    let Function { blocks, insts, .. } = function;
    for block in blocks.values_mut() {
        block.insts.retain(|inst| !matches!(insts[*inst].op, Op::Gpu(GpuOp::TensorBox {})));
    }
}

/// Removes the parameters that are tensor maps of no copy.
fn remove_unused_maps(header: &mut Header, function: &mut Function) {
    let parameters = function.blocks[function.entry].parameters.clone();
    let Some(first) = parameters.len().checked_sub(header.tensor_maps.len()) else { return };
    let mut is_used = vec![false; header.tensor_maps.len()];
    function.walk(function.entry, &mut |inst| {
        for operand in &function.insts[inst].operands {
            if let Some(number) = parameters[first..].iter().position(|parameter| parameter == operand) {
                is_used[number] = true;
            }
        }
    });
    if is_used.iter().all(|used| *used) {
        return;
    }
    let mut keep = std::iter::repeat_n(true, first).chain(is_used.iter().copied());
    function.blocks[function.entry].parameters.retain(|_| keep.next().unwrap_or(true));
    let mut keep = std::iter::repeat_n(true, first).chain(is_used.iter().copied());
    function.parameters.retain(|_| keep.next().unwrap_or(true));
    let mut keep = is_used.iter().copied();
    header.tensor_maps.retain(|_| keep.next().unwrap_or(true));
    let entry = function.entry;
    for (number, parameter) in function.blocks[entry].parameters.clone().into_iter().enumerate() {
        function.values[parameter].definition = Definition::Parameter(entry, number as u32);
    }
}
