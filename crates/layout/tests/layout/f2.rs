//! Compares the linear algebra with an enumeration of subspaces.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use tilewright_layout::f2;

use crate::random::check;

/// Returns every sum of the vectors.
fn span(vectors: &[u32]) -> BTreeSet<u32> {
    vectors
        .iter()
        .fold(BTreeSet::from([0]), |all, vector| all.iter().flat_map(|sum| [*sum, sum ^ vector]).collect())
}

fn vectors() -> impl Strategy<Value = Vec<u32>> {
    vec(0..128_u32, 0..9)
}

#[test]
fn rank_and_independence() {
    check(300, vectors(), |vectors| {
        let all = span(&vectors);
        assert_eq!(1 << f2::rank(&vectors), all.len());
        let basis = f2::independent(&vectors);
        assert_eq!((1 << basis.len(), span(&basis)), (all.len(), all));
    });
}

#[test]
fn many_vectors_have_few_that_are_independent() {
    let many: Vec<u32> = (0..200).map(|number| number % 7).collect();
    assert_eq!((&f2::independent(&many)[..], f2::rank(&many)), (&[1, 2, 4][..], 3));
}

#[test]
fn solutions_are_sums_of_the_earliest() {
    check(300, (vectors(), 0..128_u32), |(vectors, target)| {
        let solution = f2::Span::of(&vectors).solve(target).map(|sum| sum as u32);
        assert_eq!(solution.is_some(), span(&vectors).contains(&target));
        if let Some(solution) = solution {
            assert_eq!(f2::multiply(&vectors, solution), target);
            // No vector in the solution is a sum of earlier ones.
            for bit in (0..vectors.len()).filter(|bit| solution >> bit & 1 == 1) {
                assert!(!span(&vectors[..bit]).contains(&vectors[bit]));
            }
        }
    });
}

#[test]
fn kernels_hold_all_that_is_sent_to_zero() {
    check(300, vectors(), |vectors| {
        let zeros = (0..1_u32 << vectors.len()).filter(|vector| f2::multiply(&vectors, *vector) == 0);
        assert_eq!(span(&f2::kernel(&vectors)), zeros.collect());
    });
}

#[test]
fn inverses_invert() {
    check(300, vec(0..64_u32, 6), |columns| {
        let inverse = f2::inverse(&columns, 6);
        assert_eq!(inverse.is_some(), span(&columns).len() == 64);
        for vector in 0..64 {
            if let Some(inverse) = &inverse {
                assert_eq!(f2::multiply(inverse, f2::multiply(&columns, vector)), vector);
            }
        }
    });
}

#[test]
fn intersections_and_complements() {
    check(500, (vectors(), vectors()), |(a, b)| {
        let (all_a, all_b) = (span(&a), span(&b));
        let common = f2::intersection(&a, &b);
        assert_eq!(span(&common), all_a.intersection(&all_b).copied().collect());
        assert_eq!(1 << common.len(), span(&common).len());
        let rest = f2::complement(&a, &b);
        assert!(rest.iter().all(|vector| b.contains(vector)));
        assert_eq!(span(&rest).intersection(&all_a).count(), 1);
        assert_eq!(span(&[&a[..], &rest[..]].concat()), span(&[a, b].concat()));
    });
}

#[test]
fn a_complement_avoids_two_spaces() {
    check(1000, (vectors(), vectors(), 0..7_usize), |(p, q, dimension)| {
        let within = f2::independent(&(0..7).map(|bit| 1 << bit).collect::<Vec<u32>>());
        let (rank_p, rank_q) = (f2::rank(&p), f2::rank(&q));
        if dimension + rank_p > 7 {
            return;
        }
        let chosen = f2::complement_avoiding(&p, &q, &within, dimension);
        assert_eq!(f2::rank(&chosen), dimension);
        assert_eq!(f2::intersection(&chosen, &p).len(), 0);
        assert_eq!(f2::intersection(&chosen, &q).len(), (dimension + rank_q).saturating_sub(7));
    });
}
