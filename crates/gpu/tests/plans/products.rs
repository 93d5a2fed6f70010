//! How products are computed: by which instruction on which GPU, with the operands converted where none takes them, and with
//! the result that the executor gives.

use tilewright_gpu::{Exchange, Plan, Product};
use tilewright_ir::{Inst, Op};
use tilewright_layout::{Input, Layout, bank_use, ldmatrix_bank_use};

use crate::check::check;
use crate::{module, planned};

/// A kernel that multiplies two tiles and stores the product.
fn product([m, n, k]: [u32; 3], [left, right, sum]: [&str; 3], precision: &str) -> String {
    let mut lines = Vec::new();
    for (name, element, rows, columns) in [("a", left, m, k), ("b", right, k, n), ("c", sum, m, n)] {
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
         %c: *{sum} {{divisibility = 16}}) {{\n{}\n\
         %d = dot %av, %bv, %cv {{precision = \"{precision}\", max_imprecise_acc = 0}} : {sum}[{m}, {n}]\n\
         store %ca, %d {{cache = \"\", eviction = \"\"}}\nreturn_values\n}}",
        lines.join("\n")
    )
}

fn dot_of(plan: &Plan) -> Inst {
    let insts = &plan.module.kernel().insts;
    insts.iter().find(|(_, data)| matches!(data.op, Op::Dot { .. })).expect("there is a product").0
}

/// The instruction, or `fma`, and the types that it is for.
fn chosen(plan: &Plan) -> String {
    let function = plan.module.kernel();
    let dot = dot_of(plan);
    let types = function.insts[dot].operands.iter().map(|operand| function.ty(*operand).element.to_string());
    let types: Vec<String> = types.collect();
    let instruction = match plan.products[dot].expect("it is planned") {
        Product::TensorCore { mma, .. } => format!("m{}n{}k{}", mma.m, mma.n, mma.k),
        Product::Scalar => "fma".to_owned(),
    };
    format!("{instruction} {}", types.join(" "))
}

/// Extents, types, precision and target, and what is chosen.
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
        (full, ["fp64", "fp64", "fp64"], "ieee", "sm_90", "fma fp64 fp64 fp64"),
        (full, ["int8", "int8", "int32"], "tf32", "sm_80", "m16n8k32 int8 int8 int32"),
        (full, ["uint8", "int8", "int32"], "tf32", "sm_75", "m8n8k16 uint8 int8 int32"),
        (full, ["fp8e4nv", "fp8e5", "fp32"], "tf32", "sm_89", "m16n8k32 fp8e4nv fp8e5 fp32"),
        (full, ["fp8e4nv", "fp8e5", "fp32"], "tf32", "sm_80", "m16n8k16 fp16 fp16 fp32"),
        (full, ["fp8e4b15", "fp8e4b15", "fp32"], "tf32", "sm_90", "m16n8k16 fp16 fp16 fp32"),
        ([16, 8, 8], ["fp16", "fp16", "fp32"], "tf32", "sm_80", "m16n8k8 fp16 fp16 fp32"),
        ([8, 8, 16], ["fp16", "fp16", "fp32"], "tf32", "sm_80", "fma fp32 fp32 fp32"),
        // Every number of fp16 is one of tf32.
        ([16, 16, 4], ["fp16", "fp16", "fp16"], "tf32", "sm_80", "m16n8k4 fp32 fp32 fp32"),
        ([16, 16, 4], ["fp16", "fp16", "fp16"], "ieee", "sm_80", "fma fp32 fp32 fp32"),
        ([2, 4, 2], ["int8", "int8", "int32"], "tf32", "sm_80", "fma int8 int8 int32"),
    ];
    for (shape, types, precision, target, expected) in cases {
        for num_warps in [1, 4, 8] {
            let plan = planned(&module(&product(*shape, *types, precision)), target, num_warps);
            check(&plan);
            assert_eq!(chosen(&plan), *expected, "{types:?} on {target}");
        }
    }
}

/// Operands of 16 bits from row-major tiles are loaded by `ldmatrix`, and no access of them to shared memory has a conflict.
#[test]
fn operands_of_16_bits_come_by_ldmatrix() {
    for shape in [[128, 128, 64], [64, 256, 32], [16, 16, 16], [32, 64, 128]] {
        let plan = planned(&module(&product(shape, ["fp16", "fp16", "fp32"], "tf32")), "sm_80", 4);
        let function = plan.module.kernel();
        let mut operands = 0;
        for operand in &function.insts[dot_of(&plan)].operands[..2] {
            let maker = function.defining_inst(*operand).expect("it is converted");
            let Some(Exchange::Operand { memory, matrix, .. }) = &plan.exchanges[maker] else { continue };
            let matrix = matrix.as_ref().expect("by ldmatrix");
            operands += 1;
            let target = plan.layouts[*operand].as_ref().expect("it is a tile");
            assert_eq!(matrix.registers.accesses() * matrix.registers.width(), target.registers());
            let row_axis = usize::from(memory.memory.vector_axis() == 0);
            let used = ldmatrix_bank_use(&memory.memory, 16, row_axis);
            assert_eq!(used.conflicts(), 0, "{shape:?}");
            let source = plan.layouts[function.insts[maker].operands[0]].as_ref().expect("it is a tile");
            for (access, layout) in [(&memory.store, source), (&memory.load, target)] {
                let used = bank_use(&memory.memory, layout, 16, access.vector.width());
                assert_eq!(access.wavefronts * used.instructions, used.wavefronts, "{shape:?}");
            }
        }
        assert!(operands > 0, "{shape:?}");
    }
}

/// The axis along which a buffer is contiguous.
trait Contiguous {
    fn vector_axis(&self) -> usize;
}

impl Contiguous for Layout {
    fn vector_axis(&self) -> usize {
        let next = self.coordinates(&[(Input::Offset, 1)]);
        next.iter().position(|coordinate| *coordinate == 1).expect("it is one step away")
    }
}

/// Products with a leading axis, of operands that every thread can compute.
#[test]
fn batches_of_products() {
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
            let plan = planned(&module(&text), "sm_80", num_warps);
            check(&plan);
            assert_eq!(chosen(&plan), expected);
        }
    }
}
