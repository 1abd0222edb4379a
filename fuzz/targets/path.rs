#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rowhouse_fuzzing::path(data));
