// Streams, and work that is done as late as it may be.
//
// Streams have no work left when a call returns, but for those that are late. A late one keeps kernels, products, copies and what is
// set until somebody waits for it, or for an event after them: what the host does too early shows. A program opens libcuda.so.1 and
// looks for this function, which no real driver has:
//   void emulated_gpu_be_late(CUstream stream)
#pragma once

#include <cuda.h>

#include "device.h"

#include <deque>
#include <functional>
#include <mutex>

struct CUstream_st {
    // What it records, while it does.
    CUgraph graph = nullptr;
    bool is_late = false;
    std::recursive_mutex lock;
    std::deque<std::function<void()>> left;
    // How much work it was given so far.
    u64 given = 0;

    CUstream_st();
    ~CUstream_st();
    // Does all work, or as much as it was given by some time.
    void catch_up();
    void catch_up_to(u64 given_then);
};

// Has a stream do some work, late if it is a late one.
void do_in_order(CUstream stream, std::function<void()> work);
// Has all streams do all work.
void catch_up_all();
