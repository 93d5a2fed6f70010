//! Runs the cases of `tests/ir/*.ir`: applies steps to a module and compares the text.
//!
//! The steps are the passes, `inline`, `optimize`, `short-loops` and `unswitch`. The steps `axis`
//! and `axis-no-overflow` print the results of the analysis under each line.

use std::fmt::Write;

use tilewright_base::entity::SecondaryMap;
use tilewright_ir::{Block, Dtype, Function, Module, Op, Value, parse, print};
use tilewright_opt::analysis::{self, Assumptions, AxisInfo};
use tilewright_opt::{
    Level, Options, PASSES, ShortLoops, Unswitching, optimize, unroll_short_loops, unswitch_loops,
};
use tilewright_testkit::run_text_cases;

#[test]
fn files() {
    run_text_cases("tests/ir", "ir", 8, &run);
}

fn run(steps: &[&str], input: &str) -> Result<String, String> {
    let mut module = parse(input).map_err(|error| error.to_string())?;
    let with_locations = input.contains("@file");
    for step in steps {
        match *step {
            "inline" => {
                optimize(
                    &mut module,
                    &Options { level: Level::Inline, ..Options::default() },
                    &mut |_, _| {},
                );
            }
            "optimize" => optimize(&mut module, &Options::default(), &mut |_, _| {}),
            "short-loops" => {
                let loops = ShortLoops { iterations: 4, ops: 30, allows: |op| !matches!(op, Op::Dot { .. }) };
                module = unroll_short_loops(&module, &loops).ok_or("there is no short loop")?;
            }
            "unswitch" => {
                let loops = Unswitching { ops: 20, allows: |op| !matches!(op, Op::Dot { .. }) };
                module = unswitch_loops(&module, &loops).ok_or("no loop has such a branch")?;
            }
            "axis" => return Ok(annotated(&module, Assumptions::default())),
            "axis-no-overflow" => return Ok(annotated(&module, Assumptions::ADDRESSES)),
            name => {
                let pass = PASSES.iter().find(|pass| pass.name == name).ok_or("unknown pass")?;
                for function in module.functions.values_mut() {
                    let Ok(_) = pass.run(function);
                }
            }
        }
        tilewright_ir::verify(&module).map_err(|error| format!("{error}\n{}", print(&module, false)))?;
    }
    let text = print(&module, with_locations);
    parse(&text).map_err(|error| format!("{error}\n{text}"))?;
    Ok(text)
}

/// Returns the text of the kernel with the facts under each line.
fn annotated(module: &Module, assumptions: Assumptions) -> String {
    let function = module.kernel();
    let infos = analysis::analyze_assuming(function, assumptions);
    let mut values = Vec::new();
    definitions(function, function.entry, &mut values);
    let mut values = values.into_iter();
    let mut text = String::new();
    for line in print(module, false).lines() {
        let _ = writeln!(text, "{line}");
        let indent = &line[..line.len() - line.trim_start().len()];
        for name in defined_names(line) {
            let value = values.next().expect("the text defines each value once");
            let ty = function.ty(value);
            if ty.dtype().is_none_or(Dtype::is_int) {
                let _ = writeln!(text, "{indent}  // {name}: {}", describe(value, function, &infos));
            }
        }
    }
    text
}

/// Collects the values in the order of the printer.
fn definitions(function: &Function, block: Block, values: &mut Vec<Value>) {
    values.extend(&function.blocks[block].parameters);
    for &inst in &function.blocks[block].insts {
        values.extend(&function.insts[inst].results);
        for &region in &function.insts[inst].regions {
            definitions(function, region, values);
        }
    }
}

fn defined_names(line: &str) -> Vec<String> {
    let mut names = Vec::new();
    if let Some((results, _)) = line.split_once(" = ").filter(|_| line.trim_start().starts_with('%')) {
        names.extend(results.split(", ").map(|name| name.trim().to_owned()));
    }
    if let Some((_, parameters)) = line.split_once('(').filter(|_| line.ends_with(") {")) {
        let words = parameters.split([' ', ',', ')', '(']).filter(|word| word.starts_with('%'));
        names.extend(words.filter_map(|word| word.strip_suffix(':')).map(str::to_owned));
    }
    names
}

fn describe(value: Value, function: &Function, infos: &SecondaryMap<Value, AxisInfo>) -> String {
    let (info, ty) = (&infos[value], function.ty(value));
    if let Some(constant) = info.constant {
        return format!("constant {constant}");
    }
    let mut text = Vec::new();
    let mut list = |what: &str, items: Vec<u64>| {
        if items.iter().any(|&item| item != 1) {
            text.push(format!("{what} {items:?}"));
        }
    };
    list("contiguity", info.axes.iter().map(|axis| u64::from(axis.contiguity)).collect());
    list("divisibility", info.axes.iter().map(|axis| axis.divisibility).collect());
    list("constancy", info.axes.iter().map(|axis| u64::from(axis.constancy)).collect());
    if let Some((low, high)) = ty.dtype().and_then(Dtype::int_range)
        && (info.range.low, info.range.high) != (low, high)
    {
        text.push(format!("range {}..={}", info.range.low, info.range.high));
    }
    if text.is_empty() { "unknown".into() } else { text.join(", ") }
}

#[test]
fn the_dump_names_the_passes_that_change_something() {
    let text = "kernel func0 @k(%x: int32, %p: *int32) {
        %0 = constant {value = 0:int32} : int32
        %1 = add %x, %0 : int32
        store %p, %1 {cache = \"\", eviction = \"\"}
        return_values
    }";
    let mut module = parse(text).expect("it is well-formed");
    let mut names = Vec::new();
    optimize(&mut module, &Options::default(), &mut |name, _| names.push(name.to_owned()));
    assert_eq!(names, ["canonicalize", "dce"]);
    names.clear();
    optimize(&mut module, &Options::default(), &mut |name, _| names.push(name.to_owned()));
    assert!(names.is_empty(), "{names:?}");
}

/// Input: inlining would make 2^40 instructions. Expected: calls stay.
#[test]
fn calls_that_double_the_code_stay() {
    let mut text = "kernel func0 @k(%x: int32) {\n  %0 = call %x {callee = func40, results = (int32)} : int32\n  return_values\n}\n".to_owned();
    for i in 1..=40 {
        let body = match i {
            1 => "  %0 = add %x, %x : int32\n  return_values %0\n".to_owned(),
            _ => format!(
                "  %0 = call %x {{callee = func{0}, results = (int32)}} : int32\n  %1 = call %0 {{callee = func{0}, results = (int32)}} : int32\n  return_values %1\n",
                i - 1
            ),
        };
        let _ = write!(text, "func{i} @h{i}(%x: int32) {{\n{body}}}\n");
    }
    let mut module = parse(&text).expect("it is well-formed");
    optimize(&mut module, &Options { level: Level::Inline, ..Options::default() }, &mut |_, _| {});
    assert_eq!(module.functions.len(), 41);
    // A kernel that calls only `func16` is small enough.
    let text = text.replace("callee = func40", "callee = func16");
    let mut module = parse(&text).expect("it is well-formed");
    optimize(&mut module, &Options { level: Level::Inline, ..Options::default() }, &mut |_, _| {});
    assert_eq!(module.functions.len(), 1);
}
