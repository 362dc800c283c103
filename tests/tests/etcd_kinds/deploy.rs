//! What `deploy/` holds is enough to run the server, and no more than it says for its users.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_tests::access::Credential;
use repot_tests::aggregate::Aggregation;
use repot_tests::garden::Garden;
use repot_tests::repot::Repot;
use repot_tests::{TestEnv, run, wait};
use serde_json::json;

use super::world::{self, GROUP, VERSION, flags};

const NAMESPACE: &str = "repot-system";
const SERVICE: &str = "repot-apiserver";

fn deploy(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(part)
}

#[test]
fn what_is_deployed_is_enough_to_serve() {
    run(async |env| {
        let garden = Garden::start(env).await?;
        let applied = garden.kubectl(["apply", "-f", &deploy("rbac").display().to_string()]).await?;
        applied.text()?;
        let repot = start(env, &garden).await?;
        register(&garden, repot.port()?).await?;
        let collection = world::collection("hostedetcds");
        let created = garden.api().post(&collection, &world::hosted_etcd("main")).await?;
        ensure!(created.status == 201, "{created}");
        users(&garden).await
    });
}

/// The server as the ServiceAccount of `deploy/`, with nothing else.
async fn start(env: &TestEnv, garden: &Garden) -> Result<Repot> {
    let dir = env.make_dir("deployed")?;
    let token = garden.kubectl(["create", "token", SERVICE, "-n", NAMESPACE]).await?.text()?;
    let credential = Credential::Token(token.trim().to_owned());
    let kubeconfig = garden.admin().with(credential).write(dir.join("kubeconfig"))?;
    let (cert, key) = garden.pki().serve(NAMESPACE, SERVICE)?.write(&dir, "serving")?;
    let mut args = flags(env)?;
    for (flag, file) in [
        ("tls-cert-file", &cert),
        ("tls-private-key-file", &key),
        ("authentication-kubeconfig", &kubeconfig),
        ("authorization-kubeconfig", &kubeconfig),
    ] {
        args.push(format!("--{flag}={}", file.display()));
    }
    args.push("--serve=seed".to_owned());
    Repot::apiserver(env, args).await
}

/// The APIService of `deploy/`; the Service is a name on this machine, since there are no Pods.
async fn register(garden: &Garden, port: u16) -> Result<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": NAMESPACE, "name": SERVICE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    garden.apply(&[service]).await?;
    let ca_pem = garden.pki().serving.pem();
    let text = std::fs::read_to_string(deploy("apiservices/migration.yaml"))?;
    let filled =
        text.replace("CA_BUNDLE", &STANDARD.encode(&ca_pem)).replace("port: 443", &format!("port: {port}"));
    ensure!(filled != text, "there is nothing to fill in");
    garden.kubectl_tool().run_with(["apply", "-f", "-"], filled.as_bytes()).await?.text()?;
    let place = Aggregation {
        group: GROUP,
        version: VERSION,
        namespace: NAMESPACE,
        service: SERVICE,
        port,
        ca_pem: &ca_pem,
    };
    place.wait_until_available(garden).await
}

async fn users(garden: &Garden) -> Result<()> {
    for role in ["viewer", "operator", "controller"] {
        let role = format!("repot-etcd-{role}");
        let args = [
            "create",
            "clusterrolebinding",
            &role,
            &format!("--clusterrole={role}"),
            &format!("--user={role}"),
        ];
        garden.kubectl(args).await?.text()?;
    }
    for (user, verb, resource, answer) in [
        ("viewer", "list", "etcdbackups", "yes"),
        ("viewer", "update", "etcdbackups", "no"),
        ("operator", "create", "etcdmigrations", "yes"),
        ("operator", "patch", "etcdmigrations/status", "no"),
        ("controller", "patch", "etcdmigrations/status", "yes"),
        ("controller", "create", "etcdmigrations", "no"),
    ] {
        let user = format!("--as=repot-etcd-{user}");
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, subresource) = (format!("{resource}.{GROUP}"), format!("--subresource={subresource}"));
        let args = ["auth", "can-i", verb, &resource, &subresource, &user];
        // Bindings come into force a little after they are made.
        wait::until(&format!("{user} {verb} {resource}"), Duration::from_secs(20), async || {
            let said = garden.kubectl(args).await?;
            let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
            ensure!(said == answer, "{said}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
