//! Lists the instructions of AArch64 that the selector uses.
//!
//! An [`Opcode`] is an instruction word with empty fields for registers and constants. The table
//! also has the text of each word, and a test compares it with a disassembler. Most
//! vector instructions have 8-bit or binary32 lanes in 64 bits; [`Opcode::lanes`] chooses others.

use crate::ir::Lane;

/// An instruction word. Its registers are 0; the selector also replaces shifts and elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opcode(pub u32);

/// The bit with which a vector instruction operates on 128 bits (Q in the manual). With it, an
/// instruction that widens or narrows lanes operates on the upper half of the narrow vector.
const WHOLE: u32 = 1 << 30;

impl Opcode {
    #[must_use]
    pub const fn with(self, bits: u32) -> Self {
        Self(self.0 | bits)
    }

    /// Sets [`WHOLE`].
    #[must_use]
    pub const fn whole(self) -> Self {
        self.with(WHOLE)
    }

    #[must_use]
    pub fn size(self, bytes: usize) -> Self {
        self.with(bytes.trailing_zeros() << 22)
    }

    /// Sets the type of the lanes. Lanes of 8 and 16 bits fill 64 bits, and wider lanes 128 bits.
    #[must_use]
    pub fn lanes(self, lane: Lane) -> Self {
        let sized = match lane {
            Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => self.size(lane.bytes()),
            Lane::F32 => self,
            Lane::F64 => self.with(1 << 22),
        };
        if lane.bytes() >= 4 { sized.whole() } else { sized }
    }

    #[must_use]
    pub fn element(self, bytes: usize, index: usize) -> Self {
        Self(self.0 & !(0x1f << 16)).with(((bytes * (1 + 2 * index)) as u32) << 16)
    }

    /// Sets the count of a left shift, and the width of its lanes.
    #[must_use]
    pub fn left(self, bytes: usize, count: usize) -> Self {
        Self(self.0 & !(0x7f << 16)).with(((8 * bytes + count) as u32) << 16)
    }

    /// Sets the count of a right shift, and the width of the lanes of its result.
    #[must_use]
    pub fn right(self, bytes: usize, count: usize) -> Self {
        Self(self.0 & !(0x7f << 16)).with(((16 * bytes - count) as u32) << 16)
    }

    /// Sets the offset of an access of `bytes` bytes, if it fits.
    pub fn offset(self, bytes: usize, offset: i64) -> Option<Self> {
        let scaled = offset / bytes as i64;
        if (0..0x1000).contains(&scaled) && offset % bytes as i64 == 0 {
            return Some(self.with((1 << 24) | ((scaled as u32) << 10)));
        }
        (-0x100..0x100).contains(&offset).then(|| self.with((offset as u32 & 0x1ff) << 12))
    }

    /// Adds an index to the address of an access. The unit of the index is a byte or, with
    /// `is_scaled`, the size of the access.
    #[must_use]
    pub fn index(self, is_scaled: bool) -> Self {
        self.with(0x0020_6800 | (u32::from(is_scaled) << 12))
    }

    #[must_use]
    pub fn memory_element(self, bytes: usize, index: usize) -> Self {
        // Bits 30, 12, 11 and 10 have the offset of the lane in bytes. Its low bits are 0, so bit
        // 10 also encodes the size of an 8-byte lane.
        let position = (index * bytes) as u32;
        let size = [0, 0x4000, 0x8000, 0x8400][bytes.trailing_zeros() as usize];
        self.with(size | ((position >> 3) << 30) | ((position & 7) << 10))
    }
}

macro_rules! opcodes {
    ($($name:ident = $word:literal, $text:literal;)*) => {
        $(#[doc = concat!("`", $text, "`.")] pub const $name: Opcode = Opcode($word);)*

        #[cfg(test)]
        const ALL: &[(&str, Opcode)] = &[$(($text, $name)),*];
    };
}

opcodes! {
    ADD = 0x8b00_0000, "add x0, x0, x0";
    SUB = 0xcb00_0000, "sub x0, x0, x0";
    AND = 0x8a00_0000, "and x0, x0, x0";
    ORR = 0xaa00_0000, "orr x0, x0, x0";
    EOR = 0xca00_0000, "eor x0, x0, x0";
    ADD_IMMEDIATE = 0x9100_0000, "add x0, x0, #0x0";
    SUB_IMMEDIATE = 0xd100_0000, "sub x0, x0, #0x0";
    AND_IMMEDIATE = 0x9200_0000, "and x0, x0, #0x100000001";
    ORR_IMMEDIATE = 0xb200_0000, "orr x0, x0, #0x100000001";
    EOR_IMMEDIATE = 0xd200_0000, "eor x0, x0, #0x100000001";
    CMP = 0xeb00_001f, "cmp x0, x0";
    CMP_IMMEDIATE = 0xf100_001f, "cmp x0, #0x0";
    CMN_IMMEDIATE = 0xb100_001f, "cmn x0, #0x0";
    CSEL = 0x9a80_0000, "csel x0, x0, x0, eq";
    CSET = 0x9a9f_07e0, "cset x0, ne";
    MUL = 0x9b00_7c00, "mul x0, x0, x0";
    MSUB = 0x9b00_8000, "msub x0, x0, x0, x0";
    SMULH = 0x9b40_7c00, "smulh x0, x0, x0";
    UMULH = 0x9bc0_7c00, "umulh x0, x0, x0";
    SDIV = 0x9ac0_0c00, "sdiv x0, x0, x0";
    UDIV = 0x9ac0_0800, "udiv x0, x0, x0";
    LSL = 0x9ac0_2000, "lsl x0, x0, x0";
    LSR = 0x9ac0_2400, "lsr x0, x0, x0";
    ASR = 0x9ac0_2800, "asr x0, x0, x0";
    UBFM = 0xd340_0000, "ubfx x0, x0, #0x0, #0x1";
    SBFM = 0x9340_0000, "sbfx x0, x0, #0x0, #0x1";
    MOVE = 0xaa00_03e0, "mov x0, x0";
    MOVE_STACK = 0x9100_03e0, "mov x0, sp";
    MOVZ = 0xd280_0000, "mov x0, #0x0";
    MOVN = 0x9280_0000, "mov x0, #0xffffffffffffffff";
    MOVK = 0xf280_0000, "movk x0, #0x0";
    ADR = 0x1000_0000, "adr x0, $+0x0";
    B = 0x1400_0000, "b $+0x0";
    B_IF = 0x5400_0000, "b.eq $+0x0";
    TBZ = 0x3600_0000, "tbz w0, #0x0, $+0x0";
    BLR = 0xd63f_0000, "blr x0";
    RET = 0xd65f_03c0, "ret";
    NOP = 0xd503_201f, "nop";

    LDRB = 0x3840_0000, "ldurb w0, [x0]";
    LDRH = 0x7840_0000, "ldurh w0, [x0]";
    LDR_W = 0xb840_0000, "ldur w0, [x0]";
    LDR_X = 0xf840_0000, "ldur x0, [x0]";
    STRB = 0x3800_0000, "sturb w0, [x0]";
    STRH = 0x7800_0000, "sturh w0, [x0]";
    STR_W = 0xb800_0000, "stur w0, [x0]";
    STR_X = 0xf800_0000, "stur x0, [x0]";
    LDR_S = 0xbc40_0000, "ldur s0, [x0]";
    LDR_D = 0xfc40_0000, "ldur d0, [x0]";
    LDR_Q = 0x3cc0_0000, "ldur q0, [x0]";
    STR_S = 0xbc00_0000, "stur s0, [x0]";
    STR_D = 0xfc00_0000, "stur d0, [x0]";
    STR_Q = 0x3c80_0000, "stur q0, [x0]";
    PRFM = 0xf980_0000, "prfm pldl1keep, [x0]";
    LDR_Q_LITERAL = 0x9c00_0000, "ldr q0, $+0x0";
    PUSH_PAIR = 0xa9bf_03e0, "stp x0, x0, [sp, #-0x10]!";
    POP_PAIR = 0xa8c1_03e0, "ldp x0, x0, [sp], #0x10";
    PUSH_PAIR_D = 0x6dbf_03e0, "stp d0, d0, [sp, #-0x10]!";
    POP_PAIR_D = 0x6cc1_03e0, "ldp d0, d0, [sp], #0x10";
    LD1R = 0x0d40_c000, "ld1r {v0.8b}, [x0]";
    LD1 = 0x0d40_0000, "ld1 {v0.b}[0], [x0]";
    ST1 = 0x0d00_0000, "st1 {v0.b}[0], [x0]";

    ADD_VECTOR = 0x0e20_8400, "add v0.8b, v0.8b, v0.8b";
    SUB_VECTOR = 0x2e20_8400, "sub v0.8b, v0.8b, v0.8b";
    MUL_VECTOR = 0x0e20_9c00, "mul v0.8b, v0.8b, v0.8b";
    NEG_VECTOR = 0x2e20_b800, "neg v0.8b, v0.8b";
    SMIN = 0x0e20_6c00, "smin v0.8b, v0.8b, v0.8b";
    SMAX = 0x0e20_6400, "smax v0.8b, v0.8b, v0.8b";
    UMIN = 0x2e20_6c00, "umin v0.8b, v0.8b, v0.8b";
    UMAX = 0x2e20_6400, "umax v0.8b, v0.8b, v0.8b";
    CMEQ = 0x2e20_8c00, "cmeq v0.8b, v0.8b, v0.8b";
    CMGT = 0x0e20_3400, "cmgt v0.8b, v0.8b, v0.8b";
    CMGE = 0x0e20_3c00, "cmge v0.8b, v0.8b, v0.8b";
    CMHI = 0x2e20_3400, "cmhi v0.8b, v0.8b, v0.8b";
    CMHS = 0x2e20_3c00, "cmhs v0.8b, v0.8b, v0.8b";
    CMTST = 0x0e20_8c00, "cmtst v0.8b, v0.8b, v0.8b";
    SSHL = 0x0e20_4400, "sshl v0.8b, v0.8b, v0.8b";
    USHL = 0x2e20_4400, "ushl v0.8b, v0.8b, v0.8b";
    SHL = 0x0f08_5400, "shl v0.8b, v0.8b, #0x0";
    SSHR = 0x0f08_0400, "sshr v0.8b, v0.8b, #0x8";
    USHR = 0x2f08_0400, "ushr v0.8b, v0.8b, #0x8";
    SHRN = 0x0f08_8400, "shrn v0.8b, v0.8h, #0x8";
    SSHLL = 0x0f08_a400, "sshll v0.8h, v0.8b, #0x0";
    USHLL = 0x2f08_a400, "ushll v0.8h, v0.8b, #0x0";
    SMULL = 0x0e20_c000, "smull v0.8h, v0.8b, v0.8b";
    UMULL = 0x2e20_c000, "umull v0.8h, v0.8b, v0.8b";
    XTN = 0x0e21_2800, "xtn v0.8b, v0.8h";
    SQXTN_S = 0x5ea1_4800, "sqxtn s0, d0";
    ADDV_S = 0x4eb1_b800, "addv s0, v0.4s";

    AND_VECTOR = 0x0e20_1c00, "and v0.8b, v0.8b, v0.8b";
    BIC_VECTOR = 0x0e60_1c00, "bic v0.8b, v0.8b, v0.8b";
    ORR_VECTOR = 0x0ea0_1c00, "mov v0.8b, v0.8b";
    EOR_VECTOR = 0x2e20_1c00, "eor v0.8b, v0.8b, v0.8b";
    BSL = 0x2e60_1c00, "bsl v0.8b, v0.8b, v0.8b";
    BIT = 0x2ea0_1c00, "bit v0.8b, v0.8b, v0.8b";
    BIF = 0x2ee0_1c00, "bif v0.8b, v0.8b, v0.8b";
    NOT = 0x2e20_5800, "mvn v0.8b, v0.8b";

    FADD = 0x0e20_d400, "fadd v0.2s, v0.2s, v0.2s";
    FSUB = 0x0ea0_d400, "fsub v0.2s, v0.2s, v0.2s";
    FMUL = 0x2e20_dc00, "fmul v0.2s, v0.2s, v0.2s";
    FDIV = 0x2e20_fc00, "fdiv v0.2s, v0.2s, v0.2s";
    FMLA = 0x0e20_cc00, "fmla v0.2s, v0.2s, v0.2s";
    FSQRT = 0x2ea1_f800, "fsqrt v0.2s, v0.2s";
    FRINTM = 0x0e21_9800, "frintm v0.2s, v0.2s";
    FRINTP = 0x0ea1_8800, "frintp v0.2s, v0.2s";
    FCMEQ = 0x0e20_e400, "fcmeq v0.2s, v0.2s, v0.2s";
    FCMGE = 0x2e20_e400, "fcmge v0.2s, v0.2s, v0.2s";
    FCMGT = 0x2ea0_e400, "fcmgt v0.2s, v0.2s, v0.2s";
    SCVTF = 0x0e21_d800, "scvtf v0.2s, v0.2s";
    UCVTF = 0x2e21_d800, "ucvtf v0.2s, v0.2s";
    FCVTZS = 0x0ea1_b800, "fcvtzs v0.2s, v0.2s";
    FCVTL_HALF = 0x0e21_7800, "fcvtl v0.4s, v0.4h";
    FCVTL = 0x0e61_7800, "fcvtl v0.2d, v0.2s";
    FCVTN_HALF = 0x0e21_6800, "fcvtn v0.4h, v0.4s";
    FCVTN = 0x0e61_6800, "fcvtn v0.2s, v0.2d";
    SCVTF_S_X = 0x9e22_0000, "scvtf s0, x0";
    UCVTF_S_X = 0x9e23_0000, "ucvtf s0, x0";

    UZP1 = 0x0e00_1800, "uzp1 v0.8b, v0.8b, v0.8b";
    UZP2 = 0x0e00_5800, "uzp2 v0.8b, v0.8b, v0.8b";
    EXT = 0x2e00_0000, "ext v0.8b, v0.8b, v0.8b, #0x0";
    DUP = 0x0e01_0c00, "dup v0.8b, w0";
    DUP_ELEMENT = 0x0e01_0400, "mov v0.8b, v0.b[0]";
    INS = 0x4e01_1c00, "mov v0.b[0], w0";
    INS_ELEMENT = 0x6e01_0400, "mov v0.b[0], v0.b[0]";
    UMOV = 0x0e01_3c00, "umov w0, v0.b[0]";
    FMOV_W_S = 0x1e26_0000, "fmov w0, s0";
    FMOV_X_D = 0x9e66_0000, "fmov x0, d0";
    FMOV_D_X = 0x9e67_0000, "fmov d0, x0";
    MOVI_8 = 0x0f00_e400, "movi v0.8b, #0x0";
    MOVI_16 = 0x0f00_8400, "movi v0.4h, #0x0";
    MOVI_32 = 0x0f00_0400, "movi v0.2s, #0x0";
    MVNI_32 = 0x2f00_0400, "mvni v0.2s, #0x0";
    MOVI_64 = 0x6f00_e400, "movi v0.2d, #0x0";
    FMOV_32 = 0x0f00_f400, "fmov v0.2s, #2.0";
    FMOV_64 = 0x6f00_f400, "fmov v0.2d, #2.0";
}

#[cfg(test)]
mod tests {
    use yaxpeax_arch::{Decoder, U8Reader};
    use yaxpeax_arm::armv8::a64::InstDecoder;

    use super::*;

    #[test]
    fn words_have_their_text() {
        let mut errors = Vec::new();
        for (text, opcode) in ALL {
            let found = match InstDecoder::default().decode(&mut U8Reader::new(&opcode.0.to_le_bytes())) {
                Ok(instruction) => instruction.to_string(),
                Err(error) => error.to_string(),
            };
            if found != *text {
                errors.push(format!("{text}: {found}"));
            }
        }
        assert!(errors.is_empty(), "{}", errors.join("\n"));
    }
}
