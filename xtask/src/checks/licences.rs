//! Checks the license and the source of every dependency.
//!
//! The license must be permissive, and the source must be the registry.

use crate::metadata::Package;
use crate::tree::Finding;

/// Returns the licenses that `deny.toml` allows. cargo-deny and this check use the same list.
pub fn accepted(config: &str) -> Result<Vec<&str>, String> {
    let list = config.split_once("\nallow = [").and_then(|(_, rest)| rest.split_once(']'));
    let (list, _) = list.ok_or("deny.toml has no list `allow = [...]`")?;
    Ok(list.split('"').skip(1).step_by(2).collect())
}

/// Returns a finding for each package with another license, or from elsewhere than the registry.
pub fn check(packages: &[Package], accepted: &[&str]) -> Vec<Finding> {
    let name = |package: &Package| format!("{} {}", package.name, package.version);
    let licence = |package: &Package| {
        let problem = match &package.license {
            Some(licence) if is_accepted(licence, accepted) => return None,
            Some(licence) => format!("{} is licensed `{licence}`, which is not accepted", name(package)),
            None => format!("{} states no licence", name(package)),
        };
        Some(Finding::new("Cargo.lock", 1, "licence", problem))
    };
    let source = |package: &Package| {
        let source = package.source.as_ref().filter(|source| !source.starts_with("registry+"))?;
        let problem = format!("{} comes from `{source}`, not from the registry", name(package));
        Some(Finding::new("Cargo.lock", 1, "source", problem))
    };
    packages.iter().flat_map(|package| [licence(package), source(package)]).flatten().collect()
}

/// Evaluates an SPDX expression. The old form `MIT/Apache-2.0` means `OR`. An invalid expression is
/// not accepted.
fn is_accepted(expression: &str, accepted: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, accepted };
    parser.any_of().is_some_and(|accepted| accepted && parser.words.is_empty())
}

struct Parser<'a> {
    words: &'a [&'a str],
    accepted: &'a [&'a str],
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
            return Some(self.accepted.contains(&format!("{name} WITH {exception}").as_str()));
        }
        Some(self.accepted.contains(&name.as_str()))
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

    const ACCEPTED: [&str; 4] = ["Apache-2.0 WITH LLVM-exception", "Apache-2.0", "MIT", "Unicode-3.0"];

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
            assert!(is_accepted(accepted, &ACCEPTED), "{accepted}");
        }
        for refused in
            ["GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT Apache-2.0", "MIT WITH x", "", "MPL-2.0 OR"]
        {
            assert!(!is_accepted(refused, &ACCEPTED), "{refused}");
        }
    }

    fn messages(packages: &[Package]) -> Vec<String> {
        check(packages, &ACCEPTED).into_iter().map(|finding| finding.message).collect()
    }

    fn package(license: Option<&str>, source: Option<&str>) -> Package {
        Package {
            name: "x".into(),
            version: "1.0".into(),
            license: license.map(Into::into),
            source: source.map(Into::into),
            ..Package::default()
        }
    }

    #[test]
    fn a_dependency_without_an_accepted_licence_is_found() {
        let packages = [Some("MIT"), Some("GPL-3.0"), None].map(|license| package(license, None));
        assert_eq!(
            messages(&packages),
            ["x 1.0 is licensed `GPL-3.0`, which is not accepted", "x 1.0 states no licence"]
        );
    }

    #[test]
    fn a_dependency_from_a_repository_is_found() {
        let sources = [None, Some("registry+sparse"), Some("git+ssh://somewhere/x")];
        let packages = sources.map(|source| package(Some("MIT"), source));
        assert_eq!(messages(&packages), ["x 1.0 comes from `git+ssh://somewhere/x`, not from the registry"]);
    }

    #[test]
    fn the_list_is_that_of_cargo_deny() {
        let listed = accepted(include_str!("../../../deny.toml")).expect("it has a list");
        assert!(listed.contains(&"MIT") && listed.contains(&"Apache-2.0 WITH LLVM-exception"), "{listed:?}");
        assert_eq!(
            accepted("[licenses]\nallow = [\n    \"A\",\n    \"B WITH c\",\n]\n"),
            Ok(vec!["A", "B WITH c"])
        );
        assert!(accepted("[licenses]\n").is_err());
    }
}
