//! Defines the choice of a tuner.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Request;

/// The configuration that a tuner chose for all launches with the same key.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The name of the tuned kernel.
    pub kernel: String,
    /// The digest of the source code of the kernel and of the functions that it calls.
    pub source: String,
    /// The target: `cpu`, or the name of a GPU target, such as `sm_90a`.
    pub target: String,
    /// The values of the tuner's key, and the dtypes of the tensors. Both have Python's notation.
    pub key: Vec<String>,
    /// The chosen arguments and options, by name, in Python's notation.
    pub config: BTreeMap<String, String>,
    /// For each measured configuration, the median, the 20th percentile and the 80th percentile of
    /// its times, in milliseconds. They are `None` for a configuration that did not run. The times
    /// do not affect a locked launch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timings: BTreeMap<String, Vec<Option<f64>>>,
}

impl Choice {
    /// Returns whether two choices are for the same launches. Such choices have the same kernel,
    /// target, source and key.
    pub fn has_same_key(&self, other: &Self) -> bool {
        self.sort_key() == other.sort_key()
    }

    /// Returns whether the launches of an entry may have the chosen configuration.
    ///
    /// Returns false if the kernel or the target differs. Also returns false if the choice and the
    /// entry have different literals (numbers, bools, `None` or strings) for one argument or
    /// option. Ignores names that the entry does not have, such as options that do not affect its
    /// code.
    pub fn may_select(&self, launches: &Request) -> bool {
        let fits = |(name, chosen): (&String, &String)| {
            let found = launches.arguments.get(name).or_else(|| launches.options.get(name));
            found.is_none_or(|found| may_be_equal(chosen, found))
        };
        (&self.kernel, &self.target) == (&launches.kernel, &launches.target) && self.config.iter().all(fits)
    }

    pub(crate) fn sort_key(&self) -> (&str, &str, &str, &[String]) {
        (&self.kernel, &self.target, &self.source, &self.key)
    }
}

/// Returns whether two texts may denote the same value. A text that is not a literal may denote any
/// value.
fn may_be_equal(one: &str, other: &str) -> bool {
    match (Literal::parse(one), Literal::parse(other)) {
        // Both texts may denote NaN.
        (Some(first), Some(second)) => one == other || first == second,
        _ => true,
    }
}

/// A literal of an argument or option, in the notation of Python or of an entry of a lock.
#[derive(PartialEq)]
enum Literal<'a> {
    None,
    Bool(bool),
    Number(f64),
    /// A string, including its quotes.
    Text(&'a str),
}

impl<'a> Literal<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        Some(match text {
            "None" => Self::None,
            "true" | "True" => Self::Bool(true),
            "false" | "False" => Self::Bool(false),
            _ if text.starts_with(['\'', '"']) => Self::Text(text),
            _ => Self::Number(text.parse().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn a_choice_selects_launches_whose_literals_are_equal() {
        let choice = |config: &[(&str, &str)]| Choice {
            kernel: "scale".into(),
            source: String::new(),
            target: "sm_90a".into(),
            key: Vec::new(),
            config: texts(config),
            timings: BTreeMap::new(),
        };
        let launches = Request {
            kernel: "scale".into(),
            target: "sm_90a".into(),
            arguments: texts(&[
                ("x_ptr", "*fp32:16"),
                ("n", "i32"),
                ("BLOCK", "64"),
                ("EPS", "0.00001"),
                ("MODE", "'fast'"),
                ("DTYPE", "fp16"),
                ("ON", "True"),
            ]),
            options: texts(&[("num_warps", "4"), ("maxnreg", "None"), ("enable_fp_fusion", "true")]),
            ir: String::new(),
        };
        for config in [
            &[][..],
            &[("BLOCK", "64"), ("num_warps", "4"), ("ir_override", "None")],
            &[("EPS", "1e-05"), ("MODE", "'fast'"), ("ON", "True"), ("enable_fp_fusion", "True")],
            &[("n", "100"), ("DTYPE", "triton.language.float16")],
        ] {
            assert!(choice(config).may_select(&launches), "{config:?}");
        }
        for config in [
            [("BLOCK", "32")],
            [("EPS", "0.1")],
            [("MODE", "'slow'")],
            [("MODE", "'FAST'")],
            [("ON", "False")],
            [("num_warps", "8")],
            [("maxnreg", "64")],
            [("enable_fp_fusion", "False")],
        ] {
            assert!(!choice(&config).may_select(&launches), "{config:?}");
        }
        let other_kernel = Choice { kernel: "add".into(), ..choice(&[]) };
        let other_target = Choice { target: "cpu".into(), ..choice(&[]) };
        assert!(!other_kernel.may_select(&launches));
        assert!(!other_target.may_select(&launches));
    }
}
