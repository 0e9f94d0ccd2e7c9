"""What each instruction of PTX is in C++.

Owns: Instructions, one method for each opcode, which gets what stands behind its dots and its operands. A kernel reads
and writes registers and finds addresses for them. What a method does not know raises Unknown.
"""

import re

# The type of a number in C++, by PTX's name for it.
NUMBERS = {
    "u8": "u8", "u16": "u16", "u32": "u32", "u64": "u64", "s8": "s8", "s16": "s16", "s32": "s32", "s64": "s64",
    "b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64", "f32": "f32", "f64": "f64", "f16": "f16", "bf16": "bf16",
    "pred": "bool", "f16x2": "u32", "bf16x2": "u32",
}
BITS = {name: int(re.search(r"\d+", name)[0]) for name in NUMBERS if name not in ("pred", "f16x2", "bf16x2", "bf16")}
BITS |= {"bf16": 16, "f16x2": 32, "bf16x2": 32}
COMPARISONS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}
SPACES = ("param", "global", "shared", "local", "const")


class Unknown(Exception):
    """Something that is not translated."""


def floating(kind):
    return kind in ("f32", "f64", "f16", "bf16")


def one_of(parts, *names):
    """The one of the names that is there, or nothing."""
    return next((one for one in parts if one in names), None)


def nearest(parts):
    """Refuses other ways to round than to the nearest."""
    if one_of(parts, "rz", "rm", "rp", "cc"):
        raise Unknown("rounding")


def arithmetic(sign):
    """An instruction that adds, subtracts or multiplies."""
    def instruction(self, parts, given):
        nearest(parts)
        kind = parts[-1]
        if kind.endswith("x2"):
            self.pairs(parts, given, lambda a, b: f"((f32){a} {sign} (f32){b})")
        elif floating(kind):
            self.compute(parts, given, lambda a, b: f"({NUMBERS[kind]})({a} {sign} {b})")
        else:
            whole = f"u{BITS[kind]}"
            self.compute(parts, given, lambda a, b: f"({whole})(({whole}){a} {sign} ({whole}){b})")
    return instruction


def unary(function):
    """An instruction that is a function of one number."""
    def instruction(self, parts, given):
        nearest(parts)
        self.compute(parts, given, lambda a: f"{function}({a})")
    return instruction


def logic(sign):
    """An instruction on each bit of two numbers, or on two predicates."""
    def instruction(self, parts, given):
        if parts[-1] == "pred":
            self.write(given[0], "pred", f"{self.read(given[1], 'pred')} {sign} {self.read(given[2], 'pred')}")
        else:
            self.compute(parts, given, lambda a, b: f"({a} {sign} {b})")
    return instruction


def extreme(function):
    """The lesser or the greater of two numbers."""
    def instruction(self, parts, given):
        self.compute(parts, given, lambda a, b: f"{function}<{str('NaN' in parts).lower()}>({a}, {b})")
    return instruction


class Instructions:
    """The instructions of a kernel."""

    op_add, op_sub, multiplied = arithmetic("+"), arithmetic("-"), arithmetic("*")
    op_and, op_or, op_xor = logic("&"), logic("|"), logic("^")
    op_min, op_max = extreme("least"), extreme("most")
    op_sqrt, op_rsqrt, op_rcp = unary("std::sqrt"), unary("1 / std::sqrt"), unary("1 / ")
    op_ex2, op_lg2 = unary("std::exp2"), unary("std::log2")
    op_sin, op_cos, op_tanh = unary("std::sin"), unary("std::cos"), unary("std::tanh")
    op_abs = unary("magnitude")

    def compute(self, parts, given, expression, kinds=None):
        """Sets the first operand to an expression of the others, with `.ftz` and `.sat` about it."""
        kind = parts[-1]
        numbers = [self.read(one, kinds[place] if kinds else kind) for place, one in enumerate(given[1:])]
        flush = "ftz" in parts and kind in ("f32", "f16", "bf16")
        if flush:
            numbers = [f"flushed({one})" for one in numbers]
        result = expression(*numbers)
        if flush:
            result = f"flushed({result})"
        if "sat" in parts and floating(kind):
            result = f"saturated({result})"
        self.write(given[0], kind, result)

    def pairs(self, parts, given, expression):
        """Does with each half of 32 bits what the expression says."""
        half = NUMBERS[parts[-1][:-2]]
        if one_of(parts, "ftz", "sat", "relu"):
            raise Unknown("pairs")
        halves = []
        for shift in (0, 16):
            numbers = [f"from_bits<{half}>((u16)({self.read(one, 'u32')} >> {shift}))" for one in given[1:]]
            halves.append(f"(u32)to_bits<u16>(({half})({expression(*numbers)})) << {shift}")
        self.write(given[0], "b32", " | ".join(halves))

    def op_mul(self, parts, given):
        if "wide" in parts:
            self.wide(parts, given)
        elif "hi" in parts:
            self.compute(parts, given, lambda a, b: f"high({a}, {b})")
        else:
            self.multiplied(parts, given)

    def wide(self, parts, given):
        kind = parts[-1]
        double = kind[0] + str(2 * BITS[kind])
        a, b = self.read(given[1], kind), self.read(given[2], kind)
        more = f" + (u{2 * BITS[kind]}){self.read(given[3], double)}" if len(given) > 3 else ""
        unsigned = f"u{2 * BITS[kind]}"
        self.write(given[0], double, f"({unsigned})(({double}){a} * ({double}){b}){more}")

    def op_mad(self, parts, given):
        kind = parts[-1]
        if "wide" in parts:
            self.wide(parts, given)
        elif "lo" in parts:
            whole = f"u{BITS[kind]}"
            self.compute(parts, given, lambda a, b, c: f"({whole})(({whole}){a} * ({whole}){b} + ({whole}){c})")
        elif "hi" in parts:
            self.compute(parts, given, lambda a, b, c: f"high({a}, {b}) + {c}")
        else:
            raise Unknown("mad")

    def op_fma(self, parts, given):
        if parts[-1].endswith("x2"):
            # A product of two of 11 bits and a third one are exact in 64 bits, or nearly so.
            self.pairs(parts, given, lambda a, b, c: f"((f64){a} * (f64){b} + (f64){c})")
        elif towards := one_of(parts, "rm", "rp", "rz"):
            # Only for the range reduction of expf, which adds a whole number to a large one.
            way = {"rm": "FE_DOWNWARD", "rp": "FE_UPWARD", "rz": "FE_TOWARDZERO"}[towards]
            self.compute(parts, given, lambda a, b, c: f"fused_towards({a}, {b}, {c}, {way})")
        else:
            self.compute(parts, given, lambda a, b, c: f"fused({a}, {b}, {c})")

    def op_div(self, parts, given):
        if floating(parts[-1]):
            nearest(parts)
            self.compute(parts, given, lambda a, b: f"({a} / {b})")
        else:
            self.compute(parts, given, lambda a, b: f"divided(t, {a}, {b})")

    def op_rem(self, parts, given):
        self.compute(parts, given, lambda a, b: f"remainder_of(t, {a}, {b})")

    def op_neg(self, parts, given):
        kind = parts[-1]
        self.compute(parts, given, lambda a: f"(-{a})" if floating(kind) else f"(0 - (u{BITS[kind]}){a})")

    def op_copysign(self, parts, given):
        self.compute(parts, given, lambda a, b: f"std::copysign({b}, {a})")

    def op_not(self, parts, given):
        if parts[-1] == "pred":
            self.write(given[0], "pred", f"!{self.read(given[1], 'pred')}")
        else:
            self.compute(parts, given, lambda a: f"(~{a})")

    def op_shl(self, parts, given):
        self.compute(parts, given, lambda a, b: f"({b} >= {BITS[parts[-1]]} ? 0 : {a} << {b})", [parts[-1], "u32"])

    def op_shr(self, parts, given):
        width, signed = BITS[parts[-1]], parts[-1][0] == "s"
        self.compute(parts, given, lambda a, b: f"({b} >= {width} ? {f'{a} >> {width - 1}' if signed else 0} : {a} >> {b})",
                     [parts[-1], "u32"])

    def op_popc(self, parts, given):
        self.write(given[0], "u32", f"std::popcount({self.read(given[1], 'u' + parts[-1][1:])})")

    def op_clz(self, parts, given):
        self.write(given[0], "u32", f"std::countl_zero({self.read(given[1], 'u' + parts[-1][1:])})")

    def op_bfe(self, parts, given):
        self.compute(parts, given, lambda a, b, c: f"extracted({a}, {b}, {c})", [parts[-1], "u32", "u32"])

    def op_bfi(self, parts, given):
        self.compute(parts, given, lambda a, b, c, d: f"inserted({a}, {b}, {c}, {d})", [parts[-1], parts[-1], "u32", "u32"])

    def op_prmt(self, parts, given):
        if parts != ["b32"]:
            raise Unknown("prmt")
        self.compute(parts, given, lambda a, b, c: f"permuted({a}, {b}, {c})")

    def op_shf(self, parts, given):
        self.compute(parts, given, lambda a, b, c: f"funnel<{str('l' in parts).lower()}, "
                     f"{str('wrap' in parts).lower()}>({a}, {b}, {c})")

    def op_selp(self, parts, given):
        kind = "b" + str(BITS[parts[-1]])
        a, b = self.read(given[1], kind), self.read(given[2], kind)
        self.write(given[0], kind, f"{self.read(given[3], 'pred')} ? {a} : {b}")

    def op_setp(self, parts, given):
        kind, comparison = parts[-1], parts[0]
        a, b = self.read(given[1], kind), self.read(given[2], kind)
        if "ftz" in parts:
            a, b = f"flushed({a})", f"flushed({b})"
        if comparison == "nan":
            result = f"(std::isnan({a}) || std::isnan({b}))"
        elif comparison == "num":
            result = f"!(std::isnan({a}) || std::isnan({b}))"
        elif comparison.endswith("u") and floating(kind):
            result = f"(std::isnan({a}) || std::isnan({b}) || {a} {COMPARISONS[comparison[:-1]]} {b})"
        elif comparison == "ne" and floating(kind):
            result = f"(!std::isnan({a}) && !std::isnan({b}) && {a} != {b})"
        else:
            result = f"({a} {COMPARISONS[comparison]} {b})"
        if joined := one_of(parts[1:-1], "and", "or", "xor"):
            sign = {"and": "&", "or": "|", "xor": "^"}[joined]
            result = f"({result} {sign} {self.read(given[3], 'pred')})"
        if "|" in given[0]:
            raise Unknown("two predicates")
        self.write(given[0], "pred", result)

    def op_mov(self, parts, given):
        kind = parts[-1]
        if isinstance(given[0], list):
            width = BITS[kind] // len(given[0])
            self.emit(f"{{ const u{BITS[kind]} whole = {self.read(given[1], 'b' + str(BITS[kind]))};")
            for place, one in enumerate(given[0]):
                self.write(one, f"u{width}", f"(u{width})(whole >> {place * width})")
            self.emit("}")
        elif isinstance(given[1], list):
            width = BITS[kind] // len(given[1])
            pieces = [f"(u{BITS[kind]}){self.read(one, f'u{width}')} << {place * width}"
                      for place, one in enumerate(given[1])]
            self.write(given[0], "b" + str(BITS[kind]), " | ".join(pieces))
        elif kind == "pred":
            self.write(given[0], "pred", self.read(given[1], "pred"))
        else:
            bits = "b" + str(BITS[kind])
            self.write(given[0], bits, self.read(given[1], bits))

    def op_cvt(self, parts, given):
        to, source = parts[-2], parts[-1]
        ways = parts[:-2]
        if to in ("bf16x2", "f16x2"):
            half = NUMBERS[to[:-2]]
            high, low = self.read(given[1], source), self.read(given[2], source)
            if ways != ["rn"]:
                raise Unknown("cvt")
            self.write(given[0], "b32", f"(u32)to_bits<u16>(({half}){high}) << 16 | to_bits<u16>(({half}){low})")
            return
        number = self.read(given[1], source)
        if "ftz" in ways and source == "f32":
            number = f"flushed({number})"
        if rounding := one_of(ways, "rni", "rzi", "rmi", "rpi"):
            way = {"rni": "std::nearbyint", "rzi": "std::trunc", "rmi": "std::floor", "rpi": "std::ceil"}[rounding]
            number = f"{way}((f64){number})"
        if one_of(ways, "rz", "rm", "rp", "relu"):
            raise Unknown("cvt")
        if floating(source) and not floating(to):
            number = f"clamped<{NUMBERS[to]}>({number})"
        elif "sat" in ways and not floating(to):
            raise Unknown("cvt")
        result = f"({NUMBERS[to]})({number})"
        if "sat" in ways and floating(to):
            result = f"saturated({result})"
        if "ftz" in ways and to == "f32":
            result = f"flushed({result})"
        self.write(given[0], to, result)

    def op_cvta(self, parts, given):
        space = one_of(parts, *SPACES)
        number = self.read(given[1], "u64")
        base = {"shared": "(u64)t.shared", "param": "(u64)t.parameters"}.get(space, "0")
        self.write(given[0], "u64", f"{number} - {base}" if "to" in parts else f"{number} + {base}")

    def memory(self, parts):
        """Space, type and number of a load or a store."""
        count = one_of(parts, "v2", "v4", "v8") or "v1"
        return one_of(parts, *SPACES) or "generic", parts[-1], int(count[1:])

    def op_ld(self, parts, given):
        space, kind, count = self.memory(parts)
        targets = given[0] if isinstance(given[0], list) else [given[0]]
        size = BITS[kind] // 8
        self.emit(f"{{ const u8 *at = place_in<Space::{space}>(t, {self.address(given[1], space)}, {size * count}, false);")
        for place, one in enumerate(targets):
            self.write(one, kind, f"loaded<{NUMBERS[kind]}>(at + {place * size})")
        self.emit("}")

    def op_st(self, parts, given):
        space, kind, count = self.memory(parts)
        if space == "param":
            # An argument of a call, of which there is one kind.
            return
        sources = given[1] if isinstance(given[1], list) else [given[1]]
        size = BITS[kind] // 8
        self.emit(f"{{ u8 *at = place_in<Space::{space}>(t, {self.address(given[0], space)}, {size * count}, true);")
        for place, one in enumerate(sources):
            self.emit(f"stored<u{BITS[kind]}>(at + {place * size}, {self.read(one, f'u{BITS[kind]}')});")
        self.emit("}")

    def atomic(self, parts, target, address, more):
        space, kind, _ = self.memory(parts)
        operation = one_of(parts, "add", "inc", "min", "max", "exch", "and", "or")
        if operation is None or "x2" in kind:
            raise Unknown("atomic")
        number = self.read(more[0], kind)
        kind_name = NUMBERS[kind]
        made = {"add": f"({kind_name})(before + {number})", "inc": f"before >= {number} ? 0 : before + 1",
                "min": f"least<false>(before, {number})",
                "max": f"most<false>(before, {number})", "exch": number, "and": f"before & {number}",
                "or": f"before | {number}"}[operation]
        self.emit(f"{{ u8 *at = place_in<Space::{space}>(t, {self.address(address, space)}, {BITS[kind] // 8}, true);")
        self.emit(f"const {kind_name} before = loaded<{kind_name}>(at); stored<{kind_name}>(at, {made});")
        if target:
            self.write(target, kind, "before")
        self.emit("}")

    def op_atom(self, parts, given):
        self.atomic(parts, given[0], given[1], given[2:])

    def op_red(self, parts, given):
        self.atomic(parts, None, given[0], given[1:])

    def op_bar(self, parts, given):
        self.synchronises = True
        if "warp" in parts:
            self.emit(f"warp_operation(t, Warp{{{self.read(given[0], 'u32')}, 0, 0, 0, WarpKind::wait}});")
        elif "red" in parts:
            value = self.read(given[-1], "pred")
            kind = one_of(parts, "and", "or", "popc")
            votes = {"and": "all", "or": "any", "popc": "popc"}[kind]
            counted = f"barrier(t, {value}).{votes}"
            self.write(given[0], "pred" if kind != "popc" else "u32", counted)
        elif given[1:] or given[0] != "0":
            raise Unknown("a barrier of some threads")
        else:
            self.emit("barrier(t, false);")

    op_barrier = op_bar

    def op_shfl(self, parts, given):
        self.synchronises = True
        way = one_of(parts, "up", "down", "bfly", "idx")
        target, _, inside = given[0].partition("|")
        a, b, c, mask = (self.read(one, "u32") for one in given[1:5])
        self.emit(f"{{ const Warp got = warp_operation(t, Warp{{{mask}, {a}, {b}, {c}, WarpKind::{way}}});")
        self.write(target, "b32", "got.value")
        if inside:
            self.write(inside, "pred", "got.inside")
        self.emit("}")

    def op_vote(self, parts, given):
        self.synchronises = True
        way = one_of(parts, "any", "all", "ballot")
        value, mask = self.read(given[1], "pred"), self.read(given[2], "u32")
        self.emit(f"{{ const Warp got = warp_operation(t, Warp{{{mask}, {value}, 0, 0, WarpKind::{way}}});")
        self.write(given[0], "b32" if way == "ballot" else "pred", "got.value")
        self.emit("}")

    def op_mma(self, parts, given):
        """A product of matrices whose numbers are spread over the lanes of a warp."""
        if parts != ["sync", "aligned", "m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"]:
            raise Unknown("mma")
        self.synchronises = True
        left, right = (", ".join(self.read(one, "u32") for one in given[place]) for place in (1, 2))
        sums = ", ".join(self.read(one, "f32") for one in given[3])
        self.emit(f"{{ Matrices matrices{{{{{left}}}, {{{right}}}, {{{sums}}}}};")
        self.emit("warp_operation(t, Warp{0xffffffffu, 0, 0, 0, WarpKind::mma, false, &matrices});")
        for place, one in enumerate(given[0]):
            self.write(one, "f32", f"matrices.sums[{place}]")
        self.emit("}")

    def op_cp(self, parts, given):
        """Copies to shared memory, which are there only when they have been waited for."""
        if parts == ["async", "commit_group"]:
            self.emit("end_copies(t);")
        elif parts == ["async", "wait_group"]:
            self.emit(f"wait_for_copies(t, {self.read(given[0], 'u32')});")
        elif parts == ["async", "cg", "shared", "global"] and given[2:] == ["16"]:
            self.emit(f"copy_later(t, {self.address(given[0], 'shared')}, {self.address(given[1], 'global')});")
        else:
            raise Unknown("cp")

    def op_membar(self, _parts, _given):
        """Threads of a block run one after another."""

    op_fence = op_membar

    def op_call(self, _parts, given):
        if given[0] != "__assertfail":
            raise Unknown("a call")
        self.emit('fault(t, "an assertion that does not hold", 0, 0);')

    def op_bra(self, _parts, given):
        self.emit(f"goto {given[0].replace('$', '_')};")

    def op_ret(self, _parts, _given):
        self.emit("return;")

    op_exit = op_ret

    def op_trap(self, _parts, _given):
        self.emit('fault(t, "a trap", 0, 0);')
