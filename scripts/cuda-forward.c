// Stands in for one CUDA library at link time: each of its functions is here, opens the real library when it is first
// called, and jumps there ever after, like a lazily bound shared library. Where the library is not there, it answers
// with an error code instead; so a CUDA build of tito starts everywhere, and says itself what is missing.
//
// A plain stub with the library's name would satisfy the linker too, but the program would not even start without the
// real one. (cudarc can open libraries itself, but candle-core 0.10 fixes its feature `dynamic-linking`.)
//
// Compiled by scripts/cuda-toolchain, once for each library, with
//   SYMBOLS   a file with a line FORWARD(name) for each function
//   LIBRARY   what the dynamic loader knows the library as
//   BEFORE    a library that this one needs, to be found in the same places, or ""
//   ABSENT    the library's own code for "not there"
// 64-bit x86 with the System V ABI only. Refuses to unload anything, and to look for versions.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if !defined(__x86_64__) || !defined(__linux__)
#error "only for 64-bit x86 and Linux"
#endif

// A slot holds where its function goes: at first to `first`, with the function's index on the stack. `first` keeps
// every register that may hold an argument, since what they are is not known here.
asm(".data\n"
    ".balign 8\n"
    "slots:\n"
    ".text\n"
    ".set index, 0\n"
#define FORWARD(name)                       \
    ".data\n"                               \
    "1: .quad 2f\n"                         \
    ".text\n"                               \
    ".globl " #name "\n"                    \
    ".hidden " #name "\n"                   \
    ".type " #name ", @function\n"          \
    #name ": jmp *1b(%rip)\n"               \
    "2: pushq $index\n"                     \
    "jmp first\n"                           \
    ".size " #name ", . - " #name "\n"      \
    ".set index, index + 1\n"
#include SYMBOLS
#undef FORWARD
    "first:\n"
    "push %rax\n push %rdi\n push %rsi\n push %rdx\n push %rcx\n push %r8\n push %r9\n"
    "sub $136, %rsp\n"
    "movaps %xmm0, 0(%rsp)\n movaps %xmm1, 16(%rsp)\n movaps %xmm2, 32(%rsp)\n movaps %xmm3, 48(%rsp)\n"
    "movaps %xmm4, 64(%rsp)\n movaps %xmm5, 80(%rsp)\n movaps %xmm6, 96(%rsp)\n movaps %xmm7, 112(%rsp)\n"
    "mov 192(%rsp), %rdi\n"
    "call resolve\n"
    "mov %rax, 192(%rsp)\n"
    "movaps 0(%rsp), %xmm0\n movaps 16(%rsp), %xmm1\n movaps 32(%rsp), %xmm2\n movaps 48(%rsp), %xmm3\n"
    "movaps 64(%rsp), %xmm4\n movaps 80(%rsp), %xmm5\n movaps 96(%rsp), %xmm6\n movaps 112(%rsp), %xmm7\n"
    "add $136, %rsp\n"
    "pop %r9\n pop %r8\n pop %rcx\n pop %rdx\n pop %rsi\n pop %rdi\n pop %rax\n"
    // The index has become the address to go on at.
    "ret\n");

static const char *const names[] = {
#define FORWARD(name) #name,
#include SYMBOLS
#undef FORWARD
};

__attribute__((visibility("hidden"))) extern _Atomic(void *) slots[];

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static void *library;

static void *open_in(const char *folder, const char *name) {
    char path[PATH_MAX];
    int written = snprintf(path, sizeof path, "%s/%s", folder, name);
    int is_there = written > 0 && (size_t)written < sizeof path && access(path, R_OK) == 0;
    return is_there ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
}

// Looks into all folders that fit a pattern.
static void *open_in_any(const char *pattern, const char *name) {
    void *found = NULL;
    glob_t folders;
    if (glob(pattern, GLOB_NOSORT, NULL, &folders) != 0) return NULL;
    for (size_t i = 0; found == NULL && i < folders.gl_pathc; i++) found = open_in(folders.gl_pathv[i], name);
    globfree(&folders);
    return found;
}

// Where the dynamic loader looks; then a folder `lib` beside the program's own, and in there where pip puts NVIDIA's wheels for
// CUDA 13; then where CUDA and drivers usually lie.
static void *open_library(const char *name) {
    static const char wheels[] = "/python3*/*-packages/nvidia/cu13/lib";
    void *found = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    char beside[PATH_MAX] = "";
    ssize_t length = readlink("/proc/self/exe", beside, sizeof beside - sizeof "/../lib" - sizeof wheels);
    if (found == NULL && length > 0) {
        beside[length] = '\0';
        char *slash = strrchr(beside, '/');
        if (slash != NULL) {
            strcpy(slash, "/../lib");
            found = open_in(beside, name);
            if (found == NULL) found = open_in_any(strcat(beside, wheels), name);
        }
    }
    if (found == NULL) found = open_in("/usr/local/cuda/lib64", name);
    return found != NULL ? found : open_in("/usr/local/nvidia/lib64", name);
}

static void open_once(void) {
    if (BEFORE[0] != '\0') open_library(BEFORE);
    library = open_library(LIBRARY);
    if (library != NULL || strcmp(LIBRARY, "libcuda.so.1") == 0) return; // tito says it itself where the driver is missing
    const char *reason = dlerror();
    fprintf(stderr, "cannot load %s (%s): install the CUDA 13 libraries, or name their folder in LD_LIBRARY_PATH\n",
            LIBRARY, reason != NULL ? reason : "no reason given");
}

// What is called in place of a function that is not there; further arguments do not disturb it.
static int absent(void) { return ABSENT; }

// Some functions answer with a text, either by themselves or through their second argument.
static const char *absent_text(void) { return LIBRARY " cannot be loaded"; }

static int absent_driver_text(int code, const char **text) {
    (void)code;
    *text = absent_text();
    return 0;
}

static void *substitute(const char *name) {
    if (strcmp(name, "cuGetErrorName") == 0 || strcmp(name, "cuGetErrorString") == 0) return absent_driver_text;
    const char *const texts[] = {"GetStatusName", "GetStatusString", "GetErrorString"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strstr(name, texts[i]) != NULL) return absent_text;
    return absent;
}

__attribute__((used)) static void *resolve(size_t index) asm("resolve");

static void *resolve(size_t index) {
    pthread_once(&opened, open_once);
    void *found = library != NULL ? dlsym(library, names[index]) : NULL;
    if (library != NULL && found == NULL)
        fprintf(stderr, "%s has no %s: it is older than what tito was built for\n", LIBRARY, names[index]);
    if (found == NULL) found = substitute(names[index]);
    atomic_store(&slots[index], found);
    return found;
}
