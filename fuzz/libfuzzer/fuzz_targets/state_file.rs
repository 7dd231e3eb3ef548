//! See `palisade_fuzz::state_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| palisade_fuzz::state_file::run(input));
