//! What the emulated GPU does for tests, besides what a driver does: it counts, and it does work late.

use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char, c_void},
};

use candle_core::Device;

/// What a GPU was asked for: numbers by what they count, by the names of kernels and calls.
pub(in super::super) type Counts = BTreeMap<String, BTreeMap<String, u64>>;

/// The text of one step is shorter.
const MOST_TEXT: usize = 1 << 16;

/// What some work asks of the GPU; `None` where the GPU is not the emulated one.
pub(in super::super) fn counted(work: impl FnOnce()) -> Option<Counts> {
    let (begin, end) = functions()?;
    let mut text = vec![0_u8; MOST_TEXT];
    // SAFETY: `counts.h` declares both so. The first has no arguments, and the second writes no more than it is told.
    let len = unsafe {
        begin();
        work();
        end(text.as_mut_ptr().cast(), text.len())
    };
    assert!(len < text.len(), "the counts have {len} bytes");
    Some(parsed(std::str::from_utf8(&text[..len]).unwrap()))
}

type Begin = unsafe extern "C" fn();
type End = unsafe extern "C" fn(*mut c_char, usize) -> usize;

type BeLate = unsafe extern "C" fn(*mut c_void);

/// The functions of `tests/emulated-gpu/counts.h`.
fn functions() -> Option<(Begin, End)> {
    let [begin, end] = [c"emulated_gpu_begin_counting", c"emulated_gpu_end_counting"].map(function);
    // SAFETY: what the library exports under these names are functions of these types.
    unsafe { Some((std::mem::transmute::<*mut c_void, Begin>(begin?), std::mem::transmute::<*mut c_void, End>(end?))) }
}

/// Has the device do all work as late as it may, where it is the emulated one: once somebody waits for it.
pub(in super::super) fn be_late(device: &Device) {
    if let (Device::Cuda(device), Some(be_late)) = (device, function(c"emulated_gpu_be_late")) {
        // SAFETY: `streams.h` declares it so. The stream lives as long as the device.
        unsafe {
            let be_late = std::mem::transmute::<*mut c_void, BeLate>(be_late);
            be_late(device.cuda_stream().cu_stream().cast());
        }
    }
}

/// A function of the emulated GPU.
fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library is loaded already and stays so.
    let found = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if library.is_null() { library } else { libc::dlsym(library, name.as_ptr()) }
    };
    (!found.is_null()).then_some(found)
}

/// Lines of a name, and of words each followed by its number.
fn parsed(text: &str) -> Counts {
    let mut counts = Counts::new();
    for line in text.lines() {
        let begin = [" launches ", " calls "].iter().filter_map(|word| line.find(word)).min().unwrap();
        let (name, numbers) = line.split_at(begin);
        let words: Vec<&str> = numbers.split_whitespace().collect();
        let numbers = words.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap()));
        counts.insert(name.to_owned(), numbers.collect());
    }
    counts
}
