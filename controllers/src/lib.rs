//! Reconcilers: what is planned in `repot-plan` becomes calls.
//!
//! | module | makes |
//! |---|---|
//! | [`etcd`] | an `Etcd` into a StatefulSet of members, and its members one by one |
//! | [`shootstate`] | what has to survive a seed into ShootStates |
//! | [`workflow`] | EtcdBackup, EtcdRestore and EtcdMigration into steps on a HostedEtcd |
//! | [`migration`] | ControlPlaneMigration into steps on a garden and two seeds |
//! | [`isolation`] | ZoneIsolation into steps on a garden and a seed |
//! | [`certificates`] | certificates of servers, their authorities and who trusts these into renewed ones |
//! | [`owner`] | what a person asks of an owner record into answers and changes |
//! | [`flow`] | what the plan decides of any flow into records and effects |
//! | [`election`] | one of several processes the one that acts |
//! | [`reconciler`] | all controllers into measured, logged and retried reconciles |
//! | [`server`] | health, readiness and [`metrics`] into answers over HTTP |
//! | [`events`] | what happened into Kubernetes Events |
//! | [`local_stores`] | a check of the directories that stores on nodes may use |
//! | [`namespaces`] | watches of the whole cluster or of some namespaces |
//! | [`term`] | the end of what a process may write, when another one may act |
//! | [`watchdog`] | writes of extension controllers in other languages into writes of an owner, or into refusals |
//! | [`members`] | a membership that is wanted into one change at a time |
//!
//! Each is observe (reads), decide (in `repot-plan`), act (one idempotent call an effect), record (status). None of them may wait
//! inside a pass: it returns, and the next event or the requeue brings the next one.

pub mod certificates;
pub mod election;
mod errors;
pub mod etcd;
pub mod events;
pub mod flow;
pub mod isolation;
pub mod local_stores;
pub mod members;
pub mod metrics;
pub mod migration;
pub mod namespaces;
pub mod owner;
pub mod reconciler;
pub mod server;
pub mod shootstate;
pub mod term;
pub mod watchdog;
pub mod workflow;
