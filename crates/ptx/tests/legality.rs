//! Compares `isa::check` with NVIDIA's assembler. The inputs are the corpus for many targets and
//! versions, and changed instructions. The check must agree, except on lines of `LEFT_OUT` and
//! lines that the parser refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use tilewright_fuzz::random::{Random, chosen_seeds};
use tilewright_ptx::isa::{
    CollectorUse, Comparison, LaneMulticast, MatrixLayout, RepetitionCount, Rounding, ScalarType,
    ScaleVectorSize, ScaledDotKind, Scope, Semantics, StateSpace, TensorDotKind, TensorMemoryCopyShape,
    TensorMemoryShape, check, parse,
};
use tilewright_testkit::{DIED, Ptxas};

/// Returns the instructions of the corpus, one a line, without guards and jumps.
fn instructions() -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut all = BTreeSet::new();
    for name in ["sm_75", "sm_80", "sm_90a", "sm_100a", "pairs.sm_100a", "sm_120a"] {
        let path = directory.join(format!("instructions.{name}.ptx"));
        let text = std::fs::read_to_string(path).expect("the file can be read");
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("//")).collect();
        let text = lines.join("\n");
        let body = text.split_once("\n{\n").expect("a body begins on a line of its own").1;
        for statement in body.trim_end().trim_end_matches('}').split(';') {
            let statement = statement.split_whitespace().collect::<Vec<_>>().join(" ");
            let statement = statement.rsplit_once(": ").map_or(statement.as_str(), |(_, after)| after);
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

/// Finds the lines that the assembler refuses, with their errors. The accepted lines are assembled
/// again until none is refused, because some errors hide others. Bisection locates an error without
/// a line.
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
        if left.is_empty() {
            return;
        }
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

/// Returns the error of a line, by the parser or by the check.
fn refused_by_us(head: &str, line: &str) -> Option<Refusal> {
    let text = format!("{head}{line};\nret;\n}}\n");
    match parse(&text) {
        Err(_) => Some(Refusal::Parser),
        Ok(module) => check(&module).err().map(|misuse| Refusal::Check(misuse.to_string())),
    }
}

enum Refusal {
    /// The parser refuses the line. The assembler may accept it, for example a repeated modifier,
    /// so this is no disagreement.
    Parser,
    Check(String),
}

/// Returns whether the assembler reports `ours` only for a list's first element. Such an error
/// names a predicate, a special register, a constant or an address.
fn is_in_list(line: &str, ours: &str) -> bool {
    line.contains('{')
        && ["of .pred", "special register", "a constant", "is an address"]
            .iter()
            .any(|part| ours.contains(part))
}

/// Returns the words that may replace a word of an opcode.
fn relatives(word: &str) -> Vec<&'static str> {
    let kinds = TensorDotKind::ALL.iter().map(|kind| kind.text());
    let families: [Vec<&str>; 14] = [
        ScalarType::ALL.iter().map(|ty| ty.text()).collect(),
        Rounding::ALL.iter().map(|rounding| rounding.text()).collect(),
        Scope::ALL.iter().map(|scope| scope.text()).collect(),
        Semantics::ALL.iter().map(|semantics| semantics.text()).chain([".weak", ".volatile"]).collect(),
        StateSpace::ALL.iter().map(|space| space.text()).collect(),
        Comparison::ALL.iter().map(|comparison| comparison.text()).collect(),
        MatrixLayout::ALL.iter().map(|layout| layout.text()).collect(),
        TensorMemoryShape::ALL.iter().map(|shape| shape.text()).collect(),
        RepetitionCount::ALL.iter().map(|count| count.text()).collect(),
        kinds.chain(ScaledDotKind::ALL.iter().map(|kind| kind.text())).collect(),
        ScaleVectorSize::ALL.iter().map(|size| size.text()).chain([".block_scale"]).collect(),
        CollectorUse::ALL.iter().map(|collector| collector.text()).chain([".ashift"]).collect(),
        TensorMemoryCopyShape::ALL.iter().map(|shape| shape.text()).collect(),
        LaneMulticast::ALL.iter().map(|lanes| lanes.text()).chain([".b8x16", ".b4x16_p64"]).collect(),
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

/// The operands that replace registers, besides registers of another type.
const CONSTANTS: [&str; 8] = ["1", "0f3F800000", "1.5", "%tid.x", "dynamic", "_", "counter", "-1"];

/// Returns the register types that may replace the register at an offset.
fn types_for(operands: &str, at: usize) -> &'static [&'static str] {
    let is_address = operands[..at].ends_with('[');
    if is_address { &["b32", "u32", "b64", "s64", "pred"] } else { &TYPES }
}

/// Replaces the register at an offset of the operands.
fn with_operand(operands: &str, at: usize, new: &str) -> String {
    let length = operands[at + 1..].find(|c: char| !c.is_alphanumeric());
    let end = length.map_or(operands.len(), |length| at + 1 + length);
    format!("{}{new}{}", &operands[..at], &operands[end..])
}

/// Changes an instruction at random.
fn changed(line: &str, random: &mut Random) -> String {
    let (opcode, operands) = line.split_once(' ').unwrap_or((line, ""));
    let mut words: Vec<String> = opcode.split('.').map(str::to_owned).collect();
    match random.below(8) {
        // Replaces a register by a register of another type, a constant or a special register.
        0..=3 if operands.contains('%') => {
            let starts: Vec<usize> = operands.match_indices('%').map(|(at, _)| at).collect();
            let at = random.pick(&starts);
            let new = if random.below(4) == 0 {
                random.pick(&CONSTANTS).to_owned()
            } else {
                format!("%x{}_{}", random.pick(types_for(operands, at)), random.below(4))
            };
            format!("{opcode} {}", with_operand(operands, at, &new))
        }
        // Leaves out, adds or replaces a word of the opcode.
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

/// The targets and versions for which every instruction of the corpus is checked.
const HEADS: [(&str, &str); 20] = [
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
    ("sm_100a", "8.6"),
    ("sm_100a", "8.8"),
    ("sm_120a", "8.8"),
    // Targets and versions of CUDA 13.
    ("sm_88", "9.0"),
    ("sm_100f", "9.0"),
    ("sm_103a", "9.0"),
    ("sm_107a", "9.4"),
    ("sm_110a", "9.0"),
];

/// The checked and refused lines, and those on which both disagree.
#[derive(Default)]
struct Tally {
    judged: usize,
    refused: usize,
    /// Lines that only the assembler refuses.
    missed: Vec<String>,
    /// Lines that only `isa::check` refuses.
    wrong: Vec<String>,
    /// Lines that crash the assembler, which then gives no verdict.
    unjudged: Vec<String>,
}

/// Lines, with the target and the PTX version for which they are checked.
type Texts = ((&'static str, &'static str), Vec<String>);

impl Tally {
    /// Checks lines, with a thread for each target and version. A thread mostly waits for the
    /// assembler.
    fn of(ptxas: &Ptxas, texts: &[Texts]) -> Self {
        let judge = |(head, lines): &Texts| {
            let mut tally = Self::default();
            tally.judge(ptxas, *head, lines);
            tally
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = texts.iter().map(|texts| scope.spawn(move || judge(texts))).collect();
            threads.into_iter().fold(Self::default(), |all, thread| {
                all.with(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        })
    }

    fn with(mut self, other: Self) -> Self {
        self.judged += other.judged;
        self.refused += other.refused;
        self.missed.extend(other.missed);
        self.wrong.extend(other.wrong);
        self.unjudged.extend(other.unjudged);
        self
    }

    fn judge(&mut self, ptxas: &Ptxas, (target, version): (&str, &str), lines: &[String]) {
        let head = head(target, version);
        let all: Vec<usize> = (0..lines.len()).collect();
        let mut refused = BTreeMap::new();
        // A function may use the tensor memory of one block or of a pair, not both.
        let is_of_pair = |line: &str| line.starts_with("tcgen05.") && line.contains("cta_group::2");
        let (pairs, single): (Vec<_>, Vec<_>) = all.into_iter().partition(|&index| is_of_pair(&lines[index]));
        for among in [single, pairs] {
            refused_by_assembler(ptxas, (&head, target), lines, &among, &mut refused);
        }
        self.judged += lines.len();
        self.refused += refused.len();
        for (index, line) in lines.iter().enumerate() {
            match (refused.get(&index), refused_by_us(&head, line)) {
                (Some(theirs), _) if theirs.contains(DIED) => {
                    self.unjudged.push(format!("{target} {version} {line} | {theirs}"));
                }
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
            "{} texts, {} refused by the assembler; of these accepted: {}\n{}\nrefused though the assembler accepts: {}\n{}\n\
            it dies of: {}\n{}",
            self.judged,
            self.refused,
            self.missed.len(),
            self.missed.join("\n"),
            self.wrong.len(),
            self.wrong.join("\n"),
            self.unjudged.len(),
            self.unjudged.join("\n")
        )
    }

    /// Returns whether `isa::check` agrees with the assembler on all lines. A crash of the
    /// assembler is no verdict.
    fn agrees(&self) -> bool {
        self.missed.is_empty() && self.wrong.is_empty() && self.unjudged.len() * 500 <= self.judged
    }
}

#[test]
fn instructions_exist_from_their_target_and_version_on() {
    let Some(ptxas) = Ptxas::find_or_skip("instructions_exist_from_their_target_and_version_on") else {
        return;
    };
    let lines = instructions();
    let tally = Tally::of(&ptxas, &HEADS.map(|head| (head, lines.clone())));
    assert!(tally.agrees(), "{}", tally.report());
}

/// A predicate of opcode and operands, and the reason to exclude such lines.
type LeftOut = (fn(&str, &str) -> bool, &'static str);

/// The lines that are not checked.
const LEFT_OUT: &[LeftOut] = &[
    (
        |opcode, _| opcode.starts_with("st") && opcode.contains(".param") || opcode.contains(".param::func"),
        "parameters of calls have rules of their own, which come from the call",
    ),
    (
        |_, operands| operands.contains("[%xpred, {"),
        "the assembler allocates all memory for a tensor map whose address is a predicate",
    ),
    (|_, operands| operands.contains("[-1]"), "the manual has no addresses that are negative numbers"),
    (
        |opcode, operands| opcode.starts_with("movmatrix") && operands.contains("%xpred"),
        "the manual has registers of .b32; the assembler takes predicates",
    ),
    (
        |opcode, operands| opcode.contains("mma.") && (operands.contains("_,") || operands.contains("_}")),
        "the manual drops no registers of fragments; the assembler does, on some targets",
    ),
    (
        |opcode, operands| opcode.contains("mma.") && opcode.contains(".s32") && operands.contains("%xf32"),
        "the manual has registers of .s32; the assembler compares no more than the width of some",
    ),
    (
        |opcode, _| opcode.starts_with("mapa") && [".s32", ".s64"].iter().any(|ty| opcode.contains(ty)),
        "the manual has .u32 and .u64",
    ),
    (
        |opcode, _| opcode.starts_with("fma") && opcode.contains("bf16") && !opcode.contains(".rn"),
        "the manual has .rn only; the assembler takes all roundings of bf16",
    ),
    (|opcode, _| opcode.contains("fma.rm.relu"), "the same"),
    (
        |opcode, _| {
            opcode.starts_with("cvt")
                && opcode.contains(".f32")
                && opcode.split('.').next_back() == Some("bf16")
        },
        "the manual rounds no result that is wider; the assembler takes a rounding",
    ),
    (
        |opcode, operands| opcode.starts_with("cvt.rna") && operands.contains("1.5"),
        "the manual has decimal constants; the assembler takes them for all roundings but .rna",
    ),
    (|opcode, _| opcode.starts_with("mad.cc."), "the manual has .lo and .hi before .cc"),
    (
        |opcode, _| opcode.starts_with("fma") && opcode.contains(".oob") && opcode.contains(".sat"),
        "the manual has no .sat with .oob",
    ),
    (
        |opcode, _| {
            opcode.starts_with("set.")
                && opcode.split('.').next_back() == Some("f16x2")
                && !opcode.contains(".f16x2.f16x2")
        },
        "the manual has results of .f16x2 only",
    ),
    (
        |opcode, operands| {
            let is_odd =
                |ty| operands.contains(&format!("{{%x{ty}")) || operands.contains(&format!(" %x{ty}"));
            opcode.contains(".v") && opcode.contains("f16x2") && ["u32", "s32", "f32"].into_iter().any(is_odd)
        },
        "the manual has registers of .b32; the assembler compares no more than the width of elements",
    ),
    (
        |opcode, operands| {
            let is_odd = |part: &&str| operands.contains(part);
            let is_narrow =
                [".e4m3", ".e5m2", ".e2m3", ".e3m2", ".e2m1"].iter().any(|ty| opcode.contains(ty));
            let odd = [
                "%xu32", "%xs32", "%xf32", "1,", "1}", "1.5", "0f3F", "%tid", "%xpred", "counter", "dynamic",
            ];
            let is_fragment = opcode.starts_with("wgmma") && operands.matches('{').count() > 1
                || opcode.starts_with("wmma.mma") && opcode.contains(".f16")
                || opcode.starts_with("mma") && is_narrow;
            is_fragment && odd.iter().any(is_odd)
        },
        "the manual has registers of .b32 in fragments; what else the assembler takes depends on the target",
    ),
    (
        |opcode, operands| {
            let is_access = opcode.starts_with("ld.") || opcode.starts_with("st.");
            is_access && opcode.contains(".v") && opcode.ends_with("32") && operands.contains("{%xf32")
        },
        "the manual has no registers of .f32 for integers; the assembler takes some in vectors",
    ),
    (|opcode, _| opcode.contains("::generic.acq_rel"), "the manual has .acquire and .release"),
    (
        |opcode, operands| {
            let has_scale = operands.rsplit_once(", ").is_some_and(|(_, last)| last.parse::<u32>().is_ok());
            opcode.starts_with("tcgen05.mma.") && opcode.contains(".kind::i8") && has_scale
        },
        "the manual scales no accumulators of integers",
    ),
    (
        |opcode, _| opcode.starts_with("st.async") && !opcode.contains(".shared::cluster"),
        "the manual has .shared::cluster only",
    ),
    (
        |opcode, operands| opcode.starts_with("st.async") && opcode.contains(".v") && !operands.contains('{'),
        "the manual has as many registers as the vector has elements",
    ),
];

fn is_left_out(line: &str) -> bool {
    let (opcode, operands) = line.split_once(' ').unwrap_or((line, ""));
    let operands =
        (0..4).fold(operands.to_owned(), |text, index| text.replace(&format!("%xpred_{index}"), "%xpred"));
    LEFT_OUT.iter().any(|(is_meant, _)| is_meant(opcode, &operands))
}

/// The targets and versions for which changed instructions are checked.
const CHANGED_HEADS: [(&str, &str); 4] =
    [("sm_75", "8.8"), ("sm_80", "7.8"), ("sm_90a", "8.6"), ("sm_100a", "8.8")];

/// Returns the instructions that are changed. `barrier.cta` is another name of `barrier`.
fn changed_lines() -> Vec<String> {
    instructions().into_iter().filter(|line| !line.starts_with("barrier.cta")).collect()
}

/// `TILEWRIGHT_SEEDS=0..50` selects other seeds of the changes.
#[test]
fn changed_instructions_are_refused_as_the_assembler_does() {
    let Some(ptxas) = Ptxas::find_or_skip("changed_instructions_are_refused_as_the_assembler_does") else {
        return;
    };
    let lines = changed_lines();
    let mut tally = Tally::default();
    for seed in chosen_seeds().unwrap_or(11..12) {
        let mut random = Random(seed);
        let texts = CHANGED_HEADS.map(|head| {
            let changes = lines.iter().flat_map(|line| [0; 3].map(|_| changed(line, &mut random)));
            (head, changes.filter(|line| !is_left_out(line)).collect())
        });
        tally = tally.with(Tally::of(&ptxas, &texts));
    }
    assert!(tally.agrees(), "{}", tally.report());
}

/// Returns dots of tensor memory with all combinations of modifiers and operands. Most of them are
/// wrong.
fn tensor_dots() -> Vec<String> {
    let kinds = TensorDotKind::ALL.iter().map(|kind| kind.text());
    let kinds: Vec<&str> = kinds.chain(ScaledDotKind::ALL.iter().map(|kind| kind.text())).collect();
    let sizes = ScaleVectorSize::ALL.iter().map(|size| format!(".block_scale{size}"));
    let scales: Vec<String> =
        sizes.chain([String::new(), ".block_scale".to_owned(), ".scale_vec::1X".to_owned()]).collect();
    let collectors = CollectorUse::ALL.iter().map(|collector| collector.text()).chain([""]);
    let uses: Vec<String> =
        collectors.flat_map(|collector| ["", ".ashift"].map(|shift| format!("{shift}{collector}"))).collect();
    let mut lines = Vec::new();
    for kind in kinds {
        for scale in &scales {
            for collector in &uses {
                for a in ["%rd3", "[%r3]"] {
                    let opcode = format!("tcgen05.mma.cta_group::1{kind}{scale}{collector}");
                    lines.push(format!("{opcode} [%r1], {a}, %rd4, %r2, %p1"));
                    lines.push(format!("{opcode} [%r1], {a}, %rd4, %r2, [%r4], [%r5], %p1"));
                }
            }
        }
        let four = "{%r4, %r5, %r6, %r7}";
        let eight = "{%r4, %r5, %r6, %r7, %r8, %r9, %r10, %r11}";
        for group in 1..=2 {
            for end in [
                format!("{four}, %p1"),
                format!("{eight}, %p1"),
                format!("{four}, !%p1, 0"),
                "%p1, 15".to_owned(),
                "1".to_owned(),
                String::from("%p1, 16"),
            ] {
                lines.push(format!("tcgen05.mma.cta_group::{group}{kind} [%r1], %rd3, %rd4, %r2, {end}"));
            }
        }
    }
    lines
}

/// Returns moves of tensor memory with all shapes, counts and multicasts, most of them wrong.
fn tensor_moves() -> Vec<String> {
    let mut lines = Vec::new();
    for shape in TensorMemoryShape::ALL {
        for (index, count) in RepetitionCount::ALL.iter().enumerate() {
            for registers in [1 << index, 2 << index, 4 << index] {
                let list: Vec<String> = (0..registers).map(|index| format!("%r{}", 2 + index % 30)).collect();
                let list = list.join(", ");
                for split in ["", ", 16"] {
                    let (load, store) = (
                        format!("tcgen05.ld.sync.aligned{shape}{count}"),
                        format!("tcgen05.st.sync.aligned{shape}{count}"),
                    );
                    lines.push(format!("{store}.b32 [%r1]{split}, {{{list}}}"));
                    // A register may not occur twice in the results of a load.
                    if registers <= 30 {
                        lines.push(format!("{load}.b32 {{{list}}}, [%r1]{split}"));
                        lines.push(format!("{load}.pack::16b.b32 {{{list}}}, [%r1]{split}"));
                        lines.push(format!("{store}.unpack::16b.b32 [%r1]{split}, {{{list}}}"));
                    }
                }
            }
        }
    }
    for shape in TensorMemoryCopyShape::ALL {
        for multicast in LaneMulticast::ALL.iter().map(|quarters| quarters.text()).chain([""]) {
            for format in ["", ".b8x16.b6x16_p32", ".b8x16.b4x16_p64", ".b8x16", ".b8"] {
                lines.push(format!("tcgen05.cp.cta_group::1{shape}{multicast}{format} [%r1], %rd3"));
            }
        }
    }
    lines
}

#[test]
fn instructions_on_tensor_memory_have_the_combinations_that_the_assembler_takes() {
    let Some(ptxas) =
        Ptxas::find_or_skip("instructions_on_tensor_memory_have_the_combinations_that_the_assembler_takes")
    else {
        return;
    };
    let mut lines: Vec<String> = tensor_dots().into_iter().chain(tensor_moves()).collect();
    lines.retain(|line| !is_left_out(line));
    let heads = [
        ("sm_100a", "8.8"),
        ("sm_100a", "8.6"),
        ("sm_100a", "8.7"),
        ("sm_100f", "9.0"),
        ("sm_103a", "9.0"),
        ("sm_107a", "9.4"),
        ("sm_110a", "9.0"),
        ("sm_120a", "9.0"),
    ];
    // Each target takes a part of the combinations.
    let texts = heads.map(|head| {
        let step = if head == ("sm_100a", "8.8") { 1 } else { 5 };
        (head, lines.iter().step_by(step).cloned().collect())
    });
    let tally = Tally::of(&ptxas, &texts);
    assert!(tally.refused > 0 && tally.refused < tally.judged);
    assert!(tally.agrees(), "{}", tally.report());
}

/// Returns all changes that [`changed`] may make, with one register of each type.
fn every_change(line: &str) -> BTreeSet<String> {
    let (opcode, operands) = line.split_once(' ').unwrap_or((line, ""));
    let mut all = BTreeSet::new();
    for (at, _) in operands.match_indices('%') {
        let registers = types_for(operands, at).iter().map(|ty| format!("%x{ty}_0"));
        for new in registers.chain(CONSTANTS.map(str::to_owned)) {
            all.insert(format!("{opcode} {}", with_operand(operands, at, &new)));
        }
    }
    let words: Vec<&str> = opcode.split('.').collect();
    let mut change_words = |range: std::ops::Range<usize>, new: &[&str]| {
        let words = [&words[..range.start], new, &words[range.end..]].concat();
        all.insert(format!("{} {operands}", words.join(".")));
    };
    for (at, word) in words.iter().enumerate().skip(1) {
        change_words(at..at + 1, &[]);
        for new in relatives(&format!(".{word}")) {
            change_words(at..at + 1, &[&new[1..]]);
        }
    }
    for at in 1..=words.len() {
        for new in relatives("") {
            change_words(at..at, &[&new[1..]]);
        }
    }
    all
}

/// The changes are divided into 100 parts; `TILEWRIGHT_SEEDS=0..5` checks only the first five.
#[test]
#[ignore = "takes many minutes: 600,000 texts"]
fn every_changed_instruction_is_refused_as_the_assembler_does() {
    let Some(ptxas) = Ptxas::find_or_skip("every_changed_instruction_is_refused_as_the_assembler_does")
    else {
        return;
    };
    let changes = changed_lines().into_iter().flat_map(|line| every_change(&line));
    let all: BTreeSet<String> = changes.filter(|line| !is_left_out(line)).collect();
    let all: Vec<String> = all.into_iter().collect();
    let mut tally = Tally::default();
    for part in chosen_seeds().unwrap_or(0..100) {
        let texts: Vec<String> = all.iter().skip(part as usize).step_by(100).cloned().collect();
        tally = tally.with(Tally::of(&ptxas, &CHANGED_HEADS.map(|head| (head, texts.clone()))));
    }
    assert!(tally.agrees(), "{}", tally.report());
}
