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

const METHOD: &[Place] = &[Place::Root, Place::Method];

pub(super) static NOT_YET: &[Family] = &[
    Family {
        docs: &["gathering elements of a tile"],
        places: METHOD,
        signatures: &["gather(src, index, axis)"],
    },
    Family {
        docs: &["joining and splitting tiles"],
        places: METHOD,
        signatures: &[
            "join(a, b)",
            "split(a)",
            "cat(input, other, can_reorder=False, dim=0)",
            "interleave(a, b)",
        ],
    },
];
