//! The testbed proves itself, without Repot.

mod etcd;
mod garden;
pub(crate) mod pods;
mod process;
mod relay;
mod repot;
