//! The report: what stands on its page, and how it behaves in a real browser.
//!
//! Chromium comes from Debian's packages, unpacked in the user's cache and never installed. Pictures
//! of the pages are left in cargo's folder for the output of tests, to be looked at.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod behaviour;
mod browser;
mod chromium;
mod looks;
mod outputs;
mod text;
