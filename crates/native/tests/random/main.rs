//! Compares the interpreter and machine code on random functions.
//!
//! `TILEWRIGHT_SEEDS=0..50000` replaces the default seeds. A failing function is shrunk. Machine
//! code runs in its own process, so a fault of the processor is a failure of the test.
#![cfg(unix)]

mod arena;
mod callees;
#[path = "../common/disassembler.rs"]
mod disassembler;
mod engine;
mod generate;
mod random;
mod shrink;

use std::fmt::Write;
use std::ops::Range;

use tilewright_native::ir::{Binary, Function, Op};
use tilewright_native::{Isa, Target, compile, verify};

use arena::{Arena, Outcome};
use disassembler::check_instructions;
use engine::{Engine, INTERPRETER, engines};
use generate::{ARENA, Kind, Program, REGION, generate};
use shrink::{shrink, text};

const SEEDS: Range<u64> = 0..250;

/// The number of failing functions that a test run shows.
const SHOWN: usize = 10;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("TILEWRIGHT_SEEDS") else { return SEEDS };
    let (start, end) = text.split_once("..").expect("TILEWRIGHT_SEEDS is two numbers, `7..9`");
    let [start, end] = [start, end].map(|number| number.parse().expect("TILEWRIGHT_SEEDS has numbers"));
    start..end
}

#[test]
fn engines_agree() {
    let mut arena = Arena::new().expect("the system maps memory");
    let mut failures = Vec::new();
    let widths: Vec<usize> = [4, 8, 16].into_iter().filter(|&lanes| !engines(lanes).is_empty()).collect();
    if widths.is_empty() {
        println!("skipped: this processor runs no machine code");
        return;
    }
    for seed in seeds() {
        let lanes = widths[seed as usize % widths.len()];
        let program = generate(seed, lanes);
        if let Err(error) = verify(&program.function) {
            panic!("seed {seed}: {error}\n{}", program.function);
        }
        failures.extend(failure_of(seed, &program, &engines(lanes), &mut arena));
        if failures.len() == SHOWN {
            break;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The number of functions whose code a decoder checks, for each instruction set.
const DECODED: u64 = 100;

#[test]
fn decoders_read_the_code_of_all_instruction_sets() {
    for isa in Isa::ALL {
        let target = Target::new(isa);
        for seed in 0..DECODED {
            let function = generate(seed, target.lanes()).function;
            let code = compile(&function, &target).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            check_instructions(isa, code.instructions());
        }
    }
}

/// An engine with an error, which the comparison must find and shrink.
const FAULTY: Engine = Engine {
    name: "faulty",
    prepare: |function| {
        let mut function = function.clone();
        for inst in function.blocks.iter_mut().flat_map(|block| &mut block.insts) {
            if inst.op == Op::Binary(Binary::MulHighSigned) {
                inst.op = Op::Binary(Binary::MulHighUnsigned);
            }
        }
        (INTERPRETER.prepare)(&function)
    },
};

#[test]
fn a_fault_is_found_and_shrunk() {
    let mut arena = Arena::new().expect("the system maps memory");
    let failure = (0..200).find_map(|seed| failure_of(seed, &generate(seed, 8), &[FAULTY], &mut arena));
    let failure = failure.expect("a function shows the fault");
    assert!(failure.contains("mul_high_signed"), "{failure}");
    let instructions = failure.lines().filter(|line| line.starts_with("    ")).count();
    assert!(instructions <= 20, "{failure}");
}

/// Returns the description of a failure, if there is one.
fn failure_of(seed: u64, program: &Program, engines: &[Engine], arena: &mut Arena) -> Option<String> {
    arena.write(&program.arena);
    let run = (INTERPRETER.prepare)(&program.function).expect("the interpreter needs no preparation");
    let expected = match run(arena.address()) {
        Ok(value) => Execution { outcome: Outcome::Done(value), memory: arena.read() },
        Err(error) => panic!("seed {seed}: {error}\n{}", program.function),
    };
    let failing = engines.iter().find(|engine| {
        expected.difference(&execute(engine, &program.function, program, arena), program).is_some()
    })?;
    let mut differs = |function: &Function| {
        verify(function).ok()?;
        let expected = execute(&INTERPRETER, function, program, arena);
        let Outcome::Done(_) = expected.outcome else { return None };
        expected.difference(&execute(failing, function, program, arena), program)
    };
    let small = shrink(&program.function, &mut |function| differs(function).is_some());
    let difference = differs(&small).unwrap_or_default();
    Some(format!("seed {seed}, {}: {difference}{:?}\n{}", failing.name, program.layout, text(&small)))
}

struct Execution {
    outcome: Outcome,
    memory: Vec<u8>,
}

fn execute(engine: &Engine, function: &Function, program: &Program, arena: &mut Arena) -> Execution {
    arena.write(&program.arena);
    let outcome = match (engine.prepare)(function) {
        Ok(run) => arena.isolate(&*run),
        Err(error) => Outcome::Failed(error),
    };
    Execution { outcome, memory: arena.read() }
}

impl Execution {
    /// Describes the difference from another execution. Any two NaN are equal.
    fn difference(&self, other: &Self, program: &Program) -> Option<String> {
        if self.outcome != other.outcome {
            return Some(format!("the result is {:?}, not {:?}\n", other.outcome, self.outcome));
        }
        let mut text = String::new();
        for (index, &kind) in program.layout.iter().enumerate() {
            let step = match kind {
                Kind::Integers => 1,
                Kind::Single => 4,
                Kind::Double => 8,
            };
            for offset in (index * REGION..(index + 1) * REGION).step_by(step) {
                let [expected, actual] =
                    [self, other].map(|execution| element(&execution.memory, offset, kind));
                if expected != actual && !(is_nan(expected, kind) && is_nan(actual, kind)) {
                    writeln!(text, "memory at {offset}: {actual:#x}, not {expected:#x}")
                        .expect("a string grows");
                }
                if text.len() > 300 {
                    return Some(text);
                }
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

/// Returns the bits of an element of the arena.
fn element(memory: &[u8], offset: usize, kind: Kind) -> u64 {
    assert_eq!(memory.len(), ARENA);
    match kind {
        Kind::Integers => memory[offset].into(),
        Kind::Single => {
            memory[offset..offset + 4].iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
        }
        Kind::Double => {
            memory[offset..offset + 8].iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
        }
    }
}

fn is_nan(bits: u64, kind: Kind) -> bool {
    match kind {
        Kind::Integers => false,
        Kind::Single => f32::from_bits(bits as u32).is_nan(),
        Kind::Double => f64::from_bits(bits).is_nan(),
    }
}
