//! ShootState as its users meet it: by kubectl and by plain HTTP, directly and behind a real kube-apiserver.

mod apply;
mod azure;
mod backup;
mod bad_input;
mod chunk_store;
mod costs;
mod damage;
pub mod etcd_values;
mod identity;
pub mod kills;
pub mod large;
mod late;
mod lifecycle;
mod owners;
mod reads;
mod secrecy;
pub mod world;
