#![no_main]
//! See `fuzzing::calls::run`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::calls::run(bytes));
