//! Prints a module. Equal modules have equal text. Operands are aligned, labels are at the margin,
//! and numbered registers are declared by ranges.

use std::collections::BTreeSet;
use std::fmt::Write;

use rustc_hash::FxHashMap;

use super::instruction::{Call, Instruction};
use super::module::{
    Directives, Function, FunctionId, FunctionKind, Initializer, Inlined, Linkage, Location, Module,
    RegisterId, Statement, StatementKind, Variable, VariableId, Verbatim,
};
use super::operand::{
    Address, AddressBase, BranchTableId, BranchTarget, CallOperands, Callee, Immediate, Prototype, Source,
    Symbol,
};
use super::operand_form::OperandForm;
use super::parse::alias;
use super::types::ScalarType;

/// Spaces up to the column of operands, unless the opcode is longer.
const PADDING: &str = "                            ";

/// Returns the text of a module. `parse` reads it back to the same module, except for the order of
/// functions, comments, unused registers and lines. Inline assembly becomes instructions.
pub fn print(module: &Module) -> String {
    let mut out = String::new();
    let (major, minor) = module.version;
    let _ = writeln!(out, ".version {major}.{minor}");
    let _ = write!(out, ".target {}", module.target);
    for option in &module.target_options {
        let _ = write!(out, ", {option}");
    }
    let _ = writeln!(out, "\n.address_size {}", module.address_size);
    for pragma in &module.pragmas {
        let _ = writeln!(out, ".pragma \"{pragma}\";");
    }
    // Referenced functions are declared first, so the order of definitions is free.
    let named = named_functions(module);
    for function in named.iter().map(|&id| &module.functions[id]) {
        print_function(module, &Function { body: None, ..function.clone() }, &mut out);
    }
    for variable in module.globals.values() {
        out.push_str(linkage_text(variable.linkage));
        print_variable(module, variable, &mut out);
        out.push_str(";\n");
    }
    let others = module.functions.keys().filter(|id| !named.contains(id));
    for function in named.iter().copied().chain(others).map(|id| &module.functions[id]) {
        if function.body.is_some() {
            out.push('\n');
            print_function(module, function, &mut out);
        }
    }
    for (name, function) in &module.aliases {
        let _ = writeln!(out, ".alias {name}, {};", module.functions[*function].name);
    }
    for file in &module.files {
        let _ = write!(out, ".file {} \"{}\"", file.number, escaped_path(&file.path));
        if let Some((time, size)) = file.stamp {
            let _ = write!(out, ", {time}, {size}");
        }
        out.push('\n');
    }
    for section in &module.sections {
        let _ = writeln!(out, ".section {} {}", section.name, section.text);
    }
    out
}

/// Returns the functions without a body, and those that a call, `mov` or initializer names.
fn named_functions(module: &Module) -> BTreeSet<FunctionId> {
    let declared = module.functions.iter().filter(|(_, function)| function.body.is_none());
    let mut named: BTreeSet<FunctionId> = declared.map(|(id, _)| id).collect();
    for initializer in module.globals.values().flat_map(|variable| &variable.initializer) {
        if let Initializer::Address { symbol: Symbol::Function(id), .. } = initializer {
            named.insert(*id);
        }
    }
    let bodies = module.functions.values().filter_map(|function| function.body.as_ref());
    for statement in bodies.flatten() {
        let StatementKind::Instruction { instruction, .. } = &statement.kind else { continue };
        if let Instruction::Call(Call { call, .. }) = instruction
            && let Callee::Direct(id) = call.callee
        {
            named.insert(id);
        } else if let Instruction::Mov(mov) = instruction {
            let symbols = mov.a.0.iter().filter_map(|source| match source {
                Source::Symbol(Symbol::Function(id), _) => Some(*id),
                _ => None,
            });
            named.extend(symbols);
        }
    }
    named
}

fn linkage_text(linkage: Linkage) -> &'static str {
    match linkage {
        Linkage::Internal => "",
        Linkage::Visible => ".visible ",
        Linkage::Extern => ".extern ",
        Linkage::Weak => ".weak ",
        Linkage::Common => ".common ",
    }
}

/// Prints the declaration of a variable, without linkage and without the semicolon.
fn print_variable(module: &Module, variable: &Variable, out: &mut String) {
    out.push_str(variable.space.text());
    if variable.managed {
        out.push_str(" .attribute(.managed)");
    }
    // This is the alignment of a struct that is passed by value.
    if let Some(alignment) = variable.alignment {
        let _ = write!(out, " .align {alignment}");
    }
    if variable.vector > 1 {
        let _ = write!(out, " .v{}", variable.vector);
    }
    let _ = write!(out, " {}", variable.ty);
    if let Some(pointer) = variable.pointer {
        out.push_str(" .ptr");
        if let Some(space) = pointer.space {
            let _ = write!(out, " {space}");
        }
        if let Some(alignment) = pointer.alignment {
            let _ = write!(out, " .align {alignment}");
        }
    }
    let _ = write!(out, " {}", variable.name);
    for extent in &variable.extents {
        match extent {
            Some(extent) => {
                let _ = write!(out, "[{extent}]");
            }
            None => out.push_str("[]"),
        }
    }
    print_initializer(module, variable, out);
}

fn print_initializer(module: &Module, variable: &Variable, out: &mut String) {
    if variable.initializer.is_empty() {
        return;
    }
    out.push_str(" = ");
    let is_list = !variable.extents.is_empty() || variable.vector > 1;
    if !is_list {
        print_initial_element(module, variable.initializer[0], out);
        return;
    }
    // The innermost lists are the last extents.
    let mut groups: Vec<u64> = variable.extents.iter().skip(1).flatten().copied().collect();
    if variable.vector > 1 {
        groups.push(u64::from(variable.vector));
    }
    if variable.extents.is_empty() {
        groups.clear();
    }
    let sizes: Vec<usize> =
        (0..groups.len()).map(|level| groups[level..].iter().product::<u64>().max(1) as usize).collect();
    out.push('{');
    for (index, initializer) in variable.initializer.iter().enumerate() {
        let closed = sizes.iter().filter(|&&size| index > 0 && index.is_multiple_of(size)).count();
        out.extend(std::iter::repeat_n('}', closed));
        if index > 0 {
            out.push_str(", ");
        }
        let opened = sizes.iter().filter(|&&size| index.is_multiple_of(size)).count();
        out.extend(std::iter::repeat_n('{', opened));
        print_initial_element(module, *initializer, out);
    }
    out.extend(std::iter::repeat_n('}', sizes.len() + 1));
}

fn print_initial_element(module: &Module, initializer: Initializer, out: &mut String) {
    match initializer {
        Initializer::Value(immediate) => print_immediate(immediate, out),
        Initializer::Address { symbol, offset, generic, mask } => {
            if let Some(mask) = mask {
                let _ = write!(out, "{mask:#X}(");
            }
            let name = module.symbol_name(symbol).unwrap_or("?");
            if generic {
                let _ = write!(out, "generic({name})");
            } else {
                out.push_str(name);
            }
            if offset != 0 {
                let _ = write!(out, "{offset:+}");
            }
            if mask.is_some() {
                out.push(')');
            }
        }
    }
}

fn print_immediate(immediate: Immediate, out: &mut String) {
    let _ = match immediate {
        Immediate::Integer(value) => write!(out, "{value}"),
        Immediate::F32(bits) => write!(out, "0f{bits:08X}"),
        Immediate::F64(bits) => write!(out, "0d{bits:016X}"),
    };
}

fn print_function(module: &Module, function: &Function, out: &mut String) {
    out.push_str(linkage_text(function.linkage));
    out.push_str(match function.kind {
        FunctionKind::Entry => ".entry ",
        FunctionKind::Function => ".func ",
    });
    let variable = |out: &mut String, id: VariableId| {
        print_variable(module, &function.variables[id], out);
    };
    if !function.returns.is_empty() {
        out.push('(');
        for (index, &id) in function.returns.iter().enumerate() {
            out.push_str(if index == 0 { "" } else { ", " });
            variable(out, id);
        }
        out.push_str(") ");
    }
    out.push_str(&function.name);
    out.push('(');
    for (index, &id) in function.parameters.iter().enumerate() {
        out.push_str(if index == 0 { "\n    " } else { ",\n    " });
        variable(out, id);
    }
    out.push_str(if function.parameters.is_empty() { ")" } else { "\n)" });
    print_directives(&function.directives, out);
    let Some(body) = &function.body else {
        out.push_str(";\n");
        return;
    };
    out.push_str("\n{\n");
    print_registers(function, out);
    for (id, variable) in &function.variables {
        if !function.parameters.contains(&id) && !function.returns.contains(&id) {
            out.push_str("    ");
            print_variable(module, variable, out);
            out.push_str(";\n");
        }
    }
    for table in function.branch_tables.values() {
        let _ = write!(out, "    {}: .branchtargets ", table.name);
        for (index, label) in table.targets.iter().enumerate() {
            out.push_str(if index == 0 { "" } else { ", " });
            out.push_str(&function.labels[*label].name);
        }
        out.push_str(";\n");
    }
    for prototype in function.prototypes.values() {
        print_prototype(module, prototype, out);
    }
    for statement in body {
        print_statement(module, function, statement, out);
    }
    out.push_str("}\n");
}

fn print_prototype(module: &Module, prototype: &Prototype, out: &mut String) {
    let list = |variables: &[Variable], out: &mut String| {
        out.push('(');
        for (index, variable) in variables.iter().enumerate() {
            out.push_str(if index == 0 { "" } else { ", " });
            print_variable(module, variable, out);
        }
        out.push(')');
    };
    let _ = write!(out, "    {}: .callprototype ", prototype.name);
    if !prototype.returns.is_empty() {
        list(&prototype.returns, out);
        out.push(' ');
    }
    out.push_str("_ ");
    list(&prototype.parameters, out);
    out.push_str(if prototype.noreturn { " .noreturn;\n" } else { ";\n" });
}

fn print_directives(directives: &Directives, out: &mut String) {
    let extents = |name: &str, extents: &Option<Vec<u32>>, out: &mut String| {
        if let Some(extents) = extents {
            let text: Vec<String> = extents.iter().map(u32::to_string).collect();
            let _ = write!(out, "\n.{name} {}", text.join(", "));
        }
    };
    let number = |name: &str, number: Option<u32>, out: &mut String| {
        if let Some(number) = number {
            let _ = write!(out, "\n.{name} {number}");
        }
    };
    let flag = |name: &str, flag: bool, out: &mut String| {
        if flag {
            let _ = write!(out, "\n.{name}");
        }
    };
    extents("maxntid", &directives.max_threads, out);
    extents("reqntid", &directives.required_threads, out);
    number("minnctapersm", directives.min_blocks, out);
    number("maxnctapersm", directives.max_blocks, out);
    number("maxnreg", directives.max_registers, out);
    flag("explicitcluster", directives.explicit_cluster, out);
    extents("reqnctapercluster", &directives.required_cluster, out);
    number("maxclusterrank", directives.max_cluster_rank, out);
    flag("blocksareclusters", directives.blocks_are_clusters, out);
    flag("noreturn", directives.noreturn, out);
    number("abi_preserve", directives.abi_preserve, out);
    number("abi_preserve_control", directives.abi_preserve_control, out);
    for pragma in &directives.pragmas {
        let _ = write!(out, "\n.pragma \"{pragma}\";");
    }
}

/// Splits a register name into prefix and number, for a range.
pub(super) fn split_number(name: &str) -> Option<(&str, u32)> {
    let count = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (prefix, digits) = name.split_at(name.len() - count);
    let canonical = !digits.is_empty() && (digits == "0" || !digits.starts_with('0'));
    let is_range = canonical && digits.len() < 9 && !prefix.is_empty();
    is_range.then(|| (prefix, digits.parse().expect("fewer than nine digits fit")))
}

/// Declares the registers. Numbered names of one prefix and type are a range.
fn print_registers(function: &Function, out: &mut String) {
    let mut ranges: FxHashMap<&str, (ScalarType, u32, bool)> = FxHashMap::default();
    let mut order = Vec::new();
    let split: Vec<_> = function.registers.values().map(|register| split_number(&register.name)).collect();
    for (register, split) in function.registers.values().zip(&split) {
        if let Some((prefix, number)) = *split {
            let range = ranges.entry(prefix).or_insert_with(|| {
                order.push(prefix);
                (register.ty, 0, true)
            });
            range.1 = range.1.max(number);
            range.2 &= range.0 == register.ty;
        }
    }
    for prefix in order {
        if let (ty, last, true) = ranges[prefix] {
            let _ = writeln!(out, "    .reg {ty} {prefix}<{}>;", last + 1);
        }
    }
    for (register, split) in function.registers.values().zip(&split) {
        let in_range = split.is_some_and(|(prefix, _)| ranges[prefix].2);
        if !in_range {
            let _ = writeln!(out, "    .reg {} {};", register.ty, register.name);
        }
    }
}

fn print_statement(module: &Module, function: &Function, statement: &Statement, out: &mut String) {
    match &statement.kind {
        StatementKind::Label(label) => {
            let _ = writeln!(out, "{}:", function.labels[*label].name);
        }
        StatementKind::Instruction { guard, instruction } => {
            let start = out.len();
            out.push_str("    ");
            if let Some(guard) = guard {
                out.push_str(if guard.negated { "@!" } else { "@" });
                let _ = write!(out, "{} ", function.registers[guard.register].name);
            }
            let opcode_start = out.len();
            instruction.form().print_opcode(out);
            alias::shorten(out, opcode_start);
            let opcode_end = out.len();
            let braces_single = matches!(
                instruction,
                Instruction::Ldmatrix(_)
                    | Instruction::Stmatrix(_)
                    | Instruction::Mma(_)
                    | Instruction::WmmaLoad(_)
                    | Instruction::WmmaStore(_)
                    | Instruction::WmmaHalf(_)
                    | Instruction::Wmma(_)
            );
            let mut printer = OperandPrinter { module, function, out, separator: "", braces_single };
            let column = (opcode_end - start).min(PADDING.len() - 1);
            printer.out.push_str(&PADDING[column..]);
            instruction.form().print_operands(&mut printer);
            out.truncate(out.trim_end().len());
            out.push_str(";\n");
        }
        StatementKind::Verbatim(parts) => {
            out.push_str("    // inline assembly\n    {\n");
            for part in parts {
                match part {
                    Verbatim::Text(text) => out.push_str(text),
                    Verbatim::Register(register, _) => out.push_str(&function.registers[*register].name),
                }
            }
            out.push_str("\n    }\n");
        }
        StatementKind::Location(location) => {
            let Location { file, line, column, inlined } = location;
            let _ = write!(out, "    .loc {file} {line} {column}");
            if let Some(inlined) = inlined {
                let Inlined { function_name, offset, file, line, column } = &**inlined;
                let _ = write!(out, ", function_name {function_name}");
                if *offset != 0 {
                    let _ = write!(out, "+{offset}");
                }
                let _ = write!(out, ", inlined_at {file} {line} {column}");
            }
            out.push('\n');
        }
        StatementKind::Pragma(text) => {
            let _ = writeln!(out, "    .pragma \"{text}\";");
        }
        StatementKind::Comment(text) => {
            for line in text.lines() {
                out.push_str("    // ");
                line.chars().for_each(|character| push_ascii(character, out));
                out.push('\n');
            }
        }
    }
}

/// Prints a character; assemblers reject non-ASCII characters, even in comments.
fn push_ascii(character: char, out: &mut String) {
    if character.is_ascii() { out.push(character) } else { out.extend(character.escape_unicode()) }
}

/// Escapes the backslashes and the non-ASCII bytes of a path in octal, as LLVM does.
fn escaped_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii() && byte != b'\\' {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "\\{byte:03o}");
        }
    }
    out
}

impl Module {
    /// Returns the name of a symbol of the module, or `None` for a function's variable.
    pub fn symbol_name(&self, symbol: Symbol) -> Option<&str> {
        match symbol {
            Symbol::Global(id) => Some(&self.globals[id].name),
            Symbol::Function(id) => Some(&self.functions[id].name),
            Symbol::Variable(_) => None,
        }
    }

    /// Returns an instruction as a line of text, for messages.
    pub fn instruction_text(&self, function: FunctionId, statement: &Statement) -> String {
        let mut out = String::new();
        print_statement(self, &self.functions[function], statement, &mut out);
        out.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Writes the operands of an instruction.
pub(crate) struct OperandPrinter<'a> {
    module: &'a Module,
    function: &'a Function,
    out: &'a mut String,
    separator: &'static str,
    /// True if a list of one element has braces, as in matrix fragments.
    pub(crate) braces_single: bool,
}

impl OperandPrinter<'_> {
    pub(crate) fn operand<T: OperandForm>(&mut self, operand: &T) {
        if operand.is_present() {
            self.out.push_str(self.separator);
            self.separator = ", ";
            operand.print(self);
        }
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    pub(crate) fn register(&mut self, register: RegisterId) {
        self.out.push_str(&self.function.registers[register].name);
    }

    pub(crate) fn immediate(&mut self, immediate: Immediate) {
        print_immediate(immediate, self.out);
    }

    pub(crate) fn symbol(&mut self, symbol: Symbol) {
        let name = match symbol {
            Symbol::Variable(id) => &self.function.variables[id].name,
            Symbol::Global(id) => &self.module.globals[id].name,
            Symbol::Function(id) => &self.module.functions[id].name,
        };
        self.out.push_str(name);
    }

    /// Prints an offset; `-8` becomes `+-8`, because the assembler has no subtraction here.
    pub(crate) fn offset(&mut self, offset: i64) {
        if offset != 0 {
            let _ = write!(self.out, "+{offset}");
        }
    }

    pub(crate) fn address(&mut self, address: Address) {
        match address.base {
            AddressBase::Register(register) => self.register(register),
            AddressBase::Symbol(symbol) => self.symbol(symbol),
            AddressBase::Absolute => {
                let _ = write!(self.out, "{}", address.offset);
                return;
            }
        }
        self.offset(address.offset);
    }

    pub(crate) fn braced<T: OperandForm>(&mut self, items: &[T]) {
        self.out.push('{');
        for (index, item) in items.iter().enumerate() {
            self.out.push_str(if index == 0 { "" } else { ", " });
            item.print(self);
        }
        self.out.push('}');
    }

    pub(crate) fn target(&mut self, target: BranchTarget) {
        self.out.push_str(&self.function.labels[target.0].name);
    }

    pub(crate) fn branch_table(&mut self, table: BranchTableId) {
        self.out.push_str(&self.function.branch_tables[table].name);
    }

    pub(crate) fn call(&mut self, call: &CallOperands) {
        let list = |printer: &mut Self, items: &[Source]| {
            printer.text("(");
            for (index, item) in items.iter().enumerate() {
                printer.text(if index == 0 { "" } else { ", " });
                item.print(printer);
            }
            printer.text(")");
        };
        if !call.returns.is_empty() {
            list(self, &call.returns);
            self.text(", ");
        }
        match call.callee {
            Callee::Direct(function) => self.symbol(Symbol::Function(function)),
            Callee::Indirect(register, _) => self.register(register),
        }
        if !call.arguments.is_empty() {
            self.text(", ");
            list(self, &call.arguments);
        }
        if let Callee::Indirect(_, prototype) = call.callee {
            self.text(", ");
            let name = &self.function.prototypes[prototype].name;
            self.out.push_str(name);
        }
    }
}
