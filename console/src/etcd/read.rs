//! Hosted etcds and workflows as the cluster has them.

use futures::future::try_join3;
use kube::api::ListParams;
use serde_json::Value;

use super::{
    hosted::HostedEtcd,
    workflow::{Workflow, WorkflowKind},
};
use crate::objects::{ETCD, Error, HOSTED_ETCD, Objects, Result};

/// Most objects of one kind that are read.
const MOST: usize = 10_000;

/// All hosted etcds of one namespace or of all, by namespace and name, each without its members.
///
/// # Errors
/// Those of the API server, such as that it is no seed.
pub async fn hosted_etcds(cluster: &Objects, namespace: Option<&str>) -> Result<Vec<HostedEtcd>> {
    let found = cluster.list(&HOSTED_ETCD, namespace, ListParams::default(), MOST).await?;
    let mut all: Vec<HostedEtcd> = found.whole(&HOSTED_ETCD, MOST)?.iter().map(HostedEtcd::new).collect();
    all.sort_by_key(HostedEtcd::key);
    Ok(all)
}

/// One hosted etcd with its members, as far as the user may read the Etcd.
///
/// # Errors
/// Those of the API server, or that there is none.
pub async fn hosted_etcd(cluster: &Objects, namespace: &str, name: &str) -> Result<HostedEtcd> {
    let found = HostedEtcd::new(&cluster.require(&HOSTED_ETCD, namespace, name).await?);
    let Some(etcd) = found.etcd_name() else { return Ok(found) };
    match cluster.get(&ETCD, Some(namespace), etcd).await {
        Ok(Some(etcd)) => Ok(found.with_etcd(&etcd)),
        Ok(None) | Err(Error::Forbidden { .. } | Error::NotServed { .. }) => Ok(found),
        Err(error) => Err(error),
    }
}

/// The workflows of one namespace or of all, of one HostedEtcd or of all, the newest first.
///
/// # Errors
/// Those of the API server.
pub async fn workflows(
    cluster: &Objects,
    namespace: Option<&str>,
    hosted: Option<&str>,
) -> Result<Vec<Workflow>> {
    let of = |kind: WorkflowKind| async move {
        let mut params = ListParams::default();
        if let Some(name) = hosted {
            params = params.fields(&format!("spec.clusterRef.name={name}"));
        }
        let found = cluster.list(&kind.kind(), namespace, params, MOST).await?;
        let found = found.whole(&kind.kind(), MOST)?;
        Ok::<_, Error>(found.iter().map(|object| Workflow::new(kind, object)).collect::<Vec<_>>())
    };
    let [backup, restore, migration] = WorkflowKind::ALL;
    let (backups, restores, migrations) = try_join3(of(backup), of(restore), of(migration)).await?;
    let mut all = [backups, restores, migrations].concat();
    all.sort_by(|a, b| (b.created, &b.name).cmp(&(a.created, &a.name)));
    Ok(all)
}

/// One workflow.
///
/// # Errors
/// Those of the API server, or that there is none.
pub async fn workflow(
    cluster: &Objects,
    kind: WorkflowKind,
    namespace: &str,
    name: &str,
) -> Result<(Workflow, Value)> {
    let found = cluster.require(&kind.kind(), namespace, name).await?;
    Ok((Workflow::new(kind, &found), found))
}
