//! The allocator of this crate's tests: the program's, and it knows how many bytes are in use.

use std::{
    alloc::{GlobalAlloc, Layout},
    sync::atomic::{AtomicUsize, Ordering},
};

use mimalloc::MiMalloc;

/// The bytes that somebody holds, as they were asked for: what the allocator rounds up and keeps for later does not count.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

#[expect(unsafe_code, reason = "an allocator has no other form")]
// SAFETY: all is the other allocator's, with the layouts that it was asked with.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for the caller.
        taken(unsafe { MiMalloc.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for the caller.
        taken(unsafe { MiMalloc.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as for the caller.
        unsafe { MiMalloc.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for the caller.
        let moved = taken(unsafe { MiMalloc.realloc(memory, layout, size) }, size);
        if !moved.is_null() {
            IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        moved
    }
}

/// Counts memory, if there is any.
fn taken(memory: *mut u8, bytes: usize) -> *mut u8 {
    if !memory.is_null() {
        IN_USE.fetch_add(bytes, Ordering::Relaxed);
    }
    memory
}

/// How many bytes are in use, where nobody else uses any: in a process that runs a single test.
pub(super) fn bytes_in_use() -> Option<usize> {
    std::env::args().any(|argument| argument == "--exact").then(|| IN_USE.load(Ordering::Relaxed))
}
