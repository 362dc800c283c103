//! `--serve` and `--shootstate-group`: which kinds a server serves, and what it does where gardener-apiserver serves
//! ShootStates too. A CRD stands in for that one.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::access::{Access, Credential};
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::process::{Process, Spec};
use repot_tests::repot::{Repot, program};
use repot_tests::{TestEnv, port, run, wait};
use serde_json::{Value, json};

use super::world::{CORE, GROUP, VERSION, flags};

const DEADLINE: Duration = Duration::from_secs(60);

/// What gardener-apiserver would serve.
fn other_server() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "shootstates.core.gardener.cloud",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in"},
        },
        "spec": {
            "group": CORE, "scope": "Namespaced",
            "names": {"kind": "ShootState", "plural": "shootstates", "singular": "shootstate"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

async fn start_other_server(garden: &Garden) -> Result<()> {
    garden.apply(&[other_server()]).await?;
    wait::until("the other server", DEADLINE, async || {
        garden.api().get(&format!("/apis/{CORE}/v1beta1/shootstates")).await?.ok().map(drop)
    })
    .await
}

#[test]
fn a_server_beside_another_one_of_shootstates_is_not_ready_and_says_why() {
    run(async |env| {
        let garden = Garden::start(env).await?;
        start_other_server(&garden).await?;
        let (process, url) = start(env, &garden).await?;
        let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy().build()?;
        let why = "--shootstate-group migration.gardener.cloud";
        wait::until("the server to tell why", DEADLINE, async || {
            ensure!(process.log().contains(why), "{}", process.log());
            Ok(())
        })
        .await?;
        let ready = client.get(format!("{url}/readyz")).send().await?;
        ensure!(ready.status() == 500, "{}", ready.status());
        let text = ready.text().await?;
        ensure!(text.contains("[-]shootstate-group failed"), "{text}");
        // The reason is for who may get the path of the check, and for nobody else.
        let check = format!("{url}/readyz/shootstate-group");
        let hidden = client.get(&check).send().await?;
        ensure!(hidden.status() == 403, "{}", hidden.status());
        let administrator = client_of(&garden.user("somebody", &["system:masters"])?)?;
        let told = administrator.get(&check).send().await?.text().await?;
        ensure!(told.contains(why), "{told}");
        let data = client.get(format!("{url}/apis/{CORE}/{VERSION}/shootstates")).send().await?;
        ensure!(data.status() == 503 && data.headers().contains_key("retry-after"), "{data:?}");
        ensure!(data.text().await?.contains(why));
        ensure!(!process.output().contains("ready"), "it told scripts that it is ready");

        // When the other one goes, nothing has to be started again.
        let name = "shootstates.core.gardener.cloud";
        garden.kubectl(["delete", "crd", name]).await?.text()?;
        wait::until("the server to be ready", DEADLINE, async || {
            let ready = client.get(format!("{url}/readyz")).send().await?.status();
            ensure!(ready == 200 && process.output().contains("ready https://"), "{ready}");
            Ok(())
        })
        .await
    });
}

/// A client with the certificate of a user, of a server whose own certificate nobody has signed.
fn client_of(access: &Access) -> Result<reqwest::Client> {
    let Credential::Certificate(leaf) = &access.credential else { anyhow::bail!("no certificate") };
    let identity = reqwest::Identity::from_pem(format!("{}{}", leaf.cert_pem, leaf.key_pem).as_bytes())?;
    let builder = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).identity(identity);
    Ok(builder.no_proxy().build()?)
}

/// `repot apiserver` as an operator starts it, without waiting for it to be ready.
async fn start(env: &TestEnv, garden: &Garden) -> Result<(Process, String)> {
    let delegate = garden.delegate("repot-apiserver").await?;
    let port = port::reserve()?;
    let spec = Spec::new("repot-apiserver", program()?)
        .arg("apiserver")
        .flag("bind-address", "127.0.0.1")
        .flag("secure-port", port.to_string())
        .flag("cert-dir", env.make_dir("certs")?)
        .flag("authentication-kubeconfig", &delegate)
        .flag("authorization-kubeconfig", &delegate)
        .args(flags(env)?);
    Ok((Process::start(env, spec)?, format!("https://127.0.0.1:{port}")))
}

#[test]
fn shootstates_live_in_our_own_group_beside_another_server() {
    run(async |env| {
        let garden = Garden::start(env).await?;
        start_other_server(&garden).await?;
        let own = ["--serve=all".to_owned(), format!("--shootstate-group={GROUP}")];
        let _repot =
            Repot::behind(env, &garden, &[(GROUP, VERSION)], [flags(env)?, own.to_vec()].concat()).await?;
        for (group, version) in [(CORE, "v1beta1"), (GROUP, VERSION)] {
            let object = json!({
                "apiVersion": format!("{group}/{version}"), "kind": "ShootState",
                "metadata": {"name": "s", "namespace": "default"}, "spec": {"gardener": []},
            });
            let path = format!("/apis/{group}/{version}/namespaces/default/shootstates");
            let created = garden.api().post(&path, &object).await?;
            ensure!(
                created.status == 201 && created.json()?["apiVersion"] == object["apiVersion"],
                "{created}"
            );
        }
        let both = garden.kubectl(["api-resources", "-o", "name"]).await?.text()?;
        for name in [
            "shootstates.core.gardener.cloud",
            "shootstates.migration.gardener.cloud",
            "hostedetcds.migration.gardener.cloud",
        ] {
            ensure!(both.lines().any(|line| line == name), "{name} is not in {both}");
        }
        Ok(())
    });
}

#[test]
fn a_seed_serves_no_shootstates_and_a_garden_no_etcds() {
    run(async |env| {
        let garden = Garden::start(env).await?;
        for (serve, group, there, missing) in [
            ("seed", GROUP, "hostedetcds", format!("/apis/{CORE}/{VERSION}/shootstates")),
            ("garden", CORE, "shootstates", format!("/apis/{GROUP}/{VERSION}/hostedetcds")),
        ] {
            let flags = [flags(env)?, vec![format!("--serve={serve}")]].concat();
            let repot = Repot::behind(env, &garden, &[(group, VERSION)], flags).await?;
            garden.api().get(&format!("/apis/{group}/{VERSION}/{there}")).await?.ok()?;
            // Asked without the garden in between, as the administrator whom both know.
            let direct = Api::new(&Access { server: repot.url().to_owned(), ..garden.admin().clone() })?;
            direct.get(&format!("/apis/{group}/{VERSION}/{there}")).await?.ok()?;
            let answer = direct.get(&missing).await?;
            ensure!(answer.status == 404, "{serve} serves {missing}: {answer}");
            garden.kubectl(["delete", "apiservice", &format!("{VERSION}.{group}")]).await?.text()?;
        }
        Ok(())
    });
}
