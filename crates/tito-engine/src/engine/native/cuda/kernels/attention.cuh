// What both ways to attend to a paged cache share: rows in tiles and rows in prompts. They compute a row by the same
// operations in the same order, so that its bits are the same by either.
//
// The context of a row is read in splits of SPLIT keys, of which the first begins at position zero, and a split in blocks
// of BLOCK keys, one after another. Splits are merged in their order. So the bits of a row depend on its own sequence up
// to its own position, and on nothing else: not on the other rows of its tile, its batch or its step, nor on who merges.
//
// Weights are powers of two over a reference, which a row keeps until a score is larger by more than SLACK: so the sums
// are rarely scaled, and no weight is larger than two to the power of SLACK.
//
// A key of a block is read by one lane as sixteen bytes of its numbers, a value as sixteen bytes of its tokens. That is
// another order of numbers and tokens than the products name, and queries and weights are put in the same one.

#pragma once

#include <cuda_bf16.h>

#include "heads.cuh"

namespace {

constexpr unsigned SPLIT = 1024;         // tokens of a split, `SPLIT_TOKENS` in schedule.rs
constexpr unsigned TILE = 16;            // rows of a product
constexpr unsigned WHOLE = 0xffffffffu;  // no part: the tile is computed to its end
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float LOG2E = 1.44269504f;
constexpr float SLACK = 8.0f;
constexpr unsigned AT_ONCE = 8;          // parts of a row that are read at once

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

    // What makes a score an exponent of two. A cap has scaled it before.
    __device__ float exponents() const { return cap != 0.0f ? LOG2E : __fmul_rn(scale, LOG2E); }
};

// What a launch is given.
struct Given {
    const float *states;
    __nv_bfloat16 *keys, *values;
    const Item *items;
    const unsigned *tables;
    const float *sinks;
    float *parts;
    unsigned *done;
    __nv_bfloat16 *out;
    unsigned columns;
    Layer layer;
};

__device__ unsigned first_key(const Layer &layer, unsigned position) {
    if (layer.window != 0)
        return position + 1 > layer.window ? position + 1 - layer.window : 0;
    return layer.chunk != 0 ? position / layer.chunk * layer.chunk : 0;
}

// Two to the power of a number; zero where that is tiny.
__device__ float power(float number) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(number));
    return result;
}

// A softmax so far, of a row: the reference of its weights, and their sum; numbers are kept beside it.
struct Softmax {
    float reference, sum;
};

// What two softmaxes have to be multiplied with to become one.
struct Factors {
    float left, right;
};

__device__ Factors merge(Softmax &left, const Softmax &right) {
    const float reference = fmaxf(left.reference, right.reference);
    if (reference == -INFINITY)
        return {1.0f, 1.0f};
    const Factors factors{power(left.reference - reference), power(right.reference - reference)};
    left = {reference, __fmaf_rn(right.sum, factors.right, __fmul_rn(left.sum, factors.left))};
    return factors;
}

__device__ float merged(float left, float right, const Factors &factors) {
    return __fmaf_rn(right, factors.right, __fmul_rn(left, factors.left));
}

// What makes a result of a sum, of which a weight of `sink` takes its share.
__device__ float share(const Softmax &softmax, float sink) {
    const float reference = fmaxf(softmax.reference, sink), factor = power(softmax.reference - reference);
    return __fdiv_rn(factor, __fmaf_rn(softmax.sum, factor, power(sink - reference)));
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

// The scores of a block: four groups of eight tokens, in the order of the products. Of row `lane / 4` of a tile a lane has the
// first two of each group, of the eighth row after it the other two: those of tokens `8 * (lane % 4) + 2 * i + j`.
typedef float Scores[4][4];

__device__ void clear(Scores &scores) {
    #pragma unroll
    for (unsigned i = 0; i < 4; ++i)
        #pragma unroll
        for (unsigned j = 0; j < 4; ++j)
            scores[i][j] = 0.0f;
}

// Adds products of eight numbers of queries and of a key.
__device__ void multiply(float (&scores)[4], const uint4 &first, const uint4 &second, const uint4 &key) {
    const unsigned left[2][4] = {{first.x, first.y, first.z, first.w}, {second.x, second.y, second.z, second.w}};
    product(scores, left[0], key.x, key.y);
    product(scores, left[1], key.z, key.w);
}

// The largest score of a row, which has half `half` of the scores, as an exponent. Scores of keys that do not count become
// minus infinity; INSIDE says that every key counts.
template <bool INSIDE>
__device__ float largest(Scores &scores, unsigned half, const Layer &layer, unsigned token, unsigned lane, unsigned position) {
    const unsigned first = INSIDE ? position : first_key(layer, position);
    float max = -INFINITY;
    #pragma unroll
    for (unsigned i = 0; i < 4; ++i)
        #pragma unroll
        for (unsigned j = 0; j < 2; ++j) {
            float &score = scores[i][2 * half + j];
            if (!INSIDE) {
                const unsigned key = token + 8 * (lane % 4) + 2 * i + j;
                score = key >= first && key <= position ? score : -INFINITY;
            }
            max = fmaxf(max, score);
        }
    max = fmaxf(max, __shfl_xor_sync(ALL_LANES, max, 1));
    max = fmaxf(max, __shfl_xor_sync(ALL_LANES, max, 2));
    return __fmul_rn(max, layer.exponents());
}

// `cap * tanh(score * scale / cap)` of every score, by a power of two.
__device__ void cap(Scores &scores, const Layer &layer) {
    const float twice = __fdiv_rn(__fmul_rn(2.0f * LOG2E, layer.scale), layer.cap);
    #pragma unroll
    for (unsigned i = 0; i < 4; ++i)
        #pragma unroll
        for (unsigned j = 0; j < 4; ++j) {
            float inverse;
            const float sum = __fadd_rn(power(__fmul_rn(scores[i][j], twice)), 1.0f);
            asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(sum));
            scores[i][j] = __fmaf_rn(-2.0f * layer.cap, inverse, layer.cap);
        }
}

// The reference after a block whose largest score is `max`.
__device__ float next_reference(float reference, float max) { return max > reference + SLACK ? max : reference; }

// What sums are multiplied with when their reference changes. Where nothing counts yet, they are zero anyway.
__device__ float factor_between(float before, float after) { return before == after ? 1.0f : power(before - after); }

// Makes weights of a row's scores, and returns the sum of this lane's.
__device__ float weigh(Scores &scores, unsigned half, const Layer &layer, float reference) {
    // Where nothing counts, weights are zero, and not the difference of two infinities.
    const float base = reference == -INFINITY ? 0.0f : -reference, exponents = layer.exponents();
    float sum = 0.0f;
    #pragma unroll
    for (unsigned i = 0; i < 4; ++i)
        #pragma unroll
        for (unsigned j = 0; j < 2; ++j) {
            float &score = scores[i][2 * half + j];
            score = power(__fmaf_rn(score, exponents, base));
            sum = __fadd_rn(sum, score);
        }
    return sum;
}

// The sum of a row, of which four lanes have a part each.
__device__ float sum_of_row(float sum) {
    sum = __fadd_rn(sum, __shfl_xor_sync(ALL_LANES, sum, 1));
    return __fadd_rn(sum, __shfl_xor_sync(ALL_LANES, sum, 2));
}

// How the numbers of a head lie.
template <unsigned HEAD> struct Numbers {
    static constexpr unsigned GROUPS = HEAD / 8;        // of eight numbers, as keys lie
    static constexpr unsigned STEPS = (GROUPS + 3) / 4; // of four groups, one for each lane that shares a key
};

// Which rows a block of threads computes.
struct Rows {
    unsigned kv_head; // whose keys they attend to
    unsigned heads;   // of queries, that are rows of one token
    unsigned head;    // the first of these

    // A group of more heads than a block of threads has rows is computed in pieces.
    __device__ Rows(const Layer &layer, unsigned most) {
        const unsigned group = layer.heads / layer.kv_heads, piece = min(group, most), pieces = (group + piece - 1) / piece;
        const unsigned skipped = blockIdx.y % pieces * piece;
        kv_head = blockIdx.y / pieces;
        heads = min(piece, group - skipped);
        head = kv_head * group + skipped;
    }
};

// Eight numbers of the queries of two rows, as two products want them.
struct Query {
    uint4 first, second;
};

// Queries of some tiles in shared memory: for each tile and step first products and then second ones, by lane.
template <unsigned HEAD> struct Queries {
    static constexpr unsigned STEPS = Numbers<HEAD>::STEPS, OF_TILE = STEPS * 2 * 32;

    // Puts two numbers of a row, from `number` on, in bf16.
    __device__ static void put(uint4 *queries, unsigned row, unsigned number, float low, float high) {
        const unsigned lane = row % 8 * 4 + number / 8 % 4, place = number / 2 % 2 * 2 + row / 8 % 2;
        const unsigned part = row / TILE * OF_TILE + (number / 32 * 2 + number / 4 % 2) * 32 + lane;
        reinterpret_cast<unsigned *>(queries)[part * 4 + place] = pair(low, high);
    }

    // Reads those of `tiles` tiles, unless `known` says that they were put; rows and numbers that are not there become zero.
    __device__ static void read(
        uint4 *queries, unsigned tiles, const Given &given, const Item &item, const Rows &rows, bool known) {
        for (unsigned i = threadIdx.x; i < tiles * TILE * STEPS * 16; i += blockDim.x) {
            const unsigned row = i / (STEPS * 16), number = i % (STEPS * 16) * 2;
            const unsigned token = row / rows.heads, own = rows.head + row % rows.heads;
            const bool is_there = token < item.tokens && number < HEAD;
            if (is_there && known)
                continue;
            float2 both{0.0f, 0.0f};
            if (is_there)
                both = *reinterpret_cast<const float2 *>(
                    given.states + size_t(item.row + token) * given.columns + own * HEAD + number);
            put(queries, row, number, both.x, both.y);
        }
    }

    __device__ static Query of(const uint4 *queries, unsigned tile, unsigned step, unsigned lane) {
        const uint4 *at = queries + tile * OF_TILE + step * 64 + lane;
        return {at[0], at[32]};
    }
};

// Two numbers of the result of a row's head, of which several blocks of threads computed `parts` splits, from part `part` on.
// They are merged in their order.
template <unsigned HEAD>
__device__ void merge_parts(const Given &given, unsigned row, unsigned head, unsigned part, unsigned parts, unsigned number) {
    const unsigned heads = given.layer.heads;
    Softmax softmax{-INFINITY, 0.0f};
    float low = 0.0f, high = 0.0f;
    for (unsigned first = 0; first < parts; first += AT_ONCE) {
        float2 softmaxes[AT_ONCE], numbers[AT_ONCE];
        #pragma unroll
        for (unsigned i = 0; i < AT_ONCE; ++i) {
            const unsigned own = part + min(first + i, parts - 1);
            const float *at = given.parts + (size_t(own) * heads + head) * (HEAD + 2);
            // As other multiprocessors have written them.
            softmaxes[i] = __ldcg(reinterpret_cast<const float2 *>(at));
            numbers[i] = __ldcg(reinterpret_cast<const float2 *>(at + 2 + number));
        }
        #pragma unroll
        for (unsigned i = 0; i < AT_ONCE; ++i) {
            if (first + i >= parts)
                continue;
            const Factors factors = merge(softmax, {softmaxes[i].x, softmaxes[i].y});
            low = merged(low, numbers[i].x, factors);
            high = merged(high, numbers[i].y, factors);
        }
    }
    const float factor = share(softmax, given.sinks != nullptr ? __fmul_rn(given.sinks[head], LOG2E) : -INFINITY);
    const unsigned result = pair(__fmul_rn(low, factor), __fmul_rn(high, factor));
    *reinterpret_cast<unsigned *>(given.out + (size_t(row) * heads + head) * HEAD + number) = result;
}

// Where the numbers of a row go: its result, or its sums for `merge_parts`.
template <unsigned HEAD> struct Result {
    __nv_bfloat16 *out; // null where the row is not there, or its sums go to `part`
    float *part;
    float factor;

    __device__ Result(const Given &given, const Item &item, const Rows &rows, unsigned row, const Softmax &softmax) {
        const unsigned token = row / rows.heads, own = rows.head + row % rows.heads;
        out = nullptr;
        part = nullptr;
        factor = 1.0f;
        if (token >= item.tokens)
            return;
        if (item.part == WHOLE) {
            factor = share(softmax, given.sinks != nullptr ? __fmul_rn(given.sinks[own], LOG2E) : -INFINITY);
            out = given.out + (size_t(item.row + token) * given.layer.heads + own) * HEAD;
        } else {
            part = given.parts + (size_t(item.part + token * item.parts) * given.layer.heads + own) * (HEAD + 2);
            *reinterpret_cast<float2 *>(part) = {softmax.reference, softmax.sum};
        }
    }

    // Two numbers, from `number` on.
    __device__ void write(unsigned number, float low, float high) const {
        if (out != nullptr)
            *reinterpret_cast<unsigned *>(out + number) = pair(__fmul_rn(low, factor), __fmul_rn(high, factor));
        else if (part != nullptr)
            *reinterpret_cast<float2 *>(part + 2 + number) = {low, high};
    }
};

} // namespace
