//! What an assembler refuses: each instruction of the corpus, changed in many ways by a fixed seed, is accepted or refused as
//! NVIDIA's assembler does it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use tilewright_fuzz::random::Random;
use tilewright_ptx::isa::{
    Comparison, MatrixLayout, Rounding, ScalarType, Scope, Semantics, StateSpace, check, parse,
};
use tilewright_testkit::Ptxas;

/// The instructions of the corpus, one a line, without guards and jumps.
fn instructions() -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut all = BTreeSet::new();
    for name in ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"] {
        let path = directory.join(format!("instructions.{name}.ptx"));
        let text = std::fs::read_to_string(path).expect("the file can be read");
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("//")).collect();
        let text = lines.join("\n");
        let body = text.split_once("\n{\n").expect("a body begins on a line of its own").1;
        for statement in body.trim_end().trim_end_matches('}').split(';') {
            let statement = statement.split_whitespace().collect::<Vec<_>>().join(" ");
            let statement = statement.rsplit_once(": ").map_or(statement.as_str(), |(_, behind)| behind);
            if !statement.is_empty() && !statement.starts_with(['.', '@']) {
                all.insert(statement.to_owned());
            }
        }
    }
    all.into_iter().collect()
}

const TYPES: [&str; 16] = [
    "pred", "b8", "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f16", "f32", "f64", "u8",
    "s8",
];

/// A module up to the body of its kernel, with registers of every type.
fn head(target: &str, version: &str) -> String {
    let wide = if version >= "8.3" { "b128" } else { "b64" };
    let mut text = format!(
        ".version {version}
.target {target}
.address_size 64
.extern .shared .align 128 .b8 dynamic[];
.shared .align 8 .b64 block[32];
.const .align 4 .f32 table[4] = {{0f3F800000, 1.5, -2.0, 0f7F800000}};
.global .align 4 .u32 counter = 0x10;
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 pointer, .param .u32 number,
    .param .align 8 .b8 aggregate[16])
{{
.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<40>; .reg .b64 %rd<16>; .reg .f32 %f<16>; .reg .f64 %fd<16>;
.reg .u32 plain; .reg .{wide} %q<2>; .reg .b8 %b<2>; .local .align 16 .b8 stack[64];
"
    );
    for ty in TYPES {
        writeln!(text, ".reg .{ty} %x{ty}_<4>;").expect("a string takes it");
    }
    text
}

/// What is wrong with lines, if anything: all are judged in one text, those that are left once more, until none is refused,
/// since some errors are looked for only where there are no others. An error that names no line is looked for by halves.
fn refused_by_assembler(
    ptxas: &Ptxas,
    (head, target): (&str, &str),
    lines: &[String],
    among: &[usize],
    refused: &mut BTreeMap<usize, String>,
) {
    let first = head.lines().count() + 1;
    loop {
        let left: Vec<usize> = among.iter().copied().filter(|index| !refused.contains_key(index)).collect();
        let body = left.iter().map(|&index| lines[index].as_str()).collect::<Vec<_>>().join(";\n") + ";";
        let text = format!("{head}{body}\nret;\n}}\n");
        let Err(messages) = ptxas.assemble_with(&text, target, &["-O0"]) else { return };
        let before = refused.len();
        for message in messages.lines() {
            let blamed = message.split_once("module.ptx, line ").and_then(|(_, rest)| rest.split_once(';'));
            let narrow = message.split_once("address on line '").and_then(|(_, rest)| rest.split_once('\''));
            let Some((number, what)) = blamed.or(narrow) else { continue };
            let number: usize = number.parse().expect("a line is a number");
            if what.contains("error") || what.contains("fatal") || narrow.is_some() {
                let index = left.get(number.wrapping_sub(first));
                let index = *index.unwrap_or_else(|| panic!("the head is refused: {message}\n{text}"));
                refused.entry(index).or_insert_with(|| what.trim().to_owned());
            }
        }
        if refused.len() > before {
            continue;
        }
        if let [only] = left[..] {
            refused.insert(only, messages);
            return;
        }
        for half in [&left[..left.len() / 2], &left[left.len() / 2..]] {
            refused_by_assembler(ptxas, (head, target), lines, half, refused);
        }
        return;
    }
}

/// Why a line is refused, if it is: by the parser or by the check.
fn refused_by_us(head: &str, line: &str) -> Option<Refusal> {
    let text = format!("{head}{line};\nret;\n}}\n");
    match parse(&text) {
        Err(_) => Some(Refusal::Parser),
        Ok(module) => check(&module).err().map(|misuse| Refusal::Check(misuse.to_string())),
    }
}

enum Refusal {
    /// The parser does not read all that the assembler reads, such as a modifier that stands twice.
    Parser,
    Check(String),
}

/// What the assembler lets pass in a list behind its first element: predicates, special registers, constants of another type.
fn is_in_list(line: &str, ours: &str) -> bool {
    line.contains('{')
        && ["of .pred", "special register", "a constant", "is an address"]
            .iter()
            .any(|part| ours.contains(part))
}

/// Words that a word of an opcode is replaced by.
fn relatives(word: &str) -> Vec<&'static str> {
    let families: [Vec<&str>; 7] = [
        ScalarType::ALL.iter().map(|ty| ty.text()).collect(),
        Rounding::ALL.iter().map(|rounding| rounding.text()).collect(),
        Scope::ALL.iter().map(|scope| scope.text()).collect(),
        Semantics::ALL.iter().map(|semantics| semantics.text()).chain([".weak", ".volatile"]).collect(),
        StateSpace::ALL.iter().map(|space| space.text()).collect(),
        Comparison::ALL.iter().map(|comparison| comparison.text()).collect(),
        MatrixLayout::ALL.iter().map(|layout| layout.text()).collect(),
    ];
    families.into_iter().find(|family| family.contains(&word)).unwrap_or_else(|| {
        vec![
            ".ftz",
            ".sat",
            ".relu",
            ".NaN",
            ".cc",
            ".approx",
            ".rn",
            ".trans",
            ".aligned",
            ".noftz",
            ".satfinite",
            ".gpu",
            ".add",
            ".min",
            ".and",
            ".v2",
            ".v4",
            ".x1",
            ".x2",
            ".x4",
            ".lo",
            ".hi",
            ".wide",
            ".nc",
            ".cg",
            ".cs",
            ".L2::cache_hint",
            ".L1::evict_last",
            ".L2::128B",
            ".L2::256B",
        ]
    })
}

/// An instruction with something else in it.
fn changed(line: &str, random: &mut Random) -> String {
    let (opcode, operands) = line.split_once(' ').unwrap_or((line, ""));
    let mut words: Vec<String> = opcode.split('.').map(str::to_owned).collect();
    match random.below(8) {
        // A register of another type, a constant or a special register.
        0..=3 if operands.contains('%') => {
            let starts: Vec<usize> = operands.match_indices('%').map(|(at, _)| at).collect();
            let at = random.pick(&starts);
            let is_address = operands[..at].ends_with('[');
            let types: &[&str] = if is_address { &["b32", "u32", "b64", "s64", "pred"] } else { &TYPES };
            let end = operands[at + 1..]
                .find(|c: char| !c.is_alphanumeric())
                .map_or(operands.len(), |length| at + 1 + length);
            let constants = ["1", "0f3F800000", "1.5", "%tid.x", "dynamic", "_", "counter", "-1"];
            let new = if random.below(4) == 0 {
                random.pick(&constants).to_owned()
            } else {
                format!("%x{}_{}", random.pick(types), random.below(4))
            };
            format!("{opcode} {}{new}{}", &operands[..at], &operands[end..])
        }
        // A word of the opcode left out, added or replaced.
        4 if words.len() > 1 => {
            words.remove(1 + random.below(words.len() - 1));
            format!("{} {operands}", words.join("."))
        }
        5 => {
            let new = random.pick(&relatives(""));
            words.insert(1 + random.below(words.len()), new[1..].to_owned());
            format!("{} {operands}", words.join("."))
        }
        _ if words.len() > 1 => {
            let at = 1 + random.below(words.len() - 1);
            let new = random.pick(&relatives(&format!(".{}", words[at])));
            new[1..].clone_into(&mut words[at]);
            format!("{} {operands}", words.join("."))
        }
        _ => line.to_owned(),
    }
}

/// Heads that instructions are judged under.
const HEADS: [(&str, &str); 14] = [
    ("sm_75", "6.4"),
    ("sm_75", "7.4"),
    ("sm_75", "7.7"),
    ("sm_75", "8.8"),
    ("sm_80", "7.0"),
    ("sm_80", "7.8"),
    ("sm_86", "8.8"),
    ("sm_89", "8.0"),
    ("sm_89", "8.4"),
    ("sm_90", "7.8"),
    ("sm_90", "8.8"),
    ("sm_90a", "8.6"),
    ("sm_100a", "8.8"),
    ("sm_120a", "8.8"),
];

/// How often both agree, and where they do not.
#[derive(Default)]
struct Tally {
    judged: usize,
    refused: usize,
    /// What the assembler refuses and we do not.
    missed: Vec<String>,
    /// What we refuse and the assembler does not.
    wrong: Vec<String>,
}

impl Tally {
    fn judge(&mut self, ptxas: &Ptxas, (target, version): (&str, &str), lines: &[String]) {
        let head = head(target, version);
        let all: Vec<usize> = (0..lines.len()).collect();
        let mut refused = BTreeMap::new();
        refused_by_assembler(ptxas, (&head, target), lines, &all, &mut refused);
        self.judged += lines.len();
        self.refused += refused.len();
        for (index, line) in lines.iter().enumerate() {
            match (refused.get(&index), refused_by_us(&head, line)) {
                (Some(theirs), None) => self.missed.push(format!("{target} {version} {line} | {theirs}")),
                (None, Some(Refusal::Check(ours))) if !is_in_list(line, &ours) => {
                    self.wrong.push(format!("{target} {version} {line} | {ours}"));
                }
                _ => {}
            }
        }
    }

    fn report(&self) -> String {
        format!(
            "{} texts, {} refused by the assembler; of these accepted: {}\n{}\nrefused though the assembler accepts: {}\n{}",
            self.judged,
            self.refused,
            self.missed.len(),
            self.missed.join("\n"),
            self.wrong.len(),
            self.wrong.join("\n")
        )
    }
}

#[test]
fn instructions_exist_from_their_target_and_version_on() {
    let Some(ptxas) = Ptxas::find_or_skip("instructions_exist_from_their_target_and_version_on") else {
        return;
    };
    let lines = instructions();
    let mut tally = Tally::default();
    for head in HEADS {
        tally.judge(&ptxas, head, &lines);
    }
    println!("{}", tally.report());
    assert!(tally.missed.is_empty() && tally.wrong.is_empty(), "{}", tally.report());
}

/// Texts that are left out: parameters of calls have rules of their own, which come from the call; the others the manual does not
/// have, though the assembler takes them.
fn is_left_out(line: &str) -> bool {
    ["st.param", ".param::func", "fma.rm.relu", "::generic.acq_rel", "[-1]"]
        .iter()
        .any(|part| line.contains(part))
}

#[test]
fn changed_instructions_are_refused_as_the_assembler_does() {
    let Some(ptxas) = Ptxas::find_or_skip("changed_instructions_are_refused_as_the_assembler_does") else {
        return;
    };
    // `barrier.cta` is another name of `barrier`, which is changed.
    let lines: Vec<String> =
        instructions().into_iter().filter(|line| !line.starts_with("barrier.cta")).collect();
    let mut random = Random(11);
    let mut tally = Tally::default();
    for head in [("sm_75", "8.8"), ("sm_80", "7.8"), ("sm_90a", "8.6"), ("sm_100a", "8.8")] {
        let changed: Vec<String> = lines
            .iter()
            .flat_map(|line| [0; 3].map(|_| changed(line, &mut random)))
            .filter(|line| !is_left_out(line))
            .collect();
        tally.judge(&ptxas, head, &changed);
    }
    println!("{}", tally.report());
    assert!(tally.missed.is_empty() && tally.wrong.is_empty(), "{}", tally.report());
}
