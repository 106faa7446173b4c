//! One mutable slice written by several threads, each in its own ranges.

use std::marker::PhantomData;

/// A slice whose parts are handed to threads that never share a part.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Disjoint` only gives out parts through `part`, whose caller guarantees that no two live parts overlap; moving
// `&mut [T]` parts to other threads is sound for `T: Send`.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Takes the slice for as long as parts of it are in use.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            slice: PhantomData,
        }
    }

    /// The part `first .. first + len`.
    ///
    /// # Safety
    /// No other part that is alive at the same time overlaps it.
    ///
    /// # Panics
    /// When the part reaches beyond the slice.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, first: usize, len: usize) -> &mut [T] {
        assert!(
            first <= self.len && len <= self.len - first,
            "part of a slice"
        );
        // SAFETY: the range lies in the borrowed slice (checked above), and the caller keeps parts from overlapping.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(first), len) }
    }
}
