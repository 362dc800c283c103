//! Parts of control planes as Pods of a runtime cluster: a Deployment of one container each, with its files and its Service.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::NAMESPACE;
use crate::binaries;
use crate::install::World;
use crate::pods::Image;

/// Where each Pod has the Secret of its own name.
const FILES: &str = "/etc/garden";

/// Files of a Pod by their names.
pub(super) type Files = Vec<(&'static str, String)>;

/// A Deployment of one container, the Secret with its files, and its Service.
pub(super) struct Component {
    pub name: &'static str,
    pub program: &'static str,
    pub flags: Vec<String>,
    pub files: Files,
    /// Scheme, port and path of the probe, which is the port of the Service.
    pub probe: (&'static str, u16, &'static str),
}

/// Applies components, and waits until their Pods are ready.
pub(super) async fn deploy(runtime: &World<'_>, components: &[Component]) -> Result<()> {
    for component in components {
        runtime.runner.images().add(component.program, Image::of(binaries::find(component.program)?));
        runtime.garden.apply(&component.objects()).await?;
    }
    for component in components {
        let name = format!("deployment/{}", component.name);
        runtime.kubectl(&["rollout", "status", &name, "-n", NAMESPACE, "--timeout=120s"]).await?;
    }
    Ok(())
}

impl Component {
    fn objects(&self) -> [Value; 3] {
        let Self { name, program, flags, files, probe: (scheme, port, path) } = self;
        let labels = json!({"app": name});
        let files: Map<String, Value> =
            files.iter().map(|(file, text)| ((*file).to_owned(), text.as_str().into())).collect();
        let container = json!({
            "name": program, "image": program, "args": flags,
            "volumeMounts": [{"name": "files", "mountPath": FILES}, {"name": "data", "mountPath": "/data"}],
            "readinessProbe": {"httpGet": {"path": path, "port": port, "scheme": scheme}, "periodSeconds": 1},
        });
        let spec = json!({
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 5, "containers": [container],
            "volumes": [{"name": "files", "secret": {"secretName": name}}, {"name": "data", "emptyDir": {}}],
        });
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        [
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": files}),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {"selector": labels, "ports": [{"name": "main", "port": port}]},
            }),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": spec},
                },
            }),
        ]
    }
}

/// The path of a file of a component.
pub(super) fn file(name: &str) -> String {
    format!("{FILES}/{name}")
}

pub(super) fn flags(all: &[(&str, String)]) -> Vec<String> {
    all.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}
