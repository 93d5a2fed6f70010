//! Lists the machine code of a program for `tilewright compile --emit asm`.
//!
//! A program does not keep the text, so the listing compiles its functions again.

use std::fmt::{self, Write};

use tilewright_base::Span;
use tilewright_native::ListedInstruction;

use crate::program::describe::{line_ranges, step_names};
use crate::program::nest::NestCode;
use crate::program::{Action, Program, Step};

/// The column at which the source lines begin, to the right of the instructions.
const SOURCE_COLUMN: usize = 56;

/// The machine code of a program as text.
#[derive(Clone, Debug)]
pub struct MachineListing {
    /// The lines of the text.
    pub lines: Vec<MachineLine>,
}

/// A line of a listing.
#[derive(Clone, Debug)]
pub struct MachineLine {
    /// The text.
    pub text: String,
    /// The source position of the instruction. It is `None` for other lines, and for instructions
    /// that belong to no step, such as those of loop counters.
    pub span: Option<Span>,
}

impl fmt::Display for MachineListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{}", line.text))
    }
}

impl Program {
    /// Returns the machine code of the nests and trees, in the order of the program. Compiles the
    /// functions again.
    pub fn machine_listing(&self) -> MachineListing {
        let mut listing = MachineListing { lines: Vec::new() };
        let mut target = None;
        for block in &self.blocks {
            for (index, step) in block.steps.iter().enumerate() {
                match &step.action {
                    Action::Nest(nest) => {
                        let members = &block.steps[index + 1..=index + nest.members];
                        target = Some(nest.code.target());
                        listing.add(self, &format!("nest {}", nest.index), members, &nest.code);
                    }
                    Action::Reduce { code: Some(tree), .. } => {
                        target = Some(tree.code.target());
                        listing.add(self, "tree", std::slice::from_ref(step), &tree.code);
                    }
                    // tidy: wildcard because the executor runs the other steps
                    _ => {}
                }
            }
        }
        let title = match target {
            Some(target) => format!("machine code of {} for {}", self.name, target.isa()),
            None => format!(
                "{} has no machine code; `tilewright explain --why --target cpu` prints the reasons",
                self.name
            ),
        };
        listing.lines.insert(0, MachineLine { text: title, span: None });
        listing
    }

    /// Returns the file, the line and the text of a span's source, such as
    /// `k.py:3: x = tl.load(p)`.
    fn source_line(&self, span: Span) -> String {
        let (file, line) = self.place(span);
        let name = file.name.rsplit(['/', '\\']).next().unwrap_or_default();
        let text = file.text.lines().nth((line - file.first_line) as usize).unwrap_or_default();
        format!("{name}:{line}: {}", text.trim())
    }
}

impl MachineListing {
    fn add(&mut self, program: &Program, name: &str, steps: &[Step], code: &NestCode) {
        let own = |text: String| MachineLine { text, span: None };
        let lines = line_ranges(&program.lines_of(steps));
        self.lines.push(own(String::new()));
        self.lines.push(own(format!("{name}: {}", step_names(steps))));
        self.lines.push(own(format!("  {lines}")));
        let instructions = match code.list() {
            Ok(instructions) => instructions,
            Err(error) => {
                self.lines.push(own(format!("  no machine code: {error}")));
                return;
            }
        };
        // The source is printed after a label, and where it differs from that of the previous
        // instruction.
        let mut last = None;
        for ListedInstruction { offset, label, text, origin } in instructions {
            if let Some(label) = label {
                self.lines.push(own(format!("{label}:")));
                last = None;
            }
            let span = origin.checked_sub(1).and_then(|site| program.span_of_site(site));
            let source = span.map(|span| program.source_line(span));
            let mut text = format!("  {offset:04x}  {text}");
            if source.is_some() && source != last {
                let _ = write!(text, "{:1$}; ", "", SOURCE_COLUMN.saturating_sub(text.len()).max(1));
                text.push_str(source.as_deref().unwrap_or_default());
            }
            last = source;
            self.lines.push(MachineLine { text, span });
        }
    }
}
