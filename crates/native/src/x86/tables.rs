//! Lists the instructions of x86-64 for operations on vectors.

use iced_x86::Code as C;

use super::Isa;
use crate::ir::{Binary, Lane};

/// An instruction per lane type, in the order of [`Lane`], or `INVALID`.
type ByLane = [C; 6];

const NONE: C = C::INVALID;

/// The instructions of functions of two vectors: those of AVX-512, then those of AVX2.
static BINARY: [(Binary, ByLane, ByLane); 18] = [
    (
        Binary::Add,
        [
            C::EVEX_Vpaddb_xmm_k1z_xmm_xmmm128,
            C::EVEX_Vpaddw_ymm_k1z_ymm_ymmm256,
            C::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpaddq_zmm_k1z_zmm_zmmm512b64,
            C::EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er,
            C::EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er,
        ],
        [
            C::VEX_Vpaddb_xmm_xmm_xmmm128,
            C::VEX_Vpaddw_xmm_xmm_xmmm128,
            C::VEX_Vpaddd_ymm_ymm_ymmm256,
            C::VEX_Vpaddq_ymm_ymm_ymmm256,
            C::VEX_Vaddps_ymm_ymm_ymmm256,
            C::VEX_Vaddpd_ymm_ymm_ymmm256,
        ],
    ),
    (
        Binary::Sub,
        [
            C::EVEX_Vpsubb_xmm_k1z_xmm_xmmm128,
            C::EVEX_Vpsubw_ymm_k1z_ymm_ymmm256,
            C::EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpsubq_zmm_k1z_zmm_zmmm512b64,
            C::EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er,
            C::EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er,
        ],
        [
            C::VEX_Vpsubb_xmm_xmm_xmmm128,
            C::VEX_Vpsubw_xmm_xmm_xmmm128,
            C::VEX_Vpsubd_ymm_ymm_ymmm256,
            C::VEX_Vpsubq_ymm_ymm_ymmm256,
            C::VEX_Vsubps_ymm_ymm_ymmm256,
            C::VEX_Vsubpd_ymm_ymm_ymmm256,
        ],
    ),
    (
        Binary::Mul,
        [
            NONE,
            C::EVEX_Vpmullw_ymm_k1z_ymm_ymmm256,
            C::EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpmullq_zmm_k1z_zmm_zmmm512b64,
            C::EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er,
            C::EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er,
        ],
        [
            NONE,
            C::VEX_Vpmullw_xmm_xmm_xmmm128,
            C::VEX_Vpmulld_ymm_ymm_ymmm256,
            NONE,
            C::VEX_Vmulps_ymm_ymm_ymmm256,
            C::VEX_Vmulpd_ymm_ymm_ymmm256,
        ],
    ),
    (
        Binary::Div,
        [
            NONE,
            NONE,
            NONE,
            NONE,
            C::EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er,
            C::EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er,
        ],
        [NONE, NONE, NONE, NONE, C::VEX_Vdivps_ymm_ymm_ymmm256, C::VEX_Vdivpd_ymm_ymm_ymmm256],
    ),
    (Binary::Scale, [NONE, NONE, NONE, NONE, C::EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er, NONE], [NONE; 6]),
    (
        Binary::Lesser,
        [
            C::EVEX_Vpminsb_xmm_k1z_xmm_xmmm128,
            C::EVEX_Vpminsw_ymm_k1z_ymm_ymmm256,
            C::EVEX_Vpminsd_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpminsq_zmm_k1z_zmm_zmmm512b64,
            C::EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae,
            C::EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae,
        ],
        [
            C::VEX_Vpminsb_xmm_xmm_xmmm128,
            C::VEX_Vpminsw_xmm_xmm_xmmm128,
            C::VEX_Vpminsd_ymm_ymm_ymmm256,
            NONE,
            C::VEX_Vminps_ymm_ymm_ymmm256,
            C::VEX_Vminpd_ymm_ymm_ymmm256,
        ],
    ),
    (
        Binary::Greater,
        [
            C::EVEX_Vpmaxsb_xmm_k1z_xmm_xmmm128,
            C::EVEX_Vpmaxsw_ymm_k1z_ymm_ymmm256,
            C::EVEX_Vpmaxsd_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpmaxsq_zmm_k1z_zmm_zmmm512b64,
            C::EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae,
            C::EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae,
        ],
        [
            C::VEX_Vpmaxsb_xmm_xmm_xmmm128,
            C::VEX_Vpmaxsw_xmm_xmm_xmmm128,
            C::VEX_Vpmaxsd_ymm_ymm_ymmm256,
            NONE,
            C::VEX_Vmaxps_ymm_ymm_ymmm256,
            C::VEX_Vmaxpd_ymm_ymm_ymmm256,
        ],
    ),
    (
        Binary::LesserUnsigned,
        [
            C::EVEX_Vpminub_xmm_k1z_xmm_xmmm128,
            C::EVEX_Vpminuw_ymm_k1z_ymm_ymmm256,
            C::EVEX_Vpminud_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpminuq_zmm_k1z_zmm_zmmm512b64,
            NONE,
            NONE,
        ],
        [
            C::VEX_Vpminub_xmm_xmm_xmmm128,
            C::VEX_Vpminuw_xmm_xmm_xmmm128,
            C::VEX_Vpminud_ymm_ymm_ymmm256,
            NONE,
            NONE,
            NONE,
        ],
    ),
    (
        Binary::GreaterUnsigned,
        [
            C::EVEX_Vpmaxub_xmm_k1z_xmm_xmmm128,
            C::EVEX_Vpmaxuw_ymm_k1z_ymm_ymmm256,
            C::EVEX_Vpmaxud_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpmaxuq_zmm_k1z_zmm_zmmm512b64,
            NONE,
            NONE,
        ],
        [
            C::VEX_Vpmaxub_xmm_xmm_xmmm128,
            C::VEX_Vpmaxuw_xmm_xmm_xmmm128,
            C::VEX_Vpmaxud_ymm_ymm_ymmm256,
            NONE,
            NONE,
            NONE,
        ],
    ),
    (
        Binary::And,
        [
            C::EVEX_Vpandd_xmm_k1z_xmm_xmmm128b32,
            C::EVEX_Vpandd_ymm_k1z_ymm_ymmm256b32,
            C::EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpandq_zmm_k1z_zmm_zmmm512b64,
            C::EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpandq_zmm_k1z_zmm_zmmm512b64,
        ],
        [
            C::VEX_Vpand_xmm_xmm_xmmm128,
            C::VEX_Vpand_xmm_xmm_xmmm128,
            C::VEX_Vpand_ymm_ymm_ymmm256,
            C::VEX_Vpand_ymm_ymm_ymmm256,
            C::VEX_Vandps_ymm_ymm_ymmm256,
            C::VEX_Vandpd_ymm_ymm_ymmm256,
        ],
    ),
    (
        Binary::Or,
        [
            C::EVEX_Vpord_xmm_k1z_xmm_xmmm128b32,
            C::EVEX_Vpord_ymm_k1z_ymm_ymmm256b32,
            C::EVEX_Vpord_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vporq_zmm_k1z_zmm_zmmm512b64,
            C::EVEX_Vpord_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vporq_zmm_k1z_zmm_zmmm512b64,
        ],
        [
            C::VEX_Vpor_xmm_xmm_xmmm128,
            C::VEX_Vpor_xmm_xmm_xmmm128,
            C::VEX_Vpor_ymm_ymm_ymmm256,
            C::VEX_Vpor_ymm_ymm_ymmm256,
            C::VEX_Vorps_ymm_ymm_ymmm256,
            C::VEX_Vorpd_ymm_ymm_ymmm256,
        ],
    ),
    (
        Binary::Xor,
        [
            C::EVEX_Vpxord_xmm_k1z_xmm_xmmm128b32,
            C::EVEX_Vpxord_ymm_k1z_ymm_ymmm256b32,
            C::EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64,
            C::EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64,
        ],
        [
            C::VEX_Vpxor_xmm_xmm_xmmm128,
            C::VEX_Vpxor_xmm_xmm_xmmm128,
            C::VEX_Vpxor_ymm_ymm_ymmm256,
            C::VEX_Vpxor_ymm_ymm_ymmm256,
            C::VEX_Vxorps_ymm_ymm_ymmm256,
            C::VEX_Vxorpd_ymm_ymm_ymmm256,
        ],
    ),
    (
        Binary::AndNot,
        [
            C::EVEX_Vpandnd_xmm_k1z_xmm_xmmm128b32,
            C::EVEX_Vpandnd_ymm_k1z_ymm_ymmm256b32,
            C::EVEX_Vpandnd_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpandnq_zmm_k1z_zmm_zmmm512b64,
            C::EVEX_Vpandnd_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpandnq_zmm_k1z_zmm_zmmm512b64,
        ],
        [
            C::VEX_Vpandn_xmm_xmm_xmmm128,
            C::VEX_Vpandn_xmm_xmm_xmmm128,
            C::VEX_Vpandn_ymm_ymm_ymmm256,
            C::VEX_Vpandn_ymm_ymm_ymmm256,
            C::VEX_Vandnps_ymm_ymm_ymmm256,
            C::VEX_Vandnpd_ymm_ymm_ymmm256,
        ],
    ),
    (
        Binary::Shl,
        [
            NONE,
            C::EVEX_Vpsllvw_ymm_k1z_ymm_ymmm256,
            C::EVEX_Vpsllvd_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpsllvq_zmm_k1z_zmm_zmmm512b64,
            NONE,
            NONE,
        ],
        [NONE, NONE, C::VEX_Vpsllvd_ymm_ymm_ymmm256, C::VEX_Vpsllvq_ymm_ymm_ymmm256, NONE, NONE],
    ),
    (
        Binary::Shr,
        [
            NONE,
            C::EVEX_Vpsrlvw_ymm_k1z_ymm_ymmm256,
            C::EVEX_Vpsrlvd_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpsrlvq_zmm_k1z_zmm_zmmm512b64,
            NONE,
            NONE,
        ],
        [NONE, NONE, C::VEX_Vpsrlvd_ymm_ymm_ymmm256, C::VEX_Vpsrlvq_ymm_ymm_ymmm256, NONE, NONE],
    ),
    (
        Binary::Sar,
        [
            NONE,
            C::EVEX_Vpsravw_ymm_k1z_ymm_ymmm256,
            C::EVEX_Vpsravd_zmm_k1z_zmm_zmmm512b32,
            C::EVEX_Vpsravq_zmm_k1z_zmm_zmmm512b64,
            NONE,
            NONE,
        ],
        [NONE, NONE, C::VEX_Vpsravd_ymm_ymm_ymmm256, NONE, NONE, NONE],
    ),
    (
        Binary::MulHighSigned,
        [NONE, C::EVEX_Vpmulhw_ymm_k1z_ymm_ymmm256, NONE, NONE, NONE, NONE],
        [NONE, C::VEX_Vpmulhw_xmm_xmm_xmmm128, NONE, NONE, NONE, NONE],
    ),
    (
        Binary::MulHighUnsigned,
        [NONE, C::EVEX_Vpmulhuw_ymm_k1z_ymm_ymmm256, NONE, NONE, NONE, NONE],
        [NONE, C::VEX_Vpmulhuw_xmm_xmm_xmmm128, NONE, NONE, NONE, NONE],
    ),
];

pub fn binary(isa: Isa, function: Binary, lane: Lane) -> Option<C> {
    let (_, wide, narrow) = BINARY.iter().find(|row| row.0 == function)?;
    by_lane(isa, wide, narrow, lane)
}

fn by_lane(isa: Isa, wide: &ByLane, narrow: &ByLane, lane: Lane) -> Option<C> {
    let code = match isa {
        Isa::Avx512 => wide[lane as usize],
        Isa::Avx2 => narrow[lane as usize],
    };
    (code != NONE).then_some(code)
}

static LOAD: (ByLane, ByLane) = (
    [
        C::EVEX_Vmovdqu8_xmm_k1z_xmmm128,
        C::EVEX_Vmovdqu16_ymm_k1z_ymmm256,
        C::EVEX_Vmovdqu32_zmm_k1z_zmmm512,
        C::EVEX_Vmovdqu64_zmm_k1z_zmmm512,
        C::EVEX_Vmovups_zmm_k1z_zmmm512,
        C::EVEX_Vmovupd_zmm_k1z_zmmm512,
    ],
    [
        C::VEX_Vmovq_xmm_xmmm64,
        C::VEX_Vmovdqu_xmm_xmmm128,
        C::VEX_Vmovdqu_ymm_ymmm256,
        C::VEX_Vmovdqu_ymm_ymmm256,
        C::VEX_Vmovups_ymm_ymmm256,
        C::VEX_Vmovupd_ymm_ymmm256,
    ],
);

/// Returns the instruction that loads a register of lanes, with a mask in AVX-512.
pub fn load(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &LOAD;
    by_lane(isa, wide, narrow, lane)
}

static STORE: (ByLane, ByLane) = (
    [
        C::EVEX_Vmovdqu8_xmmm128_k1z_xmm,
        C::EVEX_Vmovdqu16_ymmm256_k1z_ymm,
        C::EVEX_Vmovdqu32_zmmm512_k1z_zmm,
        C::EVEX_Vmovdqu64_zmmm512_k1z_zmm,
        C::EVEX_Vmovups_zmmm512_k1z_zmm,
        C::EVEX_Vmovupd_zmmm512_k1z_zmm,
    ],
    [
        C::VEX_Vmovq_xmmm64_xmm,
        C::VEX_Vmovdqu_xmmm128_xmm,
        C::VEX_Vmovdqu_ymmm256_ymm,
        C::VEX_Vmovdqu_ymmm256_ymm,
        C::VEX_Vmovups_ymmm256_ymm,
        C::VEX_Vmovupd_ymmm256_ymm,
    ],
);

/// Returns the instruction that stores a register of lanes, with a mask in AVX-512.
pub fn store(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &STORE;
    by_lane(isa, wide, narrow, lane)
}

static STORE_STREAMING: (ByLane, ByLane) = (
    [
        C::EVEX_Vmovntdq_m128_xmm,
        C::EVEX_Vmovntdq_m256_ymm,
        C::EVEX_Vmovntdq_m512_zmm,
        C::EVEX_Vmovntdq_m512_zmm,
        C::EVEX_Vmovntps_m512_zmm,
        C::EVEX_Vmovntpd_m512_zmm,
    ],
    [
        C::VEX_Vmovq_xmmm64_xmm,
        C::VEX_Vmovntdq_m128_xmm,
        C::VEX_Vmovntdq_m256_ymm,
        C::VEX_Vmovntdq_m256_ymm,
        C::VEX_Vmovntps_m256_ymm,
        C::VEX_Vmovntpd_m256_ymm,
    ],
);

/// Returns the instruction that stores past the caches. For 8-bit lanes, AVX2 has none: returns an
/// ordinary store.
pub fn store_streaming(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &STORE_STREAMING;
    by_lane(isa, wide, narrow, lane)
}

static LOAD_MASKED: (ByLane, ByLane) = (
    [NONE, NONE, NONE, NONE, NONE, NONE],
    [
        NONE,
        NONE,
        C::VEX_Vpmaskmovd_ymm_ymm_m256,
        C::VEX_Vpmaskmovq_ymm_ymm_m256,
        C::VEX_Vmaskmovps_ymm_ymm_m256,
        C::VEX_Vmaskmovpd_ymm_ymm_m256,
    ],
);

/// Returns the AVX2 instruction that loads the lanes whose mask has its sign bit set.
pub fn load_masked(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &LOAD_MASKED;
    by_lane(isa, wide, narrow, lane)
}

static STORE_MASKED: (ByLane, ByLane) = (
    [NONE, NONE, NONE, NONE, NONE, NONE],
    [
        NONE,
        NONE,
        C::VEX_Vpmaskmovd_m256_ymm_ymm,
        C::VEX_Vpmaskmovq_m256_ymm_ymm,
        C::VEX_Vmaskmovps_m256_ymm_ymm,
        C::VEX_Vmaskmovpd_m256_ymm_ymm,
    ],
);

/// Returns the AVX2 instruction that stores the lanes whose mask has its sign bit set.
pub fn store_masked(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &STORE_MASKED;
    by_lane(isa, wide, narrow, lane)
}

static BROADCAST_LOAD: (ByLane, ByLane) = (
    [
        C::EVEX_Vpbroadcastb_xmm_k1z_xmmm8,
        C::EVEX_Vpbroadcastw_ymm_k1z_xmmm16,
        C::EVEX_Vpbroadcastd_zmm_k1z_xmmm32,
        C::EVEX_Vpbroadcastq_zmm_k1z_xmmm64,
        C::EVEX_Vbroadcastss_zmm_k1z_xmmm32,
        C::EVEX_Vbroadcastsd_zmm_k1z_xmmm64,
    ],
    [
        C::VEX_Vpbroadcastb_xmm_xmmm8,
        C::VEX_Vpbroadcastw_xmm_xmmm16,
        C::VEX_Vpbroadcastd_ymm_xmmm32,
        C::VEX_Vpbroadcastq_ymm_xmmm64,
        C::VEX_Vbroadcastss_ymm_m32,
        C::VEX_Vbroadcastsd_ymm_m64,
    ],
);

pub fn broadcast_load(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &BROADCAST_LOAD;
    by_lane(isa, wide, narrow, lane)
}

static BROADCAST_LANE: (ByLane, ByLane) = (
    [
        C::EVEX_Vpbroadcastb_xmm_k1z_xmmm8,
        C::EVEX_Vpbroadcastw_ymm_k1z_xmmm16,
        C::EVEX_Vpbroadcastd_zmm_k1z_xmmm32,
        C::EVEX_Vpbroadcastq_zmm_k1z_xmmm64,
        C::EVEX_Vpbroadcastd_zmm_k1z_xmmm32,
        C::EVEX_Vpbroadcastq_zmm_k1z_xmmm64,
    ],
    [
        C::VEX_Vpbroadcastb_xmm_xmmm8,
        C::VEX_Vpbroadcastw_xmm_xmmm16,
        C::VEX_Vpbroadcastd_ymm_xmmm32,
        C::VEX_Vpbroadcastq_ymm_xmmm64,
        C::VEX_Vpbroadcastd_ymm_xmmm32,
        C::VEX_Vpbroadcastq_ymm_xmmm64,
    ],
);

pub fn broadcast_lane(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &BROADCAST_LANE;
    by_lane(isa, wide, narrow, lane)
}

static BROADCAST_INT: (ByLane, ByLane) = (
    [
        C::EVEX_Vpbroadcastb_xmm_k1z_r32,
        C::EVEX_Vpbroadcastw_ymm_k1z_r32,
        C::EVEX_Vpbroadcastd_zmm_k1z_r32,
        C::EVEX_Vpbroadcastq_zmm_k1z_r64,
        C::EVEX_Vpbroadcastd_zmm_k1z_r32,
        C::EVEX_Vpbroadcastq_zmm_k1z_r64,
    ],
    [NONE, NONE, NONE, NONE, NONE, NONE],
);

pub fn broadcast_int(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &BROADCAST_INT;
    by_lane(isa, wide, narrow, lane)
}

static COMPARE_SIGNED: (ByLane, ByLane) = (
    [
        C::EVEX_Vpcmpb_kr_k1_xmm_xmmm128_imm8,
        C::EVEX_Vpcmpw_kr_k1_ymm_ymmm256_imm8,
        C::EVEX_Vpcmpd_kr_k1_zmm_zmmm512b32_imm8,
        C::EVEX_Vpcmpq_kr_k1_zmm_zmmm512b64_imm8,
        C::EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae,
        C::EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae,
    ],
    [NONE, NONE, NONE, NONE, C::VEX_Vcmpps_ymm_ymm_ymmm256_imm8, C::VEX_Vcmppd_ymm_ymm_ymmm256_imm8],
);

/// Returns the instruction that compares floats or, with AVX-512, signed integers to a mask
/// register.
pub fn compare_signed(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &COMPARE_SIGNED;
    by_lane(isa, wide, narrow, lane)
}

static COMPARE_UNSIGNED: (ByLane, ByLane) = (
    [
        C::EVEX_Vpcmpub_kr_k1_xmm_xmmm128_imm8,
        C::EVEX_Vpcmpuw_kr_k1_ymm_ymmm256_imm8,
        C::EVEX_Vpcmpud_kr_k1_zmm_zmmm512b32_imm8,
        C::EVEX_Vpcmpuq_kr_k1_zmm_zmmm512b64_imm8,
        NONE,
        NONE,
    ],
    [NONE, NONE, NONE, NONE, NONE, NONE],
);

/// Returns the AVX-512 instruction that compares unsigned integers into a mask register.
pub fn compare_unsigned(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &COMPARE_UNSIGNED;
    by_lane(isa, wide, narrow, lane)
}

static COMPARE_EQUAL: (ByLane, ByLane) = (
    [NONE, NONE, NONE, NONE, NONE, NONE],
    [
        C::VEX_Vpcmpeqb_xmm_xmm_xmmm128,
        C::VEX_Vpcmpeqw_xmm_xmm_xmmm128,
        C::VEX_Vpcmpeqd_ymm_ymm_ymmm256,
        C::VEX_Vpcmpeqq_ymm_ymm_ymmm256,
        NONE,
        NONE,
    ],
);

pub fn compare_equal(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &COMPARE_EQUAL;
    by_lane(isa, wide, narrow, lane)
}

static COMPARE_GREATER: (ByLane, ByLane) = (
    [NONE, NONE, NONE, NONE, NONE, NONE],
    [
        C::VEX_Vpcmpgtb_xmm_xmm_xmmm128,
        C::VEX_Vpcmpgtw_xmm_xmm_xmmm128,
        C::VEX_Vpcmpgtd_ymm_ymm_ymmm256,
        C::VEX_Vpcmpgtq_ymm_ymm_ymmm256,
        NONE,
        NONE,
    ],
);

/// Returns the AVX2 instruction that compares signed integers by "greater than".
pub fn compare_greater(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &COMPARE_GREATER;
    by_lane(isa, wide, narrow, lane)
}

static BLEND: (ByLane, ByLane) = (
    [
        C::EVEX_Vpblendmb_xmm_k1z_xmm_xmmm128,
        C::EVEX_Vpblendmw_ymm_k1z_ymm_ymmm256,
        C::EVEX_Vpblendmd_zmm_k1z_zmm_zmmm512b32,
        C::EVEX_Vpblendmq_zmm_k1z_zmm_zmmm512b64,
        C::EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32,
        C::EVEX_Vblendmpd_zmm_k1z_zmm_zmmm512b64,
    ],
    [
        C::VEX_Vpblendvb_xmm_xmm_xmmm128_xmm,
        C::VEX_Vpblendvb_xmm_xmm_xmmm128_xmm,
        C::VEX_Vblendvps_ymm_ymm_ymmm256_ymm,
        C::VEX_Vblendvpd_ymm_ymm_ymmm256_ymm,
        C::VEX_Vblendvps_ymm_ymm_ymmm256_ymm,
        C::VEX_Vblendvpd_ymm_ymm_ymmm256_ymm,
    ],
);

pub fn blend(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &BLEND;
    by_lane(isa, wide, narrow, lane)
}

static SQUARE_ROOT: (ByLane, ByLane) = (
    [NONE, NONE, NONE, NONE, C::EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er, C::EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er],
    [NONE, NONE, NONE, NONE, C::VEX_Vsqrtps_ymm_ymmm256, C::VEX_Vsqrtpd_ymm_ymmm256],
);

pub fn square_root(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &SQUARE_ROOT;
    by_lane(isa, wide, narrow, lane)
}

static ROUND: (ByLane, ByLane) = (
    [
        NONE,
        NONE,
        NONE,
        NONE,
        C::EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae,
        C::EVEX_Vrndscalepd_zmm_k1z_zmmm512b64_imm8_sae,
    ],
    [NONE, NONE, NONE, NONE, C::VEX_Vroundps_ymm_ymmm256_imm8, C::VEX_Vroundpd_ymm_ymmm256_imm8],
);

pub fn round(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &ROUND;
    by_lane(isa, wide, narrow, lane)
}

static FMA132: (ByLane, ByLane) = (
    [
        NONE,
        NONE,
        NONE,
        NONE,
        C::EVEX_Vfmadd132ps_zmm_k1z_zmm_zmmm512b32_er,
        C::EVEX_Vfmadd132pd_zmm_k1z_zmm_zmmm512b64_er,
    ],
    [NONE, NONE, NONE, NONE, C::VEX_Vfmadd132ps_ymm_ymm_ymmm256, C::VEX_Vfmadd132pd_ymm_ymm_ymmm256],
);

/// Returns the instruction `a = a * c + b` of its operands a, b and c.
pub fn fma132(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &FMA132;
    by_lane(isa, wide, narrow, lane)
}

static FMA213: (ByLane, ByLane) = (
    [
        NONE,
        NONE,
        NONE,
        NONE,
        C::EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er,
        C::EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er,
    ],
    [NONE, NONE, NONE, NONE, C::VEX_Vfmadd213ps_ymm_ymm_ymmm256, C::VEX_Vfmadd213pd_ymm_ymm_ymmm256],
);

/// Returns the instruction `a = b * a + c` of its operands a, b and c.
pub fn fma213(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &FMA213;
    by_lane(isa, wide, narrow, lane)
}

static FMA231: (ByLane, ByLane) = (
    [
        NONE,
        NONE,
        NONE,
        NONE,
        C::EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er,
        C::EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er,
    ],
    [NONE, NONE, NONE, NONE, C::VEX_Vfmadd231ps_ymm_ymm_ymmm256, C::VEX_Vfmadd231pd_ymm_ymm_ymmm256],
);

/// Returns the instruction `a = b * c + a` of its operands a, b and c.
pub fn fma231(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &FMA231;
    by_lane(isa, wide, narrow, lane)
}

static SHL_IMMEDIATE: (ByLane, ByLane) = (
    [
        NONE,
        C::EVEX_Vpsllw_ymm_k1z_ymmm256_imm8,
        C::EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8,
        C::EVEX_Vpsllq_zmm_k1z_zmmm512b64_imm8,
        NONE,
        NONE,
    ],
    [NONE, C::VEX_Vpsllw_xmm_xmm_imm8, C::VEX_Vpslld_ymm_ymm_imm8, C::VEX_Vpsllq_ymm_ymm_imm8, NONE, NONE],
);

pub fn shl_immediate(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &SHL_IMMEDIATE;
    by_lane(isa, wide, narrow, lane)
}

static SHR_IMMEDIATE: (ByLane, ByLane) = (
    [
        NONE,
        C::EVEX_Vpsrlw_ymm_k1z_ymmm256_imm8,
        C::EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8,
        C::EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8,
        NONE,
        NONE,
    ],
    [NONE, C::VEX_Vpsrlw_xmm_xmm_imm8, C::VEX_Vpsrld_ymm_ymm_imm8, C::VEX_Vpsrlq_ymm_ymm_imm8, NONE, NONE],
);

pub fn shr_immediate(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &SHR_IMMEDIATE;
    by_lane(isa, wide, narrow, lane)
}

static SAR_IMMEDIATE: (ByLane, ByLane) = (
    [
        NONE,
        C::EVEX_Vpsraw_ymm_k1z_ymmm256_imm8,
        C::EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8,
        C::EVEX_Vpsraq_zmm_k1z_zmmm512b64_imm8,
        NONE,
        NONE,
    ],
    [NONE, C::VEX_Vpsraw_xmm_xmm_imm8, C::VEX_Vpsrad_ymm_ymm_imm8, NONE, NONE, NONE],
);

pub fn sar_immediate(isa: Isa, lane: Lane) -> Option<C> {
    let (wide, narrow) = &SAR_IMMEDIATE;
    by_lane(isa, wide, narrow, lane)
}

/// Returns whether vector instructions can copy one element of their memory operand to all lanes.
pub fn can_broadcast(isa: Isa, lane: Lane) -> bool {
    isa == Isa::Avx512 && lane.bytes() >= 4
}
