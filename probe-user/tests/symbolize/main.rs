//! Names of user frames by the real children, of programs that the tests build.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod asking;
mod children;
mod debug_files;
mod debuginfod;
mod files;
mod golang;
mod hung;
mod names;
mod node;
mod perf_maps;
mod programs;
