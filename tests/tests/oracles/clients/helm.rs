//! helm, as people type it: a release with a ShootState and an EtcdBackup, applied by helm or by the server.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use repot_tests::{TestEnv, binaries, run, tool};
use serde_json::json;
use tokio::process::Command;

use super::{backup, count, managers, state};
use crate::etcd_kinds::world::{World, path};
use crate::shootstate::world::path as state_path;

const CHART: &str = "apiVersion: v2\nname: states\nversion: 0.1.0\n";
const VALUES: &str = "count: 1\nbackup: true\n";
const STATE: &str = r#"apiVersion: core.gardener.cloud/v1alpha1
kind: ShootState
metadata:
  name: {{ .Release.Name }}
  labels: {helm.sh/chart: states}
spec:
  gardener:
  - {name: ca, type: secret, data: {data: {ca.key: c2VjcmV0}}}
  extensions:
  - {kind: Worker, name: w, state: {count: {{ .Values.count }}}}
"#;
const BACKUP: &str = r#"{{ if .Values.backup -}}
apiVersion: migration.gardener.cloud/v1alpha1
kind: EtcdBackup
metadata: {name: "{{ .Release.Name }}"}
spec: {clusterRef: {name: main}}
{{- end }}
"#;

#[test]
fn helm_installs_upgrades_rolls_back_and_uninstalls() {
    run(async |env| {
        let world = World::garden(env).await?;
        let chart = write_chart(env)?;
        for (release, server) in [("server", true), ("client", false)] {
            let helm = Helm { env, world: &world, chart: &chart, release, server };
            helm.installs().await?;
            helm.upgrades().await?;
            helm.rolls_back().await?;
            helm.uninstalls().await?;
        }
        Ok(())
    });
}

fn write_chart(env: &TestEnv) -> Result<PathBuf> {
    let dir = env.make_dir("chart")?;
    std::fs::create_dir(dir.join("templates"))?;
    for (file, text) in [
        ("Chart.yaml", CHART),
        ("values.yaml", VALUES),
        ("templates/state.yaml", STATE),
        ("templates/backup.yaml", BACKUP),
    ] {
        std::fs::write(dir.join(file), text)?;
    }
    Ok(dir)
}

/// helm with one release, applied by the server or by helm itself.
struct Helm<'a> {
    env: &'a TestEnv,
    world: &'a World,
    chart: &'a Path,
    release: &'a str,
    server: bool,
}

impl Helm<'_> {
    /// Runs `helm <verb> <release> <rest>`, where `CHART` stands for the chart and `SIDE` for who applies.
    async fn says(&self, verb: &str, rest: &str) -> Result<String> {
        let side = format!("--server-side={}", self.server);
        let mut command = Command::new(binaries::find("helm")?);
        command.args(verb.split(' ')).arg(self.release).current_dir(self.env.path());
        for word in rest.split_whitespace() {
            match word {
                "CHART" => command.arg(self.chart),
                "SIDE" => command.arg(&side),
                word => command.arg(word),
            };
        }
        command.env("HOME", self.env.path()).env("KUBECONFIG", self.world.kubectl.kubeconfig());
        tool::run(command, b"").await?.text()
    }

    async fn installs(&self) -> Result<()> {
        self.says("install", "CHART SIDE --dry-run=server").await?;
        ensure!(self.world.api.get(&state_path(self.release)).await?.status == 404, "a dry run installed");
        let said = self.says("install", "CHART SIDE --wait --timeout=60s").await?;
        ensure!(said.contains("STATUS: deployed"), "{said}");
        let installed = state(self.world, self.release).await?;
        ensure!(*count(&installed) == 1, "{installed}");
        ensure!(installed["metadata"]["annotations"]["meta.helm.sh/release-name"] == self.release);
        let operation = if self.server { "Apply" } else { "Update" };
        ensure!(managers(&installed, operation) == ["helm"], "{}", installed["metadata"]);
        self.is_as_its_manifest().await
    }

    /// What helm says that it installed does not differ from what there is.
    async fn is_as_its_manifest(&self) -> Result<()> {
        let manifest = self.says("get manifest", "").await?;
        let flags = ["diff", "--server-side", "--field-manager=helm", "--force-conflicts", "-f", "-"];
        let output = self.world.kubectl.run_with(flags, manifest.as_bytes()).await?;
        // The diff would take helm's own annotations away: they are not in the manifest.
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let differs = |line: &&str| {
            line.starts_with(['+', '-'])
                && !["+++", "---"].iter().any(|start| line.starts_with(start))
                && !["meta.helm.sh/", "annotations:", "labels:", "managed-by"]
                    .iter()
                    .any(|ours| line.contains(ours))
        };
        let found: Vec<&str> = said.lines().filter(differs).collect();
        ensure!(output.code < 2 && found.is_empty(), "{found:?} {said} {}", output.stderr);
        Ok(())
    }

    /// Three-way: what helm changes is changed, what others added stays, what left the chart goes.
    async fn upgrades(&self) -> Result<()> {
        let theirs = json!({"metadata": {"labels": {"theirs": "stays"}}});
        let path_of_state = state_path(self.release);
        self.world.api.patch(&path_of_state, "application/merge-patch+json", &theirs).await?.ok()?;
        let said = self.says("upgrade", "CHART SIDE --wait --timeout=60s --set count=2,backup=false").await?;
        ensure!(said.contains("REVISION: 2"), "{said}");
        let upgraded = state(self.world, self.release).await?;
        ensure!(*count(&upgraded) == 2 && upgraded["metadata"]["labels"]["theirs"] == "stays", "{upgraded}");
        let gone = self.world.api.get(&path("etcdbackups", self.release)).await?;
        ensure!(gone.status == 404, "what left the chart is still there: {gone}");
        self.is_as_its_manifest().await
    }

    async fn rolls_back(&self) -> Result<()> {
        self.says("rollback", "1 SIDE --wait --timeout=60s").await?;
        let back = state(self.world, self.release).await?;
        ensure!(*count(&back) == 1 && back["metadata"]["labels"]["theirs"] == "stays", "{back}");
        let made = backup(self.world, self.release).await?;
        ensure!(made["spec"]["clusterRef"]["name"] == "main", "{made}");
        self.is_as_its_manifest().await
    }

    async fn uninstalls(&self) -> Result<()> {
        self.says("uninstall", "--wait --timeout=60s").await?;
        for path in [state_path(self.release), path("etcdbackups", self.release)] {
            let answer = self.world.api.get(&path).await?;
            ensure!(answer.status == 404, "{path} is left: {answer}");
        }
        Ok(())
    }
}
