//! Imports other modules: files in the folder of the importing module, files of its package, and
//! `triton.profiler.language`, whose text is part of the compiler.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ruff_python_ast::{StmtImport, StmtImportFrom};
use rustc_hash::FxHashMap;
use tilewright_base::SourceFile;

use super::SourceHost;
use crate::host::HostValue;
use crate::parse::with_stack;
use crate::parse::{Tree, parse};
use crate::reference::ObjectRef;

/// The maximum number of modules that a host reads. Imports are transitive.
const MAX_MODULES: usize = 1000;

/// The module `triton.profiler.language`, for kernels whose scopes no session records.
const PROFILER_LANGUAGE: (&str, &str) =
    ("triton/profiler/language.py", include_str!("../stdlib/profiler_language.py"));

/// A module, and the values of its names.
pub(super) struct Scope {
    pub(super) file: Arc<SourceFile>,
    pub(super) module: Arc<Tree>,
    pub(super) names: FxHashMap<String, HostValue>,
    /// The path of the file; `None` for a module that the caller passed as text.
    pub(super) path: Option<PathBuf>,
    /// The index of the module among the modules of the host.
    pub(super) index: usize,
}

impl SourceHost {
    /// Returns the module with an index.
    pub(super) fn scope(&self, index: usize) -> &Scope {
        if self.current.index == index { &self.current } else { &self.others[index] }
    }

    /// Makes a module the current one for the duration of a call.
    pub(super) fn within<R>(&mut self, index: usize, function: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.current.index;
        self.make_current(index);
        let result = function(self);
        self.make_current(before);
        result
    }

    /// Makes a module current, and moves the previous one to its element of `others`.
    fn make_current(&mut self, index: usize) {
        let old = self.current.index;
        if old != index {
            std::mem::swap(&mut self.current, &mut self.others[index]);
            self.others.swap(old, index);
        }
    }

    /// Executes `import a.b as c`.
    pub(super) fn execute_import(&mut self, import: &StmtImport) {
        for alias in &import.names {
            let path = alias.name.as_str();
            let root = path.split('.').next().unwrap_or(path);
            let (name, path) = alias.asname.as_ref().map_or((root, root), |name| (name.as_str(), path));
            let value = match self.find_module(0, path) {
                Some(index) => HostValue::Object(self.module_object(index)),
                None => self.module_value(path),
            };
            self.current.names.insert(name.to_owned(), value);
        }
    }

    /// Executes `from a.b import c`.
    pub(super) fn execute_import_from(&mut self, import: &StmtImportFrom) {
        let module = import.module.as_ref().map_or("", |module| module.as_str());
        let found = self.find_module(import.level, module);
        for alias in &import.names {
            let name = alias.name.as_str();
            if let ("*", Some(index)) = (name, found) {
                let public = self.scope(index).names.iter().filter(|(name, _)| !name.starts_with('_'));
                let public: Vec<_> = public.map(|(name, value)| (name.clone(), value.clone())).collect();
                self.current.names.extend(public);
                continue;
            }
            let known = found.and_then(|index| self.member(index, name));
            let value =
                known.unwrap_or_else(|| match (self.module_value(&format!("{module}.{name}")), found) {
                    (HostValue::Object(_), Some(index)) => {
                        HostValue::Object(self.object(format!("@{index}.{name}")))
                    }
                    (value, _) => value,
                });
            let name = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
            self.current.names.insert(name.to_owned(), value);
        }
    }

    /// Returns the value of a name in a module. The module defines the name, or it is a package
    /// that contains a module with this name.
    pub(super) fn member(&mut self, index: usize, name: &str) -> Option<HostValue> {
        if let Some(value) = self.scope(index).names.get(name) {
            return Some(value.clone());
        }
        let path = self.scope(index).path.as_ref()?;
        let folder = path.file_stem().is_some_and(|stem| stem == "__init__").then(|| path.parent())??;
        let found = self.load(&folder.join(name))?;
        Some(HostValue::Object(self.module_object(found)))
    }

    fn module_object(&mut self, index: usize) -> ObjectRef {
        self.object(format!("@{index}"))
    }

    /// Returns the module that an import in the current module finds. Returns `None` if the module
    /// is not a file of the program.
    fn find_module(&mut self, level: u32, dotted: &str) -> Option<usize> {
        let folder = self.current.path.as_ref()?.parent()?.to_owned();
        let below = dotted.split('.').filter(|part| !part.is_empty()).collect::<PathBuf>();
        if level > 0 {
            let start = folder.ancestors().nth(level as usize - 1)?;
            return self.load(&start.join(below));
        }
        if let found @ Some(_) = self.load(&folder.join(&below)) {
            return found;
        }
        // In a package, names are relative to the folder that contains the package.
        let above = folder.ancestors().find(|folder| !folder.join("__init__.py").is_file())?.to_owned();
        if above == folder { None } else { self.load(&above.join(below)) }
    }

    /// Reads and executes the module `path.py` or the package `path`, unless it is already loaded.
    /// Returns the index of the module. Returns `None` if there is no such file, if the file is not
    /// valid Python, or if the limit [`MAX_MODULES`] is reached.
    fn load(&mut self, path: &Path) -> Option<usize> {
        let file = [path.with_extension("py"), path.join("__init__.py")];
        let path = file.into_iter().find(|file| file.is_file())?;
        let is_it = |scope: &&Scope| scope.path.as_deref().is_some_and(|known| known == path);
        if let Some(known) = self.others.iter().chain([&self.current]).find(is_it) {
            return Some(known.index);
        }
        if self.others.len() >= MAX_MODULES {
            return None;
        }
        let text = std::fs::read_to_string(&path).ok()?;
        self.add_module(SourceFile::new(path.display().to_string(), text), Some(path))
    }

    /// Executes a module and returns its index. A file that is not valid Python cannot be imported:
    /// a kernel that uses the module gets an error.
    fn add_module(&mut self, file: SourceFile, path: Option<PathBuf>) -> Option<usize> {
        let module = Arc::new(parse(&file.text).ok()?);
        let index = self.others.len();
        let names = FxHashMap::default();
        self.others.push(Scope { file: Arc::new(file), module: module.clone(), names, path, index });
        self.within(index, |host| with_stack(|| host.execute_module(&module.body)));
        Some(index)
    }

    /// Returns the value of the path of `triton.profiler.language` or of a name in it. Returns
    /// `None` for other paths.
    pub(super) fn value_of_profiler(&mut self, path: &str) -> Option<HostValue> {
        let name = path.strip_prefix("triton.profiler.language")?;
        let (file, text) = PROFILER_LANGUAGE;
        let loaded = self.others.iter().find(|scope| scope.path.is_none() && scope.file.name == file);
        let loaded = loaded.map(|scope| scope.index);
        let index = loaded.or_else(|| self.add_module(SourceFile::new(file, text), None))?;
        if name.is_empty() {
            return Some(HostValue::Object(self.module_object(index)));
        }
        self.scope(index).names.get(name.strip_prefix('.')?).cloned()
    }
}
