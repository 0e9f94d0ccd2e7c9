#![no_main]

#[path = "../src/image.rs"]
mod image;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = image::check(data);
});
