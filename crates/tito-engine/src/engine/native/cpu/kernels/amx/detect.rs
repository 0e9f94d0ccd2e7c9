//! Whether the processor has AMX for bf16, and whether Linux lets this process use it.

use core::arch::{
    asm,
    x86_64::{__cpuid, __cpuid_count, _xgetbv},
};
use std::sync::OnceLock;

/// CPUID.1:ECX, the system has turned XSAVE on.
const OSXSAVE: u32 = 1 << 27;
/// CPUID.7.0:EDX, AMX-BF16 and AMX-TILE.
const BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
/// CPUID.1D.1: 8 tiles of 64-byte rows (EBX), 16 rows each (ECX).
const TILES_AND_ROW_BYTES: u32 = 8 << 16 | 64;
const TILE_ROWS: u32 = 16;
/// XCR0, the system saves tile configurations and tile data.
const TILE_STATE: u64 = 1 << 17 | 1 << 18;
const SYS_ARCH_PRCTL: usize = 158;
const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
/// The state component whose use a process has to ask for: tile data.
const XFEATURE_XTILEDATA: usize = 18;

/// Whether processor and system let this process use AMX for bf16.
///
/// The system's permission, asked for the first time, is the whole process's, threads that run already included.
pub(super) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| processor_has_tiles() && system_saves_tiles() && system_permits_tiles())
}

/// Whether processor and system have AMX for bf16, but this process may not use it.
pub(super) fn denied() -> bool {
    processor_has_tiles() && system_saves_tiles() && !available()
}

fn processor_has_tiles() -> bool {
    let last_leaf = __cpuid(0).eax;
    if last_leaf < 0x1d || __cpuid_count(7, 0).edx & BF16_AND_TILE != BF16_AND_TILE {
        return false;
    }
    let palette = __cpuid_count(0x1d, 1);
    palette.ebx == TILES_AND_ROW_BYTES && palette.ecx & 0xffff == TILE_ROWS
}

fn system_saves_tiles() -> bool {
    if __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    // SAFETY: OSXSAVE says that XGETBV is there.
    let saved = unsafe { saved_state() };
    saved & TILE_STATE == TILE_STATE
}

#[target_feature(enable = "xsave")]
fn saved_state() -> u64 {
    // SAFETY: XCR0 is there wherever XGETBV is.
    unsafe { _xgetbv(0) }
}

fn system_permits_tiles() -> bool {
    let outcome: isize;
    // SAFETY: a system call that takes numbers only and writes no memory of ours; Linux changes rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inout("rax") SYS_ARCH_PRCTL.cast_signed() => outcome,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    outcome == 0
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::available;

    #[test]
    fn amx_is_available_only_where_linux_lists_it() {
        let listed = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let listed = ["amx_tile", "amx_bf16"].iter().all(|flag| listed.contains(flag));
        assert!(listed || !available());
        assert_eq!(available(), available());
    }
}
