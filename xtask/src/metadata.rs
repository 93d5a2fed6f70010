//! Reads the packages of the workspace and all their dependencies from `cargo metadata`.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

/// The output of `cargo metadata`.
#[derive(Deserialize, Debug)]
pub struct Metadata {
    /// The packages of every platform, including the packages of the workspace.
    pub packages: Vec<Package>,
}

/// A package.
#[derive(Deserialize, Default, Debug)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// The license in the manifest, as an SPDX expression.
    pub license: Option<String>,
    /// The source of the package, such as the registry. `None` for a package of this workspace.
    pub source: Option<String>,
    /// The dependencies in the manifest.
    pub dependencies: Vec<Dependency>,
}

/// A dependency in a manifest.
#[derive(Deserialize, Default, Debug)]
pub struct Dependency {
    /// The name of the package, even if the manifest renames it.
    pub name: String,
    /// The kind, `dev` or `build`. `None` for an ordinary dependency.
    pub kind: Option<String>,
}

/// Runs `cargo metadata` and returns its output.
pub fn read(root: &Path) -> Result<Metadata, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_cargo_is_read() {
        let answer = r#"{"packages": [{"name": "a", "version": "1.0.0", "license": null, "source": "registry+x",
            "dependencies": [{"name": "b", "kind": "dev", "rename": "c"}, {"name": "d", "kind": null}]}],
            "workspace_root": "/"}"#;
        let metadata: Metadata = serde_json::from_str(answer).expect("it is an answer");
        let [package] = &metadata.packages[..] else { panic!("there is one package") };
        assert_eq!((package.license.as_deref(), package.source.as_deref()), (None, Some("registry+x")));
        let dependencies = package.dependencies.iter().map(|one| (one.name.as_str(), one.kind.as_deref()));
        assert_eq!(dependencies.collect::<Vec<_>>(), [("b", Some("dev")), ("d", None)]);
    }
}
