// Runs one block of threads after another.
#pragma once

#include "device.h"

using Body = void (*)(Thread &);

// What is launched.
struct Launch {
    const char *name;
    Body body;
    const Shape *shape;
    u32 grid[3], block[3];
    u32 dynamic_shared;
    const u8 *parameters;
    u32 parameters_size;
};

void run_grid(const Launch &launch, Memory (*find)(u64));
