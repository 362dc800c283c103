//! The web page of `repot ui` in a real Chromium, before a garden with a thousand Shoots. `tests/browser` has what happens in the browser.
//!
//! `tests/browser/build` installs Chromium and the Node.js packages that drive it. `UPDATE_GOLDENS=1` renews the positions that are
//! compared, and `PAGE_PICTURES=DIRECTORY` writes the pictures of docs/operate/web-page.md.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use repot_api::names::{MIGRATION_GROUP, V1ALPHA1};
use repot_tests::{
    TestEnv,
    binaries::testbed_dir,
    garden::Garden,
    repot::{Dev, Repot, write_encryption_config},
    run_large, tool,
};
use serde_json::json;
use tokio::{process::Command, time::timeout};

/// All that happens in the browser takes a minute or two.
const BROWSER_DEADLINE: Duration = Duration::from_secs(600);
/// What the program may have resident before a garden as large as it shows.
const MOST_MIB: u64 = 384;
const BROWSER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/browser");

/// Starts the page for a kubeconfig; its URL is the link with the token.
async fn page(env: &TestEnv, kubeconfig: &Path) -> Result<Repot> {
    Repot::start(env, "ui", ["--no-open".to_owned(), format!("--kubeconfig={}", kubeconfig.display())]).await
}

/// Runs a script of `tests/browser` with the link of a page, and prints what it says.
async fn script(name: &str, kubeconfig: &Path, page: &Repot, more: &[&str]) -> Result<()> {
    let packages = testbed_dir().join("browser");
    ensure!(packages.join("node_modules/puppeteer-core").is_dir(), "run tests/browser/build before");
    let mut command = Command::new("node");
    command.arg(format!("{BROWSER}/{name}")).arg(kubeconfig).arg(page.url()).args(more);
    command.env("BROWSER_PACKAGES", &packages);
    let run = timeout(BROWSER_DEADLINE, tool::run(command, b""));
    let output = run.await.context("the browser does not come to an end")??;
    eprintln!("{}", output.stderr);
    print!("{}", output.text()?);
    Ok(())
}

/// A garden that serves Shoots and Seeds, and Repot's own kinds behind it.
async fn garden(env: &TestEnv) -> Result<(Garden, Repot)> {
    let garden = Garden::start(env).await?;
    let kinds = concat!(env!("CARGO_MANIFEST_DIR"), "/crds/garden.yaml");
    garden.kubectl(["apply", "-f", kinds]).await?.text()?;
    let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    garden.kubectl(established).await?.text()?;
    let flags = [
        format!("--storage=embedded:{}", env.make_dir("store")?.display()),
        format!("--encryption-provider-config={}", write_encryption_config(env.path())?.display()),
        "--serve=all".to_owned(),
        format!("--shootstate-group={MIGRATION_GROUP}"),
    ];
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    garden.apply(&[namespace("repot-system")]).await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "repot-system", "name": "repot-apiserver"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    let namespaces = ["garden-dev", "garden-prod", "garden-team-blue"].map(namespace);
    garden.apply(&[vec![service], namespaces.to_vec()].concat()).await?;
    let apiserver = Repot::behind(env, &garden, &[(MIGRATION_GROUP, V1ALPHA1)], flags).await?;
    Ok((garden, apiserver))
}

#[test]
#[ignore = "a browser, in make soak"]
fn page_shows_and_steers_a_garden_with_a_thousand_shoots() {
    run_large(async |env| {
        let (garden, _apiserver) = garden(env).await?;
        let page = page(env, garden.kubeconfig()).await?;
        script("page.mjs", garden.kubeconfig(), &page, &["1000"]).await
    });
}

/// As many objects of two kinds as the program keeps (`MOST_OBJECTS` in `console/src/ui/state/mod.rs`).
#[test]
#[ignore = "minutes, in make soak"]
fn twenty_thousand_shoots_and_as_many_migrations_fit_into_little_memory() {
    run_large(async |env| {
        let (garden, _apiserver) = garden(env).await?;
        let mut page = page(env, garden.kubeconfig()).await?;
        script("memory.mjs", garden.kubeconfig(), &page, &["20000", "8"]).await?;
        let status = fs::read_to_string(format!("/proc/{}/status", page.process().pid()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        let kib: u64 = peak.trim().trim_end_matches(" kB").trim().parse()?;
        println!("at most {} MiB were resident", kib >> 10);
        ensure!(kib >> 10 <= MOST_MIB, "{} MiB were resident", kib >> 10);
        Ok(())
    });
}

#[test]
#[ignore = "a browser, in make soak"]
fn page_of_a_plain_installation_says_which_kinds_are_not_served() {
    run_large(async |env| {
        let mut dev = Dev::start(env, [""; 0]).await?;
        let page = page(env, dev.kubeconfig()).await?;
        script("plain.mjs", dev.kubeconfig(), &page, &[]).await?;
        dev.repot().restart().await?;
        script("plain.mjs", dev.kubeconfig(), &page, &["again"]).await?;
        dev.repot().stop().await
    });
}
