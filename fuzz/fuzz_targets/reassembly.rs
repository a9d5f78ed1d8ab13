#![no_main]
//! See `fuzzing::reassembly::run`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::reassembly::run(bytes));
