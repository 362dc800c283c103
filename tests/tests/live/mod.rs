//! Live migration: one etcd on two seeds, while clients write.

mod requests;
mod six_members;
mod whole;
