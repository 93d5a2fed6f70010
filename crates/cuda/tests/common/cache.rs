//! Creates a cache in a folder. The content of an entry depends only on its name.

use std::path::{Path, PathBuf};

use tilewright_cuda::{Cache, Key, Provenance, Settings};

pub fn cache(directory: &Path) -> Cache {
    cache_of(directory, 1 << 30)
}

pub fn cache_of(directory: &Path, cache_limit: u64) -> Cache {
    Cache::new(&Settings {
        library: None,
        cache_directory: Some(directory.to_owned()),
        cache_limit,
        cache_is_shared: false,
    })
}

pub fn key(name: &str) -> Key {
    Key::of(&[("name", name.as_bytes())])
}

pub fn content(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(5000).collect()
}

pub fn provenance() -> Provenance {
    Provenance { kernel: "add".into(), target: "sm_90".into(), ..Provenance::default() }
}

pub fn entry(directory: &Path, name: &str) -> PathBuf {
    let hex = key(name).to_hex();
    directory.join("tilewright-2").join(&hex[..1]).join(&hex)
}

/// Gets an entry, and returns whether the call built the entry.
pub fn get(cache: &Cache, name: &str) -> bool {
    let mut is_built = false;
    let build = || {
        is_built = true;
        Ok(content(name))
    };
    assert_eq!(cache.get_or_build(&key(name), &provenance(), build), Ok(content(name)));
    is_built
}

/// Returns names whose keys select the same folder of the cache.
pub fn names_of_one_folder() -> impl Iterator<Item = String> {
    (0..999).map(|number| format!("kernel {number}")).filter(|name| key(name).to_hex().starts_with('7'))
}
