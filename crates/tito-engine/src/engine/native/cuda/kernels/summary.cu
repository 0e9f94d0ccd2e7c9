// Sums over rows of logits, with the very arithmetic of crates/tito-sampling/src/softmax.rs: compiled without fused operations, and in
// its order, so that a token drawn by these sums is the one that is drawn by all logits.

namespace {

constexpr unsigned BLOCK = 256;
constexpr unsigned LANES = 8;

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

// The greatest over a block of BLOCK threads, in every thread. A number that is not one never is.
__device__ float greatest(float number) {
    __shared__ float shared[BLOCK];
    shared[threadIdx.x] = number;
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads();
    return shared[0];
}

} // namespace

// A block of threads for each row and block of logits.
extern "C" __global__ void block_maxima(const float *logits, const unsigned *rows, float *maxima, unsigned width) {
    const unsigned column = blockIdx.y * BLOCK + threadIdx.x;
    const float *row = logits + size_t(rows[blockIdx.x]) * width;
    const float greatest_logit = greatest(column < width ? fmaxf(row[column], -INFINITY) : -INFINITY);
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
    max = greatest(max);
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
