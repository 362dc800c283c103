//! An etcd moves from one site to the other under load: 3, 4, 5, 6, 5, 4, 3 members, by the driver, with a gateway on each site.

mod aborts;
mod agents;
mod links;
mod load;
mod moves;
mod world;
