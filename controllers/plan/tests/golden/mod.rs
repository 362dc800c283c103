//! Generated pages of the documentation, which tests compare with what they would generate now.

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
