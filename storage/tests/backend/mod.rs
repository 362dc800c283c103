//! Backends: the conformance suite on each of them, and what only one of them promises.

mod embedded;
mod etcd;
mod etcd_process;
