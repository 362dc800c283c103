//! Backends: the conformance suite on each of them, and what only one of them promises.

mod certificates;
mod chunk_store;
mod crash;
mod delivered_twice;
mod embedded;
mod etcd;
mod etcd_errors;
mod etcd_process;
pub(crate) mod gate;
pub(crate) mod grpc_relay;
mod high_water;
mod lost_answer;
mod retention;
mod rollback;
mod sync;
mod tiered;
mod torn;
