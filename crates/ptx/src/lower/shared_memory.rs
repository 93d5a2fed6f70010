//! Stores tiles to shared memory, and loads registers when needed.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_gpu_ir::Buffer;
use tilewright_gpu_ir::Feature;
use tilewright_ir::{Element, Inst, Value};
use tilewright_layout::{Input, Layout, MatrixAccess, Transfer, Vector};

use super::builder::{Scalar, Width, destinations};
use super::memory::Words;
use super::{Lowering, memory_bits};
use crate::isa::{self, LdmatrixShape, MatrixCount, RegisterId, ScalarType, StateSpace};

/// The largest access of a thread, in bytes.
const MAX_ACCESS_BYTES: u32 = 16;

/// The instructions that load a tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loads {
    /// `ld.shared`.
    Vectors,
    /// `ldmatrix`.
    Matrices,
}

impl Loads {
    /// Returns the kind of loads that the attribute `matrix` of an op selects.
    pub fn by_matrix(is_by_matrix: bool) -> Self {
        if is_by_matrix { Self::Matrices } else { Self::Vectors }
    }
}

/// A tile in shared memory whose registers are loaded when they are first read.
pub(super) struct SharedTile {
    element: Element,
    /// The address of the buffer.
    start: Scalar,
    ty: Buffer,
    access: TileAccess,
    /// The position of the thread; `None` before the first read.
    thread: Option<ThreadPosition>,
    /// The index of the access that reads each register.
    accesses: FxHashMap<u32, u32>,
    read: FxHashMap<u32, Scalar>,
}

/// The position of a thread in a buffer.
pub(super) struct ThreadPosition {
    /// The address of the buffer.
    start: Scalar,
    /// The byte offset of each bit of the thread id.
    images: Vec<u32>,
    /// The offset of this thread: the xor of its bits' offsets.
    own: Scalar,
    /// Intervals in bytes, each with the padding after it.
    padding: SmallVec<[(u32, u32); 1]>,
}

/// The accesses that load a tile.
enum TileAccess {
    /// By `ld.shared`: the registers of each access, and the offset of each element.
    Vectors(Vector, Transfer),
    /// By `ldmatrix`.
    Matrices(MatrixAccess),
}

impl TileAccess {
    fn vector(&self) -> &Vector {
        match self {
            Self::Vectors(vector, _) => vector,
            Self::Matrices(matrix) => &matrix.registers,
        }
    }
}

/// Returns the widest accesses that move a tile to or from a buffer.
pub(super) fn vector_in(layout: &Layout, memory: &Layout, buffer: &Buffer) -> Vector {
    let widest = (MAX_ACCESS_BYTES * 8 / memory_bits(buffer.element)).max(1);
    layout.vector_in(memory).at_most(widest.min(buffer.padding.max_vector()))
}

/// Returns the number of matrices that an instruction moves.
fn count_of(matrix: &MatrixAccess) -> MatrixCount {
    match matrix.matrices {
        1 => MatrixCount::X1,
        2 => MatrixCount::X2,
        _ => MatrixCount::X4,
    }
}

impl Lowering<'_> {
    /// Returns a buffer's tile, which [`Self::read`] loads in this layout. Emits no load.
    pub(super) fn shared_tile(
        &self,
        buffer: Value,
        ty: &Buffer,
        layout: &Layout,
        loads: Loads,
    ) -> SharedTile {
        let memory = self.program.header.layouts.get(ty.layout);
        let bits = memory_bits(ty.element);
        let access = match loads {
            Loads::Vectors => TileAccess::Vectors(vector_in(layout, memory, ty), layout.offsets_in(memory)),
            Loads::Matrices => {
                let access = layout.matrix_access(memory, bits);
                TileAccess::Matrices(access.expect("the verifier checks what ldmatrix loads"))
            }
        };
        let mut accesses = FxHashMap::default();
        for number in 0..access.vector().accesses() {
            accesses.extend(access.vector().registers(number).into_iter().map(|register| (register, number)));
        }
        SharedTile {
            element: ty.element,
            start: self.scalar(buffer),
            ty: ty.clone(),
            access,
            thread: None,
            accesses,
            read: FxHashMap::default(),
        }
    }

    /// Returns the position of this thread relative to `start`. `images` has the byte offset of
    /// each bit of the thread id.
    pub(super) fn thread_position(&mut self, images: Vec<u32>, start: Scalar) -> ThreadPosition {
        let own = self.linear(&images);
        ThreadPosition { start, images, own, padding: SmallVec::new() }
    }

    /// Returns the position of this thread in a buffer, which may have padding.
    pub(super) fn padded_position(
        &mut self,
        images: Vec<u32>,
        start: Scalar,
        buffer: &Buffer,
    ) -> ThreadPosition {
        let bytes = memory_bits(buffer.element) / 8;
        let padding = buffer.padding.0.iter().map(|(interval, padding)| (interval * bytes, padding * bytes));
        ThreadPosition { padding: padding.collect(), ..self.thread_position(images, start) }
    }

    /// Returns the shared memory address of an element. The offset is the thread's xor `constant`.
    pub(super) fn shared_position(&mut self, thread: &ThreadPosition, constant: u32) -> Scalar {
        let place = self.displaced(thread.own, &thread.images, constant);
        let mut position = self.builder.add(Width::B32, place, thread.start);
        for (interval, padding) in &thread.padding {
            let intervals = self.builder.shr(Width::B32, false, place, interval.ilog2());
            let unused = self.builder.mul(Width::B32, intervals, Scalar::constant((*padding).into()));
            position = self.builder.add(Width::B32, position, unused);
        }
        position
    }

    /// Stores a tile to a buffer.
    pub(super) fn lower_local_store(&mut self, buffer: Value, tile: Value) {
        let layout = self.layout(tile);
        let own = self.get(tile);
        let element = self.element(tile);
        let bytes = element.bytes() as u32;
        let is_first = self.is_first(layout.free_bits(Input::Lane), layout.free_bits(Input::Warp));
        let guard = (is_first != Scalar::TRUE).then(|| self.builder.predicate(is_first));
        let memory = self.layout(buffer);
        let ty = self.memory(buffer).clone();
        let (vector, offsets) = (vector_in(layout, memory, &ty), layout.offsets_in(memory));
        if let Some(matrix) = self.stored_matrices(element, (layout, memory), &vector)
            && guard.is_none()
            && ty.padding.is_none()
        {
            return self.store_matrices(element, &matrix, self.scalar(buffer), &own);
        }
        let images: Vec<u32> = Self::thread_images(&offsets).iter().map(|image| image * bytes).collect();
        let thread = self.padded_position(images, self.scalar(buffer), &ty);
        for number in 0..vector.accesses() {
            let registers = vector.registers(number);
            let first = offsets.at(&[(Input::Register, registers[0])]) * bytes;
            let address = self.shared_position(&thread, first);
            let elements: SmallVec<[Scalar; 16]> =
                registers.iter().map(|&register| own[register as usize]).collect();
            self.store_shared(guard, element, address, &elements);
        }
    }

    /// Returns the matrices by which `stmatrix` stores a tile. Returns `None` if `stmatrix` does
    /// not exist or fit, or if plain stores move as many bytes per instruction.
    fn stored_matrices(
        &self,
        element: Element,
        (layout, memory): (&Layout, &Layout),
        vector: &Vector,
    ) -> Option<MatrixAccess> {
        let bits = memory_bits(element);
        let is_possible = bits == 16 && self.program.header.target.features.has(Feature::StMatrix);
        let matrix = is_possible.then(|| layout.matrix_access(memory, bits))??;
        (vector.width() * bits < 32 * matrix.matrices).then_some(matrix)
    }

    /// Emits one `stmatrix` of up to four matrices per access.
    fn store_matrices(&mut self, element: Element, matrix: &MatrixAccess, start: Scalar, own: &[Scalar]) {
        let bytes = element.bytes() as u32;
        let images: Vec<u32> =
            Self::thread_images(&matrix.addresses).iter().map(|image| image * bytes).collect();
        let thread = self.thread_position(images, start);
        for number in 0..matrix.registers.accesses() {
            let registers = matrix.registers.registers(number);
            let first = matrix.addresses.at(&[(Input::Register, registers[0])]) * bytes;
            let address = self.shared_position(&thread, first);
            let address = self.builder.address(Width::B32, address);
            let elements: SmallVec<[Scalar; 16]> =
                registers.iter().map(|&register| self.memory_form(element, own[register as usize])).collect();
            let a = self.words(Words::new(element, elements.len()), &elements);
            self.builder.emit(isa::Stmatrix {
                shape: LdmatrixShape::M8n8,
                count: count_of(matrix),
                transpose: matrix.is_transposed,
                space: Some(StateSpace::Shared),
                ty: ScalarType::B16,
                address,
                a,
            });
        }
    }

    /// Loads a tile from a buffer.
    pub(super) fn lower_local_load(&mut self, inst: Inst, buffer: Value, loads: Loads) {
        let result = self.kernel.insts[inst].results[0];
        let ty = self.kernel.ty(buffer).as_memory().expect("the verifier checks that buffers are loaded");
        let layout = self.layout(result);
        let mut shared = self.shared_tile(buffer, ty, layout, loads);
        let registers = layout.representatives();
        let scalars: Vec<Scalar> =
            registers.iter().map(|&register| self.read(&mut shared, register)).collect();
        self.set(result, scalars);
    }

    /// Returns a register of a tile. Emits its access at the first read.
    pub(super) fn read(&mut self, shared: &mut SharedTile, register: u32) -> Scalar {
        if let Some(&scalar) = shared.read.get(&register) {
            return scalar;
        }
        let bytes = shared.element.bytes() as u32;
        let registers = shared.access.vector().registers(shared.accesses[&register]);
        let offsets = match &shared.access {
            TileAccess::Vectors(_, offsets) => offsets,
            TileAccess::Matrices(matrix) => &matrix.addresses,
        };
        let thread = shared.thread.get_or_insert_with(|| {
            let images = Self::thread_images(offsets).iter().map(|image| image * bytes).collect();
            self.padded_position(images, shared.start, &shared.ty)
        });
        let first = offsets.at(&[(Input::Register, registers[0])]) * bytes;
        let address = self.shared_position(thread, first);
        let elements = match &shared.access {
            TileAccess::Vectors(..) => self.load_shared(shared.element, address, registers.len()),
            TileAccess::Matrices(matrix) => self.load_matrices(shared.element, matrix, address),
        };
        shared.read.extend(registers.into_iter().zip(elements));
        shared.read[&register]
    }

    /// Emits one `ldmatrix`. Returns the elements, matrix by matrix.
    fn load_matrices(
        &mut self,
        element: Element,
        matrix: &MatrixAccess,
        address: Scalar,
    ) -> SmallVec<[Scalar; 16]> {
        let count = count_of(matrix);
        let registers: Vec<RegisterId> = (0..count.count()).map(|_| self.builder.fresh(Width::B32)).collect();
        let address = self.builder.address(Width::B32, address);
        self.builder.emit(isa::Ldmatrix {
            shape: LdmatrixShape::M8n8,
            count,
            transpose: matrix.is_transposed,
            space: Some(StateSpace::Shared),
            format: None,
            ty: Some(ScalarType::B16),
            d: destinations(&registers),
            address,
        });
        let words = Words::new(element, (32 / memory_bits(element)) as usize);
        registers.into_iter().flat_map(|register| self.builder.unpack(words, register.into())).collect()
    }
}
