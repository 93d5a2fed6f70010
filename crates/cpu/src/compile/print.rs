//! Prints a program for `tilewright compile --emit cpu`, in the syntax of the IR.
//!
//! A slot is printed as `s3`, and as `s3!` at its last use.

use std::fmt;

use tilewright_ir::Op;

use crate::program::{Action, Block, Program, Slot, Sort, Strategy, Use};

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = self.parameters.iter().map(|parameter| {
            let element = self.ty(parameter.slot).element;
            format!("s{} {}: {element}", parameter.slot, parameter.name)
        });
        writeln!(f, "cpu program {}({})", self.name, parameters.collect::<Vec<_>>().join(", "))?;
        writeln!(f, "once:")?;
        print_block(self, f, &self.blocks[self.preamble as usize], 1)?;
        writeln!(f, "each program (about {} ns):", self.estimate)?;
        print_block(self, f, &self.blocks[self.body as usize], 1)
    }
}

fn print_block(program: &Program, f: &mut fmt::Formatter<'_>, block: &Block, depth: usize) -> fmt::Result {
    let indent = "  ".repeat(depth);
    for step in &block.steps {
        f.write_str(&indent)?;
        for (index, &slot) in step.results.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}s{slot}: {}{}", program.ty(slot).element, Shape(program, slot))?;
        }
        f.write_str(if step.results.is_empty() { "" } else { " = " })?;
        f.write_str(name(&step.action))?;
        print_uses(f, &step.operands)?;
        print_attributes(f, &step.action)?;
        if step.is_load() && program.is_in_place(step.result()) {
            f.write_str("  // in place")?;
        }
        if step.blocks.iter().any(|&block| program.blocks[block as usize].product.is_some()) {
            f.write_str("  // one product")?;
        }
        if !step.kills.is_empty() {
            write!(f, "  // frees {}", slots(&step.kills))?;
        }
        writeln!(f)?;
        for (number, &inner) in step.blocks.iter().enumerate() {
            let inner = &program.blocks[inner as usize];
            writeln!(f, "{indent}region {number} ({}):", slots(&inner.parameters))?;
            print_block(program, f, inner, depth + 1)?;
            write!(f, "{indent}  yield")?;
            print_uses(f, &inner.yields)?;
            writeln!(f)?;
        }
    }
    Ok(())
}

fn name(action: &Action) -> &'static str {
    match action {
        Action::Op(op) => op.name(),
        Action::Dot { .. } => "dot",
        Action::Reduce { .. } => "reduce",
        Action::Map { .. } => "map",
        Action::Sort(_) => "sort",
        Action::Assembly(_) => "inline_asm",
        Action::Scan { .. } => "scan",
        Action::Fused(_) => "fused",
        Action::Nest(_) => "nest",
    }
}

fn print_attributes(f: &mut fmt::Formatter<'_>, action: &Action) -> fmt::Result {
    let mut attributes = Vec::new();
    match action {
        // An elementwise op prints the name of its function as its own name.
        Action::Op(Op::Elementwise { .. }) => {}
        Action::Op(op) => op.print_attributes(|name, text| attributes.push(format!("{name} = {text}"))),
        Action::Dot { transposed: [a, b], .. } => {
            attributes.extend(a.then(|| String::from("trans_a")));
            attributes.extend(b.then(|| String::from("trans_b")));
        }
        Action::Reduce { axis, strategy, .. } | Action::Scan { axis, strategy, .. } => {
            attributes.push(format!("axis = {axis}"));
            if let Action::Scan { reverse: true, .. } = action {
                attributes.push(String::from("reverse"));
            }
            attributes.push(match strategy {
                Strategy::Kernel(combine) => format!("combine = {combine:?}"),
                Strategy::Tree => String::from("tree"),
                Strategy::Sequential => String::from("sequential"),
            });
            if let Action::Reduce { code: Some(_), .. } = action {
                attributes.push(String::from("machine code"));
            }
        }
        Action::Map { pack, strategy } => {
            attributes.push(format!("pack = {pack}"));
            attributes.extend(matches!(strategy, Strategy::Tree).then(|| String::from("whole")));
        }
        Action::Sort(Sort { axis, stages, descending }) => {
            attributes.push(format!("axis = {axis}, stages = {stages}, descending = {descending}"));
        }
        Action::Assembly(assembly) => attributes.push(format!("pack = {}", assembly.pack)),
        Action::Fused(group) => attributes.push(format!("steps = {}", group.members)),
        Action::Nest(nest) => attributes.push(format!("steps = {}", nest.members)),
    }
    if attributes.is_empty() { Ok(()) } else { write!(f, " {{{}}}", attributes.join(", ")) }
}

fn print_uses(f: &mut fmt::Formatter<'_>, uses: &[Use]) -> fmt::Result {
    for (index, operand) in uses.iter().enumerate() {
        let separator = if index == 0 { " " } else { ", " };
        let last = if operand.last { "!" } else { "" };
        write!(f, "{separator}s{}{last}", operand.slot)?;
    }
    Ok(())
}

fn slots(slots: &[Slot]) -> String {
    slots.iter().map(|slot| format!("s{slot}")).collect::<Vec<_>>().join(", ")
}

impl Program {
    /// Returns the type of a slot as text, such as `fp32[64, 32]`.
    pub(crate) fn type_text(&self, slot: Slot) -> String {
        format!("{}{}", self.ty(slot).element, Shape(self, slot))
    }
}

struct Shape<'a>(&'a Program, Slot);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ty = self.0.ty(self.1);
        if ty.is_scalar() { Ok(()) } else { write!(f, "{}", ty.extents.shape) }
    }
}
