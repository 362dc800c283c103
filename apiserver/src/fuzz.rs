//! What reads requests, as functions of any bytes: for fuzzers and for tests that replay what these found.
//!
//! They may refuse what they are given; they must not panic.

/// A continue token. One that is taken is one of the list that was asked for, and printed as it is read.
pub fn continuation(input: &[u8]) {
    crate::endpoints::continuation::attempt(input);
}

#[cfg(test)]
#[path = "../../fuzz/driver.rs"]
mod driver;

/// What is kept in `fuzz/corpus`, and changes of it.
#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::driver;

    #[test]
    fn continuation() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/continuation");
        driver::fuzz(&corpus, super::continuation);
    }
}
