//! Hosted etcds and their workflows: what the commands `repot etcd` show and create.
//!
//! | file | has |
//! |---|---|
//! | `hosted.rs` | a HostedEtcd with its members |
//! | `workflow.rs` | an EtcdBackup, EtcdRestore or EtcdMigration |
//! | `read.rs` | both of them as the cluster has them |
//! | `request.rs` | what is created for a backup, a restore or a migration, and what is asked before |
//! | `screen.rs` | lists and one screen as text |

pub mod hosted;
pub mod read;
pub mod request;
pub mod screen;
pub mod workflow;
