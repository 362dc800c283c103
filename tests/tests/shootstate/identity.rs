//! Who may speak: certificates, tokens, the front proxy, and those who only pretend.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::access::{Access, Credential};
use repot_tests::garden::{FRONT_PROXY_USER, Garden};
use repot_tests::http::{Api, send};
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::json;

use super::world::{World, collection, path, small};

/// The server itself, not through the kube-apiserver, with a credential of the garden's.
fn directly(world: &mut World, credential: Credential) -> Result<Api> {
    let server = world.repot().url().replace("127.0.0.1", "localhost");
    let garden = world.garden.as_ref().context("a garden")?;
    let ca_pem = garden.pki().serving.pem();
    Api::new(&Access { server, ca_pem, credential })
}

fn garden(world: &World) -> Result<&Garden> {
    world.garden.as_ref().context("a garden")
}

#[test]
fn forged_identities_are_not_believed() {
    run(async |env| {
        let mut world = World::garden(env).await?;
        let forged = |api: &Api| {
            let request = api.request(Method::GET, &collection("default"));
            request.header("X-Remote-User", "admin").header("X-Remote-Group", "system:masters")
        };
        let anonymous = directly(&mut world, Credential::Anonymous)?;
        let answer = send(forged(&anonymous)).await?;
        let status = answer.json()?;
        ensure!(answer.status == 403 && status["reason"] == "Forbidden", "{answer}");
        ensure!(status["message"].as_str().unwrap_or_default().contains("system:anonymous"), "{answer}");

        // A certificate of the right authority for another name is not the front proxy.
        let impostor = garden(&world)?.pki().front_proxy.client("impostor", &[])?;
        let impostor = directly(&mut world, Credential::Certificate(impostor))?;
        let answer = send(forged(&impostor)).await?;
        ensure!(matches!(answer.status, 401 | 403), "an impostor was believed: {answer}");

        let proxy = garden(&world)?.pki().front_proxy.client(FRONT_PROXY_USER, &[])?;
        let proxy = directly(&mut world, Credential::Certificate(proxy))?;
        let answer = send(forged(&proxy)).await?;
        ensure!(answer.status == 200, "the front proxy was not believed: {answer}");

        let bad = directly(&mut world, Credential::Token("nonsense".into()))?;
        let answer = bad.get(&collection("default")).await?;
        ensure!(answer.status == 401 && answer.json()?["reason"] == "Unauthorized", "{answer}");
        Ok(())
    });
}

#[test]
fn users_may_do_what_their_roles_say() {
    run(async |env| {
        let world = World::garden(env).await?;
        world.create(&small("guarded", &json!(1))).await?;
        let alice = Api::new(&garden(&world)?.user("alice", &["readers"])?)?;
        let denied = alice.get(&path("guarded")).await?;
        let message = denied.json()?["message"].as_str().unwrap_or_default().to_owned();
        ensure!(
            denied.status == 403 && message.contains("\"alice\" cannot get resource \"shootstates\""),
            "{denied}"
        );

        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "reader", "namespace": "default"},
            "rules": [{"apiGroups": ["core.gardener.cloud"], "resources": ["shootstates"], "verbs": ["get"]}],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "reader", "namespace": "default"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}],
        });
        garden(&world)?.apply(&[role, binding]).await?;
        // The refusal is remembered for ten seconds.
        until("the role to count", Duration::from_secs(30), async || {
            alice.get(&path("guarded")).await?.ok().map(drop)
        })
        .await?;
        let list = alice.get(&collection("default")).await?;
        ensure!(list.status == 403, "a role for get allows list: {list}");
        Ok(())
    });
}

#[test]
fn a_service_account_token_is_reviewed() {
    run(async |env| {
        let mut world = World::garden(env).await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "default"}});
        garden(&world)?.apply(&[account]).await?;
        let token = world.kubectl.run(["create", "token", "robot", "-n", "default"]).await?.text()?;
        let robot = directly(&mut world, Credential::Token(token.trim().to_owned()))?;
        let answer = robot.get(&collection("default")).await?;
        let message = answer.json()?["message"].as_str().unwrap_or_default().to_owned();
        ensure!(answer.status == 403 && message.contains("system:serviceaccount:default:robot"), "{answer}");
        Ok(())
    });
}

#[test]
fn an_expired_certificate_is_refused() {
    run(async |env| {
        let mut world = World::garden(env).await?;
        let mut params = repot_tests::pki::params("admin", &["system:masters"], Vec::new())?;
        params.not_after = (std::time::SystemTime::now() - Duration::from_secs(60)).into();
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let expired = garden(&world)?.pki().client.sign(params)?;
        let answer =
            directly(&mut world, Credential::Certificate(expired))?.get(&collection("default")).await?;
        ensure!(answer.status == 401 && answer.json()?["reason"] == "Unauthorized", "{answer}");
        let valid = garden(&world)?.pki().client.client("admin", &["system:masters"])?;
        let answer =
            directly(&mut world, Credential::Certificate(valid))?.get(&collection("default")).await?;
        ensure!(answer.status == 200, "{answer}");
        Ok(())
    });
}

#[test]
fn objects_need_a_namespace_that_lives() {
    run(async |env| {
        let world = World::garden(env).await?;
        let mut object = small("homeless", &json!(1));
        object["metadata"]["namespace"] = json!("nowhere");
        let answer = world.api.post(&collection("nowhere"), &object).await?;
        let status = answer.json()?;
        ensure!(answer.status == 404 && status["details"]["kind"] == "namespaces", "{answer}");
        Ok(())
    });
}

#[test]
fn a_new_serving_certificate_is_taken_up_while_connections_live() {
    run(async |env| {
        let mut world = World::garden(env).await?;
        let proxy = garden(&world)?.pki().client.client("admin", &["system:masters"])?;
        let server = world.repot().url().replace("127.0.0.1", "localhost");
        let ca_pem = garden(&world)?.pki().serving.pem();
        let access = Access { server, ca_pem, credential: Credential::Certificate(proxy) };
        let shown = async |api: &Api| -> Result<Vec<u8>> {
            let response = api.request(Method::GET, "/readyz").send().await?;
            let info = response.extensions().get::<reqwest::tls::TlsInfo>().context("no TLS")?;
            Ok(info.peer_certificate().context("no certificate")?.to_vec())
        };
        let client = || Api::build(&access, reqwest::Client::builder().tls_info(true));
        let old = client()?;
        let before = shown(&old).await?;
        let fresh = garden(&world)?.pki().serve("repot-system", "repot-apiserver")?;
        let dir = env.path().join("repot-config");
        ensure!(dir.join("serving.crt").exists(), "the serving certificate is elsewhere");
        // For a moment certificate and key do not fit; the server has to keep the old pair then.
        fresh.write(&dir, "serving")?;
        until("the new certificate", Duration::from_secs(60), async || {
            ensure!(shown(&client()?).await? != before, "the old one is served");
            Ok(())
        })
        .await?;
        ensure!(shown(&old).await? == before, "the old connection was dropped");
        ensure!(world.api.get(&collection("default")).await?.status == 200, "the front server lost its way");
        Ok(())
    });
}
