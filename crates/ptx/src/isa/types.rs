//! The element types and the state spaces of PTX.

use super::modifier::modifiers;

modifiers! {
    /// The type of a register, of a variable's elements or of an instruction.
    pub enum ScalarType {
        /// Predicate, one bit.
        Pred = ".pred",
        /// One bit, as an operand element of `mma`.
        B1 = ".b1",
        /// Signed 4 bits, as an operand element of `mma`.
        S4 = ".s4",
        /// Unsigned 4 bits, as an operand element of `mma`.
        U4 = ".u4",
        /// Untyped 8 bits.
        B8 = ".b8",
        /// Untyped 16 bits.
        B16 = ".b16",
        /// Untyped 32 bits.
        B32 = ".b32",
        /// Untyped 64 bits.
        B64 = ".b64",
        /// Untyped 128 bits.
        B128 = ".b128",
        /// 1024 bits: a tensor map.
        B1024 = ".b1024",
        /// Unsigned 8 bits.
        U8 = ".u8",
        /// Unsigned 16 bits.
        U16 = ".u16",
        /// Unsigned 32 bits.
        U32 = ".u32",
        /// Unsigned 64 bits.
        U64 = ".u64",
        /// Signed 8 bits.
        S8 = ".s8",
        /// Signed 16 bits.
        S16 = ".s16",
        /// Signed 32 bits.
        S32 = ".s32",
        /// Signed 64 bits.
        S64 = ".s64",
        /// Two unsigned 16-bit numbers.
        U16x2 = ".u16x2",
        /// Two signed 16-bit numbers.
        S16x2 = ".s16x2",
        /// IEEE binary16.
        F16 = ".f16",
        /// Two binary16 numbers.
        F16x2 = ".f16x2",
        /// bfloat16.
        Bf16 = ".bf16",
        /// Two bfloat16 numbers.
        Bf16x2 = ".bf16x2",
        /// TensorFloat-32: binary32 with 10 bits of fraction, in a 32-bit register.
        Tf32 = ".tf32",
        /// IEEE binary32.
        F32 = ".f32",
        /// Two binary32 numbers.
        F32x2 = ".f32x2",
        /// IEEE binary64.
        F64 = ".f64",
        /// fp8 with 4 bits of exponent and 3 of fraction, for `mma`.
        E4m3 = ".e4m3",
        /// fp8 with 5 bits of exponent and 2 of fraction, for `mma`.
        E5m2 = ".e5m2",
        /// Two e4m3 numbers.
        E4m3x2 = ".e4m3x2",
        /// Two e5m2 numbers.
        E5m2x2 = ".e5m2x2",
        /// fp6 with 2 bits of exponent and 3 of fraction, for `mma`.
        E2m3 = ".e2m3",
        /// fp6 with 3 bits of exponent and 2 of fraction, for `mma`.
        E3m2 = ".e3m2",
        /// fp4 with 2 bits of exponent and 1 of fraction, for `mma`.
        E2m1 = ".e2m1",
        /// Two e2m3 numbers.
        E2m3x2 = ".e2m3x2",
        /// Two e3m2 numbers.
        E3m2x2 = ".e3m2x2",
        /// Two e2m1 numbers.
        E2m1x2 = ".e2m1x2",
        /// Two powers of two with 8 bits of exponent.
        Ue8m0x2 = ".ue8m0x2",
    }
}

impl ScalarType {
    /// Returns the number of bits of a value. A register may be wider. A predicate counts as 1.
    pub fn bits(self) -> u32 {
        match self {
            Self::Pred | Self::B1 => 1,
            Self::S4 | Self::U4 | Self::E2m1 => 4,
            Self::E2m3 | Self::E3m2 => 6,
            Self::B8 | Self::U8 | Self::S8 | Self::E4m3 | Self::E5m2 | Self::E2m1x2 => 8,
            Self::B16
            | Self::U16
            | Self::S16
            | Self::F16
            | Self::Bf16
            | Self::E4m3x2
            | Self::E5m2x2
            | Self::E2m3x2
            | Self::E3m2x2
            | Self::Ue8m0x2 => 16,
            Self::B32
            | Self::U32
            | Self::S32
            | Self::U16x2
            | Self::S16x2
            | Self::F16x2
            | Self::Bf16x2
            | Self::Tf32
            | Self::F32 => 32,
            Self::B64 | Self::U64 | Self::S64 | Self::F32x2 | Self::F64 => 64,
            Self::B128 => 128,
            Self::B1024 => 1024,
        }
    }

    /// Returns the number of bytes of a value in memory.
    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Returns whether the type is a signed integer, or a pair of them.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::S4 | Self::S8 | Self::S16 | Self::S32 | Self::S64 | Self::S16x2)
    }

    /// Returns whether the type is a floating-point number, or a pair of them.
    #[expect(clippy::match_same_arms, reason = "one match arm for each family of types")]
    pub fn is_float(self) -> bool {
        match self {
            Self::Pred | Self::B1 | Self::B8 | Self::B16 | Self::B32 | Self::B64 => false,
            Self::B128 | Self::B1024 => false,
            Self::U4 | Self::U8 | Self::U16 | Self::U32 | Self::U64 | Self::U16x2 => false,
            Self::S4 | Self::S8 | Self::S16 | Self::S32 | Self::S64 | Self::S16x2 => false,
            Self::F16 | Self::F16x2 | Self::Bf16 | Self::Bf16x2 | Self::Tf32 => true,
            Self::F32 | Self::F32x2 | Self::F64 => true,
            Self::E4m3 | Self::E5m2 | Self::E4m3x2 | Self::E5m2x2 | Self::E2m3 | Self::E3m2 => true,
            Self::E2m1 | Self::E2m3x2 | Self::E3m2x2 | Self::E2m1x2 | Self::Ue8m0x2 => true,
        }
    }
}

modifiers! {
    /// The state space of a variable or an address.
    pub enum StateSpace {
        /// Memory of the device.
        Global = ".global",
        /// Memory of the thread block. In an instruction, it means `.shared::cta`.
        Shared = ".shared",
        /// The window of this thread block in the cluster's shared memory.
        SharedCta = ".shared::cta",
        /// The shared memory of every thread block of the cluster.
        SharedCluster = ".shared::cluster",
        /// Memory of the thread.
        Local = ".local",
        /// Constants.
        Const = ".const",
        /// Parameters of the kernel or of a call.
        Param = ".param",
        /// Parameters of the kernel.
        ParamEntry = ".param::entry",
        /// Parameters of a call.
        ParamFunction = ".param::func",
    }
}
