//! A library for extension controllers of Gardener: the operation contract, state that survives a move between seeds, and a watchdog
//! that stops work when another seed owns the Shoot.
//!
//! | module | has |
//! |---|---|
//! | [`provider`] | the trait that an author writes |
//! | [`controller`] | the controller that calls it |
//! | [`kinds`] | the kinds of `extensions.gardener.cloud/v1alpha1` as Rust types |
//! | [`decide`] | which operation is due: a pure function |
//! | [`state`], [`raw`] | `status.state` and other JSON, kept byte for byte |
//! | [`ownership`] | what the watchdog asks |
//! | [`request`] | the other side: flows that ask for operations and wait for them |
//! | [`crds`] | CustomResourceDefinitions of the kinds |
//! | [`annotations`], [`status`], [`backoff`] | what the others share |
//!
//! `docs/extensions/write-a-controller.md` is the guide for authors.

pub mod annotations;
pub mod backoff;
pub mod controller;
pub mod crds;
pub mod decide;
pub mod kinds;
mod operation;
pub mod ownership;
pub mod provider;
pub mod raw;
pub mod request;
pub mod state;
pub mod status;
mod write;

pub use controller::{ClusterPolicy, ExtensionController, Settings};
pub use provider::{Context, Failure, Outcome, Provider};
pub use raw::RawJson;
pub use state::State;
pub use write::WriteError;
