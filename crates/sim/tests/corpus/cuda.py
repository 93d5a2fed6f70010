"""The kernels of the simulator's corpus that are written in CUDA C++.

`python cuda.py LIBNVRTC INCLUDE .` compiles them with NVRTC (13; no GPU is needed). LIBNVRTC is the path of its
library, INCLUDE that of CUDA's headers.
"""

import ctypes
import sys
from pathlib import Path

# Sums blocks of 128 float4. The next block is loaded while the current one is added.
PIPELINE = r"""
#include <cuda_pipeline.h>
extern "C" __global__ void sum(const float4* input, float4* output, int blocks) {
  __shared__ float4 stage[2][128];
  int thread = threadIdx.x;
  __pipeline_memcpy_async(&stage[0][thread], input + thread, 16);
  __pipeline_commit();
  float4 total = {0, 0, 0, 0};
  for (int block = 0; block < blocks; block++) {
    if (block + 1 < blocks)
      __pipeline_memcpy_async(&stage[(block + 1) & 1][thread], input + (block + 1) * 128 + thread, 16);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    float4 value = stage[block & 1][thread ^ 5];
    total.x += value.x; total.y += value.y; total.z += value.z; total.w += value.w;
    __syncthreads();
  }
  output[thread] = total;
}
"""

# C = A B^T of 64x64, A and B of 64 rows and 64 * steps columns, by wgmma with two stages in shared memory.
WGMMA = r"""
#include <cuda_fp16.h>
__device__ unsigned long long descriptor(const void* pointer) {
  unsigned address = (unsigned)__cvta_generic_to_shared(pointer);
  return (unsigned long long)((address & 0x3ffff) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}
__device__ void multiply(float (&d)[32], unsigned long long a, unsigned long long b, int scale) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {@REGISTERS@}, %32, %33, p, 1, 1, 0, 0;\n}\n"
               : @OUTPUTS@ : "l"(a), "l"(b), "r"(scale));
}
extern "C" __global__ void __launch_bounds__(128)
product(const uint4* a, const uint4* b, float* c, int steps) {
  extern __shared__ __align__(1024) unsigned char shared[];
  float d[32];
  for (int i = 0; i < 32; i++) d[i] = 0;
  int thread = threadIdx.x;
  auto stage = [&](int step) {
    unsigned char* to = shared + (step & 1) * 16384;
    for (int i = thread; i < 512; i += 128) {
      int row = i / 8, chunk = i % 8, at = row * 128 + (chunk ^ (row & 7)) * 16;
      *(uint4*)(to + at) = a[(row * steps + step) * 8 + chunk];
      *(uint4*)(to + 8192 + at) = b[(row * steps + step) * 8 + chunk];
    }
  };
  stage(0);
  for (int step = 0; step < steps; step++) {
    unsigned char* from = shared + (step & 1) * 16384;
    asm volatile("fence.proxy.async;\n" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
    for (int k = 0; k < 4; k++) multiply(d, descriptor(from) + 2 * k, descriptor(from + 8192) + 2 * k, 1);
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;\n" ::: "memory");
    __syncthreads();
    if (step + 1 < steps) stage(step + 1);
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
  int warp = thread / 32, lane = thread % 32;
  for (int i = 0; i < 32; i++)
    c[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}
"""


def compile_ptx(nvrtc, include, source, target):
    """The PTX of a source, or an error with the log of the compiler."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    options = [f"--gpu-architecture={target}", f"-I{include}", f"-I{include}/cccl", "--std=c++17"]
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    failed = nvrtc.nvrtcCompileProgram(program, len(options), array)
    name = "ProgramLog" if failed else "PTX"
    getattr(nvrtc, f"nvrtcGet{name}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{name}")(program, text)
    if failed:
        raise SystemExit(text.value.decode())
    return text.value.decode()


def main(library, include, out):
    """Writes the PTX of both kernels."""
    nvrtc = ctypes.CDLL(library)
    registers = ", ".join(f"%{register}" for register in range(32))
    outputs = ", ".join(f'"+f"(d[{register}])' for register in range(32))
    wgmma = WGMMA.replace("@REGISTERS@", registers).replace("@OUTPUTS@", outputs)
    (out / "cuda_pipeline.ptx").write_text(compile_ptx(nvrtc, include, PIPELINE, "sm_80"))
    (out / "cuda_wgmma.ptx").write_text(compile_ptx(nvrtc, include, wgmma, "sm_90a"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
