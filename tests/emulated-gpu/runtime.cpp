// CUDA's runtime as far as the kernels of mistralrs-paged-attn use it: code that nvcc compiled launches them by the
// address of a host function, whose name in PTX it registered before. The PTX is in the files of TITO_EMULATED_PTX.

#include "gpu.h"

#include <dirent.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

// As in driver_types.h, which cannot be included beside definitions of these functions.
enum Error { SUCCESS = 0, INVALID_VALUE = 1, NO_KERNEL = 98 };
struct Size {
    unsigned x, y, z;
};

namespace {

struct Call {
    Size grid, block;
    std::size_t shared;
    void *stream;
};

std::map<const void *, std::string> &names() {
    static std::map<const void *, std::string> names;
    return names;
}

// Of this thread, as in CUDA: a launch takes the numbers that the same thread pushed, and errors are its own.
thread_local std::vector<Call> calls;
thread_local Error last_error = SUCCESS;

Error failed(Error error) {
    last_error = error;
    return error;
}

// The runtime takes the context that a thread has, and otherwise the device's first one.
void take_context() {
    CUcontext context = nullptr;
    cuCtxGetCurrent(&context);
    if (context == nullptr && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS) cuCtxSetCurrent(context);
}

std::vector<CUmodule> modules() {
    static const std::vector<CUmodule> modules = [] {
        std::vector<CUmodule> loaded;
        const char *const folder = std::getenv("TITO_EMULATED_PTX");
        DIR *const open = folder != nullptr ? opendir(folder) : nullptr;
        if (open == nullptr) {
            std::fprintf(stderr, "emulated GPU: TITO_EMULATED_PTX names no folder\n");
            std::abort();
        }
        while (const dirent *const entry = readdir(open)) {
            if (entry->d_name[0] == '.') continue;
            std::stringstream text;
            text << std::ifstream(std::string(folder) + "/" + entry->d_name).rdbuf();
            CUmodule module;
            if (cuModuleLoadData(&module, text.str().c_str()) == CUDA_SUCCESS) loaded.push_back(module);
        }
        closedir(open);
        return loaded;
    }();
    return modules;
}

CUfunction kernel(const void *host) {
    take_context();
    const auto name = names().find(host);
    if (name == names().end()) return nullptr;
    for (CUmodule module : modules())
        if (CUfunction found = find_kernel(module, name->second.c_str())) return found;
    std::fprintf(stderr, "emulated GPU: no PTX of %s\n", name->second.c_str());
    return nullptr;
}

} // namespace

EXPORT void **__cudaRegisterFatBinary(void *) {
    static void *handle;
    return &handle;
}
EXPORT void __cudaRegisterFatBinaryEnd(void **) {}
EXPORT void __cudaUnregisterFatBinary(void **) {}
EXPORT void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, void *, void *, void *, void *, int *) {
    names()[host] = name;
}
EXPORT void __cudaRegisterVar(void **, char *, char *, const char *, int, std::size_t, int, int) {}
EXPORT unsigned __cudaPushCallConfiguration(Size grid, Size block, std::size_t shared, void *stream) {
    calls.push_back({grid, block, shared, stream});
    return 0;
}
EXPORT Error __cudaPopCallConfiguration(Size *grid, Size *block, std::size_t *shared, void **stream) {
    const Call call = calls.back();
    calls.pop_back();
    *grid = call.grid, *block = call.block, *shared = call.shared, *stream = call.stream;
    return SUCCESS;
}
EXPORT Error __cudaGetKernel(const void **out, const void *host) { return *out = host, SUCCESS; }
EXPORT Error cudaLaunchKernel_ptsz(const void *host, Size grid, Size block, void **arguments, std::size_t shared, void *stream) {
    const CUfunction found = kernel(host);
    if (found == nullptr) return failed(NO_KERNEL);
    const CUresult result = cuLaunchKernel(found, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                           static_cast<unsigned>(shared), static_cast<CUstream>(stream), arguments, nullptr);
    return result == CUDA_SUCCESS ? SUCCESS : failed(INVALID_VALUE);
}
EXPORT Error __cudaLaunchKernel_ptsz(const void *host, Size grid, Size block, void **arguments, std::size_t shared, void *stream, bool) {
    return cudaLaunchKernel_ptsz(host, grid, block, arguments, shared, stream);
}
EXPORT Error cudaFuncSetAttribute(const void *host, int attribute, int value) {
    const CUfunction found = kernel(host);
    if (found == nullptr) return failed(NO_KERNEL);
    return cuFuncSetAttribute(found, static_cast<CUfunction_attribute>(attribute), value) == CUDA_SUCCESS
               ? SUCCESS : failed(INVALID_VALUE);
}
EXPORT Error cudaGetDevice(int *device) { return *device = 0, SUCCESS; }
EXPORT Error cudaDeviceGetAttribute(int *value, int attribute, int device) {
    return static_cast<Error>(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device));
}
EXPORT Error cudaPeekAtLastError() { return last_error; }
EXPORT Error cudaGetLastError() {
    const Error error = last_error;
    last_error = SUCCESS;
    return error;
}
EXPORT const char *cudaGetErrorString(Error) { return "an error of the emulated GPU"; }
EXPORT const char *cudaGetErrorName(Error) { return "an error of the emulated GPU"; }
