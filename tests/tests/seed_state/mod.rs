//! ShootStates that the controller of a seed writes into a garden: a real kube-apiserver on each side, and Repot behind the garden's.

mod carried;
mod controller;
mod large;
mod migration;
mod world;
