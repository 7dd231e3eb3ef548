//! See `palisade_fuzz::node`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| palisade_fuzz::node::run(input));
