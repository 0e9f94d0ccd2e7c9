// What candle has no single kernel for: operations on rows of f32 whose results are bf16 or f32.
//
// A row's result depends on that row alone: one block or one warp sums it, in one order.

#include <cuda_bf16.h>

#include "block.cuh"

namespace {

__device__ bool is_broken(float number) { return !isfinite(number); }
__device__ bool is_broken(__nv_bfloat16 number) { return !isfinite(__bfloat162float(number)); }

// Four numbers of a row from number `first` on, and 0 for those after its end. `at_once` says that rows have a multiple of
// four numbers and begin where four can be read at once.
__device__ float4 four(const float *row, unsigned first, unsigned width, bool at_once) {
    if (at_once)
        return *reinterpret_cast<const float4 *>(row + first);
    return make_float4(
        row[first],
        first + 1 < width ? row[first + 1] : 0.0f,
        first + 2 < width ? row[first + 2] : 0.0f,
        first + 3 < width ? row[first + 3] : 0.0f);
}

__device__ void write_four(float *out, float4 numbers) { *reinterpret_cast<float4 *>(out) = numbers; }

__device__ void write_four(__nv_bfloat16 *out, float4 numbers) {
    const __nv_bfloat162 both[2] = {
        __floats2bfloat162_rn(numbers.x, numbers.y), __floats2bfloat162_rn(numbers.z, numbers.w)};
    *reinterpret_cast<uint2 *>(out) = *reinterpret_cast<const uint2 *>(both);
}

template <typename T> __device__ void write_some(T *out, float4 numbers, unsigned count) {
    const float each[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
    for (unsigned i = 0; i < 4 && i < count; ++i)
        out[i] = narrow<T>(each[i]);
}

__device__ bool fours(const void *address) { return reinterpret_cast<size_t>(address) % 16 == 0; }

// How many times four numbers a thread of `norm` keeps from the first time that it reads them to the second.
constexpr unsigned KEPT = 4;

// A block for each row. Every thread sums its numbers, four by four, and then the block sums; what a row gives does not
// depend on whether four can be read at once.
template <typename T>
__device__ void norm(
    const float *states, const float *weight, T *out, unsigned width, float epsilon, float offset) {
    const float *row = states + size_t(blockIdx.x) * width;
    out += size_t(blockIdx.x) * width;
    const bool at_once = width % 4 == 0 && fours(states) && fours(weight) && fours(out);
    const unsigned begin = 4 * threadIdx.x, step = 4 * blockDim.x;
    float4 kept[KEPT];
    float sum = 0.0f;
#pragma unroll
    for (unsigned i = 0; i < KEPT; ++i)
        if (begin + i * step < width)
            kept[i] = four(row, begin + i * step, width, at_once);
#pragma unroll
    for (unsigned i = 0; i < KEPT; ++i)
        if (begin + i * step < width)
            sum += kept[i].x * kept[i].x + kept[i].y * kept[i].y + (kept[i].z * kept[i].z + kept[i].w * kept[i].w);
    for (unsigned first = begin + KEPT * step; first < width; first += step) {
        const float4 more = four(row, first, width, at_once);
        sum += more.x * more.x + more.y * more.y + (more.z * more.z + more.w * more.w);
    }
    const float scale = 1.0f / sqrtf(over_block(sum) / float(width) + epsilon);
    const auto write = [&](unsigned first, float4 numbers) {
        const float4 by = four(weight, first, width, at_once);
        const float4 result = make_float4(
            numbers.x * scale * (offset + by.x),
            numbers.y * scale * (offset + by.y),
            numbers.z * scale * (offset + by.z),
            numbers.w * scale * (offset + by.w));
        if (at_once)
            write_four(out + first, result);
        else
            write_some(out + first, result, width - first);
    };
#pragma unroll
    for (unsigned i = 0; i < KEPT; ++i)
        if (begin + i * step < width)
            write(begin + i * step, kept[i]);
    for (unsigned first = begin + KEPT * step; first < width; first += step)
        write(first, four(row, first, width, at_once));
}

// A block for each row: the mean, then the squares of what is left. `out` may be the states themselves.
template <typename T>
__device__ void centred_norm(
    const float *states, const float *weight, T *out, unsigned width, float epsilon, float offset) {
    const float *row = states + size_t(blockIdx.x) * width;
    out += size_t(blockIdx.x) * width;
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x)
        sum += row[i];
    const float mean = over_block(sum) / float(width);
    float squares = 0.0f;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x)
        squares += (row[i] - mean) * (row[i] - mean);
    const float scale = 1.0f / sqrtf(over_block(squares) / float(width) + epsilon);
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x)
        out[i] = narrow<T>((row[i] - mean) * scale * (offset + weight[i]));
}

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The gates of `Gate` in backend.rs: 0 is Silu, 1 is GeluTanh, 2 is Clamped, 3 is SquaredRelu, 4 is Gelu, 5 is GeluAlone.
__device__ float gated(const float *row, unsigned width, unsigned i, unsigned kind, float limit) {
    if (kind == 2) {
        // What is not a number is neither above nor below a limit, and stays.
        float gate = row[2 * i], up = row[2 * i + 1];
        gate = gate > limit ? limit : gate;
        up = up > limit ? limit : up < -limit ? -limit : up;
        return (up + 1.0f) * (gate * sigmoid(1.702f * gate));
    }
    if (kind == 3) {
        const float number = row[i] < 0.0f ? 0.0f : row[i];
        return number * number;
    }
    if (kind == 5)
        return row[i] * (0.5f + 0.5f * erff(0.70710678f * row[i]));
    const float gate = row[i], up = row[width + i];
    if (kind == 4)
        return gate * (0.5f + 0.5f * erff(0.70710678f * gate)) * up;
    if (kind == 1)
        return gate * sigmoid(1.5957692f * (gate + 0.044715f * gate * gate * gate)) * up;
    return gate / (1.0f + expf(-gate)) * up;
}

// A block for each row and 1024 numbers.
template <typename T>
__device__ void gate(const float *states, T *out, unsigned columns, unsigned width, unsigned kind, float limit) {
    const float *row = states + size_t(blockIdx.x) * columns;
    const unsigned first = blockIdx.y * 1024, last = min(first + 1024, width);
    for (unsigned i = first + threadIdx.x; i < last; i += blockDim.x)
        out[size_t(blockIdx.x) * width + i] = narrow<T>(gated(row, width, i, kind, limit));
}

// A block for each row: keys and values of `heads * head_dim` numbers each, from number `first` on, in the type of the
// cache; a row with one that is not finite is marked.
template <typename T>
__device__ void new_keys(const float *states, T *out, float *broken, unsigned columns, unsigned first, unsigned width) {
    const float *row = states + size_t(blockIdx.x) * columns + first;
    bool bad = false;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
        const T number = narrow<T>(row[i]);
        bad |= is_broken(number);
        out[size_t(blockIdx.x) * width + i] = number;
    }
    if (__syncthreads_or(bad) && threadIdx.x == 0)
        broken[blockIdx.x] = 1.0f;
}

// The number of eight bits, see `E4M3` in small_floats.rs: the bits are those of a number of f32 with another bias. The least
// ones, whose exponent is zero, have no leading one, which is taken off again.
__device__ float e4m3(unsigned code) {
    const unsigned size = code & 0x7f;
    if (size == 0x7f)
        return __uint_as_float(0x7fffffffu);
    const float number = size < 8 ? __uint_as_float((size << 20) + (121u << 23)) - 1.0f / 64.0f
                                  : __uint_as_float((size << 20) + (120u << 23));
    return code & 0x80 ? -number : number;
}

// The number of four bits, likewise.
__device__ float e2m1(unsigned code) {
    const unsigned size = code & 7;
    const float number = size < 2 ? __uint_as_float((size << 22) + (127u << 23)) - 1.0f
                                  : __uint_as_float((size << 22) + (126u << 23));
    return code & 8 ? -number : number;
}

// A code of a row that begins at this byte; those of four bits are two in a byte, the lower half first.
template <bool halves> __device__ float decoded(const unsigned char *row, unsigned i) {
    return halves ? e2m1(row[i / 2] >> (i % 2 * 4)) : e4m3(row[i]);
}

__device__ float wide(float number) { return number; }
__device__ float wide(__nv_bfloat16 number) { return __bfloat162float(number); }

// A block for each row and 1024 numbers, each of which is that of its code times the scale of its group, rounded to bf16 if
// `rounded` says so. A group has two to the power of `shift` numbers, or `group` where that is no power of two and `shift`
// is 32.
template <bool halves, typename S, typename T>
__device__ void widen(
    const unsigned char *codes,
    const S *scales,
    T *out,
    unsigned columns,
    unsigned row_bytes,
    unsigned groups,
    unsigned group,
    unsigned shift,
    unsigned rounded) {
    const unsigned char *row = codes + size_t(blockIdx.x) * row_bytes;
    scales += size_t(blockIdx.x) * groups;
    const unsigned first = blockIdx.y * 1024, last = min(first + 1024, columns);
    for (unsigned i = first + threadIdx.x; i < last; i += blockDim.x) {
        const float scale = wide(scales[shift < 32 ? i >> shift : i / group]);
        const float number = __fmul_rn(decoded<halves>(row, i), scale);
        const float result = rounded ? __bfloat162float(__float2bfloat16_rn(number)) : number;
        out[size_t(blockIdx.x) * columns + i] = narrow<T>(result);
    }
}

} // namespace

extern "C" __global__ void centred_norm_bf16(
    const float *states, const float *weight, __nv_bfloat16 *out, unsigned width, float epsilon, float offset) {
    centred_norm(states, weight, out, width, epsilon, offset);
}

extern "C" __global__ void centred_norm_f32(
    const float *states, const float *weight, float *out, unsigned width, float epsilon, float offset) {
    centred_norm(states, weight, out, width, epsilon, offset);
}

// A block for each row and 1024 numbers: a vector is written to every row, or added to it.
extern "C" __global__ void put_vector(const float *vector, float *out, unsigned width, unsigned added) {
    const unsigned first = blockIdx.y * 1024, last = min(first + 1024, width);
    float *row = out + size_t(blockIdx.x) * width;
    for (unsigned i = first + threadIdx.x; i < last; i += blockDim.x)
        row[i] = added ? row[i] + vector[i] : vector[i];
}

// A block for each row and 1024 numbers: every number is multiplied by that of the vector.
extern "C" __global__ void multiply_vector(const float *vector, float *out, unsigned width) {
    const unsigned first = blockIdx.y * 1024, last = min(first + 1024, width);
    float *row = out + size_t(blockIdx.x) * width;
    for (unsigned i = first + threadIdx.x; i < last; i += blockDim.x)
        row[i] = __fmul_rn(row[i], vector[i]);
}

// A block for each row and 1024 numbers: every number of `from`, times a factor, is added to that of `to`.
extern "C" __global__ void add_rows(const float *from, float *to, unsigned width, float factor) {
    const unsigned first = blockIdx.y * 1024, last = min(first + 1024, width);
    const size_t row = size_t(blockIdx.x) * width;
    for (unsigned i = first + threadIdx.x; i < last; i += blockDim.x)
        to[row + i] = __fadd_rn(to[row + i], __fmul_rn(from[row + i], factor));
}

// A block for each row and 1024 numbers: the row of the table that an id names, times a factor. An id after the last row, which
// nobody gives, makes a row of what is no number.
extern "C" __global__ void embed(
    const __nv_bfloat16 *table, const unsigned *ids, float *out, unsigned known, unsigned width, float factor) {
    const unsigned first = blockIdx.y * 1024, last = min(first + 1024, width), id = ids[blockIdx.x];
    for (unsigned i = first + threadIdx.x; i < last; i += blockDim.x) {
        const float number = id < known ? __bfloat162float(table[size_t(id) * width + i]) : __int_as_float(0x7fffffff);
        out[size_t(blockIdx.x) * width + i] = __fmul_rn(number, factor);
    }
}

extern "C" __global__ void norm_bf16(
    const float *states, const float *weight, __nv_bfloat16 *out, unsigned width, float epsilon, float offset) {
    norm(states, weight, out, width, epsilon, offset);
}

extern "C" __global__ void norm_f32(
    const float *states, const float *weight, float *out, unsigned width, float epsilon, float offset) {
    norm(states, weight, out, width, epsilon, offset);
}

extern "C" __global__ void gate_bf16(
    const float *states, __nv_bfloat16 *out, unsigned columns, unsigned width, unsigned kind, float limit) {
    gate(states, out, columns, width, kind, limit);
}

extern "C" __global__ void gate_f32(
    const float *states, float *out, unsigned columns, unsigned width, unsigned kind, float limit) {
    gate(states, out, columns, width, kind, limit);
}

extern "C" __global__ void new_keys_bf16(
    const float *states, __nv_bfloat16 *out, float *broken, unsigned columns, unsigned first, unsigned width) {
    new_keys(states, out, broken, columns, first, width);
}

extern "C" __global__ void new_keys_f32(
    const float *states, float *out, float *broken, unsigned columns, unsigned first, unsigned width) {
    new_keys(states, out, broken, columns, first, width);
}

// A warp for each row and head, of `head_dim` numbers, the first of which is number `first` of a row of `columns`.
extern "C" __global__ void head_norm(
    float *states,
    const float *weight,
    unsigned columns,
    unsigned first,
    unsigned head_dim,
    float epsilon,
    float offset) {
    float *head = states + size_t(blockIdx.x) * columns + first + blockIdx.y * head_dim;
    const float scale = norm_scale(head, head_dim, threadIdx.x, epsilon);
    for (unsigned i = threadIdx.x; i < head_dim; i += 32)
        head[i] = head[i] * scale * (offset + weight[i]);
}

// A thread for each pair of a row: heads from number `first` on, each of which begins with twice `pairs` numbers. A pair are
// two neighbours, or a number of the first half of these and one of the second.
extern "C" __global__ void rotate(
    float *states,
    const float *cosines,
    const float *sines,
    unsigned columns,
    unsigned first,
    unsigned heads,
    unsigned head_dim,
    unsigned pairs,
    unsigned neighbours) {
    float *row = states + size_t(blockIdx.x) * columns + first;
    cosines += size_t(blockIdx.x) * pairs;
    sines += size_t(blockIdx.x) * pairs;
    const unsigned i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= heads * pairs)
        return;
    const unsigned pair = i % pairs;
    turn(row + (i / pairs) * head_dim, pair, pairs, neighbours, cosines[pair], sines[pair]);
}

extern "C" __global__ void widen_e4m3_bf16(
    const unsigned char *codes,
    const float *scales,
    __nv_bfloat16 *out,
    unsigned columns,
    unsigned row_bytes,
    unsigned groups,
    unsigned group,
    unsigned shift,
    unsigned rounded) {
    widen<false>(codes, scales, out, columns, row_bytes, groups, group, shift, rounded);
}

extern "C" __global__ void widen_e4m3_f32(
    const unsigned char *codes,
    const float *scales,
    float *out,
    unsigned columns,
    unsigned row_bytes,
    unsigned groups,
    unsigned group,
    unsigned shift,
    unsigned rounded) {
    widen<false>(codes, scales, out, columns, row_bytes, groups, group, shift, rounded);
}

extern "C" __global__ void widen_e2m1_bf16(
    const unsigned char *codes,
    const __nv_bfloat16 *scales,
    __nv_bfloat16 *out,
    unsigned columns,
    unsigned row_bytes,
    unsigned groups,
    unsigned group,
    unsigned shift,
    unsigned rounded) {
    widen<true>(codes, scales, out, columns, row_bytes, groups, group, shift, rounded);
}

extern "C" __global__ void widen_e2m1_f32(
    const unsigned char *codes,
    const __nv_bfloat16 *scales,
    float *out,
    unsigned columns,
    unsigned row_bytes,
    unsigned groups,
    unsigned group,
    unsigned shift,
    unsigned rounded) {
    widen<true>(codes, scales, out, columns, row_bytes, groups, group, shift, rounded);
}
