#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| whylag_fuzz::parser(data));
