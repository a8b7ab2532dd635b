//! Names of user frames by the real children, of programs that the tests build.

mod asking;
mod names;
mod programs;
