//! The operator of Etcds, as a Deployment under the real kube-controller-manager, with members that are real.

mod addresses;
mod certificates;
mod ending;
mod gateway;
mod joining;
mod lifecycle;
mod local_stores;
mod namespaces;
mod objects;
mod reports;
mod restricted;
mod rolling;
mod scale;
mod silent;
mod source;
mod standby;
mod tls;
mod world;
