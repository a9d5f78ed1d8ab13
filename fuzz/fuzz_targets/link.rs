#![no_main]
//! See `fuzzing::parsers::link`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::parsers::link(bytes));
