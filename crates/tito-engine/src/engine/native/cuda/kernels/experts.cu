// Mixtures of experts: which experts each row goes through, and the products of all experts at once.
//
// Rows are listed by expert, and tiles of a list's rows share what is read of an expert's matrix. No result depends on
// that: each number of a product is summed in the order of its inputs, whatever rows are beside it, and each row adds what
// its own experts give, in the order of their numbers.

#include <cuda_bf16.h>

#include "warp.cuh"

namespace {

constexpr unsigned WARPS = 4;            // of a block of threads, `THREADS` in experts.rs
constexpr unsigned MOST_EXPERTS = 1024;  // `MOST_EXPERTS` in mixture/mod.rs
constexpr unsigned MOST_CHOSEN = 32;     // `MOST_CHOSEN` there
constexpr unsigned NONE = 0xffffffffu;
constexpr unsigned ALL_LANES = 0xffffffffu;

// Some rows of the list of an expert; `TILE_WORDS` in mixture/mod.rs.
struct Tile {
    unsigned expert; // or NONE
    unsigned first, rows;
};

// How experts are chosen: `RouterShape` in routing.rs.
struct Router {
    unsigned experts, per_token;
    unsigned sigmoid;                            // or else a softmax
    unsigned groups, chosen_groups, best;        // no groups where `groups` is zero
    unsigned normalize;                          // whether weights are divided by their sum
    float least, added, factor;
};

// Numbers whose order is that of `f32::total_cmp`.
__device__ unsigned ordered(float number) {
    const unsigned bits = __float_as_uint(number);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// What decides between two experts: the chance, then the score, then which comes first.
struct Candidate {
    unsigned chance, score, expert;
};

__device__ bool is_better(const Candidate &left, const Candidate &right) {
    if (left.chance != right.chance)
        return left.chance > right.chance;
    return left.score != right.score ? left.score > right.score : left.expert < right.expert;
}

// The best candidate of a warp, in every lane.
__device__ Candidate best_of_warp(Candidate best) {
    for (int distance = 16; distance > 0; distance /= 2) {
        const Candidate other{__shfl_xor_sync(ALL_LANES, best.chance, distance),
                              __shfl_xor_sync(ALL_LANES, best.score, distance),
                              __shfl_xor_sync(ALL_LANES, best.expert, distance)};
        if (is_better(other, best))
            best = other;
    }
    return best;
}

// Which groups are chosen, a bit for each; lane `i` knows what group `i` is worth.
__device__ unsigned chosen_groups(const Router &router, const float *chances, unsigned lane) {
    const unsigned size = router.experts / router.groups;
    float worth = 0.0f;
    if (lane < router.groups) {
        unsigned taken_from = NONE, taken = NONE; // the last that was taken: its order, and its place
        for (unsigned round = 0; round < router.best; ++round) {
            unsigned best = 0, place = NONE;
            for (unsigned i = 0; i < size; ++i) {
                const unsigned number = ordered(chances[lane * size + i]);
                const bool is_left = round == 0 || number < taken_from || (number == taken_from && i > taken);
                if (is_left && (place == NONE || number > best)) {
                    best = number;
                    place = i;
                }
            }
            if (place == NONE)
                break;
            worth += chances[lane * size + place];
            taken_from = best;
            taken = place;
        }
    }
    const unsigned own = ordered(worth);
    unsigned before = 0;
    for (unsigned group = 0; group < router.groups; ++group) {
        const unsigned other = __shfl_sync(ALL_LANES, own, group);
        before += other > own || (other == own && group < lane);
    }
    return __ballot_sync(ALL_LANES, lane < router.groups && before < router.chosen_groups);
}

// Weights and chances of a warp's row; what the weights are to be divided by.
__device__ float weigh(
    const Router &router, const float *scores, const float *bias, float *weights, float *chances, unsigned lane) {
    float total = 1.0f;
    if (router.sigmoid) {
        for (unsigned i = lane; i < router.experts; i += 32)
            weights[i] = 1.0f / (1.0f + expf(-scores[i]));
    } else {
        float max = -INFINITY;
        for (unsigned i = lane; i < router.experts; i += 32)
            max = fmaxf(max, scores[i]);
        for (int distance = 16; distance > 0; distance /= 2)
            max = fmaxf(max, __shfl_xor_sync(ALL_LANES, max, distance));
        float sum = 0.0f;
        for (unsigned i = lane; i < router.experts; i += 32) {
            weights[i] = expf(scores[i] - max);
            sum += weights[i];
        }
        total = over_warp(sum);
    }
    for (unsigned i = lane; i < router.experts; i += 32)
        chances[i] = bias == nullptr ? weights[i] : weights[i] / total + bias[i];
    __syncwarp();
    return total;
}

// Whether a chance of a warp's row is not a number: nobody knows then who would have been chosen.
__device__ bool is_broken(const Router &router, const float *chances, unsigned lane) {
    bool broken = false;
    for (unsigned i = lane; i < router.experts; i += 32)
        broken |= isnan(chances[i]);
    return __any_sync(ALL_LANES, broken);
}

// Whether this is one of the experts that a row is given.
__device__ bool is_given(const unsigned *given, unsigned count, unsigned expert) {
    for (unsigned i = 0; i < count; ++i)
        if (given[i] == expert)
            return true;
    return false;
}

} // namespace

// The experts of each row with their weights, from the best to the worst. A warp for each row. `given` has as many numbers
// for a row as it has experts, of which the first is NONE where they are to be chosen.
extern "C" __global__ void choose_experts(
    const float *scores, const float *bias, const float *factors, const unsigned *given, unsigned *chosen, float *weights_out,
    unsigned rows, unsigned experts, unsigned per_token, unsigned sigmoid, unsigned groups, unsigned group_count,
    unsigned best, unsigned normalize, float least, float added, float factor) {
    __shared__ float all_weights[WARPS][MOST_EXPERTS], all_chances[WARPS][MOST_EXPERTS];
    const Router router{experts, per_token, sigmoid, groups, group_count, best, normalize, least, added, factor};
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.x * WARPS + warp;
    if (row >= rows)
        return;
    scores += size_t(row) * experts;
    float *weights = all_weights[warp], *chances = all_chances[warp];
    const float total = weigh(router, scores, bias, weights, chances, lane);
    if (is_broken(router, chances, lane))
        factor = NAN;
    const unsigned *own = given == nullptr ? nullptr : given + size_t(row) * per_token;
    const bool has_own = own != nullptr && own[0] != NONE;
    const unsigned groups_chosen = groups == 0 || has_own ? ALL_LANES : chosen_groups(router, chances, lane);
    const unsigned group_size = groups == 0 || has_own ? experts : experts / groups;

    unsigned taken = 0; // of the experts of this lane
    float sum = 0.0f;
    Candidate mine{0, 0, NONE}; // that this lane will write
    for (unsigned place = 0; place < per_token; ++place) {
        Candidate found{0, 0, NONE};
        for (unsigned i = lane, bit = 0; i < experts; i += 32, ++bit) {
            if (taken >> bit & 1 || !(groups_chosen >> i / group_size & 1) || (has_own && !is_given(own, per_token, i)))
                continue;
            const Candidate candidate{ordered(chances[i]), ordered(scores[i]), i};
            if (found.expert == NONE || is_better(candidate, found))
                found = candidate;
        }
        found = best_of_warp(found);
        // There are more experts than are chosen, so that one is left.
        if (found.expert % 32 == lane)
            taken |= 1u << found.expert / 32;
        sum += weights[found.expert];
        if (place == lane)
            mine = found;
    }
    if (lane >= per_token)
        return;
    const float divisor = normalize ? fmaxf(sum, least * total) + added * total : total;
    float weight = weights[mine.expert] / divisor * factor;
    if (factors != nullptr)
        weight *= factors[mine.expert];
    chosen[size_t(row) * per_token + lane] = mine.expert;
    weights_out[size_t(row) * per_token + lane] = weight;
}

// Lists rows by expert, in their order: of each expert how many rows it has, of each place of the list the row, of each choice
// its place, and tiles of at most `tile_rows` rows. A block for each expert, which counts the rows of all of them; the last one
// fills up the tiles, of which there are `tiles`.
extern "C" __global__ void list_rows(
    const unsigned *chosen, unsigned *counts_out, unsigned *rows, unsigned *places, unsigned *tiles_out, unsigned picks,
    unsigned per_token, unsigned tile_rows, unsigned tiles) {
    __shared__ unsigned counts[MOST_EXPERTS], sums[32], before[2];
    Tile *out = reinterpret_cast<Tile *>(tiles_out);
    const unsigned expert = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x)
        counts[i] = 0;
    if (threadIdx.x < 2)
        before[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned pick = threadIdx.x; pick < picks; pick += blockDim.x)
        if (chosen[pick] < gridDim.x)
            atomicAdd(&counts[chosen[pick]], 1);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < expert; i += blockDim.x) {
        atomicAdd(&before[0], counts[i]);
        atomicAdd(&before[1], (counts[i] + tile_rows - 1) / tile_rows);
    }
    __syncthreads();
    unsigned first = before[0];
    const unsigned tile = before[1], count = counts[expert];
    if (threadIdx.x == 0)
        counts_out[expert] = count;
    for (unsigned i = threadIdx.x; i * tile_rows < count; i += blockDim.x)
        out[tile + i] = {expert, first + i * tile_rows, min(tile_rows, count - i * tile_rows)};
    if (expert + 1 == gridDim.x)
        for (unsigned i = tile + (count + tile_rows - 1) / tile_rows + threadIdx.x; i < tiles; i += blockDim.x)
            out[i] = {NONE, 0, 0};
    for (unsigned begin = 0; begin < picks; begin += blockDim.x) {
        const unsigned pick = begin + threadIdx.x;
        const bool is_own = pick < picks && chosen[pick] == expert;
        const unsigned own = __ballot_sync(ALL_LANES, is_own);
        if (lane == 0)
            sums[warp] = __popc(own);
        __syncthreads();
        unsigned of_warp = first, all = 0;
        for (unsigned i = 0; i < warps; ++i) {
            of_warp += i < warp ? sums[i] : 0;
            all += sums[i];
        }
        if (is_own) {
            const unsigned place = of_warp + __popc(own & ((1u << lane) - 1));
            rows[place] = pick / per_token;
            places[pick] = place;
        }
        first += all;
        __syncthreads();
    }
}

namespace {

// A tile of rows times some rows of an expert's matrix. OUT is how many outputs a warp computes, EIGHTS how many times
// eight rows a tile has, STEPS for how many steps of 32 inputs it reads ahead.
//
// A lane reads eight neighbouring inputs of a line at once, sixteen bytes. That is another order of inputs than the
// products name, and both sides are in it.
template <unsigned OUT, unsigned EIGHTS, unsigned STEPS> struct Multiplication {
    static constexpr unsigned LINES = OUT / 8, STEP = 32;

    // What a lane reads for some steps.
    struct Read {
        uint4 left[STEPS][LINES], right[STEPS][EIGHTS];
    };

    const __nv_bfloat16 *left[LINES], *right[EIGHTS];
    float sums[OUT / 16][EIGHTS][4];

    __device__ void read(Read &read, unsigned at) const {
        #pragma unroll
        for (unsigned step = 0; step < STEPS; ++step) {
            #pragma unroll
            for (unsigned i = 0; i < LINES; ++i)
                read.left[step][i] = *reinterpret_cast<const uint4 *>(left[i] + at + STEP * step);
            #pragma unroll
            for (unsigned j = 0; j < EIGHTS; ++j)
                read.right[step][j] = *reinterpret_cast<const uint4 *>(right[j] + at + STEP * step);
        }
    }

    __device__ void add(const uint4 (&left)[LINES], const uint4 (&right)[EIGHTS]) {
        #pragma unroll
        for (unsigned i = 0; i < OUT / 16; ++i)
            #pragma unroll
            for (unsigned j = 0; j < EIGHTS; ++j) {
                const uint4 &low = left[2 * i], &high = left[2 * i + 1];
                product(sums[i][j], {low.x, high.x, low.y, high.y}, right[j].x, right[j].y);
                product(sums[i][j], {low.z, high.z, low.w, high.w}, right[j].z, right[j].w);
            }
    }

    __device__ void add(const Read &read) {
        #pragma unroll
        for (unsigned step = 0; step < STEPS; ++step)
            add(read.left[step], read.right[step]);
    }

    // One step, of which not all inputs need be there.
    __device__ void add_step(unsigned at, bool is_there) {
        uint4 of_left[LINES], of_right[EIGHTS];
        #pragma unroll
        for (unsigned i = 0; i < LINES; ++i)
            of_left[i] = is_there ? *reinterpret_cast<const uint4 *>(left[i] + at) : uint4{0, 0, 0, 0};
        #pragma unroll
        for (unsigned j = 0; j < EIGHTS; ++j)
            of_right[j] = is_there ? *reinterpret_cast<const uint4 *>(right[j] + at) : uint4{0, 0, 0, 0};
        add(of_left, of_right);
    }

    __device__ void run(const __nv_bfloat16 *input, const unsigned long long *matrices, const unsigned long long *biases,
                        const Tile &tile, const unsigned *sources, float *out, unsigned inputs, unsigned outputs) {
        const unsigned lane = threadIdx.x % 32, line = lane / 4, part = lane % 4;
        const unsigned first = (blockIdx.y * WARPS + threadIdx.x / 32) * OUT;
        if (first >= outputs)
            return;
        // Lines beyond the last are read as the last, and their results are not written.
        #pragma unroll
        for (unsigned i = 0; i < LINES; ++i)
            left[i] = reinterpret_cast<const __nv_bfloat16 *>(matrices[tile.expert]) +
                      size_t(min(first + 8 * i + line, outputs - 1)) * inputs + 8 * part;
        #pragma unroll
        for (unsigned j = 0; j < EIGHTS; ++j) {
            const unsigned place = tile.first + min(8 * j + line, tile.rows - 1);
            right[j] = input + size_t(sources == nullptr ? place : sources[place]) * inputs + 8 * part;
        }
        #pragma unroll
        for (unsigned i = 0; i < OUT / 16; ++i)
            #pragma unroll
            for (unsigned j = 0; j < EIGHTS; ++j)
                sums[i][j][0] = sums[i][j][1] = sums[i][j][2] = sums[i][j][3] = 0.0f;
        const unsigned whole = inputs / (STEP * STEPS) * (STEP * STEPS);
        Read now, next;
        if (whole != 0)
            read(next, 0);
        #pragma unroll 2
        for (unsigned at = 0; at < whole; at += STEP * STEPS) {
            now = next;
            if (at + STEP * STEPS < whole)
                read(next, at + STEP * STEPS);
            add(now);
        }
        for (unsigned at = whole; at < inputs; at += STEP)
            add_step(at, at + 8 * part < inputs);
        const float *bias = biases == nullptr ? nullptr : reinterpret_cast<const float *>(biases[tile.expert]);
        #pragma unroll
        for (unsigned i = 0; i < OUT / 16; ++i)
            #pragma unroll
            for (unsigned j = 0; j < EIGHTS; ++j)
                #pragma unroll
                for (unsigned n = 0; n < 4; ++n) {
                    const unsigned output = first + 16 * i + line + n / 2 * 8, row = 8 * j + 2 * part + n % 2;
                    if (output < outputs && row < tile.rows)
                        out[size_t(tile.first + row) * outputs + output] =
                            bias == nullptr ? sums[i][j][n] : sums[i][j][n] + bias[output];
                }
    }
};

// Whether a tile is to be multiplied: there is one, and it is of the expert `only`, unless that is NONE.
__device__ bool is_wanted(const Tile &tile, unsigned only) {
    return tile.expert != NONE && (only == NONE || tile.expert == only);
}

} // namespace

// Products of the rows of all tiles, or of those of one expert: for each place of the list `outputs` numbers. `sources` has
// of each place the row of the input; without it that is the place.
#define MULTIPLY(OUT, EIGHTS, STEPS)                                                                                             \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) multiply_experts_##OUT##_##EIGHTS(                            \
        const __nv_bfloat16 *input, const unsigned long long *matrices, const unsigned long long *biases,                  \
        const unsigned *tiles, const unsigned *sources, float *out, unsigned inputs, unsigned outputs, unsigned only) {    \
        const Tile tile = reinterpret_cast<const Tile *>(tiles)[blockIdx.x];                                               \
        if (is_wanted(tile, only)) {                                                                                       \
            Multiplication<OUT, EIGHTS, STEPS> multiplication;                                                             \
            multiplication.run(input, matrices, biases, tile, sources, out, inputs, outputs);                              \
        }                                                                                                                  \
    }

MULTIPLY(16, 1, 4)
MULTIPLY(16, 2, 4)
MULTIPLY(32, 4, 2)
MULTIPLY(32, 8, 1)

// The same in f32: a warp for each output, whose lanes each sum every 32nd product.
extern "C" __global__ void multiply_experts_f32(
    const float *input, const unsigned long long *matrices, const unsigned long long *biases, const unsigned *tiles,
    const unsigned *sources, float *out, unsigned inputs, unsigned outputs, unsigned only) {
    const Tile tile = reinterpret_cast<const Tile *>(tiles)[blockIdx.x];
    const unsigned lane = threadIdx.x % 32, output = blockIdx.y * WARPS + threadIdx.x / 32;
    if (!is_wanted(tile, only) || output >= outputs)
        return;
    const float *line = reinterpret_cast<const float *>(matrices[tile.expert]) + size_t(output) * inputs;
    const float *bias = biases == nullptr ? nullptr : reinterpret_cast<const float *>(biases[tile.expert]);
    for (unsigned row = 0; row < tile.rows; ++row) {
        const unsigned place = tile.first + row;
        const float *numbers = input + size_t(sources == nullptr ? place : sources[place]) * inputs;
        float sum = 0.0f;
        for (unsigned i = lane; i < inputs; i += 32)
            sum = __fmaf_rn(line[i], numbers[i], sum);
        sum = over_warp(sum);
        if (lane == 0)
            out[size_t(place) * outputs + output] = bias == nullptr ? sum : sum + bias[output];
    }
}

// Adds to each row what its experts give, times their weights and the factor, in the order of the experts' numbers. A block
// for each row.
extern "C" __global__ void add_experts(
    const float *given, const unsigned *chosen, const float *weights, const unsigned *places, float *sums, unsigned width,
    unsigned per_token, float factor) {
    __shared__ unsigned order[MOST_CHOSEN];
    const size_t row = blockIdx.x, first = row * per_token;
    if (threadIdx.x < per_token) {
        const unsigned own = chosen[first + threadIdx.x];
        unsigned before = 0;
        for (unsigned i = 0; i < per_token; ++i)
            before += chosen[first + i] < own;
        order[before] = threadIdx.x;
    }
    __syncthreads();
    for (unsigned column = threadIdx.x; column < width; column += blockDim.x) {
        float sum = sums[row * width + column];
        for (unsigned i = 0; i < per_token; ++i) {
            const size_t pick = first + order[i];
            sum = __fadd_rn(sum, __fmul_rn(given[size_t(places[pick]) * width + column], __fmul_rn(weights[pick], factor)));
        }
        sums[row * width + column] = sum;
    }
}
