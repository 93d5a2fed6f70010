//! A plan as text: the IR, and behind each instruction what is decided about it.

use std::fmt::Write;

use tilewright_ir::{Block, Function, Inst, print};
use tilewright_layout::{Layout, Plan as Conversion};

use crate::plan::{Exchange, Plan, Product};

/// The text of a plan. Layouts are numbered and stand at the beginning.
pub fn dump(plan: &Plan) -> String {
    let kernel = plan.module.kernel();
    let mut insts = Vec::new();
    collect(kernel, kernel.entry, &mut insts);
    let mut writer = Writer { plan, layouts: Vec::new() };
    let mut body = String::new();
    let mut next = insts.into_iter();
    for (number, line) in print(&plan.module, false).lines().enumerate() {
        body.push_str(line);
        // The first line is the signature; a line that closes a region belongs to an instruction that has begun before.
        if number > 0
            && !line.trim_start().starts_with('}')
            && let Some(inst) = next.next()
        {
            let notes = writer.notes(inst);
            if !notes.is_empty() {
                let _ = write!(body, "  // {}", notes.join("; "));
            }
        }
        body.push('\n');
    }
    let mut text = format!(
        "// {}, {} warps, {} bytes of shared memory\n",
        plan.target.name, plan.num_warps, plan.shared_bytes
    );
    for (number, layout) in writer.layouts.iter().enumerate() {
        let _ = writeln!(text, "// L{number} = {layout}");
    }
    text + &body
}

/// The instructions in the order of the text.
fn collect(function: &Function, block: Block, into: &mut Vec<Inst>) {
    function.walk(block, &mut |inst| into.push(inst));
}

struct Writer<'a> {
    plan: &'a Plan,
    layouts: Vec<&'a Layout>,
}

impl<'a> Writer<'a> {
    fn layout(&mut self, layout: &'a Layout) -> String {
        let known = self.layouts.iter().position(|other| *other == layout);
        let number = known.unwrap_or_else(|| {
            self.layouts.push(layout);
            self.layouts.len() - 1
        });
        format!("L{number}")
    }

    fn notes(&mut self, inst: Inst) -> Vec<String> {
        let plan = self.plan;
        let data = &plan.module.kernel().insts[inst];
        let mut notes = Vec::new();
        if plan.waits_before[inst] {
            notes.push("wait before".to_owned());
        }
        let results = data.results.iter().filter_map(|result| plan.layouts[*result].as_ref());
        let results: Vec<String> = results.map(|layout| self.layout(layout)).collect();
        if !results.is_empty() {
            notes.push(results.join(", "));
        }
        let equal = data.results.first().map_or(0, |result| plan.equal_registers[*result]);
        if equal != 0 {
            notes.push(format!("registers {equal:#x} equal"));
        }
        if let Some(access) = &plan.accesses[inst] {
            let mut note = format!("{} x {}", access.vector.accesses(), access.vector.width());
            if access.copies != [0, 0] {
                let _ =
                    write!(note, ", copies in lanes {:#x}, warps {:#x}", access.copies[0], access.copies[1]);
            }
            notes.push(note);
        }
        if let Some(product) = &plan.products[inst] {
            notes.push(match product {
                Product::TensorCore { mma, warps: [m, n] } => {
                    format!("mma m{}n{}k{}, warps {m} x {n}", mma.m, mma.n, mma.k)
                }
                Product::Scalar => "fma".to_owned(),
            });
        }
        notes.extend(plan.exchanges[inst].as_ref().and_then(exchange));
        notes
    }
}

fn exchange(exchange: &Exchange) -> Option<String> {
    let (bytes, offset) = (exchange.shared_bytes(), exchange.offset());
    let place = format!("{bytes} bytes at {offset}");
    let by = |matrix: bool| if matrix { ", ldmatrix" } else { "" };
    Some(match exchange {
        Exchange::Relayout { plan, matrix, .. } => match plan {
            Conversion::Nothing => "nothing moves".to_owned(),
            Conversion::Registers(_) => "registers".to_owned(),
            Conversion::Shuffle(plan) => format!("{} shuffles", plan.rounds.len()),
            Conversion::Shared(plan) => {
                let widths = [&plan.store, &plan.load].map(|access| access.vector.width());
                format!("shared x {} -> x {}, {place}{}", widths[0], widths[1], by(matrix.is_some()))
            }
        },
        Exchange::Combine { bytes: 0, .. } => return None,
        Exchange::Combine { .. } => format!("shared {place}"),
        Exchange::Operand { memory, matrix, .. } => {
            format!("operand x {}, {place}{}", memory.store.vector.width(), by(matrix.is_some()))
        }
    })
}
