//! Tests that the README shows actual output of tilewright. `TILEWRIGHT_BLESS=1` updates it.

use tilewright::{Color, Kernel, Module, Options, Stage, args};
use tilewright_testkit::{check_snapshot, fences, project_root};

/// Returns the value of the attribute `name=` in a block's info string.
fn attribute<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn kernel(code: &str, name: &str) -> Kernel {
    let module = Module::from_source("kernels.py", code).expect("the program of the README is valid");
    module.kernel(name).expect("the README has the kernel")
}

/// Returns the end of Python's traceback after a launch of the kernel without its masks: the
/// exception and the diagnostic. `…` is for the folder of the file.
fn without_mask(code: &str, name: &str) -> String {
    let kernel = kernel(&code.replace(", mask=mask)", ")"), name);
    let (x, y, mut output) = (vec![0.0_f32; 98_432], vec![0.0_f32; 98_432], vec![0.0_f32; 98_432]);
    let result = kernel.launch(97, args![&x, &y, &mut output, x.len(), 1024]);
    let diagnostic = result.expect_err("it leaves its memory").render(Color::Never);
    format!("tilewright.errors.OutOfBoundsError: {}", diagnostic.replace("--> ", "--> …/"))
}

/// Returns `lines` lines of a text from the first line that contains `from`, with ellipses for
/// omitted lines.
fn excerpt(text: &str, from: &str, lines: &str) -> String {
    let count = lines.parse().expect("lines is a number");
    let excerpt: Vec<&str> = text.lines().skip_while(|line| !line.contains(from)).take(count).collect();
    format!("  …\n{}\n  …\n", excerpt.join("\n"))
}

#[test]
fn readme_shows_actual_output() {
    let path = project_root().join("README.md");
    let page = std::fs::read_to_string(&path).expect("there is a README");
    let blocks = fences(&page);
    let program = blocks.iter().find(|block| attribute(&block.info, "kernel").is_some());
    let program = program.expect("the README has a kernel");
    let (code, info) = (&page[program.body.clone()], program.info.as_str());
    let name = attribute(info, "kernel").unwrap_or_default();
    let signature = attribute(info, "signature").unwrap_or_default();
    let handle = kernel(code, name).compile(signature, &Options::default()).expect("it compiles");

    let mut expected = page.clone();
    for block in blocks.iter().rev() {
        let text =
            match (attribute(&block.info, "emit").and_then(Stage::parse), attribute(&block.info, "run")) {
                (Some(stage), _) => {
                    let text = handle.compiled.asm(stage).expect("it is a stage of the CPU path");
                    match (attribute(&block.info, "from"), attribute(&block.info, "lines")) {
                        (Some(from), Some(lines)) => excerpt(&text, from, lines),
                        _ => text,
                    }
                }
                (None, Some(_)) => without_mask(code, name) + "\n",
                (None, None) => continue,
            };
        let text = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n";
        expected.replace_range(block.body.clone(), &text);
    }
    check_snapshot(&path, &expected);
}
