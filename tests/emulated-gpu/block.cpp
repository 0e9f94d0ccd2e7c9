// The threads of a block, each on a stack of its own, that run one at a time until they wait for others. In which order
// they run is shuffled (TITO_EMULATED_ORDER seeds it): a kernel that lacks a barrier gives other results for other
// orders. Threads that wait for what never comes, and accesses outside of memory, end the program with a message.

#include "block.h"
#include "counts.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

enum class State { ready, in_warp, at_barrier, done };

struct Fiber {
    Thread thread;
    State state = State::ready;
    void *stack_pointer = nullptr;
    Warp operation{};
    bool vote = false;
    Votes votes{};
};

namespace {

constexpr std::size_t STACK = 256 << 10;
constexpr u32 MOST_THREADS = 1024;

const Launch *current_launch;
Fiber *current;
void *scheduler_stack;
std::vector<Fiber> fibers;

// Saves what a called function must keep, and goes on where the other stack was left.
extern "C" void emulated_switch(void **from, void *to);
asm(".text\n"
    "emulated_switch:\n"
    "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov %rsp, (%rdi)\n"
    "mov %rsi, %rsp\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"
    "ret\n");

[[noreturn]] void die(const Thread &t, const char *what, u64 address, u32 size) {
    std::fprintf(stderr, "emulated GPU: %s: thread (%u, %u, %u) of block (%u, %u, %u): %s", current_launch->name, t.tid[0],
                 t.tid[1], t.tid[2], t.ctaid[0], t.ctaid[1], t.ctaid[2], what);
    if (size > 0) std::fprintf(stderr, ": %u bytes at %#llx", size, static_cast<unsigned long long>(address));
    std::fputc('\n', stderr);
    std::abort();
}

void complain(const Thread &t, const char *what, u64 address, u32 size) { die(t, what, address, size); }

void to_scheduler(Fiber &fiber, State state) {
    fiber.state = state;
    emulated_switch(&fiber.stack_pointer, scheduler_stack);
}

Warp in_warp(Thread &t, Warp operation) {
    Fiber &fiber = *t.fiber;
    fiber.operation = operation;
    if ((operation.mask >> t.lane & 1) == 0) die(t, "an operation of other lanes of the warp", 0, 0);
    to_scheduler(fiber, State::in_warp);
    return fiber.operation;
}

Votes at_barrier(Thread &t, bool vote) {
    t.fiber->vote = vote;
    to_scheduler(*t.fiber, State::at_barrier);
    return t.fiber->votes;
}

void begin() {
    current_launch->body(current->thread);
    to_scheduler(*current, State::done);
    std::abort();
}

u8 *stacks() {
    static u8 *memory = static_cast<u8 *>(mmap(nullptr, STACK * MOST_THREADS, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory == MAP_FAILED) std::abort();
    return memory;
}

void prepare(Fiber &fiber, std::size_t index) {
    u8 *const bottom = stacks() + STACK * index;
    void **top = reinterpret_cast<void **>(bottom + STACK);
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(begin);
    top -= 6;
    fiber.stack_pointer = top;
    fiber.thread.stack = {reinterpret_cast<u64>(bottom), reinterpret_cast<u64>(bottom + STACK)};
    fiber.state = State::ready;
}

// What a lane gets of an operation that all lanes of its mask have come to.
Warp result(const Fiber *warp, u32 lane, u32 present) {
    Warp got = warp[lane].operation;
    u32 yes = 0;
    for (u32 other = 0; other < 32; ++other)
        if (present >> other & 1 && warp[other].operation.value != 0) yes |= 1u << other;
    const u32 distance = got.lane & 31, clamp = got.clamp & 31, segment = got.clamp >> 8 & 31;
    const s32 last = static_cast<s32>((lane & segment) | (clamp & ~segment));
    const s32 own = static_cast<s32>(lane);
    s32 from = own;
    switch (got.kind) {
    case WarpKind::wait:
    case WarpKind::mma: return got;
    case WarpKind::any: got.value = yes != 0; return got;
    case WarpKind::all: got.value = yes == got.mask; return got;
    case WarpKind::ballot: got.value = yes; return got;
    case WarpKind::up: from = own - static_cast<s32>(distance), got.inside = from >= last; break;
    case WarpKind::down: from = own + static_cast<s32>(distance), got.inside = from <= last; break;
    case WarpKind::bfly: from = own ^ static_cast<s32>(distance), got.inside = from <= last; break;
    case WarpKind::idx:
        from = static_cast<s32>((lane & segment) | (distance & ~segment)), got.inside = from <= last;
        break;
    }
    if (!got.inside) from = own;
    if ((present >> from & 1) == 0) die(warp[lane].thread, "a number of a lane that does not take part", 0, 0);
    got.value = warp[from].operation.value;
    return got;
}

f32 half_of(u32 pair, u32 place) { return std::bit_cast<f32>(pair >> (16 * place) << 16); }

// Lane `4 * r + c` has of the left matrix the columns 2c and 2c + 1, and those eight further, of row r and of the eighth row
// after it; of the right matrix as many rows of column r; of the sums columns 2c and 2c + 1 of its two rows.
void multiply(Fiber *warp) {
    f64 left[16][16], right[16][8];
    for (u32 lane = 0; lane < 32; ++lane) {
        const Matrices &own = *warp[lane].operation.matrices;
        const u32 row = lane / 4, column = lane % 4 * 2;
        for (u32 pair = 0; pair < 4; ++pair)
            for (u32 place = 0; place < 2; ++place)
                left[row + pair % 2 * 8][column + pair / 2 * 8 + place] = half_of(own.left[pair], place);
        for (u32 pair = 0; pair < 2; ++pair)
            for (u32 place = 0; place < 2; ++place) right[column + pair * 8 + place][row] = half_of(own.right[pair], place);
    }
    for (u32 lane = 0; lane < 32; ++lane)
        for (u32 number = 0; number < 4; ++number) {
            const u32 row = lane / 4 + number / 2 * 8, column = lane % 4 * 2 + number % 2;
            f64 sum = warp[lane].operation.matrices->sums[number];
            for (u32 inner = 0; inner < 16; ++inner) sum += left[row][inner] * right[inner][column];
            warp[lane].operation.matrices->sums[number] = static_cast<f32>(sum);
        }
}

// Lets warps go on whose lanes have all come to one operation.
bool release_warps() {
    bool released = false;
    for (std::size_t first = 0; first < fibers.size(); first += 32) {
        Fiber *const warp = &fibers[first];
        const u32 lanes = static_cast<u32>(std::min<std::size_t>(32, fibers.size() - first));
        for (u32 lane = 0; lane < lanes; ++lane) {
            if (warp[lane].state != State::in_warp) continue;
            const Warp wanted = warp[lane].operation;
            u32 present = 0, missing = 0;
            for (u32 other = 0; other < 32; ++other) {
                if ((wanted.mask >> other & 1) == 0 || other >= lanes || warp[other].state == State::done) continue;
                const Warp &theirs = warp[other].operation;
                const bool there = warp[other].state == State::in_warp && theirs.mask == wanted.mask && theirs.kind == wanted.kind;
                (there ? present : missing) |= 1u << other;
            }
            if (missing != 0) continue;
            if (wanted.kind == WarpKind::mma) {
                if (present != 0xffffffffu) die(warp[lane].thread, "a product that not all lanes take part in", 0, 0);
                multiply(warp);
                count_multiplications(16 * 8 * 16);
            }
            Warp results[32];
            for (u32 other = 0; other < lanes; ++other)
                if (present >> other & 1) results[other] = result(warp, other, present);
            for (u32 other = 0; other < lanes; ++other)
                if (present >> other & 1) {
                    warp[other].operation = results[other];
                    warp[other].state = State::ready;
                }
            released = true;
        }
    }
    return released;
}

// Lets a block go on all of whose threads have come to the barrier, or have ended.
bool release_barrier() {
    Votes votes{0, false, true};
    bool waiting = false;
    for (const Fiber &fiber : fibers) {
        if (fiber.state == State::done) continue;
        if (fiber.state != State::at_barrier) return false;
        waiting = true;
        votes.popc += fiber.vote;
        votes.any |= fiber.vote;
        votes.all &= fiber.vote;
    }
    for (Fiber &fiber : fibers)
        if (fiber.state == State::at_barrier) {
            fiber.votes = votes;
            fiber.state = State::ready;
        }
    return waiting;
}

void run_threads(std::mt19937 &random) {
    std::vector<u32> order(fibers.size());
    for (u32 index = 0; index < order.size(); ++index) order[index] = index;
    for (std::size_t index = 0; index < fibers.size(); ++index) prepare(fibers[index], index);
    for (;;) {
        bool ran = false;
        std::shuffle(order.begin(), order.end(), random);
        for (const u32 index : order) {
            Fiber &fiber = fibers[index];
            if (fiber.state != State::ready) continue;
            current = &fiber;
            emulated_switch(&scheduler_stack, fiber.stack_pointer);
            ran = true;
        }
        if (release_warps() || release_barrier() || ran) continue;
        for (const Fiber &fiber : fibers)
            if (fiber.state != State::done) die(fiber.thread, "waits for threads that never come", 0, 0);
        return;
    }
}

std::mt19937 &orders() {
    static std::mt19937 random{[] {
        const char *seed = std::getenv("TITO_EMULATED_ORDER");
        return static_cast<u32>(seed != nullptr ? std::strtoul(seed, nullptr, 10) : 1);
    }()};
    return random;
}

} // namespace

void run_grid(const Launch &launch, Memory (*find)(u64)) {
    current_launch = &launch;
    begin_kernel(launch.name, u64(launch.grid[0]) * launch.grid[1] * launch.grid[2]);
    const u32 count = launch.block[0] * launch.block[1] * launch.block[2];
    static std::vector<u8> shared_memory;
    shared_memory.assign(launch.shape->shared + launch.dynamic_shared + 64, 0xff);
    u8 *const shared = reinterpret_cast<u8 *>((reinterpret_cast<u64>(shared_memory.data()) + 63) / 64 * 64);
    fibers.assign(count, Fiber{});
    for (u32 z = 0; z < launch.grid[2]; ++z)
        for (u32 y = 0; y < launch.grid[1]; ++y)
            for (u32 x = 0; x < launch.grid[0]; ++x) {
                std::memset(shared, 0xff, launch.shape->shared + launch.dynamic_shared);
                for (u32 index = 0; index < count; ++index) {
                    Thread &t = fibers[index].thread;
                    const u32 *const block = launch.block;
                    t = Thread{};
                    t.tid[0] = index % block[0], t.tid[1] = index / block[0] % block[1], t.tid[2] = index / block[0] / block[1];
                    for (int axis = 0; axis < 3; ++axis) t.ntid[axis] = block[axis], t.nctaid[axis] = launch.grid[axis];
                    t.ctaid[0] = x, t.ctaid[1] = y, t.ctaid[2] = z;
                    t.lane = index % 32;
                    t.shared = shared;
                    t.shared_size = launch.shape->shared + launch.dynamic_shared;
                    t.dynamic_shared = launch.shape->shared;
                    t.parameters = launch.parameters, t.parameters_size = launch.parameters_size;
                    t.fiber = &fibers[index];
                    t.find = find, t.access = is_counted() ? count_access : nullptr, t.complain = complain, t.warp = in_warp, t.wait = at_barrier;
                }
                if (launch.shape->synchronises) run_threads(orders());
                else
                    for (Fiber &fiber : fibers) launch.body(fiber.thread);
            }
    end_kernel();
}
