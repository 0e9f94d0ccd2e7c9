// Sums over rows of logits, with the very arithmetic of crates/tito-sampling/src/softmax.rs: compiled without fused operations, and in
// its order, so that a token drawn by these sums is the one that is drawn by all logits.

namespace {

constexpr unsigned BLOCK = 256;
constexpr unsigned LANES = 8;
// Threads that draw a token.
constexpr unsigned DRAWING = 1024;

// How a token is chosen: the best one, by a share of all weights, or given.
enum Way : unsigned { BEST, SHARE, GIVEN };
// Added to the way where the token is described by the logits that it was drawn from, and not by the model's own.
constexpr unsigned PROCESSED = 4;
// The place of a mask that leaves all tokens.
constexpr unsigned NO_MASK = ~0u;

// What is drawn of a row.
struct Drawn {
    unsigned id;
    float logit;
    float max;
    unsigned at_least;
    double total;
};

__device__ double exp2_of(double x) {
    const double round = 6755399441055744.0;
    const double c1 = 0.6931471805599368, c2 = 0.24022650695763947, c3 = 0.055504108665504565;
    const double c4 = 0.009618129170900346, c5 = 0.0013333558042035404, c6 = 0.00015403448222076687;
    const double c7 = 1.5252772624166127e-5, c8 = 1.3256752045026593e-6, c9 = 1.0185971765216355e-7;
    const double shifted = x + round;
    const double fraction = x - (shifted - round);
    const double square = fraction * fraction;
    const double fourth = square * square;
    const double low = (1.0 + c1 * fraction) + (c2 + c3 * fraction) * square;
    const double high = (c4 + c5 * fraction) + (c6 + c7 * fraction) * square + (c8 + c9 * fraction) * fourth;
    const long long one = 0x3ff0000000000000ll;
    const unsigned long long bits = (unsigned long long)__double_as_longlong(shifted) << 52;
    const double power_of_two = __longlong_as_double((long long)(bits + (unsigned long long)one));
    return x < -1000.0 ? 0.0 : (low + high * fourth) * power_of_two;
}

// The greatest over a block of THREADS threads, in every thread. A number that is not one never is.
template <unsigned THREADS> __device__ float greatest(float number) {
    __shared__ float shared[THREADS];
    shared[threadIdx.x] = number;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads();
    return shared[0];
}

// The greatest of `count` numbers over a block of DRAWING threads, in every thread.
__device__ float greatest_of(const float *numbers, unsigned count) {
    float number = -INFINITY;
    for (unsigned i = threadIdx.x; i < count; i += DRAWING)
        number = fmaxf(number, numbers[i]);
    __syncthreads();
    return greatest<DRAWING>(number);
}

// The place of the first of `count` numbers that is at least `least`, in every thread; 0 if none is.
__device__ unsigned first_at_least(const float *numbers, unsigned count, float least) {
    __shared__ unsigned place;
    if (threadIdx.x == 0)
        place = count;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
        if (numbers[i] >= least) {
            atomicMin(&place, i);
            break;
        }
    __syncthreads();
    const unsigned found = place < count ? place : 0;
    __syncthreads();
    return found;
}

// Numbers in memory, by way of what threads of a block share: calls `take` with each of them and its place, in order, in the
// first thread, until it says that it has enough.
template <class Take> __device__ void in_order(const double *numbers, unsigned count, double *staged, Take take) {
    bool enough = false;
    for (unsigned first = 0; first < count; first += DRAWING) {
        __syncthreads();
        if (first + threadIdx.x < count)
            staged[threadIdx.x] = numbers[first + threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0)
            for (unsigned i = 0; i < min(DRAWING, count - first) && !enough; ++i)
                enough = take(first + i, staged[i]);
    }
    __syncthreads();
}

// Where the cumulative weights first exceed a share of all, as `BlockSums::block_of` and `first_exceeding` have it: `sums` are those
// of the blocks. In the first thread only.
struct Search {
    double before = 0.0, after = 0.0;
    unsigned place = 0;

    __device__ bool take(unsigned at, double weight, double target) {
        if (weight > 0.0) {
            place = at;
            before = after;
            after += weight;
            return after > target;
        }
        return false;
    }
};

// The place of the token by a share of all weights, in every thread.
__device__ unsigned by_share(
    const float *row, const double *sums, unsigned width, unsigned blocks, float max, double bits, double uniform, double *staged) {
    __shared__ unsigned place;
    double all = 0.0;
    in_order(sums, blocks, staged, [&](unsigned, double sum) {
        all += sum;
        return false;
    });
    const double target = uniform * all;
    Search search;
    in_order(sums, blocks, staged, [&](unsigned at, double sum) { return search.take(at, sum, target); });
    if (threadIdx.x == 0)
        place = search.place;
    __syncthreads();
    const unsigned first = place * BLOCK;
    const unsigned count = min(BLOCK, width - first);
    if (threadIdx.x < count)
        staged[threadIdx.x] = exp2_of((double(row[first + threadIdx.x]) - double(max)) * bits);
    __syncthreads();
    if (threadIdx.x == 0) {
        Search within;
        within.after = search.before;
        for (unsigned i = 0; i < count; ++i)
            if (within.take(i, staged[i], target))
                break;
        place = first + within.place;
    }
    __syncthreads();
    return place;
}

} // namespace

// A block of threads for each row and block of logits.
extern "C" __global__ void block_maxima(const float *logits, const unsigned *rows, float *maxima, unsigned width) {
    const unsigned column = blockIdx.y * BLOCK + threadIdx.x;
    const float *row = logits + size_t(rows[blockIdx.x]) * width;
    const float greatest_logit = greatest<BLOCK>(column < width ? fmaxf(row[column], -INFINITY) : -INFINITY);
    if (threadIdx.x == 0)
        maxima[size_t(blockIdx.x) * gridDim.y + blockIdx.y] = greatest_logit;
}

// The same again: sums of weights, `kinds` of them, for each its factors: `bits[kind * rows + row]`.
extern "C" __global__ void block_sums(
    const float *logits,
    const unsigned *rows,
    const float *maxima,
    const double *bits,
    double *sums,
    unsigned width,
    unsigned kinds) {
    __shared__ double weights[BLOCK];
    __shared__ double lanes[LANES];
    const unsigned blocks = gridDim.y;
    float max = -INFINITY;
    for (unsigned block = threadIdx.x; block < blocks; block += BLOCK)
        max = fmaxf(max, maxima[size_t(blockIdx.x) * blocks + block]);
    max = greatest<BLOCK>(max);
    const unsigned first = blockIdx.y * BLOCK;
    const unsigned count = min(BLOCK, width - first);
    const unsigned grouped = count / LANES * LANES;
    const float *row = logits + size_t(rows[blockIdx.x]) * width + first;
    for (unsigned kind = 0; kind < kinds; ++kind) {
        const size_t index = size_t(kind) * gridDim.x + blockIdx.x;
        __syncthreads();
        if (threadIdx.x < count)
            weights[threadIdx.x] = exp2_of((double(row[threadIdx.x]) - double(max)) * bits[index]);
        __syncthreads();
        if (threadIdx.x < LANES) {
            double lane = 0.0;
            for (unsigned i = threadIdx.x; i < grouped; i += LANES)
                lane += weights[i];
            lanes[threadIdx.x] = lane;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            double sum = 0.0;
            for (unsigned lane = 0; lane < LANES; ++lane)
                sum += lanes[lane];
            for (unsigned i = grouped; i < count; ++i)
                sum += weights[i];
            sums[index * blocks + blockIdx.y] = sum;
        }
    }
}

// A block of threads for each wanted block of logits: `wanted[2 * i]` is its row, the number after it its place.
extern "C" __global__ void blocks_of(const float *logits, const unsigned *wanted, float *out, unsigned width) {
    const unsigned column = wanted[2 * blockIdx.x + 1] * BLOCK + threadIdx.x;
    const float *row = logits + size_t(wanted[2 * blockIdx.x]) * width;
    out[size_t(blockIdx.x) * BLOCK + threadIdx.x] = column < width ? row[column] : -INFINITY;
}

// A block of threads for each row: how many logits are at least the chosen one.
extern "C" __global__ void count_at_least(
    const float *logits, const unsigned *rows, const float *chosen, unsigned *counts, unsigned width) {
    __shared__ unsigned total;
    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();
    const float *row = logits + size_t(rows[blockIdx.x]) * width;
    const float least = chosen[blockIdx.x];
    unsigned count = 0;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x)
        count += row[i] >= least;
    atomicAdd(&total, count);
    __syncthreads();
    if (threadIdx.x == 0)
        counts[blockIdx.x] = total;
}

// What is edited of a row, as `RowEdits` of crates/tito-sampling has it: where its mask is and how many words that has; where its other
// edits are, and how many there are of each kind: tokens that are forbidden; tokens and what is added to their logits; tokens that
// occurred and how often they were sampled.
struct Edits {
    unsigned mask;
    unsigned mask_words;
    unsigned first;
    unsigned forbidden;
    unsigned biases;
    unsigned occurrences;
};

// How logits of tokens that occurred are changed.
struct Factors {
    double presence;
    double frequency;
    double repetition;
};

// A block of threads for each row and block of logits: the row, of which only tokens of its mask are left.
extern "C" __global__ void left_of_rows(
    const float *logits, const unsigned *rows, const Edits *edits, const unsigned *words, float *edited, unsigned width) {
    const unsigned column = blockIdx.y * BLOCK + threadIdx.x;
    if (column >= width)
        return;
    const Edits own = edits[blockIdx.x];
    const unsigned word = column / 32;
    const bool is_left = own.mask == NO_MASK || (word < own.mask_words && (words[own.mask + word] >> (column % 32) & 1));
    edited[size_t(blockIdx.x) * width + column] = is_left ? logits[size_t(rows[blockIdx.x]) * width + column] : -INFINITY;
}

// A block of threads for each row: the other edits, one kind after the other. Every kind has a token once, or changes it to the same.
extern "C" __global__ void edit_rows(
    float *edited, const Edits *edits, const Factors *factors, const unsigned *words, unsigned width) {
    const Edits own = edits[blockIdx.x];
    const Factors factor = factors[blockIdx.x];
    float *row = edited + size_t(blockIdx.x) * width;
    const unsigned *forbidden = words + own.first;
    const unsigned *biases = forbidden + own.forbidden;
    const unsigned *occurrences = biases + 2 * own.biases;
    for (unsigned i = threadIdx.x; i < own.forbidden; i += blockDim.x)
        if (forbidden[i] < width)
            row[forbidden[i]] = -INFINITY;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < own.biases; i += blockDim.x)
        if (biases[2 * i] < width)
            row[biases[2 * i]] += __uint_as_float(biases[2 * i + 1]);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < own.occurrences; i += blockDim.x) {
        const unsigned id = occurrences[2 * i], count = occurrences[2 * i + 1];
        if (id >= width)
            continue;
        const double logit = row[id];
        double penalised = logit > 0.0 ? logit / factor.repetition : logit * factor.repetition;
        if (count > 0)
            penalised -= factor.frequency * double(count) + factor.presence;
        row[id] = float(penalised);
    }
}

// A block of DRAWING threads for each row: its token, and what its log-prob and its rank are made of. The model's own logits come with
// their numbers of rows, the greatest logit and the sum of the weights of each block; so do those that the token is drawn from, which
// are the same where nothing is edited, with the factors of their weights.
extern "C" __global__ void __launch_bounds__(DRAWING) draw_tokens(
    const float *logits,
    const unsigned *rows,
    const float *maxima,
    const double *sums,
    const float *from,
    const unsigned *from_rows,
    const float *from_maxima,
    const double *from_sums,
    const double *from_bits,
    const double *uniforms,
    const unsigned *ways,
    const unsigned *given,
    Drawn *drawn,
    unsigned width,
    unsigned blocks) {
    __shared__ double staged[DRAWING];
    __shared__ unsigned at_least;
    const unsigned index = blockIdx.x;
    const size_t first_block = size_t(index) * blocks;
    const float *row = logits + size_t(rows[index]) * width;
    const float *from_row = from + size_t(from_rows[index]) * width;
    const float max = greatest_of(maxima + first_block, blocks);
    const float from_max = from_maxima == maxima ? max : greatest_of(from_maxima + first_block, blocks);
    double total = 0.0, from_total = 0.0;
    in_order(sums + first_block, blocks, staged, [&](unsigned, double sum) {
        total += sum;
        return false;
    });
    const unsigned way = ways[index] % PROCESSED;
    const bool processed = ways[index] >= PROCESSED;
    if (processed)
        in_order(from_sums + first_block, blocks, staged, [&](unsigned, double sum) {
            from_total += sum;
            return false;
        });
    unsigned id = given[index];
    if (way == BEST) {
        const unsigned first = first_at_least(from_maxima + first_block, blocks, from_max) * BLOCK;
        id = first + first_at_least(from_row + first, min(BLOCK, width - first), from_max);
    } else if (way == SHARE) {
        id = by_share(from_row, from_sums + first_block, width, blocks, from_max, from_bits[index], uniforms[index], staged);
    }
    const float *described = processed ? from_row : row;
    const float logit = described[id];
    if (threadIdx.x == 0)
        at_least = 0;
    __syncthreads();
    unsigned count = 0;
    for (unsigned i = threadIdx.x; i < width; i += DRAWING)
        count += described[i] >= logit;
    atomicAdd(&at_least, count);
    __syncthreads();
    if (threadIdx.x == 0) {
        // Where the model's logits are not in order, or edits leave none that is.
        const bool in_order = total == total && isfinite(from_max);
        drawn[index] = {id, logit, processed ? from_max : max, at_least, !in_order ? NAN : processed ? from_total : total};
    }
}
