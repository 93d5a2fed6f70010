//! Reads the settings of the driver and of the cache of cubins from environment variables.
//!
//! | variable | meaning |
//! |---|---|
//! | `TILEWRIGHT_LIBCUDA` | the driver library or its folder |
//! | `TRITON_LIBCUDA_PATH` | as `TILEWRIGHT_LIBCUDA`, if that variable is not set |
//! | `TILEWRIGHT_CACHE_DIR`, `TRITON_CACHE_DIR` | the folder of the cache (the first one that is set) |
//! | `TRITON_HOME`, `HOME`, `USERPROFILE` | the cache is in `.triton/cache` of this folder (the first one that is set), if neither variable of the row above is set |
//! | `TILEWRIGHT_CACHE_LIMIT` | MiB that the cache may take, 1024 if it is not set; 0 turns the cache off |
//! | `TILEWRIGHT_CACHE_SHARED` | `1`: the cache trusts the files of all users |

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The path of the driver, and the path, the limit and the trust of the cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The driver library or its folder. `None` selects the library of the system.
    pub library: Option<PathBuf>,
    /// The folder of the cache. `None` turns the cache off.
    pub cache_directory: Option<PathBuf>,
    /// The maximum number of bytes of the cache; 0 turns the cache off.
    pub cache_limit: u64,
    /// True if the cache trusts the files of all users.
    pub cache_is_shared: bool,
}

/// The default limit of the cache in bytes.
pub const CACHE_LIMIT: u64 = 1 << 30;

impl Settings {
    /// Reads the settings from the environment of this process.
    pub fn from_environment() -> Self {
        Self::read(|name| std::env::var_os(name))
    }

    /// Reads the settings with `variable`, which returns the value of an environment variable. An
    /// empty value counts as unset.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let first = |names: &[&str]| names.iter().find_map(|name| path(name));
        let home = || first(&["TRITON_HOME", "HOME", "USERPROFILE"]);
        let limit = path("TILEWRIGHT_CACHE_LIMIT").and_then(|text| text.to_str()?.trim().parse::<u64>().ok());
        Self {
            library: first(&["TILEWRIGHT_LIBCUDA", "TRITON_LIBCUDA_PATH"]),
            cache_directory: first(&["TILEWRIGHT_CACHE_DIR", "TRITON_CACHE_DIR"])
                .or_else(|| home().map(|home| home.join(".triton").join("cache"))),
            cache_limit: limit.map_or(CACHE_LIMIT, |mebibytes| mebibytes.saturating_mul(1 << 20)),
            cache_is_shared: variable("TILEWRIGHT_CACHE_SHARED").is_some_and(|value| is_on(&value)),
        }
    }
}

/// Returns whether a value turns a switch on.
fn is_on(value: &OsStr) -> bool {
    let on = ["1", "true", "yes", "on", "y"];
    value.to_str().is_some_and(|value| on.iter().any(|word| value.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Settings {
        Settings::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_first_variable_that_is_set_counts() {
        let nothing = Settings {
            library: None,
            cache_directory: None,
            cache_limit: CACHE_LIMIT,
            cache_is_shared: false,
        };
        assert_eq!(read(&[]), nothing);
        assert_eq!(read(&[("HOME", ""), ("TILEWRIGHT_LIBCUDA", "")]), nothing);
        assert_eq!(read(&[("HOME", "h")]).cache_directory, Some(["h", ".triton", "cache"].iter().collect()));
        assert_eq!(
            read(&[("HOME", "h"), ("TRITON_HOME", "t")]).cache_directory,
            Some(["t", ".triton", "cache"].iter().collect())
        );
        let both = [("TRITON_CACHE_DIR", "t"), ("TILEWRIGHT_CACHE_DIR", "w"), ("HOME", "h")];
        assert_eq!(read(&both).cache_directory, Some("w".into()));
        assert_eq!(read(&both[..1]).cache_directory, Some("t".into()));
        let both = [("TRITON_LIBCUDA_PATH", "t"), ("TILEWRIGHT_LIBCUDA", "w")];
        assert_eq!(read(&both).library, Some("w".into()));
        assert_eq!(read(&both[..1]).library, Some("t".into()));
    }

    #[test]
    fn the_limit_is_in_mebibytes() {
        assert_eq!(read(&[("TILEWRIGHT_CACHE_LIMIT", "3")]).cache_limit, 3 << 20);
        assert_eq!(read(&[("TILEWRIGHT_CACHE_LIMIT", "0")]).cache_limit, 0);
        assert_eq!(read(&[("TILEWRIGHT_CACHE_LIMIT", "many")]).cache_limit, CACHE_LIMIT);
    }

    #[test]
    fn a_shared_cache_is_a_switch() {
        for (value, is_on) in [("", false), ("0", false), ("off", false), ("1", true), ("Yes", true)] {
            assert_eq!(read(&[("TILEWRIGHT_CACHE_SHARED", value)]).cache_is_shared, is_on, "{value}");
        }
    }
}
