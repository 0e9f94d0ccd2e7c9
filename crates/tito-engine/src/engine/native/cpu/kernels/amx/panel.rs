//! Up to 32 rows by 32 columns, or 16 rows by 64 columns, of C over the whole of K: one block of assembly each.
//!
//! Owns which tile holds what. Tiles are loaded, used and stored within one block; only the tile configuration has to
//! outlast it.

use core::{arch::asm, mem::offset_of, ptr};

/// Bytes of a tile of B: 16 pairs of rows by 16 columns.
pub(super) const B_TILE: usize = 1024;

/// One panel of C and what it is computed from. Strides and distances are in bytes.
#[repr(C)]
pub(super) struct Panel {
    pub(super) a: *const u16,
    pub(super) a_stride: usize,
    /// The tiles of one block lie one after another.
    pub(super) b: *const u16,
    pub(super) b_block: usize,
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
    /// 0 or 1.
    pub(super) accumulate: usize,
    /// Steps over K, of 32 elements each. Low panels: those that fetch B `ahead` of themselves.
    pub(super) steps: usize,
    /// What else low panels fetch.
    pub(super) ahead: Ahead,
    /// What high panels fetch.
    pub(super) soon: Soon,
    /// Of kernels whose steps lie anywhere: how many bytes behind the end of a step's tile that of the next one begins, for each
    /// step. What the last one says is not read from.
    pub(super) jumps: *const isize,
}

/// What a low panel fetches of B while it reads it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead {
    /// How far ahead `steps` fetch; 0 for nothing.
    pub(super) distance: usize,
    /// How many steps follow those, and how far ahead they fetch.
    pub(super) last_steps: usize,
    pub(super) last_distance: usize,
}

/// What high panels fetch of the B that is multiplied after the one at hand, from its start to its end, so that memory is
/// busy while the tiles are.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Soon {
    /// What comes next; panels move it.
    pub(super) from: *const u8,
    pub(super) end: *const u8,
    /// How much a step fetches, in chunks of [`CHUNK`]. At least one.
    pub(super) chunks: usize,
}

impl Soon {
    pub(super) const NOTHING: Self = Self { from: ptr::null(), end: ptr::null(), chunks: 1 };
}

/// What is fetched at once, in bytes: eight lines.
pub(super) const CHUNK: usize = 512;

/// The configuration of the eight tiles, as LDTILECFG reads it.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Makes the tiles fit panels of this many rows, 1 to 32.
///
/// Up to 16 rows are for the `one_by_` kernels, more for the `two_by_` ones.
///
/// # Safety
///
/// AMX must be usable.
pub(super) unsafe fn configure(height: u8) {
    let (upper, lower) = (height.min(16), height.saturating_sub(16));
    let heights = if lower == 0 {
        [upper, upper, upper, upper, upper, 16, 16, 16]
    } else {
        [upper, upper, lower, lower, upper, lower, 16, 16]
    };
    let mut config = TileConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    config.row_bytes[..8].fill(64);
    config.rows[..8].copy_from_slice(&heights);
    // SAFETY: reads the 64 bytes of `config`; that AMX is usable is the caller's promise.
    unsafe {
        asm!(
            "ldtilecfg [{config}]",
            config = in(reg) &raw const config,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, readonly, preserves_flags),
        );
    }
}

/// Gives the tiles back, so that Linux need not save them when it switches threads.
///
/// # Safety
///
/// AMX must be usable.
pub(super) unsafe fn release() {
    // SAFETY: touches tiles only; that AMX is usable is the caller's promise.
    unsafe {
        asm!(
            "tilerelease",
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nomem, nostack, preserves_flags),
        );
    }
}

/// Fetches the tile of B that the step `r13` bytes on reads.
macro_rules! fetch {
    ($block:literal) => {
        fetch!($block; "0" "64" "128" "192" "256" "320" "384" "448" "512" "576" "640" "704" "768" "832" "896" "960")
    };
    ($block:literal; $($line:literal)+) => {
        concat!($("prefetcht1 [", $block, " + r13 + ", $line, "]\n"),+)
    };
}

/// A kernel whose accumulators are the tiles `c`, whose step over K is `step`, and which reads the blocks `b` of B. Before the
/// first step it does what `begin` says, in `each` step what that says, and `end` after the last one.
///
/// | register | holds |
/// | --- | --- |
/// | rdi | the panel |
/// | rsi, rdx, rcx | A from row 0, from row 16, its stride |
/// | r8 to r11, rax | B from block 0 to 3, the stride of its tiles' rows |
/// | r12 | steps left |
/// | r13 to r15 | what is fetched, as `begin` has it |
/// | r14, r15, rcx | outside of the loop: C from row 0, from row 16, its stride |
macro_rules! kernel {
    (
        $name:ident, c: [$($tile:literal at $place:literal),+], b: [$($block:literal),+], step: [$($step:literal),+],
        begin: [$($begin:tt)+], each: [$($each:tt)+], end: [$($end:tt)+],
        fields: [$($field:ident: $($path:ident).+),+]
    ) => {
        /// # Safety
        ///
        /// AMX must be usable, the tiles configured for the panel's height, and everything that the panel spans must
        /// be readable; C writable too, and nobody else's.
        pub(super) unsafe fn $name(panel: &mut Panel) {
            // SAFETY: reads A, B and C and writes C within the panel, as the caller promises; prefetches do not fault.
            unsafe {
                asm!(
                    "mov r14, [rdi + {c}]",
                    "mov rcx, [rdi + {c_stride}]",
                    "mov r15, rcx",
                    "shl r15, 4",
                    "add r15, r14",
                    "cmp qword ptr [rdi + {accumulate}], 0",
                    "jne 2f",
                    $(concat!("tilezero ", $tile),)+
                    "jmp 3f",
                    "2:",
                    $(concat!("tileloadd ", $tile, ", [", $place, "]"),)+
                    "3:",
                    "mov rcx, [rdi + {a_stride}]",
                    "mov rsi, [rdi + {a}]",
                    "mov rdx, rcx",
                    "shl rdx, 4",
                    "add rdx, rsi",
                    "mov rax, [rdi + {b_block}]",
                    "mov r8, [rdi + {b}]",
                    "lea r9, [r8 + rax]",
                    "lea r10, [r9 + rax]",
                    "lea r11, [r10 + rax]",
                    "mov eax, 64",
                    "mov r12, [rdi + {steps}]",
                    $($begin)+
                    "test r12, r12",
                    "jz 6f",
                    ".p2align 5",
                    "4:",
                    $($step,)+
                    $($each)+
                    "add rsi, 64",
                    "add rdx, 64",
                    $(concat!("add ", $block, ", 1024"),)+
                    "dec r12",
                    "jnz 4b",
                    "6:",
                    $($end)+
                    "mov r14, [rdi + {c}]",
                    "mov rcx, [rdi + {c_stride}]",
                    "mov r15, rcx",
                    "shl r15, 4",
                    "add r15, r14",
                    $(concat!("tilestored [", $place, "], ", $tile),)+
                    a = const offset_of!(Panel, a),
                    a_stride = const offset_of!(Panel, a_stride),
                    b = const offset_of!(Panel, b),
                    b_block = const offset_of!(Panel, b_block),
                    c = const offset_of!(Panel, c),
                    c_stride = const offset_of!(Panel, c_stride),
                    accumulate = const offset_of!(Panel, accumulate),
                    steps = const offset_of!(Panel, steps),
                    $($field = const offset_of!(Panel, $($path).+),)+
                    in("rdi") ptr::from_mut(panel),
                    out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _,
                    out("r8") _, out("r9") _, out("r10") _, out("r11") _,
                    out("r12") _, out("r13") _, out("r14") _, out("r15") _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

/// A kernel whose steps lie anywhere, as the jumps at r13 say, and that fetches nothing.
macro_rules! anywhere_kernel {
    ($name:ident, c: $c:tt, b: [$($block:literal),+], step: $step:tt) => {
        kernel!(
            $name, c: $c, b: [$($block),+], step: $step,
            begin: ["mov r13, [rdi + {jumps}]",],
            each: [$(concat!("add ", $block, ", [r13]"),)+ "add r13, 8",],
            end: ["",],
            fields: [jumps: jumps]
        );
    };
}

/// A kernel that reads B once and fetches it ahead of itself: first as many steps as have something to fetch at the first
/// distance (r13; 0 for none), then those with the other one (r15 of them).
macro_rules! low_kernel {
    ($name:ident, $anywhere:ident, c: $c:tt, b: [$($block:literal),+], step: $step:tt) => {
        anywhere_kernel!($anywhere, c: $c, b: [$($block),+], step: $step);
        kernel!(
            $name, c: $c, b: [$($block),+], step: $step,
            begin: ["mov r13, [rdi + {distance}]", "mov r15, [rdi + {last_steps}]",],
            each: ["test r13, r13", "jz 5f", $(fetch!($block),)+ "5:",],
            end: [
                "mov r12, r15",
                "xor r15d, r15d",
                "mov r13, [rdi + {last_distance}]",
                "test r12, r12",
                "jnz 4b",
            ],
            fields: [distance: ahead.distance, last_steps: ahead.last_steps, last_distance: ahead.last_distance]
        );
    };
}

/// A kernel of which several read the same B, one after the other, and that fetches what comes after it: from r13 to r15, r14
/// chunks a step.
macro_rules! high_kernel {
    ($name:ident, $anywhere:ident, c: $c:tt, b: $b:tt, step: $step:tt) => {
        anywhere_kernel!($anywhere, c: $c, b: $b, step: $step);
        kernel!(
            $name, c: $c, b: $b, step: $step,
            begin: ["mov r13, [rdi + {from}]", "mov r15, [rdi + {end}]",],
            each: [
                "cmp r13, r15",
                "jae 5f",
                "mov r14, [rdi + {chunks}]",
                "7:",
                "prefetcht1 [r13]",
                "prefetcht1 [r13 + 64]",
                "prefetcht1 [r13 + 128]",
                "prefetcht1 [r13 + 192]",
                "prefetcht1 [r13 + 256]",
                "prefetcht1 [r13 + 320]",
                "prefetcht1 [r13 + 384]",
                "prefetcht1 [r13 + 448]",
                "add r13, 512",
                "dec r14",
                "jnz 7b",
                "5:",
            ],
            end: ["mov [rdi + {from}], r13",],
            fields: [from: soon.from, end: soon.end, chunks: soon.chunks]
        );
    };
}

// 17 to 32 rows by 32 columns: four loads feed four products, and each accumulator has three products to settle.
high_kernel!(
    two_by_two,
    two_by_two_anywhere,
    c: [
        "tmm0" at "r14 + rcx*1", "tmm1" at "r14 + rcx*1 + 64",
        "tmm2" at "r15 + rcx*1", "tmm3" at "r15 + rcx*1 + 64"
    ],
    b: ["r8", "r9"],
    step: [
        "tileloadd tmm6, [r8 + rax*1]",
        "tileloadd tmm4, [rsi + rcx*1]",
        "tdpbf16ps tmm0, tmm4, tmm6",
        "tileloadd tmm7, [r9 + rax*1]",
        "tdpbf16ps tmm1, tmm4, tmm7",
        "tileloadd tmm5, [rdx + rcx*1]",
        "tdpbf16ps tmm2, tmm5, tmm6",
        "tdpbf16ps tmm3, tmm5, tmm7"
    ]
);

high_kernel!(
    two_by_one,
    two_by_one_anywhere,
    c: ["tmm0" at "r14 + rcx*1", "tmm2" at "r15 + rcx*1"],
    b: ["r8"],
    step: [
        "tileloadd tmm6, [r8 + rax*1]",
        "tileloadd tmm4, [rsi + rcx*1]",
        "tdpbf16ps tmm0, tmm4, tmm6",
        "tileloadd tmm5, [rdx + rcx*1]",
        "tdpbf16ps tmm2, tmm5, tmm6"
    ]
);

// Up to 16 rows: B is read once and never again, so that what counts is to have many of its lines under way.
low_kernel!(
    one_by_four,
    one_by_four_anywhere,
    c: [
        "tmm0" at "r14 + rcx*1", "tmm1" at "r14 + rcx*1 + 64",
        "tmm2" at "r14 + rcx*1 + 128", "tmm3" at "r14 + rcx*1 + 192"
    ],
    b: ["r8", "r9", "r10", "r11"],
    step: [
        "tileloadd tmm4, [rsi + rcx*1]",
        "tileloadd tmm5, [r8 + rax*1]",
        "tdpbf16ps tmm0, tmm4, tmm5",
        "tileloadd tmm6, [r9 + rax*1]",
        "tdpbf16ps tmm1, tmm4, tmm6",
        "tileloadd tmm7, [r10 + rax*1]",
        "tdpbf16ps tmm2, tmm4, tmm7",
        "tileloadd tmm5, [r11 + rax*1]",
        "tdpbf16ps tmm3, tmm4, tmm5"
    ]
);

low_kernel!(
    one_by_three,
    one_by_three_anywhere,
    c: ["tmm0" at "r14 + rcx*1", "tmm1" at "r14 + rcx*1 + 64", "tmm2" at "r14 + rcx*1 + 128"],
    b: ["r8", "r9", "r10"],
    step: [
        "tileloadd tmm4, [rsi + rcx*1]",
        "tileloadd tmm5, [r8 + rax*1]",
        "tdpbf16ps tmm0, tmm4, tmm5",
        "tileloadd tmm6, [r9 + rax*1]",
        "tdpbf16ps tmm1, tmm4, tmm6",
        "tileloadd tmm7, [r10 + rax*1]",
        "tdpbf16ps tmm2, tmm4, tmm7"
    ]
);

low_kernel!(
    one_by_two,
    one_by_two_anywhere,
    c: ["tmm0" at "r14 + rcx*1", "tmm1" at "r14 + rcx*1 + 64"],
    b: ["r8", "r9"],
    step: [
        "tileloadd tmm4, [rsi + rcx*1]",
        "tileloadd tmm5, [r8 + rax*1]",
        "tdpbf16ps tmm0, tmm4, tmm5",
        "tileloadd tmm6, [r9 + rax*1]",
        "tdpbf16ps tmm1, tmm4, tmm6"
    ]
);

low_kernel!(
    one_by_one,
    one_by_one_anywhere,
    c: ["tmm0" at "r14 + rcx*1"],
    b: ["r8"],
    step: [
        "tileloadd tmm4, [rsi + rcx*1]",
        "tileloadd tmm5, [r8 + rax*1]",
        "tdpbf16ps tmm0, tmm4, tmm5"
    ]
);
