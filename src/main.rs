//! The `tito` binary.

fn main() {}
