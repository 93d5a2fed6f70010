//! Checks that each public item of the crate `tilewright` has a tested example.
//!
//! - Each type, trait, macro and function needs its own example. This rule includes functions of a
//!   type without `self`.
//! - A method with `self` needs no example if an example of its type calls the method.
//! - If `lib.rs` exports a name from another crate of the project, the export needs an example.
//! - An example must call each function of a type that `lib.rs` exports from another crate. The
//!   example may be at the function or at any export.
//! - The comments of the C header need examples that call each of its functions.

use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned;
use syn::{Attribute, Expr, ExprLit, ImplItem, Item, Lit, Meta, Type, UseTree, Visibility};

use crate::tree::{File, Finding, Tree};

const FOLDER: &str = "crates/tilewright/src/";
const ROOT: &str = "crates/tilewright/src/lib.rs";
const RULE: &str = "example";
/// The header of the C interface. In a comment, a line with the indentation `HEADER_CODE` is code.
const HEADER: &str = "crates/c/include/tilewright.h";
const HEADER_CODE: &str = "       ";

/// Checks the examples of the public Rust API.
pub fn of_public_items(tree: &Tree) -> Vec<Finding> {
    let files: Vec<(&File, syn::File)> = tree
        .rust()
        .filter(|file| file.path.starts_with(FOLDER))
        .filter_map(|file| Some((file, syn::parse_file(&file.text).ok()?)))
        .collect();
    let Some((root, syntax)) = files.iter().find(|(file, _)| file.path == ROOT) else { return Vec::new() };
    let mut api = Api::default();
    api.read_exports(root, syntax);
    let items = || files.iter().flat_map(|(file, syntax)| syntax.items.iter().map(move |item| (file, item)));
    items().for_each(|(file, item)| api.read_item(file, item));
    items().for_each(|(file, item)| api.read_functions(file, item));
    api.read_foreign_functions(tree);
    api.findings.extend(api.methods.iter().filter_map(|method| method.check(&api.calls)));
    api.findings
}

/// Checks the examples of the C header.
pub fn of_c_functions(tree: &Tree) -> Vec<Finding> {
    let Some(header) = tree.files.iter().find(|file| file.path == HEADER) else { return Vec::new() };
    let (mut example, mut declared, mut is_comment) = (String::new(), Vec::new(), false);
    for (number, line) in header.lines() {
        is_comment |= line.starts_with("/*");
        if !is_comment {
            let names = line.split_once('(').and_then(|(before, _)| before.rsplit([' ', '*']).next());
            declared.extend(names.filter(|name| name.starts_with("tw_")).map(|name| (number, name)));
        } else if line.starts_with(HEADER_CODE) {
            example.push_str(line);
        }
        is_comment &= !line.contains("*/");
    }
    let is_missing = |&(_, name): &(usize, &str)| !example.contains(&format!("{name}("));
    let missing = declared.into_iter().filter(is_missing);
    let finding = |(line, name)| {
        let message = format!("no example calls `{name}`: write one, in a comment of the header");
        Finding::new(HEADER, line, RULE, message)
    };
    missing.map(finding).collect()
}

/// The public items of the crate, collected file by file.
#[derive(Default)]
struct Api {
    /// The names that `lib.rs` exports from modules of the crate.
    exports: BTreeSet<String>,
    /// The text of the examples of each type and of its functions.
    calls: BTreeMap<String, String>,
    /// The names that `lib.rs` exports from other crates, and their crates.
    foreign: BTreeSet<(String, String)>,
    /// The text of the examples at the exports of these names.
    foreign_calls: String,
    methods: Vec<Method>,
    findings: Vec<Finding>,
}

/// A public method with `self` that does not have its own example.
struct Method {
    path: String,
    line: usize,
    ty: String,
    name: String,
}

impl Method {
    /// Returns a finding if no example of the type calls the method.
    fn check(&self, calls: &BTreeMap<String, String>) -> Option<Finding> {
        let Self { path, line, ty, name } = self;
        let is_called = calls.get(ty).is_some_and(|text| text.contains(&format!(".{name}(")));
        (!is_called).then(|| {
            let message =
                format!("no example calls `{ty}::{name}`: write one, in its docs or those of the type");
            Finding::new(path, *line, RULE, message)
        })
    }
}

impl Api {
    /// Reads the `pub use` items of `lib.rs`. An item that exports names of a crate `tilewright_*`
    /// must have an example.
    fn read_exports(&mut self, root: &File, syntax: &syn::File) {
        let modules: BTreeSet<String> = syntax
            .items
            .iter()
            .filter_map(
                |item| if let Item::Mod(module) = item { Some(module.ident.to_string()) } else { None },
            )
            .collect();
        for item in &syntax.items {
            let Item::Use(item) = item else { continue };
            let UseTree::Path(path) = &item.tree else { continue };
            if !is_public(&item.vis) || is_hidden(&item.attrs) {
                continue;
            }
            let (first, mut names) = (path.ident.to_string(), Vec::new());
            add_names(&path.tree, &mut names);
            if modules.contains(&first) {
                self.exports.extend(names);
            } else if first.starts_with("tilewright_") {
                let line = item.span().start().line;
                self.require(root, line, &item.attrs, &names.join(", "));
                self.foreign_calls.push_str(&examples(&item.attrs));
                self.foreign.extend(names.into_iter().map(|name| (first.clone(), name)));
            }
        }
    }

    /// Checks the public functions of the exported types. An example at an export or at the
    /// function must call the function.
    fn read_foreign_functions(&mut self, tree: &Tree) {
        // By folder, so that each file is parsed only once.
        let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (crate_name, name) in std::mem::take(&mut self.foreign) {
            names.entry(defining_folder(tree, &crate_name, &name)).or_default().insert(name);
        }
        for (folder, names) in names {
            for file in tree.rust().filter(|file| file.path.starts_with(&folder)) {
                let Ok(syntax) = syn::parse_file(&file.text) else { continue };
                for item in &syntax.items {
                    let Item::Impl(item) = item else { continue };
                    let Type::Path(ty) = &*item.self_ty else { continue };
                    let name = ty.path.segments.last().map(|last| last.ident.to_string());
                    if let Some(name) = name.filter(|name| item.trait_.is_none() && names.contains(name)) {
                        self.read_foreign_impl(file, &name, &item.items);
                    }
                }
            }
        }
    }

    fn read_foreign_impl(&mut self, file: &File, ty: &str, items: &[ImplItem]) {
        for function in items {
            let ImplItem::Fn(function) = function else { continue };
            if !is_public(&function.vis) || is_hidden(&function.attrs) {
                continue;
            }
            let name = function.sig.ident.to_string();
            let own = examples(&function.attrs);
            let is_called =
                |text: &str| text.contains(&format!(".{name}(")) || text.contains(&format!("{ty}::{name}"));
            if !is_called(&own) && !is_called(&self.foreign_calls) {
                let line = function.sig.ident.span().start().line;
                let message =
                    format!("no example calls `{ty}::{name}`: write one, at the export of `{ty}` in {ROOT}");
                self.findings.push(Finding::new(&file.path, line, RULE, message));
            }
        }
    }

    fn read_item(&mut self, file: &File, item: &Item) {
        let (name, attributes, line) = match item {
            Item::Struct(item) => (&item.ident, &item.attrs, item.ident.span()),
            Item::Enum(item) => (&item.ident, &item.attrs, item.ident.span()),
            Item::Trait(item) => (&item.ident, &item.attrs, item.ident.span()),
            Item::Fn(item) => (&item.sig.ident, &item.attrs, item.sig.ident.span()),
            Item::Macro(item) if item.attrs.iter().any(|a| a.path().is_ident("macro_export")) => {
                let Some(name) = &item.ident else { return };
                self.require(file, name.span().start().line, &item.attrs, &name.to_string());
                return;
            }
            _ => return,
        };
        let name = name.to_string();
        if is_hidden(attributes) {
            self.exports.remove(&name);
        } else if self.exports.contains(&name) {
            self.require(file, line.start().line, attributes, &name);
            self.calls.entry(name).or_default().push_str(&examples(attributes));
        }
    }

    fn read_functions(&mut self, file: &File, item: &Item) {
        let Item::Impl(item) = item else { return };
        if item.trait_.is_some() {
            return;
        }
        let Type::Path(ty) = &*item.self_ty else { return };
        let Some(ty) = ty.path.segments.last().map(|segment| segment.ident.to_string()) else { return };
        if !self.exports.contains(&ty) {
            return;
        }
        for function in &item.items {
            let ImplItem::Fn(function) = function else { continue };
            if !is_public(&function.vis) || is_hidden(&function.attrs) {
                continue;
            }
            let (name, line) = (function.sig.ident.to_string(), function.sig.ident.span().start().line);
            self.calls.entry(ty.clone()).or_default().push_str(&examples(&function.attrs));
            if function.sig.receiver().is_none() {
                self.require(file, line, &function.attrs, &format!("{ty}::{name}"));
            } else if examples(&function.attrs).is_empty() {
                self.methods.push(Method { path: file.path.clone(), line, ty: ty.clone(), name });
            }
        }
    }

    fn require(&mut self, file: &File, line: usize, attributes: &[Attribute], name: &str) {
        if examples(attributes).is_empty() {
            let message = format!("the docs of `{name}` have no example: write one that runs");
            self.findings.push(Finding::new(&file.path, line, RULE, message));
        }
    }
}

/// Returns the folder of the crate that defines a name that `crate_name` exports.
fn defining_folder(tree: &Tree, crate_name: &str, name: &str) -> String {
    let folder = format!("crates/{}/src/", crate_name.trim_start_matches("tilewright_").replace('_', "-"));
    let root = tree.files.iter().find(|file| file.path == format!("{folder}lib.rs"));
    let syntax = root.and_then(|root| syn::parse_file(&root.text).ok());
    for item in syntax.iter().flat_map(|syntax| &syntax.items) {
        let Item::Use(item) = item else { continue };
        let UseTree::Path(path) = &item.tree else { continue };
        let (first, mut names) = (path.ident.to_string(), Vec::new());
        add_names(&path.tree, &mut names);
        if first.starts_with("tilewright_") && is_public(&item.vis) && names.iter().any(|found| found == name)
        {
            return defining_folder(tree, &first, name);
        }
    }
    folder
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("doc")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "hidden")
    })
}

/// Adds the last names of the paths in an import. Skips renames, because `lib.rs` renames only
/// whole crates.
fn add_names(tree: &UseTree, names: &mut Vec<String>) {
    match tree {
        UseTree::Name(name) => names.push(name.ident.to_string()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_names(tree, names)),
        UseTree::Path(path) => add_names(&path.tree, names),
        UseTree::Rename(_) | UseTree::Glob(_) => {}
    }
}

/// Returns the code of the examples in a doc comment, which are the code blocks that rustdoc
/// compiles.
fn examples(attributes: &[Attribute]) -> String {
    let (mut code, mut block) = (String::new(), None);
    for attribute in attributes {
        let Meta::NameValue(meta) = &attribute.meta else { continue };
        let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &meta.value else { continue };
        if !meta.path.is_ident("doc") {
            continue;
        }
        for line in text.value().lines() {
            match (line.trim_start().strip_prefix("```"), block) {
                (Some(language), None) => block = Some(!matches!(language, "text" | "ignore")),
                (Some(_), Some(_)) => block = None,
                (None, Some(true)) => {
                    code.push_str(line);
                    code.push('\n');
                }
                (None, _) => {}
            }
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::found;

    const EXAMPLE: &str = "/// ```\n/// f();\n/// ```\n";

    fn check(root: &str, module: &str) -> Vec<String> {
        found(of_public_items, &[(ROOT, root), ("crates/tilewright/src/m.rs", module)])
    }

    #[test]
    fn exported_items_need_an_example() {
        let item = "pub struct S;\npub struct Private;\npub fn f() {}\n";
        let findings = check("mod m;\npub use m::{S, f};\n", item);
        assert_eq!(
            findings,
            ["crates/tilewright/src/m.rs:1: example", "crates/tilewright/src/m.rs:3: example"]
        );
        let item = format!("{EXAMPLE}pub struct S;\n");
        assert_eq!(check("mod m;\npub use m::S;\n", &item), [""; 0]);
        let ignored = item.replace("/// ```\n/// f", "/// ```ignore\n/// f");
        assert_eq!(check("mod m;\npub use m::S;\n", &ignored), ["crates/tilewright/src/m.rs:4: example"]);
        let hidden = "impl S { pub fn f(&self) {} }\n#[doc(hidden)]\npub struct S;\n#[macro_export]\nmacro_rules! m { () => {}; }\n";
        assert_eq!(check("mod m;\npub use m::S;\n", hidden), ["crates/tilewright/src/m.rs:5: example"]);
    }

    #[test]
    fn names_of_other_crates_need_an_example_at_their_export() {
        let root = format!("pub use half::f16;\n{EXAMPLE}pub use tilewright_base::Code;\n");
        assert_eq!(check(&root, ""), [""; 0]);
        let root = "pub use tilewright_base::{Code, Kind};\npub use tilewright_ir as ir;\n";
        assert_eq!(check(root, ""), ["crates/tilewright/src/lib.rs:1: example"]);
    }

    #[test]
    fn functions_of_exported_types_need_an_example() {
        let export = |call: &str| format!("/// ```\n/// {call};\n/// ```\npub use tilewright_base::Code;\n");
        let base = "impl Code {\npub fn name(&self) {}\n#[doc(hidden)]\npub fn f() {}\nfn g() {}\n}\n";
        let check = |root: &str| {
            let files = [
                (ROOT, root),
                ("crates/base/src/lib.rs", "pub use tilewright_ir::Code;\n"),
                ("crates/base/src/codes.rs", "impl Code {\npub fn other() {}\n}\n"),
                ("crates/ir/src/codes.rs", base),
            ];
            found(of_public_items, &files)
        };
        assert_eq!(check(&export("code.name()")), [""; 0]);
        assert_eq!(check(&export("Code::name")), [""; 0]);
        assert_eq!(check(&export("code.names()")), ["crates/ir/src/codes.rs:2: example"]);
    }

    #[test]
    fn functions_of_the_header_need_an_example() {
        let header = |call: &str| {
            format!("/* Opens.\n\n       {call};\n*/\n\n/* See tw_close(). */\ntw_lock *tw_open(int tw_a);\n")
        };
        let check = |call: &str| found(of_c_functions, &[(HEADER, &header(call))]);
        assert_eq!(check("tw_open(1)"), [""; 0]);
        assert_eq!(check("tw_opened(1)"), ["crates/c/include/tilewright.h:7: example"]);
    }

    #[test]
    fn a_method_may_share_an_example_and_a_constructor_may_not() {
        let module = |called: &str| {
            format!(
                "/// ```\n/// S::new(){called};\n/// ```\npub struct S;\nimpl S {{\npub fn new() -> S {{ S }}\n\
                 pub fn len(&self) -> usize {{ 0 }}\nfn private(&self) {{}}\n}}\n"
            )
        };
        let findings = check("mod m;\npub use m::S;\n", &module(".len()"));
        assert_eq!(findings, ["crates/tilewright/src/m.rs:6: example"]);
        let findings = check("mod m;\npub use m::S;\n", &module(""));
        assert_eq!(
            findings,
            ["crates/tilewright/src/m.rs:6: example", "crates/tilewright/src/m.rs:7: example"]
        );
    }
}
