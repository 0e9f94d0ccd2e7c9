//! What the emulated GPU counts: its two functions, and the text that they give.

use std::{collections::BTreeMap, ffi::c_char};

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

/// The functions of `tests/emulated-gpu/counts.h`.
fn functions() -> Option<(Begin, End)> {
    // SAFETY: the library is loaded already and stays so; what it exports under these names are functions of these types.
    unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let begin = libc::dlsym(library, c"emulated_gpu_begin_counting".as_ptr());
        let end = libc::dlsym(library, c"emulated_gpu_end_counting".as_ptr());
        if begin.is_null() || end.is_null() {
            return None;
        }
        Some((
            std::mem::transmute::<*mut libc::c_void, Begin>(begin),
            std::mem::transmute::<*mut libc::c_void, End>(end),
        ))
    }
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
