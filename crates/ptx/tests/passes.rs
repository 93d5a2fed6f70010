//! Runs the cases of `tests/ptx/*.ptx`, which test passes over the code of a thread. A case is the
//! body of a kernel before and after a pass.

use std::fmt::Write;

use tilewright_ptx::isa::{parse, print};
use tilewright_ptx::passes::run_on;
use tilewright_testkit::run_text_cases;

const HEADER: &str = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u32 n)\n{\n\
    .reg .pred %p<40>;\n.reg .b16 %rs<40>;\n.reg .b32 %r<40>;\n.reg .b64 %rd<40>;\n";

#[test]
fn files() {
    run_text_cases("tests/ptx", "ptx", 4, &run);
}

fn run(steps: &[&str], input: &str) -> Result<String, String> {
    let mut module = parse(&format!("{HEADER}{input}}}\n")).map_err(|error| error.to_string())?;
    for step in steps {
        for function in module.functions.values_mut() {
            if !run_on(step, function) {
                return Err(format!("there is no pass {step}"));
            }
        }
    }
    let printed = print(&module);
    parse(&printed).map_err(|error| format!("its print: {error}\n{printed}"))?;
    let body = printed.lines().skip_while(|line| *line != "{").skip(1).take_while(|line| *line != "}");
    let body = body.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(".reg"));
    Ok(body.flat_map(|line| [line, "\n"]).collect())
}

/// A kernel computes and stores products twice. Value numbering removes the second computation,
/// unless the listing is long and needs twice the registers of a thread.
#[test]
fn what_is_far_apart_is_computed_again_where_registers_are_too_few() {
    let sums = |count: usize| {
        let mut body = String::from("ld.param.u64 %rd0, [x];\nld.param.u32 %r0, [n];\n");
        for turn in 0..2 {
            for number in 1..=count {
                let register = turn * count + number;
                writeln!(body, "mul.lo.s32 %r{register}, %r0, {number};").expect("a string takes it");
            }
            for number in 1..=count {
                let register = turn * count + number;
                writeln!(body, "st.global.b32 [%rd0+{}], %r{register};", register * 4)
                    .expect("a string takes it");
            }
        }
        let header = HEADER.replace("%r<40>", &format!("%r<{}>", 2 * count + 1));
        let mut module = parse(&format!("{header}{body}}}\n")).expect("it is PTX");
        module.functions.values_mut().for_each(|function| assert!(run_on("value_numbering", function)));
        print(&module).matches("mul.lo").count()
    };
    assert_eq!(sums(500), 500);
    assert_eq!(sums(501), 501);
    // The listing has more than 2,000 lines and 510 live words.
    assert_eq!(sums(600), 1200);
}
