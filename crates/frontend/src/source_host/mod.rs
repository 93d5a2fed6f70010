//! Resolves the free names of kernels without Python ([`Host`](crate::host::Host)). This host reads
//! the source of a module, and of the modules that it imports. It resolves triton, tilewright and
//! `math`, and the constants, functions and classes in the source. Every other name is opaque: its
//! value is unknown, and a kernel that uses the name gets an error.

mod classes;
mod evaluate;
mod execute;
mod gluon;
mod imports;
mod math;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use ruff_python_ast::{Expr, ModModule, Stmt, StmtClassDef, StmtFunctionDef};
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;
use tilewright_base::{SourceFile, SourceMap};

use crate::Failure;
use crate::host::{Aggregate, CallError, FunctionSource, Host, HostValue, Member, NamedTuple, ParsedModule};
use crate::lower::function::is_constexpr;
use crate::parse::with_stack;
use crate::parse::{find_function, parse, visit_functions};
use crate::reference::{FunctionRef, ObjectRef};
use crate::value::Constant;

use classes::Class;
use imports::Scope;
use math::{call_math, math_constant, math_function};

/// The maximum nesting of evaluated expressions and of executed statements.
const MAX_DEPTH: usize = 100;

/// A [`Host`] that resolves names in the source of a module.
pub struct SourceHost {
    /// The module whose statements are being executed. Afterwards, this is the requested module
    /// (index 0).
    current: Scope,
    /// All modules by their indices. The element of the current module is unused.
    others: Vec<Scope>,
    functions: Vec<ModuleFunction>,
    classes: FxHashMap<ObjectRef, Class>,
    /// The path of each object. The path is one of these:
    ///
    /// - a dotted path (`torch.nn`);
    /// - an opaque name and its module (`'scale'@2`);
    /// - a module (`@2`);
    /// - a name that another module imports from a module without a definition of the name
    ///   (`@2.scale`);
    /// - an aggregate class and its index among the objects (`Pair.7`);
    /// - a layout of Gluon (`=AutoLayout()`).
    objects: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Decorator {
    Jit {
        noinline: bool,
    },
    Constexpr,
    /// A decorator that chooses arguments of a kernel, as `autotune` does.
    Wrapper,
    Method,
}

struct ModuleFunction {
    module: usize,
    name: String,
    offset: u32,
    /// True if the function is decorated with `jit` and is not a method. False for a
    /// `constexpr_function`.
    is_kernel: bool,
    noinline: bool,
    class: Option<ObjectRef>,
    /// The defaults of the parameters, evaluated at the definition of the function.
    defaults: FxHashMap<String, HostValue>,
}

impl SourceHost {
    /// Reads a module from its text. Messages show `path`.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Result<Self, Box<Failure>> {
        Self::from_file(&Arc::new(SourceFile::new(path, text)), None)
    }

    /// Reads a module. If `path` is the path of its file, also reads the modules that it imports.
    pub fn from_file(file: &Arc<SourceFile>, path: Option<&Path>) -> Result<Self, Box<Failure>> {
        let module = parse(&file.text).map_err(|failure| {
            let mut sources = SourceMap::default();
            let id = sources.add(file.clone());
            Box::new(Failure { diagnostics: vec![failure.diagnostic(id)], sources })
        })?;
        let module = Arc::new(module);
        let scope = || Scope {
            file: file.clone(),
            module: module.clone(),
            names: FxHashMap::default(),
            path: path.map(Path::to_owned),
            index: 0,
        };
        let (current, others) = (scope(), vec![scope()]);
        let mut host = Self {
            current,
            others,
            functions: Vec::new(),
            classes: FxHashMap::default(),
            objects: Vec::new(),
        };
        with_stack(|| host.execute_module(&module.body));
        Ok(host)
    }

    /// Returns the syntax tree of the module.
    pub fn syntax(&self) -> &ModModule {
        &self.current.module
    }

    /// Returns the paths of the files that were read.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.others[1..].iter().chain([&self.current]).filter_map(|scope| scope.path.as_deref())
    }

    /// Returns the names of the `@jit` functions of the requested module, in the order of their
    /// definitions.
    pub fn kernels(&self) -> Vec<&str> {
        let kernels = self.functions.iter().filter(|function| function.is_kernel && function.module == 0);
        kernels.map(|function| function.name.as_str()).collect()
    }

    /// Returns the `@jit` or `@constexpr_function` function with this name.
    pub fn function(&self, name: &str) -> Option<FunctionRef> {
        match self.current.names.get(name) {
            Some(HostValue::Function(function)) => Some(*function),
            _ => None,
        }
    }

    /// Returns the parameters of a function. The flag of a parameter is true if its annotation is
    /// `tl.constexpr`.
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

    fn module_of(&self, function: FunctionRef) -> usize {
        self.functions.get(function.0 as usize).map_or(0, |function| function.module)
    }

    fn opaque(&mut self, name: &str) -> ObjectRef {
        self.object(format!("'{name}'@{}", self.current.index))
    }

    fn name_of(&self, object: ObjectRef) -> Option<(&str, usize)> {
        let (name, module) = self.path(object).strip_prefix('\'')?.rsplit_once("'@")?;
        Some((name, module.parse().ok()?))
    }

    fn define(&mut self, function: &StmtFunctionDef) {
        let decorators: Vec<Decorator> = function
            .decorator_list
            .iter()
            .filter_map(|decorator| self.decorator(&decorator.expression))
            .collect();
        let value = self
            .decorated(function, &decorators)
            .unwrap_or_else(|| HostValue::Callable(self.opaque(function.name.as_str())));
        self.current.names.insert(function.name.as_str().to_owned(), value);
    }

    /// Registers a function as a function of the kernel language. Returns `None` if it has no
    /// decorator of the kernel language.
    fn decorated(&mut self, function: &StmtFunctionDef, decorators: &[Decorator]) -> Option<HostValue> {
        let noinline = decorators.iter().find_map(|decorator| match decorator {
            Decorator::Jit { noinline } => Some(*noinline),
            _ => None,
        });
        let is_of_kernels =
            |decorator: &Decorator| matches!(decorator, Decorator::Constexpr | Decorator::Method);
        if noinline.is_none() && !decorators.iter().any(is_of_kernels) {
            return None;
        }
        let mut defaults = FxHashMap::default();
        for parameter in &*function.parameters {
            let value = parameter.default().and_then(|default| self.evaluate(default, 0));
            if let Some(value) = value {
                defaults.insert(parameter.name().as_str().to_owned(), value);
            }
        }
        self.functions.push(ModuleFunction {
            module: self.current.index,
            name: function.name.as_str().to_owned(),
            offset: u32::from(function.name.start()),
            is_kernel: noinline.is_some() && !decorators.contains(&Decorator::Method),
            noinline: noinline.unwrap_or(false),
            class: None,
            defaults,
        });
        Some(HostValue::Function(FunctionRef(self.functions.len() as u32 - 1)))
    }

    fn definition(&self, function: FunctionRef) -> Option<&StmtFunctionDef> {
        let known = self.functions.get(function.0 as usize)?;
        find_function(&self.scope(known.module).module, &known.name, known.offset)
    }
}

impl SourceHost {
    /// Returns the fields of a class of the current module, if it derives from `NamedTuple`.
    fn named_tuple_of_current(&mut self, name: String) -> Option<NamedTuple> {
        let module = self.current.module.clone();
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
}

impl Host for SourceHost {
    fn source(&mut self, function: FunctionRef) -> Result<FunctionSource, String> {
        let known = self.functions.get(function.0 as usize).ok_or("there is no such function")?;
        Ok(FunctionSource {
            name: known.name.clone(),
            file: self.scope(known.module).file.clone(),
            offset: known.offset,
            noinline: known.noinline,
        })
    }

    fn parsed(&mut self, file: &Arc<SourceFile>) -> Option<ParsedModule> {
        let mut scopes = self.others.iter().chain([&self.current]);
        let scope = scopes.find(|scope| Arc::ptr_eq(file, &scope.file))?;
        Some(ParsedModule(scope.module.clone()))
    }

    fn name(&mut self, function: FunctionRef, name: &str) -> Option<HostValue> {
        if name == "__class__" {
            return self.functions.get(function.0 as usize)?.class.map(HostValue::Object);
        }
        self.scope(self.module_of(function)).names.get(name).cloned()
    }

    fn names(&mut self, function: FunctionRef) -> Vec<String> {
        let mut names: Vec<String> = self.scope(self.module_of(function)).names.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    fn attribute(&mut self, object: ObjectRef, name: &str) -> Option<HostValue> {
        let path = self.path(object);
        if path.starts_with('=') {
            return self.layout_attribute(object, name);
        }
        if let Some(module) = path.strip_prefix('@') {
            return SourceHost::member(self, module.parse().ok()?, name);
        }
        if path.starts_with('\'')
            || path == "math" && math_constant(name).is_none() && math_function(name, 1.0).is_none()
        {
            return None;
        }
        let path = format!("{path}.{name}");
        Some(self.module_value(&path))
    }

    fn named_tuple(&mut self, class: ObjectRef) -> Option<NamedTuple> {
        let (name, module) = self.name_of(class)?;
        let name = name.to_owned();
        self.within(module, |host| host.named_tuple_of_current(name))
    }

    fn aggregate(&mut self, class: ObjectRef) -> Option<Aggregate> {
        self.fields_of(class)
    }

    fn member(&mut self, class: ObjectRef, after: Option<ObjectRef>, name: &str) -> Option<Member> {
        self.member_of(class, after, name)
    }

    fn is_instance(&mut self, value: &HostValue, class: ObjectRef) -> bool {
        let own = match value {
            HostValue::Object(own) => Some(*own),
            HostValue::Constant(Constant::Tuple(items)) => items.class(),
            HostValue::Tuple(items) => items.class(),
            _ => None,
        };
        own.is_some_and(|own| self.is_derived(own, class))
    }

    fn default(&mut self, function: FunctionRef, parameter: &str) -> Option<HostValue> {
        self.functions.get(function.0 as usize)?.defaults.get(parameter).cloned()
    }

    fn call(
        &mut self,
        callee: ObjectRef,
        arguments: &[HostValue],
        keywords: &[(String, HostValue)],
    ) -> Result<HostValue, CallError> {
        if let Some(layout) = self.call_layout(callee, arguments, keywords) {
            return layout;
        }
        if !keywords.is_empty() {
            return Err("the function takes no keyword arguments".to_owned().into());
        }
        let constant = |argument: &HostValue| match argument {
            HostValue::Constant(constant) | HostValue::PlainGlobal(constant) => Ok(constant.clone()),
            _ => Err("the function only takes numbers".to_owned()),
        };
        let arguments = &arguments.iter().map(constant).collect::<Result<Vec<_>, _>>()?;
        Ok(call_math(self.path(callee), arguments).map(HostValue::PlainGlobal)?)
    }

    fn is_callable(&mut self, object: ObjectRef) -> bool {
        self.is_layout_callable(object)
    }

    fn operate(&mut self, operator: &str, operands: &[HostValue]) -> Option<Result<HostValue, String>> {
        let is_equal = self.are_equal_layouts(operands)?;
        match operator {
            "eq" => Some(Ok(HostValue::Constant(Constant::Bool(is_equal)))),
            "ne" => Some(Ok(HostValue::Constant(Constant::Bool(!is_equal)))),
            _ => None,
        }
    }

    fn layout(&mut self, text: &str) -> Option<HostValue> {
        self.layout_of_text(text)
    }

    fn describe(&mut self, object: ObjectRef) -> String {
        if let Some(layout) = self.path(object).strip_prefix('=') {
            return layout.to_owned();
        }
        if let Some(name) = self.class_name(object) {
            return format!("class '{name}'");
        }
        let path = self.path(object);
        if let Some(rest) = path.strip_prefix('@') {
            let (index, name) = rest.split_once('.').unwrap_or((rest, ""));
            let file = index.parse().map_or("", |index| self.scope(index).file.name.as_str());
            return if name.is_empty() {
                format!("module '{file}'")
            } else {
                format!("'{name}', which '{file}' does not have when it is imported,")
            };
        }
        let Some((name, module)) = self.name_of(object) else { return format!("'{path}'") };
        let mut is_function = false;
        let body = &self.scope(module).module.body;
        visit_functions(body, &mut |function| is_function |= function.name.as_str() == name);
        if is_function { format!("function '{name}'") } else { format!("'{name}'") }
    }

    fn print(&mut self, text: &str) {
        // Standard output may be closed.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}
