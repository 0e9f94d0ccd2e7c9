// What the lanes of a warp do together. Included by the files of kernels, `SHARED` in build.rs.

#pragma once

namespace {

// The sum over a warp, in every lane.
template <typename T> __device__ T over_warp(T sum) {
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return sum;
}

// What a warp multiplies the numbers of a head with in a root-mean-square norm, in every lane.
__device__ float norm_scale(const float *head, unsigned width, unsigned lane, float epsilon) {
    float sum = 0.0f;
    for (unsigned i = lane; i < width; i += 32)
        sum += head[i] * head[i];
    return 1.0f / sqrtf(over_warp(sum) / float(width) + epsilon);
}

// Turns a pair of a head, which begins with twice `pairs` numbers: two neighbours, or a number of the first half of these and
// one of the second.
__device__ void turn(float *head, unsigned pair, unsigned pairs, unsigned neighbours, float cosine, float sine) {
    float *one = head + (neighbours ? 2 * pair : pair);
    float *other = neighbours ? one + 1 : one + pairs;
    const float x = *one, y = *other;
    *one = x * cosine - y * sine;
    *other = y * cosine + x * sine;
}

// sums += left * right, of 16 x 16 and 16 x 8 numbers.
__device__ void product(float (&sums)[4], const unsigned (&left)[4], unsigned right0, unsigned right1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

} // namespace
