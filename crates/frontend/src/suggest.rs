//! Did you mean …: the known name that is nearest to a mistyped one.

/// The candidate that is near enough to `name` to be worth suggesting; of several, the nearest, then the first in order.
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
        let distance = if candidate.eq_ignore_ascii_case(name) { 0 } else { distance(name, candidate, most) };
        if distance <= most && best.is_none_or(|(least, other)| (distance, candidate) < (least, other)) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The number of insertions, deletions, replacements and swaps of neighbours between two names; more than `most` is
/// not counted exactly.
fn distance(left: &str, right: &str, most: usize) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    if left.len().abs_diff(right.len()) > most {
        return most + 1;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    for (i, &l) in left.iter().enumerate() {
        let mut current = vec![i + 1];
        for (j, &r) in right.iter().enumerate() {
            let replaced = previous[j] + usize::from(l != r);
            let mut least = replaced.min(previous[j + 1] + 1).min(current[j] + 1);
            if i > 0 && j > 0 && l == right[j - 1] && left[i - 1] == r {
                least = least.min(before[j - 1] + 1);
            }
            current.push(least);
        }
        before = std::mem::replace(&mut previous, current);
    }
    previous[right.len()]
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
