// Attention of rows over the blocks of a paged cache, for caches of bf16: attention.cuh says how.
//
// Compiled once for each HEAD_DIM, the numbers of a head, so that a driver translates no more than a model needs.

#include "prompt_attention.cuh"
#include "tile_attention.cuh"

namespace {

// A row whose splits were computed by several blocks; `Merge` in schedule.rs.
struct Merge {
    unsigned row, part, parts;
};

constexpr unsigned PREPARED = 4; // heads that a block prepares, each by a warp; `PREPARED_HEADS` in paged_attention.rs

// Where heads of keys and values go.
struct Place {
    __nv_bfloat16 *keys, *values;
    unsigned token;

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
__device__ void normed(const float *from, float *to, const float *weights, unsigned lane, float epsilon, float offset) {
    if (weights == nullptr) {
        for (unsigned i = lane; i < HEAD_DIM; i += 32)
            to[i] = from[i];
        return;
    }
    const float scale = norm_scale(from, HEAD_DIM, lane, epsilon);
    for (unsigned i = lane; i < HEAD_DIM; i += 32)
        to[i] = from[i] * scale * (offset + weights[i]);
}

} // namespace

// A block for each row: its keys and values, `kv_heads * width` numbers of f32 each from number `first` on, go to its slot of
// the cache: its block's number times the tokens of a block, and its place there. A row with one that is not finite is marked.
extern "C" __global__ void write_cache(
    const float *states, const long long *slots, __nv_bfloat16 *keys, __nv_bfloat16 *values, float *broken,
    unsigned columns, unsigned first, unsigned kv_heads, unsigned width) {
    const float *row = states + size_t(blockIdx.x) * columns + first;
    const size_t slot = slots[blockIdx.x], begin = slot / BLOCK * kv_heads * width * BLOCK;
    const Place place{keys + begin, values + begin, unsigned(slot % BLOCK)};
    const unsigned count = kv_heads * width;
    bool bad = false;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
        bad |= place.write(true, i, row[i]);
        bad |= place.write(false, i, row[count + i]);
    }
    if (__syncthreads_or(bad) && threadIdx.x == 0)
        broken[blockIdx.x] = 1.0f;
}

// A warp for each row and head of queries, keys and values: norms and a rotation of the first two, and the place of the others in
// the cache. A row with a key or value that is not finite is marked.
extern "C" __global__ void prepare_heads(
    float *states, const long long *slots, __nv_bfloat16 *keys, __nv_bfloat16 *values, float *broken,
    const float *query_norm, const float *key_norm, const float *cosines, const float *sines, unsigned columns,
    unsigned heads, unsigned kv_heads, unsigned pairs, unsigned neighbours, float epsilon, float offset) {
    __shared__ float numbers[PREPARED][HEAD_DIM];
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.y * PREPARED + warp;
    if (head >= heads + 2 * kv_heads)
        return;
    float *from = states + size_t(blockIdx.x) * columns + head * HEAD_DIM, *own = numbers[warp];
    const size_t slot = slots[blockIdx.x], begin = slot / BLOCK * kv_heads * HEAD_DIM * BLOCK;
    const Place place{keys + begin, values + begin, unsigned(slot % BLOCK)};
    bool bad = false;
    if (head < heads + kv_heads) {
        normed(from, own, head < heads ? query_norm : key_norm, lane, epsilon, offset);
        __syncwarp();
        const size_t angles = size_t(blockIdx.x) * pairs;
        for (unsigned pair = lane; pair < pairs; pair += 32)
            turn(own, pair, pairs, neighbours, cosines[angles + pair], sines[angles + pair]);
        __syncwarp();
        for (unsigned i = lane; i < HEAD_DIM; i += 32)
            if (head < heads)
                from[i] = own[i];
            else
                bad |= place.write(true, (head - heads) * HEAD_DIM + i, own[i]);
    } else {
        for (unsigned i = lane; i < HEAD_DIM; i += 32)
            bad |= place.write(false, (head - heads - kv_heads) * HEAD_DIM + i, from[i]);
    }
    if (__any_sync(ALL_LANES, bad) && lane == 0)
        broken[blockIdx.x] = 1.0f;
}

// A block for each row and head of queries.
extern "C" __global__ void merge_attention(
    const float *parts, const Merge *merges, const float *sinks, __nv_bfloat16 *out, unsigned heads, unsigned width) {
    const Merge item = merges[blockIdx.x];
    if (item.parts == 0)
        return; // only there so that there are as many merges as in other steps
    const unsigned head = blockIdx.y;
    for (unsigned number = threadIdx.x; number < width; number += blockDim.x) {
        Softmax softmax{-INFINITY, 0.0f};
        float sum = 0.0f;
        for (unsigned i = 0; i < item.parts; ++i) {
            const float *part = parts + (size_t(item.part + i) * heads + head) * (width + 2);
            const Factors factors = merge(softmax, {part[0], part[1]});
            sum = merged(sum, part[2 + number], factors);
        }
        const float sink = sinks != nullptr ? sinks[head] * LOG2E : -INFINITY;
        out[(size_t(item.row) * heads + head) * width + number] = __float2bfloat16_rn(__fmul_rn(sum, share(softmax, sink)));
    }
}

#define KERNEL(WAY, HEAD, THREADS, BLOCKS, STRUCT)                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attend_##WAY##_##HEAD(                                 \
        const float *states, const __nv_bfloat16 *keys, const __nv_bfloat16 *values, const Item *items,                  \
        const unsigned *tables, const float *sinks, float *parts, __nv_bfloat16 *out, unsigned columns, unsigned heads,  \
        unsigned kv_heads, unsigned window, unsigned chunk, float scale, float cap) {                                    \
        const Layer layer{heads, kv_heads, window, chunk, scale, cap};                                                   \
        STRUCT<HEAD>::run({states, keys, values, items, tables, sinks, parts, out, columns, layer});                     \
    }
// The number that HEAD_DIM stands for, not its name, becomes part of the kernel's.
#define KERNEL_OF(WAY, HEAD, THREADS, BLOCKS, STRUCT) KERNEL(WAY, HEAD, THREADS, BLOCKS, STRUCT)

KERNEL_OF(tile, HEAD_DIM, 128, TILE_BLOCKS, Tile)
#if HEAD_DIM <= 128
KERNEL_OF(prompt, HEAD_DIM, PROMPT_WARPS * 32, PROMPT_BLOCKS, Prompt)
#endif
