//! Multiplies matrices with the tiles of AMX: 8 registers of 16 rows of 64 bytes. Tiles of A and of
//! B have 16 by 16 words. An instruction multiplies two such tiles, and adds the product to a tile
//! of 16 by 16 numbers. As in [`vectors`](super::vectors), a word of B has elements of one column
//! with consecutive k.

use crate::run::memory::MatrixReader;

/// The number of rows of a tile, and of words in a row.
const SIDE: usize = 16;

/// The number of bytes of a row.
const ROW: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TileProduct {
    Bf16,
    /// The names say whether the elements of A, then those of B, are signed.
    SignedSigned,
    SignedUnsigned,
    UnsignedSigned,
    UnsignedUnsigned,
}

/// Proves that the processor has AMX for bf16 and 8-bit integers, and that the system permits it.
#[derive(Clone, Copy)]
pub(crate) struct Amx(());

impl Amx {
    /// Returns the token if the processor has the instructions.
    pub(crate) fn new() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
        {
            static IS_AVAILABLE: std::sync::LazyLock<bool> = std::sync::LazyLock::new(is_available);
            return IS_AVAILABLE.then_some(Self(()));
        }
        #[allow(unreachable_code, reason = "on systems without AMX it is not")]
        None
    }

    /// Returns whether A (`m` rows of `row_bytes` bytes) and B (`n` columns) consist of whole
    /// tiles.
    pub(crate) fn accepts(m: usize, n: usize, row_bytes: usize) -> bool {
        m.is_multiple_of(SIDE) && n.is_multiple_of(SIDE) && row_bytes.is_multiple_of(ROW) && row_bytes > 0
    }

    /// Adds the product of `a` and `b` to the accumulator. `a` and `b` are matrices of words, and
    /// the accumulator is dense. Panics unless all have whole tiles and contiguous rows.
    #[allow(clippy::unused_self, reason = "it proves that the processor has the instructions")]
    pub(crate) fn multiply(
        self,
        product: TileProduct,
        acc: &mut [u32],
        a: MatrixReader<'_>,
        b: MatrixReader<'_>,
    ) {
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
        with_tiles(|| match product {
            TileProduct::Bf16 => blocks::bf16(acc, a, b),
            TileProduct::SignedSigned => blocks::signed_signed(acc, a, b),
            TileProduct::SignedUnsigned => blocks::signed_unsigned(acc, a, b),
            TileProduct::UnsignedSigned => blocks::unsigned_signed(acc, a, b),
            TileProduct::UnsignedUnsigned => blocks::unsigned_unsigned(acc, a, b),
        });
        #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
        let _ = (product, acc, a, b);
    }
}

/// Returns whether AMX is available. Requests the permission to use tiles from Linux.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
fn is_available() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
    /// The code of `arch_prctl` that requests the permission to use a state component.
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    /// The state component of the data of tiles.
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    /// The bits of AMX-BF16, AMX-TILE and AMX-INT8 in EDX of CPUID leaf 7.
    const AMX: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    /// The bits of XCR0 for the state of tiles, which the system has to save.
    const TILE_STATES: u64 = 3 << 17;
    /// The bits of XSAVE and OSXSAVE in ECX of CPUID leaf 1. OSXSAVE means that the system uses
    /// XSAVE.
    const XSAVE: u32 = 1 << 26 | 1 << 27;

    #[target_feature(enable = "xsave")]
    fn saved_states() -> u64 {
        // SAFETY: the caller has checked that the system has enabled the instruction.
        unsafe { _xgetbv(0) }
    }

    if __cpuid(0).eax < 7 || __cpuid(1).ecx & XSAVE != XSAVE || __cpuid_count(7, 0).edx & AMX != AMX {
        return false;
    }
    // SAFETY: the processor has XSAVE, and the system has enabled it. The call only extends the
    // permissions of the process.
    unsafe {
        saved_states() & TILE_STATES == TILE_STATES
            && libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0
    }
}

/// Runs a function while all tiles of this thread have 16 rows of 64 bytes.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
fn with_tiles(function: impl FnOnce()) {
    #[repr(C, align(64))]
    struct Configuration {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }
    let mut configuration =
        Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    configuration.row_bytes[..8].fill(ROW as u16);
    configuration.rows[..8].fill(SIDE as u8);
    // SAFETY: the caller has a token of `Amx`, and the configuration has 64 bytes. The compiler
    // keeps no values in tiles, and the code releases the tiles at the end.
    unsafe {
        std::arch::asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack, readonly));
        function();
        std::arch::asm!("tilerelease", options(nostack, nomem));
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod blocks {
    use super::{MatrixReader, SIDE};

    /// The operands of a block: addresses, strides in bytes, and the number of tiles along k.
    #[derive(Clone, Copy)]
    struct Block {
        acc: *mut u8,
        stride: usize,
        a: *const u8,
        a_stride: isize,
        b: *const u8,
        b_stride: isize,
        tiles: usize,
    }

    /// Calls `four` for each block of 2 by 2 tiles, and `one` for each tile of the remaining
    /// blocks.
    ///
    /// # Safety
    ///
    /// `four` and `one` may require only that the operands of a block are valid, and that tiles are
    /// configured.
    unsafe fn each(
        acc: &mut [u32],
        a: MatrixReader<'_>,
        b: MatrixReader<'_>,
        four: unsafe fn(Block),
        one: unsafe fn(Block),
    ) {
        let (m, n, words) = (a.rows(), b.columns(), a.columns());
        assert!(words == b.rows() && acc.len() == m * n, "the accumulator has the product");
        assert!([m, n, words].iter().all(|extent| extent.is_multiple_of(SIDE)) && words > 0);
        let ((a, a_stride), (b, b_stride)) = (a.words(), b.words());
        let (acc, stride) = (acc.as_mut_ptr().cast::<u8>(), n * size_of::<u32>());
        let block = |row: usize, column: usize| Block {
            acc: acc.wrapping_add(row * stride + column * size_of::<u32>()),
            stride,
            a: a.wrapping_offset(row as isize * a_stride),
            a_stride,
            b: b.wrapping_add(column * size_of::<u32>()),
            b_stride,
            tiles: words / SIDE,
        };
        for row in (0..m).step_by(2 * SIDE) {
            for column in (0..n).step_by(2 * SIDE) {
                if row + 2 * SIDE <= m && column + 2 * SIDE <= n {
                    // SAFETY: the checks above show that the tiles of the block are in the
                    // operands.
                    unsafe { four(block(row, column)) };
                    continue;
                }
                for row in (row..m.min(row + 2 * SIDE)).step_by(SIDE) {
                    for column in (column..n.min(column + 2 * SIDE)).step_by(SIDE) {
                        // SAFETY: the checks above show that the tile is in the operands.
                        unsafe { one(block(row, column)) };
                    }
                }
            }
        }
    }

    macro_rules! product {
        ($name:ident, $instruction:literal) => {
            /// Adds the product of `a` and `b` to the accumulator.
            pub(super) fn $name(acc: &mut [u32], a: MatrixReader<'_>, b: MatrixReader<'_>) {
                /// Computes 2 by 2 tiles.
                ///
                /// # Safety
                ///
                /// The operands are valid, and tiles are configured.
                unsafe fn four(block: Block) {
                    let Block { acc, stride, a, a_stride, b, b_stride, tiles } = block;
                    // SAFETY: the tiles are those of the operands. The loop runs at least once.
                    unsafe {
                        std::arch::asm!(
                            "tileloadd tmm0, [{c0} + {stride}*1]",
                            "tileloadd tmm1, [{c0} + {stride}*1 + 64]",
                            "tileloadd tmm2, [{c1} + {stride}*1]",
                            "tileloadd tmm3, [{c1} + {stride}*1 + 64]",
                            "2:",
                            "tileloadd tmm4, [{a0} + {a_stride}*1]",
                            "tileloadd tmm6, [{b} + {b_stride}*1]",
                            "tileloadd tmm7, [{b} + {b_stride}*1 + 64]",
                            "tileloadd tmm5, [{a1} + {a_stride}*1]",
                            concat!($instruction, " tmm0, tmm4, tmm6"),
                            concat!($instruction, " tmm1, tmm4, tmm7"),
                            concat!($instruction, " tmm2, tmm5, tmm6"),
                            concat!($instruction, " tmm3, tmm5, tmm7"),
                            "add {a0}, 64",
                            "add {a1}, 64",
                            "add {b}, {b_step}",
                            "dec {tiles}",
                            "jnz 2b",
                            "tilestored [{c0} + {stride}*1], tmm0",
                            "tilestored [{c0} + {stride}*1 + 64], tmm1",
                            "tilestored [{c1} + {stride}*1], tmm2",
                            "tilestored [{c1} + {stride}*1 + 64], tmm3",
                            c0 = in(reg) acc,
                            c1 = in(reg) acc.wrapping_add(SIDE * stride),
                            stride = in(reg) stride,
                            a0 = inout(reg) a => _,
                            a1 = inout(reg) a.wrapping_offset(SIDE as isize * a_stride) => _,
                            a_stride = in(reg) a_stride,
                            b = inout(reg) b => _,
                            b_stride = in(reg) b_stride,
                            b_step = in(reg) SIDE as isize * b_stride,
                            tiles = inout(reg) tiles => _,
                            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                            options(nostack),
                        );
                    }
                }

                /// Computes one tile.
                ///
                /// # Safety
                ///
                /// The operands are valid, and tiles are configured.
                unsafe fn one(block: Block) {
                    let Block { acc, stride, a, a_stride, b, b_stride, tiles } = block;
                    // SAFETY: the tiles are those of the operands. The loop runs at least once.
                    unsafe {
                        std::arch::asm!(
                            "tileloadd tmm0, [{c} + {stride}*1]",
                            "2:",
                            "tileloadd tmm4, [{a} + {a_stride}*1]",
                            "tileloadd tmm6, [{b} + {b_stride}*1]",
                            concat!($instruction, " tmm0, tmm4, tmm6"),
                            "add {a}, 64",
                            "add {b}, {b_step}",
                            "dec {tiles}",
                            "jnz 2b",
                            "tilestored [{c} + {stride}*1], tmm0",
                            c = in(reg) acc,
                            stride = in(reg) stride,
                            a = inout(reg) a => _,
                            a_stride = in(reg) a_stride,
                            b = inout(reg) b => _,
                            b_stride = in(reg) b_stride,
                            b_step = in(reg) SIDE as isize * b_stride,
                            tiles = inout(reg) tiles => _,
                            out("tmm0") _, out("tmm4") _, out("tmm6") _,
                            options(nostack),
                        );
                    }
                }

                // SAFETY: the contracts of `four` and `one` are those that `each` allows.
                unsafe { each(acc, a, b, four, one) };
            }
        };
    }
    product!(bf16, "tdpbf16ps");
    product!(signed_signed, "tdpbssd");
    product!(signed_unsigned, "tdpbsud");
    product!(unsigned_signed, "tdpbusd");
    product!(unsigned_unsigned, "tdpbuud");
}
