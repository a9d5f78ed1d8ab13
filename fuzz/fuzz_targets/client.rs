#![no_main]
//! See `fuzzing::client::run`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::client::run(bytes));
