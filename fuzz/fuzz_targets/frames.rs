#![no_main]
//! See `fuzzing::segments::run_over_ethernet`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::segments::run_over_ethernet(bytes));
