//! Tests faults of running kernels, loads from padding, interrupts and unusual grids.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use common::{Arg, dense_program, f32s, i32s, int, launch, launch_with, program};
use tilewright_base::{Code, Diagnostic};
use tilewright_cpu::memory::Region;
use tilewright_cpu::{Argument, Interrupt, Launch, PaddedReads};

/// Program i doubles the 8 elements from element `8 * i` on.
const DOUBLE: &str = "\
kernel func0 @double(%in: *fp32, %out: *fp32) {
  %pid = program_id {axis = 0} : int32
  %8 = constant {value = 8:int32} : int32
  %start = mul %pid, %8 : int32
  %s = splat %start {shape = [8]} : int32[8]
  %i = arange {start = 0, end = 8} : int32[8]
  %offs = add %s, %i : int32[8]
  %a = splat %in {shape = [8]} : *fp32[8]
  %p = ptr_add %a, %offs : *fp32[8]
  %x = load %p {cache = \"\", eviction = \"\", volatile = false} : fp32[8] @file0:3..7 @file0:0..2
  %y = add %x, %x : fp32[8]
  %b = splat %out {shape = [8]} : *fp32[8]
  %q = ptr_add %b, %offs : *fp32[8]
  store %q, %y {cache = \"\", eviction = \"\"} @file0:1..2
  return_values
}
file0 = \"k.py\" line 3
";

fn fault(text: &str, grid: [u32; 3], args: &mut [Arg]) -> Diagnostic {
    let expected = launch(&dense_program(text), grid, args).expect_err("it goes wrong");
    let found = launch(&program(text), grid, args).expect_err("it goes wrong");
    assert_eq!(found, expected, "with and without symbolic forms");
    *found
}

#[test]
fn a_load_out_of_bounds_says_where() {
    let mut args = [f32s(&[1.0; 20]), f32s(&[0.0; 24])];
    let error = fault(DOUBLE, [3, 1, 1], &mut args);
    assert_eq!(error.code, Code::OutOfBounds);
    assert_eq!(error.message, "load out of bounds of `in`");
    let primary = error.primary.expect("it has a place");
    assert_eq!(primary.text, "reads element 20 of `in`");
    assert_eq!((primary.span.start, primary.span.end), (3, 7));
    assert_eq!(error.secondary.len(), 1);
    assert_eq!(error.secondary[0].text, "called from here");
    assert_eq!(error.notes[0], "`in` has the elements 0 to 19 (80 bytes); the offset in elements is 20");
    assert_eq!(error.notes[1], "in program (2, 0, 0), at element [4] of the tile");
    assert!(error.hint.is_some());
}

#[test]
fn a_store_out_of_bounds_writes_nothing() {
    let mut args = [f32s(&[1.0; 24]), f32s(&[0.0; 20])];
    let error = fault(DOUBLE, [3, 1, 1], &mut args);
    assert_eq!(error.message, "store out of bounds of `out`");
    assert_eq!(args[1].as_f32()[..16], [2.0; 16]);
    assert_eq!(args[1].as_f32()[16..], [0.0; 4]);
}

#[test]
fn views_may_reach_before_their_pointer_but_not_before_their_memory() {
    let text = "\
kernel func0 @k(%in: *int32, %n: int32) {
  %p = ptr_add %in, %n : *int32
  %x = load %p {cache = \"\", eviction = \"\", volatile = false} : int32
  store %in, %x {cache = \"\", eviction = \"\"}
  return_values
}
";
    let program = program(text);
    let mut data = [7_u8; 40];
    let region = Region::of(&mut data);
    let run = |offset: i64| {
        let pointer = Argument::Pointer { address: region.address() + 20, region };
        let arguments = [pointer, Argument::Scalar(offset as u64)];
        program.launch(&Launch {
            grid: [1, 1, 1],
            arguments: &arguments,
            foreign: &[],
            threads: 1,
            interrupt: Interrupt::Never,
            padded: None,
            machine_code: true,
        })
    };
    assert!(run(-5).is_ok() && run(4).is_ok());
    for (offset, note) in [(-6, "the offset in elements is -6"), (5, "the offset in elements is 5")] {
        let error = run(offset).expect_err("it is outside");
        assert!(error.notes[0].starts_with("`in` has the elements -5 to 4 (40 bytes)"), "{:?}", error.notes);
        assert!(error.notes[0].ends_with(note), "{:?}", error.notes);
    }
}

#[test]
fn loads_that_end_in_padding_give_zero_and_are_noted() {
    let text = "\
kernel func0 @k(%in: *int32, %n: int32, %out: *int32) {
  %pid = program_id {axis = 0} : int32
  %i = arange {start = 0, end = 8} : int32[8]
  %m = mul %pid, %n : int32
  %s = splat %m {shape = [8]} : int32[8]
  %t = add %i, %s : int32[8]
  %a = splat %in {shape = [8]} : *int32[8]
  %p = ptr_add %a, %t : *int32[8]
  %x = load %p {cache = \"\", eviction = \"\", volatile = false} : int32[8]
  %b = splat %out {shape = [8]} : *int32[8]
  %q = ptr_add %b, %t : *int32[8]
  store %q, %x {cache = \"\", eviction = \"\"}
  return_values
}
";
    let program = program(text);
    let (mut data, mut out) = ([7_u8; 80], [9_u8; 192]);
    let region = Region::of(&mut data).with_padding(48);
    let target = Region::of(&mut out);
    let run = |programs: u32, padded: Option<&PaddedReads>| {
        let arguments = [
            Argument::Pointer { address: region.address(), region },
            Argument::Scalar(8),
            Argument::Pointer { address: target.address(), region: target },
        ];
        let grid = [programs, 1, 1];
        let launch = Launch {
            grid,
            arguments: &arguments,
            foreign: &[],
            threads: 2,
            interrupt: Interrupt::Never,
            padded,
            machine_code: true,
        };
        let outcome = program.launch(&launch).map_err(|diagnostic| diagnostic.message);
        (outcome, padded.map_or_else(Vec::new, |padded| padded.diagnostics(&program, &launch)))
    };
    // The memory has 20 elements, and padding of 12 more.
    let refused = Err("load out of bounds of `in`".to_owned());
    assert_eq!(run(4, None).0, refused);
    assert_eq!(run(5, Some(&PaddedReads::default())).0, refused);
    let noted = PaddedReads::default();
    let (outcome, found) = run(4, Some(&noted));
    assert_eq!(outcome, Ok(()));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].code, found[0].message.as_str()), (Code::OutOfBounds, "load out of bounds of `in`"));
    assert!(found[0].notes[0].ends_with("the offset in elements is 20"), "{:?}", found[0].notes);
    assert!(found[0].notes[1].starts_with("in program (2, 0, 0), at element [4]"), "{:?}", found[0].notes);
    assert_eq!(out[..80], [7; 80]);
    assert_eq!(out[80..128], [0; 48]);
    assert_eq!(out[128..], [9; 64]);
}

#[test]
fn pointers_of_unknown_origin_need_some_argument() {
    let text = "\
kernel func0 @k(%address: int64, %out: *int32) {
  %p = cast %address {element = *int32, rounding = \"rtne\"} : *int32
  %x = load %p {cache = \"\", eviction = \"\", volatile = false} : int32
  store %out, %x {cache = \"\", eviction = \"\"}
  return_values
}
";
    let mut args = [int(4096), i32s(&[0])];
    let error = fault(text, [1, 1, 1], &mut args);
    assert_eq!(error.message, "load outside of the memory of every argument");
    // The kernel may access the memory that the launch lists in `foreign`.
    let (mut other, mut out) = (42_i32.to_le_bytes(), [0; 4]);
    let (foreign, region) = ([Region::of(&mut other)], Region::of(&mut out));
    let address = Argument::Scalar(foreign[0].address());
    let arguments = [address, Argument::Pointer { address: region.address(), region }];
    let launch = Launch {
        grid: [1; 3],
        arguments: &arguments,
        foreign: &foreign,
        threads: 1,
        interrupt: Interrupt::Never,
        padded: None,
        machine_code: true,
    };
    program(text).launch(&launch).expect("it is allowed");
    assert_eq!(i32::from_le_bytes(out), 42);
}

const DIVIDE: &str = "\
kernel func0 @k(%in: *int32, %out: *int32) {
  %i = arange {start = 0, end = 6} : int32[6]
  %t = reshape %i {shape = [2, 3]} : int32[2, 3]
  %a = splat %in {shape = [2, 3]} : *int32[2, 3]
  %p = ptr_add %a, %t : *int32[2, 3]
  %x = load %p {cache = \"\", eviction = \"\", volatile = false} : int32[2, 3]
  %c = cast %x {element = int1, rounding = \"rtne\"} : int1[2, 3]
  assert %c {failure = division_by_zero}
  %y = int_div %t, %x : int32[2, 3]
  %b = splat %out {shape = [2, 3]} : *int32[2, 3]
  %q = ptr_add %b, %t : *int32[2, 3]
  store %q, %y {cache = \"\", eviction = \"\"}
  return_values
}
";

#[test]
fn division_by_zero_where_it_is_checked() {
    let mut args = [i32s(&[1, 1, 1, 1, 0, 1]), i32s(&[0; 6])];
    let error = fault(DIVIDE, [1, 1, 1], &mut args);
    assert_eq!(error.code, Code::DivisionByZero);
    assert_eq!(error.notes[0], "in program (0, 0, 0), at element [1, 1] of the tile");
    let mut args = [i32s(&[1, 1, 1, 1, -1, 1]), i32s(&[0; 6])];
    launch(&program(DIVIDE), [1, 1, 1], &mut args).expect("no divisor is zero");
    assert_eq!(args[1].as_i32(), [0, 1, 2, 3, -4, 5]);
}

#[test]
fn assertions() {
    let text = "\
kernel func0 @k(%n: int32, %m: int32) {
  %i = arange {start = 0, end = 8} : int32[8]
  %ns = splat %n {shape = [8]} : int32[8]
  %c = lt %i, %ns : int1[8]
  %ms = splat %m {shape = [8]} : int32[8]
  %mask = lt %i, %ms : int1[8]
  assert %c, %mask {failure = \"too many\"}
  assert %mask {failure = \"too few\"}
  return_values
}
";
    let error = fault(text, [1, 1, 1], &mut [int(5), int(8)]);
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::DeviceAssertFailed, "device assertion failed: too many")
    );
    assert!(error.notes[0].contains("[5]"), "{:?}", error.notes);
    let error = fault(text, [1, 1, 1], &mut [int(5), int(3)]);
    assert_eq!(error.message, "device assertion failed: too few");
    launch(&program(text), [1, 1, 1], &mut [int(8), int(8)]).expect("both hold");
}

const COUNT: &str = "\
kernel func0 @k(%out: *int64, %n: int64, %step: int64) {
  %0 = constant {value = 0:int64} : int64
  %s = for_loop %0, %n, %step, %0 {options = \"stages=0 unroll=0\"} (%i: int64, %sum: int64) {
    %t = add %sum, %i : int64
    yield_values %t
  } : int64
  store %out, %s {cache = \"\", eviction = \"\"}
  return_values
}
";

#[test]
fn a_loop_with_a_step_of_zero() {
    let error = fault(COUNT, [1, 1, 1], &mut [f32s(&[0.0; 2]), int(5), int(0)]);
    assert_eq!(error.code, Code::InvalidLoop);
}

#[test]
fn recursion_is_refused() {
    let text = "kernel func0 @k(%n: int32) {\n  call %n {callee = func1, results = ()}\n  return_values\n}\n\
                func1 @f(%n: int32) {\n  call %n {callee = func1, results = ()}\n  return_values\n}\n";
    let module = tilewright_ir::parse(text).expect("the verifier does not mind");
    let error = tilewright_cpu::Program::new(&module).expect_err("it never ends");
    assert_eq!(error.code, Code::TooLarge);
}

#[test]
fn an_endless_program_is_interrupted() {
    let long = || [f32s(&[0.0; 2]), int(i64::MAX), int(1)];
    for threads in [1, 3] {
        let flag = AtomicBool::new(false);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                flag.store(true, Ordering::Relaxed);
            });
            launch_with(&program(COUNT), [5, 1, 1], &mut long(), threads, Interrupt::Flag(&flag))
        });
        assert_eq!(error.expect_err("it was interrupted").code, Code::Interrupted);
        let calls = AtomicU32::new(0);
        let poll = || calls.fetch_add(1, Ordering::Relaxed) >= 2;
        let error = launch_with(&program(COUNT), [5, 1, 1], &mut long(), threads, Interrupt::Poll(&poll));
        assert_eq!(error.expect_err("it was interrupted").code, Code::Interrupted);
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }
}

#[test]
fn empty_and_large_grids() {
    for grid in [[0, 1, 1], [5, 0, 1], [u32::MAX, u32::MAX, 0]] {
        launch(&program(DOUBLE), grid, &mut [f32s(&[]), f32s(&[])]).expect("nothing runs");
    }
    // The launch ends at the first fault, long before the last program.
    let mut args = [f32s(&[1.0; 80]), f32s(&[0.0; 80])];
    let error = launch_with(&program(DOUBLE), [u32::MAX, u32::MAX, u32::MAX], &mut args, 2, Interrupt::Never);
    assert_eq!(error.expect_err("it ends").code, Code::OutOfBounds);
    assert_eq!(args[1].as_f32(), [2.0; 80]);
}

#[test]
fn a_hundred_thousand_tiny_programs_on_many_threads() {
    let count = 100_000;
    let input: Vec<f32> = (0..count * 8).map(|i| i as f32).collect();
    let expected: Vec<f32> = input.iter().map(|x| 2.0 * x).collect();
    let program = program(DOUBLE);
    for threads in [1, 2, 7] {
        let mut args = [f32s(&input), f32s(&vec![0.0; count * 8])];
        launch_with(&program, [count as u32, 1, 1], &mut args, threads, Interrupt::Never).expect("it runs");
        assert!(args[1].as_f32() == expected, "{threads} threads");
    }
    // Every launch reports the fault of the program with the lowest index.
    for _ in 0..50 {
        let mut args = [f32s(&input[..400]), f32s(&vec![0.0; count * 8])];
        let error = launch_with(&program, [count as u32, 1, 1], &mut args, 7, Interrupt::Never);
        let error = error.expect_err("it goes wrong");
        assert_eq!(error.code, Code::OutOfBounds);
        assert!(
            error.notes.iter().any(|note| note.starts_with("in program (50, 0, 0)")),
            "{:?}",
            error.notes
        );
        assert!(args[1].as_f32()[..400] == expected[..400]);
    }
}

#[test]
fn a_program_is_launched_from_several_threads_at_once() {
    let program = program(DOUBLE);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let program = &program;
            scope.spawn(move || {
                for _ in 0..50 {
                    let input = vec![thread as f32; 8 * 64];
                    let mut args = [f32s(&input), f32s(&vec![0.0; 8 * 64])];
                    launch_with(program, [64, 1, 1], &mut args, 2, Interrupt::Never).expect("it runs");
                    assert_eq!(args[1].as_f32(), vec![2.0 * thread as f32; 8 * 64]);
                }
            });
        }
    });
}
