//! The instructions that multiply words in vector registers.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256i, __m512bh, __m512i, _mm256_add_epi32, _mm256_dpbusd_avx_epi32, _mm256_madd_epi16,
    _mm256_set1_epi32, _mm256_xor_si256, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_dpbf16_ps,
    _mm512_dpbusd_epi32, _mm512_set1_epi32, _mm512_xor_si512,
};

use crate::run::memory::Multiply;

pub(crate) trait WordToken: Multiply<Element = u32> {
    /// Runs a function that is compiled for the instructions of the token. Its callees must be
    /// inlined.
    fn vectorize(self, function: impl FnOnce());
}

/// Adds the products of 2 signed 16-bit elements by `vpmaddwd` of AVX2.
#[derive(Clone, Copy)]
pub(crate) struct MultiplyAdd(());

/// Adds the products of 4 elements of 8 bits by `vpdpbusd` of AVX-VNNI: signed elements of A and
/// unsigned elements of B. `prepare` first flips the bits of B that are set in `flipped`.
#[derive(Clone, Copy)]
pub(crate) struct AvxVnni {
    flipped: u32,
}

/// Adds the same products as [`AvxVnni`], in vectors of 512 bits.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Vnni {
    flipped: u32,
}

/// Adds the products of 2 bf16 elements to a binary32 number by `vdpbf16ps` of AVX512-BF16.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Bf16(());

const SIGNS: u32 = 0x8080_8080;

impl AvxVnni {
    /// Returns this token with the sign bits of B flipped.
    pub(crate) fn with_flipped_signs(mut self) -> Self {
        self.flipped = SIGNS;
        self
    }
}

impl Avx512Vnni {
    /// Returns this token with the sign bits of B flipped.
    pub(crate) fn with_flipped_signs(mut self) -> Self {
        self.flipped = SIGNS;
        self
    }
}

macro_rules! token {
    ($token:ident, $value:expr, [$($feature:tt),*], $features:literal) => {
        impl $token {
            /// Returns the token if the processor has the instructions.
            #[inline]
            pub(crate) fn new() -> Option<Self> {
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                if $(std::arch::is_x86_feature_detected!($feature))&&* {
                    return Some($value);
                }
                None
            }
        }

        impl WordToken for $token {
            #[inline]
            fn vectorize(self, function: impl FnOnce()) {
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = $features)]
                fn compiled(function: impl FnOnce()) {
                    function();
                }
                // SAFETY: a token exists only if the processor has the instructions.
                #[cfg(target_arch = "x86_64")]
                unsafe {
                    compiled(function);
                }
                #[cfg(not(target_arch = "x86_64"))]
                function();
            }
        }
    };
}
token!(MultiplyAdd, Self(()), ["avx2", "fma"], "avx2,fma");
token!(AvxVnni, Self { flipped: 0 }, ["avx2", "avxvnni"], "avx2,avxvnni");
token!(
    Avx512Vnni,
    Self { flipped: 0 },
    ["avx512f", "avx512bw", "avx512vl", "avx512vnni"],
    "avx512f,avx512bw,avx512vl,avx512vnni"
);
token!(
    Avx512Bf16,
    Self(()),
    ["avx512f", "avx512bw", "avx512vl", "avx512bf16"],
    "avx512f,avx512bw,avx512vl,avx512bf16"
);

macro_rules! multiply {
    (
        $token:ident, $vector:ty, $registers:literal, $splat:ident,
        |$self:ident, $b:ident| $prepare:expr, |$left:ident, $right:ident, $sum:ident| $add:expr
    ) => {
        #[cfg(target_arch = "x86_64")]
        impl Multiply for $token {
            type Element = u32;
            type Vector = $vector;
            const REGISTERS: usize = $registers;

            #[inline(always)]
            fn splat(self, word: u32) -> $vector {
                // SAFETY: a token exists only if the processor has the instructions.
                unsafe { $splat(word.cast_signed()) }
            }

            #[inline(always)]
            fn prepare($self, $b: $vector) -> $vector {
                // SAFETY: a token exists only if the processor has the instructions.
                #[allow(unused_unsafe, reason = "some tokens change nothing")]
                unsafe {
                    $prepare
                }
            }

            #[inline(always)]
            fn mul_add(self, $left: $vector, $right: $vector, $sum: $vector) -> $vector {
                // SAFETY: a token exists only if the processor has the instructions. Vectors of the
                // same size have no invalid bits.
                unsafe { $add }
            }
        }
    };
}
multiply!(MultiplyAdd, __m256i, 16, _mm256_set1_epi32, |self, b| b, |a, b, sum| _mm256_add_epi32(
    sum,
    _mm256_madd_epi16(a, b)
));
multiply!(
    AvxVnni,
    __m256i,
    16,
    _mm256_set1_epi32,
    |self, b| _mm256_xor_si256(b, _mm256_set1_epi32(self.flipped.cast_signed())),
    |a, b, sum| _mm256_dpbusd_avx_epi32(sum, b, a)
);
multiply!(
    Avx512Vnni,
    __m512i,
    32,
    _mm512_set1_epi32,
    |self, b| _mm512_xor_si512(b, _mm512_set1_epi32(self.flipped.cast_signed())),
    |a, b, sum| _mm512_dpbusd_epi32(sum, b, a)
);
multiply!(Avx512Bf16, __m512i, 32, _mm512_set1_epi32, |self, b| b, |a, b, sum| {
    let (a, b) = (std::mem::transmute::<__m512i, __m512bh>(a), std::mem::transmute::<__m512i, __m512bh>(b));
    _mm512_castps_si512(_mm512_dpbf16_ps(_mm512_castsi512_ps(sum), a, b))
});

/// Other processors have no token, so these operations are never called.
#[cfg(not(target_arch = "x86_64"))]
mod portable {
    use super::{Avx512Bf16, Avx512Vnni, AvxVnni, Multiply, MultiplyAdd};

    macro_rules! unreachable {
        ($($token:ident),*) => {$(
            impl Multiply for $token {
                type Element = u32;
                type Vector = u32;
                const REGISTERS: usize = 16;

                fn splat(self, _: u32) -> u32 {
                    std::unreachable!("the processor has no such instructions")
                }

                fn mul_add(self, _: u32, _: u32, _: u32) -> u32 {
                    std::unreachable!("the processor has no such instructions")
                }
            }
        )*};
    }
    unreachable!(MultiplyAdd, AvxVnni, Avx512Vnni, Avx512Bf16);
}
