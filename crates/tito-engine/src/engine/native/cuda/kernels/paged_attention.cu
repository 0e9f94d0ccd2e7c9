// Attention of rows over the blocks of a paged cache, for caches of bf16.
//
// Rows of one sequence, with all heads of queries that share a head of keys, are computed together as the rows of tensor
// core products: a tile. The context of a tile is read in splits of SPLIT keys, of which the first begins at position
// zero; in a split, each of four warps reads every fourth block. Sums of warps, and then of splits, are merged in their
// order, in a block's memory or by `merge_attention`. So the bits of a row depend on its own sequence up to its own
// position, and on nothing else: not on the other rows of its tile, its batch or its step, nor on who merges.
//
// Compiled once for each HEAD_DIM, the numbers of a head, so that a driver translates no more than a model needs.
//
// A key of a block is read by one lane as sixteen bytes of its numbers, a value as sixteen bytes of its tokens. That is
// another order of numbers and tokens than the products name, and queries and weights are put in the same one.

#include <cuda_bf16.h>

#include "warp.cuh"

namespace {

constexpr unsigned BLOCK = 32;           // tokens of a block, `BLOCK_TOKENS` in backend.rs
constexpr unsigned SPLIT = 1024;          // tokens of a split, `SPLIT_TOKENS` in schedule.rs
constexpr unsigned WARPS = 4;            // of a block of threads
constexpr unsigned TILE = 16;            // rows of a product
constexpr unsigned WHOLE = 0xffffffffu;  // no part: the tile is computed to its end
constexpr float LOG2E = 1.44269504f;

// A tile, or one split of it; `Item` in schedule.rs.
struct Item {
    unsigned row, tokens, position; // the first of its rows, how many there are, and the position of the first
    unsigned table;                 // where the blocks of its sequence begin in the tables
    unsigned split, splits;         // the first split, and how many follow each other here
    unsigned part, parts;           // where the sums of the first row go, and how many places it has; or WHOLE
};

// How a layer attends, see `AttentionShape` and `Reach` in backend.rs.
struct Layer {
    unsigned heads, kv_heads;
    unsigned window, chunk; // the number of keys that a window or a chunk has, or zero
    float scale, cap;       // no cap where it is zero
};

__device__ unsigned first_key(const Layer &layer, unsigned position) {
    if (layer.window != 0)
        return position + 1 > layer.window ? position + 1 - layer.window : 0;
    return layer.chunk != 0 ? position / layer.chunk * layer.chunk : 0;
}

// A softmax so far, of a row: the largest score, the sum of weights; numbers are kept beside it.
struct Softmax {
    float max, sum;
};

// What two softmaxes have to be multiplied with to become one.
struct Factors {
    float left, right;
};

__device__ Factors merge(Softmax &left, const Softmax &right) {
    const float max = fmaxf(left.max, right.max);
    if (max == -INFINITY)
        return {1.0f, 1.0f};
    const Factors factors{exp2f(left.max - max), exp2f(right.max - max)};
    left = {max, __fmaf_rn(right.sum, factors.right, __fmul_rn(left.sum, factors.left))};
    return factors;
}

__device__ float merged(float left, float right, const Factors &factors) {
    return __fmaf_rn(right, factors.right, __fmul_rn(left, factors.left));
}

// The number that a weight of `sink` leaves of a sum.
__device__ float divided(float number, const Softmax &softmax, float sink) {
    const float max = fmaxf(softmax.max, sink);
    const float sum = __fmaf_rn(softmax.sum, exp2f(softmax.max - max), exp2f(sink - max));
    return __fdiv_rn(__fmul_rn(number, exp2f(softmax.max - max)), sum);
}

__device__ unsigned pair(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned *>(&both);
}

// The tokens of eight values from `token` on that are in `from..=to`; the others become zero, as they may be anything.
__device__ uint4 cut(uint4 values, unsigned token, unsigned from, unsigned to) {
    unsigned *words = reinterpret_cast<unsigned *>(&values);
    #pragma unroll
    for (unsigned word = 0; word < 4; ++word) {
        const unsigned low = token + 2 * word, high = low + 1;
        const unsigned kept = (low >= from && low <= to ? 0xffffu : 0u) | (high >= from && high <= to ? 0xffff0000u : 0u);
        words[word] &= kept;
    }
    return values;
}

// HEAD is the numbers of a head, TILES how many tiles of rows share what is read of keys and values.
template <unsigned HEAD, unsigned TILES> struct Attention {
    static constexpr unsigned ROWS = TILE * TILES;
    static constexpr unsigned GROUPS = HEAD / 8;               // of eight numbers, as keys lie
    static constexpr unsigned STEPS = (GROUPS + 3) / 4;        // of four groups, one for each lane that shares a key
    static constexpr unsigned PAD = (64 + 128 - STEPS * 64 % 128) % 128 / 2;
    static constexpr unsigned QUERY = STEPS * 32 + PAD;        // so that no two lanes read one bank
    static constexpr unsigned NUMBERS = TILES * GROUPS * 4;    // of a lane's sums

    // What the threads of a block share: queries, and the sums of a split and of all splits, by lane.
    struct Shared {
        alignas(16) __nv_bfloat16 queries[ROWS * QUERY];
        float split[NUMBERS][32], all[NUMBERS][32];
        Softmax split_softmax[2 * TILES][32], all_softmax[2 * TILES][32];
    };

    // The sums of a warp: of row `lane / 4` and of the eighth after it, of each tile.
    struct Sums {
        float numbers[TILES][GROUPS][4];
        Softmax softmax[TILES][2];

        __device__ void clear() {
            #pragma unroll
            for (unsigned tile = 0; tile < TILES; ++tile) {
                softmax[tile][0] = softmax[tile][1] = {-INFINITY, 0.0f};
                #pragma unroll
                for (unsigned group = 0; group < GROUPS; ++group)
                    #pragma unroll
                    for (unsigned i = 0; i < 4; ++i)
                        numbers[tile][group][i] = 0.0f;
            }
        }
    };

    // What a lane has to know of the rows that it computes.
    struct Place {
        unsigned lane;
        unsigned halves;                           // of eight rows of each tile, how many there are
        unsigned lowest, highest;                  // the first and the last key that count for any row
        unsigned inside, last_inside;              // the first and the last key that count for every row
        unsigned first[TILES][2], last[TILES][2];  // the same for each of its rows
    };

    __device__ static void read_queries(
        Shared &shared, const float *states, const Item &item, unsigned columns, unsigned head, unsigned group) {
        for (unsigned i = threadIdx.x; i < ROWS * STEPS * 32; i += WARPS * 32) {
            const unsigned row = i / (STEPS * 32), number = i % (STEPS * 32);
            const unsigned token = row / group, own = head + row % group;
            const bool there = token < item.tokens && number < HEAD;
            const float query = there ? states[size_t(item.row + token) * columns + own * HEAD + number] : 0.0f;
            shared.queries[row * QUERY + number] = __float2bfloat16_rn(query);
        }
    }

    // The scores of a block: for each tile and four groups of eight tokens, in the order of the products.
    __device__ static void score(
        float (&scores)[TILES][4][4], const Shared &shared, const __nv_bfloat16 *keys, unsigned lane) {
        const unsigned quarter = lane % 4, eighth = lane / 4;
        // One tile leaves registers to have all keys of the block on their way; two tiles do not.
        constexpr unsigned AHEAD = TILES == 1 ? STEPS : 1;
        #pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile)
            #pragma unroll
            for (unsigned i = 0; i < 4; ++i)
                #pragma unroll
                for (unsigned j = 0; j < 4; ++j)
                    scores[tile][i][j] = 0.0f;
        #pragma unroll
        for (unsigned begun = 0; begun < STEPS; begun += AHEAD) {
            uint4 read[AHEAD][4];
            #pragma unroll
            for (unsigned ahead = 0; ahead < AHEAD; ++ahead)
                #pragma unroll
                for (unsigned i = 0; i < 4; ++i) {
                    const unsigned group = 4 * (begun + ahead) + quarter, token = 8 * (eighth / 2) + 2 * i + eighth % 2;
                    const uint4 *at = reinterpret_cast<const uint4 *>(keys) + group * BLOCK + token;
                    read[ahead][i] = group < GROUPS ? *at : uint4{0, 0, 0, 0};
                }
            #pragma unroll
            for (unsigned ahead = 0; ahead < AHEAD; ++ahead)
                #pragma unroll
                for (unsigned tile = 0; tile < TILES; ++tile) {
                    const unsigned number = (4 * (begun + ahead) + quarter) * 8;
                    const __nv_bfloat16 *row = shared.queries + (tile * TILE + eighth) * QUERY + number;
                    const uint4 upper = *reinterpret_cast<const uint4 *>(row);
                    const uint4 lower = *reinterpret_cast<const uint4 *>(row + 8 * QUERY);
                    const unsigned first[4] = {upper.x, lower.x, upper.y, lower.y};
                    const unsigned second[4] = {upper.z, lower.z, upper.w, lower.w};
                    #pragma unroll
                    for (unsigned i = 0; i < 4; ++i) {
                        product(scores[tile][i], first, read[ahead][i].x, read[ahead][i].y);
                        product(scores[tile][i], second, read[ahead][i].z, read[ahead][i].w);
                    }
                }
        }
    }

    // Weights of a block's scores, of which those that do not count become zero; what there was is scaled to fit. INSIDE says
    // that every key counts for every row.
    template <bool INSIDE>
    __device__ static void weigh(
        float (&scores)[TILES][4][4], Sums &sums, const Layer &layer, const Place &place, unsigned token) {
        #pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile)
            #pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                if (half >= place.halves)
                    continue;
                float max = -INFINITY;
                #pragma unroll
                for (unsigned i = 0; i < 4; ++i)
                    #pragma unroll
                    for (unsigned j = 0; j < 2; ++j) {
                        float &score = scores[tile][i][2 * half + j];
                        float scaled = score * layer.scale;
                        if (layer.cap != 0.0f)
                            scaled = layer.cap * tanhf(scaled / layer.cap);
                        score = scaled * LOG2E;
                        if (!INSIDE) {
                            const unsigned key = token + 8 * (place.lane % 4) + 2 * i + j;
                            const bool counts = key >= place.first[tile][half] && key <= place.last[tile][half];
                            score = counts ? score : -INFINITY;
                        }
                        max = fmaxf(max, score);
                    }
                max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
                max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
                Softmax &softmax = sums.softmax[tile][half];
                max = fmaxf(max, softmax.max);
                // Where nothing counts yet, weights are zero, and not the difference of two infinities.
                const float base = max == -INFINITY ? 0.0f : max;
                const float factor = exp2f(softmax.max - base);
                float sum = 0.0f;
                #pragma unroll
                for (unsigned i = 0; i < 4; ++i)
                    #pragma unroll
                    for (unsigned j = 0; j < 2; ++j) {
                        float &score = scores[tile][i][2 * half + j];
                        score = exp2f(score - base);
                        sum += score;
                    }
                // Of this lane's keys only; lanes are added up when the warp is through.
                softmax = {max, __fmaf_rn(softmax.sum, factor, sum)};
                #pragma unroll
                for (unsigned group = 0; group < GROUPS; ++group)
                    #pragma unroll
                    for (unsigned j = 0; j < 2; ++j)
                        sums.numbers[tile][group][2 * half + j] *= factor;
            }
    }

    // Values on their way: those of some groups of eight numbers.
    template <unsigned COUNT> __device__ static void read_values(
        uint4 (&read)[COUNT], const __nv_bfloat16 *values, unsigned first, unsigned lane) {
        #pragma unroll
        for (unsigned i = 0; i < COUNT; ++i)
            if (first + i < GROUPS)
                read[i] = *(reinterpret_cast<const uint4 *>(values) + (8 * (first + i) + lane / 4) * (BLOCK / 8) + lane % 4);
    }

    // Adds values by their weights.
    template <bool INSIDE, unsigned COUNT> __device__ static void add_values(
        Sums &sums, const unsigned (&weights)[TILES][2][4], uint4 (&read)[COUNT], unsigned first, const Place &place, unsigned token) {
        #pragma unroll
        for (unsigned i = 0; i < COUNT; ++i) {
            if (first + i >= GROUPS)
                continue;
            if (!INSIDE)
                read[i] = cut(read[i], token + 8 * (place.lane % 4), place.lowest, place.highest);
            #pragma unroll
            for (unsigned tile = 0; tile < TILES; ++tile) {
                product(sums.numbers[tile][first + i], weights[tile][0], read[i].x, read[i].y);
                product(sums.numbers[tile][first + i], weights[tile][1], read[i].z, read[i].w);
            }
        }
    }

    // A block of keys and values.
    template <bool INSIDE> __device__ static void add_block(
        Sums &sums,
        const Shared &shared,
        const __nv_bfloat16 *keys,
        const __nv_bfloat16 *values,
        const Layer &layer,
        const Place &place,
        unsigned token) {
        // One tile leaves registers to have all values on their way while scores are computed; two tiles do not.
        constexpr unsigned AHEAD = TILES == 1 && HEAD <= 128 ? GROUPS : 4;
        uint4 read[AHEAD];
        float scores[TILES][4][4];
        if (TILES == 1 && HEAD <= 128)
            read_values(read, values, 0, place.lane);
        score(scores, shared, keys, place.lane);
        weigh<INSIDE>(scores, sums, layer, place, token);
        unsigned weights[TILES][2][4];
        #pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile)
            #pragma unroll
            for (unsigned i = 0; i < 8; ++i) {
                const float *two = scores[tile][i / 2] + 2 * (i % 2);
                weights[tile][i / 4][i % 4] = i % 2 < place.halves ? pair(two[0], two[1]) : 0;
            }
        #pragma unroll
        for (unsigned first = 0; first < GROUPS; first += AHEAD) {
            if (TILES != 1 || HEAD > 128)
                read_values(read, values, first, place.lane);
            add_values<INSIDE>(sums, weights, read, first, place, token);
        }
    }

    // Merges the sums of the warps of a split in their order, and leaves them in `shared.split`.
    __device__ static void merge_warps(Shared &shared, Sums &sums, unsigned halves, unsigned warp, unsigned lane) {
        #pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile)
            #pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                float &sum = sums.softmax[tile][half].sum;
                sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
                sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
            }
        #pragma unroll 1
        for (unsigned turn = 0; turn < WARPS; ++turn) {
            if (turn == warp)
                #pragma unroll
                for (unsigned tile = 0; tile < TILES; ++tile) {
                    Factors factors[2] = {{0.0f, 1.0f}, {0.0f, 1.0f}};
                    #pragma unroll
                    for (unsigned half = 0; half < 2; ++half) {
                        if (half >= halves)
                            continue;
                        Softmax &softmax = shared.split_softmax[2 * tile + half][lane];
                        if (turn == 0)
                            softmax = sums.softmax[tile][half];
                        else
                            factors[half] = merge(softmax, sums.softmax[tile][half]);
                    }
                    #pragma unroll
                    for (unsigned group = 0; group < GROUPS; ++group)
                        #pragma unroll
                        for (unsigned i = 0; i < 4; ++i) {
                            if (i / 2 >= halves)
                                continue;
                            float &number = shared.split[(tile * GROUPS + group) * 4 + i][lane];
                            const float own = sums.numbers[tile][group][i];
                            number = turn == 0 ? own : merged(number, own, factors[i / 2]);
                        }
                }
            __syncthreads();
        }
    }

    // Merges a split with those before it; each warp does its share of the numbers.
    __device__ static void merge_split(Shared &shared, bool is_first, unsigned halves, unsigned warp, unsigned lane) {
        Factors factors[2 * TILES];
        Softmax softmax[2 * TILES];
        #pragma unroll
        for (unsigned row = 0; row < 2 * TILES; ++row) {
            if (row % 2 >= halves)
                continue;
            softmax[row] = is_first ? Softmax{-INFINITY, 0.0f} : shared.all_softmax[row][lane];
            factors[row] = merge(softmax[row], shared.split_softmax[row][lane]);
        }
        #pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile)
            #pragma unroll
            for (unsigned half = 0; half < 2; ++half)
                for (unsigned i = warp; half < halves && i < GROUPS * 2; i += WARPS) {
                    const unsigned number = (tile * GROUPS + i / 2) * 4 + 2 * half + i % 2;
                    const float before = is_first ? 0.0f : shared.all[number][lane];
                    shared.all[number][lane] = merged(before, shared.split[number][lane], factors[2 * tile + half]);
                }
        __syncthreads();
        if (warp == 0)
            #pragma unroll
            for (unsigned row = 0; row < 2 * TILES; ++row)
                if (row % 2 < halves)
                    shared.all_softmax[row][lane] = softmax[row];
        __syncthreads();
    }

    __device__ static void run(
        const float *states,
        const __nv_bfloat16 *keys,
        const __nv_bfloat16 *values,
        const Item *items,
        const unsigned *tables,
        const float *sinks,
        float *parts,
        __nv_bfloat16 *out,
        unsigned columns,
        const Layer &layer) {
        __shared__ Shared shared;
        const Item item = items[blockIdx.x];
        const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        // A group of more heads than a tile has rows is computed in pieces.
        const unsigned group = layer.heads / layer.kv_heads, piece = min(group, ROWS), pieces = (group + piece - 1) / piece;
        const unsigned kv_head = blockIdx.y / pieces, skipped = blockIdx.y % pieces * piece;
        const unsigned rows = min(piece, group - skipped), head = kv_head * group + skipped;

        Place place;
        place.lane = lane;
        place.lowest = first_key(layer, item.position);
        place.highest = item.position + item.tokens - 1;
        place.inside = first_key(layer, place.highest);
        place.last_inside = item.position;
        place.halves = TILES == 1 && item.tokens * rows <= 8 ? 1 : 2;
        #pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile)
            #pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                const unsigned token = (tile * TILE + half * 8 + lane / 4) / rows;
                const bool there = token < item.tokens;
                place.first[tile][half] = there ? first_key(layer, item.position + token) : 1;
                place.last[tile][half] = there ? item.position + token : 0;
            }

        read_queries(shared, states, item, columns, head, rows);
        __syncthreads();
        const unsigned *blocks = tables + item.table;
        const size_t block_size = size_t(layer.kv_heads) * HEAD * BLOCK;
        for (unsigned split = item.split; split < item.split + item.splits; ++split) {
            Sums sums;
            sums.clear();
            const unsigned end = min((split + 1) * SPLIT, place.highest + 1);
            for (unsigned token = split * SPLIT + warp * BLOCK; token < end; token += WARPS * BLOCK) {
                if (token + BLOCK <= place.lowest)
                    continue;
                const size_t at = blocks[token / BLOCK] * block_size + size_t(kv_head) * HEAD * BLOCK;
                if (token >= place.inside && token + BLOCK - 1 <= place.last_inside)
                    add_block<true>(sums, shared, keys + at, values + at, layer, place, token);
                else
                    add_block<false>(sums, shared, keys + at, values + at, layer, place, token);
            }
            merge_warps(shared, sums, place.halves, warp, lane);
            merge_split(shared, split == item.split, place.halves, warp, lane);
        }
        write(shared, item, sinks, parts, out, layer, head, rows, warp, lane);
    }

    // The result of each row, or its sums for `merge_attention`.
    __device__ static void write(
        const Shared &shared,
        const Item &item,
        const float *sinks,
        float *parts,
        __nv_bfloat16 *out,
        const Layer &layer,
        unsigned head,
        unsigned rows,
        unsigned warp,
        unsigned lane) {
        for (unsigned i = warp; i < TILES * GROUPS * 2; i += WARPS) {
            const unsigned half = i % 2, numbers = i / 2, tile = numbers / GROUPS, number = numbers % GROUPS * 8 + lane % 4 * 2;
            const unsigned row = tile * TILE + half * 8 + lane / 4, token = row / rows, own = head + row % rows;
            if (token >= item.tokens)
                continue;
            const Softmax softmax = shared.all_softmax[2 * tile + half][lane];
            const float low = shared.all[numbers * 4 + 2 * half][lane], high = shared.all[numbers * 4 + 2 * half + 1][lane];
            if (item.part == WHOLE) {
                const float sink = sinks != nullptr ? sinks[own] * LOG2E : -INFINITY;
                const size_t at = (size_t(item.row + token) * layer.heads + own) * HEAD + number;
                *reinterpret_cast<unsigned *>(out + at) = pair(divided(low, softmax, sink), divided(high, softmax, sink));
            } else {
                float *part = parts + (size_t(item.part + token * item.parts) * layer.heads + own) * (HEAD + 2);
                part[2 + number] = low;
                part[3 + number] = high;
                if (number == 0) {
                    part[0] = softmax.max;
                    part[1] = softmax.sum;
                }
            }
        }
    }
};

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
        out[(size_t(item.row) * heads + head) * width + number] = __float2bfloat16_rn(divided(sum, softmax, sink));
    }
}

#define KERNEL(HEAD, TILES)                                                                                              \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) attend_##HEAD##_##TILES(                                    \
        const float *states, const __nv_bfloat16 *keys, const __nv_bfloat16 *values, const Item *items,                  \
        const unsigned *tables, const float *sinks, float *parts, __nv_bfloat16 *out, unsigned columns, unsigned heads,  \
        unsigned kv_heads, unsigned window, unsigned chunk, float scale, float cap) {                                    \
        const Layer layer{heads, kv_heads, window, chunk, scale, cap};                                                   \
        Attention<HEAD, TILES>::run(states, keys, values, items, tables, sinks, parts, out, columns, layer);             \
    }
// The number that HEAD_DIM stands for, not its name, becomes part of the kernel's.
#define KERNEL_OF(HEAD, TILES) KERNEL(HEAD, TILES)

KERNEL_OF(HEAD_DIM, 1)
#if HEAD_DIM <= 128
KERNEL_OF(HEAD_DIM, 2)
#endif
