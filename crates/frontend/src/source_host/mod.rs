//! The host without Python: a module's own source. It knows imports of triton and tilewright, constants, `math`, and the
//! module's functions; all else is opaque.

mod evaluate;
mod execute;
mod math;

use std::io::Write;
use std::sync::Arc;

use ruff_python_ast::{Expr, ModModule, Stmt, StmtClassDef, StmtFunctionDef};
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;
use tilewright_base::{SourceFile, SourceMap};

use crate::Failure;
use crate::host::{FunctionRef, FunctionSource, Host, HostValue, NamedTuple, ObjectRef, ParsedModule};
use crate::lower::function::is_constexpr;
use crate::lower::parse::{Tree, find_function, parse, visit_functions};
use crate::lower::scope::with_stack;

use math::{call_math, math_constant, math_function};

/// How deep a constant's expression may nest.
const MAX_DEPTH: usize = 100;

/// A module's source as a host.
pub struct SourceHost {
    file: Arc<SourceFile>,
    module: Arc<Tree>,
    functions: Vec<Known>,
    names: FxHashMap<String, HostValue>,
    /// Dotted paths (`torch.nn`), or descriptions in quotes.
    objects: Vec<String>,
}

/// What a decorator does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decorator {
    Jit {
        noinline: bool,
    },
    Constexpr,
    /// It chooses arguments of a kernel.
    Wrapper,
}

/// A function of the module.
struct Known {
    name: String,
    offset: u32,
    /// Whether it is decorated with `jit`, not with `constexpr_function`.
    is_kernel: bool,
    noinline: bool,
    /// The defaults of its parameters, as they were when it was defined.
    defaults: FxHashMap<String, HostValue>,
}

impl SourceHost {
    /// Reads a module: its path, for messages, and its text.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Result<Self, Box<Failure>> {
        Self::from_file(Arc::new(SourceFile::new(path, text)))
    }

    /// Reads a module.
    pub fn from_file(file: Arc<SourceFile>) -> Result<Self, Box<Failure>> {
        let module = parse(&file.text).map_err(|failure| {
            let mut sources = SourceMap::default();
            let id = sources.add(file.clone());
            Box::new(Failure { diagnostics: vec![failure.diagnostic(id)], sources })
        })?;
        let module = Arc::new(module);
        let mut host = Self {
            file,
            module: module.clone(),
            functions: Vec::new(),
            names: FxHashMap::default(),
            objects: Vec::new(),
        };
        with_stack(|| host.execute_module(&module.body));
        Ok(host)
    }

    /// The syntax tree of the module.
    pub fn syntax(&self) -> &ModModule {
        &self.module
    }

    /// The names of the `@jit` functions, in the order of the source.
    pub fn kernels(&self) -> Vec<&str> {
        let kernels = self.functions.iter().filter(|function| function.is_kernel);
        kernels.map(|function| function.name.as_str()).collect()
    }

    /// The `@jit` function with this name.
    pub fn function(&self, name: &str) -> Option<FunctionRef> {
        match self.names.get(name) {
            Some(HostValue::Function(function)) => Some(*function),
            _ => None,
        }
    }

    /// The parameters of a function, and whether each is annotated `tl.constexpr`.
    pub fn parameters(&self, function: FunctionRef) -> Vec<(&str, bool)> {
        let definition = self.definition(function);
        let parameters = definition.into_iter().flat_map(crate::lower::function::parameters);
        parameters
            .map(|parameter| (parameter.name.as_str(), is_constexpr(parameter.annotation.as_deref())))
            .collect()
    }

    fn object(&mut self, path: impl Into<String>) -> ObjectRef {
        let path = path.into();
        let index = self.objects.iter().position(|known| *known == path).unwrap_or_else(|| {
            self.objects.push(path);
            self.objects.len() - 1
        });
        ObjectRef(index as u32)
    }

    fn path(&self, object: ObjectRef) -> &str {
        self.objects.get(object.0 as usize).map_or("", String::as_str)
    }

    fn define(&mut self, function: &StmtFunctionDef) {
        let decorators: Vec<Decorator> = function
            .decorator_list
            .iter()
            .filter_map(|decorator| self.decorator(&decorator.expression))
            .collect();
        let value = self.decorated(function, &decorators).unwrap_or_else(|| {
            let object = self.object(format!("'{}'", function.name.as_str()));
            HostValue::Callable(object)
        });
        self.names.insert(function.name.as_str().to_owned(), value);
    }

    /// A function under decorators, if one of them makes it one of the kernel language.
    fn decorated(&mut self, function: &StmtFunctionDef, decorators: &[Decorator]) -> Option<HostValue> {
        let noinline = decorators.iter().find_map(|decorator| match decorator {
            Decorator::Jit { noinline } => Some(*noinline),
            _ => None,
        });
        if noinline.is_none() && !decorators.contains(&Decorator::Constexpr) {
            return None;
        }
        let mut defaults = FxHashMap::default();
        for parameter in &*function.parameters {
            let value = parameter.default().and_then(|default| self.evaluate(default, 0));
            if let Some(value) = value {
                defaults.insert(parameter.name().as_str().to_owned(), value);
            }
        }
        self.functions.push(Known {
            name: function.name.as_str().to_owned(),
            offset: u32::from(function.name.start()),
            is_kernel: noinline.is_some(),
            noinline: noinline.unwrap_or(false),
            defaults,
        });
        Some(HostValue::Function(FunctionRef(self.functions.len() as u32 - 1)))
    }

    fn definition(&self, function: FunctionRef) -> Option<&StmtFunctionDef> {
        let known = self.functions.get(function.0 as usize)?;
        find_function(&self.module, &known.name, known.offset)
    }
}

impl Host for SourceHost {
    fn source(&mut self, function: FunctionRef) -> Result<FunctionSource, String> {
        let known = self.functions.get(function.0 as usize).ok_or("there is no such function")?;
        Ok(FunctionSource {
            name: known.name.clone(),
            file: self.file.clone(),
            offset: known.offset,
            noinline: known.noinline,
        })
    }

    fn parsed(&mut self, file: &Arc<SourceFile>) -> Option<ParsedModule> {
        Arc::ptr_eq(file, &self.file).then(|| ParsedModule(self.module.clone()))
    }

    fn name(&mut self, _function: FunctionRef, name: &str) -> Option<HostValue> {
        self.names.get(name).cloned()
    }

    fn names(&mut self, _function: FunctionRef) -> Vec<String> {
        let mut names: Vec<String> = self.names.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    fn attribute(&mut self, object: ObjectRef, name: &str) -> Option<HostValue> {
        let path = self.path(object);
        if path.starts_with('\'')
            || path == "math" && math_constant(name).is_none() && math_function(name, 1.0).is_none()
        {
            return None;
        }
        let path = format!("{path}.{name}");
        Some(self.module_value(&path))
    }

    fn named_tuple(&mut self, class: ObjectRef) -> Option<NamedTuple> {
        let name = self.path(class).trim_matches('\'').to_owned();
        let module = self.module.clone();
        let is_it = |class: &&StmtClassDef| class.name.as_str() == name;
        let class = module.body.iter().rev().filter_map(Stmt::as_class_def_stmt).find(is_it)?;
        let is_named_tuple = |base: &Expr| self.dotted(base).is_some_and(|path| path == "typing.NamedTuple");
        class.bases().iter().find(|base| is_named_tuple(base))?;
        let (mut fields, mut defaults) = (Vec::new(), Vec::new());
        for assign in class.body.iter().filter_map(Stmt::as_ann_assign_stmt) {
            fields.push(Arc::from(assign.target.as_name_expr()?.id.as_str()));
            if let Some(default) = &assign.value {
                defaults.push(self.evaluate(default, 0)?);
            }
        }
        Some(NamedTuple { name, fields: fields.into(), defaults })
    }

    fn default(&mut self, function: FunctionRef, parameter: &str) -> Option<HostValue> {
        self.functions.get(function.0 as usize)?.defaults.get(parameter).cloned()
    }

    fn call(
        &mut self,
        callee: ObjectRef,
        arguments: &[HostValue],
        keywords: &[(String, HostValue)],
    ) -> Result<HostValue, String> {
        if !keywords.is_empty() {
            return Err("it takes no keyword arguments".into());
        }
        let constant = |argument: &HostValue| match argument {
            HostValue::Constant(constant) | HostValue::PlainGlobal(constant) => Ok(constant.clone()),
            _ => Err("it takes numbers"),
        };
        let arguments = &arguments.iter().map(constant).collect::<Result<Vec<_>, _>>()?;
        call_math(self.path(callee), arguments).map(HostValue::PlainGlobal)
    }

    fn describe(&mut self, object: ObjectRef) -> String {
        let path = self.path(object).to_owned();
        if !path.starts_with('\'') {
            return format!("'{path}'");
        }
        let name = path.trim_matches('\'');
        let mut is_function = false;
        visit_functions(&self.module.body, &mut |function| is_function |= function.name.as_str() == name);
        if is_function { format!("function {path}") } else { path }
    }

    fn print(&mut self, text: &str) {
        // A closed output is no reason to stop.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}
