// What the libraries of the emulated GPU share: its memory, and its kernels.
#pragma once

#include <cuda.h>

#include "block.h"

// The allocation that begins at or before an address; its end may lie before the address.
Memory find_memory(u64 address);
// Ends the program where memory is not there.
void check_memory(const void *at, u64 size, const char *what);
// A kernel of a module; none where the module has none of the name.
CUfunction find_kernel(CUmodule module, const char *name);
