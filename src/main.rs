//! The `tito` binary.

use std::process::ExitCode;

use mimalloc::MiMalloc;

// A library leaves this choice to the program that it becomes a part of; `turn::memory` gives back what was freed.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    tito::main()
}
