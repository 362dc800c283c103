use anyhow::ensure;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::world::{DEADLINE, TestNamespace, container, pod, shell};

fn claim(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}},
        },
    })
}

fn user(name: &str, claim: &str, script: &str) -> Value {
    let mut container = shell(script);
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/var/lib/data"}]);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    pod(name, json!({"containers": [container], "volumes": volumes, "restartPolicy": "Never"}))
}

fn has_ended(pod: &Value) -> bool {
    container(pod)["state"]["terminated"].is_object()
}

#[test]
fn volume_lives_as_long_as_its_claim_unless_it_is_retained() {
    run(async |_| {
        let place = TestNamespace::make("reclaim").await?;
        let claims = [claim("deleted", "zonal"), claim("retained", "kept")];
        let writes = "echo kept >/var/lib/data/file";
        place.apply(&claims).await?;
        place.apply(&[user("one", "deleted", writes), user("two", "retained", writes)]).await?;
        let mut dirs = Vec::new();
        for (pod, claim) in [("one", "deleted"), ("two", "retained")] {
            place.until("pod", pod, "succeeded", |pod| pod["status"]["phase"] == "Succeeded").await?;
            let dir = place.world.runner.volume("reclaim", claim).await?;
            ensure!(std::fs::read_to_string(dir.join("file"))? == "kept\n", "{pod} wrote something else");
            place.kubectl(&["delete", "pod", pod]).await?;
            dirs.push(dir);
        }
        ensure!(dirs.iter().all(|dir| dir.join("file").exists()), "a file went with its pod");
        let name = place.get("pvc", "deleted").await?["spec"]["volumeName"].clone();
        let retained = place.get("pvc", "retained").await?["spec"]["volumeName"].clone();
        place.kubectl(&["delete", "pvc", "--all"]).await?;
        place.until_gone("pv", name.as_str().unwrap_or_default()).await?;
        ensure!(!dirs[0].exists(), "{} is still there", dirs[0].display());
        let released = |volume: &Value| volume["status"]["phase"] == "Released";
        place.until("pv", retained.as_str().unwrap_or_default(), "released", released).await?;
        ensure!(dirs[1].join("file").exists(), "the retained file is gone");
        Ok(())
    });
}

#[test]
fn volume_with_a_quota_can_be_filled_and_emptied() {
    run(async |_| {
        let place = TestNamespace::make("quota").await?;
        let script = "while echo line >>/var/lib/data/file; do sleep 0.02; done; exit 28";
        place.apply(&[claim("small", "limited"), user("writer", "small", script)]).await?;
        place.until("pod", "writer", "running", |pod| pod["status"]["phase"] == "Running").await?;
        let runner = &place.world.runner;
        let lines = runner.volume("quota", "small").await?.join("file");
        until("a line", DEADLINE, async || Ok(std::fs::metadata(&lines)?)).await?;
        let filler = runner.fill("quota", "small").await?;
        let full = place.until("pod", "writer", "ended", has_ended).await?;
        ensure!(container(&full)["state"]["terminated"]["exitCode"] == 28, "{}", full["status"]);

        std::fs::remove_file(filler)?;
        place.apply(&[user("second", "small", "echo more >>/var/lib/data/file")]).await?;
        let second = place.until("pod", "second", "ended", has_ended).await?;
        ensure!(second["status"]["phase"] == "Succeeded", "{}", second["status"]);
        Ok(())
    });
}

#[test]
fn volume_without_a_quota_is_not_filled() {
    run(async |_| {
        let place = TestNamespace::make("endless").await?;
        place.apply(&[claim("plain", "kept")]).await?;
        place.until("pvc", "plain", "bound", |claim| claim["status"]["phase"] == "Bound").await?;
        let refused = place.world.runner.fill("endless", "plain").await;
        ensure!(refused.is_err_and(|error| error.to_string().contains("no quota")), "it was filled");
        Ok(())
    });
}
