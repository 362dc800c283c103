//! CPU profiles: who may take one, and that the tools of pprof read it.

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use repot_tests::access::Credential;
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::repot::Repot;
use repot_tests::run;
use serde_json::{Value, json};
use tokio::process::Command;

use super::world::{direct, direct_as, flags};
use crate::shootstate::world::{collection, large};

const PROFILE: &str = "/debug/pprof/profile";

/// Lets a user get these paths, and nothing else.
fn permission(user: &str, paths: &[&str]) -> [Value; 2] {
    let rbac = "rbac.authorization.k8s.io";
    let api_version = format!("{rbac}/v1");
    [
        json!({
            "apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": user},
            "rules": [{"nonResourceURLs": paths, "verbs": ["get"]}],
        }),
        json!({
            "apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": {"name": user},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
        }),
    ]
}

/// Creates large objects, and does not keep them, until told to stop.
async fn load(api: &Api, stop: &AtomicBool) -> Result<()> {
    let path = format!("{}?dryRun=All", collection("default"));
    let object = large("load", 2 << 20);
    while !stop.load(Ordering::Relaxed) {
        api.post(&path, &object).await?.ok()?;
    }
    Ok(())
}

/// What `go tool pprof -top` prints of a profile.
async fn top(dir: &Path, profile: &[u8]) -> Result<String> {
    let file = dir.join("profile.pb.gz");
    std::fs::write(&file, profile)?;
    let output =
        Command::new("go").args(["tool", "pprof", "-top"]).arg(&file).current_dir(dir).output().await;
    let output =
        output.context("Go is missing, whose pprof reads profiles; `make testbed` needs it as well")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn a_profile_shows_where_time_is_spent() {
    run(async |env| {
        let garden = Garden::start(env).await?;
        let repot = Repot::replica(env, &garden, flags(env)?).await?;
        garden.apply(&permission("profiler", &["/debug/pprof/*", "/debug/pprof"])).await?;
        let (profiler, admin) = (
            direct_as(&garden, &repot, "profiler", &[])?,
            direct_as(&garden, &repot, "admin", &["system:masters"])?,
        );
        let index = profiler.get("/debug/pprof/").await?;
        ensure!(index.status == 200 && String::from_utf8_lossy(&index.body).contains("profile"), "{index}");
        let stop = AtomicBool::new(false);
        let profile = async {
            let profile = profiler.get(&format!("{PROFILE}?seconds=4")).await;
            stop.store(true, Ordering::Relaxed);
            profile
        };
        let busy = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            profiler.get(&format!("{PROFILE}?seconds=1")).await
        };
        let (profile, busy, loaded) = tokio::join!(profile, busy, load(&admin, &stop));
        loaded?;
        let busy = busy?;
        ensure!(busy.status == 429 && busy.headers.contains_key("retry-after"), "{busy}");
        let profile = profile?;
        ensure!(profile.status == 200, "{profile}");
        let mut bytes = Vec::new();
        GzDecoder::new(&profile.body[..]).read_to_end(&mut bytes).context("a profile is in gzip")?;
        let text = top(&env.make_dir("pprof")?, &profile.body).await?;
        ensure!(text.contains("Type: cpu") && text.contains("Duration: "), "{text}");
        // Objects are parsed by a crate of this project, which the program of tests names.
        ensure!(text.contains("repot_") || text.contains("aws_lc"), "no function is named:\n{text}");
        // The server goes on.
        ensure!(admin.get(&collection("default")).await?.status == 200, "it does not serve any more");
        Ok(())
    });
}

#[test]
fn profiles_are_for_whom_authorization_lets_take_them() {
    run(async |env| {
        let garden = Garden::start(env).await?;
        let repot = Repot::replica(env, &garden, flags(env)?).await?;
        let off = [flags(env)?, vec!["--profiling=false".to_owned()]].concat();
        let off = Repot::replica(env, &garden, off).await?;
        let open =
            [flags(env)?, vec!["--authorization-always-allow-paths=/readyz,/debug/pprof/*".to_owned()]]
                .concat();
        let open = Repot::replica(env, &garden, open).await?;
        garden.apply(&permission("metrics-only", &["/metrics"])).await?;
        let path = format!("{PROFILE}?seconds=1");
        let denied = [
            direct(&garden, &repot, Credential::Anonymous)?,
            direct_as(&garden, &repot, "metrics-only", &[])?,
            // Whatever else is said of paths: never without credentials.
            direct(&garden, &open, Credential::Anonymous)?,
        ];
        for api in denied {
            for path in [path.as_str(), "/debug/pprof/", "/debug/pprof/heap"] {
                let answer = api.get(path).await?;
                ensure!(answer.status == 403, "{answer}");
            }
        }
        let admin = direct_as(&garden, &repot, "admin", &["system:masters"])?;
        for seconds in ["0", "61", "-1", "many", ""] {
            let answer = admin.get(&format!("{PROFILE}?seconds={seconds}")).await?;
            ensure!(answer.status == 400, "{answer}");
        }
        let heap = admin.get("/debug/pprof/heap").await?;
        ensure!(heap.status == 404 && heap.to_string().contains("only /debug/pprof/profile"), "{heap}");
        ensure!(admin.post(PROFILE, &json!({})).await?.status == 405, "a profile is got");
        let admin = direct_as(&garden, &off, "admin", &["system:masters"])?;
        for path in [path.as_str(), "/debug/pprof/"] {
            ensure!(admin.get(path).await?.status == 404, "it is switched off");
        }
        Ok(())
    });
}
