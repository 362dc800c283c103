//! The servers: a kube-apiserver with Shoots in three namespaces, the webhook, and the server that does nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use repot_api::names::CORE_GROUP;
use repot_rules::watch::{ANNOTATION_CHANGES, HomeCluster};
use repot_tests::access::Access;
use repot_tests::garden::Garden;
use repot_tests::process::{Process, Spec};
use repot_tests::repot::{Repot, program};
use repot_tests::wait::until;
use repot_tests::{TestEnv, null_server};
use repot_webhook::manifests::{Reach, render};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Contestant, SIZES, at, objects};
use crate::load::{Line, Shot, Shots};
use crate::servers::start_null_program;

const NAMESPACE: &str = "repot-system";
const SERVICE: &str = "repot-webhook";
/// On a namespace: who is asked about writes in it.
const ASKED: &str = "asked";
/// Namespaces, by who is asked.
const NOBODY: &str = "nobody";
const POLICY: &str = "policy";
const WEBHOOK: &str = "webhook";
const DEADLINE: Duration = Duration::from_secs(60);
const JSON: &str = "application/json";

/// All servers of the comparison, running.
pub struct Servers {
    garden: Garden,
    webhook: Repot,
    null: Process,
    to_webhook: Line,
    to_null: Line,
    to_garden: Line,
}

impl Servers {
    /// Starts everything. Each line has so many connections.
    pub async fn start(env: &TestEnv, connections: usize) -> Result<Self> {
        let garden = Garden::start(env).await?;
        prepare(&garden).await?;
        let webhook = start_webhook(env, &garden).await?;
        garden.apply(&registrations(&garden, webhook.port()?)).await?;
        garden.apply(&objects::policy(ASKED)).await?;
        let (null, port) = start_null_program(env, &garden).await?;
        let direct = |server: String| {
            Line::new(
                &Access {
                    server,
                    ca_pem: garden.pki().serving.pem(),
                    credential: garden.admin().credential.clone(),
                },
                connections,
            )
        };
        let to_webhook = direct(webhook.url().to_owned())?;
        let to_null = direct(format!("https://127.0.0.1:{port}"))?;
        let to_garden = Line::new(garden.admin(), connections)?;
        let servers = Self { garden, webhook, null, to_webhook, to_null, to_garden };
        servers.wait_until_asked().await?;
        Ok(servers)
    }

    /// Process id of the webhook.
    pub fn webhook_pid(&mut self) -> u32 {
        self.webhook.process().pid()
    }

    /// Asks the webhook to stop, as the servers of requests are.
    ///
    /// Errors: when it runs on, or stops with an error.
    pub async fn stop(&mut self) -> Result<()> {
        self.webhook.stop().await
    }

    /// Process ids by program.
    pub fn pids(&mut self) -> [(&'static str, u32); 3] {
        [
            ("repot", self.webhook.process().pid()),
            ("kube-apiserver", self.garden.apiserver().pid()),
            ("null", self.null.pid()),
        ]
    }

    /// Who answers a review.
    pub async fn direct(&self, bytes: usize) -> Result<Vec<Contestant>> {
        let review = objects::review(bytes);
        let answer = self.to_webhook.api().post(&ANNOTATION_CHANGES.path(), &review).await?.ok()?;
        ensure!(at(&answer, "/response/allowed") == &json!(true), "the webhook refuses: {answer}");
        let body = Bytes::from(review.to_string());
        let null = format!("/apis/{}/v1/blobs", null_server::GROUP);
        Ok(vec![
            Contestant::new(
                "Repot",
                self.to_webhook.clone(),
                post(ANNOTATION_CHANGES.path(), body.clone()),
                &["repot"],
            ),
            Contestant::new("reads the body only", self.to_null.clone(), post(null, body), &["null"]),
        ])
    }

    /// Who is asked by kube-apiserver.
    pub async fn through(&self, bytes: usize) -> Result<Vec<Contestant>> {
        let side = |name, namespace, programs| {
            let path = format!("{}?dryRun=All", path(namespace, bytes));
            Contestant::new(name, self.to_garden.clone(), patch(path), programs)
        };
        Ok(vec![
            side("Repot", WEBHOOK, &["repot", "kube-apiserver"]),
            side("ValidatingAdmissionPolicy", POLICY, &["kube-apiserver"]),
            side("nobody is asked", NOBODY, &["kube-apiserver"]),
        ])
    }

    /// What is right goes through everywhere, and what is wrong only where nobody is asked.
    async fn wait_until_asked(&self) -> Result<()> {
        for (namespace, wrong) in [(NOBODY, 200), (POLICY, 422), (WEBHOOK, 403)] {
            until(&format!("namespace {namespace} to be judged"), DEADLINE, async || {
                for bytes in SIZES {
                    let path = format!("{}?dryRun=All", path(namespace, bytes));
                    let send = async |body: &Value| {
                        self.garden.api().patch(&path, "application/merge-patch+json", body).await
                    };
                    let answer = send(&objects::wrong_patch()).await?;
                    ensure!(answer.status == wrong, "{answer}");
                    send(&objects::patch()).await?.ok()?;
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

async fn prepare(garden: &Garden) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in ["crds/garden.yaml", "../deploy/webhooks/distances.yaml"] {
        if file.ends_with("distances.yaml") {
            garden
                .apply(&[
                    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "garden" } }),
                ])
                .await?;
        }
        garden.kubectl(["apply", "-f", &root.join(file).display().to_string()]).await?.text()?;
    }
    garden.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?.text()?;
    let namespace = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": { ASKED: name } } });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "namespace": NAMESPACE, "name": SERVICE },
        "spec": { "type": "ExternalName", "externalName": "localhost" },
    });
    let profile = json!({
        "apiVersion": format!("{CORE_GROUP}/{}", objects::VERSION), "kind": "CloudProfile", "metadata": { "name": "local" },
        "spec": { "regions": [{ "name": "eu", "zones": [{ "name": objects::ZONE.1, "id": objects::ZONE.0 }, { "name": "eu-1b" }] }] },
    });
    let seed = json!({
        "apiVersion": format!("{CORE_GROUP}/{}", objects::VERSION), "kind": "Seed", "metadata": { "name": "a" },
        "spec": { "provider": { "type": "local", "region": "eu", "zones": ["eu-1a", "eu-1b", "eu-1c"] } },
    });
    let mut all: Vec<Value> = [NAMESPACE, NOBODY, POLICY, WEBHOOK].map(namespace).to_vec();
    all.extend([service, profile, seed]);
    garden.apply(&all).await?;
    for name in [NOBODY, POLICY, WEBHOOK] {
        for bytes in SIZES {
            create(garden, name, bytes).await?;
        }
    }
    Ok(())
}

async fn create(garden: &Garden, namespace: &str, bytes: usize) -> Result<()> {
    let shoot = objects::shoot(namespace, bytes);
    let path = path(namespace, bytes);
    let collection = path.rsplit_once('/').map_or("", |(collection, _)| collection);
    garden.api().post(collection, &shoot).await?.ok()?;
    let status = json!({ "status": shoot["status"] });
    garden.api().patch(&format!("{path}/status"), "application/merge-patch+json", &status).await?.ok()?;
    Ok(())
}

async fn start_webhook(env: &TestEnv, garden: &Garden) -> Result<Repot> {
    let dir = env.make_dir("webhook")?;
    let (cert, key) = garden.pki().serve(NAMESPACE, SERVICE)?.write(&dir, "serving")?;
    let kubeconfig = garden.admin().write(dir.join("kubeconfig"))?;
    let args = [
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=0".to_owned(),
        "--serve=garden".to_owned(),
        format!("--tls-cert-file={}", cert.display()),
        format!("--tls-private-key-file={}", key.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
    ];
    Repot::start_program(env, Spec::new("repot-webhook", program()?).arg("webhook").args(args)).await
}

/// The shipped webhook that is asked about isolated zones, for one namespace.
fn registrations(garden: &Garden, port: u16) -> Vec<Value> {
    let ca_bundle = STANDARD.encode(garden.pki().serving.pem());
    let reach = Reach { namespace: NAMESPACE.into(), service: SERVICE.into(), port, url: None, ca_bundle };
    let mut configurations = render(HomeCluster::Garden, &reach);
    configurations.retain(|configuration| configuration["kind"] == "ValidatingWebhookConfiguration");
    for configuration in &mut configurations {
        if let Some(webhooks) = configuration["webhooks"].as_array_mut() {
            webhooks.retain(|webhook| {
                at(webhook, "/clientConfig/service/path") == &json!(ANNOTATION_CHANGES.path())
            });
            for webhook in webhooks {
                webhook["namespaceSelector"] = json!({ "matchLabels": { ASKED: WEBHOOK } });
            }
        }
    }
    configurations
}

fn path(namespace: &str, bytes: usize) -> String {
    format!("/apis/{CORE_GROUP}/{}/namespaces/{namespace}/shoots/s{bytes}", objects::VERSION)
}

fn post(path: String, body: Bytes) -> Shots {
    Arc::new(move |_| Shot {
        method: Method::POST,
        path: path.clone(),
        accept: JSON,
        body: Some(body.clone()),
    })
}

fn patch(path: String) -> Shots {
    let body = Bytes::from(objects::patch().to_string());
    Arc::new(move |_| Shot {
        method: Method::PATCH,
        path: path.clone(),
        accept: JSON,
        body: Some(body.clone()),
    })
}
