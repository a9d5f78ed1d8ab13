#![no_main]
//! See `fuzzing::parsers::transport`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::parsers::transport(bytes));
