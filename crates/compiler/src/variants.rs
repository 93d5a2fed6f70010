//! Variants of a kernel's GPU code, for launches whose tensors some tensor maps cannot describe.
//!
//! ```text
//! all maps can be made                                 the kernel's own code
//! those of some accesses cannot                        code in which threads make these accesses
//! more sets of accesses than are kept (MAX_VARIANTS)   code without tensor maps
//! ```
//! A launch finds an access unfit for a reason that the compiler would have known for other
//! arguments (a base or strides that are not aligned), so it gets the code that the compiler would
//! have made for these. If only the rows of C end within 16 bytes, A and B stay tensor copies; if
//! the rows of A are not aligned, B does.

use smallvec::SmallVec;
use tilewright_gpu_ir::TensorAccess;

/// The maximum number of variants of a kernel, besides the one without tensor maps: all subsets of
/// three tensors, such as those of a matmul.
pub const MAX_VARIANTS: usize = 7;

/// The accesses that a variant of a kernel's code does not make by tensor copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TensorMapVariant {
    /// These accesses, in order.
    Without(SmallVec<[TensorAccess; 4]>),
    /// All of them.
    NoMaps,
}

impl TensorMapVariant {
    /// Chooses the variant for a launch that cannot make the maps of `unfit` accesses, given the
    /// variants that are compiled already.
    pub fn choose<'v>(
        unfit: impl IntoIterator<Item = TensorAccess>,
        compiled: impl IntoIterator<Item = &'v Self>,
    ) -> Self {
        let mut unfit: SmallVec<[TensorAccess; 4]> = unfit.into_iter().collect();
        unfit.sort_unstable();
        let exact = Self::Without(unfit);
        let mut count = 0;
        for variant in compiled {
            if *variant == exact {
                return exact;
            }
            count += usize::from(*variant != Self::NoMaps);
        }
        if count < MAX_VARIANTS { exact } else { Self::NoMaps }
    }

    /// Returns whether threads make an access.
    pub fn is_without(&self, access: TensorAccess) -> bool {
        match self {
            Self::Without(accesses) => accesses.contains(&access),
            Self::NoMaps => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_a_limited_number_of_variants() {
        let access = |base| TensorAccess { base, is_written: false };
        let variant = |bases: &[u32]| TensorMapVariant::Without(bases.iter().copied().map(access).collect());
        let choose = |bases: &[u32], compiled: &[TensorMapVariant]| {
            TensorMapVariant::choose(bases.iter().copied().map(access), compiled)
        };
        let mut compiled = Vec::new();
        for base in 0..7 {
            compiled.push(choose(&[base + 1, base], &compiled));
            assert_eq!(compiled.last(), Some(&variant(&[base, base + 1])));
            if base == 0 {
                // It is not counted.
                compiled.push(TensorMapVariant::NoMaps);
            }
        }
        assert_eq!(choose(&[9], &compiled), TensorMapVariant::NoMaps);
        assert_eq!(choose(&[3, 4], &compiled), variant(&[3, 4]));
        assert!(variant(&[3, 4]).is_without(access(4)) && !variant(&[3, 4]).is_without(access(5)));
        assert!(TensorMapVariant::NoMaps.is_without(access(5)));
    }
}
