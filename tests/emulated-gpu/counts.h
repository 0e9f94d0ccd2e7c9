// What a thread asks of the GPU while its work is counted.
//
// A program opens libcuda.so.1 and looks for these two functions, which no real driver has:
//   void emulated_gpu_begin_counting()
//     begins to count what this thread asks for.
//   size_t emulated_gpu_end_counting(char *text, size_t size)
//     ends that, and writes what was counted: a line for each kernel and kind of call, a name and numbers with theirs. The
//     length of the text is returned, which is cut where it is longer than `size`.
#pragma once

#include "device.h"

// Whether this thread's work is counted.
bool is_counted();
// A kernel begins, and ends. Between the two calls its accesses and products are counted.
void begin_kernel(const char *name, u64 blocks);
void end_kernel();
void count_access(u64 address, u32 size, bool written);
// Products of two numbers with a sum, in a kernel that is running.
void count_multiplications(u64 count);
// A product by cuBLAS: what it reads at the least, what it writes, and its products of two numbers.
void count_product(u64 read, u64 written, u64 multiplications);
// Another call, which moves or sets so many bytes.
void count_call(const char *name, u64 bytes);
// Memory of the host that the device can copy from and to by itself.
void add_pinned(u64 begin, u64 size);
void remove_pinned(u64 begin);
bool is_pinned(u64 at);
