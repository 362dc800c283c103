//! What tests ask of the world outside: generated pages of the documentation, and how much to run.

use std::{fs, path::Path};

/// Compares a page, by its path in the repository; `UPDATE_GOLDENS=1` writes it anew.
///
/// # Panics
/// Where they differ.
pub fn is_up_to_date(path: &str, made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&file, made).expect("written");
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    assert!(stored == made, "{path} is not what the tables say; UPDATE_GOLDENS=1 brings it up to date");
}

/// How many schedules to run: `REPOT_SCHEDULES`, or the long number where `REPOT_SOAK` is set.
#[allow(dead_code, reason = "only simulations ask")]
pub fn schedules(short: u64, long: u64) -> u64 {
    let asked = std::env::var("REPOT_SCHEDULES").ok().and_then(|count| count.parse().ok());
    let usual = if std::env::var_os("REPOT_SOAK").is_some() { long } else { short };
    asked.unwrap_or(usual)
}
