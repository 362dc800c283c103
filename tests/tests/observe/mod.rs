//! Alerts and dashboards: that they are what their generators write, that rules fire when they should, and that everything they ask for
//! is exported by a real run.

mod files;
mod live;
mod migrations;
mod panels;
mod prometheus;
mod workload;
mod world;
