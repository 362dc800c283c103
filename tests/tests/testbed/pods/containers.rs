use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::world::{APART, DEADLINE, OUTSIDE_NAME, TestNamespace, container, is_ready, pod, shell};

/// A container of that name that runs a script, with the volume `env` at `/env`.
fn step(name: &str, script: &str) -> Value {
    let mut step = shell(script);
    step["name"] = name.into();
    step["volumeMounts"] = json!([{"name": "env", "mountPath": "/env"}]);
    step
}

fn bed_volume(env: &repot_tests::TestEnv) -> Value {
    json!([{"name": "env", "hostPath": {"path": env.path()}}])
}

#[test]
fn init_containers_run_in_order_and_sidecars_beside_all_others() {
    run(async |env| {
        let place = TestNamespace::make("order").await?;
        let note = |text: &str| format!("echo {text} >>/env/order");
        // It ends only after the one that it serves.
        let mut sidecar = step(
            "sidecar",
            "trap 'echo sidecar ends >>/env/order; exit 0' TERM; touch /tmp/up; while :; do sleep 0.02; done",
        );
        sidecar["restartPolicy"] = "Always".into();
        sidecar["startupProbe"] =
            json!({"exec": {"command": ["test", "-e", "/tmp/up"]}, "failureThreshold": 60});
        let init = [step("first", &note("first")), sidecar, step("second", &note("second"))];
        let main = step("main", &format!("test -e /tmp/up && exit 9; {}", note("main")));
        let spec = json!({
            "initContainers": init, "containers": [main], "volumes": bed_volume(env), "restartPolicy": "Never",
        });
        place.apply(&[pod("steps", spec)]).await?;
        let done = place.until("pod", "steps", "over", |pod| {
            ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase)
        });
        let done = done.await?;
        ensure!(done["status"]["phase"] == "Succeeded", "{}", done["status"]);
        let order = std::fs::read_to_string(env.path().join("order"))?;
        ensure!(order == "first\nsecond\nmain\nsidecar ends\n", "{order}");
        Ok(())
    });
}

#[test]
fn container_knows_its_pod_and_reaches_kube_apiserver_as_its_service_account() {
    run(async |env| {
        let place = TestNamespace::make("identity").await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"}, "stringData": {"word": "basil"},
        });
        let script = "hostname; echo $NAME $IP $WORD $1; cat /run/secret/word; echo; kubectl auth whoami -o jsonpath={.status.userInfo.username}";
        let mut main = step("main", &format!("({script}) >/env/out.new && mv /env/out.new /env/out"));
        main["args"] = json!(["-c", main["args"][1], "-", "$(NAME)-$(WORD)-$(NOBODY)"]);
        main["env"] = json!([
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "word"}}},
            {"name": "HOME", "value": "/tmp"},
        ]);
        main["volumeMounts"] =
            json!([main["volumeMounts"][0], {"name": "secret", "mountPath": "/run/secret"}]);
        let volumes = json!([bed_volume(env)[0], {"name": "secret", "secret": {"secretName": "secret"}}]);
        let spec = json!({"containers": [main], "volumes": volumes, "restartPolicy": "OnFailure"});
        // The Secret comes later, as in life.
        place.apply(&[pod("who", spec)]).await?;
        let waits = |pod: &Value| {
            container(pod)["state"]["waiting"].to_string().contains("secret \\\"secret\\\" not found")
        };
        place.until("pod", "who", "waiting for the secret", waits).await?;
        place.apply(&[secret]).await?;
        let done =
            place.until("pod", "who", "succeeded", |pod| pod["status"]["phase"] == "Succeeded").await?;
        let ip = done["status"]["podIP"].as_str().unwrap_or_default();
        let out = std::fs::read_to_string(env.path().join("out"))?;
        let expected =
            format!("who\nwho {ip} basil who-basil-$(NOBODY)\nbasil\nsystem:serviceaccount:identity:default");
        ensure!(out == expected, "{out}");
        Ok(())
    });
}

#[test]
fn unknown_image_waits_until_it_is_known() {
    run(async |_| {
        let place = TestNamespace::make("images").await?;
        let mut main = shell("exec sleep 600");
        main["image"] = "late".into();
        place.apply(&[pod("p", json!({"containers": [main]}))]).await?;
        place
            .until("pod", "p", "refused", |pod| {
                container(pod)["state"]["waiting"]["reason"] == "ErrImagePull"
            })
            .await?;
        let images = place.world.runner.images();
        images.add("late", repot_tests::pods::Image::of("/bin/sh"));
        place.until("pod", "p", "ready", is_ready).await?;
        Ok(())
    });
}

#[test]
fn container_that_crashes_is_started_again_with_a_growing_pause() {
    run(async |_| {
        let place = TestNamespace::make("crashes").await?;
        place.run("p", "exit 7").await?;
        let loops = |pod: &Value| {
            let one = container(pod);
            one["restartCount"].as_i64() >= Some(2) && one["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        };
        let seen = place.until("pod", "p", "crashing", loops).await?;
        ensure!(container(&seen)["lastState"]["terminated"]["exitCode"] == 7, "{}", seen["status"]);
        ensure!(seen["status"]["phase"] == "Running" && !is_ready(&seen), "{}", seen["status"]);
        Ok(())
    });
}

#[test]
fn liveness_replaces_a_frozen_container_and_a_killed_one_returns() {
    run(async |_| {
        let place = TestNamespace::make("faults").await?;
        let mut main = json!({"name": "main", "image": "python", "args": ["-m", "http.server", "8080"]});
        let get = json!({"httpGet": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 2});
        main["livenessProbe"] = get.clone();
        main["livenessProbe"]["timeoutSeconds"] = 3.into();
        main["startupProbe"] =
            json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 120});
        main["readinessProbe"] = get;
        place.apply(&[pod("web", json!({"containers": [main]}))]).await?;
        let ready_after = |restarts: i64| {
            move |pod: &Value| is_ready(pod) && container(pod)["restartCount"].as_i64() >= Some(restarts)
        };
        place.until("pod", "web", "ready", ready_after(0)).await?;
        let runner = &place.world.runner;
        runner.kill("faults", "web", "main")?;
        let killed = place.until("pod", "web", "ready again", ready_after(1)).await?;
        ensure!(container(&killed)["lastState"]["terminated"]["exitCode"] == 137, "{}", killed["status"]);
        runner.freeze("faults", "web", "main")?;
        let thawed = place.until("pod", "web", "ready a third time", ready_after(2)).await?;
        let why = &container(&thawed)["lastState"]["terminated"]["message"];
        ensure!(why.to_string().contains("failed liveness probe"), "{}", thawed["status"]);
        Ok(())
    });
}

#[test]
fn deleted_pod_has_its_hook_and_its_grace_and_is_gone_after_its_processes() {
    run(async |env| {
        let place = TestNamespace::make("ends").await?;
        // It does not listen to SIGTERM, so only the end of its grace ends it.
        let mut main = step(
            "main",
            "trap 'echo asked >>/env/end' TERM; echo $$$$ >/env/pid; while :; do sleep 0.02; done",
        );
        main["lifecycle"] = json!({"preStop": {"exec": {"command": ["sh", "-c", "echo hook >>/env/end"]}}});
        let mut object = pod("p", json!({"containers": [main], "volumes": bed_volume(env)}));
        object["spec"]["terminationGracePeriodSeconds"] = 3.into();
        place.apply(&[object]).await?;
        let pid = until("its pid", DEADLINE, async || {
            Ok(std::fs::read_to_string(env.path().join("pid"))?.trim().parse::<u32>()?)
        });
        let pid = pid.await?;
        let asked = Instant::now();
        place.kubectl(&["delete", "pod", "p"]).await?;
        ensure!(asked.elapsed() >= Duration::from_secs(3), "it was killed before its grace was over");
        ensure!(
            !std::path::Path::new("/proc").join(pid.to_string()).exists(),
            "process {pid} outlives its pod"
        );
        let end = std::fs::read_to_string(env.path().join("end"))?;
        ensure!(end == "hook\nasked\n", "{end}");
        Ok(())
    });
}

#[test]
fn isolated_node_reaches_nobody_until_it_is_healed() {
    run(async |env| {
        let place = TestNamespace::make("alone").await?;
        let ask = "timeout -s KILL 2 kubectl get --raw /version >/dev/null 2>&1 && echo yes || echo no";
        let script = format!("while :; do ({ask}) >/env/new; mv /env/new /env/answer; sleep 0.05; done");
        let spec = json!({
            "nodeName": APART, "containers": [step("main", &script)], "volumes": bed_volume(env),
        });
        place.apply(&[pod("p", spec)]).await?;
        let answer = async |expected: &str| {
            until(&format!("the answer {expected}"), DEADLINE, async || {
                let seen = std::fs::read_to_string(env.path().join("answer"))?;
                ensure!(seen.trim() == expected, "it is {seen}");
                Ok(())
            })
            .await
        };
        answer("yes").await?;
        let runner = &place.world.runner;
        let cut = runner.isolate(APART).await?;
        answer("no").await?;
        runner.heal(cut).await?;
        answer("yes").await
    });
}

/// Answers every connection to a port of this machine with a page.
async fn start_server() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, repot_tests::port::reserve()?)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\noutside").await;
        }
    });
    Ok(port)
}

#[test]
fn pod_finds_what_the_test_exposes_by_the_name_that_its_dns_gives() {
    run(async |env| {
        let place = TestNamespace::make("outside").await?;
        let port = start_server().await?;
        place.world.runner.expose(port)?;
        let script = format!(
            "import os, urllib.request as r\nopen('/env/new', 'wb').write(r.urlopen('http://{OUTSIDE_NAME}:{port}/').read())\n\
             os.rename('/env/new', '/env/page')"
        );
        let mut main = step("main", "");
        main["image"] = "python".into();
        main["args"] = json!(["-c", script]);
        let spec = json!({"containers": [main], "volumes": bed_volume(env), "restartPolicy": "Never"});
        place.apply(&[pod("p", spec)]).await?;
        let done = place.until("pod", "p", "over", |pod| {
            ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase)
        });
        let done = done.await?;
        ensure!(done["status"]["phase"] == "Succeeded", "{}", done["status"]);
        ensure!(std::fs::read_to_string(env.path().join("page"))? == "outside", "another page");
        Ok(())
    });
}
