//! Prints a module as text that [`parse`](crate::parse()) reads back.
//! ```text
//! kernel func0 @add_kernel(%x_ptr: *fp32 {divisibility = 16}, %n: int32) {
//!   %pid = program_id {axis = 0} : int32
//!   %0 = arange {start = 0, end = 1024} : int32[1024]
//!   …
//!   return_values
//! }
//! ```
//! The word `kernel` marks the function that a launch calls, and `noinline` a function whose calls
//! the optimizer keeps. The words `scaled_dot(e4m3, e2m1)` state that a function computes a dot with
//! scales. An instruction is `results = op operands {attributes} [stage, order]
//! regions : types`. `[stage, order]` is its position in the schedule of a pipelined loop. A region
//! is `(parameters) { instructions }`.
//!
//! A value has the user's name, with a number (`%x.1`) if the name is taken. A parameter in a tuple
//! has a name such as `%xs.0` or `%args.x_ptr`. Source locations, such as `@file0:3..7` in bytes,
//! end a line, innermost call first. The names of the files end the text.

use std::fmt::{self, Write};

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_base::entity::SecondaryMap;

use crate::dialect::{Dialect, Operation};
use crate::function::{Block, FuncId, Function, Inst, Module, Stage, Value};
use crate::scaled::ScaledFormats;

/// Returns the text of a module. With `locations`, the text has the source location of each
/// instruction.
pub fn print<D: Dialect>(module: &Module<D>, locations: bool) -> String {
    let mut out = D::print_header(&module.header);
    for (id, function) in &module.functions {
        let mut printer = Printer {
            function,
            out: &mut out,
            names: SecondaryMap::new(),
            used: FxHashMap::default(),
            taken: FxHashSet::default(),
            locations,
        };
        printer.function(id, id == module.entry);
    }
    if locations {
        for (id, file) in module.sources.files() {
            let _ = writeln!(out, "{id} = {:?} line {}", file.name, file.first_line);
        }
    }
    out
}

struct Printer<'a, D: Dialect> {
    function: &'a Function<D>,
    out: &'a mut String,
    names: SecondaryMap<Value, String>,
    used: FxHashMap<&'a str, u32>,
    taken: FxHashSet<String>,
    locations: bool,
}

impl<D: Dialect> Printer<'_, D> {
    fn function(&mut self, id: FuncId, is_entry: bool) {
        let function = self.function;
        let entry = if is_entry { "kernel " } else { "" };
        write!(self, "{entry}{id} @{}(", function.name);
        for (index, &value) in function.blocks[function.entry].parameters.iter().enumerate() {
            let parameter = &function.parameters[index];
            self.write(if index == 0 { "" } else { ", " });
            self.define(value);
            write!(self, ": {}", function.ty(value));
            if parameter.divisibility != 1 {
                write!(self, " {{divisibility = {}}}", parameter.divisibility);
            }
        }
        self.write(if function.noinline { ") noinline" } else { ")" });
        if let Some(ScaledFormats([a, b])) = function.scaled_dot {
            write!(self, " scaled_dot({}, {})", a.name(), b.name());
        }
        self.write(" {\n");
        self.block(function.entry, 1);
        self.write("}\n");
    }

    fn block(&mut self, block: Block, depth: usize) {
        for &inst in &self.function.blocks[block].insts {
            self.inst(inst, depth);
        }
    }

    fn inst(&mut self, inst: Inst, depth: usize) {
        let data = &self.function.insts[inst];
        self.indent(depth);
        for (index, &result) in data.results.iter().enumerate() {
            self.write(if index == 0 { "" } else { ", " });
            self.define(result);
        }
        self.write(if data.results.is_empty() { "" } else { " = " });
        self.write(data.op.name());
        for (index, &operand) in data.operands.iter().enumerate() {
            self.write(if index == 0 { " " } else { ", " });
            self.reference(operand);
        }
        let attributes = data.op.attributes();
        for (index, (name, text)) in attributes.iter().enumerate() {
            self.write(if index == 0 { " {" } else { ", " });
            write!(self, "{name} = {text}");
        }
        self.write(if attributes.is_empty() { "" } else { "}" });
        if let Some(Stage { stage, order }) = self.function.schedule.get(&inst) {
            write!(self, " [{stage}, {order}]");
        }
        for &region in &data.regions {
            self.region(region, depth);
        }
        for (index, &result) in data.results.iter().enumerate() {
            self.write(if index == 0 { " : " } else { ", " });
            write!(self, "{}", self.function.ty(result));
        }
        if self.locations {
            for span in self.function.call_chain(inst) {
                write!(self, " @{}:{}..{}", span.file, span.start, span.end);
            }
        }
        self.write("\n");
    }

    fn region(&mut self, region: Block, depth: usize) {
        self.write(" (");
        for (index, &parameter) in self.function.blocks[region].parameters.iter().enumerate() {
            self.write(if index == 0 { "" } else { ", " });
            self.define(parameter);
            write!(self, ": {}", self.function.ty(parameter));
        }
        self.write(") {\n");
        self.block(region, depth + 1);
        self.indent(depth);
        self.write("}");
    }

    /// Chooses the name of a value at its definition, and writes it.
    fn define(&mut self, value: Value) {
        let function = self.function;
        let base = function.values[value].name.as_deref().unwrap_or("");
        let count = self.used.entry(base).or_insert(0);
        let mut number = *count;
        *count += 1;
        let name = loop {
            let name = match (base, number) {
                ("", number) => format!("%{number}"),
                (base, 0) => format!("%{base}"),
                (base, number) => format!("%{base}.{number}"),
            };
            // A part of a tuple may already have this name, such as `%xs.1`.
            if self.taken.insert(name.clone()) {
                break name;
            }
            number += 1;
        };
        self.write(&name);
        self.names[value] = name;
    }

    fn reference(&mut self, value: Value) {
        let name = &self.names[value];
        if name.is_empty() {
            write!(self, "%<undefined {value}>");
        } else {
            self.out.push_str(name);
        }
    }

    fn indent(&mut self, depth: usize) {
        self.out.extend(std::iter::repeat_n("  ", depth));
    }

    fn write(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Appends formatted text, for `write!`.
    fn write_fmt(&mut self, text: fmt::Arguments<'_>) {
        self.out.write_fmt(text).expect("writing to a string cannot fail");
    }
}
