#include "streams.h"

#include <set>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
std::recursive_mutex lock;
std::set<CUstream> late;
} // namespace

CUstream_st::CUstream_st() = default;

CUstream_st::~CUstream_st() {
    catch_up();
    const std::lock_guard guard(::lock);
    late.erase(this);
}

void CUstream_st::catch_up() { catch_up_to(given); }

void CUstream_st::catch_up_to(u64 given_then) {
    const std::lock_guard guard(lock);
    while (!left.empty() && given - left.size() < given_then) {
        const std::function<void()> work = std::move(left.front());
        left.pop_front();
        work();
    }
}

void do_in_order(CUstream stream, std::function<void()> work) {
    if (stream == nullptr || !stream->is_late) return work();
    const std::lock_guard guard(stream->lock);
    stream->left.push_back(std::move(work));
    ++stream->given;
}

void catch_up_all() {
    const std::lock_guard guard(lock);
    for (CUstream stream : late) stream->catch_up();
}

EXPORT void emulated_gpu_be_late(CUstream stream) {
    const std::lock_guard guard(lock);
    late.insert(stream);
    stream->is_late = true;
}
