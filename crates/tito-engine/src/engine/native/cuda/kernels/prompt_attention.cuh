// Attention of many rows by a block of threads: prompts.
//
// A warp has 32 rows of its own, and all warps read the same blocks of keys and values, which are copied to shared memory
// some blocks ahead. Keys lie there so that no two lanes read one bank; values lie so in the cache.

#pragma once

#include "attention.cuh"

// What may be tried, by -D.
#ifndef PROMPT_WARPS
#define PROMPT_WARPS 4 // `PROMPT_ROWS` in schedule.rs is 32 times as many
#endif
#ifndef PROMPT_STAGES
#define PROMPT_STAGES 3 // blocks in shared memory, `STAGES` in paged_attention.rs
#endif
#ifndef PROMPT_BLOCKS
#define PROMPT_BLOCKS 2 // blocks of threads for which a multiprocessor has registers
#endif
#ifndef PROMPT_KEPT
#define PROMPT_KEPT 3 // steps of 32 numbers, of heads longer than 96, whose queries stay in registers
#endif

namespace {

__device__ void copy_later(void *to, const void *from) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}

__device__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all copies but those of the last LEFT groups.
template <unsigned LEFT> __device__ void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

template <unsigned HEAD> struct Prompt {
    static constexpr unsigned WARPS = PROMPT_WARPS, STAGES = PROMPT_STAGES, TILES = 2, ROWS = TILE * TILES * WARPS;
    static constexpr unsigned GROUPS = Numbers<HEAD>::GROUPS, STEPS = Numbers<HEAD>::STEPS;
    static constexpr unsigned PART = GROUPS * BLOCK; // sixteen bytes each of a block's keys, and as many of its values
    static constexpr unsigned KEPT = HEAD <= 96 ? STEPS : PROMPT_KEPT; // steps whose queries stay in registers

    struct Shared {
        uint4 blocks[STAGES][2 * PART];
        uint4 queries[WARPS * TILES * Queries<HEAD>::OF_TILE];
    };

    // The sums of a lane: of row `lane / 4` and of the eighth after it, of each tile.
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

    // The sums of all splits before this one. They are in local memory, as registers have no room; `zero` is one that the
    // compiler does not know, or it would look for room.
    struct Before {
        float4 numbers[TILES][GROUPS];
        Softmax softmax[TILES][2];
        unsigned zero;
    };

    // What a lane has to know of the rows that it computes.
    struct Place {
        unsigned warp, lane;
        unsigned lowest, highest;      // the first and the last key that count for any row
        unsigned inside, last_inside;  // the first and the last key that count for every row
        unsigned position[TILES][2];   // of each of its rows
    };

    __device__ static void copy_block(uint4 *to, const __nv_bfloat16 *keys, const __nv_bfloat16 *values) {
        #pragma unroll
        for (unsigned begun = 0; begun < PART; begun += WARPS * 32) {
            const unsigned i = begun + threadIdx.x, group = i / BLOCK;
            if (PART % (WARPS * 32) != 0 && i >= PART)
                continue;
            // So that the four lanes which share a key find their groups in four places of two banks each.
            copy_later(to + (i ^ group % 4 * 2), reinterpret_cast<const uint4 *>(keys) + i);
            copy_later(to + PART + i, reinterpret_cast<const uint4 *>(values) + i);
        }
    }

    typedef Query Kept[KEPT == 0 ? 1 : KEPT][TILES];

    __device__ static void score(
        Scores (&scores)[TILES], const Shared &shared, const uint4 *keys, const Kept &kept, const Place &place) {
        const unsigned quarter = place.lane % 4, eighth = place.lane / 4;
        const unsigned at = quarter * BLOCK + (8 * (eighth / 2) + eighth % 2 ^ quarter * 2);
        #pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile)
            clear(scores[tile]);
        #pragma unroll
        for (unsigned step = 0; step < STEPS; ++step) {
            Query queries[TILES];
            #pragma unroll
            for (unsigned tile = 0; tile < TILES; ++tile)
                queries[tile] = step < KEPT ? kept[step < KEPT ? step : 0][tile]
                                            : Queries<HEAD>::of(shared.queries, place.warp * TILES + tile, step, place.lane);
            #pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                const bool there = 4 * step + 3 < GROUPS || 4 * step + quarter < GROUPS;
                const uint4 key = there ? keys[(at ^ 2 * i) + 4 * step * BLOCK] : uint4{0, 0, 0, 0};
                #pragma unroll
                for (unsigned tile = 0; tile < TILES; ++tile)
                    multiply(scores[tile][i], queries[tile].first, queries[tile].second, key);
            }
        }
    }

    // A block of keys and values.
    template <bool INSIDE>
    __device__ static void add_block(
        Sums &sums, const Shared &shared, const uint4 *block, const Kept &kept, const Layer &layer, const Place &place,
        unsigned token) {
        Scores scores[TILES];
        score(scores, shared, block, kept, place);
        unsigned weights[TILES][2][4];
        #pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile) {
            if (layer.cap != 0.0f)
                cap(scores[tile], layer);
            float factors[2];
            #pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                Softmax &softmax = sums.softmax[tile][half];
                const float max = largest<INSIDE>(scores[tile], half, layer, token, place.lane, place.position[tile][half]);
                const float reference = next_reference(softmax.reference, max);
                factors[half] = factor_between(softmax.reference, reference);
                // Of this lane's keys only; lanes are added up when the split is through.
                softmax = {reference, __fmaf_rn(softmax.sum, factors[half], weigh(scores[tile], half, layer, reference))};
            }
            // Most blocks leave the references of all rows as they were, and nothing changes by a factor of one.
            if (__any_sync(ALL_LANES, factors[0] != 1.0f || factors[1] != 1.0f))
                #pragma unroll
                for (unsigned group = 0; group < GROUPS; ++group)
                    #pragma unroll
                    for (unsigned i = 0; i < 4; ++i)
                        sums.numbers[tile][group][i] = __fmul_rn(sums.numbers[tile][group][i], factors[i / 2]);
            #pragma unroll
            for (unsigned i = 0; i < 8; ++i)
                weights[tile][i / 4][i % 4] = pair(scores[tile][i / 2][2 * (i % 2)], scores[tile][i / 2][2 * (i % 2) + 1]);
        }
        #pragma unroll
        for (unsigned group = 0; group < GROUPS; ++group) {
            uint4 values = block[PART + group * BLOCK + place.lane];
            if (!INSIDE)
                values = cut(values, token + 8 * (place.lane % 4), place.lowest, place.highest);
            #pragma unroll
            for (unsigned tile = 0; tile < TILES; ++tile) {
                product(sums.numbers[tile][group], weights[tile][0], values.x, values.y);
                product(sums.numbers[tile][group], weights[tile][1], values.z, values.w);
            }
        }
    }

    // Merges a split with those before it, in its own place.
    __device__ static void merge_before(Sums &sums, const Before &before, bool is_first) {
        #pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile) {
            Factors factors[2];
            #pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                Softmax &own = sums.softmax[tile][half];
                Softmax softmax = is_first ? Softmax{-INFINITY, 0.0f} : before.softmax[tile + before.zero][half];
                factors[half] = merge(softmax, {own.reference, sum_of_row(own.sum)});
                own = softmax;
            }
            #pragma unroll
            for (unsigned group = 0; group < GROUPS; ++group) {
                const float4 left = is_first ? float4{0.0f, 0.0f, 0.0f, 0.0f} : before.numbers[tile + before.zero][group];
                float (&numbers)[4] = sums.numbers[tile][group];
                numbers[0] = merged(left.x, numbers[0], factors[0]);
                numbers[1] = merged(left.y, numbers[1], factors[0]);
                numbers[2] = merged(left.z, numbers[2], factors[1]);
                numbers[3] = merged(left.w, numbers[3], factors[1]);
            }
        }
    }

    __device__ static void keep(Before &before, const Sums &sums) {
        #pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile) {
            before.softmax[tile + before.zero][0] = sums.softmax[tile][0];
            before.softmax[tile + before.zero][1] = sums.softmax[tile][1];
            #pragma unroll
            for (unsigned group = 0; group < GROUPS; ++group) {
                const float (&numbers)[4] = sums.numbers[tile][group];
                before.numbers[tile + before.zero][group] = {numbers[0], numbers[1], numbers[2], numbers[3]};
            }
        }
    }

    __device__ static void run(const Given &given) {
        extern __shared__ uint4 memory[];
        Shared &shared = *reinterpret_cast<Shared *>(memory);
        const Item item = given.items[blockIdx.x];
        const Layer &layer = given.layer;
        const Rows rows(layer, ROWS);
        Place place;
        place.warp = threadIdx.x / 32;
        place.lane = threadIdx.x % 32;
        place.lowest = first_key(layer, item.position);
        place.highest = item.position + item.tokens - 1;
        place.inside = first_key(layer, place.highest);
        place.last_inside = item.position;
        #pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile)
            #pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                const unsigned row = (place.warp * TILES + tile) * TILE + half * 8 + place.lane / 4;
                place.position[tile][half] = min(item.position + row / rows.heads, place.highest);
            }
        const bool has_rows = place.warp * TILES * TILE / rows.heads < item.tokens;

        const unsigned begin = max(item.split * SPLIT, place.lowest) / BLOCK;
        const unsigned end = (min((item.split + item.splits) * SPLIT, place.highest + 1) + BLOCK - 1) / BLOCK;
        const unsigned *blocks = given.tables + item.table;
        const size_t block_size = size_t(layer.kv_heads) * HEAD * BLOCK, skipped = size_t(rows.kv_head) * HEAD * BLOCK;
        #pragma unroll
        for (unsigned stage = 0; stage + 1 < STAGES; ++stage) {
            if (begin + stage < end) {
                const size_t at = blocks[begin + stage] * block_size + skipped;
                copy_block(shared.blocks[stage], given.keys + at, given.values + at);
            }
            end_copies();
        }
        Queries<HEAD>::read(shared.queries, WARPS * TILES, given, item, rows, false);
        __syncthreads();
        Kept kept;
        #pragma unroll
        for (unsigned step = 0; step < KEPT; ++step)
            #pragma unroll
            for (unsigned tile = 0; tile < TILES; ++tile)
                kept[step][tile] = Queries<HEAD>::of(shared.queries, place.warp * TILES + tile, step, place.lane);

        Sums sums;
        sums.clear();
        Before before;
        asm volatile("mov.u32 %0, 0;" : "=r"(before.zero));
        bool is_first = true;
        unsigned stage = 0;
        #pragma unroll 1
        for (unsigned block = begin; block < end; ++block) {
            wait_for_copies<STAGES - 2>();
            __syncthreads();
            const unsigned next = block + STAGES - 1;
            if (next < end) {
                const size_t at = blocks[next] * block_size + skipped;
                copy_block(shared.blocks[stage == 0 ? STAGES - 1 : stage - 1], given.keys + at, given.values + at);
            }
            end_copies();
            if (has_rows) {
                if (block % (SPLIT / BLOCK) == 0 && block != begin) {
                    merge_before(sums, before, is_first);
                    keep(before, sums);
                    sums.clear();
                    is_first = false;
                }
                const unsigned token = block * BLOCK;
                const uint4 *own = shared.blocks[stage];
                if (token >= place.inside && token + BLOCK - 1 <= place.last_inside)
                    add_block<true>(sums, shared, own, kept, layer, place, token);
                else
                    add_block<false>(sums, shared, own, kept, layer, place, token);
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        if (!has_rows)
            return;
        merge_before(sums, before, is_first);
        #pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile)
            #pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                const unsigned row = (place.warp * TILES + tile) * TILE + half * 8 + place.lane / 4;
                const Result<HEAD> result(given, item, rows, row, sums.softmax[tile][half]);
                #pragma unroll
                for (unsigned group = 0; group < GROUPS; ++group) {
                    const float (&numbers)[4] = sums.numbers[tile][group];
                    result.write(group * 8 + place.lane % 4 * 2, numbers[2 * half], numbers[2 * half + 1]);
                }
            }
    }
};

} // namespace
