//! Clients of the tunnel in the Shoot: the usual one, and a temporary copy of it that dials another host.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Container, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{LogParams, PostParams},
    core::ObjectMeta,
};
use repot_plan::migration::observed::{MigrationMode, MigrationRequest, TunnelClient};

use super::{
    delete_all,
    exposure::short,
    read::list,
    tunnel::{ClientName, Tunnel},
    workloads::is_ready,
};
use crate::migration::{
    error::{Error, Result},
    names::{MADE_BY, MANAGER},
};

/// How long Pods of a temporary client may take to end, at least: the default of Kubernetes.
const GRACE_SECONDS: i64 = 30;

/// Who has made a temporary client.
#[derive(Clone, Copy, Debug)]
pub enum Maker<'a> {
    /// The migration with this UID.
    Migration(&'a str),
    /// Any migration: a forced one goes on where another one has stopped.
    Any,
}

impl<'a> Maker<'a> {
    /// Whose clients a migration looks after.
    #[must_use]
    pub fn of(request: &'a MigrationRequest) -> Self {
        match request.mode {
            MigrationMode::Forced => Self::Any,
            MigrationMode::Classic | MigrationMode::Live => Self::Migration(&request.uid),
        }
    }

    /// The label selector of its objects.
    fn selector(self) -> String {
        match self {
            Self::Migration(uid) => format!("{MADE_BY}={uid}"),
            Self::Any => MADE_BY.to_owned(),
        }
    }
}

/// Deployments of clients in the Shoot, as they were observed.
pub struct Clients {
    usual: Option<Deployment>,
    /// The first one of those that `Maker` has made.
    temporary: Option<Deployment>,
}

impl Clients {
    /// Reads them in the Shoot.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn read(shoot: &Client, client: &ClientName, maker: Maker<'_>) -> Result<Self> {
        let all = Api::<Deployment>::namespaced(shoot.clone(), &client.namespace);
        let what = || format!("Deployment {} of the Shoot", client.name);
        let usual = all.get_opt(&client.name).await.map_err(Error::read(what()))?;
        let temporary = made_by(shoot, &client.namespace, maker).await?.into_iter().next();
        Ok(Self { usual, temporary })
    }

    /// How far the usual client is.
    #[must_use]
    pub fn usual(&self) -> TunnelClient {
        state(self.usual.as_ref())
    }

    /// How far the temporary client is.
    #[must_use]
    pub fn temporary(&self) -> TunnelClient {
        state(self.temporary.as_ref())
    }
}

fn state(deployment: Option<&Deployment>) -> TunnelClient {
    let Some(deployment) = deployment else { return TunnelClient::Absent };
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let is_current = status.observed_generation >= deployment.metadata.generation;
    let [all, updated, ready] =
        [status.replicas, status.updated_replicas, status.ready_replicas].map(Option::unwrap_or_default);
    match is_current && wanted > 0 && [all, updated, ready] == [wanted; 3] {
        true => TunnelClient::Ready,
        false => TunnelClient::Starting,
    }
}

async fn made_by(shoot: &Client, namespace: &str, maker: Maker<'_>) -> Result<Vec<Deployment>> {
    list::<Deployment>(shoot, namespace, &maker.selector()).await
}

/// Makes the temporary client, a copy of the usual one that dials `host`.
///
/// # Errors
/// [`Error::Missing`] where there is no usual client, or where it does not dial the host of the annotation; [`Error::Foreign`] where
/// somebody else has made a Deployment of that name.
pub async fn ensure(shoot: &Client, tunnel: &Tunnel, host: &str, migration: &str) -> Result<()> {
    let ClientName { namespace, name } = &tunnel.client;
    let all = Api::<Deployment>::namespaced(shoot.clone(), namespace);
    let what = format!("Deployment {name} of the Shoot");
    let usual = all.get_opt(name).await.map_err(Error::read(&*what))?.ok_or(Error::Missing(what))?;
    let copy = temporary(&usual, tunnel, host, migration)?;
    let own = copy.name_any();
    match all.get_opt(&own).await.map_err(Error::read(format!("Deployment {own} of the Shoot")))? {
        Some(found) if found.labels().get(MADE_BY).map(String::as_str) == Some(migration) => Ok(()),
        Some(_) => Err(Error::Foreign(format!("Deployment {own} of the Shoot"))),
        None => {
            let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
            let made = all.create(&params, &copy).await;
            made.map(drop).map_err(Error::write(format!("create Deployment {own} in the Shoot")))
        }
    }
}

/// Deletes all temporary clients that `maker` has made in the namespace of the usual one. Their Pods have their grace period to end.
///
/// # Errors
/// [`Error::Write`]; the next pass goes on.
pub async fn remove(shoot: &Client, client: &ClientName, maker: Maker<'_>) -> Result<()> {
    let found = made_by(shoot, &client.namespace, maker).await?;
    let all = Api::<Deployment>::namespaced(shoot.clone(), &client.namespace);
    delete_all(&all, "Deployment", found.iter()).await
}

/// Reads a byte of the log of the temporary client. Kubelets have it, so a kube-apiserver that gives it reaches nodes by the tunnel.
///
/// # Errors
/// Why there is none.
pub async fn read_log(shoot: &Client, namespace: &str, maker: Maker<'_>) -> Result<()> {
    let pods = list::<Pod>(shoot, namespace, &maker.selector()).await?;
    let missing = || Error::Missing("a Pod of the temporary client that is ready".to_owned());
    let pod = pods.iter().find(|pod| is_ready(pod)).ok_or_else(missing)?;
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let params = LogParams {
        container: container.map(|container| container.name.clone()),
        limit_bytes: Some(1),
        ..LogParams::default()
    };
    let name = pod.name_any();
    let log = Api::<Pod>::namespaced(shoot.clone(), namespace).logs(&name, &params).await;
    log.map(drop).map_err(Error::read(format!("the log of Pod {name} of the Shoot")))
}

/// The copy. It keeps the labels of the usual client, which policies of networks may select.
fn temporary(usual: &Deployment, tunnel: &Tunnel, host: &str, migration: &str) -> Result<Deployment> {
    let mark = (MADE_BY.to_owned(), migration.to_owned());
    let missing = || Error::Missing("spec of the client of the tunnel".to_owned());
    let mut spec = usual.spec.clone().ok_or_else(missing)?;
    spec.selector.match_labels.get_or_insert_default().extend([mark.clone()]);
    let labels = &mut spec.template.metadata.get_or_insert_default().labels;
    labels.get_or_insert_default().extend([mark.clone()]);
    let pod = spec.template.spec.get_or_insert_default();
    // What goes through it has time to end when it is deleted.
    let grace = pod.termination_grace_period_seconds.unwrap_or_default();
    pod.termination_grace_period_seconds = Some(grace.max(GRACE_SECONDS));
    let containers = pod.init_containers.iter_mut().flatten().chain(&mut pod.containers);
    let found: usize = containers.map(|container| redirect(container, &tunnel.host, host)).sum();
    if found == 0 {
        let what = "in a command, an argument or the environment of the client of the tunnel";
        return Err(Error::Missing(format!("host {} {what}", tunnel.host)));
    }
    Ok(Deployment {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", usual.name_any(), short(migration))),
            namespace: usual.namespace(),
            labels: Some([mark].into()),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    })
}

/// Lets a container dial another host; gives in how many places it did.
fn redirect(container: &mut Container, from: &str, to: &str) -> usize {
    let words = container.command.iter_mut().chain(&mut container.args).flatten();
    let values = container.env.iter_mut().flatten().filter_map(|variable| variable.value.as_mut());
    words.chain(values).map(|text| replace_host(text, from, to)).sum()
}

/// Replaces a host where it stands alone, and not as a part of a longer name; gives how often it did.
fn replace_host(text: &mut String, from: &str, to: &str) -> usize {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let (mut out, mut rest, mut count) = (String::new(), text.as_str(), 0);
    while let Some(at) = rest.find(from) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        let goes_on = after.strip_prefix('.').unwrap_or(after).starts_with(is_of_name);
        let begins = !(before.ends_with(is_of_name) || (before.is_empty() && out.ends_with(is_of_name)));
        out.push_str(before);
        out.push_str(if begins && !goes_on { to } else { from });
        count += usize::from(begins && !goes_on);
        rest = after;
    }
    out.push_str(rest);
    *text = out;
    count
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::migration::{api::ControlPlaneMigration, request::request};

    const HOST: &str = "api.a.example.com";

    fn tunnel() -> Tunnel {
        let client = ClientName { namespace: "kube-system".to_owned(), name: "agent".to_owned() };
        Tunnel { service: "kube-apiserver".to_owned(), client, host: HOST.to_owned() }
    }

    fn usual(container: &serde_json::Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "agent", "namespace": "kube-system", "uid": "u", "labels": {"managed": "true"}},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"app": "agent"}},
                "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [container]}},
            },
        }))
        .expect("a Deployment")
    }

    #[test]
    fn temporary_client_is_a_copy_that_dials_another_host() {
        let container = json!({
            "name": "c", "args": ["--host=api.a.example.com", "--port=8132"],
            "env": [{"name": "ENDPOINT", "value": "https://api.a.example.com:8443"}],
        });
        let copy = temporary(&usual(&container), &tunnel(), "tunnel-1.b.example.com", "1-2").expect("a copy");
        let copy = serde_json::to_value(copy).expect("JSON");
        let labels = json!({"app": "agent", MADE_BY: "1-2"});
        assert_eq!(
            copy["metadata"],
            json!({
                "name": "agent-12", "namespace": "kube-system", "labels": {MADE_BY: "1-2"},
            })
        );
        assert_eq!(
            (&copy["spec"]["selector"]["matchLabels"], &copy["spec"]["replicas"]),
            (&labels, &json!(2))
        );
        assert_eq!(copy["spec"]["template"]["metadata"]["labels"], labels);
        assert_eq!(copy["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], GRACE_SECONDS);
        let container = &copy["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["args"], json!(["--host=tunnel-1.b.example.com", "--port=8132"]));
        assert_eq!(container["env"][0]["value"], "https://tunnel-1.b.example.com:8443");
    }

    #[test]
    fn forced_migration_looks_after_clients_of_any_migration() {
        let of = |mode| -> MigrationRequest {
            let migration = json!({
                "metadata": {"name": "m", "namespace": "n", "uid": "1-2"},
                "spec": {"shootRef": {"name": "s"}, "sourceSeed": "a", "destinationSeed": "b", "mode": mode},
            });
            let migration: ControlPlaneMigration = serde_json::from_value(migration).expect("a migration");
            request(&migration, None)
        };
        assert_eq!(Maker::of(&of("Live")).selector(), format!("{MADE_BY}=1-2"));
        assert_eq!(Maker::of(&of("Forced")).selector(), MADE_BY);
    }

    #[test]
    fn client_that_does_not_dial_the_host_is_not_copied() {
        let copy = temporary(&usual(&json!({"name": "c", "args": ["--host=other"]})), &tunnel(), "t", "m");
        let error = copy.expect_err("an error").to_string();
        assert!(error.contains(HOST), "{error}");
    }

    #[test]
    fn host_is_replaced_where_it_stands_alone() {
        for (text, wanted) in [
            ("api.a.example.com", "t"),
            ("api.a.example.com.", "t."),
            ("https://api.a.example.com:443/x,api.a.example.com", "https://t:443/x,t"),
            ("kube-api.a.example.com", "kube-api.a.example.com"),
            ("api.a.example.com.org", "api.a.example.com.org"),
            ("api.a.example.comapi.a.example.com", "api.a.example.comapi.a.example.com"),
        ] {
            let mut replaced = text.to_owned();
            let count = replace_host(&mut replaced, HOST, "t");
            assert_eq!((replaced.as_str(), count > 0), (wanted, wanted != text));
        }
    }

    #[test]
    fn client_is_ready_when_all_of_its_current_pods_are() {
        let deployment = |generation: i64, replicas: [i32; 3]| -> Deployment {
            let [all, updated, ready] = replicas;
            let status = json!({
                "observedGeneration": 2, "replicas": all, "updatedReplicas": updated, "readyReplicas": ready,
            });
            let mut deployment = usual(&json!({"name": "c"}));
            deployment.metadata.generation = Some(generation);
            deployment.status = serde_json::from_value(status).ok();
            deployment
        };
        assert_eq!(state(None), TunnelClient::Absent);
        assert_eq!(state(Some(&deployment(2, [2, 2, 2]))), TunnelClient::Ready);
        for (generation, replicas) in [(3, [2, 2, 2]), (2, [2, 2, 1]), (2, [3, 2, 2]), (2, [2, 1, 2])] {
            assert_eq!(
                state(Some(&deployment(generation, replicas))),
                TunnelClient::Starting,
                "{replicas:?}"
            );
        }
    }
}
