//! The pure part of the API: kinds, names, shapes, validation, selectors and published documents.
//!
//! Nothing in here meets a clock, a client, a file or a random number: time, ids and seeds come in as arguments.

pub mod conditions;
pub mod document;
pub mod duration;
pub mod etcd_backup;
pub mod etcd_migration;
pub mod etcd_restore;
pub mod field;
pub mod formats;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod hosted_etcd;
pub mod json;
pub mod kind;
pub mod managed;
pub mod meta;
pub mod names;
pub mod openapi;
pub mod protobuf;
pub mod schedule;
pub mod schema;
pub mod selector;
pub mod shape;
pub mod shoot_state;
pub mod workflow;
