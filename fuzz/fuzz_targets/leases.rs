#![no_main]
//! See `fuzzing::parsers::leases`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::parsers::leases(bytes));
