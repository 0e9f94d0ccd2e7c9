#![no_main]

#[path = "../src/files.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod files;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = files::check(files::Kind::Tokenizer, data);
});
