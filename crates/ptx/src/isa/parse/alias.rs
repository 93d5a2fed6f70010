//! Opcodes with two spellings. Example: the table has `barrier.sync.aligned`, and the usual text is
//! `bar.sync`.

/// Returns the spelling of an opcode that the table has.
pub(crate) fn canonical(opcode: &str) -> String {
    if let Some(rest) = opcode.strip_prefix("barrier.cta.") {
        return format!("barrier.{rest}");
    }
    let Some(rest) = opcode.strip_prefix("bar.") else { return opcode.to_owned() };
    let rest = rest.strip_prefix("cta.").unwrap_or(rest);
    let mut words = rest.split('.');
    let kind = words.next().unwrap_or_default();
    match kind {
        "sync" | "arrive" => format!("barrier.{kind}.aligned{}", &rest[kind.len()..]),
        "red" => {
            let operation = words.next().unwrap_or_default();
            let head = kind.len() + 1 + operation.len();
            format!("barrier.red.{operation}.aligned{}", rest.get(head..).unwrap_or_default())
        }
        _ => opcode.to_owned(),
    }
}

/// Returns the first version of a spelling; `None` if every version has it.
pub(crate) fn needed_version(opcode: &str) -> Option<(u32, u32)> {
    let is_newer_spelling = ["barrier.cta.", "bar.cta."].iter().any(|start| opcode.starts_with(start));
    is_newer_spelling.then_some((7, 8))
}

/// Shortens the opcode that begins at `start` to its usual spelling.
pub(crate) fn shorten(text: &mut String, start: usize) {
    let opcode = &text[start..];
    let is_block_barrier =
        ["barrier.sync.", "barrier.arrive.", "barrier.red."].iter().any(|start| opcode.starts_with(start));
    if is_block_barrier && opcode.contains(".aligned") {
        let short = opcode.replacen("barrier.", "bar.", 1).replacen(".aligned", "", 1);
        text.replace_range(start.., &short);
    }
}
