//! Every dependency carries a licence that a permissively licensed project may ship, and comes from the registry.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::tree::Finding;

/// The licences that we accept. `deny.toml` holds the same list for cargo-deny.
pub const ACCEPTED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// A package that the workspace depends on: the licence that it states, and where cargo gets it.
#[derive(Debug)]
pub struct Dependency {
    pub name: String,
    pub licence: Option<String>,
    /// None for a package of this workspace.
    pub source: Option<String>,
}

/// Asks cargo for the packages of every platform.
pub fn dependencies(root: &Path) -> Result<Vec<Dependency>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let packages = metadata["packages"].as_array().ok_or("no packages in the answer of cargo")?;
    Ok(packages.iter().map(dependency).collect())
}

fn dependency(package: &Value) -> Dependency {
    let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
    let string = |key: &str| package[key].as_str().map(str::to_owned);
    Dependency { name, licence: string("license"), source: string("source") }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// Every stated licence can be met by accepted ones, and nothing comes from a repository, which may change or go away.
pub fn check(dependencies: &[Dependency]) -> Vec<Finding> {
    let licence = |dependency: &Dependency| {
        let problem = match &dependency.licence {
            Some(licence) if is_accepted(licence) => return None,
            Some(licence) => format!("{} is licensed `{licence}`, which is not accepted", dependency.name),
            None => format!("{} states no licence", dependency.name),
        };
        Some(Finding::new("Cargo.lock", 1, "licence", problem))
    };
    let source = |dependency: &Dependency| {
        let source = dependency.source.as_ref().filter(|source| !source.starts_with("registry+"))?;
        let problem = format!("{} comes from `{source}`, not from the registry", dependency.name);
        Some(Finding::new("Cargo.lock", 1, "source", problem))
    };
    dependencies.iter().flat_map(|dependency| [licence(dependency), source(dependency)]).flatten().collect()
}

/// Evaluates an SPDX expression; the old form `MIT/Apache-2.0` means `OR`. What does not parse is not accepted.
fn is_accepted(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words };
    parser.any_of().is_some_and(|accepted| accepted && parser.words.is_empty())
}

struct Parser<'a> {
    words: &'a [&'a str],
}

impl Parser<'_> {
    fn any_of(&mut self) -> Option<bool> {
        let mut accepted = self.all_of()?;
        while self.eat("OR") {
            accepted |= self.all_of()?;
        }
        Some(accepted)
    }

    fn all_of(&mut self) -> Option<bool> {
        let mut accepted = self.licence()?;
        while self.eat("AND") {
            accepted &= self.licence()?;
        }
        Some(accepted)
    }

    fn licence(&mut self) -> Option<bool> {
        if self.eat("(") {
            let accepted = self.any_of()?;
            return self.eat(")").then_some(accepted);
        }
        let name = self.next()?;
        if self.eat("WITH") {
            let exception = self.next()?;
            return Some(ACCEPTED.contains(&format!("{name} WITH {exception}").as_str()));
        }
        Some(ACCEPTED.contains(&name.as_str()))
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn next(&mut self) -> Option<String> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some((*first).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_evaluated() {
        for accepted in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Unlicense OR MIT",
        ] {
            assert!(is_accepted(accepted), "{accepted}");
        }
        for refused in
            ["GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT Apache-2.0", "MIT WITH x", "", "MPL-2.0 OR"]
        {
            assert!(!is_accepted(refused), "{refused}");
        }
    }

    #[test]
    fn a_dependency_without_an_accepted_licence_is_found() {
        let dependency = |licence: Option<&str>| Dependency {
            name: "x 1.0".into(),
            licence: licence.map(Into::into),
            source: None,
        };
        let findings = check(&[dependency(Some("MIT")), dependency(Some("GPL-3.0")), dependency(None)]);
        let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(
            messages,
            ["x 1.0 is licensed `GPL-3.0`, which is not accepted", "x 1.0 states no licence"]
        );
    }

    #[test]
    fn a_dependency_from_a_repository_is_found() {
        let dependency = |source: Option<&str>| Dependency {
            name: "x 1.0".into(),
            licence: Some("MIT".into()),
            source: source.map(Into::into),
        };
        let sources = [None, Some("registry+sparse"), Some("git+ssh://somewhere/x")];
        let findings = check(&sources.map(dependency));
        let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages, ["x 1.0 comes from `git+ssh://somewhere/x`, not from the registry"]);
    }

    #[test]
    fn cargo_deny_has_the_same_list() {
        let config = include_str!("../../../deny.toml");
        let list = config
            .split("allow = [")
            .nth(1)
            .and_then(|rest| rest.split(']').next())
            .expect("a list in deny.toml");
        let listed: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(listed, ACCEPTED);
    }
}
