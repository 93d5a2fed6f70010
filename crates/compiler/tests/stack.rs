//! Tests that kernels with the deepest nesting compile and print on a small stack.

use std::fmt::Write;

use tilewright_compiler::{CodegenOptions, CompileError, Job, Stage, Target, compile};
use tilewright_frontend::{Argument, Options, Request, SourceHost};
use tilewright_ir::Dtype;

const HEADER: &str = "import triton\nimport triton.language as tl\n\n";

fn stages(text: &str) -> Result<usize, CompileError> {
    let mut host = SourceHost::new("k.py", text).expect("it is Python");
    let kernel = host.function("k").expect("it is there");
    let arguments = vec![
        Argument::Pointer { pointee: Dtype::I32, divisibility: 1, is_const: false },
        Argument::Scalar { dtype: Dtype::I32, divisibility: 1 },
    ];
    let job = Job {
        request: Request { kernel, arguments, options: Options::default() },
        parameters: vec!["x_ptr".into(), "n".into()],
        target: Target::Cpu,
        codegen: CodegenOptions::default(),
    };
    let compiled = compile(&job, &mut host, &mut |_, text| drop(text()))?;
    let texts = Stage::of(Target::Cpu).iter().filter_map(|&stage| compiled.asm(stage));
    Ok(texts.map(|text| text.len()).sum::<usize>() + compiled.hash().len())
}

#[test]
fn deep_kernels_need_little_stack() {
    let chain = (0..190).fold(
        format!("{HEADER}@triton.jit\ndef k(x_ptr, n):\n    if n == 1000:\n        n = 0\n"),
        |text, i| text + &format!("    elif n == {i}:\n        n = {i} + n\n"),
    );
    let chain = chain + "    tl.store(x_ptr, n)\n";
    // Four functions with 62 levels each.
    let mut calls = HEADER.to_owned();
    for i in 0..4 {
        let _ = write!(calls, "@triton.jit\ndef f{i}(x):\n");
        for level in 0..62 {
            let _ = writeln!(calls, "{}if x > {level}:", " ".repeat(4 + level));
        }
        let inner = if i == 0 { "x += 1".to_owned() } else { format!("x += f{}(x)", i - 1) };
        let _ = write!(calls, "{}{inner}\n    return x\n", " ".repeat(4 + 62));
    }
    calls += "@triton.jit\ndef k(x_ptr, n):\n";
    for i in 0..4 {
        let _ = writeln!(calls, "    tl.store(x_ptr, f{i}(n))");
    }
    for text in [chain, calls] {
        let thread = std::thread::Builder::new().stack_size(128 << 10);
        let length = thread.spawn(move || stages(&text).map_err(|error| format!("{error:?}")));
        let length = length.expect("a thread starts").join().expect("it does not overflow");
        assert!(length.expect("it compiles") > 10_000);
    }
}
