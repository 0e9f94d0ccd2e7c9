// CUDA's driver, with memory that is the host's and kernels that are translated from PTX when they are first asked for.
//
// Everything is done when it is called, unless a stream records it (graphs.h) or is late (streams.h). New memory holds 0xff everywhere,
// which is no number.
// TITO_EMULATED_MEMORY is the size of the GPU in MiB (4096), TITO_EMULATED_CACHE the folder for compiled kernels.

#include "counts.h"
#include "gpu.h"
#include "graphs.h"

#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

struct CUfunc_st {
    std::string name;
    Body body;
    const Shape *shape;
    u32 most_dynamic_shared = 48 << 10;
};
struct CUmod_st {
    std::string ptx;
    std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};
struct CUctx_st {};
// What a kernel is given, which is kept where its launch is recorded.
struct Arguments {
    alignas(16) u8 bytes[4096];
    u32 size = 0;
};
// After how much work of which stream; of none that is late, after nothing.
struct CUevent_st {
    CUstream stream = nullptr;
    u64 given = 0;
};

namespace {

std::recursive_mutex lock;
std::map<u64, u64> allocations;
u64 in_use;
// What the pool has that was freed, and how much of it stays when somebody waits.
u64 pooled, most_pooled;
// What a block of threads may have of a multiprocessor's memory, as on Hopper.
constexpr u32 MOST_SHARED = 227 << 10;
CUctx_st context;
// Of this thread: most calls need one.
thread_local CUcontext current_context;

u64 total_memory() {
    static const u64 total = [] {
        const char *asked = std::getenv("TITO_EMULATED_MEMORY");
        return (asked != nullptr ? std::strtoull(asked, nullptr, 10) : 4096) << 20;
    }();
    return total;
}

void run(const std::string &command) {
    if (std::system(command.c_str()) == 0) return;
    std::fprintf(stderr, "emulated GPU: failed: %s\n", command.c_str());
    std::abort();
}

bool exists(const std::string &path) { return access(path.c_str(), R_OK) == 0; }

std::string hex(std::size_t number) {
    char text[20];
    std::snprintf(text, sizeof text, "%016zx", number);
    return text;
}

const std::string &cache() {
    static const std::string folder = [] {
        const char *const asked = std::getenv("TITO_EMULATED_CACHE");
        const std::string folder = asked != nullptr ? asked : "/tmp/tito-emulated-gpu";
        mkdir(folder.c_str(), 0755);
        return folder;
    }();
    return folder;
}

// Says how much memory is in use, for the nvidia-smi beside this file.
void tell(u64 bytes) {
    static const int file = open((cache() + "/memory-of-" + std::to_string(getpid())).c_str(), O_WRONLY | O_CREAT, 0644);
    in_use = bytes;
    char text[24];
    const int length = std::snprintf(text, sizeof text, "%20llu\n", static_cast<unsigned long long>(bytes));
    if (pwrite(file, text, static_cast<std::size_t>(length), 0) != length) std::abort();
}

// The kernel as a library, named by its module and by how it was translated.
std::string compiled(const std::string &ptx, const std::string &name) {
    const std::string module = cache() + "/" + hex(std::hash<std::string>{}(ptx)) + ".ptx";
    const std::string stem = cache() + "/" + hex(std::hash<std::string>{}(ptx + name + VERSION));
    if (exists(stem + ".so")) return stem + ".so";
    const std::string own = "." + std::to_string(getpid());
    if (!exists(module)) {
        std::ofstream(module + own) << ptx;
        std::rename((module + own).c_str(), module.c_str());
    }
    const std::string source = stem + own + ".cpp", object = stem + own + ".so";
    run("python3 -B " SOURCES "/translate.py '" + name + "' < " + module + " > " + source);
    run("c++ -std=c++20 -O2 -ffp-contract=off -mfma -w -fPIC -shared -fvisibility=hidden -I " SOURCES " " + source + " -o " + object);
    std::rename(source.c_str(), (stem + ".cpp").c_str());
    std::rename(object.c_str(), (stem + ".so").c_str());
    return stem + ".so";
}

bool inside(u64 address, u64 size) {
    const Memory memory = find_memory(address);
    return address >= memory.begin && address + size <= memory.end;
}

[[noreturn]] void refuse(const char *what, u64 address, u64 size) {
    std::fprintf(stderr, "emulated GPU: %s: %llu bytes at %#llx\n", what, static_cast<unsigned long long>(size),
                 static_cast<unsigned long long>(address));
    std::abort();
}

CUresult to_device(CUdeviceptr to, const void *from, std::size_t size) {
    refuse_while_recording("a copy to the device");
    if (current_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const std::lock_guard guard(lock);
    if (size > 0 && !inside(to, size)) refuse("a copy to where no memory is", to, size);
    std::memmove(reinterpret_cast<void *>(to), from, size);
    return CUDA_SUCCESS;
}

CUresult to_host(void *to, CUdeviceptr from, std::size_t size) {
    refuse_while_recording("a copy to the host");
    if (current_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const std::lock_guard guard(lock);
    if (size > 0 && !inside(from, size)) refuse("a copy from where no memory is", from, size);
    std::memcpy(to, reinterpret_cast<const void *>(from), size);
    return CUDA_SUCCESS;
}

CUresult within_device(CUdeviceptr to, CUdeviceptr from, std::size_t size) {
    const std::lock_guard guard(lock);
    if (size > 0 && !inside(from, size)) refuse("a copy from where no memory is", from, size);
    return to_device(to, reinterpret_cast<const void *>(from), size);
}

CUresult fill(CUdeviceptr at, unsigned char value, std::size_t size) {
    refuse_while_recording("memory is set");
    if (current_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const std::lock_guard guard(lock);
    if (size > 0 && !inside(at, size)) refuse("memory is set where none is", at, size);
    count_call("set", size);
    std::memset(reinterpret_cast<void *>(at), value, size);
    return CUDA_SUCCESS;
}

void keep_pooled(u64 most) {
    const std::lock_guard guard(lock);
    pooled = std::min(pooled, most);
}

u64 size_of(u64 address) {
    const std::lock_guard guard(lock);
    const auto found = allocations.find(address);
    return found == allocations.end() ? 0 : found->second;
}

CUresult waited() {
    refuse_while_recording("the host waits");
    count_call("wait", 0);
    keep_pooled(most_pooled);
    return CUDA_SUCCESS;
}

// Does something that may be refused: now, or late, when it is too late to refuse it.
CUresult in_order(CUstream stream, const std::function<CUresult()> &work) {
    if (stream == nullptr || !stream->is_late) return work();
    const CUcontext context_then = current_context;
    if (context_then == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    do_in_order(stream, [=] {
        const CUcontext now = std::exchange(current_context, context_then);
        if (work() != CUDA_SUCCESS) refuse("late work fails", 0, 0);
        current_context = now;
    });
    return CUDA_SUCCESS;
}

} // namespace

Memory find_memory(u64 address) {
    const auto after = allocations.upper_bound(address);
    if (after == allocations.begin()) return {};
    const auto &[begin, size] = *std::prev(after);
    return {begin, begin + size};
}

void check_memory(const void *at, u64 size, const char *what) {
    const std::lock_guard guard(lock);
    if (size > 0 && !inside(reinterpret_cast<u64>(at), size)) refuse(what, reinterpret_cast<u64>(at), size);
}

CUfunction find_kernel(CUmodule module, const char *name) {
    const std::lock_guard guard(lock);
    auto &kept = module->functions[name];
    if (kept == nullptr) {
        if (module->ptx.find(std::string(".entry ") + name + "(") == std::string::npos) {
            module->functions.erase(name);
            return nullptr;
        }
        const std::string path = compiled(module->ptx, name);
        void *const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            std::fprintf(stderr, "emulated GPU: %s\n", dlerror());
            std::abort();
        }
        kept.reset(new CUfunc_st{name, reinterpret_cast<Body>(dlsym(library, "run")),
                                 static_cast<const Shape *>(dlsym(library, "shape"))});
    }
    return kept.get();
}

EXPORT CUresult cuInit(unsigned int) { return CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int *version) { return *version = CUDA_VERSION, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetCount(int *count) { return *count = 1, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGet(CUdevice *device, int number) {
    if (number != 0) return CUDA_ERROR_INVALID_DEVICE;
    return *device = 0, CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice) {
    return std::snprintf(name, static_cast<std::size_t>(length), "emulated GPU"), CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceTotalMem(std::size_t *bytes, CUdevice) { return *bytes = total_memory(), CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice) {
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = MOST_SHARED; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = 1; break;
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice) { return *out = &context, CUDA_SUCCESS; }
EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxSetCurrent(CUcontext asked) { return current_context = asked, CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetCurrent(CUcontext *out) { return *out = current_context, CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetDevice(CUdevice *device) { return *device = 0, CUDA_SUCCESS; }
EXPORT CUresult cuCtxSynchronize() { return catch_up_all(), waited(); }
EXPORT CUresult cuStreamCreate(CUstream *out, unsigned int) { return *out = new CUstream_st, CUDA_SUCCESS; }
EXPORT CUresult cuStreamDestroy(CUstream stream) { return delete stream, CUDA_SUCCESS; }
EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    if (stream != nullptr) stream->catch_up();
    return waited();
}
EXPORT CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned int) { return catch_up_all(), CUDA_SUCCESS; }
EXPORT CUresult cuEventCreate(CUevent *out, unsigned int) { return *out = new CUevent_st, CUDA_SUCCESS; }
EXPORT CUresult cuEventDestroy(CUevent event) { return delete event, CUDA_SUCCESS; }
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    refuse_while_recording("an event is recorded");
    *event = {stream, stream != nullptr ? stream->given : 0};
    return CUDA_SUCCESS;
}
EXPORT CUresult cuEventSynchronize(CUevent event) {
    if (event->stream != nullptr) event->stream->catch_up_to(event->given);
    return waited();
}

EXPORT CUresult cuMemAlloc(CUdeviceptr *out, std::size_t size) {
    refuse_while_recording("memory is allocated");
    if (current_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const std::lock_guard guard(lock);
    if (size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (in_use + size > total_memory()) return CUDA_ERROR_OUT_OF_MEMORY;
    // Between two allocations there is room that belongs to none.
    void *const memory = std::aligned_alloc(512, (size + 1023) / 512 * 512);
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    std::memset(memory, 0xff, size);
    *out = reinterpret_cast<CUdeviceptr>(memory);
    count_call("allocate", size);
    allocations[*out] = size;
    tell(in_use + size);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuMemFree(CUdeviceptr at) {
    refuse_while_recording("memory is freed");
    // Work that is late may have to do with it.
    catch_up_all();
    if (current_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const std::lock_guard guard(lock);
    const auto found = allocations.find(at);
    if (found == allocations.end()) refuse("memory that is not there is freed", at, 0);
    count_call("free", found->second);
    tell(in_use - found->second);
    allocations.erase(found);
    std::free(reinterpret_cast<void *>(at));
    return CUDA_SUCCESS;
}
// The pool keeps what was freed, and other processes cannot have it, until somebody waits: then it keeps what it is told to.
EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, std::size_t size, CUstream) {
    const CUresult got = cuMemAlloc(out, size);
    const std::lock_guard guard(lock);
    if (got == CUDA_SUCCESS) pooled -= std::min<u64>(pooled, size);
    return got;
}
EXPORT CUresult cuMemFreeAsync(CUdeviceptr at, CUstream) {
    const u64 size = size_of(at);
    const CUresult freed = cuMemFree(at);
    const std::lock_guard guard(lock);
    if (freed == CUDA_SUCCESS) pooled += size;
    return freed;
}
EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice) { return *pool = nullptr, CUDA_SUCCESS; }
EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute attribute, void *value) {
    const std::lock_guard guard(lock);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) most_pooled = *static_cast<const u64 *>(value);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool, std::size_t kept) { return keep_pooled(kept), CUDA_SUCCESS; }
EXPORT CUresult cuMemGetInfo(std::size_t *free, std::size_t *total) {
    const std::lock_guard guard(lock);
    const u64 left = total_memory() - in_use;
    return *free = left - std::min(left, pooled), *total = total_memory(), CUDA_SUCCESS;
}
EXPORT CUresult cuMemHostAlloc(void **out, std::size_t size, unsigned int) {
    *out = std::malloc(size);
    add_pinned(reinterpret_cast<u64>(*out), size);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuMemFreeHost(void *at) { return catch_up_all(), remove_pinned(reinterpret_cast<u64>(at)), std::free(at), CUDA_SUCCESS; }
// A copy waits for the work before it, unless it is from or to pinned memory of the host and need not. What is copied from other
// memory of the host is taken at once, and reaches the device in its order.
EXPORT CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, std::size_t size) {
    count_call("copy to the device and wait", size);
    catch_up_all();
    return to_device(to, from, size);
}
EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, std::size_t size, CUstream stream) {
    const bool pinned = is_pinned(reinterpret_cast<u64>(from));
    count_call(pinned ? "copy to the device" : "copy to the device, pageable", size);
    if (stream == nullptr || !stream->is_late) return to_device(to, from, size);
    {
        const std::lock_guard guard(lock);
        if (size > 0 && !inside(to, size)) refuse("a copy to where no memory is", to, size);
    }
    if (pinned) return in_order(stream, [=] { return to_device(to, from, size); });
    const u8 *const bytes = static_cast<const u8 *>(from);
    return in_order(stream, [to, taken = std::vector<u8>(bytes, bytes + size)] { return to_device(to, taken.data(), taken.size()); });
}
EXPORT CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, std::size_t size) {
    count_call("copy to the host and wait", size);
    catch_up_all();
    return to_host(to, from, size);
}
EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, std::size_t size, CUstream stream) {
    const bool pinned = is_pinned(reinterpret_cast<u64>(to));
    count_call(pinned ? "copy to the host" : "copy to the host and wait", size);
    if (pinned) return in_order(stream, [=] { return to_host(to, from, size); });
    if (stream != nullptr) stream->catch_up();
    return to_host(to, from, size);
}
EXPORT CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, std::size_t size) {
    count_call("copy", size);
    catch_up_all();
    return within_device(to, from, size);
}
EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream) {
    count_call("copy", size);
    return in_order(stream, [=] { return within_device(to, from, size); });
}
EXPORT CUresult cuMemsetD8(CUdeviceptr at, unsigned char value, std::size_t size) { return catch_up_all(), fill(at, value, size); }
EXPORT CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, std::size_t size, CUstream stream) {
    return in_order(stream, [=] { return fill(at, value, size); });
}

EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image) {
    if (current_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const char *const text = static_cast<const char *>(image);
    if (std::strstr(text, ".version") == nullptr) return CUDA_ERROR_INVALID_IMAGE;
    return *out = new CUmod_st{text, {}}, CUDA_SUCCESS;
}
EXPORT CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    count_call("look for a kernel", 0);
    *out = find_kernel(module, name);
    return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (value < 0 || function->shape->shared + static_cast<u32>(value) > MOST_SHARED) return CUDA_ERROR_INVALID_VALUE;
        function->most_dynamic_shared = static_cast<u32>(value);
    }
    return CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                               unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int dynamic_shared,
                               CUstream stream, void **arguments, void **) {
    if (current_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    // Not locked: who does late work has its stream's lock, and takes this one then.
    const Shape &shape = *function->shape;
    const u64 threads = static_cast<u64>(block_x) * block_y * block_z;
    const bool fits = grid_x > 0 && grid_y > 0 && grid_z > 0 && grid_x <= 0x7fffffff && grid_y <= 65535 && grid_z <= 65535 &&
                      threads > 0 && threads <= 1024 && block_z <= 64 && dynamic_shared <= function->most_dynamic_shared;
    if (!fits) {
        std::fprintf(stderr, "emulated GPU: %s: a grid of %u x %u x %u blocks of %u x %u x %u threads with %u bytes\n",
                     function->name.c_str(), grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_shared);
        return CUDA_ERROR_INVALID_VALUE;
    }
    Arguments given;
    for (u32 index = 0; index < shape.parameter_count; ++index) {
        const Parameter &parameter = shape.parameters[index];
        std::memcpy(given.bytes + parameter.offset, arguments[index], parameter.size);
        given.size = parameter.offset + parameter.size;
    }
    enqueue(stream, [=] {
        const std::lock_guard guard(lock);
        const Launch launch{function->name.c_str(), function->body, function->shape, {grid_x, grid_y, grid_z},
                            {block_x, block_y, block_z}, dynamic_shared, given.bytes, given.size};
        run_grid(launch, find_memory);
    });
    return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorName(CUresult error, const char **text) {
    return *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "an error of the emulated GPU", CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    return *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "see standard error", CUDA_SUCCESS;
}
