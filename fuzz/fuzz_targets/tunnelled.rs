#![no_main]
//! See `fuzzing::devices::tunnelled`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::devices::tunnelled(bytes));
