//! What containers may do: users, rights, root directories and volumes, as a kubelet and its runtime have them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use anyhow::{Result, ensure};
use repot_tests::wait::until;
use repot_tests::{TestEnv, oci, run};
use serde_json::{Value, json};

use super::world::{DEADLINE, TestNamespace, container, is_ready, pod, shell};

const USER: u32 = 65532;

/// What Pods of the charts ask for.
fn restricted() -> Value {
    json!({"runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER})
}

fn limited() -> Value {
    json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
}

/// Shell functions: `say` writes lines of the report, `can` whether a file can be made.
const REPORT: &str = r#"
say() { echo "$@" >>/env/report; }
can() { if (: >"$1") 2>/dev/null; then say "$1 yes"; else say "$1 no"; fi; }
while read -r name value; do
  case $name in Uid: | Gid: | Groups: | CapEff: | CapPrm: | CapBnd: | NoNewPrivs:) say "$name" $value ;; esac
done </proc/self/status
"#;

/// What a Pod writes into a directory of the test, which every user may write: the report, and what the script adds to it.
async fn report(env: &TestEnv, place: &TestNamespace, mut spec: Value, script: &str) -> Result<Vec<String>> {
    let dir = env.make_dir("reports")?;
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777))?;
    let main = &mut spec["containers"][0];
    main["command"] = json!(["sh", "-c", format!("{REPORT}{script}\nsay end")]);
    main["name"] = "main".into();
    add(&mut main["volumeMounts"], json!({"name": "env", "mountPath": "/env"}));
    add(&mut spec["volumes"], json!({"name": "env", "hostPath": {"path": dir}}));
    spec["restartPolicy"] = "Never".into();
    place.apply(&[pod("reporter", spec)]).await?;
    let file = dir.join("report");
    until("the report", DEADLINE, async || {
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        let over = found.ends_with("end\n");
        ensure!(over, "it is {found:?}, and the pod {}", place.get("pod", "reporter").await?["status"]);
        Ok(found.lines().map(str::to_owned).collect())
    })
    .await
}

fn add(list: &mut Value, item: Value) {
    let mut items = list.as_array().cloned().unwrap_or_default();
    items.push(item);
    *list = items.into();
}

fn ensure_lines(report: &[String], expected: &[&str]) -> Result<()> {
    for line in expected {
        ensure!(report.iter().any(|found| found == line), "{line:?} is not in {report:#?}");
    }
    Ok(())
}

#[test]
fn container_over_the_root_of_the_machine_has_the_user_and_the_rights_of_its_pod() {
    run(async |env| {
        let place = TestNamespace::make("security").await?;
        let spec = json!({"securityContext": restricted(), "containers": [{"image": "shell", "securityContext": limited()}]});
        let none = "0000000000000000";
        let found =
            report(env, &place, spec, "can /file; can /tmp/file; can /etc/file; can /run/file").await?;
        let ids = format!("{USER} {USER} {USER} {USER}");
        ensure_lines(
            &found,
            &[
                &format!("Uid: {ids}"),
                &format!("Gid: {ids}"),
                &format!("Groups: {USER}"),
                &format!("CapEff: {none}"),
                &format!("CapPrm: {none}"),
                &format!("CapBnd: {none}"),
                "NoNewPrivs: 1",
                "/file no",
                "/tmp/file no",
                "/etc/file no",
                "/run/file no",
            ],
        )
    });
}

#[test]
fn container_without_a_word_is_root_and_one_that_drops_a_capability_has_the_others() {
    run(async |env| {
        let place = TestNamespace::make("security-root").await?;
        let spec = json!({"containers": [{"image": "shell"}]});
        let found = report(env, &place, spec, "can /file").await?;
        ensure_lines(&found, &["Uid: 0 0 0 0", "NoNewPrivs: 0", "/file yes"])?;
        place.kubectl(&["delete", "pod", "reporter"]).await?;
        let drop = json!({"capabilities": {"drop": ["CHOWN"]}});
        let spec = json!({"containers": [{"image": "shell", "securityContext": drop}]});
        let found = report(env, &place, spec, "").await?;
        // CAP_CHOWN has the number 0.
        let effective = found.iter().find(|line| line.starts_with("CapEff:"));
        let bits = effective.and_then(|line| u64::from_str_radix(line.rsplit(' ').next()?, 16).ok());
        ensure!(bits.is_some_and(|bits| bits != 0 && bits & 1 == 0), "{found:?}");
        Ok(())
    });
}

#[test]
fn root_is_refused_where_it_is_excluded() {
    run(async |_| {
        let place = TestNamespace::make("security-refused").await?;
        let mut main = shell("exec sleep 600");
        main["securityContext"] = json!({"runAsNonRoot": true});
        place.apply(&[pod("p", json!({"containers": [main]}))]).await?;
        let refused = |pod: &Value| {
            let waiting = &container(pod)["state"]["waiting"];
            waiting["reason"] == "CreateContainerConfigError" && waiting.to_string().contains("runAsNonRoot")
        };
        place.until("pod", "p", "refused", refused).await.map(drop)
    });
}

/// Files of a root directory, as a shell without other programs lists them.
const LIST: &str = r#"
for path in /* /etc/* /usr/local/bin/* /dev/*; do say "has $path"; done
can /file; can /tmp/file; can /data/file; can /dev/shm/file; can /etc/hosts
while read -r line; do say "hosts $line"; done </etc/hosts
"#;

#[test]
fn image_with_a_root_directory_shows_only_what_is_in_it() {
    run(async |env| {
        let place = TestNamespace::make("security-image").await?;
        let image = oci::around(&["/bin/sh".into()], &env.path().join("root")).await?;
        place.world.runner.images().add("rooted", image);
        let mounts = json!([{"name": "data", "mountPath": "/data"}]);
        let spec = json!({
            "securityContext": {"fsGroup": USER}, "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [{"image": "rooted", "securityContext": limited(), "volumeMounts": mounts}],
        });
        // The user is that of the image.
        let found = report(env, &place, spec, LIST).await?;
        ensure_lines(
            &found,
            &[
                &format!("Uid: {USER} {USER} {USER} {USER}"),
                "CapBnd: 0000000000000000",
                "NoNewPrivs: 1",
                "has /etc/passwd",
                "has /usr/local/bin/sh",
                "has /dev/urandom",
                "/file no",
                "/tmp/file no",
                "/data/file yes",
                "/dev/shm/file yes",
                "/etc/hosts no",
                "hosts 127.0.0.1 localhost",
            ],
        )?;
        let known =
            ["/data", "/dev", "/env", "/etc", "/lib", "/lib64", "/proc", "/sys", "/tmp", "/usr", "/var"];
        let top = found.iter().filter_map(|line| line.strip_prefix("has "));
        let strange: Vec<_> =
            top.filter(|path| path.matches('/').count() == 1 && !known.contains(path)).collect();
        ensure!(strange.is_empty(), "{strange:?}");
        Ok(())
    });
}

#[test]
fn command_in_a_hook_runs_in_the_root_directory_of_the_image_as_its_user() {
    run(async |env| {
        let place = TestNamespace::make("security-hook").await?;
        let image = oci::around(&["/bin/sh".into(), "/bin/sleep".into()], &env.path().join("root")).await?;
        place.world.runner.images().add("hooked", image);
        let ready = r#"while read -r name uid rest; do [ "$name" = Uid: ] && [ "$uid" = 65532 ] && [ -e /etc/nsswitch.conf ] && ! [ -e /bin ] && exit 0; done </proc/self/status; exit 1"#;
        let main = json!({
            "name": "main", "image": "hooked", "command": ["sleep", "600"],
            "readinessProbe": {"exec": {"command": ["sh", "-c", ready]}},
        });
        place.apply(&[pod("p", json!({"containers": [main], "terminationGracePeriodSeconds": 1}))]).await?;
        place.until("pod", "p", "ready", is_ready).await.map(drop)
    });
}

#[test]
fn volumes_belong_to_the_group_of_the_pod_and_to_nobody_else() {
    run(async |env| {
        let place = TestNamespace::make("security-volumes").await?;
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {
                "storageClassName": "zonal", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}},
            },
        });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"}, "stringData": {"a": "1", "b": "2"},
        });
        place.apply(&[claim, secret]).await?;
        let without = volumes_of(env, &place, json!({"runAsUser": USER, "runAsGroup": USER})).await?;
        ensure_lines(&without, &["/data/file no", "/secret/a no", "/secret/mode/b yes", "token yes"])?;
        place.kubectl(&["delete", "pod", "reporter"]).await?;
        let with = volumes_of(env, &place, restricted()).await?;
        ensure_lines(&with, &["/data/file yes", "/secret/a yes", "/secret/mode/b yes", "token yes"])?;
        let dir = place.world.runner.volume("security-volumes", "data").await?;
        let root = std::fs::metadata(&dir)?;
        let found = (root.uid(), root.gid(), root.mode() & 0o7777);
        ensure!(found == (0, USER, 0o2775), "{found:?}");
        let file = std::fs::metadata(dir.join("file"))?;
        ensure!((file.uid(), file.gid()) == (USER, USER), "{} {}", file.uid(), file.gid());
        Ok(())
    });
}

/// Whether a Pod with this security context can write its claim, and read its Secret and its token.
async fn volumes_of(env: &TestEnv, place: &TestNamespace, context: Value) -> Result<Vec<String>> {
    let items = json!([{"key": "a", "path": "a"}, {"key": "b", "path": "mode/b", "mode": 0o444}]);
    let mounts = ["data", "secret"].map(|name| json!({"name": name, "mountPath": format!("/{name}")}));
    let spec = json!({
        "securityContext": context, "containers": [{"image": "shell", "volumeMounts": mounts}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "secret", "secret": {"secretName": "secret", "defaultMode": 0o440, "items": items}},
        ],
    });
    let script = r#"
    can /data/file
    for file in /secret/a /secret/mode/b; do if [ -r $file ]; then say "$file yes"; else say "$file no"; fi; done
    token=/var/run/secrets/kubernetes.io/serviceaccount/token
    if [ -r $token ]; then say "token yes"; else say "token no"; fi
    "#;
    report(env, place, spec, script).await
}
