//! JSON with opaque parts: trees above, untouched text below.

pub mod census;
pub mod decode;
mod findings;
mod members;
pub mod merge;
pub mod node;
pub mod patch;
pub mod pointer;
pub mod raw;
pub mod segments;

pub use census::Census;
pub use decode::{Error, conform, decode, decode_compact, decode_opaque};
pub use findings::Findings;
pub use node::{Key, Node};
pub use raw::Raw;
pub use segments::Segments;
