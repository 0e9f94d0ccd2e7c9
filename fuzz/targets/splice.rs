#![no_main]

#[path = "../src/splice.rs"]
mod splice;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    splice::check(data);
});
