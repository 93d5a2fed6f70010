//! Compares random kernels in machine code with the executor's steps, to the bit.
//!
//! All NaN count as equal. `TILEWRIGHT_RANDOM_NESTS=100000` sets the number of kernels, and
//! `TILEWRIGHT_SEEDS=7..9` selects seeds. A kernel that fails is shrunk.

mod generate;
mod shrink;
mod tables;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use generate::{Case, Input, LOAD, STORE, generate};
use tables::{Content, combine_functions};
use tilewright_base::Diagnostic;
use tilewright_cpu::memory::Region;
use tilewright_cpu::{Argument, Interrupt, Launch, NestCounts, Program};
use tilewright_fuzz::random::{chosen_seeds, in_parallel};
use tilewright_ir::{Dtype, Module, parse, verify};
use tilewright_native::{Isa, Target};

/// The bytes before and after each buffer that no kernel may access.
const GUARD: usize = 256;

const MAX_FAILURES: usize = 10;

/// The memory of an argument, with guards.
struct Memory {
    words: Vec<u64>,
    length: usize,
}

impl Memory {
    fn new(bytes: &[u8]) -> Self {
        let mut words = vec![0xa5a5_a5a5_a5a5_a5a5; (2 * GUARD + bytes.len()).div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[GUARD..GUARD + bytes.len()].copy_from_slice(bytes);
        Self { words, length: bytes.len() }
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[GUARD..GUARD + self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[GUARD..GUARD + self.length]
    }

    fn guards_are_intact(&self) -> bool {
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        bytes[..GUARD].iter().chain(&bytes[GUARD + self.length..]).all(|&byte| byte == 0xa5)
    }
}

struct Outcome {
    result: Result<(), Box<Diagnostic>>,
    memories: Vec<(Dtype, Memory)>,
}

fn launch(program: &Program, programs: u32, inputs: &[Input], machine_code: bool) -> Outcome {
    let mut memories: Vec<(Dtype, Memory)> = inputs
        .iter()
        .filter_map(|input| match input {
            Input::Buffer { dtype, bytes, .. } => Some((*dtype, Memory::new(bytes))),
            Input::Scalar(_) => None,
        })
        .collect();
    let mut next = memories.iter_mut();
    let arguments: Vec<Argument<'_>> = inputs
        .iter()
        .map(|input| match input {
            Input::Buffer { start, is_read_only, .. } => {
                let (_, memory) = next.next().expect("each buffer has memory");
                let region = if *is_read_only {
                    Region::read_only(memory.bytes())
                } else {
                    Region::of(memory.bytes_mut())
                };
                Argument::Pointer { address: region.address().wrapping_add_signed(*start), region }
            }
            Input::Scalar(bits) => Argument::Scalar(*bits),
        })
        .collect();
    let result = program.launch(&Launch {
        grid: [programs, 1, 1],
        arguments: &arguments,
        foreign: &[],
        threads: 1,
        interrupt: Interrupt::Never,
        padded: None,
        machine_code,
    });
    Outcome { result, memories }
}

fn is_nan(dtype: Dtype, bits: &[u8]) -> bool {
    let mut word = [0; 8];
    word[..bits.len()].copy_from_slice(bits);
    let bits = u64::from_le_bytes(word);
    match dtype {
        Dtype::F64 => f64::from_bits(bits).is_nan(),
        Dtype::F32 => f32::from_bits(bits as u32).is_nan(),
        Dtype::BF16 => bits & 0x7fff > 0x7f80,
        Dtype::F16 => bits & 0x7fff > 0x7c00,
        Dtype::F8E5 => bits & 0x7f > 0x7c,
        Dtype::F8E4NV => bits & 0x7f == 0x7f,
        Dtype::F8E4B8 | Dtype::F8E5B16 => bits == 0x80,
        // tidy: wildcard because these types have no NaN
        _ => false,
    }
}

/// Describes the first difference of two outcomes, if there is one.
fn difference(expected: &Outcome, found: &Outcome) -> Option<String> {
    if expected.result != found.result {
        return Some(format!("the result is {:#?}, not {:#?}", found.result, expected.result));
    }
    for (index, ((dtype, expected), (_, found))) in expected.memories.iter().zip(&found.memories).enumerate()
    {
        if !found.guards_are_intact() {
            return Some(format!("memory outside of buffer {index} is overwritten"));
        }
        let size = dtype.bytes();
        let elements = expected.bytes().chunks(size).zip(found.bytes().chunks(size));
        let differs = |(x, y): &(&[u8], &[u8])| x != y && !(is_nan(*dtype, x) && is_nan(*dtype, y));
        let count = elements.clone().filter(differs).count();
        if let Some((place, (expected, found))) = elements.enumerate().find(|(_, pair)| differs(pair)) {
            return Some(format!(
                "{count} elements of buffer {index} ({dtype}) differ; element {place} is {found:02x?}, not \
                 {expected:02x?}"
            ));
        }
    }
    None
}

fn module(text: &str) -> Option<Module> {
    let module = parse(text).ok()?;
    verify(&module).ok()?;
    Some(module)
}

/// Compares a kernel with and without nests. Returns the counts of nests, or the difference.
fn compare(case: &Case, text: &str, programs: u32, target: Target) -> Result<NestCounts, String> {
    let module = module(text).ok_or("the kernel is malformed")?;
    let compare = || {
        let nests = Program::with_target(&module, Some(target)).map_err(|error| format!("{error:?}"))?;
        // If a store writes an element several times, other compilations may store in another
        // order. The reference is then the same program without its machine code.
        let expected = if case.repeats_elements {
            launch(&nests, programs, &case.inputs, false)
        } else {
            let steps = Program::without_symbolic_forms(&module, None);
            launch(&steps.map_err(|error| format!("{error:?}"))?, programs, &case.inputs, false)
        };
        let found = launch(&nests, programs, &case.inputs, true);
        difference(&expected, &found).map_or_else(|| Ok(nests.nest_counts()), Err)
    };
    catch_unwind(AssertUnwindSafe(compare)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("it panics: {}", text.unwrap_or("no message")))
    })
}

/// Checks a kernel. Fails with a shrunk kernel if the outcomes differ, or if machine code declines
/// legal accesses.
fn check(seed: u64, case: &Case, target: Target) -> Result<NestCounts, String> {
    if let Err(error) = parse(&case.text)
        .map_err(|error| error.to_string())
        .and_then(|module| verify(&module).map_err(|error| error.to_string()))
    {
        panic!("seed {seed} is malformed: {error}\n{}", case.text);
    }
    let compare = |text: &str, programs: u32| match compare(case, text, programs, target) {
        Ok(counts) if case.is_regular && counts.declined > 0 => {
            Err(format!("{counts:?} although all accesses are legal"))
        }
        outcome => outcome,
    };
    let error = match compare(&case.text, case.programs) {
        Ok(counts) => return Ok(counts),
        Err(error) => error,
    };
    // If a nest declined legal accesses, shrinking keeps the addresses: a nest may decline accesses
    // that overlap, and at other addresses they might.
    let may_replace = !error.contains("although");
    let fails = |text: &str, programs: u32| {
        module(text).is_some()
            && compare(text, programs).is_err_and(|error| may_replace != error.contains("although"))
    };
    let (text, programs) = shrink::shrink(&case.text, case.programs, may_replace, &fails);
    let shrunk = match compare(&text, programs) {
        Ok(_) => "it fails at times".to_owned(),
        Err(error) => error,
    };
    let nests =
        || Program::with_target(&module(&text)?, Some(target)).ok().map(|program| program.to_string());
    let nests = catch_unwind(nests).ok().flatten().unwrap_or_default();
    Err(format!(
        "seed {seed}, {:?}: {error}\nshrunk, {programs} programs: {shrunk}\n{text}\n{nests}",
        target.isa()
    ))
}

/// The number of kernels that passed, that have nests, whose machine code ran, and whose machine
/// code declined. A kernel counts once for each target.
#[derive(Default)]
struct Totals {
    kernels: u64,
    with_nests: u64,
    with_machine_code: u64,
    with_declined: u64,
    failures: Vec<String>,
}

fn targets() -> Vec<Target> {
    Isa::ALL.into_iter().filter_map(Target::host_with).collect()
}

/// Checks the kernel of each element type. Machine code must execute a nest.
fn check_types(case: impl Fn(Dtype) -> Case + Sync) {
    in_parallel(0..Dtype::ALL.len() as u64, |index| {
        let case = case(Dtype::ALL[index as usize]);
        for target in targets() {
            let counts = check(index, &case, target).unwrap_or_else(|error| panic!("{error}"));
            assert!(counts.called > 0, "{counts:?}: {}", case.text);
        }
    });
}

#[test]
fn all_functions_give_what_steps_give() {
    for extent in [7, 1003] {
        check_types(|dtype| tables::functions(dtype, extent));
    }
}

#[test]
fn all_conversions_give_what_steps_give() {
    for extent in [7, 1003] {
        check_types(|dtype| tables::conversions(dtype, extent));
    }
}

#[test]
fn all_reductions_give_what_steps_give() {
    for extent in generate::EXTENTS.into_iter().filter(|&extent| extent > 1) {
        for content in [Content::All, Content::Constant, Content::Zeros, Content::Nans] {
            for rows in [1, 3] {
                let shape = [rows, extent];
                check_types(|dtype| tables::reductions(dtype, combine_functions(dtype), shape, content));
                // A loop with only minima and maxima uses comparisons.
                check_types(|dtype| tables::reductions(dtype, &["min", "max"], shape, content));
            }
        }
    }
}

#[test]
fn all_scans_give_what_steps_give() {
    for extent in generate::EXTENTS.into_iter().filter(|&extent| extent > 1) {
        check_types(|dtype| tables::scans(dtype, [1, extent]));
        check_types(|dtype| tables::scans(dtype, [3, extent]));
    }
}

/// Input: two reductions of splats of one scalar. Expected: the nest has one dimension for each
/// reduced axis, although both splats are stored as the same scalar.
#[test]
fn reductions_of_one_scalar_along_two_axes() {
    let reduce = |name: &str, tile: &str, axis: u32, function: &str, shape: &str| {
        format!(
            "{name} = reduce {tile} {{axis = {axis}}} (%a: fp16, %c: fp16) {{
               %z = {function} %a, %c : fp16
               yield_values %z
             }} : fp16{shape}"
        )
    };
    let text = format!(
        "kernel func0 @k(%b0: *fp16, %b1: *fp16, %s: fp16) {{
           %i = arange {{start = 0, end = 100}} : int32[100]
           %j = reshape %i {{shape = [1, 1, 100]}} : int32[1, 1, 100]
           %k = broadcast %j {{shape = [8, 2, 100]}} : int32[8, 2, 100]
           %p = splat %b0 {{shape = [8, 2, 100]}} : *fp16[8, 2, 100]
           %q = ptr_add %p, %k : *fp16[8, 2, 100]
           %x = load %q {LOAD} : fp16[8, 2, 100]
           %t = splat %s {{shape = [8, 2, 100]}} : fp16[8, 2, 100]
           {}
           %e = expand_dims %r {{axis = 2}} : fp16[8, 2, 1]
           %f = broadcast %e {{shape = [8, 2, 100]}} : fp16[8, 2, 100]
           %u = splat %s {{shape = [2, 100]}} : fp16[2, 100]
           {}
           %d = sub %f, %x : fp16[8, 2, 100]
           store %q, %d {STORE}
           %l = arange {{start = 0, end = 100}} : int32[100]
           %h = cast %l {{element = int8, rounding = \"rtne\"}} : int8[100]
           %m = splat %b1 {{shape = [100]}} : *fp16[100]
           %n = ptr_add %m, %h : *fp16[100]
           store %n, %v {STORE}
           return_values
         }}\n",
        reduce("%r", "%t", 2, "min", "[8, 2]"),
        reduce("%v", "%u", 0, "mul", "[100]"),
    );
    check_text(text, vec![buffer(Dtype::F16, 100), buffer(Dtype::F16, 100), Input::Scalar(0x49aa)]);
}

/// Input: a loop that reads indices computed before it. Expected: a nest in the loop.
#[test]
fn strides_by_a_constant_before_a_loop() {
    let text = format!(
        "kernel func0 @k(%b0: *int16) {{
           %i = arange {{start = 5, end = 517}} : int32[512]
           %h = cast %i {{element = int16, rounding = \"rtne\"}} : int16[512]
           %c = constant {{value = 1:int16}} : int16
           %o = splat %c {{shape = [512]}} : int16[512]
           %m = mul %o, %h : int16[512]
           %g = ge %m, %o : int1[512]
           %zero = constant {{value = 0:int32}} : int32
           %two = constant {{value = 2:int32}} : int32
           %one = constant {{value = 1:int32}} : int32
           for_loop %zero, %two, %one {{options = \"stages=0 unroll=0\"}} (%iv: int32) {{
             %x = mul_high %h, %m : int16[512]
             %w = cast %i {{element = int64, rounding = \"rtne\"}} : int64[512]
             %p = splat %b0 {{shape = [512]}} : *int16[512]
             %q = ptr_add %p, %w : *int16[512]
             store %q, %x, %g {STORE}
             yield_values
           }}
           return_values
         }}\n"
    );
    check_text(text, vec![buffer(Dtype::I16, 600)]);
}

/// Input: a loop that carries a scalar and a tile, and stores the tile. Expected: one nest for the
/// loop. If `missing` is 1, the last iteration has an illegal access.
#[test]
fn iterations_are_executed_in_one_nest() {
    for (dtype, iterations, missing) in
        [Dtype::F32, Dtype::I32, Dtype::F16, Dtype::I64].into_iter().flat_map(|dtype| {
            [1, 2, 3, 7, 8].into_iter().flat_map(move |count| [(dtype, count, 0), (dtype, count, 1)])
        })
    {
        let text = format!(
            "kernel func0 @k(%b0: *{dtype}, %b1: *{dtype}, %b2: *{dtype}, %end: int32) {{
               %i = arange {{start = 0, end = 100}} : int32[100]
               %zero = constant {{value = 0:int32}} : int32
               %step = constant {{value = 3:int32}} : int32
               %length = constant {{value = 100:int32}} : int32
               %none = cast %zero {{element = {dtype}, rounding = \"rtne\"}} : {dtype}
               %tile = splat %none {{shape = [100]}} : {dtype}[100]
               %largest, %sum = for_loop %zero, %end, %step, %none, %tile
                   {{options = \"stages=0 unroll=0\"}} (%iv: int32, %most: {dtype}, %all: {dtype}[100]) {{
                 %start = mul %iv, %length : int32
                 %s = splat %start {{shape = [100]}} : int32[100]
                 %o = add %i, %s : int32[100]
                 %p = splat %b0 {{shape = [100]}} : *{dtype}[100]
                 %q = ptr_add %p, %o : *{dtype}[100]
                 %value = load %q {LOAD} : {dtype}[100]
                 %max = reduce %value {{axis = 0}} (%x: {dtype}, %y: {dtype}) {{
                   %z = max %x, %y : {dtype}
                   yield_values %z
                 }} : {dtype}
                 %new = max %max, %most : {dtype}
                 %t = splat %new {{shape = [100]}} : {dtype}[100]
                 %product = mul %value, %t : {dtype}[100]
                 %next = add %all, %product : {dtype}[100]
                 %v = splat %b1 {{shape = [100]}} : *{dtype}[100]
                 %w = ptr_add %v, %o : *{dtype}[100]
                 store %w, %next {STORE}
                 yield_values %new, %next
               }} : {dtype}, {dtype}[100]
               %u = splat %b2 {{shape = [100]}} : *{dtype}[100]
               %j = ptr_add %u, %i : *{dtype}[100]
               %k = splat %largest {{shape = [100]}} : {dtype}[100]
               %l = add %k, %sum : {dtype}[100]
               store %j, %l {STORE}
               return_values
             }}\n"
        );
        let count = 100 * (3 * iterations - 2) - missing;
        let numbers: Vec<u8> = (0..count * dtype.bytes()).map(|byte| (byte % 61) as u8).collect();
        let end = Input::Scalar(3 * iterations as u64 - 1);
        let inputs = vec![bytes(dtype, &numbers), buffer(dtype, count), buffer(dtype, 100), end];
        let case = Case { text, programs: 1, inputs, is_regular: missing == 0, repeats_elements: false };
        for target in targets() {
            let counts = check(0, &case, target).unwrap_or_else(|error| panic!("{error}"));
            let expected = NestCounts { formed: 2, iterated: 1, called: 2 - missing, declined: missing };
            assert_eq!(counts, expected, "{iterations} iterations: {}", case.text);
        }
    }
}

/// Input: a loop that collects positive elements. Some launches have too little memory, or the same
/// input and output. Expected: one nest.
#[test]
fn elements_are_collected_in_one_nest() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Memory {
        Ample,
        Short,
        Shared,
    }
    let text = |dtype: Dtype, index: Dtype| {
        format!(
            "kernel func0 @k(%b0: *{dtype}, %b1: *{dtype}, %b2: *{index}) {{
               %i = arange {{start = 0, end = 100}} : int32[100]
               %zero = constant {{value = 0:int32}} : int32
               %end = constant {{value = 5:int32}} : int32
               %step = constant {{value = 1:int32}} : int32
               %length = constant {{value = 100:int32}} : int32
               %none = constant {{value = 0:{index}}} : {index}
               %one0 = constant {{value = 1:{index}}} : {index}
               %one = splat %one0 {{shape = [100]}} : {index}[100]
               %least0 = cast %zero {{element = {dtype}, rounding = \"rtne\"}} : {dtype}
               %least = splat %least0 {{shape = [100]}} : {dtype}[100]
               %total = for_loop %zero, %end, %step, %none
                   {{options = \"stages=0 unroll=0\"}} (%iv: int32, %before: {index}) {{
                 %start = mul %iv, %length : int32
                 %s = splat %start {{shape = [100]}} : int32[100]
                 %o = add %i, %s : int32[100]
                 %p = splat %b0 {{shape = [100]}} : *{dtype}[100]
                 %q = ptr_add %p, %o : *{dtype}[100]
                 %value = load %q {LOAD} : {dtype}[100]
                 %on = gt %value, %least : int1[100]
                 %ones = cast %on {{element = {index}, rounding = \"rtne\"}} : {index}[100]
                 %running = scan %ones {{axis = 0, reverse = false}} (%x: {index}, %y: {index}) {{
                   %z = add %x, %y : {index}
                   yield_values %z
                 }} : {index}[100]
                 %count = reduce %ones {{axis = 0}} (%x: {index}, %y: {index}) {{
                   %z = add %x, %y : {index}
                   yield_values %z
                 }} : {index}
                 %t = splat %before {{shape = [100]}} : {index}[100]
                 %after = add %running, %t : {index}[100]
                 %place = sub %after, %one : {index}[100]
                 %v = splat %b1 {{shape = [100]}} : *{dtype}[100]
                 %w = ptr_add %v, %place : *{dtype}[100]
                 store %w, %value, %on {STORE}
                 %next = add %before, %count : {index}
                 yield_values %next
               }} : {index}
               store %b2, %total {STORE}
               return_values
             }}\n"
        )
    };
    for dtype in [Dtype::F32, Dtype::I32, Dtype::F64, Dtype::I64] {
        for (index, memory) in [Dtype::I32, Dtype::I64]
            .into_iter()
            .flat_map(|index| [Memory::Ample, Memory::Short, Memory::Shared].map(|memory| (index, memory)))
        {
            // The signs of the elements are random.
            let mut numbers: Vec<u8> =
                (0..500 * dtype.bytes()).map(|byte| (byte * 7919 % 251) as u8 & 0x7f).collect();
            let mut positive = 0;
            for (place, element) in numbers.chunks_mut(dtype.bytes()).enumerate() {
                let is_negative = place * 2_654_435_761 % 1000 < 600;
                element[dtype.bytes() - 1] = if is_negative { 0xc0 } else { 0x40 };
                positive += usize::from(!is_negative);
            }
            let length = positive - usize::from(memory == Memory::Short);
            let inputs =
                vec![bytes(dtype, &numbers), buffer(dtype, length), bytes(index, &vec![0; index.bytes()])];
            let mut text = text(dtype, index);
            if memory == Memory::Shared {
                text = text.replace("splat %b1", "splat %b0");
            }
            let is_regular = memory == Memory::Ample;
            let case = Case { text, programs: 1, inputs, is_regular, repeats_elements: false };
            for target in targets() {
                let counts = check(0, &case, target).unwrap_or_else(|error| panic!("{error}"));
                let declined = usize::from(!is_regular);
                let expected = NestCounts { formed: 1, iterated: 1, called: 1, declined };
                assert_eq!(counts, expected, "{memory:?}: {}", case.text);
            }
        }
    }
}

/// Input: a sum of columns and a store of squares. Neighboring lanes access addresses that are a
/// row apart. The second launch lacks one element. Expected: one nest.
#[test]
fn columns_are_accessed_in_one_nest() {
    for dtype in [Dtype::F32, Dtype::I32, Dtype::F64, Dtype::I64] {
        let text = format!(
            "kernel func0 @k(%b0: *{dtype}, %b1: *{dtype}, %b2: *{dtype}) {{
               %pid = program_id {{axis = 0}} : int32
               %two = constant {{value = 2:int32}} : int32
               %start = mul %pid, %two : int32
               %i = arange {{start = 0, end = 2}} : int32[2]
               %s = splat %start {{shape = [2]}} : int32[2]
               %column = add %i, %s : int32[2]
               %e = expand_dims %column {{axis = 1}} : int32[2, 1]
               %columns = broadcast %e {{shape = [2, 60]}} : int32[2, 60]
               %j = arange {{start = 0, end = 60}} : int32[60]
               %r = expand_dims %j {{axis = 0}} : int32[1, 60]
               %pitch0 = constant {{value = 8:int32}} : int32
               %pitch = splat %pitch0 {{shape = [1, 60]}} : int32[1, 60]
               %f = mul %r, %pitch : int32[1, 60]
               %g = broadcast %f {{shape = [2, 60]}} : int32[2, 60]
               %o = add %columns, %g : int32[2, 60]
               %p = splat %b0 {{shape = [2, 60]}} : *{dtype}[2, 60]
               %q = ptr_add %p, %o : *{dtype}[2, 60]
               %value = load %q {LOAD} : {dtype}[2, 60]
               %square = mul %value, %value : {dtype}[2, 60]
               %v = splat %b1 {{shape = [2, 60]}} : *{dtype}[2, 60]
               %w = ptr_add %v, %o : *{dtype}[2, 60]
               store %w, %square {STORE}
               %sum = reduce %value {{axis = 1}} (%x: {dtype}, %y: {dtype}) {{
                 %z = add %x, %y : {dtype}
                 yield_values %z
               }} : {dtype}[2]
               %t = splat %b2 {{shape = [2]}} : *{dtype}[2]
               %u = ptr_add %t, %column : *{dtype}[2]
               store %u, %sum {STORE}
               return_values
             }}\n"
        );
        for missing in [0, 1] {
            let count = (60 * 8 - missing) * dtype.bytes();
            let numbers: Vec<u8> = (0..count).map(|byte| (byte % 61) as u8).collect();
            let inputs = vec![bytes(dtype, &numbers), buffer(dtype, 60 * 8), buffer(dtype, 8)];
            let text = text.clone();
            let case = Case { text, programs: 4, inputs, is_regular: missing == 0, repeats_elements: false };
            for target in targets() {
                let counts = check(0, &case, target).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!((counts.formed, counts.called, counts.declined), (1, 1, missing), "{}", case.text);
            }
        }
    }
}

/// Input: a gather of rows after an assertion, which fails in the second and third launch.
/// Expected: a nest.
#[test]
fn rows_after_an_assertion() {
    let constant = |name: &str, value: i64, ty: &str| {
        format!(
            "%{name}0 = constant {{value = {value}:{ty}}} : {ty}
             %{name} = splat %{name}0 {{shape = [256]}} : {ty}[256]"
        )
    };
    let text = format!(
        "kernel func0 @k(%b0: *fp32, %b1: *int64, %b2: *fp32) {{
           %pid = program_id {{axis = 0}} : int32
           %n = constant {{value = 256:int32}} : int32
           %start = mul %pid, %n : int32
           %i = arange {{start = 0, end = 256}} : int32[256]
           %s = splat %start {{shape = [256]}} : int32[256]
           %x = add %i, %s : int32[256]
           {}
           {}
           {}
           {}
           %row = int_div %x, %width : int32[256]
           %column = int_rem %x, %width : int32[256]
           %b = splat %b1 {{shape = [256]}} : *int64[256]
           %p = ptr_add %b, %row : *int64[256]
           %from = load %p {LOAD} : int64[256]
           %low = le %zero, %from : int1[256]
           %high = lt %from, %count : int1[256]
           %inside = and %low, %high : int1[256]
           assert %inside {{failure = \"index out of bounds\"}}
           %f = mul %from, %width64 : int64[256]
           %c = cast %column {{element = int64, rounding = \"rtne\"}} : int64[256]
           %e = add %f, %c : int64[256]
           %t = splat %b0 {{shape = [256]}} : *fp32[256]
           %q = ptr_add %t, %e : *fp32[256]
           %value = load %q {LOAD} : fp32[256]
           %u = splat %b2 {{shape = [256]}} : *fp32[256]
           %o = ptr_add %u, %x : *fp32[256]
           store %o, %value {STORE}
           return_values
         }}\n",
        constant("width", 32, "int32"),
        constant("width64", 32, "int64"),
        constant("zero", 0, "int64"),
        constant("count", 50, "int64"),
    );
    for wrong in [None, Some(50), Some(-1)] {
        let mut rows: Vec<i64> = (0..32).map(|row| row * 7 % 50).collect();
        if let Some(wrong) = wrong {
            rows[20] = wrong;
        }
        let table: Vec<f32> = (0..1600).map(|number| number as f32).collect();
        let inputs = vec![
            bytes(Dtype::F32, bytemuck::cast_slice(&table)),
            bytes(Dtype::I64, bytemuck::cast_slice(&rows)),
            buffer(Dtype::F32, 1024),
        ];
        let case = Case {
            text: text.clone(),
            programs: 4,
            inputs,
            is_regular: wrong.is_none(),
            repeats_elements: false,
        };
        for target in targets() {
            let counts = check(0, &case, target).unwrap_or_else(|error| panic!("{error}"));
            assert!(counts.called > 0, "{counts:?}: {}", case.text);
            assert_eq!(counts.declined > 0, wrong.is_some());
        }
    }
}

fn bytes(dtype: Dtype, bytes: &[u8]) -> Input {
    Input::Buffer { dtype, bytes: bytes.to_vec(), start: 0, is_read_only: false }
}

fn buffer(dtype: Dtype, count: usize) -> Input {
    bytes(dtype, &vec![0; count * dtype.bytes()])
}

fn check_text(text: String, inputs: Vec<Input>) {
    let case = Case { text, programs: 1, inputs, is_regular: true, repeats_elements: false };
    for target in targets() {
        let counts = check(0, &case, target).unwrap_or_else(|error| panic!("{error}"));
        assert!(counts.called > 0, "{counts:?}: {}", case.text);
    }
}

#[test]
fn machine_code_gives_what_steps_give() {
    let targets = targets();
    if targets.is_empty() {
        return;
    }
    let count = std::env::var("TILEWRIGHT_RANDOM_NESTS").ok();
    let count = count.map_or(400, |count| count.parse().expect("TILEWRIGHT_RANDOM_NESTS is a number"));
    let totals = Mutex::new(Totals::default());
    in_parallel(chosen_seeds().unwrap_or(0..count), |seed| {
        let case = generate(seed);
        for &target in &targets {
            let outcome = check(seed, &case, target);
            let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            let counts = match outcome {
                Ok(counts) => counts,
                Err(error) => {
                    totals.failures.push(error);
                    assert!(totals.failures.len() < MAX_FAILURES, "{}", totals.failures.join("\n"));
                    return;
                }
            };
            totals.kernels += 1;
            totals.with_nests += u64::from(counts.formed > 0);
            totals.with_machine_code += u64::from(counts.called > counts.declined);
            totals.with_declined += u64::from(counts.declined > 0);
        }
    });
    let Totals { kernels, with_nests, with_machine_code, with_declined, failures } =
        totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("{kernels} kernels, {with_nests} with nests, {with_machine_code} ran, {with_declined} declined");
    if kernels >= 100 {
        assert!(with_nests * 10 > kernels * 8, "{with_nests} of {kernels} kernels have nests");
        assert!(with_machine_code * 10 > kernels * 6, "{with_machine_code} of {kernels} kernels run them");
    }
}
