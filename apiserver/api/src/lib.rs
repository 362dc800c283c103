//! The pure part of the API: kinds, names, shapes, validation, selectors and published documents.
//!
//! Nothing in here meets a clock, a client, a file or a random number: time, ids and seeds come in as arguments.

pub mod document;
pub mod field;
pub mod json;
pub mod kind;
pub mod meta;
pub mod names;
pub mod openapi;
pub mod schema;
pub mod selector;
pub mod shoot_state;
