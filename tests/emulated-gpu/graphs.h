// Work that a stream records instead of doing it, and that is done each time that the graph of it is launched.
//
// Only kernels and products can be recorded here. A GPU also records copies and allocations, which then happen with the
// addresses of the first time: whatever else reaches a stream that records ends the program.
#pragma once

#include <cuda.h>

#include "streams.h"

#include <functional>

// Has a stream do some work: at once, late, or whenever what it records is launched.
void enqueue(CUstream stream, std::function<void()> work);
// Ends the program if a stream of this thread records.
void refuse_while_recording(const char *what);
