//! Lists machine code as text, with the origin of each instruction.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, FastFormatter, Instruction, OpKind, SymbolResolver, SymbolResult};

use crate::{Code, Isa, Target};

const WORD: usize = 4;

/// An instruction of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedInstruction {
    /// The offset of the instruction in the code.
    pub offset: usize,
    /// The label of the instruction, such as `L1`, if other instructions jump to it.
    pub label: Option<String>,
    /// The text of the instruction. A jump names its target, and an access to a constant has the
    /// offset of the constant in the code.
    pub text: String,
    /// The [origin](crate::Builder::set_origin) of the instruction, or 0 if the origin is unknown.
    pub origin: u32,
}

/// Lists the instructions of code. They have origins if
/// [`compile_with_origins`](crate::compile_with_origins) created the code.
pub fn listing(code: &Code, target: &Target) -> Vec<ListedInstruction> {
    let mut listed = match target.isa() {
        Isa::Avx2 | Isa::Avx512 => list_x86(code.instructions()),
        Isa::Neon => list_aarch64(code.instructions()),
    };
    for instruction in &mut listed {
        let after = code.origins.partition_point(|&(offset, _)| offset <= instruction.offset);
        instruction.origin = after.checked_sub(1).map_or(0, |last| code.origins[last].1);
    }
    listed
}

/// The labels of jump targets, by offset.
#[derive(Clone, Default)]
struct Labels(BTreeMap<u64, String>);

impl Labels {
    fn new(targets: impl Iterator<Item = u64>) -> Self {
        let mut labels: BTreeMap<u64, String> = targets.map(|target| (target, String::new())).collect();
        for (index, label) in labels.values_mut().enumerate() {
            *label = format!("L{index}");
        }
        Self(labels)
    }

    fn get(&self, offset: usize) -> Option<String> {
        self.0.get(&(offset as u64)).cloned()
    }
}

impl SymbolResolver for Labels {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        address: u64,
        _address_size: u32,
    ) -> Option<SymbolResult<'_>> {
        // Only jumps have labels, because a constant may equal an offset by chance.
        let label = self.0.get(&address).filter(|_| is_jump(instruction))?;
        Some(SymbolResult::with_str(address, label))
    }
}

fn is_jump(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::NearBranch64
}

fn list_x86(instructions: &[u8]) -> Vec<ListedInstruction> {
    let decoded: Vec<Instruction> =
        Decoder::with_ip(64, instructions, 0, DecoderOptions::NONE).into_iter().collect();
    let jumps = decoded.iter().filter(|instruction| is_jump(instruction));
    let labels = Labels::new(jumps.map(Instruction::near_branch_target));
    let mut formatter = FastFormatter::try_with_options(Some(Box::new(labels.clone())))
        .expect("the formatter takes a resolver of symbols");
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_use_hex_prefix(true);
    formatter.options_mut().set_uppercase_hex(false);
    let list = |instruction: &Instruction| {
        let mut text = String::new();
        formatter.format(instruction, &mut text);
        let offset = instruction.ip() as usize;
        ListedInstruction { offset, label: labels.get(offset), text, origin: 0 }
    };
    decoded.iter().map(list).collect()
}

/// Lists instructions of AArch64. Only builds for AArch64 and tests have the decoder; others list
/// words.
fn list_aarch64(instructions: &[u8]) -> Vec<ListedInstruction> {
    let words = instructions.chunks_exact(WORD).map(|word| word.try_into().expect("a word has 4 bytes"));
    let texts: Vec<String> = words.map(aarch64_text).collect();
    // The decoder prints distances as `$+0x10`.
    let distances: Vec<Option<i64>> = texts.iter().map(|text| distance(text)).collect();
    let target = |index: usize, distance: i64| ((WORD * index) as i64 + distance) as u64;
    let is_jump = |text: &str| text.starts_with(['b', 'c', 't']);
    let jumps = (0..texts.len()).filter(|&index| is_jump(&texts[index]));
    let labels = Labels::new(jumps.filter_map(|index| Some(target(index, distances[index]?))));
    let list = |(index, text): (usize, String)| {
        let text = match distances[index] {
            None => text,
            Some(distance) => {
                let place = target(index, distance) as usize;
                let name = labels.get(place).filter(|_| is_jump(&text));
                let before = text.split('$').next().unwrap_or("");
                format!("{before}{}", name.unwrap_or_else(|| format!("{place:#x}")))
            }
        };
        let offset = WORD * index;
        ListedInstruction { offset, label: labels.get(offset), text, origin: 0 }
    };
    texts.into_iter().enumerate().map(list).collect()
}

fn distance(text: &str) -> Option<i64> {
    let (_, number) = text.rsplit_once('$')?;
    let (sign, digits) = number.split_at_checked(1)?;
    let digits = digits.strip_prefix("0x")?;
    let size = i64::from_str_radix(digits, 16).ok()?;
    Some(if sign == "-" { -size } else { size })
}

#[cfg(any(test, target_arch = "aarch64"))]
fn aarch64_text(word: [u8; WORD]) -> String {
    use yaxpeax_arch::{Decoder, U8Reader};
    use yaxpeax_arm::armv8::a64::InstDecoder;

    let decoded = InstDecoder::default().decode(&mut U8Reader::new(&word));
    decoded.map_or_else(|_| word_text(word), |instruction| instruction.to_string())
}

#[cfg(not(any(test, target_arch = "aarch64")))]
fn aarch64_text(word: [u8; WORD]) -> String {
    word_text(word)
}

fn word_text(word: [u8; WORD]) -> String {
    format!(".word {:#010x}", u32::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Binary, IntBinary, Lane};
    use crate::{Builder, Place, compile, compile_with_origins};

    /// Returns code that adds 1.5 to an array. Loads, additions and stores have the origins 1, 2
    /// and 3.
    fn sum(target: Target) -> Code {
        let mut builder = Builder::new(target.lanes());
        let base = builder.argument_word(0);
        let (zero, end) = (builder.int(0), builder.argument_word(8));
        let repeated = builder.begin_loop([zero, end], &[]);
        let place = Place { base, index: Some((repeated.index, 4)), offset: 0 };
        builder.set_origin(1);
        let x = builder.load(Lane::F32, place, None);
        builder.set_origin(2);
        let half = builder.constant(Lane::F32, u64::from(1.5_f32.to_bits()));
        let y = builder.binary(Binary::Add, x, half);
        builder.set_origin(3);
        builder.store(place, y, None, false);
        builder.set_origin(0);
        builder.end_loop(repeated, target.lanes() as i64, &[]);
        let last = builder.int_binary(IntBinary::Add, end, zero);
        builder.ret(last);
        let function = builder.finish();
        let code = compile_with_origins(&function, &target).expect("it compiles");
        let plain = compile(&function, &target).expect("it compiles");
        assert_eq!(plain.bytes(), code.bytes(), "origins do not change the code");
        assert!(listing(&plain, &target).iter().all(|instruction| instruction.origin == 0));
        code
    }

    #[test]
    fn each_instruction_has_its_origin_and_a_jump_its_label() {
        for (isa, store, jump) in
            [(Isa::Avx2, "vmovups", "jl "), (Isa::Avx512, "vmovups", "jl "), (Isa::Neon, "str q", "b.lt ")]
        {
            let target = Target::new(isa);
            let code = sum(target);
            let listed = listing(&code, &target);
            let text: Vec<&str> = listed.iter().map(|instruction| &*instruction.text).collect();
            let is_add = |text: &str| text.starts_with("vaddps") || text.starts_with("fadd");
            let sums = listed.iter().filter(|instruction| is_add(&instruction.text));
            assert_eq!(sums.map(|sum| sum.origin).collect::<Vec<_>>(), [2], "{isa:?}: {text:#?}");
            let stores = listed.iter().filter(|instruction| instruction.origin == 3);
            assert!(stores.clone().any(|found| found.text.starts_with(store)), "{isa:?}: {text:#?}");
            let end = listed.iter().position(|instruction| instruction.text.starts_with(jump));
            let end = end.unwrap_or_else(|| panic!("{isa:?} has no {jump}: {text:#?}"));
            let label = Some(text[end][jump.len()..].to_owned());
            let begin = listed.iter().position(|instruction| instruction.label == label);
            assert!(begin.is_some_and(|begin| begin < end), "{isa:?}: {text:#?}");
            let last = listed.last().expect("it has code");
            assert!(last.text.starts_with("ret"), "{isa:?}: {text:#?}");
            assert_eq!(last.origin, 0);
            let bytes = listed.windows(2).map(|pair| pair[1].offset - pair[0].offset);
            assert!(bytes.sum::<usize>() < code.instructions().len());
        }
    }

    #[test]
    fn a_word_that_is_no_instruction_is_listed() {
        let code =
            Code { bytes: vec![0, 0, 0, 0], instruction_bytes: 4, spill_bytes: 0, origins: Vec::new() };
        let listed = listing(&code, &Target::new(Isa::Neon));
        assert_eq!(listed.len(), 1);
        assert!(listed[0].text.contains("0x00000000") || listed[0].text.contains("udf"), "{listed:?}");
    }
}
