// What is done to heads of queries, keys and values between their product and attention: norms and a rotation of the first two,
// and the way of the others into the cache. A warp has a head.
//
// Whoever does it, for whatever rows at once, does the same operations in the same order.

#pragma once

#include <cuda_bf16.h>

#include "warp.cuh"

namespace {

constexpr unsigned BLOCK = 32; // tokens of a block, `BLOCK_TOKENS` in backend.rs

// How heads are made ready for attention, `HeadPreparation` in backend.rs.
struct Preparation {
    const float *query_norm, *key_norm; // weights that all heads share, or null where there is no norm
    const float *cosines, *sines;       // of each row, as many as it has pairs
    float *broken;                      // a mark for each row
    unsigned pairs, neighbours;
    float epsilon, offset;
};

// Where keys and values of a token go.
struct Slot {
    __nv_bfloat16 *keys, *values;
    unsigned token;

    // In a block of a cache.
    __device__ static Slot of(__nv_bfloat16 *keys, __nv_bfloat16 *values, size_t block, unsigned token, size_t width) {
        const size_t begin = block * width * BLOCK;
        return {keys + begin, values + begin, token};
    }

    // Writes a number to the keys or to the values, whose heads follow each other; whether it is not finite.
    __device__ bool write(bool is_key, unsigned at, float number) const {
        const __nv_bfloat16 kept = __float2bfloat16_rn(number);
        if (is_key)
            keys[(at / 8 * BLOCK + token) * 8 + at % 8] = kept;
        else
            values[at * BLOCK + token] = kept;
        return !isfinite(__bfloat162float(kept));
    }
};

// The norm of a head of f32, or the head as it is where there are no weights.
template <unsigned HEAD>
__device__ void normed(const float *from, float *to, const float *weights, unsigned lane, float epsilon, float offset) {
    if (weights == nullptr) {
        for (unsigned i = lane; i < HEAD; i += 32)
            to[i] = from[i];
        return;
    }
    const float scale = norm_scale(from, HEAD, lane, epsilon);
    for (unsigned i = lane; i < HEAD; i += 32)
        to[i] = from[i] * scale * (offset + weights[i]);
}

// A head of queries or keys of a row, which goes to `to` in shared memory; every lane may read all of it then.
template <unsigned HEAD>
__device__ void prepared(const float *from, float *to, bool is_key, size_t row, const Preparation &how, unsigned lane) {
    normed<HEAD>(from, to, is_key ? how.key_norm : how.query_norm, lane, how.epsilon, how.offset);
    __syncwarp();
    const size_t angles = row * how.pairs;
    for (unsigned pair = lane; pair < how.pairs; pair += 32)
        turn(to, pair, how.pairs, how.neighbours, how.cosines[angles + pair], how.sines[angles + pair]);
    __syncwarp();
}

// Writes a head of keys or of values, by its number among them, to its slot. The row is marked if a number is not finite.
template <unsigned HEAD>
__device__ void keep(
    const float *head, bool is_key, unsigned number, const Slot &slot, size_t row, const Preparation &how, unsigned lane) {
    bool bad = false;
    for (unsigned i = lane; i < HEAD; i += 32)
        bad |= slot.write(is_key, number * HEAD + i, head[i]);
    if (__any_sync(0xffffffffu, bad) && lane == 0)
        how.broken[row] = 1.0f;
}

} // namespace
