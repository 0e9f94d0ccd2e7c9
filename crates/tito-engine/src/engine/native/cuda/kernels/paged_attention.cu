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

} // namespace

// A block for each row: its keys and values, `kv_heads * width` numbers of f32 each from number `first` on, go to its slot of
// the cache: its block's number times the tokens of a block, and its place there. A row with one that is not finite is marked.
extern "C" __global__ void write_cache(
    const float *states, const long long *slots, __nv_bfloat16 *keys, __nv_bfloat16 *values, float *broken,
    unsigned columns, unsigned first, unsigned kv_heads, unsigned width) {
    const float *row = states + size_t(blockIdx.x) * columns + first;
    const size_t slot = slots[blockIdx.x], begin = slot / BLOCK * kv_heads * width * BLOCK;
    const unsigned token = slot % BLOCK, count = kv_heads * width;
    bool bad = false;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
        const __nv_bfloat16 key = __float2bfloat16_rn(row[i]), value = __float2bfloat16_rn(row[count + i]);
        bad |= !isfinite(__bfloat162float(key)) || !isfinite(__bfloat162float(value));
        keys[begin + (i / 8 * BLOCK + token) * 8 + i % 8] = key;
        values[begin + i * BLOCK + token] = value;
    }
    if (__syncthreads_or(bad) && threadIdx.x == 0)
        broken[blockIdx.x] = 1.0f;
}

// A block for each row and head of queries.
extern "C" __global__ void merge_attention(
    const float *parts, const Merge *merges, const float *sinks, __nv_bfloat16 *out, unsigned heads, unsigned width) {
    const Merge item = merges[blockIdx.x];
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
