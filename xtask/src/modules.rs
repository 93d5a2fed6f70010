//! Computes the module graph of each crate, by file, and its cycles.
//!
//! A file depends on each file that defines a name which it uses. Paths are followed through
//! re-exports and imports to the definition. A `mod.rs` that only declares and re-exports its
//! children is therefore in no cycle with them. Code under `#[cfg(test)]` does not count, and
//! method calls are not followed.

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
    /// The path of each file, from the root of the workspace.
    files: Vec<String>,
    /// For each file, the files that it depends on, each with a path in the first file that leads
    /// to the second.
    arrows: Vec<BTreeMap<usize, String>>,
}

/// A strongly connected component: files that each reach all others.
pub struct Cycle<'a> {
    /// Its files, sorted.
    pub files: Vec<&'a str>,
    /// The dependencies between them: the dependent file, the file that it depends on, and a path
    /// in the first file that leads to the second.
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

/// Formats the cycles of one crate, or of all.
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
