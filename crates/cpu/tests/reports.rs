//! Tests the listing of machine code, the reasons for steps without it, and its profile.

mod common;

use common::{Arg, f32s, int};
use tilewright_base::{Remark, RemarkKind, collect_remarks};
use tilewright_cpu::memory::Region;
use tilewright_cpu::{Argument, Interrupt, Launch, Program, StepProfile};
use tilewright_ir::parse;
use tilewright_native::{Isa, Target};

/// Doubles the elements under a mask. Lines 1, 2 and 3 are the load, the sum and the store.
const DOUBLE: &str = "\
kernel func0 @double(%in: *fp32, %out: *fp32, %n: int32) {
  %pid = program_id {axis = 0} : int32 @file0:0..1
  %64 = constant {value = 64:int32} : int32 @file0:0..1
  %start = mul %pid, %64 : int32 @file0:0..1
  %s = splat %start {shape = [64]} : int32[64] @file0:0..1
  %i = arange {start = 0, end = 64} : int32[64] @file0:0..1
  %offs = add %s, %i : int32[64] @file0:0..1
  %most = splat %n {shape = [64]} : int32[64] @file0:0..1
  %mask = lt %offs, %most : int1[64] @file0:0..1
  %a = splat %in {shape = [64]} : *fp32[64] @file0:0..1
  %p = ptr_add %a, %offs : *fp32[64] @file0:0..1
  %x = load %p, %mask {cache = \"\", eviction = \"\", volatile = false} : fp32[64] @file0:0..1
  %y = add %x, %x : fp32[64] @file1:0..1
  %b = splat %out {shape = [64]} : *fp32[64] @file2:0..1
  %q = ptr_add %b, %offs : *fp32[64] @file2:0..1
  store %q, %y, %mask {cache = \"\", eviction = \"\"} @file2:0..1
  return_values
}
file0 = \"k.py\" line 1
file1 = \"k.py\" line 2
file2 = \"k.py\" line 3
";

fn compile(text: &str, target: Option<Target>) -> (Program, Vec<Remark>) {
    let module = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let (program, remarks) = collect_remarks(|| Program::with_target(&module, target));
    (program.expect("it can be lowered"), remarks)
}

fn launch_of<'a>(arguments: &'a [Argument<'a>], programs: u32, machine_code: bool) -> Launch<'a> {
    Launch {
        grid: [programs, 1, 1],
        arguments,
        foreign: &[],
        threads: 1,
        interrupt: Interrupt::Never,
        padded: None,
        machine_code,
    }
}

#[test]
fn a_listing_has_the_source_of_each_instruction() {
    for (isa, sum) in [(Isa::Avx2, "vaddps"), (Isa::Avx512, "vaddps"), (Isa::Neon, "")] {
        let (program, _) = compile(DOUBLE, Some(Target::new(isa)));
        let listing = program.machine_listing();
        let text = listing.to_string();
        assert!(text.starts_with(&format!("machine code of double for {isa}\n")), "{text}");
        assert!(text.contains("lines 1-3 of k.py"), "{text}");
        let line = |index: usize| {
            let span = listing.lines[index].span?;
            Some(program.sources().file(span.file).line_column(span.start).0)
        };
        let is_sum = |index: &usize| listing.lines[*index].text.contains(sum);
        let sums: Vec<usize> = (0..listing.lines.len()).filter(is_sum).collect();
        // Builds for other architectures list AArch64 instructions without names.
        if !sum.is_empty() {
            assert!(!sums.is_empty(), "{text}");
            assert!(sums.iter().all(|&index| line(index) == Some(2)), "{text}");
        }
        for number in 1..=3 {
            assert!((0..listing.lines.len()).any(|index| line(index) == Some(number)), "{number}: {text}");
        }
        assert!(text.contains("; k.py:3:"), "{text}");
    }
    let (program, _) = compile(DOUBLE, None);
    assert!(program.machine_listing().to_string().starts_with("double has no machine code"));
}

/// Returns the remarks of a kernel with the parameters `%in: *fp32`, `%out: *fp32`, `%small: *fp16`
/// and `%n: int32`.
fn remarks_of(body: &str) -> Vec<Remark> {
    let text = format!(
        "kernel func0 @k(%in: *fp32, %out: *fp32, %small: *fp16, %n: int32) {{\n{body}  return_values\n}}\nfile0 = \"k.py\" line 1\n"
    );
    compile(&text, Some(Target::new(Isa::Avx2))).1
}

/// Loads `%x` from `%in`.
const LOAD: &str = "\
  %i = arange {start = 0, end = 64} : int32[64]
  %a = splat %in {shape = [64]} : *fp32[64]
  %p = ptr_add %a, %i : *fp32[64]
  %x = load %p {cache = \"\", eviction = \"\", volatile = false} : fp32[64]
";

/// Stores `%y` to `%out`.
const STORE: &str = "\
  %b = splat %out {shape = [64]} : *fp32[64]
  %q = ptr_add %b, %i : *fp32[64]
  store %q, %y {cache = \"\", eviction = \"\"}
";

#[test]
fn the_planner_says_why_a_step_is_in_no_nest() {
    let gathered = "  %j = cast %x {element = int32, rounding = \"rtne\"} : int32[64]
  %g = ptr_add %a, %j : *fp32[64]
  %y = load %g {cache = \"\", eviction = \"\", volatile = false} : fp32[64]
";
    let strided = "  %two = constant {value = 2:int32} : int32
  %twos = splat %two {shape = [64]} : int32[64]
  %j = mul %i, %twos : int32[64]
  %b = splat %small {shape = [64]} : *fp16[64]
  %g = ptr_add %b, %j : *fp16[64]
  %h = load %g {cache = \"\", eviction = \"\", volatile = false} : fp16[64]
  %y = cast %h {element = fp32, rounding = \"rtne\"} : fp32[64]
";
    let remainder = "  %y = float_rem %x, %x : fp32[64]\n";
    let reversed = "  %y = scan %x {axis = 0, reverse = true} (%u: fp32, %v: fp32) {
    %z = add %u, %v : fp32
    yield_values %z
  } : fp32[64]
";
    let unknown = "  %y = scan %x {axis = 0, reverse = false} (%u: fp32, %v: fp32) {
    %d = sub %u, %v : fp32
    %z = mul %d, %v : fp32
    yield_values %z
  } : fp32[64]
";
    for (name, middle, reason) in [
        ("load", gathered, "its addresses are elements of a tile: a gather or a scatter"),
        ("load", strided, "its elements have 8 or 16 bits and are not contiguous along the vectors"),
        ("float_rem", remainder, "vectors have no `float_rem` of fp32"),
        ("scan", reversed, "it scans from the last element to the first"),
        ("scan", unknown, "its combine function is none of those that nests know"),
    ] {
        let remarks = remarks_of(&format!("{LOAD}{middle}{STORE}"));
        let is_wanted = |remark: &&Remark| {
            remark.kind == RemarkKind::Missed && remark.subject.contains(name) && remark.reason == reason
        };
        assert!(remarks.iter().any(|remark| is_wanted(&remark)), "{name}, {reason}: {remarks:#?}");
    }
}

#[test]
fn each_step_on_tiles_is_in_one_remark() {
    let (program, remarks) = compile(DOUBLE, Some(Target::new(Isa::Avx2)));
    let [remark] = &remarks[..] else { panic!("{remarks:#?}") };
    assert_eq!((remark.pass, remark.kind), ("nests", RemarkKind::Done));
    assert_eq!(remark.decision, "one nest of machine code, lines 1-3 of k.py");
    assert!(remark.subject.ends_with("load + store"), "{remark:#?}");
    let span = remark.span.expect("the nest has a line");
    assert_eq!(program.sources().file(span.file).line_column(span.start).0, 1);

    let (_, remarks) = compile(DOUBLE, None);
    let [remark] = &remarks[..] else { panic!("{remarks:#?}") };
    assert_eq!((remark.kind, remark.span), (RemarkKind::Missed, None));
    assert!(remark.reason.contains("AVX2"), "{remark:#?}");
}

/// Launches four programs for 200 elements.
fn profile_of(text: &str, target: Option<Target>, machine_code: bool) -> Vec<StepProfile> {
    let (program, _) = compile(text, target);
    let mut args = [f32s(&[1.5; 256]), f32s(&[0.0; 256]), int(200)];
    let profile = program.new_profile();
    let arguments: Vec<Argument<'_>> = args
        .iter_mut()
        .map(|arg| match arg {
            Arg::Bytes(bytes) => {
                let region = Region::of(bytes);
                Argument::Pointer { address: region.address(), region }
            }
            Arg::Scalar(bits) => Argument::Scalar(*bits),
        })
        .collect();
    program.launch_profiled(&launch_of(&arguments, 4, machine_code), &profile).expect("it runs");
    drop(arguments);
    let expected: Vec<f32> = (0..256).map(|index| if index < 200 { 3.0 } else { 0.0 }).collect();
    assert_eq!(args[1].as_f32(), expected);
    program.profiled(&profile)
}

#[test]
fn a_profile_shows_a_nest_as_one_row() {
    let Some(target) = Target::host() else { return };
    let rows = profile_of(DOUBLE, Some(target), true);
    let [row] = &rows[..] else { panic!("{rows:#?}") };
    assert!(row.is_machine_code);
    assert!(row.name.contains("program_id(0)") && row.name.ends_with("load + store"), "{row:#?}");
    let lines: Vec<u32> = row.lines.iter().map(|(_, line)| *line).collect();
    assert_eq!(lines, [1, 2, 3]);
    let cost = row.cost;
    assert_eq!(cost.executions, 4);
    // 200 of 256 lanes are not masked off.
    assert_eq!((cost.bytes_read, cost.bytes_written), (800, 800));
    assert_eq!(cost.operations, 256);
    assert!(cost.nanoseconds > 0);

    let rows = profile_of(DOUBLE, Some(target), false);
    assert!(rows.len() > 1 && rows.iter().all(|row| !row.is_machine_code), "{rows:#?}");
    let read: u64 = rows.iter().map(|row| row.cost.bytes_read).sum();
    assert_eq!(read, 800);
}

#[test]
fn a_mask_from_memory_counts_as_true() {
    let Some(target) = Target::host() else { return };
    let text = DOUBLE.replace(
        "store %q, %y, %mask",
        "%zero = constant {value = 0.0:fp32} : fp32
  %zeros = splat %zero {shape = [64]} : fp32[64]
  %positive = gt %x, %zeros : int1[64]
  %both = and %positive, %mask : int1[64]
  store %q, %y, %both",
    );
    let rows = profile_of(&text, Some(target), true);
    let [row] = &rows[..] else { panic!("{rows:#?}") };
    assert_eq!((row.cost.bytes_read, row.cost.bytes_written), (800, 1024));
}
