//! Live migration: one etcd on two seeds, while clients write.

mod six_members;
