//! The testbed: real Kubernetes and etcd programs, and Repot, on 127.0.0.1, for tests that cross crates.
//!
//! A test is `run(async |env| { … Ok(()) })`. What it starts lives in values; dropping them ends the processes behind them, and the
//! kernel ends them should the test process itself be killed. When a test fails, its directory stays and the ends of all logs are
//! printed. Nothing here sleeps for a condition and nothing is skipped: a program that is missing fails the test by its name.
//!
//! | module | gives |
//! |---|---|
//! | [`test_env`] | the directory, runtime and time limit of a test; things that several tests share |
//! | [`garden`] | kube-apiserver and kube-controller-manager with users, certificates, kubectl |
//! | [`pods`] | nodes that run Pods as processes, for what controllers make of StatefulSets, Deployments and Jobs |
//! | [`place`] | a namespace of one test in a garden that tests share |
//! | [`aggregate`] | registration of a server behind the garden |
//! | [`gardener`] | gardener-apiserver behind a garden, and what Shoots need there |
//! | [`gardener_controllers`] | gardener-controller-manager beside it |
//! | [`virtual_garden`] | the control plane of a garden without nodes, as Pods, with Gardener's own programs |
//! | [`install`] | a cluster whose kube-apiserver reaches Pods, and helm with the charts |
//! | [`cert_manager`] | cert-manager in a garden |
//! | [`oci`] | the container images of Repot as root directories |
//! | [`operator`] | the controllers of a seed as a Deployment |
//! | [`landscape`] | a garden, two seeds, and whole control planes of Shoots with nodes |
//! | [`repot`] | `repot dev`, `repot apiserver` and every other role |
//! | [`etcd`] | clusters, with or without TLS |
//! | [`dns`] | a DNS server whose records change, and a wire to it on which answers are late or lost |
//! | [`relay`] | the wire between two parts: cut, stalled, late, slow; or a load balancer |
//! | [`sites`] | members of one etcd on two sites, with a link between them |
//! | [`s3`] | an object store with credentials, whose objects a test can harm |
//! | [`azure`] | one as Azure has it |
//! | [`null_server`] | the smallest aggregated server, as a floor for benchmarks |
//! | [`webhook`] | an admission webhook that records and answers |
//! | [`states`] | sample ShootStates, shaped as Gardener writes them, of any size |
//! | [`http`], [`access`], [`kubectl`], [`clientgo`] | calls, as anybody |
//! | [`cgroup`] | a process that gets so much memory and no more |
//! | [`encryption`] | Kubernetes' own side of encryption at rest |
//! | [`otel`] | a collector of traces |
//! | [`process`], [`tool`], [`binaries`], [`port`], [`pki`], [`wait`] | what the others stand on |

pub mod access;
pub mod aggregate;
pub mod azure;
pub mod binaries;
pub mod cert_manager;
pub mod cgroup;
pub mod clientgo;
pub mod dns;
pub mod dns_cache;
pub mod encryption;
pub mod etcd;
pub mod garden;
pub mod gardener;
pub mod gardener_controllers;
pub mod http;
pub mod install;
pub mod kubectl;
pub mod landscape;
pub mod namespace;
pub mod null_server;
pub mod oci;
pub mod operator;
pub mod otel;
pub mod pki;
pub mod pods;
pub mod port;
pub mod process;
pub mod relay;
pub mod repot;
pub mod s3;
pub mod sites;
pub mod test_env;
mod test_logs;
pub mod tool;
pub mod turn;
pub mod virtual_garden;
pub mod wait;
pub mod webhook;

pub use repot_samples as states;

pub use test_env::{Shared, SharedRef, TestEnv, run, run_large, start_shared};
