#![no_main]

use std::sync::LazyLock;

use repot_storage::fuzz::Wrapped;

static TARGET: LazyLock<Wrapped> = LazyLock::new(Wrapped::begin);

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET.attempt(input));
