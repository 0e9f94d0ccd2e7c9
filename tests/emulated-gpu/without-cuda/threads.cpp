// Shows that what CUDA's runtime keeps for each thread is kept for each thread.

#include "../runtime.cpp"

#include <thread>

// No driver: no kernel is ever found.
extern "C" {
CUresult cuCtxGetCurrent(CUcontext *out) { return *out = nullptr, CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice) { return 1; }
CUresult cuDeviceGetAttribute(int *, CUdevice_attribute, CUdevice) { return 1; }
CUresult cuModuleLoadData(CUmodule *, const void *) { return 1; }
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return 1; }
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,
                        void **) {
    return 1;
}
}
CUfunction find_kernel(CUmodule, const char *) { return nullptr; }

namespace {

unsigned popped() {
    Size grid, block;
    std::size_t shared;
    void *stream;
    __cudaPopCallConfiguration(&grid, &block, &shared, &stream);
    return grid.x;
}

} // namespace

int main() {
    __cudaPushCallConfiguration({1, 1, 1}, {1, 1, 1}, 0, nullptr);
    bool others = false;
    std::thread([&] {
        // It launches between the two halves of the first thread's launch, and its launch fails.
        __cudaPushCallConfiguration({2, 1, 1}, {1, 1, 1}, 0, nullptr);
        others = cudaLaunchKernel_ptsz(&others, {}, {}, nullptr, 0, nullptr) == NO_KERNEL && cudaPeekAtLastError() == NO_KERNEL;
        // Its numbers are left where they are.
    }).join();
    const unsigned own = popped();
    const Error error = cudaGetLastError();
    if (own == 1 && others && error == SUCCESS) return 0;
    std::fprintf(stderr, "the first thread launches a grid of %u, and has error %d\n", own, error);
    return 1;
}
