//! Tests the instructions of dots and the layouts of their operands.

use tilewright_gpu_ir::{GpuOp, InstData, Op};
use tilewright_layout::{Fragment, Input, Layout, Mma, bank_use, ldmatrix_bank_use};

use crate::check::{check, check_lowered};
use crate::{Program, assigned, compiled, module};

/// Returns a kernel with one dot that stores its result.
fn dot_kernel([m, n, k]: [u32; 3], [left, right, accumulator]: [&str; 3], precision: &str) -> String {
    let mut lines = Vec::new();
    for (name, element, rows, columns) in [("a", left, m, k), ("b", right, k, n), ("c", accumulator, m, n)] {
        let shape = format!("[{rows}, {columns}]");
        lines.push(format!(
            "%{name}r = arange {{start = 0, end = {rows}}} : int32[{rows}]
             %{name}re = expand_dims %{name}r {{axis = 1}} : int32[{rows}, 1]
             %{name}s = constant {{value = {columns}:int32}} : int32
             %{name}ss = splat %{name}s {{shape = [{rows}, 1]}} : int32[{rows}, 1]
             %{name}ro = mul %{name}re, %{name}ss : int32[{rows}, 1]
             %{name}rb = broadcast %{name}ro {{shape = {shape}}} : int32{shape}
             %{name}c = arange {{start = 0, end = {columns}}} : int32[{columns}]
             %{name}ce = expand_dims %{name}c {{axis = 0}} : int32[1, {columns}]
             %{name}cb = broadcast %{name}ce {{shape = {shape}}} : int32{shape}
             %{name}o = add %{name}rb, %{name}cb : int32{shape}
             %{name}p = splat %{name} {{shape = {shape}}} : *{element}{shape}
             %{name}a = ptr_add %{name}p, %{name}o : *{element}{shape}
             %{name}v = load %{name}a {{cache = \"\", eviction = \"\", volatile = false}} : {element}{shape}"
        ));
    }
    format!(
        "kernel func0 @k(%a: *{left} {{divisibility = 16}}, %b: *{right} {{divisibility = 16}}, \
         %c: *{accumulator} {{divisibility = 16}}) {{\n{}\n\
         %d = dot %av, %bv, %cv {{precision = \"{precision}\", max_imprecise_acc = 0}} : {accumulator}[{m}, {n}]\n\
         store %ca, %d {{cache = \"\", eviction = \"\"}}\nreturn_values\n}}",
        lines.join("\n")
    )
}

fn dot_of(program: &Program) -> &InstData {
    let is_dot = |data: &&InstData| {
        matches!(data.op, Op::Gpu(GpuOp::MmaSync { .. } | GpuOp::Wgmma { .. } | GpuOp::FmaDot { .. }))
    };
    program.kernel().insts.values().find(is_dot).expect("the kernel has a dot")
}

/// Returns the matrix instruction of the dot, or `fma`, and its types.
fn chosen(program: &Program) -> String {
    let data = dot_of(program);
    let element =
        |operand| program.kernel().ty(operand).tile().expect("the value is a tile").element.to_string();
    let types: Vec<String> = data.operands.iter().copied().map(element).collect();
    let instruction = match &data.op {
        Op::Gpu(GpuOp::MmaSync { instruction, .. } | GpuOp::Wgmma { instruction, .. }) => {
            format!("m{}n{}k{}", instruction.m, instruction.n, instruction.k)
        }
        // tidy: wildcard because the other dots multiply single elements
        _ => "fma".to_owned(),
    };
    format!("{instruction} {}", types.join(" "))
}

/// Extents, types, precision, target and the expected choice.
type Case = ([u32; 3], [&'static str; 3], &'static str, &'static str, &'static str);

#[test]
fn instructions_by_type_and_target() {
    let full = [64, 64, 64];
    let cases: &[Case] = &[
        (full, ["fp16", "fp16", "fp32"], "tf32", "sm_75", "m16n8k8 fp16 fp16 fp32"),
        (full, ["fp16", "fp16", "fp32"], "ieee", "sm_80", "m16n8k16 fp16 fp16 fp32"),
        (full, ["fp16", "fp16", "fp16"], "tf32", "sm_80", "m16n8k16 fp16 fp16 fp16"),
        (full, ["bf16", "bf16", "fp32"], "tf32", "sm_80", "m16n8k16 bf16 bf16 fp32"),
        (full, ["bf16", "bf16", "fp32"], "tf32", "sm_75", "fma fp32 fp32 fp32"),
        (full, ["bf16", "bf16", "bf16"], "tf32", "sm_80", "m16n8k16 bf16 bf16 fp32"),
        (full, ["fp32", "fp32", "fp32"], "tf32", "sm_80", "m16n8k8 fp32 fp32 fp32"),
        (full, ["fp32", "fp32", "fp32"], "tf32", "sm_75", "fma fp32 fp32 fp32"),
        (full, ["fp32", "fp32", "fp32"], "ieee", "sm_90", "fma fp32 fp32 fp32"),
        (full, ["fp64", "fp64", "fp64"], "ieee", "sm_90", "m8n8k4 fp64 fp64 fp64"),
        (full, ["int8", "int8", "int32"], "tf32", "sm_80", "m16n8k32 int8 int8 int32"),
        (full, ["uint8", "int8", "int32"], "tf32", "sm_75", "m8n8k16 uint8 int8 int32"),
        (full, ["fp8e4nv", "fp8e5", "fp32"], "tf32", "sm_89", "m16n8k32 fp8e4nv fp8e5 fp32"),
        (full, ["fp8e4nv", "fp8e5", "fp32"], "tf32", "sm_80", "m16n8k16 fp16 fp16 fp32"),
        (full, ["fp8e4b15", "fp8e4b15", "fp32"], "tf32", "sm_100", "m16n8k16 fp16 fp16 fp32"),
        ([16, 8, 8], ["fp16", "fp16", "fp32"], "tf32", "sm_80", "m16n8k8 fp16 fp16 fp32"),
        ([8, 8, 16], ["fp16", "fp16", "fp32"], "tf32", "sm_80", "fma fp32 fp32 fp32"),
        // tf32 represents every fp16 value.
        ([16, 16, 4], ["fp16", "fp16", "fp16"], "tf32", "sm_80", "m16n8k4 fp32 fp32 fp32"),
        ([16, 16, 4], ["fp16", "fp16", "fp16"], "ieee", "sm_80", "fma fp32 fp32 fp32"),
        ([2, 4, 2], ["int8", "int8", "int32"], "tf32", "sm_80", "fma int8 int8 int32"),
    ];
    for (shape, types, precision, target, expected) in cases {
        for num_warps in [1, 4, 8] {
            let module = module(&dot_kernel(*shape, *types, precision));
            check(&assigned(&module, target, num_warps));
            let program = compiled(&module, target, num_warps);
            check_lowered(&program);
            assert_eq!(chosen(&program), *expected, "{types:?} on {target}");
        }
    }
}

/// Warpgroups compute dots, except with narrow tiles, few warps, other types or without `wgmma`.
#[test]
fn instructions_of_warpgroups() {
    let full = [64, 64, 64];
    let cases: &[(u32, Case)] = &[
        (4, (full, ["fp16", "fp16", "fp32"], "tf32", "sm_90", "m64n64k16 fp16 fp16 fp32")),
        (4, (full, ["fp16", "fp16", "fp16"], "tf32", "sm_90", "m64n64k16 fp16 fp16 fp16")),
        (4, (full, ["bf16", "bf16", "bf16"], "tf32", "sm_90", "m64n64k16 bf16 bf16 fp32")),
        (4, (full, ["fp32", "fp32", "fp32"], "tf32", "sm_90", "m64n64k8 fp32 fp32 fp32")),
        (4, (full, ["fp8e4nv", "fp8e5", "fp32"], "tf32", "sm_90", "m64n64k32 fp8e4nv fp8e5 fp32")),
        (4, (full, ["fp8e4b15", "fp8e4b15", "fp32"], "tf32", "sm_90", "m64n64k16 fp16 fp16 fp32")),
        (4, (full, ["uint8", "uint8", "int32"], "tf32", "sm_90", "m64n64k32 uint8 uint8 int32")),
        (4, (full, ["uint8", "int8", "int32"], "tf32", "sm_90", "m16n8k32 uint8 int8 int32")),
        (8, (full, ["fp16", "fp16", "fp32"], "tf32", "sm_90", "m64n32k16 fp16 fp16 fp32")),
        (8, ([128, 256, 64], ["fp16", "fp16", "fp32"], "tf32", "sm_90", "m64n256k16 fp16 fp16 fp32")),
        (2, (full, ["fp16", "fp16", "fp32"], "tf32", "sm_90", "m16n8k16 fp16 fp16 fp32")),
        (4, ([32, 64, 64], ["fp16", "fp16", "fp32"], "tf32", "sm_90", "m16n8k16 fp16 fp16 fp32")),
        (8, ([64, 8, 64], ["fp16", "fp16", "fp32"], "tf32", "sm_90", "m16n8k16 fp16 fp16 fp32")),
        (4, (full, ["fp16", "fp16", "fp32"], "tf32", "sm_100", "m16n8k16 fp16 fp16 fp32")),
    ];
    for (num_warps, (shape, types, precision, target, expected)) in cases {
        let module = module(&dot_kernel(*shape, *types, precision));
        check(&assigned(&module, target, *num_warps));
        let program = compiled(&module, target, *num_warps);
        check_lowered(&program);
        assert_eq!(chosen(&program), *expected, "{types:?} on {target}");
    }
}

/// `ldmatrix` loads 16-bit row-major operands without bank conflicts.
#[test]
fn ldmatrix_loads_16_bit_operands() {
    for shape in [[128, 128, 64], [64, 256, 32], [16, 16, 16], [32, 64, 128]] {
        let program = compiled(&module(&dot_kernel(shape, ["fp16", "fp16", "fp32"], "tf32")), "sm_80", 4);
        let (function, layouts) = (program.kernel(), &program.header.layouts);
        let data = dot_of(&program);
        let Op::Gpu(GpuOp::MmaSync { instruction, warps, .. }) = &data.op else { panic!("by mma.sync") };
        let mma = Mma::new(instruction.m, instruction.n, instruction.k, 16);
        let warps = [warps[0] as u32, warps[1] as u32];
        let mut operands = 0;
        for (operand, fragment) in data.operands.iter().zip([Fragment::A, Fragment::B]) {
            let Some(buffer) = function.ty(*operand).as_memory() else { continue };
            operands += 1;
            let memory = layouts.get(buffer.layout);
            let target = mma.layout(fragment, &buffer.shape, warps);
            let matrix = target.matrix_access(memory, 16).expect("by ldmatrix");
            assert_eq!(matrix.registers.accesses() * matrix.registers.width(), target.registers());
            let row_axis = usize::from(memory.vector_axis() == 0);
            assert_eq!(ldmatrix_bank_use(memory, 16, row_axis).conflicts(), 0, "{shape:?}");
            let is_store = |data: &&InstData| {
                matches!(data.op, Op::Gpu(GpuOp::LocalStore {})) && data.operands[0] == *operand
            };
            let store = function.insts.values().find(is_store).expect("a store fills the buffer");
            let source = layouts.get(function.ty(store.operands[1]).layout().expect("the value is a tile"));
            assert_eq!(bank_use(memory, source, 16, u32::MAX).conflicts(), 0, "{shape:?}");
        }
        assert!(operands > 0, "{shape:?}");
    }
}

/// The contiguous axis of a buffer.
trait Contiguous {
    fn vector_axis(&self) -> usize;
}

impl Contiguous for Layout {
    fn vector_axis(&self) -> usize {
        let next = self.coordinates(&[(Input::Offset, 1)]);
        next.iter().position(|coordinate| *coordinate == 1).expect("the next element is along an axis")
    }
}

/// A thread computes the operands of its dots of a batch.
#[test]
fn batched_dots() {
    for (precision, expected) in [("ieee", "fma fp32 fp32 fp32"), ("tf32", "m16n8k8 fp32 fp32 fp32")] {
        let text = format!(
            "kernel func0 @k(%x: fp32) {{
               %a = splat %x {{shape = [2, 16, 32]}} : fp32[2, 16, 32]
               %b = splat %x {{shape = [2, 32, 64]}} : fp32[2, 32, 64]
               %c = splat %x {{shape = [2, 16, 64]}} : fp32[2, 16, 64]
               %d = dot %a, %b, %c {{precision = \"{precision}\", max_imprecise_acc = 0}} : fp32[2, 16, 64]
               return_values
             }}"
        );
        for num_warps in [1, 4, 16] {
            check(&assigned(&module(&text), "sm_80", num_warps));
            let program = compiled(&module(&text), "sm_80", num_warps);
            check_lowered(&program);
            assert_eq!(chosen(&program), expected);
        }
    }
}
