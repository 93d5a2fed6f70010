//! Tests the texts of `tests/corpus`. They have every instruction, calls, and kernels of the
//! official Triton (from `tests/triton_corpus.py`).

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tilewright_ptx::isa::*;
use tilewright_testkit::Ptxas;

fn corpus() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let entries = std::fs::read_dir(directory).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("the file can be read");
        (path.display().to_string(), text)
    };
    let mut texts: Vec<_> = paths.map(read).collect();
    texts.sort();
    texts
}

/// Returns every instruction of every text.
fn instructions() -> Vec<Instruction> {
    let mut all = Vec::new();
    for (name, text) in corpus() {
        let module = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for statement in module.functions.values().filter_map(|function| function.body.as_ref()).flatten() {
            if let StatementKind::Instruction { instruction, .. } = &statement.kind {
                all.push(instruction.clone());
            }
        }
    }
    all
}

#[test]
fn every_text_survives_and_becomes_the_same_machine_code() {
    let ptxas =
        Ptxas::find_or_skip("every_text_survives_and_becomes_the_same_machine_code: the assembler's part");
    let mut failures = Vec::new();
    for (name, text) in corpus() {
        if let Err(error) = common::round_trip(&text, ptxas.as_ref()) {
            failures.push(format!("{name}: {error}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn every_row_of_the_table_occurs() {
    let mut missing: BTreeSet<&str> = Instruction::TABLE.iter().map(|(name, _)| *name).collect();
    assert_eq!(missing.len(), Instruction::TABLE.len());
    for instruction in instructions() {
        missing.remove(instruction.name());
    }
    assert!(missing.is_empty(), "write examples into tests/corpus/instructions.*.ptx of: {missing:?}");
}

/// The corpus has each value of these modifiers. NVIDIA's assembler accepts the corpus.
#[test]
fn every_modifier_occurs() {
    let opcodes: Vec<String> = instructions().iter().map(Instruction::opcode).collect();
    let opcodes = opcodes.join("\n") + "\n";
    let occurs = |text: &str| {
        let is_end = |rest: &str| rest.starts_with(['.', '\n']);
        opcodes.match_indices(text).any(|(at, _)| is_end(&opcodes[at + text.len()..]))
    };
    let mut missing = Vec::new();
    macro_rules! look_for {
        ($($kind:ident)*) => {
            $(missing.extend($kind::ALL.iter().filter(|value| !occurs(value.text())).map(|value| format!("{value:?}")));)*
        };
    }
    look_for! {
        AtomicOperation BarrierReduction BitOperation BooleanOperation BoundMode Clamp
        Comparison Completion CopyCache CtaGroup DivisionPrecision FloatTest
        GridDependency Half L1Eviction L2Eviction L2Prefetch LdmatrixShape
        LoadCache LoadSemantics MatchMode MatrixCount MatrixFormat MatrixLayout MatrixOperand
        MembarLevel MultiplyMode PermuteMode PolicyPriority PrefetchLevel ProxyKind
        RegisterCountChange Rounding Scope Semantics ShiftDirection ShuffleMode
        StoreCache StoreSemantics SyncRestrict TensorDimension TensorMode TensormapField
        VectorWidth VoteMode WarpReduction ScalarType StateSpace ClusterDimension CollectorUse
        LaneMulticast RepetitionCount ScaleVectorSize ScaledDotKind TensorDotKind
        TensorMemoryCopyShape TensorMemoryShape
    }
    assert!(missing.is_empty(), "write examples into tests/corpus/instructions.*.ptx of: {missing:?}");
}
