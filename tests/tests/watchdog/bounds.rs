//! Whom the proxy answers, what it does not forward, and how it starts and stops.

use std::time::Duration;

use anyhow::ensure;
use repot_tests::access::Credential;
use repot_tests::http::Api;
use repot_tests::run;
use reqwest::Method;
use serde_json::json;
use tokio::time::timeout;

use super::world::{DEADLINE, World, shared_seed, start_seed};

#[test]
fn only_the_client_of_the_kubeconfig_is_answered_and_only_what_can_be_fenced_is_forwarded() {
    run(async |env| {
        let seed = shared_seed()?;
        let world = World::make(env, &seed, "shoot--dev--strangers", &[]).await?;
        let access = world.access()?;
        for credential in [Credential::Anonymous, Credential::Token("x".to_owned())] {
            let answer = Api::new(&access.with(credential))?.get("/api/v1/namespaces").await?;
            ensure!(answer.status == 401 && answer.json()?["reason"] == "Unauthorized", "{answer}");
        }
        let foreign = seed.pki().client.client("admin", &["system:masters"])?;
        let answer = Api::new(&access.with(Credential::Certificate(foreign)))?.get("/api").await?;
        ensure!(answer.status == 401, "{answer}");

        let exec = format!("/api/v1/namespaces/{}/pods/a/exec?command=ls", world.namespace);
        let answer = world.api.post(&exec, &json!({})).await?;
        ensure!(answer.status == 403 && answer.to_string().contains("cannot be fenced"), "{answer}");
        for (header, value) in [("upgrade", "websocket"), ("x-http-method-override", "DELETE")] {
            // Over HTTP/2 there is no such header.
            let api = Api::build(&access, reqwest::Client::builder().http1_only())?;
            let answer = api.request(Method::GET, "/api/v1/namespaces").header(header, value).send().await?;
            ensure!(answer.status() == 403, "{header}: {}", answer.status());
        }
        for path in
            ["/api/v1//namespaces", "/api/v1/namespaces/a%2fb/configmaps", "/api/v1/proxy/namespaces/a"]
        {
            let answer = world.api.request(Method::POST, path).body("{}").send().await?;
            ensure!(answer.status() == 403, "{path}: {}", answer.status());
        }
        let large = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(5 << 20)}});
        let answer = world.api.post(&world.config_maps(), &large).await?;
        ensure!(answer.status == 413, "{answer}");
        // What is answered to a user says who that is: the proxy's user, whatever the client claims.
        let request = world.api.request(Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews");
        let request = request.header("x-remote-user", "somebody").header("authorization", "Bearer x");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let who: serde_json::Value = request.json(&body).send().await?.json().await?;
        ensure!(who["status"]["userInfo"]["username"] == "admin", "{who}");
        Ok(())
    });
}

#[test]
fn proxy_that_is_started_again_answers_the_client_of_before_and_ends_its_watches() {
    run(async |env| {
        let seed = shared_seed()?;
        let mut world = World::make(env, &seed, "shoot--dev--restart", &[]).await?;
        ensure!(world.health("/readyz").await?.0 == 200, "not ready");
        let address = world.proxy.url().trim_start_matches("https://").to_owned();
        let path = format!("{}?watch=true", world.config_maps());
        let mut watch = world.api.request(Method::GET, &path).send().await?;
        world.proxy.stop().await?;
        let end = async {
            while watch.chunk().await?.is_some() {}
            anyhow::Ok(())
        };
        timeout(Duration::from_secs(10), end).await??;
        // The controller has read its kubeconfig long ago.
        let before = world.access()?;
        let second = repot_tests::repot::Repot::start(
            env,
            "watchdog-proxy",
            [
                format!("--kubeconfig={}", seed.kubeconfig().display()),
                format!("--dir={}", world.dir.display()),
                format!("--listen={address}"),
                format!("--health-address=127.0.0.1:{}", repot_tests::port::reserve()?),
            ],
        )
        .await?;
        Api::new(&before)?.get(&world.config_maps()).await?.ok()?;
        drop(second);
        Ok(())
    });
}

#[test]
fn kube_apiserver_that_is_away_is_told_of_in_words() {
    run(async |env| {
        let mut seed = start_seed(env).await?;
        let world = World::make(env, &seed, "shoot--dev--away", &[]).await?;
        world.until_written().await?;
        seed.apiserver().kill();
        let read = timeout(DEADLINE, world.api.get("/api/v1/namespaces")).await??;
        ensure!(read.status == 502 && read.json()?["kind"] == "Status", "{read}");
        let written = timeout(DEADLINE, world.write("x")).await??;
        ensure!(written.status == 502 && written.to_string().contains("may have happened"), "{written}");
        Ok(())
    });
}
