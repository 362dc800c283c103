//! The operator of Etcds, as a Deployment under the real kube-controller-manager, with members that are real.

mod lifecycle;
mod objects;
mod scale;
mod world;
