//! API machinery that knows no kind: JSON trees, schemas, patches, managed fields, selectors, published documents, formats and times.
//!
//! Nothing in here meets a clock, a client, a file or a random number: time, ids and seeds come in as arguments.

pub mod document;
pub mod duration;
pub mod field;
pub mod formats;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod json;
pub mod kind;
pub mod managed;
pub mod meta;
pub mod openapi;
pub mod protobuf;
pub mod schedule;
pub mod schema;
pub mod selector;
pub mod shape;
pub mod time;
pub mod validation;
pub mod value;

#[cfg(test)]
mod sample;
