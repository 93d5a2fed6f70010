//! Tests the allocation of shared memory with random buffers and live ranges.
//!
//! Buffers that are live at the same time must not overlap. Each buffer begins at the start of its
//! swizzle pattern of eight rows (PTX ISA, "Tensor Swizzling Modes").

use std::fmt::Write;
use std::ops::Range;

use tilewright_gpu::PASSES;
use tilewright_gpu_ir::{Deferred, Gpu, GpuOp, Op};
use tilewright_ir::{parse_dialect, verify};
use tilewright_layout::{Layout, SwizzleMode, swizzled};

use crate::common::{Random, seeds};
use crate::text;

const FP32_BITS: u32 = 32;

/// A buffer with its live range in steps.
struct Buffer {
    ty: String,
    bytes: u32,
    alignment: u32,
    /// True if a tensor copy reads it.
    is_copied: bool,
    live_range: Range<usize>,
}

/// Returns a random buffer: a box of a tensor copy, scratch of threads, or `mbarrier`s.
fn buffer(random: &mut Random, layouts: &mut Vec<Layout>, live_range: Range<usize>) -> Buffer {
    if random.chance(5) {
        let slots = random.pick(&[1, 2, 3, 5]);
        let ty = format!("mbarrier<{slots}>");
        return Buffer { ty, bytes: 8 * slots, alignment: 8, is_copied: false, live_range };
    }
    let modes = [SwizzleMode::None, SwizzleMode::Bytes32, SwizzleMode::Bytes64, SwizzleMode::Bytes128];
    let is_copied = random.chance(2);
    let mode = if is_copied { random.pick(&modes) } else { SwizzleMode::None };
    let row_bytes = mode.row_bytes().unwrap_or(16);
    // Two 128-byte lines identify the swizzle mode.
    let min_rows = if mode == SwizzleMode::None { 1 } else { 256 / row_bytes };
    let shape = [min_rows << random.below(5), row_bytes * 8 / FP32_BITS];
    let layout = swizzled(&shape, &[1, 0], FP32_BITS, mode);
    let layout_id = layouts.iter().position(|other| *other == layout).unwrap_or_else(|| {
        layouts.push(layout);
        layouts.len() - 1
    });
    let alignment = match mode.row_bytes() {
        Some(bytes) => 8 * bytes,
        None if is_copied => 128,
        None => 16,
    };
    let ty = format!("buffer<1, fp32[{}, {}]@L{layout_id}>", shape[0], shape[1]);
    Buffer { ty, bytes: shape[0] * row_bytes, alignment, is_copied, live_range }
}

/// Returns random buffers, one for each step, and the steps that are in a loop.
fn buffers(random: &mut Random, layouts: &mut Vec<Layout>) -> (Vec<Buffer>, Range<usize>) {
    let count = 2 + random.below(9);
    let start = random.below(count);
    let inside = start..start + random.below(count - start);
    let buffers = (0..count).map(|step| {
        let wanted = step + random.pick(&[0, 0, 1, 1, 2, 3, 5, count]);
        // A live range ends in the block in which it begins.
        let end = if inside.contains(&step) {
            wanted.min(inside.end - 1)
        } else if inside.contains(&wanted) {
            inside.end - 1
        } else {
            wanted
        };
        buffer(random, layouts, step..end)
    });
    let buffers = buffers.collect();
    (buffers, inside)
}

fn kernel(buffers: &[Buffer], inside: &Range<usize>, layouts: &[Layout]) -> String {
    let mut out = String::from("gpu sm_90a, 4 warps, 0 bytes of shared memory\n");
    for (number, layout) in layouts.iter().enumerate() {
        writeln!(out, "L{number} = {layout}").expect("text has room");
    }
    out += "kernel func0 @k(%n: int32, %t: *int8) {\n%c = constant {value = 1:int32} : int32\n";
    let end = |out: &mut String, step: usize, is_inside: bool| {
        for (number, buffer) in buffers.iter().enumerate() {
            if buffer.live_range.end == step && inside.contains(&number) == is_inside {
                writeln!(out, "dealloc %b{number}").expect("text has room");
            }
        }
    };
    for (step, buffer) in buffers.iter().enumerate() {
        if step == inside.start && !inside.is_empty() {
            out += "for_loop %c, %n, %c {options = \"stages=0 unroll=0\"} (%i: int32) {\n";
        }
        writeln!(out, "%b{step} = alloc {{offset = ?}} : {}", buffer.ty).expect("text has room");
        if buffer.is_copied {
            let wait = "tensor_store_wait {pending = 0, complete = false}";
            writeln!(out, "tensor_store %b{step}, %t, %n, %n\n{wait}").expect("text has room");
        }
        end(&mut out, step, inside.contains(&step));
        if step + 1 == inside.end && !inside.is_empty() {
            out += "yield_values\n}\n";
            end(&mut out, step, false);
        }
    }
    out + "return_values\n}\n"
}

#[test]
fn random_buffers_are_disjoint_and_aligned() {
    let mut shared = 0;
    for seed in seeds(400) {
        let (mut random, mut layouts) = (Random(seed), Vec::new());
        let (buffers, inside) = buffers(&mut random, &mut layouts);
        let before = kernel(&buffers, &inside, &layouts);
        let mut program = parse_dialect::<Gpu>(&before).unwrap_or_else(|error| panic!("{error}\n{before}"));
        let pass = PASSES.iter().find(|pass| pass.name == "allocation").expect("the pass exists");
        pass.run(&mut program).unwrap_or_else(|error| panic!("seed {seed}: {error:?}\n{before}"));
        let after = text(&program);
        verify(&program).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{after}"));
        let function = program.kernel();
        let mut offsets = Vec::new();
        function.walk(function.entry, &mut |inst| {
            if let Op::Gpu(GpuOp::Alloc { offset: Deferred(offset) }) = function.insts[inst].op {
                offsets.push(offset.expect("the buffer has an offset"));
            }
        });
        assert_eq!(offsets.len(), buffers.len());
        let bytes: Vec<Range<u32>> =
            offsets.iter().zip(&buffers).map(|(start, buffer)| *start..start + buffer.bytes).collect();
        for (number, buffer) in buffers.iter().enumerate() {
            let (own, need) = (&bytes[number], buffer.alignment);
            assert!(
                own.start.is_multiple_of(need),
                "seed {seed}: %b{number} at {own:?}, not {need}\n{after}"
            );
            assert!(own.end <= program.header.shared_bytes, "seed {seed}: %b{number} at {own:?}\n{after}");
            for (other, range) in bytes[..number].iter().enumerate() {
                let overlap = own.start < range.end && range.start < own.end;
                let live = buffers[other].live_range.end >= number;
                assert!(!overlap || !live, "seed {seed}: %b{other} and %b{number} at {own:?}\n{after}");
                shared += usize::from(overlap);
            }
        }
    }
    assert!(shared > 0);
}

#[test]
fn slots_start_at_a_multiple_of_the_swizzle_pattern() {
    let layout = swizzled(&[4, 16], &[1, 0], FP32_BITS, SwizzleMode::Bytes64);
    let text = format!(
        "gpu sm_90a, 4 warps, 0 bytes of shared memory\nL0 = {layout}\nkernel func0 @k(%n: int32, %t: *int8) {{
           %b = alloc {{offset = ?}} : buffer<2, fp32[4, 16]@L0>
           %s = slot %b, %n : buffer<1, fp32[4, 16]@L0>
           tensor_store %s, %t, %n, %n
           tensor_store_wait {{pending = 0, complete = false}}
           return_values
         }}"
    );
    let error = parse_dialect::<Gpu>(&text).expect_err("the second slot is in the middle of the pattern");
    let expected = "tensor_store needs %b at a multiple of 512 bytes, and its slots are 256 bytes apart";
    assert_eq!(error.message, format!("in function k: {expected}"));
}
