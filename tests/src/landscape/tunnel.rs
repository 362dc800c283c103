//! The tunnel in a Shoot: agents of konnectivity, and what kube-apiserver reaches only through them.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::Landscape;
use super::control_plane::{ControlPlane, DEADLINE, secret};
use super::konnectivity::{AGENT, AGENT_NAMESPACE, AGENT_PORT, HEALTH_PORT, KUBELET_CLIENT, SERVER};
use super::seed::Seed;
use crate::binaries;
use crate::kubectl::Kubectl;
use crate::pki::write_private;
use crate::pods::Image;
use crate::test_env::TestEnv;
use crate::wait::until;

/// The address of the Service of the webhook and of the aggregated API.
pub const HOOK_IP: Ipv4Addr = Ipv4Addr::new(10, 4, 10, 10);
/// The port of that Service.
pub const HOOK_PORT: u16 = 443;
/// The DNS name of that Service, which its certificate has.
pub const HOOK_NAME: &str = "hook.default.svc";
/// The namespace whose ConfigMaps the webhook admits.
pub const HOOKED: &str = "hooked";
/// The Pod in the namespace `default` for `kubectl exec` and `kubectl logs`.
pub const SERVED: &str = "served";
/// The path of the aggregated API.
pub const PING: &str = "/apis/ping.example.com/v1";
const MOUNT: &str = "/etc/konnectivity";

/// Lets all seeds run servers of konnectivity.
///
/// Errors: when the program was not built.
pub(super) fn add_image(landscape: &Landscape) -> Result<()> {
    let image = Image::of(binaries::find(SERVER)?);
    landscape.seeds.iter().for_each(|seed| seed.runner.images().add(SERVER, image.clone()));
    Ok(())
}

impl ControlPlane {
    /// kubectl as an administrator at the address of a seed, whatever the DNS record says.
    pub async fn kubectl_at(&self, env: &TestEnv, seed: &Seed) -> Result<Kubectl> {
        let file = env.make_dir("shoot-kubeconfig")?.join("kubeconfig");
        Kubectl::new(env, write_private(file, &self.kubeconfig_at(seed).await?)?)
    }

    /// Deploys agents into the Shoot, with a webhook, an aggregated API and a Pod to reach through them, and waits until all are reached.
    pub(super) async fn deploy_tunnel(&self, env: &TestEnv, seed: &Seed, node: &str) -> Result<()> {
        let kubectl = self.kubectl_at(env, seed).await?;
        kubectl.apply(&self.agents()?).await?;
        let agents = format!("deployment/{AGENT}");
        let timeout = format!("--timeout={}s", DEADLINE.as_secs());
        kubectl.run(["rollout", "status", &agents, "-n", AGENT_NAMESPACE, &timeout]).await?.text()?;
        self.roll_out(seed, SERVER).await?;
        kubectl.apply(&self.behind_tunnel(node)).await?;
        until("the aggregated API to be available", DEADLINE, async || {
            let answer = self.api_at(seed).await?.get(PING).await?;
            ensure!(answer.status == 200, "{answer}");
            Ok(())
        })
        .await
    }

    /// The agents: a Secret, and a Deployment that the annotation of the server names.
    fn agents(&self) -> Result<[Value; 2]> {
        let client = self.authorities.client.client(AGENT, &[])?;
        let mut files = secret(
            AGENT,
            &[
                ("ca.crt", &self.authorities.cluster.pem()),
                ("tls.crt", &client.cert_pem),
                ("tls.key", &client.key_pem),
            ],
        );
        files["metadata"]["namespace"] = AGENT_NAMESPACE.into();
        let labels = json!({"app": AGENT});
        let container = json!({
            "name": AGENT, "image": AGENT, "args": self.agent_args(),
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": HEALTH_PORT}, "periodSeconds": 1, "failureThreshold": 1},
            "volumeMounts": [{"name": "files", "mountPath": MOUNT}],
        });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": AGENT_NAMESPACE, "name": AGENT, "labels": labels},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "automountServiceAccountToken": false, "containers": [container],
                    // An agent only stops to take new connections at the first signal.
                    "terminationGracePeriodSeconds": 3,
                    "volumes": [{"name": "files", "secret": {"secretName": AGENT}}],
                }},
            },
        });
        Ok([files, deployment])
    }

    fn agent_args(&self) -> Vec<String> {
        let file = |name: &str| format!("{MOUNT}/{name}");
        let flags = [
            ("proxy-server-host", self.shoot.api_domain()),
            ("proxy-server-port", AGENT_PORT.to_string()),
            ("ca-cert", file("ca.crt")),
            ("agent-cert", file("tls.crt")),
            ("agent-key", file("tls.key")),
            ("sync-interval", "500ms".to_owned()),
            ("sync-interval-cap", "2s".to_owned()),
            // Otherwise an agent with a server looks for no other one.
            ("sync-forever", "true".to_owned()),
            ("probe-interval", "500ms".to_owned()),
            ("health-server-port", HEALTH_PORT.to_string()),
            ("v", "2".to_owned()),
        ];
        flags.map(|(name, value)| format!("--{name}={value}")).into()
    }

    /// What kube-apiserver reaches through the tunnel.
    fn behind_tunnel(&self, node: &str) -> Vec<Value> {
        let rbac = "rbac.authorization.k8s.io";
        let kubelets = json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": KUBELET_CLIENT},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": KUBELET_CLIENT}],
        });
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOOKED}});
        let served = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": SERVED},
            "spec": {
                "nodeName": node, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": SERVED, "image": SERVED}],
            },
        });
        let mut objects = vec![kubelets, namespace, served];
        objects.extend(hook_service());
        objects.extend(self.hook_registrations());
        objects
    }

    fn hook_registrations(&self) -> [Value; 2] {
        use base64::Engine as _;
        let ca = base64::engine::general_purpose::STANDARD.encode(self.authorities.cluster.pem());
        let service = |path: Option<&str>| json!({"namespace": "default", "name": "hook", "port": HOOK_PORT, "path": path});
        let webhook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "hook"},
            "webhooks": [{
                "name": "hook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "timeoutSeconds": 5,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": HOOKED}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
                "clientConfig": {"service": service(Some("/validate")), "caBundle": ca},
            }],
        });
        let aggregated = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.ping.example.com"},
            "spec": {
                "group": "ping.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
                "service": {"namespace": "default", "name": "hook", "port": HOOK_PORT}, "caBundle": ca,
            },
        });
        [webhook, aggregated]
    }
}

/// A Service without a selector: what serves it is no Pod. kube-apiserver wants an endpoint all the same.
fn hook_service() -> [Value; 2] {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": "hook"},
        "spec": {"clusterIP": HOOK_IP, "ports": [{"name": "https", "port": HOOK_PORT}]},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": "hook", "labels": {"kubernetes.io/service-name": "hook"}},
        "ports": [{"name": "https", "port": HOOK_PORT}],
        "endpoints": [{"addresses": ["10.250.0.1"], "conditions": {"ready": true}}],
    });
    [service, slice]
}
