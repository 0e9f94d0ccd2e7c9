// What a translated kernel is compiled with: numbers as PTX reads them, memory that is checked at every access, and the
// threads of a block, which wait for each other.
#pragma once

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f32 = float;
using f64 = double;

// Rounds a number to `fraction` bits behind the first one, with exponents from `least` on, to the nearest, ties to even.
inline f64 rounded_to(f64 number, int fraction, int least) {
    if (number == 0 || !std::isfinite(number)) return number;
    const int exponent = std::max(std::ilogb(number), least);
    const f64 unit = std::ldexp(1.0, exponent - fraction);
    return std::nearbyint(number / unit) * unit;
}

struct bf16 {
    u16 bits = 0;
    bf16() = default;
    bf16(f64 number) {
        const f32 exact = static_cast<f32>(rounded_to(number, 7, -126));
        bits = std::isnan(number) ? 0x7fff : static_cast<u16>(std::bit_cast<u32>(exact) >> 16);
    }
    operator f32() const { return std::bit_cast<f32>(static_cast<u32>(bits) << 16); }
};

struct f16 {
    u16 bits = 0;
    f16() = default;
    f16(f64 number) {
        const u16 sign = std::signbit(number) ? 0x8000 : 0;
        const f64 size = rounded_to(std::fabs(number), 10, -14);
        if (std::isnan(number)) bits = 0x7fff;
        else if (size > 65504) bits = sign | 0x7c00;
        else if (size < std::ldexp(1.0, -14)) bits = sign | static_cast<u16>(std::ldexp(size, 24));
        else {
            const int exponent = std::ilogb(size);
            bits = sign | static_cast<u16>((exponent + 15) << 10) | static_cast<u16>(std::ldexp(size, 10 - exponent) - 1024);
        }
    }
    operator f32() const {
        const int exponent = bits >> 10 & 31, fraction = bits & 1023;
        f32 size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
        if (exponent == 31) size = fraction == 0 ? INFINITY : NAN;
        return bits & 0x8000 ? -size : size;
    }
};

// The low bits of a register as a number.
template <typename T, typename B> inline T from_bits(B bits) {
    static_assert(sizeof(T) <= sizeof(B));
    if constexpr (std::is_same_v<T, bool>) return bits != 0;
    else {
        T number;
        std::memcpy(&number, &bits, sizeof number);
        return number;
    }
}

// A number as the bits of a register; a short signed one keeps its sign.
template <typename B, typename T> inline B to_bits(T number) {
    if constexpr (std::is_integral_v<T>) return static_cast<B>(number);
    else {
        static_assert(sizeof(T) <= sizeof(B));
        B bits = 0;
        std::memcpy(&bits, &number, sizeof number);
        return bits;
    }
}

inline f32 flushed(f32 number) { return std::fpclassify(number) == FP_SUBNORMAL ? std::copysign(0.0f, number) : number; }
inline f64 flushed(f64 number) { return number; }
template <typename T> inline T saturated(T number) { return std::isnan(number) ? T(0.0) : T(std::fmin(std::fmax(number, 0), 1)); }

inline f32 fused(f32 a, f32 b, f32 c) { return std::fma(a, b, c); }
inline f64 fused(f64 a, f64 b, f64 c) { return std::fma(a, b, c); }
inline bf16 fused(bf16 a, bf16 b, bf16 c) { return bf16(static_cast<f64>(f32(a)) * f32(b) + f32(c)); }
inline f16 fused(f16 a, f16 b, f16 c) { return f16(static_cast<f64>(f32(a)) * f32(b) + f32(c)); }
inline f32 fused_towards(f32 a, f32 b, f32 c, int way) {
    const int before = std::fegetround();
    std::fesetround(way);
    volatile f32 x = a, y = b, z = c;
    volatile f32 result = std::fma(x, y, z);
    std::fesetround(before);
    return result;
}

template <bool nan, typename T> inline T least(T a, T b) {
    if constexpr (std::is_integral_v<T>) return a < b ? a : b;
    else return nan && (std::isnan(a) || std::isnan(b)) ? T(NAN) : T(std::fmin(a, b));
}
template <bool nan, typename T> inline T most(T a, T b) {
    if constexpr (std::is_integral_v<T>) return a > b ? a : b;
    else return nan && (std::isnan(a) || std::isnan(b)) ? T(NAN) : T(std::fmax(a, b));
}
template <typename T> inline T magnitude(T a) {
    if constexpr (std::is_integral_v<T>) return a < 0 ? static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a)) : a;
    else return T(std::fabs(a));
}
inline u32 high(u32 a, u32 b) { return static_cast<u32>(static_cast<u64>(a) * b >> 32); }
inline s32 high(s32 a, s32 b) { return static_cast<s32>(static_cast<s64>(a) * b >> 32); }
inline u64 high(u64 a, u64 b) { return static_cast<u64>(static_cast<unsigned __int128>(a) * b >> 64); }
inline s64 high(s64 a, s64 b) { return static_cast<s64>(static_cast<__int128>(a) * b >> 64); }

// A number as a whole one, which is the nearest where there is no such one.
template <typename T, typename F> inline T clamped(F number) {
    const f64 whole = std::trunc(static_cast<f64>(number));
    if (std::isnan(whole)) return sizeof(T) == 8 ? static_cast<T>(u64(1) << 63) : T(0);
    if (whole >= static_cast<f64>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    if (whole <= static_cast<f64>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    return static_cast<T>(whole);
}

template <typename T> inline T extracted(T a, u32 from, u32 count) {
    from &= 255, count &= 255;
    constexpr u32 width = 8 * sizeof(T);
    T bits = 0;
    const T sign = std::is_signed_v<T> && count > 0 && (a >> std::min(from + count - 1, width - 1) & 1) ? T(-1) : T(0);
    for (u32 place = 0; place < width; ++place) {
        const T bit = place < count ? (from + place < width ? a >> (from + place) & 1 : sign & 1) : sign & 1;
        bits |= static_cast<T>(bit << place);
    }
    return bits;
}
// `into` with `count` bits of `bits` from its bit `from` on.
template <typename T> inline T inserted(T bits, T into, u32 from, u32 count) {
    from &= 255, count &= 255;
    constexpr u32 width = 8 * sizeof(T);
    for (u32 place = 0; place < count && from + place < width; ++place) {
        const T bit = static_cast<T>(1) << (from + place);
        into = static_cast<T>((into & ~bit) | (bits >> place & 1 ? bit : 0));
    }
    return into;
}
inline u32 permuted(u32 a, u32 b, u32 how) {
    const u64 bytes = static_cast<u64>(b) << 32 | a;
    u32 out = 0;
    for (int place = 0; place < 4; ++place) {
        const u32 choice = how >> (4 * place) & 15;
        const u8 byte = static_cast<u8>(bytes >> (8 * (choice & 7)));
        out |= static_cast<u32>(choice & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << (8 * place);
    }
    return out;
}
template <bool left, bool wrap> inline u32 funnel(u32 low, u32 upper, u32 count) {
    count = wrap ? count & 31 : std::min(count, 32u);
    const u64 both = static_cast<u64>(upper) << 32 | low;
    return left ? static_cast<u32>(both << count >> 32) : static_cast<u32>(both >> count);
}

enum class WarpKind : u8 { wait, up, down, bfly, idx, any, all, ballot, mma };

// A lane's share of mma.sync.m16n8k16: pairs of bf16 of both matrices, and sums.
struct Matrices {
    u32 left[4], right[2];
    f32 sums[4];
};

// An operation of a warp: which lanes take part, what this lane gives, and then what it gets.
struct Warp {
    u32 mask, value, lane, clamp;
    WarpKind kind;
    bool inside = false;
    Matrices *matrices = nullptr;
};

// What the votes at a barrier were.
struct Votes {
    u32 popc;
    bool any, all;
};

struct Fiber;
struct Memory {
    u64 begin, end;
};

// Copies of 16 bytes to shared memory that a thread has begun and not waited for.
struct Copies {
    static constexpr u32 MOST = 256;
    struct {
        u8 *to;
        const u8 *from;
        u32 group;
    } begun[MOST];
    u32 count, groups;
};

// A thread of a block.
struct Thread {
    u32 tid[3], ntid[3], ctaid[3], nctaid[3];
    u32 lane;
    u8 *shared;
    u32 shared_size, dynamic_shared;
    const u8 *parameters;
    u32 parameters_size;
    Memory last, stack;
    Copies copies;
    Fiber *fiber;
    // Into the program that launched the kernel.
    Memory (*find)(u64 address);
    // Is told of each access to the GPU's memory; none where nothing is counted.
    void (*access)(u64 address, u32 size, bool written);
    void (*complain)(const Thread &thread, const char *what, u64 address, u32 size);
    Warp (*warp)(Thread &thread, Warp operation);
    Votes (*wait)(Thread &thread, bool vote);
};

struct Parameter {
    u32 offset, size;
};

// What a launch has to know about a kernel.
struct Shape {
    const Parameter *parameters;
    u32 parameter_count, shared;
    bool synchronises;
};

inline void fault(const Thread &t, const char *what, u64 address, u32 size) { t.complain(t, what, address, size); }
inline Warp warp_operation(Thread &t, Warp operation) { return t.warp(t, operation); }

inline Votes barrier(Thread &t, bool vote) { return t.wait(t, vote); }

// Whole numbers are not divided by zero, which PTX leaves open.
template <typename T> inline T divided(const Thread &t, T a, T b) {
    if (b == 0) fault(t, "a division by zero", 0, 0);
    if constexpr (std::is_signed_v<T>)
        if (b == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
    return a / b;
}
template <typename T> inline T remainder_of(const Thread &t, T a, T b) {
    if (b == 0) fault(t, "a division by zero", 0, 0);
    if constexpr (std::is_signed_v<T>)
        if (b == -1) return 0;
    return a % b;
}

enum class Space : u8 { generic, param, global, shared, local };

// Where an address points to, if `size` bytes may be there.
template <Space space> inline u8 *place_in(Thread &t, u64 address, u32 size, bool written) {
    if (address % size != 0) fault(t, written ? "a store that is not aligned" : "a load that is not aligned", address, size);
    if constexpr (space == Space::param) {
        if (written || address + size > t.parameters_size) fault(t, "no parameter", address, size);
        return const_cast<u8 *>(t.parameters) + address;
    } else if constexpr (space == Space::shared) {
        if (address + size > t.shared_size) fault(t, "outside of shared memory", address, size);
        return t.shared + address;
    } else if constexpr (space == Space::local) {
        return reinterpret_cast<u8 *>(address);
    } else {
        if constexpr (space == Space::generic) {
            const u64 shared = reinterpret_cast<u64>(t.shared);
            const bool own = address >= shared && address + size <= shared + t.shared_size;
            if (own || (address >= t.stack.begin && address + size <= t.stack.end)) return reinterpret_cast<u8 *>(address);
        }
        if (address < t.last.begin || address + size > t.last.end) {
            t.last = t.find(address);
            if (address < t.last.begin || address + size > t.last.end)
                fault(t, written ? "a store outside of all memory" : "a load outside of all memory", address, size);
        }
        if (t.access != nullptr) t.access(address, size, written);
        return reinterpret_cast<u8 *>(address);
    }
}

// A copy is done as late as it may be; until then there is nothing where it goes to.
inline void copy_later(Thread &t, u64 to, u64 from) {
    constexpr u32 size = 16;
    Copies &copies = t.copies;
    if (copies.count == Copies::MOST) fault(t, "more copies than are kept", from, size);
    const u8 *const source = place_in<Space::global>(t, from, size, false);
    u8 *const target = place_in<Space::shared>(t, to, size, true);
    std::memset(target, 0xff, size);
    copies.begun[copies.count++] = {target, source, copies.groups};
}
inline void end_copies(Thread &t) { ++t.copies.groups; }
// Does all copies but those of the last `left` groups.
inline void wait_for_copies(Thread &t, u32 left) {
    Copies &copies = t.copies;
    u32 kept = 0;
    for (u32 index = 0; index < copies.count; ++index) {
        const auto &copy = copies.begun[index];
        if (copy.group + left < copies.groups) std::memcpy(copy.to, copy.from, 16);
        else copies.begun[kept++] = copy;
    }
    copies.count = kept;
}

template <typename T> inline T loaded(const u8 *at) {
    T number;
    std::memcpy(&number, at, sizeof number);
    return number;
}
template <typename T> inline void stored(u8 *at, T number) { std::memcpy(at, &number, sizeof number); }
