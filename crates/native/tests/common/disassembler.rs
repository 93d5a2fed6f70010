//! Decodes machine code with iced-x86 and yaxpeax-arm.

use std::fmt::Write;

use iced_x86::{Decoder, DecoderOptions, Encoder, Formatter, NasmFormatter, OpKind};
use tilewright_native::Isa;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

pub fn disassembly(isa: Isa, instructions: &[u8]) -> String {
    let mut text = String::new();
    match isa {
        Isa::Avx2 | Isa::Avx512 => {
            let mut formatter = NasmFormatter::new();
            for instruction in &mut Decoder::with_ip(64, instructions, 0, DecoderOptions::NONE) {
                let mut line = String::new();
                formatter.format(&instruction, &mut line);
                writeln!(text, "{:04x} {line}", instruction.ip()).expect("a string grows");
            }
        }
        Isa::Neon => {
            for (index, word) in instructions.chunks_exact(4).enumerate() {
                let line = match InstDecoder::default().decode(&mut U8Reader::new(word)) {
                    Ok(instruction) => instruction.to_string(),
                    Err(error) => error.to_string(),
                };
                writeln!(text, "{:04x} {line}", 4 * index).expect("a string grows");
            }
        }
    }
    text
}

/// Checks that a decoder accepts the instructions. On x86-64, they must also encode to the same
/// bytes, except jumps and no-ops.
pub fn check_instructions(isa: Isa, bytes: &[u8]) {
    match isa {
        Isa::Avx2 | Isa::Avx512 => check_x86(isa, bytes),
        Isa::Neon => {
            assert!(bytes.len().is_multiple_of(4), "instructions have 4 bytes");
            for (index, word) in bytes.chunks_exact(4).enumerate() {
                let decoded = InstDecoder::default().decode(&mut U8Reader::new(word));
                assert!(decoded.is_ok(), "offset {:x} of\n{}", 4 * index, disassembly(isa, bytes));
            }
        }
    }
}

fn check_x86(isa: Isa, bytes: &[u8]) {
    let mut encoder = Encoder::new(64);
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        assert!(!instruction.is_invalid(), "offset {:x} of\n{}", instruction.ip(), disassembly(isa, bytes));
        // The compiler may have chosen a longer jump.
        if instruction.op0_kind() == OpKind::NearBranch64 {
            continue;
        }
        encoder.encode(&instruction, instruction.ip()).expect("the instruction encodes");
        let (start, again) = (instruction.ip() as usize, encoder.take_buffer());
        let is_nop = instruction.code().mnemonic() == iced_x86::Mnemonic::Nop;
        assert!(is_nop || bytes[start..start + instruction.len()] == again, "offset {start:x}");
    }
}
