//! One anonymous mapping for all buffers of a ring.

#![expect(
    unsafe_code,
    reason = "memory that the kernel reads and writes while an I/O is in flight cannot be a Rust value"
)]

use std::io;
use std::ptr::NonNull;

/// A mapping of zeroed, page-aligned memory; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Arena {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: an arena owns its mapping alone, and a mapping may be used from any thread.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps `length` bytes, at least one page.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let length = length.max(4096);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("the kernel mapped address 0"))?;
        Ok(Self { start, length })
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The address of a byte of the arena.
    pub(crate) fn address(&self, at: usize) -> *mut u8 {
        assert!(at < self.length, "byte {at} of an arena of {}", self.length);
        self.start.as_ptr().wrapping_add(at)
    }

    /// The bytes `start..start + length`.
    ///
    /// # Safety
    /// No I/O that uses any of these bytes may be in flight.
    pub(crate) unsafe fn slice_mut(&mut self, start: usize, length: usize) -> &mut [u8] {
        assert!(
            start <= self.length && length <= self.length - start,
            "{start} + {length} of an arena of {}",
            self.length
        );
        let first = self.start.as_ptr().wrapping_add(start);
        // SAFETY: the range is inside the mapping (asserted), initialised by the kernel, borrowed from `self` alone, and
        // the caller vouches that the kernel does not use it.
        unsafe { std::slice::from_raw_parts_mut(first, length) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is this arena's own, and no slice of it can outlive it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
