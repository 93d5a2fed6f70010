//! Checks barriers by brute force.
//!
//! Each path, with up to two iterations of each loop, becomes a list of accesses to bytes. Three
//! rules must hold. Overlapping accesses have a barrier between them if one is a store. Each
//! barrier is needed on some path. No buffer is overwritten before its last load.

use std::ops::Range;

use tilewright_base::entity::SecondaryMap;
use tilewright_gpu_ir::{Deferred, Function, GpuOp, Op, Type};
use tilewright_ir::{Block, Inst, Op as Tile, Operation, Value};

use crate::common::generate::{EVERYTHING, program};
use crate::common::seeds;
use crate::{KERNELS, Program, compiled, module, text};

/// The maximum number of paths that the check follows.
const MAX_PATHS: usize = 400;

#[derive(Clone)]
enum Access {
    /// A store to the bytes of a buffer.
    Store(Range<u32>, Value),
    /// A load from the bytes of a buffer.
    Load(Range<u32>, Value),
    Barrier(Inst),
}

type Path = Vec<Access>;

struct Paths<'a> {
    function: &'a Function,
    /// The bytes of each buffer.
    bytes: SecondaryMap<Value, Option<Range<u32>>>,
}

impl<'a> Paths<'a> {
    fn new(program: &'a Program) -> Self {
        let function = program.kernel();
        let mut bytes: SecondaryMap<Value, Option<Range<u32>>> = SecondaryMap::new();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            let Op::Gpu(GpuOp::Alloc { offset: Deferred(Some(offset)) }) = data.op else { return };
            let Type::Buffer(buffer) = function.ty(data.results[0]) else { panic!("the result is a buffer") };
            let elements: u32 = buffer.shape.iter().product();
            let end = offset + buffer.slots * elements * buffer.element.bytes() as u32;
            assert!(end <= program.header.shared_bytes, "it ends at {end}:\n{}", text(program));
            bytes[data.results[0]] = Some(offset..end);
        });
        Self { function, bytes }
    }

    /// Returns the accesses of an instruction, by the documentation of its op.
    fn accesses(&self, inst: Inst) -> Path {
        let data = &self.function.insts[inst];
        let buffer = |position: usize| {
            let value = data.operands[position];
            (self.bytes[value].clone().expect("the buffer has an offset"), value)
        };
        let store = |(range, value)| Access::Store(range, value);
        let load = |(range, value)| Access::Load(range, value);
        let op = match &data.op {
            Op::Tile(Tile::Barrier {}) => return vec![Access::Barrier(inst)],
            // tidy: wildcard because no other op of tile IR accesses shared memory
            Op::Tile(_) => return Vec::new(),
            Op::Gpu(op) => op,
        };
        match op {
            GpuOp::LocalStore {} => vec![store(buffer(0))],
            GpuOp::LocalLoad { .. } => vec![load(buffer(0))],
            GpuOp::MmaSync { .. } | GpuOp::FmaDot { .. } | GpuOp::Wgmma { .. } => {
                let in_memory =
                    |position: &usize| self.function.ty(data.operands[*position]).as_memory().is_some();
                (0..2).filter(in_memory).map(|position| load(buffer(position))).collect()
            }
            GpuOp::ConvertLayout {}
            | GpuOp::Elementwise { .. }
            | GpuOp::Rescale {}
            | GpuOp::Load { .. }
            | GpuOp::Store { .. }
            | GpuOp::AtomicLoad { .. }
            | GpuOp::Reduce { .. }
            | GpuOp::Alloc { .. }
            | GpuOp::Dealloc {}
            | GpuOp::WgmmaWait { .. }
            | GpuOp::FenceProxy {} => Vec::new(),
            // tidy: wildcard because no pass creates the others for these programs
            other => panic!("{} is not expected here", other.info().name),
        }
    }

    fn of(&self, block: Block) -> Vec<Path> {
        let mut all = vec![Vec::new()];
        for inst in &self.function.blocks[block].insts {
            let data = &self.function.insts[*inst];
            let control = data.op.as_tile();
            let regions: Vec<Vec<Path>> = match control {
                Some(Tile::For { .. } | Tile::While {} | Tile::If {}) => {
                    data.regions.iter().map(|region| self.of(*region)).collect()
                }
                // tidy: wildcard because only the regions of control flow branch
                _ => Vec::new(),
            };
            let nothing = vec![Vec::new()];
            let here = match (control, &regions[..]) {
                (Some(Tile::For { .. }), [body]) => [nothing, body.clone(), concatenate(body, body)].concat(),
                (Some(Tile::While {}), [condition, body]) => {
                    let once = concatenate(&concatenate(condition, body), condition);
                    [condition.clone(), concatenate(&once, &concatenate(body, condition)), once].concat()
                }
                (Some(Tile::If {}), [first, second]) => [&first[..], second].concat(),
                // tidy: wildcard because the other ops do not branch
                _ => vec![self.accesses(*inst)],
            };
            all = concatenate(&all, &here);
        }
        all
    }
}

fn concatenate(before: &[Path], after: &[Path]) -> Vec<Path> {
    let pairs =
        before.iter().flat_map(|first| after.iter().map(move |second| [&first[..], &second[..]].concat()));
    pairs.take(MAX_PATHS).collect()
}

/// Returns whether accesses of a path may conflict without the barrier `without`.
fn has_hazard(path: &Path, without: Option<Inst>) -> bool {
    let mut open: Vec<(&Range<u32>, bool)> = Vec::new();
    for access in path {
        let (range, is_store) = match access {
            Access::Barrier(inst) if Some(*inst) == without => continue,
            Access::Barrier(_) => {
                open.clear();
                continue;
            }
            Access::Store(range, _) => (range, true),
            Access::Load(range, _) => (range, false),
        };
        let meets = |(other, stores): &(&Range<u32>, bool)| {
            (is_store || *stores) && range.start < other.end && other.start < range.end
        };
        if open.iter().any(meets) {
            return true;
        }
        open.push((range, is_store));
    }
    false
}

/// Returns whether each load reads the last store to its bytes, through the same buffer.
fn loads_read_own_stores(path: &Path) -> bool {
    let meets = |a: &Range<u32>, b: &Range<u32>| a.start < b.end && b.start < a.end;
    path.iter().enumerate().all(|(number, access)| {
        let Access::Load(range, owner) = access else { return true };
        let last = path[..number].iter().rev().find_map(|earlier| match earlier {
            Access::Store(stored, by) if meets(stored, range) => Some(by),
            _ => None,
        });
        last == Some(owner)
    })
}

/// Panics on a hazard, and returns the number of barriers and of needed barriers. With too many
/// paths, the first number counts only needed barriers.
pub fn check(program: &Program) -> (usize, usize) {
    let function = program.kernel();
    let paths = Paths::new(program).of(function.entry);
    assert!(!paths.iter().any(|path| has_hazard(path, None)), "{}", text(program));
    assert!(paths.iter().all(loads_read_own_stores), "{}", text(program));
    let mut barriers = Vec::new();
    function.walk(function.entry, &mut |inst| {
        if let Op::Tile(Tile::Barrier {}) = function.insts[inst].op {
            barriers.push(inst);
        }
    });
    let is_needed = |barrier: &&Inst| paths.iter().any(|path| has_hazard(path, Some(**barrier)));
    let needed = barriers.iter().filter(is_needed).count();
    if paths.len() < MAX_PATHS { (barriers.len(), needed) } else { (needed, needed) }
}

#[test]
fn known_kernels_have_only_needed_barriers() {
    let mut total = 0;
    for (name, text) in KERNELS {
        for target in ["sm_75", "sm_80", "sm_90a"] {
            for num_warps in [1, 4, 8] {
                let (barriers, needed) = check(&compiled(&module(text), target, num_warps));
                assert_eq!(barriers, needed, "{name}: a barrier is not needed");
                total += barriers;
            }
        }
    }
    assert!(total > 60, "the kernels need barriers: {total}");
}

#[test]
fn random_programs_have_needed_barriers() {
    let (mut total, mut tried) = (0, 0);
    for seed in seeds(2000) {
        let module = program(seed, EVERYTHING);
        tried += 1;
        let num_warps = [1, 2, 4, 8][(seed % 4) as usize];
        total += check(&compiled(&module, "sm_80", num_warps)).1;
    }
    assert!(tried > 100 && total > 30, "{tried} programs, {total} barriers");
}
