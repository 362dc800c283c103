//! Everything that crosses crates, in one test program: linking is slow, modules are not.

mod admission;
mod architecture;
mod conformance;
mod docs;
mod encryption;
mod etcd;
mod etcd_agent;
mod etcd_kinds;
mod expansion;
mod extension;
mod gardener;
mod gateway;
mod http;
mod kubectl;
mod landscape;
mod members;
mod migration;
mod operator;
mod oracles;
mod ownership;
mod seed_state;
mod shootstate;
mod testbed;
mod watchdog;
mod webhook;
mod workflows;
