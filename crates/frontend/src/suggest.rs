//! Suggests the known name that is nearest to a mistyped name ("did you mean").

use strsim::osa_distance;

/// Returns the candidate with the smallest edit distance to `name`. The maximum distance is 1 for 2
/// to 4 characters, 2 for up to 8 characters, and 3 for more. Returns `None` for a shorter name, or
/// if no candidate is near enough.
///
/// A candidate that only differs in case has distance 0. `name` itself and names that begin with
/// `__` are not candidates. If several candidates are equally near, returns the first in
/// alphabetical order.
pub fn suggest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = match name.chars().count() {
        0..=1 => return None,
        2..=4 => 1,
        5..=8 => 2,
        _ => 3,
    };
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        if candidate == name || candidate.starts_with("__") {
            continue;
        }
        let distance = if candidate.eq_ignore_ascii_case(name) { 0 } else { osa_distance(name, candidate) };
        if distance <= most && best.is_none_or(|(least, other)| (distance, candidate) < (least, other)) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let names = ["BLOCK_SIZE", "mask", "offsets", "x_ptr", "y_ptr", "n"];
        assert_eq!(suggest("BLOCK_SIEZ", names), Some("BLOCK_SIZE"));
        assert_eq!(suggest("block_size", names), Some("BLOCK_SIZE"));
        assert_eq!(suggest("msak", names), Some("mask"));
        assert_eq!(suggest("z_ptr", names), Some("x_ptr"));
        assert_eq!(suggest("completely", names), None);
        assert_eq!(suggest("m", names), None);
    }
}
