#![no_main]
//! See `fuzzing::devices::offloaded`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::devices::offloaded(bytes));
