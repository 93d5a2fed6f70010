//! Reads the definitions, imports and used names of each file, and resolves paths.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

use crate::tree::File;

/// The maximum number of imports and re-exports that the resolution of a path follows. They may
/// form a cycle.
const MAX_STEPS: usize = 16;

/// One file of a crate.
#[derive(Debug, Default)]
pub struct Module {
    /// The path of the file.
    pub file: String,
    /// The path of the module in its crate.
    pub path: Vec<String>,
    /// The names that the file defines itself.
    defined: BTreeSet<String>,
    /// The path of each imported name.
    imported: BTreeMap<String, Vec<String>>,
    /// The paths of the modules that the file imports with `*`.
    globs: Vec<Vec<String>>,
    /// The paths that the file's code uses, including imports but not re-exports.
    named: BTreeSet<Vec<String>>,
    test_children: Vec<String>,
}

impl Module {
    /// Parses a file. `inner` is its path relative to the folder of sources.
    pub fn parse(file: &File, inner: &str) -> Option<Self> {
        // Another check, or the compiler, reports a file that does not parse.
        let syntax = syn::parse_file(&file.text).ok()?;
        let mut path: Vec<_> = inner.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
        if path.len() == 1 && (path[0] == "lib" || path[0] == "main")
            || path.last().is_some_and(|last| last == "mod")
        {
            path.pop();
        }
        let mut reader =
            Reader { module: Self { file: file.path.clone(), path, ..Self::default() }, depth: 0 };
        reader.visit_file(&syntax);
        Some(reader.module)
    }

    /// Returns the paths of the child modules that are compiled only for tests.
    pub fn test_children(&self) -> impl Iterator<Item = Vec<String>> {
        self.test_children.iter().map(|child| [&self.path[..], std::slice::from_ref(child)].concat())
    }
}

/// Returns, for each module, the modules on which it depends. Each dependency has one path in the
/// code of the first module that leads to the second.
pub fn arrows(modules: &[&Module]) -> Vec<BTreeMap<usize, String>> {
    let by_path: BTreeMap<_, _> =
        modules.iter().enumerate().map(|(index, module)| (&module.path[..], index)).collect();
    let resolver = Resolver { modules, by_path };
    let arrows_of = |index: usize| {
        let mut arrows = BTreeMap::new();
        for path in &modules[index].named {
            if let Some(target) = resolver.resolve(index, path, MAX_STEPS)
                && target != index
            {
                arrows.entry(target).or_insert_with(|| path.join("::"));
            }
        }
        arrows
    };
    (0..modules.len()).map(arrows_of).collect()
}

struct Resolver<'a> {
    modules: &'a [&'a Module],
    by_path: BTreeMap<&'a [String], usize>,
}

impl Resolver<'_> {
    /// Returns the module that defines the target of a path in the module `at`. Returns `None` if
    /// the target is in another crate.
    fn resolve(&self, at: usize, path: &[String], steps: usize) -> Option<usize> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.descend(*self.by_path.get(&[][..])?, rest, steps),
            "self" => self.descend(at, rest, steps),
            "super" => {
                let (_, parent) = self.modules[at].path.split_last()?;
                let parent = *self.by_path.get(parent)?;
                if rest.first().is_some_and(|next| next == "super") {
                    return self.resolve(parent, rest, steps);
                }
                self.descend(parent, rest, steps)
            }
            _ => self.member(at, first, rest, steps),
        }
    }

    /// Returns the module that defines the target of a path. The path begins with a name in the
    /// module `at`.
    fn descend(&self, at: usize, path: &[String], steps: usize) -> Option<usize> {
        match path.split_first() {
            Some((first, rest)) => self.member(at, first, rest, steps),
            None => Some(at),
        }
    }

    fn member(&self, at: usize, name: &String, rest: &[String], steps: usize) -> Option<usize> {
        let module = self.modules[at];
        let child = [&module.path[..], std::slice::from_ref(name)].concat();
        // The same name may be a child module and an imported function.
        if let Some(&child) = self.by_path.get(&child[..])
            && (!rest.is_empty() || !module.imported.contains_key(name))
        {
            return self.descend(child, rest, steps);
        }
        if module.defined.contains(name) {
            return Some(at);
        }
        let steps = steps.checked_sub(1)?;
        if let Some(path) = module.imported.get(name) {
            let path = [path, rest].concat();
            return self.resolve(at, &path, steps);
        }
        module.globs.iter().find_map(|glob| {
            let from = self.resolve(at, glob, steps)?;
            if from == at { None } else { self.member(from, name, rest, steps) }
        })
    }
}

/// Visits the syntax of a file, and adds its names to `module`.
struct Reader {
    module: Module,
    /// The number of inline modules that enclose the current code.
    depth: usize,
}

impl Reader {
    /// Records a used path. A path in an inline module is rewritten to begin at the file's module.
    fn name(&mut self, mut path: Vec<String>) {
        // In a macro, `super` without a path is part of `pub(super)`.
        if let [only] = &path[..]
            && ["crate", "self", "super"].contains(&only.as_str())
        {
            return;
        }
        for _ in 0..self.depth {
            if path.first().is_some_and(|first| first == "super") {
                path.remove(0);
                if path.first().is_none_or(|first| first != "super") {
                    path.insert(0, "self".to_owned());
                    break;
                }
            }
        }
        self.module.named.insert(path);
    }

    /// Records an import. A re-export is not a use, so that a file may re-export the names of its
    /// children.
    fn import(&mut self, tree: &UseTree, prefix: &[String], is_export: bool) {
        let with = |ident: &syn::Ident| [prefix, &[ident.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &with(&path.ident), is_export),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.import(item, prefix, is_export)),
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = prefix.last() {
                    self.import_as(last.clone(), prefix.to_vec(), is_export);
                }
            }
            UseTree::Name(name) => self.import_as(name.ident.to_string(), with(&name.ident), is_export),
            UseTree::Rename(rename) => {
                self.import_as(rename.rename.to_string(), with(&rename.ident), is_export);
            }
            UseTree::Glob(_) => self.module.globs.push(prefix.to_vec()),
        }
    }

    fn import_as(&mut self, name: String, path: Vec<String>, is_export: bool) {
        // A path with only one name, as in `use a;`, imports a crate.
        if self.depth == 0 && path.len() > 1 {
            self.module.imported.insert(name, path.clone());
        }
        if !is_export {
            self.name(path);
        }
    }

    /// Records the paths in the tokens of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 && !path.is_empty() {
                        self.name(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    if !path.is_empty() {
                        self.name(std::mem::take(&mut path));
                    }
                    if let TokenTree::Group(group) = token {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        if !path.is_empty() {
            self.name(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Mod(item) => {
                if item.content.is_none() {
                    if is_for_tests(&item.attrs) {
                        self.module.test_children.push(item.ident.to_string());
                    }
                    return;
                }
                (&item.attrs, Some(&item.ident))
            }
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Use(item) => (&item.attrs, None),
            _ => return visit::visit_item(self, item),
        };
        if is_for_tests(attributes) {
            return;
        }
        if let Some(name) = name
            && self.depth == 0
        {
            self.module.defined.insert(name.to_string());
        }
        let within = usize::from(matches!(item, Item::Mod(_)));
        self.depth += within;
        visit::visit_item(self, item);
        self.depth -= within;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
    }

    /// Ignores `pub(super)` and `pub(in path)`, because they are not dependencies.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.name(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the dependencies between files, given as path and text. A dependency has the form
    /// `from -> to`.
    fn check(files: &[(&str, &str)], expect: &[&str]) {
        let parse = |&(path, text): &(&str, &str)| {
            let file = File { path: path.to_owned(), text: text.to_owned() };
            Module::parse(&file, path).unwrap_or_else(|| panic!("{path} is not Rust"))
        };
        let modules: Vec<_> = files.iter().map(parse).collect();
        let modules: Vec<_> = modules.iter().collect();
        let arrows = arrows(&modules);
        let name = |module: usize| files[module].0.trim_end_matches(".rs");
        let found: Vec<_> = arrows
            .iter()
            .enumerate()
            .flat_map(|(from, to)| to.keys().map(move |&to| format!("{} -> {}", name(from), name(to))))
            .collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn a_path_leads_to_the_file_that_defines_the_name() {
        let lib = ("lib.rs", "mod a;\nmod b;\npub use a::Deep;\npub struct Own;\n");
        let a = ("a.rs", "pub struct Deep;\npub fn f() {}\n");
        check(&[lib, a, ("b.rs", "use crate::Deep;\n")], &["b -> a"]);
        check(&[lib, a, ("b.rs", "use crate::Own;\n")], &["b -> lib"]);
        check(&[lib, a, ("b.rs", "use super::a;\nfn g() { a::f() }\n")], &["b -> a"]);
        check(&[lib, a, ("b.rs", "use crate::*;\nfn g(_: Deep) {}\n")], &["b -> a"]);
        check(&[lib, a, ("b.rs", "fn g() { matches!(1, crate::a::Deep) }\n")], &["b -> a"]);
        check(&[lib, a, ("b.rs", "use other::Deep;\n")], &[]);
    }

    #[test]
    fn a_file_that_uses_what_it_re_exports_depends_on_it() {
        let lib = ("lib.rs", "mod a;\npub use a::Deep;\nfn f(_: Deep) {}\n");
        check(&[lib, ("a.rs", "pub struct Deep;\n")], &["lib -> a"]);
    }

    #[test]
    fn tests_and_declarations_make_no_arrow() {
        let lib = ("lib.rs", "mod a;\npub struct Own;\n#[cfg(test)]\nmod tests { use crate::a::f; }\n");
        check(&[lib, ("a.rs", "pub fn f() {}\n")], &[]);
        check(&[lib, ("a.rs", "mod inner { use super::super::Own; }\n")], &["a -> lib"]);
    }
}
