// What the threads of a block do together, and how numbers are written. Included by the files of kernels, `SHARED` in build.rs.

#pragma once

#include <cuda_bf16.h>

#include "warp.cuh"

namespace {

template <typename T> __device__ T narrow(float number);
template <> __device__ float narrow<float>(float number) { return number; }
template <> __device__ __nv_bfloat16 narrow<__nv_bfloat16>(float number) { return __float2bfloat16_rn(number); }

// The sum over a block of at most 1024 threads, in every thread; it may be asked for again at once.
__device__ float over_block(float sum) {
    __shared__ float sums[32];
    sum = over_warp(sum);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    const int warps = blockDim.x / 32;
    return over_warp(threadIdx.x % 32 < warps ? sums[threadIdx.x % 32] : 0.0f);
}

// The greatest number over a block likewise, of those that are numbers.
__device__ float greatest_over_block(float most) {
    __shared__ float greatest[32];
    for (int distance = 16; distance > 0; distance /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, distance));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        greatest[threadIdx.x / 32] = most;
    __syncthreads();
    const int warps = blockDim.x / 32;
    most = threadIdx.x % 32 < warps ? greatest[threadIdx.x % 32] : -INFINITY;
    for (int distance = 16; distance > 0; distance /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, distance));
    return most;
}

} // namespace
