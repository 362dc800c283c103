//! Who may do what, behind a real kube-apiserver.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::access::Credential;
use repot_tests::garden::Garden;
use repot_tests::http::{Api, send};
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::namespace::{Behind, GROUP, TestNamespace, VERSION, expect};
use crate::shootstate::world::World;

const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn probes_need_no_credential_and_their_parts_do() {
    run(async |_| {
        let behind = Behind::value()?;
        let anybody = behind.directly(Credential::Anonymous, Client::builder())?;
        for path in ["/livez", "/readyz", "/healthz"] {
            let answer = anybody.get(path).await?;
            ensure!(answer.status == 200 && answer.body == "ok", "{answer}");
        }
        for path in ["/livez/ping", "/readyz/ping", "/metrics", "/apis", "/openapi/v2"] {
            let status = expect(&anybody.get(path).await?, 403, "Forbidden")?;
            let message = status["message"].as_str().unwrap_or_default();
            ensure!(message.contains("\"system:anonymous\" cannot get path"), "{message}");
        }
        let alice = directly_as(&behind, "alice")?;
        expect(&alice.get("/metrics").await?, 403, "Forbidden")?;
        let master = behind.garden.pki().client.client("admin", &["system:masters"])?;
        let master = behind.directly(Credential::Certificate(master), Client::builder())?;
        for path in ["/livez/ping", "/metrics"] {
            ensure!(master.get(path).await?.status == 200, "{path} is refused to the all-powerful");
        }
        Ok(())
    });
}

fn directly_as(behind: &Behind, user: &str) -> Result<Api> {
    let leaf = behind.garden.pki().client.client(user, &[])?;
    behind.directly(Credential::Certificate(leaf), Client::builder())
}

#[test]
fn whoever_is_known_may_read_the_documents() {
    run(async |_| {
        let shared = Behind::value()?;
        let alice = directly_as(&shared, "alice")?;
        let version = format!("/apis/{GROUP}/{VERSION}");
        let document = format!("/openapi/v3{version}");
        for path in ["/apis", &version, "/openapi/v2", "/openapi/v3", &document, "/version", "/livez"] {
            let answer = alice.get(path).await?;
            ensure!(answer.status == 200, "{answer}");
        }
        Ok(())
    });
}

async fn grant(garden: &Garden, user: &str, rules: Value) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    let meta = json!({"name": format!("test-{user}"), "namespace": "default"});
    let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": meta, "rules": rules});
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": meta,
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": meta["name"]},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
    });
    garden.apply(&[role, binding]).await
}

#[test]
fn a_field_selector_of_one_name_needs_a_right_to_that_name_only() {
    run(async |_| {
        let garden = &Behind::value()?.garden;
        let rules = json!([{
            "apiGroups": [GROUP], "resources": ["shootstates"], "resourceNames": ["singled-out"],
            "verbs": ["list", "watch"],
        }]);
        grant(garden, "selector", rules).await?;
        let place = TestNamespace::of(Api::new(&garden.user("selector", &[])?)?, "default");
        let named = |name: &str| place.all(&format!("?fieldSelector=metadata.name%3D{name}"));
        until("the role to count", PATIENCE, async || {
            place.api.get(&named("singled-out")).await?.ok().map(drop)
        })
        .await?;
        let watch = format!("{}&watch=true&timeoutSeconds=1", named("singled-out"));
        ensure!(place.api.get(&watch).await?.status == 200, "no watch of the name");
        for path in [place.all(""), named("another"), place.all("?watch=true&timeoutSeconds=1")] {
            expect(&place.api.get(&path).await?, 403, "Forbidden")?;
        }
        Ok(())
    });
}

#[test]
fn a_new_front_proxy_is_believed_without_a_restart() {
    run(async |env| {
        let mut world = World::garden(env).await?;
        let server = world.repot().url().replace("127.0.0.1", "localhost");
        let garden = world.garden.as_ref().expect("a garden");
        let leaf = garden.pki().front_proxy.client("second-proxy", &[])?;
        let ca_pem = garden.pki().serving.pem();
        let access =
            repot_tests::access::Access { server, ca_pem, credential: Credential::Certificate(leaf) };
        let api = Api::new(&access)?;
        let ask = async || {
            let request = api.request(Method::GET, &TestNamespace::of(api.clone(), "default").all(""));
            send(request.header("X-Remote-User", "root").header("X-Remote-Group", "system:masters")).await
        };
        ensure!(ask().await?.status == 401, "it was believed before anybody named it");
        let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let data =
            json!({"data": {"requestheader-allowed-names": "[\"front-proxy-client\",\"second-proxy\"]"}});
        garden.api().patch(path, "application/merge-patch+json", &data).await?.ok()?;
        // The same connection: trust is looked up at each request.
        until("the new name to count", PATIENCE, async || ask().await?.ok().map(drop)).await?;
        // What is broken changes nothing.
        let broken = json!({"data": {"requestheader-allowed-names": "nonsense"}});
        garden.api().patch(path, "application/merge-patch+json", &broken).await?.ok()?;
        ensure!(
            world.api.get(&TestNamespace::of(world.api.clone(), "default").all("")).await?.status == 200,
            "it lost its way"
        );
        Ok(())
    });
}
