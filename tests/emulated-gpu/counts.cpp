// Counts what each thread asks for. A GPU computes asynchronously; what it takes to issue and what it moves can be counted
// here without any clock.

#include "counts.h"

#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <unordered_set>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr u64 LINE = 128;

struct Kernel {
    u64 launches = 0, blocks = 0, loaded = 0, stored = 0, lines = 0, multiplications = 0;
};
struct Call {
    u64 calls = 0, bytes = 0;
};
struct Counts {
    bool on = false;
    std::map<std::string, Kernel> kernels;
    std::map<std::string, Call> calls;
    Kernel *running = nullptr;
    std::unordered_set<u64> lines;
};
thread_local Counts counts;

std::mutex lock;
std::map<u64, u64> pinned;

using Line = unsigned long long;

} // namespace

bool is_counted() { return counts.on; }

void begin_kernel(const char *name, u64 blocks) {
    if (!counts.on) return;
    counts.running = &counts.kernels[name];
    ++counts.running->launches;
    counts.running->blocks += blocks;
    counts.lines.clear();
}

void end_kernel() {
    if (counts.running == nullptr) return;
    counts.running->lines += counts.lines.size();
    counts.running = nullptr;
}

void count_access(u64 address, u32 size, bool written) {
    if (counts.running == nullptr) return;
    (written ? counts.running->stored : counts.running->loaded) += size;
    // Accesses are aligned, so that none reaches into a second line.
    counts.lines.insert(address / LINE);
}

void count_multiplications(u64 count) {
    if (counts.running != nullptr) counts.running->multiplications += count;
}

void count_product(u64 read, u64 written, u64 multiplications) {
    if (!counts.on) return;
    Kernel &product = counts.kernels["(cuBLAS)"];
    ++product.launches;
    product.loaded += read, product.stored += written, product.multiplications += multiplications;
    product.lines += (read + LINE - 1) / LINE + (written + LINE - 1) / LINE;
}

void count_call(const char *name, u64 bytes) {
    if (!counts.on) return;
    Call &call = counts.calls[name];
    ++call.calls;
    call.bytes += bytes;
}

void add_pinned(u64 begin, u64 size) {
    const std::lock_guard guard(lock);
    pinned[begin] = size;
}

void remove_pinned(u64 begin) {
    const std::lock_guard guard(lock);
    pinned.erase(begin);
}

bool is_pinned(u64 at) {
    const std::lock_guard guard(lock);
    const auto after = pinned.upper_bound(at);
    if (after == pinned.begin()) return false;
    const auto &[begin, size] = *std::prev(after);
    return at < begin + size;
}

EXPORT void emulated_gpu_begin_counting() {
    counts = Counts{};
    counts.on = true;
}

EXPORT std::size_t emulated_gpu_end_counting(char *text, std::size_t size) {
    std::string all;
    char line[512];
    for (const auto &[name, kernel] : counts.kernels) {
        std::snprintf(line, sizeof line, "%s launches %llu blocks %llu loaded %llu stored %llu lines %llu multiplications %llu\n",
                      name.c_str(), Line(kernel.launches), Line(kernel.blocks), Line(kernel.loaded), Line(kernel.stored),
                      Line(kernel.lines), Line(kernel.multiplications));
        all += line;
    }
    for (const auto &[name, call] : counts.calls) {
        std::snprintf(line, sizeof line, "%s calls %llu bytes %llu\n", name.c_str(), Line(call.calls), Line(call.bytes));
        all += line;
    }
    counts = Counts{};
    if (size > 0) text[all.copy(text, size - 1)] = '\0';
    return all.size();
}
