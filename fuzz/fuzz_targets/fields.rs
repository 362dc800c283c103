#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| repot_apimachinery::fuzz::fields(input));
