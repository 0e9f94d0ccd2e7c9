"""Translates one kernel of PTX to C++, one thread of it at a time: what tests/emulated-gpu compiles and runs.

usage: translate.py KERNEL < module.ptx > kernel.cpp

Knows what nvcc 13 makes of the kernels that tito launches, and fails on whatever else it meets. Registers are kept as
bits; device.h reads them as the numbers that an instruction takes.
"""

import re
import sys

from instructions import BITS, NUMBERS, Instructions, Unknown, floating

# Before the names of registers, some of which are those of types.
REGISTER = "r_"
SPECIAL = {f"%{name}.{axis}": f"t.{name}[{number}]" for name in ("tid", "ntid", "ctaid", "nctaid")
           for number, axis in enumerate("xyz")} | {"%laneid": "t.lane", "%WARP_SZ": "32u", "WARP_SZ": "32u"}


def statements(body):
    """The statements of a body, and `{` and `}` of scopes; braces of vectors stay in theirs."""
    text = ""
    for char in re.sub(r"//[^\n]*|/\*.*?\*/", "", body, flags=re.S):
        if char == ";" or (char == "{" and not text.strip()) or (char == "}" and "{" not in text):
            if text.strip():
                yield " ".join(text.split())
            if char != ";":
                yield char
            text = ""
        elif char == ":" and re.fullmatch(r"\s*[\w$]+", text):
            yield text.strip() + ":"
            text = ""
        else:
            text += char
    if text.strip():
        raise Unknown(f"something behind the last statement: {text}")


def operands(text):
    """The operands, vectors as lists."""
    parts = re.findall(r"\{[^}]*\}|\[[^]]*\]|[^,\s][^,]*", text)
    return [[one.strip() for one in part[1:-1].split(",")] if part[0] == "{" else part.strip() for part in parts]


class Kernel(Instructions):
    """One kernel on its way to C++."""

    def __init__(self, module, name):
        self.name = name
        self.lines, self.registers, self.symbols = [], {}, {}
        self.shared, self.synchronises, self.parameters = 0, False, []
        self.globals = []
        start = re.search(rf"\.entry\s+{re.escape(name)}\s*\(", module)
        if start is None:
            raise Unknown(f"no kernel {name}")
        header_end = module.index(")", start.end())
        body_start = module.index("\n{", header_end)
        self.body = module[body_start + 2:module.index("\n}", body_start)] + "\n"
        for line in re.findall(r"^(?:\.\w+ )*\.(?:shared|global|const) [^;(]*;", module, flags=re.M):
            symbol = re.search(r"([\w$]+)\s*(?:\[\d*\])?\s*(?:=.*)?;$", line, flags=re.S)
            if symbol and re.search(rf"(?<![\w$]){re.escape(symbol[1])}(?![\w$])", self.body):
                self.variable(line.rstrip(";"))
        offset = 0
        for parameter in module[start.end():header_end].split(","):
            if not parameter.strip():
                continue
            match = re.search(r"\.(?:align\s+(\d+)\s+)?\.?(\w+)\s+([\w$]+)(?:\[(\d+)\])?\s*$", parameter)
            align, kind, symbol, count = match.groups()
            size = BITS[kind] // 8 * int(count or 1)
            offset = -(-offset // int(align or size)) * int(align or size)
            self.symbols[symbol] = ("param", str(offset))
            self.parameters.append((offset, size))
            offset += size

    def variable(self, statement):
        """A variable of the module or of the kernel."""
        match = re.fullmatch(
            r"((?:\.\w+ )*)\.(shared|global|const|local) (?:\.align (\d+) )?\.(\w+) ([\w$]+)(\[(\d*)\])?(?: = (.*))?",
            " ".join(statement.split()))
        if match is None:
            raise Unknown(f"variable: {statement}")
        _, space, align, kind, symbol, brackets, count, value = match.groups()
        align = int(align or BITS[kind] // 8)
        size = BITS[kind] // 8 * int(count or 1) if brackets is None or count else 0
        if space == "shared":
            self.shared = -(-self.shared // align) * align
            self.symbols[symbol] = ("shared", str(self.shared) if size else "dynamic")
            self.shared += size
        elif space == "local":
            self.emit(f"alignas({align}) unsigned char {symbol}[{size}];")
            self.symbols[symbol] = ("local", f"(u64){symbol}")
        else:
            number = len(self.globals)
            items = re.sub(r"[{}]", "", value or "0")
            self.globals.append(f"alignas({align}) static {NUMBERS[kind]} global{number}[{count or 1}] = {{{items}}};")
            self.symbols[symbol] = (space, f"(u64)global{number}")

    def emit(self, line):
        self.lines.append(line)

    # Operands.

    def register(self, operand):
        """The variable that a register is."""
        name = REGISTER + operand[1:].replace("$", "_")
        if operand[0] != "%" or name not in self.registers:
            raise Unknown(f"register {operand}")
        return name

    def read(self, operand, kind):
        """An operand as a number."""
        if operand in SPECIAL:
            return f"({NUMBERS[kind]}){SPECIAL[operand]}"
        if kind == "pred":
            if re.fullmatch(r"-?\d+", operand):
                return str(int(operand) != 0).lower()
            return "!" + self.register(operand[1:]) if operand[0] == "!" else self.register(operand)
        if operand[0] == "%":
            name = self.register(operand)
            if self.registers[name] == "pred":
                raise Unknown(f"a predicate as {kind}")
            return f"from_bits<{NUMBERS[kind]}>({name})"
        if operand in self.symbols:
            space, place = self.symbols[operand]
            return "t.dynamic_shared" if place == "dynamic" else f"({NUMBERS[kind]}){place}"
        if match := re.fullmatch(r"0[fF]([0-9A-Fa-f]{8})", operand):
            return f"from_bits<{NUMBERS[kind]}>((u32)0x{match[1]}u)"
        if match := re.fullmatch(r"0[dD]([0-9A-Fa-f]{16})", operand):
            return f"from_bits<{NUMBERS[kind]}>((u64)0x{match[1]}ull)"
        if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)U?", operand):
            number = int(operand.rstrip("U"), 0)
            if floating(kind):
                return f"from_bits<{NUMBERS[kind]}>((u{BITS[kind]}){number & (1 << BITS[kind]) - 1}ull)"
            return f"({NUMBERS[kind]}){number & 0xFFFFFFFFFFFFFFFF}ull"
        raise Unknown(f"operand {operand}")

    def write(self, operand, kind, number):
        """Sets a register to a number of a type; `_` drops it."""
        if operand == "_":
            self.emit(f"(void)({number});")
            return
        name = self.register(operand)
        if self.registers[name] == "pred":
            self.emit(f"{name} = ({number});")
        else:
            self.emit(f"{name} = to_bits<{NUMBERS[self.registers[name]]}>(({NUMBERS[kind]})({number}));")

    def address(self, operand, space):
        """An address: of memory, of shared memory from its start, of parameters from theirs."""
        match = re.fullmatch(r"\[\s*([^+\]]+?)\s*(?:\+\s*(-?\w+))?\s*\]", operand)
        if match is None:
            raise Unknown(f"address {operand}")
        base, more = match[1], int(match[2] or "0", 0)
        wide = "u32" if space == "shared" and base in self.symbols else "u64"
        if base[0] == "%":
            base = self.read(base, "b" + NUMBERS[self.registers[self.register(base)]][1:])
        else:
            base = self.read(base, wide)
        return f"((u64)({base}) + (u64){more}ll)"

    # Instructions.

    def instruction(self, statement):
        """One statement that is no directive."""
        match = re.fullmatch(r"(?:@(!?)%(\w+) )?([\w.:]+)\s*(.*)", statement)
        if match is None:
            raise Unknown(statement)
        negated, guard, opcode, rest = match.groups()
        parts, given = opcode.split("."), operands(rest)
        handler = getattr(self, f"op_{parts[0]}", None)
        if handler is None:
            raise Unknown(statement)
        if guard:
            self.emit(f"if ({negated}{REGISTER}{guard}) {{")
        try:
            handler(parts[1:], given)
        except (Unknown, KeyError, ValueError, IndexError) as error:
            raise Unknown(f"{statement}: {error!r}") from error
        if guard:
            self.emit("}")

    # The whole.

    def directive(self, statement):
        """Registers and variables; the rest says nothing about results."""
        match = re.fullmatch(r"\.reg \.(\w+) (.*)", statement)
        if match:
            for one in operands(match[2]):
                counted = re.fullmatch(r"%([\w$]+)<(\d+)>", one)
                names = [f"{counted[1]}{number}" for number in range(int(counted[2]))] if counted else [one.lstrip("%")]
                names = [REGISTER + name.replace("$", "_") for name in names]
                kind = match[1] if match[1] == "pred" else f"b{BITS[match[1]]}"
                self.registers |= dict.fromkeys(names, kind)
                self.emit(f"{NUMBERS[kind]} {', '.join(f'{name}{{}}' for name in names)};")
        elif match := re.fullmatch(r"\.param .* ([\w$]+)(\[\d+\])?", statement):
            self.symbols[match[1]] = ("call", "0")
        elif re.match(r"\.(shared|local) ", statement):
            self.variable(statement)
        elif not re.match(r"\.(loc|pragma|maxntid|minnctapersm|file) ?", statement):
            raise Unknown(statement)

    def translate(self):
        """The C++."""
        for statement in statements(self.body):
            if statement in "{}":
                self.emit(statement)
            elif statement.endswith(":"):
                self.emit(f"{statement.replace('$', '_')};")
            elif statement.startswith("."):
                self.directive(statement)
            else:
                self.instruction(statement)
        sizes = ", ".join(f"{{{offset}, {size}}}" for offset, size in self.parameters)
        return "\n".join([
            f"// {self.name}",
            '#include "device.h"',
            *self.globals,
            f"static const Parameter parameters[] = {{{sizes or '{0, 0}'}}};",
            'extern "C" __attribute__((visibility("default"))) const Shape shape = '
            f"{{parameters, {len(self.parameters)}, {-(-self.shared // 16) * 16}, {str(self.synchronises).lower()}}};",
            'extern "C" __attribute__((visibility("default"))) void run(Thread &t) {',
            *self.lines,
            "}",
            "",
        ])


if __name__ == "__main__":
    try:
        print(Kernel(sys.stdin.read(), sys.argv[1]).translate())
    except Unknown as unknown:
        sys.exit(f"{sys.argv[1]}: cannot be translated: {unknown}")
