//! HostedEtcd, EtcdBackup, EtcdRestore and EtcdMigration as their users meet them: alone, and behind a real kube-apiserver.

mod deploy;
mod group;
mod kubectl;
mod status;
pub mod world;
