//! Chooses variants of a kernel's GPU code for tensors that tensor maps cannot describe.
//!
//! ```text
//! the launch can create all maps             the kernel's own code
//! the maps of some accesses are impossible   code in which threads make these accesses
//! MAX_VARIANTS other variants exist already  code without tensor maps
//! ```
//! For example, a tensor map needs a base and strides that are multiples of 16 bytes. If only the
//! rows of C in a matmul are not, the variant still loads A and B by tensor copies (TMA).

use std::fmt;

use smallvec::SmallVec;
use tilewright_gpu_ir::TensorAccess;

/// The maximum number of variants of a kernel, not counting the variant without tensor maps. The
/// number suffices for every non-empty subset of three tensors, such as those of a matmul.
pub const MAX_VARIANTS: usize = 7;

/// The accesses that use loads and stores of threads, instead of tensor copies, in a variant of a
/// kernel's code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TensorMapVariant {
    /// These accesses, sorted.
    Without(SmallVec<[TensorAccess; 4]>),
    /// All accesses.
    NoMaps,
}

impl TensorMapVariant {
    /// Chooses the variant for a launch that cannot create the tensor maps of the `unfit` accesses.
    ///
    /// `compiled` are the existing variants. If [`MAX_VARIANTS`] variants exist and none of them
    /// matches, the result is [`Self::NoMaps`].
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

    /// Parses the name of a variant in a lock; [`Display`](fmt::Display) writes such names.
    pub fn parse(name: &str) -> Option<Self> {
        if name == "all" {
            return Some(Self::NoMaps);
        }
        let accesses = name.split(' ').map(|access| {
            let (kind, base) = access.split_once(':')?;
            let is_written = match kind {
                "load" => false,
                "store" => true,
                _ => return None,
            };
            Some(TensorAccess { base: base.parse().ok()?, is_written })
        });
        Some(Self::Without(accesses.collect::<Option<_>>()?))
    }

    /// Returns whether threads, instead of a tensor copy, make an access.
    pub fn is_without(&self, access: TensorAccess) -> bool {
        match self {
            Self::Without(accesses) => accesses.contains(&access),
            Self::NoMaps => true,
        }
    }
}

/// Writes the name of the variant in a lock. The name lists the accesses with the indices of their
/// arguments, such as `load:0 store:2`, or is `all`.
impl fmt::Display for TensorMapVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Without(accesses) = self else { return f.write_str("all") };
        for (index, TensorAccess { base, is_written }) in accesses.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{}:{base}", if *is_written { "store" } else { "load" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        let access = |base, is_written| TensorAccess { base, is_written };
        let some = TensorMapVariant::Without([access(0, false), access(2, true)].into_iter().collect());
        for (variant, name) in [(some, "load:0 store:2"), (TensorMapVariant::NoMaps, "all")] {
            assert_eq!(variant.to_string(), name);
            assert_eq!(TensorMapVariant::parse(name), Some(variant));
        }
        for name in ["", "load", "load:x", "move:1", "load:0  store:1"] {
            assert_eq!(TensorMapVariant::parse(name), None, "{name}");
        }
    }

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
                // `NoMaps` does not count towards `MAX_VARIANTS`.
                compiled.push(TensorMapVariant::NoMaps);
            }
        }
        assert_eq!(choose(&[9], &compiled), TensorMapVariant::NoMaps);
        assert_eq!(choose(&[3, 4], &compiled), variant(&[3, 4]));
        assert!(variant(&[3, 4]).is_without(access(4)) && !variant(&[3, 4]).is_without(access(5)));
        assert!(TensorMapVariant::NoMaps.is_without(access(5)));
    }
}
