#![no_main]
//! See `fuzzing::parsers::control`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::parsers::control(bytes));
