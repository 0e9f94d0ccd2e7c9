#![no_main]

#[path = "../src/parser.rs"]
mod parser;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    parser::check(data);
});
