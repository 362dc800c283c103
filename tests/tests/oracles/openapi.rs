//! schemathesis: requests made from the published OpenAPI document, right and wrong, none of which the server may fail at.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use repot_tests::access::{Access, Credential};
use repot_tests::run;
use repot_tests::{binaries, pki, tool};
use serde_json::{Value, json};
use tokio::process::Command;

use super::rounds;
use crate::shootstate::world::{GROUP, VERSION, World, small};

/// The document with names of something that is there, so that most requests get past 404; and without watches, which do not end.
fn narrow(document: &mut Value) -> Result<()> {
    let paths = document["paths"].as_object_mut().context("no paths")?;
    for holder in paths.values_mut().flat_map(holders_of_parameters) {
        holder.retain(|parameter| parameter["name"] != "watch");
        for parameter in holder.iter_mut().filter(|parameter| parameter["in"] == "path") {
            let name = if parameter["name"] == "namespace" { "default" } else { "s-1" };
            parameter["schema"] = json!({"type": "string", "enum": [name]});
        }
    }
    Ok(())
}

/// Parameters stand beside the methods of a path and in each of them.
fn holders_of_parameters(path: &mut Value) -> Vec<&mut Vec<Value>> {
    let members = path.as_object_mut().into_iter().flat_map(|path| path.values_mut());
    let lists = members.filter_map(|member| match member {
        Value::Array(parameters) => Some(parameters),
        Value::Object(method) => method.get_mut("parameters").and_then(Value::as_array_mut),
        _ => None,
    });
    lists.collect()
}

fn command(dir: &Path, access: &Access, document: &Path) -> Result<Command> {
    let Credential::Certificate(leaf) = &access.credential else { anyhow::bail!("no certificate") };
    let (cert, key) = leaf.write(dir, "schemathesis")?;
    let ca = pki::write_private(dir.join("schemathesis-ca.crt"), &access.ca_pem)?;
    let mut command = Command::new(binaries::find("schemathesis")?);
    command.current_dir(dir).arg("run").arg(document).args(["--url", &access.server]);
    command.arg("--tls-verify").arg(ca).arg("--request-cert").arg(cert).arg("--request-cert-key").arg(key);
    command.args(["--checks=not_a_server_error", "--phases=examples,coverage,fuzzing", "--no-shrink"]);
    command.args([
        "--seed=1",
        "--workers=1",
        "--request-timeout=30",
        "--request-retries=5",
        "--max-examples=1000",
    ]);
    command.arg(format!("--max-time={}", rounds(45, 600)));
    Ok(command)
}

#[test]
fn no_request_made_from_the_published_schema_fails_the_server() {
    run(async |env| {
        let world = World::dev(env).await?;
        world.create(&small("s-1", &json!({"a": 1}))).await?;
        let mut document = world.api.get(&format!("/openapi/v3/apis/{GROUP}/{VERSION}")).await?.ok()?;
        narrow(&mut document)?;
        let file = env.path().join("openapi.json");
        std::fs::write(&file, document.to_string())?;
        let access = Access::read(world.kubectl.kubeconfig())?;
        let said = tool::run(command(env.path(), &access, &file)?, b"").await?.text()?;
        // `Test cases:` and then `1768 generated, 1768 passed`.
        let generated =
            said.lines().find_map(|line| line.trim().split_once(" generated,")).context("no summary")?;
        let cases: u64 = generated.0.replace(',', "").parse()?;
        ensure!(cases > 300, "only {cases} requests were made:\n{said}");
        Ok(())
    });
}
