//! Runs the cases in files with input and expected output: `tests/ir/*.ir`, `tests/gpu/*.gpu`,
//! `tests/ptx/*.ptx`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::markdown::project_root;
use crate::snapshot::is_blessing;

/// A function that applies the steps of a case to its input, and returns the output. An error means
/// that the case itself is malformed.
type Run<'a> = &'a dyn Fn(&[&str], &str) -> Result<String, String>;

/// A case: prose, steps, input and expected output.
struct TextCase {
    prose: String,
    run: String,
    input: String,
    expected: String,
}

/// Runs the cases of every file with this extension in a directory of the project. If outputs
/// differ, panics with the lines that differ. Also panics if the directory has fewer than
/// `at_least` such files.
///
/// A file is a sequence of cases. The lines of a case are, in this order:
///
/// - Prose, in lines that start with `//`.
/// - A line `// RUN: dce, licm` with the steps.
/// - The input.
/// - A line `// ----`.
/// - The expected output.
#[track_caller]
pub fn run_text_cases(folder: &str, extension: &str, at_least: usize, run: Run<'_>) {
    let folder = project_root().join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    assert!(paths.len() >= at_least, "found {} files in {}", paths.len(), folder.display());
    let failures: Vec<String> = paths.iter().filter_map(|path| file(path, run).err()).collect();
    let message = "TILEWRIGHT_BLESS=1 accepts the new output";
    assert!(failures.is_empty(), "\n{}\n{message}", failures.join("\n"));
}

fn file(path: &Path, run: Run<'_>) -> Result<(), String> {
    let text = std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (mut blessed, mut failures) = (String::new(), String::new());
    for TextCase { prose, run: steps, input, expected } in &cases(&text) {
        let found = run(&split_steps(steps), input)
            .unwrap_or_else(|error| panic!("{name}: {prose}// RUN: {steps}: {error}"));
        if found != *expected {
            let _ = write!(failures, "{name}:\n{prose}// RUN: {steps}\n{}\n", difference(expected, &found));
        }
        let _ = write!(blessed, "{prose}// RUN: {steps}\n{input}// ----\n{found}\n");
    }
    if is_blessing() {
        let blessed = blessed.trim_end().to_owned() + "\n";
        std::fs::write(path, blessed)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        return Ok(());
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// Returns the lines that differ. Omits the common lines at the start and at the end.
fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let same = expected.iter().zip(&found).take_while(|(x, y)| x == y).count();
    let tail = expected.iter().rev().zip(found.iter().rev()).take_while(|(x, y)| x == y).count();
    let tail = tail.min(expected.len() - same).min(found.len() - same);
    let removed = expected[same..expected.len() - tail].iter().map(|line| format!("- {line}\n"));
    removed.chain(found[same..found.len() - tail].iter().map(|line| format!("+ {line}\n"))).collect()
}

/// Splits the list of steps at the commas that are not inside parentheses.
fn split_steps(steps: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let is_between = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    };
    steps.split(is_between).map(str::trim).collect()
}

fn cases(text: &str) -> Vec<TextCase> {
    let mut cases: Vec<TextCase> = Vec::new();
    let mut prose = String::new();
    let mut is_expected = true;
    for line in text.lines() {
        let line = line.to_owned() + "\n";
        if let Some(run) = line.strip_prefix("// RUN:") {
            let run = run.trim().to_owned();
            let prose = std::mem::take(&mut prose);
            cases.push(TextCase { prose, run, input: String::new(), expected: String::new() });
            is_expected = false;
        } else if line.trim_end() == "// ----" {
            is_expected = true;
        } else if is_expected && line.starts_with("//") {
            prose += &line;
        } else if let Some(case) = cases.last_mut()
            && !(is_expected && line.trim().is_empty())
        {
            let part = if is_expected { &mut case.expected } else { &mut case.input };
            *part += &line;
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_sequence_of_cases() {
        let found = cases("// One.\n// RUN: a\nx\n// y\n// ----\nz\n\n// Two.\n// RUN: b, c\n\nx\n// ----\n");
        let parts: Vec<[&str; 4]> =
            found.iter().map(|case| [&*case.prose, &*case.run, &*case.input, &*case.expected]).collect();
        assert_eq!(parts, [["// One.\n", "a", "x\n// y\n", "z\n"], ["// Two.\n", "b, c", "\nx\n", ""]]);
    }

    #[test]
    fn steps_may_have_arguments() {
        assert_eq!(
            split_steps("assign(sm_80, 4), conversions,barriers"),
            ["assign(sm_80, 4)", "conversions", "barriers"]
        );
    }

    #[test]
    fn a_difference_omits_the_common_lines() {
        assert_eq!(difference("a\nb\nc\n", "a\nd\ne\nc\n"), "- b\n+ d\n+ e\n");
    }
}
