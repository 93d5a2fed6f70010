//! Runs `tests/ptx/*.ptx`: passes over the code of a thread on text, compared with text. A case is the body of a kernel without
//! its registers.

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
