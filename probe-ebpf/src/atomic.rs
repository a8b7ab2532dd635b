//! Atomic operations. Rust's BPF target declares none but load and store, the instruction set
//! (v3, kernel 5.12) has them all.
//!
//! Programs of one CPU interrupt each other between any two instructions, and the bitmap of
//! processes is written from every CPU.

use core::arch::asm;

/// Adds to `*word` and returns what it held.
///
/// # Safety
///
/// `word` must be writable map memory, aligned to 8.
#[inline(always)]
pub(crate) unsafe fn fetch_add(word: *mut u64, mut value: u64) -> u64 {
    // SAFETY: the caller vouches for `word`.
    unsafe {
        asm!(
            "{value} = atomic_fetch_add((u64 *)({word} + 0), {value})",
            word = in(reg) word,
            value = inout(reg) value,
        );
    }
    value
}

/// Adds to `*word`.
///
/// # Safety
///
/// As for [`fetch_add`].
#[inline(always)]
pub(crate) unsafe fn add(word: *mut u64, value: u64) {
    // SAFETY: the caller vouches for `word`.
    unsafe {
        asm!("lock *(u64 *)({word} + 0) += {value}", word = in(reg) word, value = in(reg) value);
    }
}

/// Sets bits in `*word`.
///
/// # Safety
///
/// As for [`fetch_add`].
#[inline(always)]
pub(crate) unsafe fn or(word: *mut u64, bits: u64) {
    // SAFETY: the caller vouches for `word`.
    unsafe {
        asm!("lock *(u64 *)({word} + 0) |= {bits}", word = in(reg) word, bits = in(reg) bits);
    }
}

/// Clears in `*word` the bits that are clear in `bits`.
///
/// # Safety
///
/// As for [`fetch_add`].
#[inline(always)]
pub(crate) unsafe fn and(word: *mut u64, bits: u64) {
    // SAFETY: the caller vouches for `word`.
    unsafe {
        asm!("lock *(u64 *)({word} + 0) &= {bits}", word = in(reg) word, bits = in(reg) bits);
    }
}

/// Puts `value` into `*word` and returns what it held.
///
/// # Safety
///
/// As for [`fetch_add`].
#[inline(always)]
pub(crate) unsafe fn swap(word: *mut u64, mut value: u64) -> u64 {
    // SAFETY: the caller vouches for `word`.
    unsafe {
        asm!(
            "{value} = xchg_64({word} + 0, {value})",
            word = in(reg) word,
            value = inout(reg) value,
        );
    }
    value
}
