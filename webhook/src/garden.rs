//! A garden as `repot preflight` asks it: once, as the user of a kubeconfig, and without an effect.

use std::path::{Path, PathBuf};

use http::{Method, Request, header};
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use repot_api::gardener::shoot::Shoot;
use repot_api::names::{CORE_GROUP, GARDEN_NAMESPACE, LIVE_MIGRATE};
use repot_apimachinery::value::annotation_of;
use repot_rules::{change::Change, preflight};
use serde_json::Value;

const VERSION: &str = "v1beta1";
/// What gardener-apiserver says while live migrations are switched off (ShootValidator of Gardener 1.150).
const GATE: &str = "LiveControlPlaneMigration";

/// Why a garden gives no answer. Each names the server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be read.
    #[error("failed to read kubeconfig {path}")]
    Kubeconfig {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// There is no kubeconfig, and no Pod around.
    #[error(
        "neither a kubeconfig nor a Pod's ServiceAccount tells which cluster to ask; name one by --kubeconfig"
    )]
    NoCluster(#[source] Box<kube::config::InClusterError>),
    /// No client can be made of it.
    #[error("failed to make a client for {server}")]
    Client {
        /// Its URL.
        server: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The user has not the rights to gather the facts.
    #[error(
        "forbidden: {message} (server {server}); ask an operator for the rights of ClusterRole repot-webhook"
    )]
    Forbidden {
        /// Its URL.
        server: String,
        /// The words of the server.
        message: String,
    },
    /// The server does not answer, or not as it should.
    #[error("failed to read {what} from {server}")]
    Read {
        /// Its URL.
        server: String,
        /// What was asked for.
        what: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
}

/// What the server's dry run says of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// It would go through.
    Accepted,
    /// It would be refused, in the words of the server. Gardener's own plugins speak first, and end at the first reason.
    Denied(String),
    /// The server was not asked, or would not tell, and why.
    NotAsked(String),
}

/// A server and the user who asks it.
pub struct Garden {
    client: Client,
    server: String,
}

impl Garden {
    /// Reads a kubeconfig; without one, what a Pod knows. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::Kubeconfig`], [`Error::NoCluster`], [`Error::Client`].
    pub async fn connect(kubeconfig: Option<&Path>) -> Result<Self, Error> {
        let config = match kubeconfig {
            None => Config::incluster().map_err(|source| Error::NoCluster(Box::new(source)))?,
            Some(path) => {
                let failed = |source| Error::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
                let file = Kubeconfig::read_from(path).map_err(failed)?;
                let options = KubeConfigOptions::default();
                Config::from_custom_kubeconfig(file, &options).await.map_err(failed)?
            }
        };
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let failed = |source| Error::Client { server: server.clone(), source: Box::new(source) };
        let client = Client::try_from(config).map_err(failed)?;
        Ok(Self { client, server })
    }

    /// With this client; `server` is what messages call it.
    #[must_use]
    pub fn of(client: Client, server: &str) -> Self {
        Self { client, server: server.to_owned() }
    }

    /// URL of the API server, without a slash at the end.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Asks for one object of each kind that facts are gathered from, so that missing rights are told at once.
    ///
    /// # Errors
    /// [`Error::Forbidden`], [`Error::Read`].
    pub async fn check_access(&self) -> Result<(), Error> {
        let kinds = [
            ("Shoot", "shoots"),
            ("Seed", "seeds"),
            ("CloudProfile", "cloudprofiles"),
            ("Project", "projects"),
        ];
        for (kind, plural) in kinds {
            let resource = resource(CORE_GROUP, VERSION, kind, plural);
            self.list_one(&Api::all_with(self.client.clone(), &resource), plural).await?;
        }
        let maps = resource("", "v1", "ConfigMap", "configmaps");
        self.list_one(&Api::namespaced_with(self.client.clone(), GARDEN_NAMESPACE, &maps), "configmaps").await
    }

    async fn list_one(&self, api: &Api<DynamicObject>, plural: &str) -> Result<(), Error> {
        let one = ListParams::default().limit(1);
        api.list(&one).await.map(drop).map_err(|source| self.failed(plural, source))
    }

    fn failed(&self, what: &str, source: kube::Error) -> Error {
        let server = self.server.clone();
        match &source {
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
                Error::Forbidden { server, message: status.message.clone() }
            }
            _ => Error::Read { server, what: what.to_owned(), source: Box::new(source) },
        }
    }

    /// Sends the write of a [`preflight`] change as a dry run: to the Shoot as it is in the garden now.
    ///
    /// # Errors
    /// [`Error::Forbidden`], [`Error::Read`].
    pub async fn dry_run(&self, change: &Change) -> Result<DryRun, Error> {
        let (target, to) = (&change.target, Shoot(&change.new).spec_seed().unwrap_or_default());
        if target.namespace.is_empty() || target.name.is_empty() {
            return Ok(DryRun::NotAsked(
                "the manifest does not tell the namespace and name of the Shoot".to_owned(),
            ));
        }
        let shoots = resource(CORE_GROUP, VERSION, "Shoot", "shoots");
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &target.namespace, &shoots);
        let found = api.get_opt(&target.name).await.map_err(|source| self.failed("the Shoot", source))?;
        let Some(shoot) = found else {
            return Ok(DryRun::NotAsked("the Shoot is not in this garden".to_owned()));
        };
        let shoot = serde_json::to_value(shoot).unwrap_or_default();
        let live = annotation_of(&change.new, LIVE_MIGRATE) != annotation_of(&change.old, LIVE_MIGRATE);
        let write = preflight::change(&shoot, to, live, target.subresource == "binding");
        let mut path =
            format!("/apis/{CORE_GROUP}/{VERSION}/namespaces/{}/shoots/{}", target.namespace, target.name);
        if !target.subresource.is_empty() {
            path = format!("{path}/{}", target.subresource);
        }
        let request = Request::builder()
            .method(Method::PUT)
            .uri(format!("{path}?dryRun=All"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(write.new.to_string().into_bytes());
        let Ok(request) = request else {
            return Ok(DryRun::NotAsked(format!("{path} is no path of a Shoot")));
        };
        answer(self.client.request::<Value>(request).await)
            .map_err(|source| self.failed("the dry run", source))
    }
}

/// What an answer to a dry run means. Only the server's own refusals are answers; all else is a failure.
fn answer(answer: kube::Result<Value>) -> kube::Result<DryRun> {
    let status = match answer {
        Ok(_) => return Ok(DryRun::Accepted),
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 401 => status,
        // A webhook or a plugin that cannot decide denies as well.
        Err(kube::Error::Api(status)) if status.code == 500 => status,
        Err(error) => return Err(error),
    };
    Ok(match is_without_rights(&status.message) {
        true => DryRun::NotAsked(status.message.clone()),
        false => DryRun::Denied(status.message.clone()),
    })
}

/// Whether authorization refused, not admission: both are 403, and only the words differ (apiserver's
/// `pkg/endpoints/handlers/responsewriters/errors.go`).
fn is_without_rights(message: &str) -> bool {
    message.contains(" is forbidden: User ") && message.contains(" cannot update resource ")
}

impl DryRun {
    /// What a person can do about a refusal that says little; none where the server's words do.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        match self {
            Self::Denied(message) if message.contains(GATE) => Some(format!(
                "this garden has live migrations switched off, which is Gardener's default: start gardener-apiserver with \
                 --feature-gates={GATE}=true, or move the Shoot with downtime"
            )),
            Self::NotAsked(message) if is_without_rights(message) => {
                Some("ask as a user who may update shoots/binding".to_owned())
            }
            _ => None,
        }
    }
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;
    use crate::scripted::status;

    fn denied(code: u16, message: &str) -> kube::Result<DryRun> {
        let status = Status { code, message: message.to_owned(), ..Status::default() };
        answer(Err(kube::Error::Api(Box::new(status))))
    }

    #[test]
    fn tells_refusals_of_admission_from_missing_rights_and_failures() {
        assert_eq!(answer(Ok(json!({}))).expect("an answer"), DryRun::Accepted);
        let rights = "shoots.core.gardener.cloud \"s\" is forbidden: User \"alice\" cannot update resource \
                      \"shoots/binding\" in API group \"core.gardener.cloud\" in the namespace \"garden-p\"";
        let missing = denied(403, rights).expect("an answer");
        assert_eq!(missing, DryRun::NotAsked(rights.to_owned()));
        assert!(missing.advice().is_some_and(|advice| advice.contains("shoots/binding")));
        let backup = "shoots.core.gardener.cloud \"s\" is forbidden: cannot change seed name because backup is not configured";
        assert_eq!(denied(403, backup).expect("an answer"), DryRun::Denied(backup.to_owned()));
        assert!(matches!(denied(409, "the object has been modified"), Ok(DryRun::Denied(_))));
        assert!(denied(401, "Unauthorized").is_err() && denied(503, "not ready").is_err());
    }

    #[test]
    fn says_what_to_do_about_the_feature_gate() {
        let gate = "metadata.annotations[migration.gardener.cloud/live-migrate]: Forbidden: the \
                    \"LiveControlPlaneMigration\" feature gate is disabled in gardener-apiserver";
        let advice = denied(403, gate).expect("an answer").advice().expect("advice");
        assert!(advice.contains("--feature-gates=LiveControlPlaneMigration=true"), "{advice}");
        assert_eq!(DryRun::Denied("else".to_owned()).advice(), None);
    }

    fn garden(answer: crate::scripted::Answer) -> (Garden, crate::scripted::Asked) {
        let (client, asked) = crate::scripted::client(answer);
        (Garden { client, server: "https://garden.example.com".to_owned() }, asked)
    }

    #[tokio::test]
    async fn says_at_once_what_is_forbidden_and_by_which_server() {
        let (garden, asked) = garden(|path| match path.ends_with("/seeds") {
            true => status(
                403,
                "seeds.core.gardener.cloud is forbidden: User \"alice\" cannot list resource \"seeds\"",
            ),
            false => (200, json!({"metadata": {}, "items": []})),
        });
        let said = garden.check_access().await.expect_err("no rights").to_string();
        assert!(
            said.starts_with("forbidden: seeds.core.gardener.cloud is forbidden: User \"alice\""),
            "{said}"
        );
        assert!(said.contains("https://garden.example.com"), "{said}");
        assert_eq!(asked.lock().len(), 2, "nothing is asked after the first refusal");
    }

    #[tokio::test]
    async fn names_the_server_that_does_not_answer_as_it_should() {
        let (garden, _) = garden(|_| status(503, "not ready"));
        let said = garden.check_access().await.expect_err("no answer").to_string();
        assert_eq!(said, "failed to read shoots from https://garden.example.com");
    }

    #[tokio::test]
    async fn sends_the_binding_of_the_shoot_as_it_is_now_as_a_dry_run() {
        let (garden, asked) = garden(|_| {
            (
                200,
                json!({
                    "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
                    "metadata": {"namespace": "garden-p", "name": "s", "resourceVersion": "9", "labels": {"now": "yes"}},
                    "spec": {"seedName": "a"},
                }),
            )
        });
        let old = json!({"metadata": {"namespace": "garden-p", "name": "s"}, "spec": {"seedName": "a"}});
        let change = preflight::change(&old, "b", true, true);
        assert_eq!(garden.dry_run(&change).await.expect("an answer"), DryRun::Accepted);
        let (method, path, body) = asked.lock().pop().expect("a write");
        assert_eq!(method, "PUT");
        assert!(path.ends_with("/namespaces/garden-p/shoots/s/binding?dryRun=All"), "{path}");
        assert_eq!(
            (&body["spec"]["seedName"], &body["metadata"]["resourceVersion"]),
            (&json!("b"), &json!("9"))
        );
        assert_eq!(body["metadata"]["annotations"]["migration.gardener.cloud/live-migrate"], "true");
        assert_eq!(body["metadata"]["labels"]["now"], "yes");
    }

    #[tokio::test]
    async fn asks_no_dry_run_about_a_shoot_that_is_not_there() {
        let (garden, asked) = garden(|_| status(404, "not found"));
        let old = json!({"metadata": {"namespace": "garden-p", "name": "s"}, "spec": {"seedName": "a"}});
        let said = garden.dry_run(&preflight::change(&old, "b", false, true)).await.expect("an answer");
        assert!(matches!(said, DryRun::NotAsked(_)), "{said:?}");
        assert_eq!(asked.lock().len(), 1);
    }
}
