//! The testbed proves itself, without Repot.

mod etcd;
mod garden;
mod pods;
mod process;
mod relay;
mod repot;
