//! Snapshots of one etcd, in the layout and the formats of etcd-backup-restore.
//!
//! | module | does |
//! |---|---|
//! | [`codec`] | full and delta snapshots as streams: compression, hash trailer, events, the revision in a database file |
//! | [`store`] | where they rest: a directory, S3, Google Cloud Storage, Azure |
//! | [`take`] | from a live etcd into a store |
//! | [`inspect`] | reading one object to its end with every check there is |
//! | [`verify`] | all objects of a store, and whether they are continuous |
//! | [`changes`] | which keys changed after a revision |
//! | [`copy`] | from one store to another |
//! | [`late`] | what a final snapshot holds that came after another etcd went on from its store |
//! | [`restore`] | from a store into a data directory |

pub mod changes;
pub mod codec;
pub mod copy;
pub mod inspect;
pub mod late;
pub mod restore;
pub mod store;
pub mod take;
pub mod verify;
