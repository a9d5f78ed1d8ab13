#![no_main]
//! See `fuzzing::steering`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::steering::run(bytes));
