//! Defines the callees of random programs, which change all registers that they may change.
#![expect(unsafe_code, reason = "a function of vector SSA passes addresses as integers")]

/// Returns a function with this number of integer parameters.
pub fn mix(arguments: usize) -> usize {
    match arguments {
        0 => mix_0 as *const () as usize,
        1 => mix_1 as *const () as usize,
        2 => mix_2 as *const () as usize,
        3 => mix_3 as *const () as usize,
        _ => mix_4 as *const () as usize,
    }
}

/// Returns a function that adds an integer to the 8 bytes at an address, and returns their previous
/// value.
pub fn exchange() -> usize {
    exchange_integers as *const () as usize
}

extern "C" fn exchange_integers(address: u64, x: u64) -> u64 {
    let pointer = std::ptr::with_exposed_provenance_mut::<u64>(address as usize);
    // SAFETY: the generator passes only addresses in the arena.
    let old = unsafe { pointer.read_unaligned() };
    // SAFETY: the generator passes only addresses in the arena.
    unsafe { pointer.write_unaligned(old.wrapping_add(x)) };
    clobber();
    old
}

extern "C" fn mix_0() -> u64 {
    clobber();
    0x1234_5678_9abc_def0
}

extern "C" fn mix_1(a: u64) -> u64 {
    clobber();
    a.wrapping_mul(3)
}

extern "C" fn mix_2(a: u64, b: u64) -> u64 {
    clobber();
    a.wrapping_mul(3).wrapping_sub(b)
}

extern "C" fn mix_3(a: u64, b: u64, c: u64) -> u64 {
    clobber();
    a.wrapping_mul(3).wrapping_sub(b).wrapping_mul(5) ^ c
}

extern "C" fn mix_4(a: u64, b: u64, c: u64, d: u64) -> u64 {
    clobber();
    (a.wrapping_mul(3).wrapping_sub(b).wrapping_mul(5) ^ c).wrapping_add(d.rotate_left(7))
}

/// Changes the registers that a function of the C ABI need not preserve.
#[cfg(target_arch = "x86_64")]
fn clobber() {
    if std::arch::is_x86_feature_detected!("avx512bw") {
        // SAFETY: the processor has the instructions, and all registers are declared.
        unsafe {
            std::arch::asm!(
                "vpternlogd zmm0, zmm0, zmm0, 255",
                "vmovdqa64 zmm1, zmm0",
                "vmovdqa64 zmm2, zmm0",
                "vmovdqa64 zmm3, zmm0",
                "vmovdqa64 zmm4, zmm0",
                "vmovdqa64 zmm5, zmm0",
                "vmovdqa64 zmm6, zmm0",
                "vmovdqa64 zmm7, zmm0",
                "vmovdqa64 zmm8, zmm0",
                "vmovdqa64 zmm9, zmm0",
                "vmovdqa64 zmm10, zmm0",
                "vmovdqa64 zmm11, zmm0",
                "vmovdqa64 zmm12, zmm0",
                "vmovdqa64 zmm13, zmm0",
                "vmovdqa64 zmm14, zmm0",
                "vmovdqa64 zmm15, zmm0",
                "vmovdqa64 zmm16, zmm0",
                "vmovdqa64 zmm17, zmm0",
                "vmovdqa64 zmm18, zmm0",
                "vmovdqa64 zmm19, zmm0",
                "vmovdqa64 zmm20, zmm0",
                "vmovdqa64 zmm21, zmm0",
                "vmovdqa64 zmm22, zmm0",
                "vmovdqa64 zmm23, zmm0",
                "vmovdqa64 zmm24, zmm0",
                "vmovdqa64 zmm25, zmm0",
                "vmovdqa64 zmm26, zmm0",
                "vmovdqa64 zmm27, zmm0",
                "vmovdqa64 zmm28, zmm0",
                "vmovdqa64 zmm29, zmm0",
                "vmovdqa64 zmm30, zmm0",
                "vmovdqa64 zmm31, zmm0",
                "kxnorq k1, k1, k1",
                "kxnorq k2, k2, k2",
                "kxnorq k3, k3, k3",
                "kxnorq k4, k4, k4",
                "kxnorq k5, k5, k5",
                "kxnorq k6, k6, k6",
                "kxnorq k7, k7, k7",
                clobber_abi("C"),
            );
        }
    } else if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions, and all registers are declared.
        unsafe {
            std::arch::asm!(
                "vpcmpeqd ymm0, ymm0, ymm0",
                "vmovdqa ymm1, ymm0",
                "vmovdqa ymm2, ymm0",
                "vmovdqa ymm3, ymm0",
                "vmovdqa ymm4, ymm0",
                "vmovdqa ymm5, ymm0",
                "vmovdqa ymm6, ymm0",
                "vmovdqa ymm7, ymm0",
                "vmovdqa ymm8, ymm0",
                "vmovdqa ymm9, ymm0",
                "vmovdqa ymm10, ymm0",
                "vmovdqa ymm11, ymm0",
                "vmovdqa ymm12, ymm0",
                "vmovdqa ymm13, ymm0",
                "vmovdqa ymm14, ymm0",
                "vmovdqa ymm15, ymm0",
                clobber_abi("C"),
            );
        }
    }
    // SAFETY: the instructions change only declared registers.
    unsafe {
        std::arch::asm!(
            "mov rax, -1",
            "mov rcx, -1",
            "mov rdx, -1",
            "mov rsi, -1",
            "mov rdi, -1",
            "mov r8, -1",
            "mov r9, -1",
            "mov r10, -1",
            "mov r11, -1",
            clobber_abi("sysv64"),
        );
    }
}

/// Changes the registers that a function of the C ABI need not preserve, with the upper halves of
/// vector registers.
#[cfg(target_arch = "aarch64")]
fn clobber() {
    // SAFETY: the instructions change only declared registers.
    unsafe {
        std::arch::asm!(
            "movi v0.16b, #255",
            "movi v1.16b, #255",
            "movi v2.16b, #255",
            "movi v3.16b, #255",
            "movi v4.16b, #255",
            "movi v5.16b, #255",
            "movi v6.16b, #255",
            "movi v7.16b, #255",
            "movi v8.16b, #255",
            "movi v9.16b, #255",
            "movi v10.16b, #255",
            "movi v11.16b, #255",
            "movi v12.16b, #255",
            "movi v13.16b, #255",
            "movi v14.16b, #255",
            "movi v15.16b, #255",
            "movi v16.16b, #255",
            "movi v17.16b, #255",
            "movi v18.16b, #255",
            "movi v19.16b, #255",
            "movi v20.16b, #255",
            "movi v21.16b, #255",
            "movi v22.16b, #255",
            "movi v23.16b, #255",
            "movi v24.16b, #255",
            "movi v25.16b, #255",
            "movi v26.16b, #255",
            "movi v27.16b, #255",
            "movi v28.16b, #255",
            "movi v29.16b, #255",
            "movi v30.16b, #255",
            "movi v31.16b, #255",
            clobber_abi("C"),
        );
        std::arch::asm!(
            "mov x0, #-1",
            "mov x1, #-1",
            "mov x2, #-1",
            "mov x3, #-1",
            "mov x4, #-1",
            "mov x5, #-1",
            "mov x6, #-1",
            "mov x7, #-1",
            "mov x8, #-1",
            "mov x9, #-1",
            "mov x10, #-1",
            "mov x11, #-1",
            "mov x12, #-1",
            "mov x13, #-1",
            "mov x14, #-1",
            "mov x15, #-1",
            "mov x16, #-1",
            "mov x17, #-1",
            clobber_abi("C"),
        );
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn clobber() {}
