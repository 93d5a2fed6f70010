//! Defines the choice of a tuner.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The configuration that a tuner chose for the launches that share a key.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The name of the tuned kernel.
    pub kernel: String,
    /// The digest of the source of the kernel and of the functions that it calls.
    pub source: String,
    /// The target: `cpu`, or the target of a GPU, such as `sm_90a`.
    pub target: String,
    /// The values of the tuner's key and the dtypes of the tensors, as Python writes them.
    pub key: Vec<String>,
    /// The chosen arguments and options by name, as Python writes them.
    pub config: BTreeMap<String, String>,
    /// For each measured configuration, the median and the 20th and 80th percentile of its times in
    /// milliseconds; `None` for a configuration that did not run. The times do not affect a locked
    /// launch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timings: BTreeMap<String, Vec<Option<f64>>>,
}

impl Choice {
    /// Returns whether both choices are for the same launches.
    pub fn has_same_key(&self, other: &Self) -> bool {
        self.sort_key() == other.sort_key()
    }

    pub(crate) fn sort_key(&self) -> (&str, &str, &str, &[String]) {
        (&self.kernel, &self.target, &self.source, &self.key)
    }
}
