//! Memory that was freed, and that an allocator has kept for itself.

/// Gives the pages of freed memory back to the system: those of the program's allocator, and those of the C library's, which
/// code in C takes.
#[expect(unsafe_code, reason = "allocators have no safe names for it")]
pub(super) fn give_back() {
    // SAFETY: it may be called at any time and from any thread. Where the program has another allocator, mimalloc has no memory.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: this one too.
    unsafe {
        libc::malloc_trim(0);
    }
}
