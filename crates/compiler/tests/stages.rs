//! Tests the order of the stages that the hook receives, and their texts.

use tilewright_compiler::{
    CodegenOptions, CompiledKernel, DumpHook, Job, MachineCode, Stage, Target, compile,
};
use tilewright_frontend::{Argument, Options, Request, SourceHost};
use tilewright_ir::Dtype;

const TEXT: &str = "
import triton
import triton.language as tl

@triton.jit
def double(x_ptr):
    pointers = x_ptr + tl.arange(0, 512)
    tl.store(pointers, 2 * tl.load(pointers))
";

/// Compiles the kernel of `TEXT`.
fn compiled(
    target: Target,
    options: Options,
    codegen: CodegenOptions,
    dump: &mut DumpHook<'_>,
) -> CompiledKernel {
    let mut host = SourceHost::new("k.py", TEXT).expect("it is Python");
    let kernel = host.function("double").expect("it is there");
    let arguments = vec![Argument::Pointer { pointee: Dtype::F32, divisibility: 16, is_const: false }];
    let job = Job {
        request: Request { kernel, arguments, options },
        parameters: vec!["x_ptr".into()],
        target,
        codegen,
    };
    compile(&job, &mut host, dump).unwrap_or_else(|error| panic!("{target}: {error:?}"))
}

#[test]
fn each_stage_is_seen_once_and_can_be_had() {
    for (name, num_warps) in [("cpu", 4), ("sm_75", 1), ("sm_80", 8), ("sm_90", 4)] {
        let target = Target::parse(name).expect("it is a target");
        let codegen = CodegenOptions { num_warps, ..CodegenOptions::default() };
        let mut seen = Vec::new();
        let compiled =
            compiled(target, Options::default(), codegen, &mut |stage, text| seen.push((stage, text())));
        assert_eq!(seen.iter().map(|(stage, _)| *stage).collect::<Vec<_>>(), Stage::of(target));
        for &stage in Stage::ALL {
            let text = seen.iter().find(|(other, _)| *other == stage).map(|(_, text)| text);
            assert_eq!(compiled.asm(stage).as_ref(), text, "{name}, {}", stage.name());
        }
        assert_eq!(compiled.metadata.target, target);
        if let MachineCode::Gpu(code) = &*compiled.code {
            assert_eq!((code.threads, code.shared_bytes), (32 * num_warps, 0));
            assert!(code.ptx.contains(&format!(".target {target}\n")), "{}", code.ptx);
        }
    }
}

#[test]
fn the_hash_is_the_same_for_the_same_and_tells_options_apart() {
    let hash = |name: &str, options: Options, codegen: CodegenOptions| {
        let target = Target::parse(name).expect("it is a target");
        compiled(target, options, codegen, &mut |_, _| {}).hash()
    };
    let (plain, default) = (Options::default(), CodegenOptions::default());
    let hashes = [
        hash("sm_90", plain, default),
        hash("sm_80", plain, default),
        hash("sm_90", Options { debug: true, ..plain }, default),
        hash("sm_90", plain, CodegenOptions { num_warps: 8, ..default }),
        hash("sm_90", plain, CodegenOptions { num_stages: 2, ..default }),
        hash("sm_90", plain, CodegenOptions { num_ctas: 2, ..default }),
        hash("sm_90", plain, CodegenOptions { max_registers: Some(64), ..default }),
        hash("sm_90", plain, CodegenOptions { contraction: false, ..default }),
    ];
    assert_eq!(hashes[0], hash("sm_90", plain, default));
    for (index, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..index].contains(hash), "number {index} of {hashes:#?}");
    }
}
