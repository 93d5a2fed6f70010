//! Computes the module graph of each crate, and its cycles.
//!
//! The nodes are files. A file depends on the file that defines a name that it uses. The search for
//! the definition follows re-exports and imports, so a `mod.rs` that only re-exports its children
//! is in no cycle. Code under `#[cfg(test)]` and method calls do not count.

mod graph;
mod names;

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::Tree;
use names::Module;

/// The files of one crate and the dependencies between them.
#[derive(Debug)]
pub struct CrateModules {
    /// The name of the folder of the crate.
    pub name: String,
    /// The path of each file, relative to the root of the workspace.
    files: Vec<String>,
    /// The dependencies of each file: the other file, and a path in the code that leads to it.
    arrows: Vec<BTreeMap<usize, String>>,
}

/// A strongly connected component. Each of its files depends on all others, directly or indirectly.
pub struct Cycle<'a> {
    /// The files of the cycle, sorted.
    pub files: Vec<&'a str>,
    /// The dependencies between the files: the dependent file, the other file, and a path in the
    /// code of the dependent file.
    pub arrows: Vec<(&'a str, &'a str, &'a str)>,
}

impl CrateModules {
    /// Returns the module graphs of all crates below `crates/`, and of `xtask`.
    pub fn of(tree: &Tree) -> Vec<Self> {
        let mut crates: BTreeMap<&str, Vec<Module>> = BTreeMap::new();
        for file in tree.rust() {
            let Some((folder, inner)) = file.path.split_once("/src/") else { continue };
            if folder != "xtask" && !folder.starts_with("crates/") {
                continue;
            }
            let name = folder.strip_prefix("crates/").unwrap_or(folder);
            if let Some(module) = Module::parse(file, inner) {
                crates.entry(name).or_default().push(module);
            }
        }
        crates.into_iter().map(|(name, modules)| Self::new(name, &modules)).collect()
    }

    fn new(name: &str, modules: &[Module]) -> Self {
        // Files that only tests include are declared under `#[cfg(test)]`.
        let tests: BTreeSet<_> = modules.iter().flat_map(Module::test_children).collect();
        let is_test = |module: &&Module| !tests.iter().any(|test| module.path.starts_with(test));
        let modules: Vec<_> = modules.iter().filter(is_test).collect();
        let arrows = names::arrows(&modules);
        let files = modules.iter().map(|module| module.file.clone()).collect();
        Self { name: name.to_owned(), files, arrows }
    }

    /// Returns the cycles of two files or more, the largest first.
    pub fn cycles(&self) -> Vec<Cycle<'_>> {
        let targets: Vec<Vec<usize>> = self.arrows.iter().map(|to| to.keys().copied().collect()).collect();
        let mut cycles: Vec<_> =
            graph::components(&targets).into_iter().filter(|members| members.len() > 1).collect();
        cycles.sort_by_key(|members| (usize::MAX - members.len(), members.clone()));
        cycles.iter().map(|members| self.cycle(members)).collect()
    }

    fn cycle(&self, members: &[usize]) -> Cycle<'_> {
        let mut files: Vec<_> = members.iter().map(|&file| self.files[file].as_str()).collect();
        files.sort_unstable();
        let mut arrows = Vec::new();
        for &from in members {
            for (to, path) in self.arrows[from].iter().filter(|(to, _)| members.contains(to)) {
                arrows.push((self.files[from].as_str(), self.files[*to].as_str(), path.as_str()));
            }
        }
        arrows.sort_unstable();
        Cycle { files, arrows }
    }
}

/// Formats the cycles of one crate or of all crates.
pub fn print_cycles(tree: &Tree, only: Option<&str>) -> String {
    use std::fmt::Write;

    let mut text = String::new();
    for modules in CrateModules::of(tree) {
        if only.is_some_and(|only| only != modules.name) {
            continue;
        }
        for cycle in modules.cycles() {
            let _ = writeln!(text, "{}: a cycle of {} files", modules.name, cycle.files.len());
            for (from, to, path) in cycle.arrows {
                let _ = writeln!(text, "    {from} -> {to}: {path}");
            }
        }
    }
    text
}
