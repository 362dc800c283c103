//! Live migration: one etcd on two seeds, while clients write.

mod behind_gateway;
mod clients;
mod dead_destination;
mod dead_source;
mod distant;
mod faults;
mod given_up;
mod informers;
mod many;
mod six_members;
mod tunnel;
mod watches;
mod whole;

use repot_tests::landscape::requests;
