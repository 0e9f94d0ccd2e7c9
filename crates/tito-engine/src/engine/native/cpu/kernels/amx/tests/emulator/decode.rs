//! AMX instructions from their bytes.
//!
//! Knows the encodings that the manual gives, by the whole of the VEX prefix; whatever else it sees is not AMX.

/// The sixteen general registers, in the order of their numbers, and where the next instruction starts.
pub(super) struct Registers {
    pub(super) general: [u64; 16],
    pub(super) next: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    LoadConfig(Address),
    Release,
    Zero {
        tile: u8,
    },
    /// With or without the hint that the data is not used again.
    Load {
        tile: u8,
        from: Address,
    },
    Store {
        tile: u8,
        to: Address,
    },
    /// `c += a * b`
    DotBf16 {
        c: u8,
        a: u8,
        b: u8,
    },
}

/// `[base + index * scale + displacement]`; a tile's rows lie `index * scale` bytes apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    base: Base,
    index: Option<u8>,
    shift: u8,
    displacement: i32,
}

#[derive(Debug, PartialEq, Eq)]
enum Base {
    Nothing,
    NextInstruction,
    Register(u8),
}

impl Address {
    fn base(&self, registers: &Registers) -> u64 {
        let base = match self.base {
            Base::Nothing => 0,
            Base::NextInstruction => registers.next,
            Base::Register(number) => registers.general[usize::from(number)],
        };
        base.wrapping_add_signed(self.displacement.into())
    }

    /// Where a tile's row lies.
    pub(super) fn of_row(&self, row: u8, registers: &Registers) -> u64 {
        self.base(registers).wrapping_add(self.offset(registers).wrapping_mul(row.into()))
    }

    /// Where something that is no tile lies.
    pub(super) fn plain(&self, registers: &Registers) -> u64 {
        self.base(registers).wrapping_add(self.offset(registers))
    }

    fn offset(&self, registers: &Registers) -> u64 {
        self.index.map_or(0, |index| registers.general[usize::from(index)] << self.shift)
    }
}

/// What VEX adds to the opcode.
#[derive(Clone, Copy)]
struct Vex {
    /// The high bits of `reg`, `index` and `base`: 0 or 8.
    reg: u8,
    index: u8,
    base: u8,
    vvvv: u8,
    /// 0: none, 1: 66, 2: F3, 3: F2.
    prefix: u8,
}

/// The instruction at the start of `code` and its length, if it is one of AMX.
pub(super) fn decode(code: impl Iterator<Item = u8>) -> Option<(Instruction, u64)> {
    let mut code = Code { bytes: code, taken: 0 };
    let instruction = code.instruction()?;
    Some((instruction, code.taken))
}

struct Code<I> {
    bytes: I,
    taken: u64,
}

impl<I: Iterator<Item = u8>> Code<I> {
    fn byte(&mut self) -> Option<u8> {
        self.taken += 1;
        self.bytes.next()
    }

    fn instruction(&mut self) -> Option<Instruction> {
        let vex = self.vex()?;
        let opcode = self.byte()?;
        let modrm = self.byte()?;
        let (mode, reg, rm) = (modrm >> 6, modrm >> 3 & 7 | vex.reg, modrm & 7);
        let in_memory = mode != 3;
        // Only TDPBF16PS has a third operand; the others must leave vvvv empty. There are eight tiles.
        if reg > 7 || opcode != 0x5c && vex.vvvv != 0 {
            return None;
        }
        Some(match (opcode, vex.prefix, in_memory) {
            (0x49, 0, true) if reg == 0 => Instruction::LoadConfig(self.address(vex, mode, rm)?),
            (0x49, 0, false) if modrm == 0xc0 => Instruction::Release,
            (0x49, 3, false) if rm == 0 => Instruction::Zero { tile: reg },
            // The address of a tile must have a SIB byte.
            (0x4b, 1 | 3, true) if rm == 4 => Instruction::Load { tile: reg, from: self.address(vex, mode, rm)? },
            (0x4b, 2, true) if rm == 4 => Instruction::Store { tile: reg, to: self.address(vex, mode, rm)? },
            (0x5c, 2, false) if vex.base == 0 && vex.vvvv < 8 => Instruction::DotBf16 { c: reg, a: rm, b: vex.vvvv },
            _ => return None,
        })
    }

    /// The three-byte prefix with map 0F38, W0 and L0. The high bits of registers and vvvv are stored inverted.
    fn vex(&mut self) -> Option<Vex> {
        if self.byte()? != 0xc4 {
            return None;
        }
        let (first, second) = (self.byte()?, self.byte()?);
        if first & 0x1f != 2 || second & 0x84 != 0 {
            return None;
        }
        let high = |bit: u8| if first >> bit & 1 == 0 { 8 } else { 0 };
        Some(Vex { reg: high(7), index: high(6), base: high(5), vvvv: !second >> 3 & 15, prefix: second & 3 })
    }

    fn address(&mut self, vex: Vex, mode: u8, rm: u8) -> Option<Address> {
        let (mut index, mut shift, mut number) = (None, 0, rm);
        if rm == 4 {
            let sib = self.byte()?;
            let index_number = sib >> 3 & 7 | vex.index;
            index = (index_number != 4).then_some(index_number);
            (shift, number) = (sib >> 6, sib & 7);
        }
        let (base, displacement) = match mode {
            0 if number == 5 => (if rm == 4 { Base::Nothing } else { Base::NextInstruction }, self.four_bytes()?),
            0 => (Base::Register(number | vex.base), 0),
            1 => (Base::Register(number | vex.base), self.byte()?.cast_signed().into()),
            _ => (Base::Register(number | vex.base), self.four_bytes()?),
        };
        Some(Address { base, index, shift, displacement })
    }

    fn four_bytes(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes([self.byte()?, self.byte()?, self.byte()?, self.byte()?]))
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Base, Instruction, Registers, decode};

    fn address(base: Base, index: Option<u8>, shift: u8, displacement: i32) -> Address {
        Address { base, index, shift, displacement }
    }

    /// The bytes are those of an assembler.
    #[test]
    fn every_instruction_and_form_of_address_is_decoded_with_its_length() {
        use Base::{NextInstruction, Nothing, Register};
        let known: [(&[u8], Instruction); 13] = [
            // ldtilecfg [rax]
            (&[0xc4, 0xe2, 0x78, 0x49, 0x00], Instruction::LoadConfig(address(Register(0), None, 0, 0))),
            // ldtilecfg [rip + 0x1234]
            (
                &[0xc4, 0xe2, 0x78, 0x49, 0x05, 0x34, 0x12, 0x00, 0x00],
                Instruction::LoadConfig(address(NextInstruction, None, 0, 0x1234)),
            ),
            // ldtilecfg [r13 + r9*2 - 64]
            (
                &[0xc4, 0x82, 0x78, 0x49, 0x44, 0x4d, 0xc0],
                Instruction::LoadConfig(address(Register(13), Some(9), 1, -64)),
            ),
            // tilerelease
            (&[0xc4, 0xe2, 0x78, 0x49, 0xc0], Instruction::Release),
            // tilezero tmm5
            (&[0xc4, 0xe2, 0x7b, 0x49, 0xe8], Instruction::Zero { tile: 5 }),
            // tileloadd tmm6, [r8 + rax*1]
            (
                &[0xc4, 0xc2, 0x7b, 0x4b, 0x34, 0x00],
                Instruction::Load { tile: 6, from: address(Register(8), Some(0), 0, 0) },
            ),
            // tileloadd tmm1, [r14 + rcx*1 + 64]
            (
                &[0xc4, 0xc2, 0x7b, 0x4b, 0x4c, 0x0e, 0x40],
                Instruction::Load { tile: 1, from: address(Register(14), Some(1), 0, 64) },
            ),
            // tileloadd tmm3, [r13 + r12*4]
            (
                &[0xc4, 0x82, 0x7b, 0x4b, 0x5c, 0xa5, 0x00],
                Instruction::Load { tile: 3, from: address(Register(13), Some(12), 2, 0) },
            ),
            // tileloadd tmm0, [rsp]
            (
                &[0xc4, 0xe2, 0x7b, 0x4b, 0x04, 0x24],
                Instruction::Load { tile: 0, from: address(Register(4), None, 0, 0) },
            ),
            // tileloaddt1 tmm7, [rbp + r15*8 - 4096]
            (
                &[0xc4, 0xa2, 0x79, 0x4b, 0xbc, 0xfd, 0x00, 0xf0, 0xff, 0xff],
                Instruction::Load { tile: 7, from: address(Register(5), Some(15), 3, -4096) },
            ),
            // tilestored [rdx*2 + 256], tmm2
            (
                &[0xc4, 0xe2, 0x7a, 0x4b, 0x14, 0x55, 0x00, 0x01, 0x00, 0x00],
                Instruction::Store { tile: 2, to: address(Nothing, Some(2), 1, 256) },
            ),
            // tilestored [r12 + rdi*1 + 128], tmm4
            (
                &[0xc4, 0xc2, 0x7a, 0x4b, 0xa4, 0x3c, 0x80, 0x00, 0x00, 0x00],
                Instruction::Store { tile: 4, to: address(Register(12), Some(7), 0, 128) },
            ),
            // tdpbf16ps tmm3, tmm5, tmm7
            (&[0xc4, 0xe2, 0x42, 0x5c, 0xdd], Instruction::DotBf16 { c: 3, a: 5, b: 7 }),
        ];
        for (code, instruction) in known {
            let length = code.len() as u64;
            let padded = code.iter().copied().chain([0xcc; 4]);
            assert_eq!(decode(padded), Some((instruction, length)), "{code:02x?}");
        }
    }

    #[test]
    fn addresses_are_taken_from_the_registers_that_the_instruction_names() {
        let mut registers = Registers { general: [0; 16], next: 0x5000 };
        (registers.general[13], registers.general[9]) = (0x1000, 0x30);
        let strided = address(Base::Register(13), Some(9), 2, -8);
        assert_eq!(strided.of_row(0, &registers), 0xff8);
        assert_eq!(strided.of_row(3, &registers), 0xff8 + 3 * 0xc0);
        assert_eq!(strided.plain(&registers), 0xff8 + 0xc0);
        assert_eq!(address(Base::NextInstruction, None, 0, 16).plain(&registers), 0x5010);
        assert_eq!(address(Base::Nothing, Some(9), 0, 0).of_row(1, &registers), 0x30);
    }

    #[test]
    fn what_is_not_amx_is_left_alone() {
        let foreign: [&[u8]; 10] = [
            // ud2
            &[0x0f, 0x0b],
            // vaddps ymm0, ymm1, ymm2
            &[0xc5, 0xf4, 0x58, 0xc2],
            // vpermps ymm0, ymm1, ymm2, which is of the same map
            &[0xc4, 0xe2, 0x75, 0x16, 0xc2],
            // tdpbssd tmm3, tmm5, tmm7, another product
            &[0xc4, 0xe2, 0x43, 0x5e, 0xdd],
            // tdpbf16ps with W1, with L1, with a ninth tile
            &[0xc4, 0xe2, 0xc2, 0x5c, 0xdd],
            &[0xc4, 0xe2, 0x46, 0x5c, 0xdd],
            &[0xc4, 0x62, 0x42, 0x5c, 0xdd],
            // tileloadd tmm6, [rax] without a SIB byte, and with a vvvv that is in use
            &[0xc4, 0xe2, 0x7b, 0x4b, 0x30],
            &[0xc4, 0xc2, 0x73, 0x4b, 0x34, 0x00],
            // Cut off.
            &[0xc4, 0xe2, 0x42],
        ];
        for code in foreign {
            assert_eq!(decode(code.iter().copied()), None, "{code:02x?}");
        }
    }
}
