//! Compares the features of targets with the table of signatures.

use tilewright_gpu_ir::GpuTarget;
use tilewright_gpu_ir::target::Feature;
use tilewright_ptx::isa::{check, parse};

/// A feature, and an instruction that exists on exactly the targets with this feature.
const CASES: &[(Feature, &str)] = &[
    (Feature::CpAsync, "cp.async.commit_group;"),
    (Feature::Redux, "redux.sync.add.s32 %r1, %r2, -1;"),
    (Feature::LdMatrix, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];"),
    (Feature::StMatrix, "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r1};"),
    (Feature::Bf16Arithmetic, "fma.rn.bf16 %rs1, %rs1, %rs1, %rs1;"),
    (Feature::Bf16Sums, "add.rn.bf16 %rs1, %rs1, %rs1;"),
    (Feature::Tma, "fence.proxy.async;"),
    (Feature::Wgmma, "wgmma.fence.sync.aligned;"),
    (Feature::Tcgen05, "tcgen05.wait::ld.sync.aligned;"),
    (Feature::Tcgen05Integers, "tcgen05.mma.cta_group::1.kind::i8 [%r1], %rd1, %rd2, %r2, %p1;"),
    (Feature::Bf16Atomics, "red.relaxed.gpu.global.add.noftz.bf16 [%rd1], %rs1;"),
    (Feature::VectorAtomics, "red.relaxed.gpu.global.add.v2.f32 [%rd1], {%f1, %f2};"),
    (Feature::WideAccesses, "ld.global.v4.b64 {%rd1, %rd2, %rd3, %rd4}, [%rd5];"),
];

#[test]
fn a_target_has_a_feature_if_it_has_its_instruction() {
    for target in GpuTarget::ALL {
        for (feature, instruction) in CASES {
            let text = format!(
                ".version 8.8\n.target {}\n.address_size 64\n.entry k() {{\n.reg .pred %p<2>;\n.reg .b16 %rs<3>;\n.reg .b32 %r<3>;\n\
                 .reg .f32 %f<3>;\n.reg .b64 %rd<6>;\n{instruction}\nret;\n}}\n",
                target.name
            );
            let module = parse(&text).unwrap_or_else(|error| panic!("{instruction}: {error}"));
            let found = check(&module).is_ok();
            assert_eq!(target.features.has(*feature), found, "{instruction} on {}", target.name);
        }
    }
}
