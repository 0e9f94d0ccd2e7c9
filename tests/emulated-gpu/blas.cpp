// cuBLAS's products as its documentation defines them, for the calls that tito and candle make. Every operand has to be
// in memory of the GPU as a whole.
//
// A sum is taken in pieces whose length depends on the shape, as cuBLAS chooses kernels by shape: what is to have the same
// bits has to have the same shape.

#include "counts.h"
#include "gpu.h"
#include "graphs.h"

#include <cublas_v2.h>

#include <cstdio>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

struct cublasContext {
    CUstream stream = nullptr;
};

namespace {

struct Operand {
    const void *at;
    cudaDataType type;
    long long leading, stride;

    f32 number(long long place) const {
        switch (type) {
        case CUDA_R_32F: return static_cast<const f32 *>(at)[place];
        case CUDA_R_16BF: return static_cast<const bf16 *>(at)[place];
        default: return static_cast<const f16 *>(at)[place];
        }
    }

    // What is multiplied: `count` vectors, one after another, each of `length` numbers.
    std::vector<f32> vectors(long long batch, int count, int length, bool along) const {
        std::vector<f32> numbers;
        numbers.reserve(static_cast<std::size_t>(count) * static_cast<std::size_t>(length));
        for (long long vector = 0; vector < count; ++vector)
            for (long long inner = 0; inner < length; ++inner)
                numbers.push_back(number(batch * stride + (along ? vector * leading + inner : vector + inner * leading)));
        return numbers;
    }
};

u64 size_of(cudaDataType type) {
    switch (type) {
    case CUDA_R_32F: return 4;
    case CUDA_R_16BF: case CUDA_R_16F: return 2;
    default: return 0;
    }
}

template <typename T> void write_one(T *at, f32 number, f32 keep) { *at = T(number + (keep != 0 ? keep * f32(*at) : 0)); }

void write(void *at, cudaDataType type, long long place, f32 number, f32 keep) {
    switch (type) {
    case CUDA_R_32F: return write_one(static_cast<f32 *>(at) + place, number, keep);
    case CUDA_R_16BF: return write_one(static_cast<bf16 *>(at) + place, number, keep);
    default: return write_one(static_cast<f16 *>(at) + place, number, keep);
    }
}

// Ends the program where an operand of `rows` by `columns` as it lies in memory is not there.
bool check(const void *at, cudaDataType type, long long rows, long long columns, long long leading, long long stride,
           long long batches, const char *what) {
    if (leading < std::max(rows, 1ll) || size_of(type) == 0) return false;
    if (rows == 0 || columns == 0) return true;
    const long long last = (columns - 1) * leading + rows;
    for (long long batch = 0; batch < batches; ++batch)
        check_memory(static_cast<const u8 *>(at) + batch * stride * static_cast<long long>(size_of(type)),
                     static_cast<u64>(last) * size_of(type), what);
    return true;
}

} // namespace

EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) { return *handle = new cublasContext, CUBLAS_STATUS_SUCCESS; }
EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) { return delete handle, CUBLAS_STATUS_SUCCESS; }
EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    return handle->stream = stream, CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
EXPORT cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *, std::size_t) { return CUBLAS_STATUS_SUCCESS; }

EXPORT cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t left_operation, cublasOperation_t right_operation, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType a_type, int a_leading, long long a_stride, const void *b,
    cudaDataType b_type, int b_leading, long long b_stride, const void *beta, void *c, cudaDataType c_type, int c_leading,
    long long c_stride, int batches, cublasComputeType_t compute, cublasGemmAlgo_t) {
    const bool left_transposed = left_operation != CUBLAS_OP_N, right_transposed = right_operation != CUBLAS_OP_N;
    const bool sums_in_f32 = compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    // Also when a recorded product is computed, by when memory may be gone.
    const auto fits = [=] {
        return m >= 0 && n >= 0 && k >= 0 && sums_in_f32 && a_type == b_type && (c_type == CUDA_R_32F || c_type == a_type) &&
            check(a, a_type, left_transposed ? k : m, left_transposed ? m : k, a_leading, a_stride, batches, "a left operand") &&
            check(b, b_type, right_transposed ? n : k, right_transposed ? k : n, b_leading, b_stride, batches, "a right operand") &&
            check(c, c_type, m, n, c_leading, c_stride, batches, "a product");
    };
    if (!fits()) {
        std::fprintf(stderr, "emulated GPU: a product of %d x %d x %d that cuBLAS refuses\n", m, n, k);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const f32 by = *static_cast<const f32 *>(alpha), keep = *static_cast<const f32 *>(beta);
    enqueue(handle->stream, [=] {
        fits();
        const u64 rows_and_columns = u64(m) * u64(k) * size_of(a_type) + u64(n) * u64(k) * size_of(b_type);
        const u64 results = u64(m) * u64(n) * size_of(c_type), every = u64(batches);
        count_product(every * (rows_and_columns + (keep != 0 ? results : 0)), every * results, every * u64(m) * u64(n) * u64(k));
        const Operand left{a, a_type, a_leading, a_stride}, right{b, b_type, b_leading, b_stride};
        const int piece = 4 + (m + 3 * n) % 7;
        for (long long batch = 0; batch < batches; ++batch) {
            const std::vector<f32> rows = left.vectors(batch, m, k, left_transposed);
            const std::vector<f32> columns = right.vectors(batch, n, k, !right_transposed);
            for (long long column = 0; column < n; ++column)
                for (long long row = 0; row < m; ++row) {
                    const f32 *const x = rows.data() + row * k, *const y = columns.data() + column * k;
                    f32 total = 0;
                    for (int first = 0; first < k; first += piece) {
                        f32 sum = 0;
                        for (int inner = first; inner < std::min(first + piece, k); ++inner) sum += x[inner] * y[inner];
                        total += sum;
                    }
                    write(c, c_type, batch * c_stride + row + column * c_leading, total * by, keep);
                }
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasGemmEx(
    cublasHandle_t handle, cublasOperation_t left_operation, cublasOperation_t right_operation, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType a_type, int a_leading, const void *b, cudaDataType b_type, int b_leading,
    const void *beta, void *c, cudaDataType c_type, int c_leading, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    return cublasGemmStridedBatchedEx(handle, left_operation, right_operation, m, n, k, alpha, a, a_type, a_leading, 0, b,
                                      b_type, b_leading, 0, beta, c, c_type, c_leading, 0, 1, compute, algorithm);
}

// cuRAND, of which candle opens a generator that tito never asks for numbers.
EXPORT int curandCreateGenerator(void **generator, int) {
    static int one;
    return *generator = &one, 0;
}
EXPORT int curandDestroyGenerator(void *) { return 0; }
EXPORT int curandSetPseudoRandomGeneratorSeed(void *, unsigned long long) { return 0; }
EXPORT int curandSetStream(void *, void *) { return 0; }
