//! Names the ops and the source lines of steps for users.

use tilewright_base::{SourceFile, Span};
use tilewright_ir::Op;

use super::{Action, Program, Step};

/// Returns the name of an op; for an elementwise op, the name of its function.
pub(crate) fn op_name(op: &Op) -> String {
    match op {
        Op::Elementwise { function } => function.name().into(),
        Op::AtomicRmw { kind, .. } => format!("atomic_{}", kind.name()),
        Op::ProgramId { axis } => format!("program_id({axis})"),
        // tidy: wildcard because the op table has the names of the other ops
        op => op.name().into(),
    }
}

/// Joins the distinct names of steps.
pub(crate) fn step_names<'a>(steps: impl IntoIterator<Item = &'a Step>) -> String {
    let mut names: Vec<String> = Vec::new();
    for step in steps {
        let name = match &step.action {
            Action::Op(op) => op_name(op),
            Action::Dot { .. } => "dot".into(),
            Action::Reduce { .. } => "reduce".into(),
            Action::Scan { .. } => "scan".into(),
            Action::Map { .. } => "map".into(),
            Action::Sort(_) => "sort".into(),
            Action::Assembly(_) => "inline_asm".into(),
            Action::Fused(_) => "fused loop".into(),
            Action::Nest(_) => "nest".into(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" + ")
}

impl Program {
    /// Returns the span of a site: that of the outermost call if the step was inlined.
    pub(crate) fn span_of_site(&self, site: u32) -> Option<Span> {
        self.sites[site as usize].last().copied()
    }

    /// Returns the file and the line at which a span begins.
    pub(crate) fn place(&self, span: Span) -> (&SourceFile, u32) {
        let file = self.sources.file(span.file);
        (file, file.line_column(span.start).0)
    }

    /// Returns the distinct files and lines of steps, in the order of the steps.
    pub(crate) fn lines_of<'a>(&self, steps: impl IntoIterator<Item = &'a Step>) -> Vec<(String, u32)> {
        let mut lines = Vec::new();
        for step in steps {
            let Some(span) = self.span_of_site(step.site) else { continue };
            let (file, line) = self.place(span);
            let line = (file.name.clone(), line);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }
}

/// Returns lines as ranges, file by file: `lines 3, 5-7 of k.py`.
pub(crate) fn line_ranges(lines: &[(String, u32)]) -> String {
    let mut files: Vec<&str> = Vec::new();
    for (file, _) in lines {
        if !files.contains(&&**file) {
            files.push(file);
        }
    }
    let of_file = |file: &&str| {
        let mut own: Vec<u32> =
            lines.iter().filter(|(other, _)| other == file).map(|&(_, line)| line).collect();
        own.sort_unstable();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for line in own {
            match ranges.last_mut() {
                Some((_, end)) if *end + 1 == line => *end = line,
                _ => ranges.push((line, line)),
            }
        }
        let text = |&(first, last): &(u32, u32)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        let noun = if ranges.iter().all(|(first, last)| first == last) && ranges.len() == 1 {
            "line"
        } else {
            "lines"
        };
        let ranges: Vec<String> = ranges.iter().map(text).collect();
        format!("{noun} {} of {file}", ranges.join(", "))
    };
    files.iter().map(of_file).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::line_ranges;

    #[test]
    fn consecutive_lines_are_ranges() {
        let lines = |numbers: &[u32]| -> Vec<(String, u32)> {
            numbers.iter().map(|&number| ("k.py".into(), number)).collect()
        };
        assert_eq!(line_ranges(&lines(&[7])), "line 7 of k.py");
        assert_eq!(line_ranges(&lines(&[7, 5, 6, 3])), "lines 3, 5-7 of k.py");
        let mut two = lines(&[2]);
        two.push(("other.py".into(), 1));
        assert_eq!(line_ranges(&two), "line 2 of k.py; line 1 of other.py");
        assert_eq!(line_ranges(&[]), "");
    }
}
