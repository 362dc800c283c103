//! Removes what is secret from texts and objects, before they leave the machine.
//!
//! It errs on the side of removing too much. It cannot know every secret: a password that looks like a word, with nothing beside it
//! that says so, stays.
//!
//! | file | removes |
//! |---|---|
//! | `pem.rs` | private keys in PEM, whole or cut off |
//! | `patterns.rs` | tokens, headers, passwords in URLs, values behind telling names |
//! | `encoded.rs` | long base64, over several lines too |
//! | `object.rs` | the same in objects, and fields that hold secrets |

mod encoded;
mod object;
mod patterns;
mod pem;
#[cfg(test)]
mod tests;

pub use object::object;

/// A text without what is secret. Time is linear in its length.
#[must_use]
pub fn text(text: &str) -> String {
    encoded::remove(&patterns::remove(&pem::remove(text)))
}
