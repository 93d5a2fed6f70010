//! Checks layouts against the dialect's documentation, without the verifier.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_gpu_ir::element_bits;
use tilewright_gpu_ir::{Buffer, Function, GpuOp, InstData, MmaShape, Op, Scope, Type};
use tilewright_ir::{Block, Op as Tile, Operation, Value, verify};
use tilewright_layout::{Fragment, Input, Layout, Mma, Reduction};

use crate::{KERNELS, Program, module, stages, text};

/// Panics if a layout does not fit its op or type.
pub fn check(program: &Program) {
    verify(program).unwrap_or_else(|error| panic!("{error}"));
    let checker = Checker { program, function: program.kernel() };
    let mut blocks = vec![checker.function.entry];
    while let Some(block) = blocks.pop() {
        for parameter in &checker.function.blocks[block].parameters {
            checker.value(*parameter);
        }
        for inst in &checker.function.blocks[block].insts {
            let data = &checker.function.insts[*inst];
            blocks.extend(data.regions.iter().copied());
            data.results.iter().for_each(|result| checker.value(*result));
            match &data.op {
                Op::Tile(op) => checker.tile_op(data, op),
                Op::Gpu(op) => checker.gpu_op(data, op),
            }
        }
    }
}

struct Checker<'a> {
    program: &'a Program,
    function: &'a Function,
}

impl<'a> Checker<'a> {
    fn layout(&self, value: Value) -> Option<&'a Layout> {
        self.function.ty(value).layout().map(|id| self.program.header.layouts.get(id))
    }

    fn tile_layout(&self, value: Value) -> &'a Layout {
        self.layout(value).unwrap_or_else(|| panic!("{value} is a tile"))
    }

    fn memory(&self, value: Value) -> (&'a Buffer, &'a Layout) {
        let buffer = self.function.ty(value).as_memory().expect("the value is memory");
        (buffer, self.program.header.layouts.get(buffer.layout))
    }

    fn value(&self, value: Value) {
        let warps = self.program.header.num_warps;
        match self.function.ty(value) {
            Type::Registers { tile, layout: None } => {
                assert!(tile.is_scalar(), "{value} of {tile} has no layout");
            }
            Type::Registers { tile, .. } | Type::Pending { tile, .. } => {
                let layout = self.tile_layout(value);
                assert_eq!(layout.output().shape()[..], tile.shape[..], "{value}");
                assert!(layout.is_surjective(), "{value}: every element must have an owner");
                assert_eq!(
                    layout.free_bits(Input::Register),
                    0,
                    "{value}: no thread may hold an element twice"
                );
                let found = (layout.bits_of(Input::Lane), 1 << layout.bits_of(Input::Warp));
                assert_eq!(found, (5, warps), "{value}");
                assert_eq!(layout.bits_of(Input::Block) + layout.bits_of(Input::Offset), 0, "{value}");
            }
            Type::Buffer(buffer) => {
                let layout = self.tile_layout(value);
                assert_eq!(layout.output().shape()[..], buffer.shape[..], "{value}");
                assert!(
                    layout.is_surjective() && layout.is_injective(),
                    "{value}: each element must have one offset"
                );
                assert_eq!(layout.bits_of(Input::Offset) as usize, layout.columns().len(), "{value}");
            }
            // tidy: wildcard because these programs have no other types
            other => panic!("{value} of type {other}"),
        }
    }

    fn same(&self, data: &InstData, values: &[Value]) {
        for value in values {
            assert_eq!(self.layout(*value), self.layout(values[0]), "{}", data.op.name());
        }
    }

    fn same_all(&self, data: &InstData) {
        let values: Vec<Value> = data.operands.iter().chain(&data.results).copied().collect();
        self.same(data, &values);
    }

    fn tile_op(&self, data: &InstData, op: &Tile) {
        let operand = || data.operands.first().and_then(|value| self.layout(*value));
        let result = || data.results.first().and_then(|value| self.layout(*value));
        let both = || operand().zip(result());
        match op {
            Tile::Cast { .. } | Tile::Bitcast { .. } | Tile::PtrAdd {} => self.same_all(data),
            Tile::Assert { .. } => self.same(data, &data.operands),
            Tile::ExpandDims { axis } => {
                if let Some(operand) = operand() {
                    assert_eq!(Some(&operand.insert_axis(*axis as usize)), result());
                }
            }
            Tile::Transpose { permutation } => {
                let axes: Vec<usize> = permutation.iter().map(|axis| *axis as usize).collect();
                if let Some(operand) = operand() {
                    assert_eq!(Some(&operand.transpose(&axes)), result());
                }
            }
            Tile::Reshape { shape } => {
                if let Some((operand, result)) = both() {
                    assert_eq!(operand.reshape(shape), *result);
                }
            }
            Tile::Broadcast { shape } => {
                let Some((operand, result)) = both() else { return };
                let old = operand.output().shape();
                let grown = (0..shape.len()).filter(|axis| old[*axis] != shape[*axis]);
                let collapsed = grown.fold(result.clone(), |layout, axis| layout.collapse(axis));
                assert_eq!(collapsed.without_duplicate_registers(), *operand);
                assert!(
                    collapsed.registers_from(operand).is_some(),
                    "each register has a register of the operand"
                );
            }
            Tile::For { .. } | Tile::While {} | Tile::If {} => self.control(data, op),
            Tile::Constant { .. }
            | Tile::ProgramId { .. }
            | Tile::NumPrograms { .. }
            | Tile::Arange { .. }
            | Tile::Splat { .. }
            | Tile::Barrier {}
            | Tile::Yield {}
            | Tile::Return {} => {}
            // tidy: wildcard because the dialect replaces or lowers the other ops
            other => panic!("{} does not exist after lowering to the dialect", other.name()),
        }
    }

    fn gpu_op(&self, data: &InstData, op: &GpuOp) {
        match op {
            GpuOp::Elementwise { .. } | GpuOp::Rescale {} | GpuOp::AtomicLoad { .. } => self.same_all(data),
            GpuOp::Load { axis, width, .. } | GpuOp::Store { axis, width, .. } => {
                self.same_all(data);
                self.access(data, *axis as usize, *width);
            }
            GpuOp::Reduce { axis, scope, .. } => {
                self.same(data, &data.operands);
                let operand = self.tile_layout(data.operands[0]);
                for result in &data.results {
                    match (scope, self.layout(*result)) {
                        (Scope::Block, None) => {}
                        (Scope::Block, Some(layout)) => {
                            assert_eq!(*layout, Reduction::along(operand, *axis as usize).result);
                        }
                        (Scope::Warp, _) => {
                            self.check_partial_results(operand, *axis as usize, self.tile_layout(*result));
                        }
                    }
                }
            }
            GpuOp::MmaSync { instruction, warps, .. } | GpuOp::Wgmma { instruction, warps, .. } => {
                self.mma(data, *instruction, warps);
            }
            GpuOp::WgmmaWait { .. } => self.same(data, &[data.operands[0], data.results[0]]),
            GpuOp::FmaDot { .. } => self.fma(data),
            GpuOp::ConvertLayout {} | GpuOp::Alloc { .. } | GpuOp::Dealloc {} | GpuOp::FenceProxy {} => {}
            GpuOp::LocalStore {} => self.fits_in_memory(data.operands[1], data.operands[0]),
            GpuOp::LocalLoad { matrix } => {
                self.fits_in_memory(data.results[0], data.operands[0]);
                let (buffer, memory) = self.memory(data.operands[0]);
                let by_matrix =
                    || self.tile_layout(data.results[0]).matrix_access(memory, element_bits(&buffer.tile()));
                assert!(!matrix || by_matrix().is_some(), "ldmatrix cannot load {}", data.results[0]);
            }
            // tidy: wildcard because no pass creates the others for these programs
            other => panic!("{} is not expected here", other.info().name),
        }
    }

    /// Checks that each access of a thread moves registers that are consecutive along the axis.
    fn access(&self, data: &InstData, axis: usize, width: u32) {
        let Some(layout) = self.layout(data.operands[0]) else {
            return assert_eq!(width, 1, "a scalar is one element");
        };
        assert!(layout.vector_along(axis).width() >= width, "{} of {width}", data.op.name());
    }

    fn fits_in_memory(&self, value: Value, memory: Value) {
        let (buffer, _) = self.memory(memory);
        assert_eq!(self.function.ty(value).as_registers(), Some(&buffer.tile()));
        assert_eq!(buffer.slots, 1);
    }

    /// Checks by brute force that the warps' partial results cover each line once.
    fn check_partial_results(&self, source: &Layout, axis: usize, parts: &Layout) {
        let last = parts.output().rank() - 1;
        // The elements of each line and part in each warp with the part.
        let mut held: BTreeMap<(Vec<u32>, u32), BTreeSet<BTreeSet<u32>>> = BTreeMap::new();
        for warp in 0..self.program.header.num_warps {
            let mut of_warp: BTreeMap<Vec<u32>, BTreeSet<u32>> = BTreeMap::new();
            let mut claims: BTreeSet<(Vec<u32>, u32)> = BTreeSet::new();
            for lane in 0..32 {
                for (layout, is_source) in [(source, true), (parts, false)] {
                    for register in 0..layout.registers() {
                        let point = [(Input::Register, register), (Input::Lane, lane), (Input::Warp, warp)];
                        let mut line = layout.coordinates(&point).to_vec();
                        let own = line.remove(if is_source { axis } else { last });
                        if is_source {
                            of_warp.entry(line).or_default().insert(own);
                        } else {
                            claims.insert((line, own));
                        }
                    }
                }
            }
            for (line, part) in claims {
                let elements = of_warp[&line].clone();
                held.entry((line, part)).or_default().insert(elements);
            }
        }
        let mut lines: BTreeMap<&Vec<u32>, Vec<u32>> = BTreeMap::new();
        for ((line, _), sets) in &held {
            assert_eq!(sets.len(), 1, "warps disagree about a part of line {line:?}");
            lines.entry(line).or_default().extend(sets.iter().flatten());
        }
        let extent = source.output().size(axis);
        for (line, mut elements) in lines {
            elements.sort_unstable();
            assert_eq!(
                elements,
                (0..extent).collect::<Vec<_>>(),
                "line {line:?}: each element must be in one part"
            );
        }
    }

    fn mma(&self, data: &InstData, shape: MmaShape, warps: &[i64]) {
        let tile = self.function.ty(data.operands[0]).tile().expect("the operand is a tile");
        let mma = Mma::new(shape.m, shape.n, shape.k, element_bits(&tile));
        let warps: Vec<u32> = warps.iter().map(|count| *count as u32).collect();
        assert_eq!(warps.iter().product::<u32>(), self.program.header.num_warps);
        for (position, fragment) in [Fragment::A, Fragment::B, Fragment::Accumulator].into_iter().enumerate()
        {
            let operand = data.operands[position];
            if self.function.ty(operand).as_memory().is_some() {
                assert!(position < 2, "the accumulator is in registers");
                continue;
            }
            // Operands of `wgmma` go through shared memory, so their layouts are free.
            if position < 2 && shape.m == 64 && !self.program.header.synchronized {
                continue;
            }
            let found = self.tile_layout(operand);
            assert_eq!(*found, mma.layout(fragment, &found.output().shape(), &warps), "{fragment:?}");
        }
        self.same(data, &[data.operands[2], data.results[0]]);
    }

    fn fma(&self, data: &InstData) {
        self.same(data, &[data.operands[2], data.results[0]]);
        let accumulator = self.tile_layout(data.operands[2]);
        for position in 0..2 {
            let operand = data.operands[position];
            if self.function.ty(operand).as_registers().is_some() {
                let found = self.tile_layout(operand);
                assert_eq!(accumulator.bits_of(Input::Warp), found.bits_of(Input::Warp));
                self.check_operand_elements(accumulator, found, position);
            }
        }
    }

    /// Checks by brute force that each thread holds the operands of its accumulator elements.
    ///
    /// A thread with the element (m, n) holds all (m, k) of A or all (k, n) of B.
    fn check_operand_elements(&self, accumulator: &Layout, operand: &Layout, position: usize) {
        let held = |layout: &Layout, lane: u32, warp: u32| -> Vec<Vec<u32>> {
            (0..layout.registers())
                .map(|register| {
                    let point = [(Input::Register, register), (Input::Lane, lane), (Input::Warp, warp)];
                    layout.coordinates(&point).to_vec()
                })
                .collect()
        };
        let rank = operand.output().rank();
        let k_axis = if position == 0 { rank - 1 } else { rank - 2 };
        for (lane, warp) in [(0, 0), (5, 0), (31, self.program.header.num_warps - 1)] {
            let found = held(operand, lane, warp);
            for element in held(accumulator, lane, warp) {
                for k in 0..operand.output().size(k_axis) {
                    let mut wanted = element.clone();
                    wanted[k_axis] = k;
                    assert!(found.contains(&wanted), "{element:?} at {k}");
                }
            }
        }
    }

    fn control(&self, data: &InstData, op: &Tile) {
        let function = self.function;
        let layouts = |values: &[Value]| -> Vec<Option<&Layout>> {
            values.iter().map(|value| self.layout(*value)).collect()
        };
        let results = layouts(&data.results);
        let parameters = |region: Block, skip: usize| layouts(&function.blocks[region].parameters[skip..]);
        match (op, &data.regions[..]) {
            (Tile::For { .. }, [body]) => {
                assert_eq!(layouts(&data.operands[3..]), results);
                assert_eq!(parameters(*body, 1), results);
                assert_eq!(layouts(function.yielded(*body)), results);
            }
            (Tile::While {}, [condition, body]) => {
                assert_eq!(layouts(&data.operands), results);
                assert_eq!(parameters(*condition, 0), results);
                assert_eq!(parameters(*body, 0), results);
                assert_eq!(layouts(function.yielded(*body)), results);
            }
            (Tile::If {}, regions) => {
                for region in regions {
                    assert_eq!(layouts(function.yielded(*region)), results);
                }
            }
            // tidy: wildcard because the caller passes only control flow
            _ => unreachable!(),
        }
    }
}

/// Checks that `convert_layout`s stay in warps, and that `fma` dots read shared memory.
pub fn check_lowered(program: &Program) {
    check(program);
    let checker = Checker { program, function: program.kernel() };
    let warps = |layout: &Layout| {
        let mut lines: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for warp in 0..program.header.num_warps {
            for register in 0..layout.registers() {
                for lane in 0..32 {
                    let point = [(Input::Register, register), (Input::Lane, lane), (Input::Warp, warp)];
                    lines.entry(warp).or_default().insert(layout.at(&point));
                }
            }
        }
        lines
    };
    checker.function.walk(checker.function.entry, &mut |inst| {
        let data = &checker.function.insts[inst];
        if let Op::Gpu(GpuOp::ConvertLayout {}) = data.op {
            let [from, to] =
                [data.operands[0], data.results[0]].map(|value| warps(checker.tile_layout(value)));
            let stays = to.iter().all(|(warp, elements)| elements.is_subset(&from[warp]));
            assert!(stays, "{} crosses warps:\n{}", data.results[0], text(program));
        }
        if let Op::Gpu(GpuOp::FmaDot { .. }) = data.op {
            let is_memory = |value: &Value| checker.function.ty(*value).as_memory().is_some();
            assert!(data.operands[..2].iter().all(is_memory), "operands are in shared memory");
        }
    });
}

#[test]
fn layouts_of_known_kernels_fit() {
    for (_, text) in KERNELS {
        for target in ["sm_75", "sm_80", "sm_90a"] {
            for num_warps in [1, 2, 4, 8] {
                let stages = stages(&module(text), target, num_warps);
                stages.iter().for_each(check);
                check_lowered(&stages[stages.len() - 1]);
            }
        }
    }
}
