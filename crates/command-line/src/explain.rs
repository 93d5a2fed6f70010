//! Implements `tilewright explain`.
//!
//! `tilewright explain TW0004` prints the page of a code. `tilewright explain k.py::kernel` writes
//! the page of a kernel.

use std::ffi::OsString;

use tilewright::Code;

use crate::compile::SIGNATURES;
use crate::explain_kernel::{self, Page};
use crate::output::{self, Failure};

/// Write a page with all stages of a kernel and the decisions of the passes; or explain the code of
/// a diagnostic
#[derive(clap::Args)]
#[command(after_help = SIGNATURES)]
pub struct Arguments {
    #[arg(help = "A file and a kernel, k.py::add_kernel; or a code, such as TW0004")]
    subject: Option<OsString>,
    #[command(flatten)]
    page: Page,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Some(subject) = &arguments.subject else { return output::print(&list(Code::ALL)) };
    if explain_kernel::is_kernel(subject) {
        return explain_kernel::run(subject, &arguments.page);
    }
    let name = &*subject.to_string_lossy();
    if let Some(code) = Code::parse(name) {
        return output::print(&without_test_markup(code.page()));
    }
    let similar = similar(name);
    let advice = if similar.is_empty() {
        format!("`tilewright explain` lists all of them; a kernel is written with its file, k.py::{name}")
    } else {
        format!("did you mean one of these?\n{}", list(&similar).trim_end())
    };
    Err(Failure::Usage(format!("there is no code '{name}'; {advice}")))
}

/// Returns a page without the blocks `inputs` and `expect` and the attributes of blocks, which only
/// tests read.
fn without_test_markup(page: &str) -> String {
    let mut text = String::new();
    // True in a code block that is dropped, false in another one, `None` outside.
    let mut block = None;
    let mut is_after_dropped = false;
    for line in page.lines() {
        let fence = line.strip_prefix("```");
        let language = fence.map_or("", |info| info.split(' ').next().unwrap_or_default());
        match (fence, block) {
            (Some(_), None) => block = Some(matches!(language, "inputs" | "expect")),
            (Some(_), Some(is_dropped)) => {
                block = None;
                is_after_dropped = is_dropped;
                if is_dropped {
                    continue;
                }
            }
            (None, _) => {}
        }
        if block == Some(true) || (is_after_dropped && line.is_empty()) {
            continue;
        }
        is_after_dropped = false;
        text += if fence.is_some() { "```" } else { line };
        text += language;
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn list(codes: &[Code]) -> String {
    let lines: Vec<String> = codes.iter().map(|code| format!("{}  {}", code.name(), code.title())).collect();
    lines.join("\n") + "\n"
}

/// Returns the codes that are similar to `name`: the code with its digits (`4`, `W0004`), and the
/// codes whose title contains a `name` of at least three bytes.
fn similar(name: &str) -> Vec<Code> {
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    let number = digits.parse::<u32>().map(|number| format!("TW{number:04}"));
    let words = name.to_lowercase();
    let is_similar = |code: &Code| {
        number.as_ref().is_ok_and(|number| code.name() == number)
            || words.len() > 2 && code.title().to_lowercase().contains(&words)
    };
    Code::ALL.iter().copied().filter(is_similar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_by_number_and_by_word() {
        assert_eq!(similar("4"), [Code::IncompatibleShapes]);
        assert_eq!(similar("W0004"), [Code::IncompatibleShapes]);
        assert!(similar("grid").contains(&Code::InvalidGrid));
        assert!(similar("zzz").is_empty());
        assert!(list(Code::ALL).starts_with("TW0001  undefined name\n"));
    }

    #[test]
    fn pages_are_printed_without_the_markup_of_their_test() {
        let page = "# T\n\n```python kernel=k signature=*fp32\nx\n\ny\n```\n\n\
                    ```inputs\nn = 1\n\nm = 2\n```\n\n```text\nerror\n```\n\n\
                    ```python kernel=k\nz\n```\n\n```expect\nx = 1\n```\n";
        let shown = "# T\n\n```python\nx\n\ny\n```\n\n```text\nerror\n```\n\n```python\nz\n```\n";
        assert_eq!(without_test_markup(page), shown);
        for code in Code::ALL {
            let shown = without_test_markup(code.page());
            for markup in ["kernel=kernel", "```inputs", "```expect"] {
                assert!(!shown.contains(markup), "{}: {markup}", code.name());
            }
            assert!(shown.starts_with(&format!("# {}", code.name())));
        }
    }
}
