//! The names of `triton.language` that are known but not there yet. Their use gives a diagnostic that names the feature.

use super::table::Place;

/// Names that wait for one feature.
pub(super) struct Family {
    /// The feature.
    pub docs: &'static [&'static str],
    /// Where the names stand.
    pub places: &'static [Place],
    /// The names, with their parameters.
    pub signatures: &'static [&'static str],
}

const ROOT: &[Place] = &[Place::Root];
const METHOD: &[Place] = &[Place::Root, Place::Method];

pub(super) static NOT_YET: &[Family] = &[
    Family {
        docs: &["sorting"],
        places: METHOD,
        signatures: &[
            "sort(x, dim: constexpr=None, descending: constexpr=0)",
            "topk(x, k: constexpr, dim: constexpr=None, descending: constexpr=True)",
            "bitonic_merge(x, dim: constexpr=None, descending: constexpr=0)",
            "flip(x, dim=None)",
        ],
    },
    Family {
        docs: &["counting the elements of a tile"],
        places: METHOD,
        signatures: &["histogram(input, num_bins, mask=None)"],
    },
    Family {
        docs: &["functions of your own on each element"],
        places: ROOT,
        signatures: &["map_elementwise(scalar_fn, *args, pack=1)"],
    },
    Family {
        docs: &["assertions on values of an intermediate tile"],
        places: ROOT,
        signatures: &["expect_zero(x, mask)"],
    },
];
