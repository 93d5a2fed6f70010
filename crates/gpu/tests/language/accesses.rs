//! Checks the claims of vector accesses on concrete arguments.
//!
//! Each access of each thread must be a run of consecutive, aligned addresses under one mask. Of
//! the threads with an element, one is its owner and accesses it.

use std::collections::BTreeMap;

use tilewright_gpu_ir::{GpuOp, InstData, Op};
use tilewright_ir::{Type, Value};
use tilewright_layout::{Input, Layout, Vector};

use crate::common::evaluate::{Evaluator, Memory, Tile};
use crate::common::{Random, seeds};
use crate::erase::{Erased, erase};
use crate::{Program, assigned, module, text};

/// A property that each computation of a value must have.
struct Claim {
    access: Access,
    is_mask: bool,
    /// The register-index bits that do not change the value.
    equal_registers: u32,
}

#[derive(Clone)]
struct Access {
    layout: Layout,
    vector: Vector,
}

impl Access {
    fn of(program: &Program, data: &InstData) -> Option<Self> {
        let Op::Gpu(GpuOp::Load { axis, width, .. } | GpuOp::Store { axis, width, .. }) = data.op else {
            return None;
        };
        let id = program.kernel().ty(data.operands[0]).layout()?;
        let layout = program.header.layouts.get(id).clone();
        let vector = layout.vector_along(axis as usize).at_most(width);
        assert_eq!(vector.width(), width, "{}", text(program));
        Some(Self { layout, vector })
    }

    /// Returns the elements of each access of a warp. Skips lanes with a bit of `without`.
    fn elements(&self, warp: u32, without: u32) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        for lane in (0..32).filter(|lane| lane & without == 0) {
            for access in 0..self.vector.accesses() {
                let element = |register: u32| {
                    let point = [(Input::Register, register), (Input::Lane, lane), (Input::Warp, warp)];
                    self.layout.at(&point) as usize
                };
                all.push(self.vector.registers(access).into_iter().map(element).collect());
            }
        }
        all
    }
}

/// Returns the claims on each value of the tile IR.
fn claims(program: &Program, erased: &Erased) -> BTreeMap<Value, Vec<Claim>> {
    let mut claims: BTreeMap<Value, Vec<Claim>> = BTreeMap::new();
    for data in program.kernel().insts.values() {
        let Some(access) = Access::of(program, data) else { continue };
        let mask = if data.results.is_empty() { 2 } else { 1 };
        for (operand, is_mask) in [(0, false), (mask, true)] {
            if let Some(value) = data.operands.get(operand) {
                let value = erased.values[*value].expect("the operand is in registers");
                let equal_registers = match data.op {
                    Op::Gpu(GpuOp::Load { equal_registers, .. }) => equal_registers,
                    // tidy: wildcard because only loads make this claim
                    _ => 0,
                };
                claims.entry(value).or_default().push(Claim {
                    access: access.clone(),
                    is_mask,
                    equal_registers,
                });
            }
        }
    }
    claims
}

/// Checks that each register equals the register whose index has the claim's bits cleared.
fn are_equal(program: &Program, value: Value, tile: &Tile, claim: &Claim) {
    let layout = &claim.access.layout;
    for (warp, lane) in (0..program.header.num_warps).flat_map(|warp| (0..32).map(move |lane| (warp, lane))) {
        let element = |register: u32| {
            let point = [(Input::Register, register), (Input::Lane, lane), (Input::Warp, warp)];
            tile[layout.at(&point) as usize]
        };
        for register in 0..layout.registers() {
            let same = register & !claim.equal_registers;
            assert_eq!(element(register), element(same), "{value}: {}", text(program));
        }
    }
}

fn holds(program: &Program, value: Value, ty: &Type, tile: &Tile, claim: &Claim) {
    let bytes = ty.element.pointee().map_or(1, |pointee| pointee.bytes() as u64);
    let accesses = (0..program.header.num_warps).flat_map(|warp| claim.access.elements(warp, 0));
    for elements in accesses {
        let first = tile[elements[0]];
        let width = elements.len() as u64;
        assert!(claim.is_mask || width * bytes <= 16, "at most 16 bytes");
        for (step, element) in elements.iter().enumerate() {
            let expected = if claim.is_mask { first } else { first + step as u64 * bytes };
            assert_eq!(tile[*element], expected, "{value}: {}", text(program));
        }
        assert!(claim.is_mask || first.is_multiple_of(width * bytes), "{value}: {}", text(program));
    }
}

/// Returns a kernel that loads and stores at random functions of an index tile.
fn random_accesses(random: &mut Random) -> String {
    let extent = random.pick(&[64, 256, 1024]);
    let shape = format!("[{extent}]");
    let mut lines = vec![format!("%t0 = arange {{start = 0, end = {extent}}} : int32{shape}")];
    let mut tiles = vec!["%t0".to_owned()];
    for number in 0..random.below(4) {
        let from = random.pick(&tiles.iter().map(String::as_str).collect::<Vec<_>>()).to_owned();
        let name = format!("%t{}", number + 1);
        if random.chance(3) {
            lines.push(format!("%s{number} = splat %n {{shape = {shape}}} : int32{shape}"));
        } else {
            let constant = random.pick(&[1, 2, 3, 4, 6, 8, 16]);
            lines.push(format!("%c{number} = constant {{value = {constant}:int32}} : int32"));
            lines.push(format!("%s{number} = splat %c{number} {{shape = {shape}}} : int32{shape}"));
        }
        let function = random.pick(&["add", "add", "int_div", "int_rem", "max"]);
        lines.push(format!("{name} = {function} {from}, %s{number} : int32{shape}"));
        tiles.push(name);
    }
    let index = tiles.last().expect("there is a tile").clone();
    let bounded = random.pick(&tiles.iter().map(String::as_str).collect::<Vec<_>>()).to_owned();
    lines.push(format!("%m = splat %n {{shape = {shape}}} : int32{shape}"));
    lines.push(format!("%mask = lt {bounded}, %m : int1{shape}"));
    for (name, element) in [("%p", "int8"), ("%q", "fp16"), ("%r", "fp32")] {
        let base = name.trim_start_matches('%');
        let mask = if random.chance(2) { ", %mask" } else { "" };
        lines.push(format!("%{base}b = splat {name} {{shape = {shape}}} : *{element}{shape}"));
        lines.push(format!("%{base}a = ptr_add %{base}b, {index} : *{element}{shape}"));
        lines.push(format!(
            "%{base}v = load %{base}a{mask} {{cache = \"\", eviction = \"\", volatile = false}} : {element}{shape}"
        ));
        lines.push(format!("store %{base}a, %{base}v{mask} {{cache = \"\", eviction = \"\"}}"));
    }
    let [p, q, r, n] = [0; 4].map(|_: i32| random.pick(&[1, 2, 4, 8, 16]));
    format!(
        "kernel func0 @k(%p: *int8 {{divisibility = {p}}}, %q: *fp16 {{divisibility = {}}}, \
         %r: *fp32 {{divisibility = {}}}, %n: int32 {{divisibility = {n}}}) {{\n{}\nreturn_values\n}}",
        q.max(2),
        r.max(4),
        lines.join("\n")
    )
    .replace(" {divisibility = 1}", "")
}

#[test]
fn accesses_are_aligned_runs() {
    let mut widths: BTreeMap<u32, u32> = BTreeMap::new();
    let mut loaded_once = 0;
    for seed in seeds(600) {
        let mut random = Random(seed);
        let module = module(&random_accesses(&mut random));
        let program = assigned(&module, "sm_80", [1, 4][(seed % 2) as usize]);
        let erased = erase(&program);
        let claims = claims(&program, &erased);
        let function = erased.module.kernel();
        // Addresses and scalars have exactly their promised divisibility.
        let multiple = |index: usize, random: &mut Random| {
            u64::from(function.parameters[index].divisibility) * (2 * random.below(4) as u64 + 1)
        };
        let addresses = [0, 1, 2].map(|index| ((index as u64 + 1) << 20) + multiple(index, &mut random));
        let memory = Memory(addresses.iter().map(|address| (*address, vec![1; 1 << 16])).collect());
        let arguments = [&addresses[..], &[multiple(3, &mut random)]].concat();
        let mut observe = |value: Value, ty: &Type, tile: &Tile| {
            for claim in claims.get(&value).into_iter().flatten() {
                holds(&program, value, ty, tile, claim);
                are_equal(&program, value, tile, claim);
                loaded_once += u32::from(claim.equal_registers != 0);
                *widths.entry(claim.access.vector.width()).or_default() += 1;
            }
        };
        let mut evaluator = Evaluator::new(function, memory, [0, 1], &mut observe);
        evaluator.run(&arguments).unwrap_or_else(|stopped| panic!("seed {seed}: {}", stopped.0));
    }
    for width in [1, 2, 4, 8] {
        assert!(widths[&width] > 20, "{widths:?}");
    }
    assert!(loaded_once > 20, "{loaded_once}");
}

/// Threads without copies store each element once.
#[test]
fn copies_do_not_store() {
    for extent in [1_u32, 2, 16, 64, 256, 2048] {
        for num_warps in [1, 4, 8] {
            let text = format!(
                "kernel func0 @k(%p: *fp32 {{divisibility = 16}}) {{
                   %i = arange {{start = 0, end = {extent}}} : int32[{extent}]
                   %b = splat %p {{shape = [{extent}]}} : *fp32[{extent}]
                   %a = ptr_add %b, %i : *fp32[{extent}]
                   %v = cast %i {{element = fp32, rounding = \"rtne\"}} : fp32[{extent}]
                   store %a, %v {{cache = \"\", eviction = \"\"}}
                   return_values
                 }}"
            );
            let program = assigned(&module(&text), "sm_80", num_warps);
            let insts = &program.kernel().insts;
            let mut accesses = insts.values().filter_map(|data| Access::of(&program, data));
            let access = accesses.next().expect("there is a store");
            let copies = [Input::Lane, Input::Warp].map(|input| access.layout.free_bits(input));
            let mut stored = vec![0; extent as usize];
            for warp in (0..num_warps).filter(|warp| warp & copies[1] == 0) {
                for element in access.elements(warp, copies[0]).into_iter().flatten() {
                    stored[element] += 1;
                }
            }
            assert_eq!(stored, vec![1; extent as usize], "{num_warps} warps");
        }
    }
}
