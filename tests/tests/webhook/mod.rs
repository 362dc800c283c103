//! Admission webhooks on a real kube-apiserver, asked through kubectl and over HTTP.

pub mod heard;
mod hostile;
mod isolation;
mod live;
mod manifests;
mod migration;
pub mod preflight;
pub mod questions;
mod serving;
mod state;
pub mod world;
