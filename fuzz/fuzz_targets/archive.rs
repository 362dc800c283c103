#![no_main]

use std::sync::LazyLock;

use repot_storage::fuzz::Archive;

static TARGET: LazyLock<Archive> = LazyLock::new(Archive::begin);

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET.attempt(input));
