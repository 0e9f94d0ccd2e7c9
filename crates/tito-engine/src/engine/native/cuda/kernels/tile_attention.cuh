// Attention of up to sixteen rows by a block of threads: single tokens, and a few more.
//
// Four warps read four blocks of keys at once. Each computes the scores of one block; they tell each other the largest
// ones and the weights; then each adds the values of all four blocks, for every fourth group of numbers.

#pragma once

#include "attention.cuh"

// What may be tried, by -D.
#ifndef TILE_BLOCKS
#define TILE_BLOCKS 2 // blocks of threads for which a multiprocessor has registers
#endif

namespace {

template <unsigned HEAD> struct Tile {
    static constexpr unsigned WARPS = 4, GROUPS = Numbers<HEAD>::GROUPS, STEPS = Numbers<HEAD>::STEPS;
    static constexpr unsigned OWN = (GROUPS + WARPS - 1) / WARPS; // groups that a warp adds up
    static constexpr bool SHORT = HEAD <= 128;                    // so that all that is read at once has registers
    static constexpr unsigned AHEAD = SHORT ? STEPS : 4;          // steps whose keys are read at once

    struct Shared {
        uint4 queries[Queries<HEAD>::OF_TILE];
        uint4 weights[WARPS][2][32]; // as products want them
        float largest[TILE][WARPS];
        float sums[WARPS][2][32];    // of the weights of a lane's keys
        float heads[WARPS][HEAD];    // that warps make ready
        bool is_last;                // whether all other splits of the tile are computed
    };

    // The sums of a lane: of row `lane / 4` and of the eighth after it.
    struct Sums {
        float numbers[OWN][4];
        Softmax softmax[2];

        __device__ void clear() {
            softmax[0] = softmax[1] = {-INFINITY, 0.0f};
            #pragma unroll
            for (unsigned group = 0; group < OWN; ++group)
                #pragma unroll
                for (unsigned i = 0; i < 4; ++i)
                    numbers[group][i] = 0.0f;
        }

        // Adds a split.
        __device__ void add(const Sums &split) {
            Factors factors[2];
            #pragma unroll
            for (unsigned half = 0; half < 2; ++half)
                factors[half] = merge(softmax[half], {split.softmax[half].reference, sum_of_row(split.softmax[half].sum)});
            #pragma unroll
            for (unsigned group = 0; group < OWN; ++group)
                #pragma unroll
                for (unsigned i = 0; i < 4; ++i)
                    numbers[group][i] = merged(numbers[group][i], split.numbers[group][i], factors[i / 2]);
        }
    };

    // What all four blocks of a turn have in common.
    struct Turn {
        unsigned token, lowest, end; // the first token of the four blocks, and which tokens there are of the split
        __device__ bool has(unsigned block) const {
            return token + block * BLOCK < end && token + (block + 1) * BLOCK > lowest;
        }
        __device__ Turn after() const { return {token + WARPS * BLOCK, lowest, end}; }
    };

    typedef uint4 Keys[AHEAD][4];

    // The keys of a block, for some steps from `first` on.
    __device__ static void read_keys(Keys &read, const __nv_bfloat16 *keys, unsigned first, unsigned lane) {
        const unsigned quarter = lane % 4, eighth = lane / 4;
        #pragma unroll
        for (unsigned ahead = 0; ahead < AHEAD; ++ahead)
            #pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                const unsigned group = 4 * (first + ahead) + quarter, token = 8 * (eighth / 2) + 2 * i + eighth % 2;
                const uint4 *at = reinterpret_cast<const uint4 *>(keys) + group * BLOCK + token;
                read[ahead][i] = group < GROUPS ? *at : uint4{0, 0, 0, 0};
            }
    }

    // Adds what these keys are to the scores.
    __device__ static void score(Scores &scores, const Shared &shared, const Keys &keys, unsigned first, unsigned lane) {
        #pragma unroll
        for (unsigned ahead = 0; ahead < AHEAD; ++ahead) {
            if (first + ahead >= STEPS)
                continue;
            const Query query = Queries<HEAD>::of(shared.queries, 0, first + ahead, lane);
            #pragma unroll
            for (unsigned i = 0; i < 4; ++i)
                multiply(scores[i], query.first, query.second, keys[ahead][i]);
        }
    }

    // The values of a block, for the groups of this warp.
    __device__ static void read_values(uint4 (&read)[OWN], const __nv_bfloat16 *values, unsigned warp, unsigned lane) {
        #pragma unroll
        for (unsigned i = 0; i < OWN; ++i)
            if (warp + i * WARPS < GROUPS)
                read[i] = *(reinterpret_cast<const uint4 *>(values) + (warp + i * WARPS) * BLOCK + lane);
    }

    // Makes the heads of a tile ready. Queries stay here. Keys and values go to the cache, those of tokens in these splits: a token
    // has its keys there before this block reads them, and no other block does.
    __device__ static void prepare(
        Shared &shared, const Given &given, const Preparation &how, const Item &item, const Rows &rows, unsigned warp,
        unsigned lane) {
        const unsigned heads = given.layer.heads, kv_heads = given.layer.kv_heads, all = rows.heads + 2;
        float *own = shared.heads[warp];
        for (unsigned i = warp; i < item.tokens * all; i += WARPS) {
            const unsigned token = i / all, head = i % all, position = item.position + token;
            const size_t row = item.row + token;
            const float *from = given.states + row * given.columns;
            if (head < rows.heads) {
                prepared<HEAD>(from + (rows.head + head) * HEAD, own, false, row, how, lane);
                for (unsigned number = 2 * lane; number < HEAD; number += 64)
                    Queries<HEAD>::put(shared.queries, token * rows.heads + head, number, own[number], own[number + 1]);
            } else if (position / SPLIT - item.split < item.splits) {
                const unsigned block = given.tables[item.table + position / BLOCK];
                const size_t width = size_t(kv_heads) * HEAD;
                const Slot slot = Slot::of(given.keys, given.values, block, position % BLOCK, width);
                const bool is_key = head == rows.heads;
                const float *kept = from + (heads + (is_key ? 0 : kv_heads) + rows.kv_head) * HEAD;
                if (is_key)
                    prepared<HEAD>(kept, own, true, row, how, lane);
                keep<HEAD>(is_key ? own : kept, is_key, rows.kv_head, slot, row, how, lane);
            }
            __syncwarp();
        }
    }

    __device__ static void run(const Given &given, const Preparation &how) {
        __shared__ Shared shared;
        const Item item = given.items[blockIdx.x];
        if (item.tokens == 0)
            return; // only there so that there are as many items as in other steps
        const Layer &layer = given.layer;
        const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, eighth = lane / 4;
        const Rows rows(layer, TILE);
        const unsigned lowest = first_key(layer, item.position), highest = item.position + item.tokens - 1;
        const unsigned inside = first_key(layer, highest); // from here to `item.position`, every key counts for every row
        const unsigned halves = item.tokens * rows.heads <= 8 ? 1 : 2;
        const unsigned token_of[2] = {eighth / rows.heads, (eighth + 8) / rows.heads};
        unsigned position[2];
        #pragma unroll
        for (unsigned half = 0; half < 2; ++half)
            position[half] = min(item.position + token_of[half], highest);

        const bool prepares = how.cosines != nullptr;
        if (prepares)
            prepare(shared, given, how, item, rows, warp, lane);
        Queries<HEAD>::read(shared.queries, 1, given, item, rows, prepares);
        __syncthreads();
        const unsigned *blocks = given.tables + item.table;
        const size_t block_size = size_t(layer.kv_heads) * HEAD * BLOCK, skipped = size_t(rows.kv_head) * HEAD * BLOCK;
        Sums all;
        all.clear();
        for (unsigned number = item.split; number < item.split + item.splits; ++number) {
            Sums split;
            split.clear();
            const unsigned begin = max(number * SPLIT, lowest / (WARPS * BLOCK) * (WARPS * BLOCK));
            Turn turn{begin, lowest, min((number + 1) * SPLIT, highest + 1)};
            Keys keys;
            if (SHORT && turn.has(warp))
                read_keys(keys, given.keys + blocks[turn.token / BLOCK + warp] * block_size + skipped, 0, lane);
            for (; turn.token < turn.end; turn.token += WARPS * BLOCK) {
                uint4 read[SHORT ? WARPS : 1][OWN];
                const unsigned token = turn.token + warp * BLOCK;
                Scores scores;
                float max[2] = {-INFINITY, -INFINITY};
                if (SHORT)
                    #pragma unroll
                    for (unsigned block = 0; block < WARPS; ++block)
                        if (turn.has(block))
                            read_values(
                                read[SHORT ? block : 0],
                                given.values + blocks[turn.token / BLOCK + block] * block_size + skipped, warp, lane);
                clear(scores);
                if (SHORT && turn.has(warp))
                    score(scores, shared, keys, 0, lane);
                // The next keys are on their way while this turn goes on.
                if (SHORT && turn.after().has(warp))
                    read_keys(keys, given.keys + blocks[token / BLOCK + WARPS] * block_size + skipped, 0, lane);
                if (turn.has(warp)) {
                    #pragma unroll
                    for (unsigned first = 0; !SHORT && first < STEPS; first += AHEAD) {
                        read_keys(keys, given.keys + blocks[token / BLOCK] * block_size + skipped, first, lane);
                        score(scores, shared, keys, first, lane);
                    }
                    if (layer.cap != 0.0f)
                        cap(scores, layer);
                    const bool whole = token >= inside && token + BLOCK - 1 <= item.position;
                    #pragma unroll
                    for (unsigned half = 0; half < 2; ++half)
                        if (half < halves)
                            max[half] = whole ? largest<true>(scores, half, layer, token, lane, position[half])
                                              : largest<false>(scores, half, layer, token, lane, position[half]);
                }
                if (lane % 4 == 0) {
                    shared.largest[eighth][warp] = max[0];
                    shared.largest[eighth + 8][warp] = max[1];
                }
                __syncthreads();
                float references[2][WARPS];
                #pragma unroll
                for (unsigned half = 0; half < 2; ++half) {
                    const float4 of_row = *reinterpret_cast<const float4 *>(shared.largest[eighth + 8 * half]);
                    const float of_block[WARPS] = {of_row.x, of_row.y, of_row.z, of_row.w};
                    float reference = split.softmax[half].reference;
                    #pragma unroll
                    for (unsigned block = 0; block < WARPS; ++block)
                        references[half][block] = reference = next_reference(reference, of_block[block]);
                }
                if (turn.has(warp))
                    share_weights(shared, scores, layer, references, halves, warp, lane);
                __syncthreads();
                #pragma unroll
                for (unsigned block = 0; block < WARPS; ++block) {
                    if (!turn.has(block))
                        continue;
                    uint4 (&values)[OWN] = read[SHORT ? block : 0];
                    const unsigned first = turn.token + block * BLOCK;
                    if (!SHORT)
                        read_values(values, given.values + blocks[first / BLOCK] * block_size + skipped, warp, lane);
                    if (first < lowest || first + BLOCK - 1 > highest)
                        #pragma unroll
                        for (unsigned i = 0; i < OWN; ++i)
                            values[i] = cut(values[i], first + 8 * (lane % 4), lowest, highest);
                    add_values(split, shared, values, references, block, halves, warp, lane);
                }
            }
            all.add(split);
        }
        #pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            if (half >= halves)
                continue;
            const Result<HEAD> result(given, item, rows, eighth + 8 * half, all.softmax[half]);
            #pragma unroll
            for (unsigned i = 0; i < OWN; ++i)
                if (warp + i * WARPS < GROUPS)
                    result.write((warp + i * WARPS) * 8 + lane % 4 * 2, all.numbers[i][2 * half], all.numbers[i][2 * half + 1]);
        }
        if (item.part != WHOLE)
            merge_splits(shared, given, item, rows, lowest / SPLIT);
    }

    // Merges the splits of a tile, the first of which is split `first`, unless another block has to compute one of them yet.
    __device__ static void merge_splits(
        Shared &shared, const Given &given, const Item &item, const Rows &rows, unsigned first) {
        const unsigned part = item.part - (item.split - first);
        // What this block has written is there for others before it says so; and what others have written, before it is read.
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) // It is zero again after the last one.
            shared.is_last = atomicInc(&given.done[part * gridDim.y + blockIdx.y], item.parts - 1) == item.parts - 1;
        __syncthreads();
        if (!shared.is_last)
            return;
        __threadfence();
        for (unsigned i = threadIdx.x; i < item.tokens * rows.heads * (HEAD / 2); i += blockDim.x) {
            const unsigned token = i / (HEAD / 2) / rows.heads, head = rows.head + i / (HEAD / 2) % rows.heads;
            merge_parts<HEAD>(given, item.row + token, head, part + token * item.parts, item.parts, i % (HEAD / 2) * 2);
        }
    }

    // Tells the other warps the weights of this warp's block, and their sums.
    __device__ static void share_weights(
        Shared &shared, Scores &scores, const Layer &layer, const float (&references)[2][WARPS], unsigned halves, unsigned warp,
        unsigned lane) {
        #pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            // No register is to be found by its number: which warp this is, is not known before.
            float reference = references[half][0];
            #pragma unroll
            for (unsigned block = 1; block < WARPS; ++block)
                reference = block == warp ? references[half][block] : reference;
            if (half < halves)
                shared.sums[warp][half][lane] = weigh(scores, half, layer, reference);
        }
        #pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
            const float *low = scores[2 * i], *high = scores[2 * i + 1];
            const bool both = halves == 2;
            shared.weights[warp][i][lane] = {
                pair(low[0], low[1]), both ? pair(low[2], low[3]) : 0, pair(high[0], high[1]), both ? pair(high[2], high[3]) : 0};
        }
    }

    // Adds the values of a block by their weights.
    __device__ static void add_values(
        Sums &sums, const Shared &shared, const uint4 (&values)[OWN], const float (&references)[2][WARPS], unsigned block,
        unsigned halves, unsigned warp, unsigned lane) {
        float factors[2] = {1.0f, 1.0f};
        #pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            if (half >= halves)
                continue;
            Softmax &softmax = sums.softmax[half];
            factors[half] = factor_between(softmax.reference, references[half][block]);
            // Of this lane's keys only; lanes are added up when the split is through.
            softmax = {references[half][block], __fmaf_rn(softmax.sum, factors[half], shared.sums[block][half][lane])};
        }
        const uint4 weights[2] = {shared.weights[block][0][lane], shared.weights[block][1][lane]};
        const unsigned first[4] = {weights[0].x, weights[0].y, weights[0].z, weights[0].w};
        const unsigned second[4] = {weights[1].x, weights[1].y, weights[1].z, weights[1].w};
        #pragma unroll
        for (unsigned i = 0; i < OWN; ++i) {
            if (warp + i * WARPS >= GROUPS)
                continue;
            #pragma unroll
            for (unsigned j = 0; j < 4; ++j)
                sums.numbers[i][j] = __fmul_rn(sums.numbers[i][j], factors[j / 2]);
            product(sums.numbers[i], first, values[i].x, values[i].y);
            product(sums.numbers[i], second, values[i].z, values[i].w);
        }
    }
};

} // namespace
