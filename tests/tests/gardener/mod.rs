//! Admission beside the real gardener-apiserver: first that everything which is no migration runs as without Repot, then the rules.

mod controllers;
mod namespaces;
mod outage;
mod paths;
mod rules;
mod scheduling;
mod world;
