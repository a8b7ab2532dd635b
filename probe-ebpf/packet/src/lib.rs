//! The packet parser and signature matcher that kernel and host share.
#![no_std]
#![forbid(unsafe_code)]
