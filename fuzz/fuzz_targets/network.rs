#![no_main]
//! See `fuzzing::parsers::network`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::parsers::network(bytes));
