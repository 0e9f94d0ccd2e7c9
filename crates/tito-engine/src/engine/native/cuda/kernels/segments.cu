// What attention within segments needs besides products: heads apart and together, and weights of scores.

#include "block.cuh"

namespace {

// Where a number of a row is once the rows of each head of a segment follow each other.
__device__ size_t by_head(unsigned row, unsigned number, unsigned rows, unsigned heads, unsigned head_dim) {
    const size_t head = size_t(row / rows) * heads + number / head_dim;
    return (head * rows + row % rows) * head_dim + number % head_dim;
}

// A block for each row and 1024 numbers of all heads, which begin at number `first` of a row of `columns`.
template <typename T>
__device__ void split_heads(
    const float *states, T *out, unsigned columns, unsigned first, unsigned rows, unsigned heads, unsigned head_dim) {
    const float *row = states + size_t(blockIdx.x) * columns + first;
    const unsigned begin = blockIdx.y * 1024, end = min(begin + 1024, heads * head_dim);
    for (unsigned i = begin + threadIdx.x; i < end; i += blockDim.x)
        out[by_head(blockIdx.x, i, rows, heads, head_dim)] = narrow<T>(row[i]);
}

// The way back.
template <typename T>
__device__ void join_heads(const float *apart, T *out, unsigned rows, unsigned heads, unsigned head_dim) {
    const unsigned width = heads * head_dim;
    T *row = out + size_t(blockIdx.x) * width;
    const unsigned begin = blockIdx.y * 1024, end = min(begin + 1024, width);
    for (unsigned i = begin + threadIdx.x; i < end; i += blockDim.x)
        row[i] = narrow<T>(apart[by_head(blockIdx.x, i, rows, heads, head_dim)]);
}

// A block for each row of scores: their softmax times a factor, which sums to 1 before it is rounded. What is not a number
// stays so.
template <typename T> __device__ void weights(const float *scores, T *out, unsigned keys, float scale) {
    const float *row = scores + size_t(blockIdx.x) * keys;
    out += size_t(blockIdx.x) * keys;
    float most = -INFINITY;
    for (unsigned i = threadIdx.x; i < keys; i += blockDim.x)
        most = fmaxf(most, row[i]);
    most = greatest_over_block(most);
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < keys; i += blockDim.x)
        sum += expf((row[i] - most) * scale);
    sum = over_block(sum);
    for (unsigned i = threadIdx.x; i < keys; i += blockDim.x)
        out[i] = narrow<T>(expf((row[i] - most) * scale) / sum);
}

} // namespace

extern "C" __global__ void split_heads_bf16(
    const float *states, __nv_bfloat16 *out, unsigned columns, unsigned first, unsigned rows, unsigned heads, unsigned head_dim) {
    split_heads(states, out, columns, first, rows, heads, head_dim);
}

extern "C" __global__ void split_heads_f32(
    const float *states, float *out, unsigned columns, unsigned first, unsigned rows, unsigned heads, unsigned head_dim) {
    split_heads(states, out, columns, first, rows, heads, head_dim);
}

extern "C" __global__ void join_heads_bf16(
    const float *apart, __nv_bfloat16 *out, unsigned rows, unsigned heads, unsigned head_dim) {
    join_heads(apart, out, rows, heads, head_dim);
}

extern "C" __global__ void join_heads_f32(
    const float *apart, float *out, unsigned rows, unsigned heads, unsigned head_dim) {
    join_heads(apart, out, rows, heads, head_dim);
}

extern "C" __global__ void weights_bf16(const float *scores, __nv_bfloat16 *out, unsigned keys, float scale) {
    weights(scores, out, keys, scale);
}

extern "C" __global__ void weights_f32(const float *scores, float *out, unsigned keys, float scale) {
    weights(scores, out, keys, scale);
}
