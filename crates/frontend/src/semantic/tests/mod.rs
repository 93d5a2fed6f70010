//! Tests the semantic rules with a caller that knows only builtins.

mod errors;
mod promotion;
mod results;

use std::sync::Arc;

use tilewright_ir::{Block, Builder, Function, IrBuilder, Type, Value};

use super::{
    BinaryOperator, Caller, Index, LanguageItem, ParameterKind, Semantic, SemanticError, binary,
    call_builtin, language,
};
use crate::value::{Constant, Operand};

/// A caller that emits into one function. Its combine functions are builtins.
pub(super) struct Fixture {
    builder: IrBuilder,
    options: crate::Options,
    printed: String,
}

impl Caller for Fixture {
    type Builder = IrBuilder;

    fn builder(&mut self) -> &mut IrBuilder {
        &mut self.builder
    }

    fn beyond_elements(&mut self, _region: &Block) -> Option<&'static str> {
        None
    }

    fn region_and_result(
        &mut self,
        function: &Operand<Value>,
        types: &[Type],
    ) -> Semantic<(Block, Operand<Value>)> {
        let (block, outer) = self.builder.begin_region(types.iter().cloned());
        let parameters: Vec<_> =
            self.builder.function.blocks[block].parameters.iter().copied().map(Operand::Tensor).collect();
        let result = self.call(function, parameters, Vec::new())?;
        let Operand::Tensor(value) = result else { panic!("the combine function gives one value") };
        self.builder.yield_values([value])?;
        self.builder.switch_to(outer);
        Ok((block, Operand::Tensor(value)))
    }

    fn worker(
        &mut self,
        function: &Operand<Value>,
        arguments: Vec<Operand<Value>>,
        _warps: u32,
    ) -> Semantic<(Block, Operand<Value>)> {
        let (block, outer) = self.builder.begin_region([]);
        let result = self.call(function, arguments, Vec::new())?;
        self.builder.yield_values([])?;
        self.builder.switch_to(outer);
        Ok((block, result))
    }

    fn call(
        &mut self,
        function: &Operand<Value>,
        arguments: Vec<Operand<Value>>,
        _keywords: Vec<(Arc<str>, Operand<Value>)>,
    ) -> Semantic<Operand<Value>> {
        let Operand::Language(name) = function else { panic!("only builtins are called here") };
        self.builtin(name, &arguments, &[])
    }

    fn options(&self) -> &crate::Options {
        &self.options
    }

    fn num_warps(&mut self) -> u32 {
        self.options.num_warps
    }

    fn num_ctas(&mut self) -> u32 {
        self.options.num_ctas.max(1)
    }

    fn print(&mut self, text: &str) {
        self.printed.push_str(text);
    }
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self {
            builder: IrBuilder::new(Function::new("test")),
            options: crate::Options { debug: true, ..crate::Options::default() },
            printed: String::new(),
        }
    }

    /// Returns a run-time value of a type such as `fp32[128]`.
    pub(super) fn value(&mut self, ty: &str) -> Operand<Value> {
        let ty = Type::parse(ty).expect("the type is well formed");
        let entry = self.builder.function.entry;
        Operand::Tensor(self.builder.function.add_parameter(entry, ty, None))
    }

    pub(super) fn builtin(
        &mut self,
        name: &str,
        positional: &[Operand<Value>],
        keywords: &[(&str, Operand<Value>)],
    ) -> Semantic<Operand<Value>> {
        let Some(LanguageItem::Builtin(spec)) = language(name) else { panic!("{name} is no builtin") };
        let mut rest = positional.iter().cloned();
        let mut bound = Vec::new();
        for parameter in &spec.parameters {
            let named =
                keywords.iter().find(|(name, _)| *name == parameter.name).map(|(_, value)| value.clone());
            let default = parameter.default.clone().map(Operand::Constant);
            bound.push(match parameter.kind {
                ParameterKind::Variadic => Operand::Tuple(rest.by_ref().collect()),
                ParameterKind::Positional => {
                    named.or_else(|| rest.next()).or(default).expect("every argument is given")
                }
                ParameterKind::KeywordOnly => named.or(default).expect("every argument is given"),
            });
        }
        call_builtin(self, spec, &bound)
    }

    /// Describes an operand: the type of a value, or a compile-time value.
    pub(super) fn show(&mut self, operand: &Operand<Value>) -> String {
        match operand {
            Operand::Tensor(value) => self.builder.type_of(value).to_string(),
            Operand::Constant(constant) => constant.to_string(),
            Operand::Tuple(items) => {
                let items: Vec<_> = items.iter().map(|item| self.show(item)).collect();
                format!("({})", items.join(", "))
            }
            Operand::Method(_, name) => format!("method {name}"),
            other => format!("{other:?}"),
        }
    }

    /// Returns the names of the ops emitted so far, separated by spaces.
    pub(super) fn ops(&self) -> String {
        let function = &self.builder.function;
        let names = function.blocks[function.entry].insts.iter().map(|&inst| function.insts[inst].op.name());
        names.collect::<Vec<_>>().join(" ")
    }
}

pub(super) fn int(value: i128) -> Operand<Value> {
    Operand::Constant(Constant::Int(value))
}

pub(super) fn number(value: f64) -> Operand<Value> {
    Operand::Constant(Constant::Float(value))
}

pub(super) fn text(value: &str) -> Operand<Value> {
    Operand::Constant(Constant::Str(value.into()))
}

pub(super) fn ints(values: &[i128]) -> Operand<Value> {
    Operand::Constant(Constant::Tuple(values.iter().copied().map(Constant::Int).collect()))
}

pub(super) fn dtype(name: &str) -> Operand<Value> {
    Operand::Constant(Constant::Type(Type::parse(name).expect("the type is well formed")))
}

/// Returns the text of an error, as a diagnostic shows it.
pub(super) fn render(error: &SemanticError) -> String {
    let mut lines = vec![format!("{}: {}", error.code.name(), error.message)];
    lines.extend(error.arguments.iter().map(|(index, text)| format!("  {index}: {text}")));
    lines.extend(error.notes.iter().map(|note| format!("  note: {note}")));
    lines.extend(error.hint.iter().map(|hint| format!("  hint: {hint}")));
    lines.join("\n") + "\n"
}
