//! The `tito` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    tito::main()
}
