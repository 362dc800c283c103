use anyhow::{Result, ensure};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::world::{DEADLINE, TestNamespace, fetch, is_ready, pod, shell};

fn web(text: &str) -> [Value; 3] {
    let container = json!({
        "name": "main", "image": "python", "command": ["python3", "-m", "http.server", "8080", "--directory", "/etc/www"],
        "volumeMounts": [{"name": "page", "mountPath": "/etc/www"}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    });
    let spec = json!({
        "containers": [container], "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "page", "configMap": {"name": format!("page-{text}")}}],
    });
    let labels = json!({"app": "web"});
    [
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("page-{text}")}, "data": {"index.html": text},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }),
    ]
}

async fn await_page(port: u16, text: &str) -> Result<()> {
    until(&format!("the page {text}"), DEADLINE, async || {
        let seen = fetch(port).await?;
        ensure!(seen == text, "it is {seen:?}");
        Ok(())
    })
    .await
}

#[test]
fn deployment_rolls_out_and_over() {
    run(async |_| {
        let place = TestNamespace::make("deployment").await?;
        let port = place.world.runner.publish("web.deployment.svc", 8080).await?;
        for text in ["first", "second"] {
            place.apply(&web(text)).await?;
            place.roll_out("deployment/web").await?;
            await_page(port, text).await?;
        }
        // Files of a ConfigMap follow it, without a new pod.
        let patch = json!({"data": {"index.html": "third"}}).to_string();
        place.kubectl(&["patch", "configmap", "page-second", "-p", &patch]).await?;
        await_page(port, "third").await?;
        // Both replicas are there, and pods of the first are gone or going.
        let sets: Value = serde_json::from_str(&place.kubectl(&["get", "replicasets", "-o", "json"]).await?)?;
        let mut counts: Vec<_> = sets["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|set| set["spec"]["replicas"].as_i64())
            .collect();
        counts.sort_unstable();
        ensure!(counts == [Some(0), Some(2)], "{counts:?}");
        Ok(())
    });
}

fn job(name: &str, backoff_limit: u32, script: &str) -> Value {
    let mut container = shell(script);
    container["workingDir"] = "/tmp".into();
    container["volumeMounts"] = json!([{"name": "scratch", "mountPath": "/scratch"}]);
    let volumes = json!([{"name": "scratch", "emptyDir": {}}]);
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "backoffLimit": backoff_limit, "completions": 2, "parallelism": 2,
            "template": {"spec": {"restartPolicy": "OnFailure", "containers": [container], "volumes": volumes}},
        },
    })
}

fn has_condition(job: &Value, kind: &str, reason: &str) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == kind && c["reason"] == reason))
}

#[test]
fn job_completes_and_another_fails_at_its_backoff_limit() {
    run(async |_| {
        let place = TestNamespace::make("jobs").await?;
        // At its second start it finds what the first left: the same pod runs it again.
        let good =
            "touch twice; test -e /tmp/twice && test -e /scratch/again || { touch /scratch/again; exit 1; }";
        place.apply(&[job("good", 6, good), job("bad", 2, "exit 3")]).await?;
        let good =
            place.until("job", "good", "complete", |job| job["status"]["completionTime"].is_string()).await?;
        ensure!(good["status"]["succeeded"] == 2, "{}", good["status"]);
        let failed = |job: &Value| has_condition(job, "Failed", "BackoffLimitExceeded");
        place.until("job", "bad", "failed", failed).await?;
        Ok(())
    });
}

#[test]
fn readiness_gates_the_endpoints_of_a_service() {
    run(async |env| {
        let place = TestNamespace::make("readiness").await?;
        let mark = env.path().join("ready");
        let mut container = shell("exec python3 -m http.server 8080");
        container["image"] = "python".into();
        container["command"] = json!(["/bin/sh"]);
        container["ports"] = json!([{"name": "web", "containerPort": 8080}]);
        container["volumeMounts"] = json!([{"name": "env", "mountPath": "/srv/env"}]);
        let probe = json!({"exec": {"command": ["test", "-e", "/srv/env/ready"]}, "periodSeconds": 1, "failureThreshold": 1});
        container["readinessProbe"] = probe;
        container["startupProbe"] =
            json!({"tcpSocket": {"port": "web"}, "failureThreshold": 60, "periodSeconds": 1});
        let volumes = json!([{"name": "env", "hostPath": {"path": env.path()}}]);
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "slow"},
            "spec": {"selector": {"app": "slow"}, "clusterIP": "None", "ports": [{"port": 8080}]},
        });
        let spec = json!({"containers": [container], "volumes": volumes});
        place.apply(&[service, pod("slow", spec)]).await?;
        let port = place.world.runner.publish("slow.readiness.svc", 8080).await?;

        place
            .until("pod", "slow", "started", |pod| pod["status"]["containerStatuses"][0]["started"] == true)
            .await?;
        ensure!(!is_ready(&place.get("pod", "slow").await?), "it is ready without the file");
        ensure!(fetch(port).await.is_err(), "its name has an address");
        std::fs::write(&mark, "")?;
        until("an answer", DEADLINE, async || fetch(port).await.map(drop)).await?;
        ensure!(is_ready(&place.get("pod", "slow").await?), "it is not ready");
        std::fs::remove_file(&mark)?;
        until("no answer", DEADLINE, async || {
            ensure!(fetch(port).await.is_err(), "there is one");
            Ok(())
        })
        .await
    });
}
