//! Tests recursive calls and calls through pointers, in diverging lanes.

mod common;

use common::{fault, launch, memory};
use tilewright_sim::FaultKind;

/// Returns a module whose kernel stores `%d`, which `body` computes from the thread `%t`.
fn module(functions: &str, body: &str) -> String {
    format!(
        "
.version 7.8
.target sm_75
.address_size 64
{functions}
.visible .entry kernel(.param .u64 out)
{{
    .reg .b32 %d, %t, %a;
    .reg .b64 %out, %place, %f;
    .reg .pred %p;
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %place, %t, 4;
    add.u64 %out, %out, %place;
{body}
    st.global.u32 [%out], %d;
    ret;
}}
"
    )
}

fn results(functions: &str, body: &str) -> Vec<u32> {
    let mut out = vec![0_u32; 64];
    let text = module(functions, body);
    launch(&text, 1, 64, vec![memory(&mut out)]).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    out
}

const FIBONACCI: &str = "
.func (.param .b32 result) fibonacci(.param .b32 number)
{
    .reg .b32 %n, %x, %y;
    .reg .pred %p;
    ld.param.u32 %n, [number];
    setp.lt.u32 %p, %n, 2;
    @%p bra $small;
    {
        .param .b32 argument;
        .param .b32 value;
        sub.u32 %x, %n, 1;
        st.param.b32 [argument], %x;
        call.uni (value), fibonacci, (argument);
        ld.param.b32 %x, [value];
    }
    {
        .param .b32 argument;
        .param .b32 value;
        sub.u32 %y, %n, 2;
        st.param.b32 [argument], %y;
        call.uni (value), fibonacci, (argument);
        ld.param.b32 %y, [value];
    }
    add.u32 %n, %x, %y;
$small:
    st.param.b32 [result], %n;
    ret;
}";

/// Returns a call with the argument `%a` and the result `%d`, in the lanes of a guard.
fn call(guard: &str, name: &str) -> String {
    format!(
        "    {{ .param .b32 argument; .param .b32 value; st.param.b32 [argument], %a;
    {guard} call (value), {name}, (argument); ld.param.b32 %d, [value]; }}"
    )
}

fn fibonacci(n: u32) -> u32 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

#[test]
fn functions_call_themselves_each_lane_as_deep_as_it_likes() {
    let body = format!("    rem.u32 %a, %t, 11;\n{}", call("", "fibonacci"));
    let expected: Vec<_> = (0..64).map(|lane| fibonacci(lane % 11)).collect();
    assert_eq!(results(FIBONACCI, &body), expected);
}

#[test]
fn the_guard_of_a_call_holds_only_for_its_lanes() {
    let guarded = call("@!%p", "fibonacci").replace("ld.param", "@!%p ld.param");
    let body = format!("    rem.u32 %a, %t, 11;\n    setp.gt.u32 %p, %a, 7;\n    mov.u32 %d, 0;\n{guarded}");
    let expected: Vec<_> = (0..64).map(|lane| if lane % 11 > 7 { 0 } else { fibonacci(lane % 11) }).collect();
    assert_eq!(results(FIBONACCI, &body), expected);
}

/// Two mutually recursive functions. Each call has its number in a local array, and sums those of
/// all active calls.
const CHAIN: &str = "
.func (.param .b32 result) second(.param .b32 number, .param .b64 above);
.func (.param .b32 result) first(.param .b32 number, .param .b64 above)
{
    .local .align 8 .b8 frame[16];
    .reg .b32 %n, %v, %sum;
    .reg .b64 %above, %here;
    .reg .pred %p;
    ld.param.u32 %n, [number];
    ld.param.u64 %above, [above];
    mov.u64 %here, frame;
    cvta.local.u64 %here, %here;
    st.u64 [%here], %above;
    st.local.u32 [frame+8], %n;
    setp.eq.u32 %p, %n, 0;
    @%p bra $walk;
    {
        .param .b32 argument;
        .param .b64 address;
        .param .b32 value;
        sub.u32 %v, %n, 1;
        st.param.b32 [argument], %v;
        st.param.b64 [address], %here;
        call.uni (value), second, (argument, address);
        ld.param.b32 %sum, [value];
    }
    bra $end;
$walk:
    mov.u32 %sum, 0;
$next:
    ld.u32 %v, [%here+8];
    mad.lo.u32 %sum, %sum, 3, %v;
    ld.u64 %here, [%here];
    setp.ne.u64 %p, %here, 0;
    @%p bra $next;
$end:
    st.param.b32 [result], %sum;
    ret;
}
.func (.param .b32 result) second(.param .b32 number, .param .b64 above)
{
    .reg .b32 %n;
    .reg .b64 %above;
    ld.param.u32 %n, [number];
    ld.param.u64 %above, [above];
    .param .b32 argument;
    .param .b64 address;
    .param .b32 value;
    st.param.b32 [argument], %n;
    st.param.b64 [address], %above;
    call.uni (value), first, (argument, address);
    ld.param.b32 %n, [value];
    add.u32 %n, %n, 1000;
    st.param.b32 [result], %n;
    ret;
}";

#[test]
fn each_call_has_local_memory_of_its_own_at_an_address_that_others_may_use() {
    let body = "    rem.u32 %a, %t, 7;
    { .param .b32 argument; .param .b64 address; .param .b32 value;
    st.param.b32 [argument], %a; st.param.b64 [address], 0;
    call.uni (value), first, (argument, address); ld.param.b32 %d, [value]; }";
    let expected = |lane: u32| {
        let depth = lane % 7;
        (0..=depth).fold(0_u32, |sum, number| sum.wrapping_mul(3).wrapping_add(number)) + 1000 * depth
    };
    assert_eq!(results(CHAIN, body), (0..64).map(expected).collect::<Vec<_>>());
}

const OPERATIONS: &str = "
.func (.param .b32 result) increment(.param .b32 x)
{
    .reg .b32 %x;
    ld.param.u32 %x, [x];
    add.u32 %x, %x, 1;
    st.param.b32 [result], %x;
    ret;
}
.func (.param .b32 result) square(.param .b32 x)
{
    .reg .b32 %x;
    ld.param.u32 %x, [x];
    mul.lo.u32 %x, %x, %x;
    st.param.b32 [result], %x;
    ret;
}
.func nothing()
{
    ret;
}
.global .align 8 .u64 table[2] = {increment, square};";

fn indirect(address: &str) -> String {
    format!(
        "    {address}
    {{ .param .b32 argument; .param .b32 value; st.param.b32 [argument], %t;
    prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (value), %f, (argument), prototype; ld.param.b32 %d, [value]; }}"
    )
}

#[test]
fn calls_through_pointers_reach_the_function_of_each_lane() {
    let of_table = "and.b32 %a, %t, 1; mul.wide.u32 %place, %a, 8; mov.u64 %f, table;
    add.u64 %place, %place, %f; ld.global.u64 %f, [%place];";
    let expected: Vec<_> = (0..64).map(|lane| if lane % 2 == 0 { lane + 1 } else { lane * lane }).collect();
    assert_eq!(results(OPERATIONS, &indirect(of_table)), expected);
    let squares: Vec<_> = (0..64).map(|lane| lane * lane).collect();
    assert_eq!(results(OPERATIONS, &indirect("mov.u64 %f, square;")), squares);
}

#[test]
fn registers_and_constants_are_passed_as_parameters_are() {
    let body = "    call (%d), square, (%t); call (%a), increment, (41); add.u32 %d, %d, %a;";
    let expected: Vec<_> = (0..64).map(|lane| lane * lane + 42).collect();
    assert_eq!(results(OPERATIONS, body), expected);
}

#[test]
fn an_alias_is_the_function() {
    let aliased =
        format!(".func (.param .b32 result) other(.param .b32 x);\n{OPERATIONS}\n.alias other, increment;");
    let expected: Vec<_> = (0..64).map(|lane| lane + 1).collect();
    assert_eq!(results(&aliased, &format!("    mov.u32 %a, %t;\n{}", call("", "other"))), expected);
}

/// Input: shuffles and barriers in a recursive function.
#[test]
fn lanes_meet_in_functions_that_call_themselves() {
    let sum = "
.func (.param .b32 result) sum(.param .b32 value, .param .b32 distance)
{
    .reg .b32 %v, %w, %d;
    .reg .pred %p;
    ld.param.u32 %v, [value];
    ld.param.u32 %d, [distance];
    shfl.sync.bfly.b32 %w, %v, %d, 0x1f, -1;
    add.u32 %v, %v, %w;
    bar.sync 0;
    shl.b32 %d, %d, 1;
    setp.gt.u32 %p, %d, 16;
    @%p bra $end;
    call.uni (%v), sum, (%v, %d);
$end:
    st.param.b32 [result], %v;
    ret;
}";
    let expected: Vec<u32> = (0..64).map(|lane| if lane < 32 { 496 } else { 496 + 1024 }).collect();
    assert_eq!(results(sum, "    call.uni (%d), sum, (%t, 1);"), expected);
}

fn fault_of(functions: &str, body: &str) -> FaultKind {
    let mut out = vec![0_u32; 64];
    fault(launch(&module(functions, body), 1, 64, vec![memory(&mut out)]))
}

#[test]
fn invalid_calls_are_faults() {
    let endless = "
.func endless(.param .b32 n)
{
    .local .b8 space[1024];
    .reg .b32 %n;
    ld.param.b32 %n, [n];
    call.uni endless, (%n);
    ret;
}";
    let illegal = |kind: FaultKind, part: &str| {
        assert!(matches!(&kind, FaultKind::Illegal(text) if text.contains(part)), "{kind:?}");
    };
    illegal(fault_of(endless, "    call.uni endless, (%t);"), "local memory");
    illegal(fault_of(OPERATIONS, &indirect("mov.u64 %f, 4096;")), "0x1000");
    illegal(fault_of(OPERATIONS, &indirect("mov.u64 %f, nothing;")), "differ from those");
    illegal(fault_of(OPERATIONS, "    call (%d), square, (%t, %t);"), "differ from those");
    let missing = ".extern .func (.param .b32 result) elsewhere(.param .b32 x);";
    let kind = fault_of(missing, &format!("    mov.u32 %a, %t;\n{}", call("", "elsewhere")));
    assert!(matches!(&kind, FaultKind::Unsupported(text) if text.contains("elsewhere")), "{kind:?}");
}

/// Input: a parameter of 8 bytes. Expected: only variables of the caller of at least 8 bytes are
/// accepted.
#[test]
fn arguments_are_large_enough_variables_of_the_caller() {
    let function = "
.func take(.param .b64 value)
{
    ret;
}
";
    let cases = [
        ("call.uni take, (out);", "which is not a `.param` variable of the calling function"),
        (
            "{ .shared .b64 s; call.uni take, (s); }",
            "which is not a `.param` variable of the calling function",
        ),
        (
            "{ .param .b32 small; call.uni take, (small); }",
            "passes `small` of 4 bytes for a parameter of 8 bytes",
        ),
    ];
    for (body, expected) in cases {
        let text = module(function, &format!("mov.u32 %d, 0; {body}"));
        let found = fault(launch(&text, 1, 32, vec![memory(&mut [0_u32; 32])]));
        let FaultKind::Illegal(text) = &found else { panic!("{body}: {found:?}") };
        assert!(text.contains(expected), "{body}: {text}");
    }
}
