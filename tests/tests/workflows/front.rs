//! What stands before the etcd of a fixture, and writes to it, as a Deployment `kube-apiserver`.

use anyhow::{Result, ensure};
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::tls::{CA_FILE, CERT_FILE, Certificates, KEY_FILE};
use super::world::{DEADLINE, TestNamespace};

const NAME: &str = "kube-apiserver";
const LABEL: &str = "app=kube-apiserver";

fn endpoint(ns: &TestNamespace) -> String {
    format!("https://main-client.{}.svc:2379", ns.namespace)
}

fn deployment(mut container: Value, mut volumes: Vec<Value>, mut mounts: Vec<Value>) -> Value {
    let labels = json!({"app": NAME});
    let (of_clients, mounted) = Certificates::mounted();
    volumes.extend(of_clients);
    mounts.extend(mounted);
    container["volumeMounts"] = mounts.into();
    let spec = json!({
        "containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": false,
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    })
}

/// Writes one number after the other, notes what was acknowledged, and is ready while that goes on.
pub fn writer(ns: &TestNamespace) -> Value {
    let dir = ns.dir();
    let script = format!(
        "[ -z \"$STUBBORN\" ] || trap '' TERM
         n=0; [ -e {dir}/acknowledged ] && n=$(cat {dir}/acknowledged)
         while :; do n=$((n+1))
         if etcdctl --endpoints {} --cacert {CA_FILE} --cert {CERT_FILE} --key {KEY_FILE} --command-timeout 2s \\
             put /writer $n >/dev/null; then
           echo $n >{dir}/new && mv {dir}/new {dir}/acknowledged && touch /tmp/ready
         else rm -f /tmp/ready; n=$((n-1)); fi; sleep 0.2; done",
        endpoint(ns),
        dir = dir.display(),
    );
    let container = json!({
        "name": "main", "image": "repot", "command": ["/bin/sh", "-c", script],
        "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
    });
    let volume = json!({"name": "notes", "hostPath": {"path": dir, "type": "DirectoryOrCreate"}});
    deployment(container, vec![volume], vec![json!({"name": "notes", "mountPath": dir})])
}

/// With the keys and certificates of the garden itself, which are good for any API server of this machine.
pub fn kube_apiserver(ns: &TestNamespace) -> Value {
    let pki = ns.world.garden.pki();
    let file = |name: &str| pki.file(name).display().to_string();
    let flags = [
        ("etcd-servers", endpoint(ns)),
        ("etcd-cafile", CA_FILE.to_owned()),
        ("etcd-certfile", CERT_FILE.to_owned()),
        ("etcd-keyfile", KEY_FILE.to_owned()),
        ("secure-port", "6443".to_owned()),
        ("advertise-address", "10.0.0.1".to_owned()),
        ("endpoint-reconciler-type", "none".to_owned()),
        ("service-cluster-ip-range", "10.0.0.0/24".to_owned()),
        ("tls-cert-file", file("apiserver.crt")),
        ("tls-private-key-file", file("apiserver.key")),
        ("client-ca-file", file("client-ca.crt")),
        ("authorization-mode", "RBAC".to_owned()),
        ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
        ("service-account-signing-key-file", file("service-account.key")),
        ("service-account-key-file", file("service-account.pub")),
    ];
    let flags: Vec<_> = flags.iter().map(|(name, value)| format!("--{name}={value}")).collect();
    let dir = pki.file("apiserver.crt");
    let dir = dir.parent();
    let container = json!({
        "name": "main", "image": "kube-apiserver", "args": flags,
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": 6443, "scheme": "HTTPS"}, "periodSeconds": 1, "timeoutSeconds": 5,
        },
    });
    let volume = json!({"name": "pki", "hostPath": {"path": dir}});
    deployment(container, vec![volume], vec![json!({"name": "pki", "mountPath": dir, "readOnly": true})])
}

/// Makes API servers that do not end when they are asked to, and waits until only those are left.
pub async fn make_stubborn(ns: &TestNamespace) -> Result<()> {
    change_pods(ns, json!("yes"), 3600).await?;
    one_is_left(ns).await
}

/// Makes API servers that end again, and waits until only those are left.
pub async fn make_obedient(ns: &TestNamespace) -> Result<()> {
    let stubborn = names(ns).await?;
    change_pods(ns, json!(""), 5).await?;
    for pod in &stubborn {
        kill(ns, pod).await?;
    }
    one_is_left(ns).await
}

/// Deletes a Pod at once.
pub async fn kill(ns: &TestNamespace, pod: &str) -> Result<()> {
    let delete = ["delete", "pod", pod, "--force", "--grace-period=0", "--ignore-not-found"];
    ns.kubectl(&delete).await.map(drop)
}

/// Pods of API servers.
pub async fn names(ns: &TestNamespace) -> Result<Vec<String>> {
    let pods = ns.list("pod", LABEL).await?;
    Ok(pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

async fn change_pods(ns: &TestNamespace, stubborn: Value, grace: u32) -> Result<()> {
    let container = json!({"name": "main", "env": [{"name": "STUBBORN", "value": stubborn}]});
    let template = json!({"spec": {"containers": [container], "terminationGracePeriodSeconds": grace}});
    let patch = json!({"spec": {"template": template}}).to_string();
    ns.kubectl(&["patch", "deployment", NAME, "-p", &patch]).await?;
    ns.kubectl(&["rollout", "status", "deployment/kube-apiserver", "--timeout=120s"]).await.map(drop)
}

async fn one_is_left(ns: &TestNamespace) -> Result<()> {
    until("one API server", DEADLINE, async || {
        let pods = names(ns).await?;
        ensure!(pods.len() == 1, "there are {pods:?}");
        Ok(())
    })
    .await
}
