//! See `palisade_fuzz::record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| palisade_fuzz::record::run(input));
