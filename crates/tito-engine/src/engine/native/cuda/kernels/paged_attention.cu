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

// What kernels are told of how heads are made ready.
#define PREPARATION                                                                                                      \
    const float *query_norm, const float *key_norm, const float *cosines, const float *sines, float *broken,             \
        unsigned pairs, unsigned neighbours, float epsilon, float offset

constexpr unsigned PREPARED = 4; // heads that a block prepares, each by a warp; `PREPARED_HEADS` in paged_attention.rs

} // namespace

// A block for each row: its keys and values, `kv_heads * width` numbers of f32 each from number `first` on, go to its slot of
// the cache: its block's number times the tokens of a block, and its place there. A row with one that is not finite is marked.
extern "C" __global__ void write_cache(
    const float *states, const long long *slots, __nv_bfloat16 *keys, __nv_bfloat16 *values, float *broken,
    unsigned columns, unsigned first, unsigned kv_heads, unsigned width) {
    const float *row = states + size_t(blockIdx.x) * columns + first;
    const size_t number = slots[blockIdx.x];
    const Slot slot = Slot::of(keys, values, number / BLOCK, number % BLOCK, size_t(kv_heads) * width);
    const unsigned count = kv_heads * width;
    bool bad = false;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
        bad |= slot.write(true, i, row[i]);
        bad |= slot.write(false, i, row[count + i]);
    }
    if (__syncthreads_or(bad) && threadIdx.x == 0)
        broken[blockIdx.x] = 1.0f;
}

// A warp for each row and head of queries, keys and values: norms and a rotation of the first two, and the way of the others
// into the cache. A row with a key or value that is not finite is marked.
extern "C" __global__ void prepare_heads(
    float *states, const long long *slots, __nv_bfloat16 *keys, __nv_bfloat16 *values, unsigned columns, unsigned heads,
    unsigned kv_heads, PREPARATION) {
    __shared__ float numbers[PREPARED][HEAD_DIM];
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.y * PREPARED + warp;
    if (head >= heads + 2 * kv_heads)
        return;
    const Preparation how{query_norm, key_norm, cosines, sines, broken, pairs, neighbours, epsilon, offset};
    const size_t row = blockIdx.x, number = slots[row];
    const Slot slot = Slot::of(keys, values, number / BLOCK, number % BLOCK, size_t(kv_heads) * HEAD_DIM);
    float *from = states + row * columns + head * HEAD_DIM, *own = numbers[warp];
    if (head >= heads + kv_heads)
        return keep<HEAD_DIM>(from, false, head - heads - kv_heads, slot, row, how, lane);
    prepared<HEAD_DIM>(from, own, head >= heads, row, how, lane);
    if (head >= heads)
        return keep<HEAD_DIM>(own, true, head - heads, slot, row, how, lane);
    for (unsigned i = lane; i < HEAD_DIM; i += 32)
        from[i] = own[i];
}

#define ATTENTION(WAY, HEAD) attend_##WAY##_##HEAD
// The number that HEAD_DIM stands for, not its name, becomes part of a kernel's.
#define ATTENTION_OF(WAY, HEAD) ATTENTION(WAY, HEAD)
// What both ways to attend are given.
#define ATTENDED                                                                                                         \
    const float *states, __nv_bfloat16 *keys, __nv_bfloat16 *values, const Item *items, const unsigned *tables,          \
        const float *sinks, float *parts, unsigned *done, __nv_bfloat16 *out, unsigned columns, unsigned heads,          \
        unsigned kv_heads, unsigned window, unsigned chunk, float scale, float cap

// A block for each tile, or one split of it, and head of keys. The last one that is through with a split merges all of them.
// Where there are cosines, a block makes the heads of its rows ready itself, which are all rows of their sequence.
extern "C" __global__ void __launch_bounds__(128, TILE_BLOCKS) ATTENTION_OF(tile, HEAD_DIM)(ATTENDED, PREPARATION) {
    const Layer layer{heads, kv_heads, window, chunk, scale, cap};
    const Preparation how{query_norm, key_norm, cosines, sines, broken, pairs, neighbours, epsilon, offset};
    Tile<HEAD_DIM>::run({states, keys, values, items, tables, sinks, parts, done, out, columns, layer}, how);
}

#if HEAD_DIM <= 128
// A block for each tile of a prompt, or one split of it, and head of keys.
extern "C" __global__ void __launch_bounds__(PROMPT_WARPS * 32, PROMPT_BLOCKS) ATTENTION_OF(prompt, HEAD_DIM)(ATTENDED) {
    const Layer layer{heads, kv_heads, window, chunk, scale, cap};
    Prompt<HEAD_DIM>::run({states, keys, values, items, tables, sinks, parts, done, out, columns, layer});
}

// A thread for two numbers of each row and head of a prompt whose splits were computed by several blocks.
extern "C" __global__ void merge_attention(const Merge *merges, ATTENDED) {
    const Layer layer{heads, kv_heads, window, chunk, scale, cap};
    const Merge item = merges[blockIdx.x];
    const Given given{states, keys, values, items, tables, sinks, parts, done, out, columns, layer};
    for (unsigned number = 2 * threadIdx.x; number < HEAD_DIM; number += 2 * blockDim.x)
        merge_parts<HEAD_DIM>(given, item.row, blockIdx.y, item.part, item.parts, number);
}
#endif
