//! Tests the split of pointer tiles into scalar pointers and offsets.

use tilewright_ir::{Inst, Op, Operation};

use crate::check::check;
use crate::erase::erase;
use crate::meaning::execute;
use crate::{Program, assigned, module, text};

/// The head of the kernels: pointers to rows of 64 elements, and an output pointer.
const HEAD: &str = r"
kernel func0 @kernel(%x_ptr: *int32 {divisibility = 16}, %out_ptr: *int32 {divisibility = 16}, %n: int32, %w: int32) {
  %zero = constant {value = 0:int32} : int32
  %one = constant {value = 1:int32} : int32
  %four = constant {value = 4:int32} : int32
  %arange = arange {start = 0, end = 8} : int32[8]
  %rows = expand_dims %arange {axis = 1} : int32[8, 1]
  %cols = expand_dims %arange {axis = 0} : int32[1, 8]
  %widths = splat %w {shape = [8, 1]} : int32[8, 1]
  %row = mul %rows, %widths : int32[8, 1]
  %rows_of_tile = broadcast %row {shape = [8, 8]} : int32[8, 8]
  %cols_of_tile = broadcast %cols {shape = [8, 8]} : int32[8, 8]
  %x = splat %x_ptr {shape = [8, 8]} : *int32[8, 8]
  %x_rows = ptr_add %x, %rows_of_tile : *int32[8, 8]
  %p = ptr_add %x_rows, %cols_of_tile : *int32[8, 8]
  %out = splat %out_ptr {shape = [8, 8]} : *int32[8, 8]
  %eight = constant {value = 8:int32} : int32
  %eights = splat %eight {shape = [8, 8]} : int32[8, 8]
  %lines = broadcast %rows {shape = [8, 8]} : int32[8, 8]
  %lines_of_out = mul %lines, %eights : int32[8, 8]
  %out_rows = ptr_add %out, %lines_of_out : *int32[8, 8]
  %q = ptr_add %out_rows, %cols_of_tile : *int32[8, 8]
  %zeros = splat %zero {shape = [8, 8]} : int32[8, 8]
";
const LOAD: &str = r#"{cache = "", eviction = "", volatile = false} : int32[8, 8]"#;
const STORE: &str = r#"{cache = "", eviction = ""}"#;
const CAST: &str = r#"{element = int64, rounding = "rtne"}"#;
const FOR: &str = r#"{options = "stages=0 unroll=0"}"#;

/// Returns a kernel with `body` after the head. In `body`, `LOAD`, `STORE`, `FOR` and `CAST` expand
/// to attributes.
fn kernel(body: &str) -> String {
    let body = body.replace("LOAD", LOAD).replace("STORE", STORE).replace("FOR", FOR).replace("CAST", CAST);
    format!("{HEAD}{body}  return_values\n}}\n")
}

fn count(program: &Program, is_counted: impl Fn(Inst) -> bool) -> usize {
    let function = program.kernel();
    let mut count = 0;
    function.walk(function.entry, &mut |inst| count += usize::from(is_counted(inst)));
    count
}

/// Counts the pointer tiles that loops carry.
fn carried_tiles(program: &Program) -> usize {
    let function = program.kernel();
    let is_tile = |value| {
        let ty = function.ty(value);
        ty.layout().is_some() && ty.tile().is_some_and(|tile| tile.element.pointee().is_some())
    };
    let mut tiles = 0;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if matches!(data.op.as_tile(), Some(Op::For { .. } | Op::While {})) {
            tiles += data.results.iter().filter(|result| is_tile(**result)).count();
        }
    });
    tiles
}

/// Counts multiplications of tiles in loops.
fn multiplications_in_loops(program: &Program) -> usize {
    let function = program.kernel();
    let entry = &function.blocks[function.entry].insts;
    let is_multiplication = |inst: Inst| {
        let data = &function.insts[inst];
        data.op.name() == "mul" && function.ty(data.results[0]).layout().is_some()
    };
    count(program, |inst| is_multiplication(inst) && !entry.contains(&inst))
}

/// Checks that a program writes the same memory as its kernel.
///
/// Returns the pointer tiles that loops carry, and the tile multiplications in loops.
fn split(body: &str, scalars: [i64; 2]) -> [usize; 2] {
    let before = module(&kernel(body));
    let program = assigned(&before, "sm_90", 2);
    check(&program);
    let scalars = scalars.map(|scalar| u64::from(scalar as u32));
    let run = |module| execute(module, [1, 1, 1], 64 * 64, &scalars);
    let (before, after) = (run(&before), run(&erase(&program).module));
    assert!(
        before[1].iter().any(|byte| *byte != 0) && before[0] != before[1],
        "the kernel must store something"
    );
    assert!(before == after, "{}", text(&program));
    [carried_tiles(&program), multiplications_in_loops(&program)]
}

#[test]
fn loops_carry_only_the_base_of_uniformly_moved_pointers() {
    let body = r"
  %sum, %p.1, %q.1 = for_loop %zero, %n, %one, %zeros, %p, %q FOR (%i: int32, %sum.1: int32[8, 8], %p.2: *int32[8, 8], %q.2: *int32[8, 8]) {
    %a = load %p.2 LOAD
    %sum.2 = add %sum.1, %a : int32[8, 8]
    store %q.2, %sum.2 STORE
    %wide = splat %w {shape = [8, 8]} : int32[8, 8]
    %p.3 = ptr_add %p.2, %wide : *int32[8, 8]
    %step = splat %four {shape = [8, 8]} : int32[8, 8]
    %q.3 = ptr_add %q.2, %step : *int32[8, 8]
    yield_values %sum.2, %p.3, %q.3
  } : int32[8, 8], *int32[8, 8], *int32[8, 8]
  %last = load %p.1 LOAD
  store %q.1, %last STORE
";
    assert_eq!(split(body, [5, 64]), [0, 0]);
    assert_eq!(split(body, [0, 64]), [0, 0]);
}

#[test]
fn nested_and_while_loops_carry_only_the_base() {
    let body = r"
  %sum, %p.1 = for_loop %zero, %n, %one, %zeros, %p FOR (%i: int32, %sum.1: int32[8, 8], %p.2: *int32[8, 8]) {
    %sum.2, %p.3, %left = while_loop %sum.1, %p.2, %four (%sum.3: int32[8, 8], %p.4: *int32[8, 8], %left.1: int32) {
      %more = gt %left.1, %zero : int1
      yield_values %more
    } (%sum.4: int32[8, 8], %p.5: *int32[8, 8], %left.2: int32) {
      %a = load %p.5 LOAD
      %sum.5 = add %sum.4, %a : int32[8, 8]
      %steps = splat %left.2 {shape = [8, 8]} : int32[8, 8]
      %p.6 = ptr_add %p.5, %steps : *int32[8, 8]
      %left.3 = sub %left.2, %one : int32
      yield_values %sum.5, %p.6, %left.3
    } : int32[8, 8], *int32[8, 8], int32
    %wide = cast %w CAST : int64
    %wides = splat %wide {shape = [8, 8]} : int64[8, 8]
    %p.7 = ptr_add %p.3, %wides : *int32[8, 8]
    yield_values %sum.2, %p.7
  } : int32[8, 8], *int32[8, 8]
  store %q, %sum STORE
";
    assert_eq!(split(body, [3, 64]), [0, 0]);
}

#[test]
fn pointers_that_diverge_or_swap_stay_tiles() {
    let apart = r"
  %sum, %p.1 = for_loop %zero, %n, %one, %zeros, %p FOR (%i: int32, %sum.1: int32[8, 8], %p.2: *int32[8, 8]) {
    %a = load %p.2 LOAD
    %sum.2 = add %sum.1, %a : int32[8, 8]
    %p.3 = ptr_add %p.2, %cols_of_tile : *int32[8, 8]
    yield_values %sum.2, %p.3
  } : int32[8, 8], *int32[8, 8]
  store %q, %sum STORE
";
    assert_eq!(split(apart, [4, 64]), [1, 0]);
    let swapped = r"
  %half = splat %four {shape = [8, 8]} : int32[8, 8]
  %r = ptr_add %p, %half : *int32[8, 8]
  %sum, %p.1, %r.1 = for_loop %zero, %n, %one, %zeros, %p, %r FOR (%i: int32, %sum.1: int32[8, 8], %p.2: *int32[8, 8], %r.2: *int32[8, 8]) {
    %a = load %p.2 LOAD
    %b = load %r.2 LOAD
    %c = mul %b, %half : int32[8, 8]
    %d = add %a, %c : int32[8, 8]
    %sum.2 = add %sum.1, %d : int32[8, 8]
    yield_values %sum.2, %r.2, %p.2
  } : int32[8, 8], *int32[8, 8], *int32[8, 8]
  store %q, %sum STORE
";
    assert_eq!(split(swapped, [3, 64])[0], 2);
}

#[test]
fn pointers_of_branches_and_selects_keep_their_values() {
    let body = r"
  %is_some = gt %n, %zero : int1
  %wides = splat %w {shape = [8, 8]} : int32[8, 8]
  %moved = ptr_add %p, %wides : *int32[8, 8]
  %p.1 = if_else %is_some () {
    %p.2 = ptr_add %moved, %cols_of_tile : *int32[8, 8]
    yield_values %p.2
  } () {
    yield_values %moved
  } : *int32[8, 8]
  %is_low = lt %cols_of_tile, %rows_of_tile : int1[8, 8]
  %p.3 = select %is_low, %p.1, %p : *int32[8, 8]
  %p.4 = ptr_add %p.3, %wides : *int32[8, 8]
  %a = load %p.4 LOAD
  store %q, %a STORE
";
    assert_eq!(split(body, [1, 64]), [0, 0]);
    assert_eq!(split(body, [0, 2]), [0, 0]);
}

/// Offsets `(start + arange) * w`, such as those of the keys in attention.
const PRODUCT: &str = r"
  %sum = for_loop LOWER, %n, %four, %zeros FOR (%start: int32, %sum.1: int32[8, 8]) {
    %starts = splat %start {shape = [8, 1]} : int32[8, 1]
    %keys = add %starts, %rows : int32[8, 1]
    %key = mul %keys, %widths : int32[8, 1]
    %keys_of_tile = broadcast %key {shape = [8, 8]} : int32[8, 8]
    %p.1 = ptr_add %x, %keys_of_tile : *int32[8, 8]
    %p.2 = ptr_add %p.1, %cols_of_tile : *int32[8, 8]
    %a = load %p.2 LOAD
    %sum.2 = add %sum.1, %a : int32[8, 8]
    yield_values %sum.2
  } : int32[8, 8]
  store %q, %sum STORE
";

#[test]
fn products_with_one_loop_variant_term_are_distributed() {
    let from_zero = PRODUCT.replace("LOWER", "%zero");
    assert_eq!(split(&from_zero, [12, 64]), [0, 0]);
    // The terms of a product with a negative number are negative too.
    let from_the_end = from_zero.replace("ptr_add %x, %keys_of_tile", "ptr_add %end, %keys_of_tile");
    let end = "  %last = constant {value = 2048:int32} : int32\n  %end_ptr = ptr_add %x_ptr, %last : *int32\n  \
               %end = splat %end_ptr {shape = [8, 8]} : *int32[8, 8]\n";
    assert_eq!(split(&format!("{end}{from_the_end}"), [12, -64]), [0, 0]);
}

/// If `start` may be negative, `start * w` may overflow, and the product stays.
#[test]
fn products_whose_terms_may_overflow_stay() {
    let body = PRODUCT.replace("LOWER", "%four");
    let body = body.replace("splat %start {", "splat %shifted {").replace(
        "    %starts",
        "    %far = constant {value = 100000000:int32} : int32\n    %shifted = sub %start, %far : int32\n    %starts",
    );
    let body = body
        .replace("add %starts, %rows : int32[8, 1]", "add %starts, %far_rows : int32[8, 1]")
        .replace("  %sum = for_loop", "  %back = constant {value = 100000000:int32} : int32\n  \
            %backs = splat %back {shape = [8, 1]} : int32[8, 1]\n  %far_rows = add %rows, %backs : int32[8, 1]\n  %sum = for_loop");
    assert_eq!(split(&body, [12, 64]), [0, 1]);
}

#[test]
fn wide_products_are_distributed() {
    let body = r"
  %far = constant {value = -4611686018427387904:int64} : int64
  %wide = cast %w CAST : int64
  %wides = splat %wide {shape = [8, 8]} : int64[8, 8]
  %wide_rows = cast %lines CAST : int64[8, 8]
  %sum = for_loop %zero, %n, %four, %zeros FOR (%start: int32, %sum.1: int32[8, 8]) {
    %wide_start = cast %start CAST : int64
    %shifted = add %wide_start, %far : int64
    %starts = splat %shifted {shape = [8, 8]} : int64[8, 8]
    %keys = add %starts, %wide_rows : int64[8, 8]
    %key = mul %keys, %wides : int64[8, 8]
    %p.1 = ptr_add %x, %key : *int32[8, 8]
    %p.2 = ptr_add %p.1, %cols_of_tile : *int32[8, 8]
    %a = load %p.2 LOAD
    %sum.2 = add %sum.1, %a : int32[8, 8]
    yield_values %sum.2
  } : int32[8, 8]
  store %q, %sum STORE
";
    assert_eq!(split(body, [12, 64]), [0, 0]);
}

/// The sum of the offsets does not fit in 32 bits.
#[test]
fn offsets_are_never_added_in_32_bits() {
    let body = r"
  %far = constant {value = 2147483600:int32} : int32
  %fars = splat %far {shape = [8, 8]} : int32[8, 8]
  %near = constant {value = -2147483600:int32} : int32
  %nears = splat %near {shape = [8, 8]} : int32[8, 8]
  %far_rows = add %rows_of_tile, %fars : int32[8, 8]
  %far_cols = sub %cols_of_tile, %fars : int32[8, 8]
  %p.1 = ptr_add %x, %far_rows : *int32[8, 8]
  %p.2 = ptr_add %p.1, %fars : *int32[8, 8]
  %p.3 = ptr_add %p.2, %far_cols : *int32[8, 8]
  %p.4 = ptr_add %p.3, %nears : *int32[8, 8]
  %a = load %p.4 LOAD
  store %q, %a STORE
";
    assert_eq!(split(body, [1, 1]), [0, 0]);
}

#[test]
fn hints_move_to_the_recombined_pointers() {
    let hint = r#"{kind = "multiple_of", values = [16, 16]} : *int32[8, 8]"#;
    let head = "
  %sum, %p.1 = for_loop %zero, %n, %one, %zeros, START FOR (%i: int32, %sum.1: int32[8, 8], %p.2: *int32[8, 8]) {
";
    let tail = "
    %step = splat %four {shape = [8, 8]} : int32[8, 8]
    %p.4 = ptr_add %p.3, %step : *int32[8, 8]
    yield_values %sum.2, %p.4
  } : int32[8, 8], *int32[8, 8]
  %last = load %p.1 LOAD
  %all = add %last, %sum : int32[8, 8]
  store %q, %all STORE
";
    let load = "
    %a = load %p.3 LOAD
    %sum.2 = add %sum.1, %a : int32[8, 8]";
    let hinted = format!("%p.3 = hint %p.2 {hint}");
    let plain = "%p.3 = ptr_add %p.2, %zeros : *int32[8, 8]";
    let program = |start: &str, parts: &[&str]| {
        let body = [&[head], parts, &[tail]].concat().concat();
        let first = if start == "%p" { String::new() } else { format!("  %h = hint %p {hint}") };
        first + &body.replace("START", start)
    };
    assert_eq!(split(&program("%p", &[&hinted, load]), [5, 64]), [0, 0]);
    // Another use of the moved pointers needs the hint.
    let twice = tail.replace("yield", "%b = load %p.4 LOAD\n    store %q, %b STORE\n    yield");
    let body = program("%p", &[&hinted, load]).replace(tail, &twice);
    assert_eq!(split(&body, [5, 64]), [1, 0]);
    // Pointers that have a hint before the loop stay a tile, too.
    assert_eq!(split(&program("%h", &[plain, load]), [5, 64])[0], 1);
    let text = text(&assigned(&module(&kernel(&program("%p", &[&hinted, load]))), "sm_90", 1));
    assert!(text.contains("%a = load") && text.contains("width = 2} : int32[8, 8]"), "{text}");
}
