//! Tests barriers between accesses to global memory by different threads.

use tilewright_ir::{Block, Op, Operation};

use crate::{Program, compiled, module};

/// Returns a kernel on tiles of `extent` elements.
///
/// `%a` begins at `%p`, and `%b` one element later. `%c` is in other memory, at `%q`.
fn kernel(extent: u32, body: &str) -> String {
    let how = "{cache = \"\", eviction = \"\", volatile = false} : fp32";
    let mut body = body.replace("load %p", &format!("load %p {how}"));
    for pointer in ["%a", "%b", "%c", "%h"] {
        body = body.replace(&format!("load {pointer}"), &format!("load {pointer} {how}[E]"));
    }
    let lines = body.lines().map(|line| {
        let is_store = line.trim_start().starts_with("store");
        if is_store { format!("{line} {{cache = \"\", eviction = \"\"}}\n") } else { format!("{line}\n") }
    });
    format!(
        "kernel func0 @k(%p: *fp32 {{divisibility = 16}}, %q: *fp32 {{divisibility = 16}}) {{
           %i = arange {{start = 0, end = E}} : int32[E]
           %j = arange {{start = 1, end = F}} : int32[E]
           %ps = splat %p {{shape = [E]}} : *fp32[E]
           %qs = splat %q {{shape = [E]}} : *fp32[E]
           %a = ptr_add %ps, %i : *fp32[E]
           %b = ptr_add %ps, %j : *fp32[E]
           %c = ptr_add %qs, %i : *fp32[E]
           %zero = constant {{value = 0:int32}} : int32
           %one = constant {{value = 1:int32}} : int32
           %ten = constant {{value = 10:int32}} : int32
           %step = splat %ten {{shape = [E]}} : int32[E]
           {}
           return_values
         }}",
        lines.collect::<String>()
    )
    .replace("= F}", &format!("= {}}}", extent + 1))
    .replace('E', &extent.to_string())
}

/// Returns the ops directly after a barrier, in order.
fn ops_after_barriers(extent: u32, body: &str) -> Vec<&'static str> {
    let program = compiled(&module(&kernel(extent, body)), "sm_80", 4);
    let mut found = Vec::new();
    find_ops_after_barriers(&program, program.kernel().entry, &mut found);
    found
}

fn find_ops_after_barriers(program: &Program, block: Block, found: &mut Vec<&'static str>) {
    let function = program.kernel();
    let mut is_after_barrier = false;
    for inst in &function.blocks[block].insts {
        let data = &function.insts[*inst];
        if is_after_barrier {
            found.push(data.op.name());
        }
        is_after_barrier = matches!(data.op.as_tile(), Some(Op::Barrier {}));
        for region in &data.regions {
            find_ops_after_barriers(program, *region, found);
        }
    }
}

#[test]
fn threads_that_access_their_own_elements_do_not_wait() {
    assert!(ops_after_barriers(1024, "%x = load %a\nstore %a, %x").is_empty());
    assert!(ops_after_barriers(1024, "%x = load %a\nstore %a, %x\n%y = load %a\nstore %c, %y").is_empty());
    assert!(ops_after_barriers(1024, "%x = load %a\nstore %c, %x\n%y = load %b").is_empty());
}

#[test]
fn threads_that_access_elements_of_others_wait() {
    assert_eq!(ops_after_barriers(1024, "%x = load %b\nstore %a, %x"), ["store"]);
    assert_eq!(ops_after_barriers(1024, "%x = load %c\nstore %a, %x\n%y = load %b\nstore %c, %y"), ["load"]);
    assert_eq!(ops_after_barriers(1024, "%x = load %c\nstore %a, %x\nstore %b, %x"), ["store"]);
    // A barrier of the kernel itself is enough.
    assert_eq!(ops_after_barriers(1024, "%x = load %b\nbarrier\nstore %a, %x"), ["store"]);
}

/// Threads with copies load an element before its owner stores.
#[test]
fn copies_are_loaded_before_they_are_overwritten() {
    assert_eq!(ops_after_barriers(16, "%x = load %a\nstore %a, %x"), ["store"]);
    assert_eq!(ops_after_barriers(1024, "%x = load %p\nstore %p, %x"), ["store"]);
    assert!(ops_after_barriers(1024, "%x = load %p\nstore %q, %x").is_empty());
}

#[test]
fn pointers_that_a_loop_moves_point_to_elements_of_others() {
    let body =
        "%r = for_loop %zero, %ten, %one, %a {options = \"stages=0 unroll=0\"} (%n: int32, %h: *fp32[E]) {
        %x = load %c
        store %h, %x
        %y = load %h
        %g = ptr_add %h, %step : *fp32[E]
        store %c, %y
        yield_values %g
      } : *fp32[E]";
    // One barrier per iteration orders the store and the load of `%h`.
    assert_eq!(ops_after_barriers(1024, body), ["store"]);
    let body =
        body.replace("%x = load %c", "").replace("store %h, %x", "").replace("store %c, %y", "store %h, %y");
    assert_eq!(ops_after_barriers(1024, &body), ["load"]);
    assert!(ops_after_barriers(1024, &body.replace("store %h, %y", "store %c, %y")).is_empty());
}
