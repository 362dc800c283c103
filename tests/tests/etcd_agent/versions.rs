//! An etcd that is too old for the flags that it is given.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use repot_tests::run;
use serde_json::json;

use super::world::Cluster;

/// The real etcd, which says that it is of another version.
fn of_version(dir: &Path, etcd: &Path, version: &str) -> Result<PathBuf> {
    let path = dir.join(format!("etcd-{version}"));
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'etcd Version: {version}'; exit; fi\nexec {} \"$@\"\n",
        etcd.display()
    );
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

#[test]
fn etcd_that_is_too_old_for_a_flag_is_not_started_and_that_is_told() {
    run(async |env| {
        let mut cluster = Cluster::with_tls(env, 1)?;
        let real = cluster.etcd.clone();
        cluster.etcd = of_version(&cluster.dir, &real, "3.5.21")?;
        cluster.config["etcdFlags"] = json!({"peer-skip-client-san-verification": "true"});
        let mut agent = cluster.start(env, 0)?;
        let told = |status: &serde_json::Value| {
            status["phase"] == "Waiting"
                && status["message"].as_str().is_some_and(|text| {
                    text.starts_with(
                        "EtcdTooOld: etcd is 3.5, and --peer-skip-client-san-verification needs 3.6",
                    )
                })
        };
        agent.says("that etcd is too old", told).await?;
        ensure!(agent.etcds()?.is_empty(), "{:?}", agent.etcds()?);
        agent.process.kill();

        // The same volume with an etcd that knows the flag, and one without the flag that does not.
        cluster.etcd = of_version(&cluster.dir, &real, "3.6.0")?;
        let mut agent = cluster.start(env, 0)?;
        agent.ready().await?;
        agent.process.kill();
        agent.no_etcd().await?;
        cluster.etcd = of_version(&cluster.dir, &real, "3.5.21")?;
        cluster.config["etcdFlags"] = json!({});
        let mut agent = cluster.start(env, 0)?;
        agent.ready().await
    });
}
