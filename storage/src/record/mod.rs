//! The record of an object.

/// A record that was opened.
#[derive(Debug)]
pub(crate) struct Opened {}
