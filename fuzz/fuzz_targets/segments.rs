#![no_main]
//! See `fuzzing::segments::run`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::segments::run(bytes));
