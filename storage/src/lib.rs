//! How objects rest: a store of sealed, chunked objects over small backends.
//!
//! This crate may not know kinds, HTTP or JSON. An object is a key, a uid, a small head (`meta`, `summary`) and a payload
//! of bytes. Everything but the key is compressed and sealed; see [`record`] for what is bound to what.
//!
//! ```text
//! /registry/<group>/<resource>/<namespace>/<name>   record: head, small payload, or the map of chunks
//! /chunks/<uid>/<chunk id>                          chunk: a piece of payload, about 256 KiB
//! /intents/<writer>                                 intent: "chunks that carry this id are being written"
//! ```

pub mod backend;
pub mod store;
