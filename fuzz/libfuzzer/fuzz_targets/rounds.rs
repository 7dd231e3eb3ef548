//! See `palisade_fuzz::rounds`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| palisade_fuzz::rounds::run(input));
