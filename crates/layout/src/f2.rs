//! Linear algebra over F2, the field of one bit.
//!
//! A vector is a `u32`, and addition is XOR. A list of vectors represents their span, or a matrix
//! by its columns. Example: `[0b01, 0b11]` spans all two-bit vectors.
//!
//! A layout has at most about 30 columns, so Gaussian elimination on machine words suffices.

use smallvec::SmallVec;

/// Vectors over F2: the columns of a matrix, or a list that spans a subspace. Bit `i` is component
/// `i`.
pub type Columns = SmallVec<[u32; 24]>;

/// Multiplies a matrix by a vector: adds the columns that the vector selects.
pub fn multiply(columns: &[u32], vector: u32) -> u32 {
    columns
        .iter()
        .enumerate()
        .fold(0, |sum, (bit, column)| sum ^ if vector >> bit & 1 == 1 { *column } else { 0 })
}

/// The span of the inserted vectors, in echelon form. For each echelon vector, the span records the
/// inserted vectors that sum to it. [`Span::solve`] combines these records.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// For each bit `i`, the echelon vector whose highest bit is `i`, or 0.
    pivots: [u32; 32],
    /// For each pivot, a mask of the inserted vectors that sum to it.
    sums: [u64; 32],
    rank: u32,
    inserted: u32,
}

impl Span {
    /// Creates the zero space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the span of the vectors.
    pub fn of(vectors: &[u32]) -> Self {
        let mut span = Self::new();
        span.extend(vectors);
        span
    }

    /// Inserts every vector.
    pub fn extend(&mut self, vectors: &[u32]) {
        for vector in vectors {
            self.insert(*vector);
        }
    }

    /// Inserts a vector. Returns whether it was outside of the span.
    ///
    /// # Panics
    /// On more than 64 vectors.
    pub fn insert(&mut self, vector: u32) -> bool {
        self.insert_or_explain(vector).is_ok()
    }

    /// Inserts a vector with the next index `i`, from 0. Returns `Err(mask)` if the vector is
    /// already in the span. The mask selects the earlier vectors that sum to it. So `mask | 1 << i`
    /// is in the null space of the matrix whose columns are the inserted vectors.
    ///
    /// # Panics
    /// On more than 64 vectors.
    pub fn insert_or_explain(&mut self, vector: u32) -> Result<(), u64> {
        assert!(self.inserted < 64, "a span remembers at most 64 vectors");
        let number = self.inserted;
        self.inserted += 1;
        let (rest, sum_of) = self.reduce(vector);
        let Some(highest) = rest.checked_ilog2() else { return Err(sum_of) };
        self.pivots[highest as usize] = rest;
        self.sums[highest as usize] = sum_of | 1 << number;
        self.rank += 1;
        Ok(())
    }

    /// Returns the dimension of the span.
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Returns whether the vector is a sum of inserted vectors.
    pub fn contains(&self, vector: u32) -> bool {
        self.reduce(vector).0 == 0
    }

    /// Returns the inserted vectors whose sum is `vector`, as a mask of their indices. Returns
    /// `None` if `vector` is not in the span. The mask uses only vectors that enlarged the span, so
    /// it is a linear function of `vector`.
    pub fn solve(&self, vector: u32) -> Option<u64> {
        let (rest, sum_of) = self.reduce(vector);
        (rest == 0).then_some(sum_of)
    }

    /// Subtracts pivots until the highest bit of the vector has no pivot. Returns the remainder and
    /// a mask of the subtracted inserted vectors. The remainder is 0 for a vector of the span.
    fn reduce(&self, mut vector: u32) -> (u32, u64) {
        let mut sum_of = 0;
        while let Some(highest) = vector.checked_ilog2() {
            let pivot = self.pivots[highest as usize];
            if pivot == 0 {
                break;
            }
            vector ^= pivot;
            sum_of ^= self.sums[highest as usize];
        }
        (vector, sum_of)
    }
}

/// Returns the dimension of the span of the vectors.
pub fn rank(vectors: &[u32]) -> usize {
    independent(vectors).len()
}

/// Returns a basis of the span: the vectors that are not sums of earlier ones.
pub fn independent(vectors: &[u32]) -> Columns {
    let mut span = Span::new();
    // A span records at most 64 vectors. Only independent ones are inserted, at most 32.
    vectors.iter().copied().filter(|&vector| !span.contains(vector) && span.insert(vector)).collect()
}

/// Returns a basis of the null space of the matrix with these columns. Each vector of the basis is
/// a mask of columns whose sum is zero. There must be at most 32 columns.
pub fn kernel(columns: &[u32]) -> Columns {
    let mut span = Span::new();
    let dependent = |(number, column): (usize, &u32)| {
        let sum_of = span.insert_or_explain(*column).err()?;
        Some(
            u32::try_from(sum_of | 1 << number)
                .expect("a vector of the kernel has as many bits as there are columns"),
        )
    };
    columns.iter().enumerate().filter_map(dependent).collect()
}

/// Returns the columns of the inverse of a matrix with `rows` rows. Returns `None` if the matrix is
/// not invertible.
pub fn inverse(columns: &[u32], rows: u32) -> Option<Columns> {
    let span = Span::of(columns);
    (span.rank() == columns.len()).then(|| right_inverse(&span, rows))?
}

/// Returns the columns of the matrix `R` for which `M R` is the identity. The columns of `M` are
/// the vectors that were inserted into the span. Returns `None` if the span is not the whole space
/// of `rows` bits. If columns of `M` are dependent, `R` uses the earliest of them.
pub fn right_inverse(span: &Span, rows: u32) -> Option<Columns> {
    (0..rows).map(|row| span.solve(1 << row).map(|sum_of| sum_of as u32)).collect()
}

/// Returns a basis of the intersection of two spans.
pub fn intersection(a: &[u32], b: &[u32]) -> Columns {
    let a = independent(a);
    let mut span = Span::of(&a);
    // Each dependence gives a vector of both spans: a sum of vectors of `a` and also of `b`.
    let own = (1_u64 << a.len()) - 1;
    let dependent = independent(b).into_iter().filter_map(|vector| span.insert_or_explain(vector).err());
    dependent.map(|sum_of| multiply(&a, (sum_of & own) as u32)).collect()
}

/// Returns a basis of a complement of `space` in its span with the candidates. The basis has each
/// candidate that is not in the span of `space` and the earlier candidates.
pub fn complement(space: &[u32], candidates: &[u32]) -> Columns {
    let mut span = Span::of(space);
    candidates.iter().copied().filter(|vector| span.insert(*vector)).collect()
}

/// Returns a subspace of `within`, of the given dimension, that intersects `p` only in zero. Its
/// intersection with `q` is as small as possible: only zero if `dimension + dim q <= dim within`.
/// The subspace prefers the earlier vectors of `within`. `p` and `q` have to be subspaces of
/// `within`.
///
/// The basis has vectors of `within` outside of `p + q` first. Then it has sums `a + b`, where `a`
/// of `p` and `b` of `q` are outside of `p ∩ q`. Such sums are neither in `p` nor in `q`. If `p`
/// has too few vectors, vectors of `q` follow.
///
/// # Panics
/// If `p` is too large: `dimension + dim p > dim within`.
pub fn complement_avoiding(p: &[u32], q: &[u32], within: &[u32], dimension: usize) -> Columns {
    let common = intersection(p, q);
    let only_p = complement(&common, p);
    let only_q = complement(&common, q);
    let mut both = Columns::from_slice(p);
    both.extend_from_slice(&only_q);
    let mut chosen = complement(&both, within);
    chosen.extend(only_p.iter().zip(&only_q).map(|(a, b)| a ^ b));
    chosen.extend(only_q.iter().skip(only_p.len()).copied());
    assert!(chosen.len() >= dimension, "no subspace of this dimension avoids p");
    chosen.truncate(dimension);
    chosen
}
