//! What a small change of a large object costs where it rests.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use repot_tests::run;
use repot_tests::states::{MachineState, Options, change_one_machine, generate};
use serde_json::{Value, json};

use super::etcd_values::Values;
use super::world::{World, path};

const TEN_MIB: usize = 10 << 20;

/// All chunks in etcd, with their sizes.
async fn chunks(values: &Values) -> Result<BTreeMap<String, usize>> {
    let found = values.range("/repot/chunks/").await?;
    Ok(found
        .into_iter()
        .filter(|(key, _)| !key.contains("/-/"))
        .map(|(key, value)| (key, value.len()))
        .collect())
}

/// Where two values differ, as pointers with the new value; whole values where the shapes differ.
fn differences(before: &Value, after: &Value, at: &str, found: &mut Vec<(String, Value)>) {
    match (before, after) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.iter().for_each(|(key, a)| differences(a, &b[key], &format!("{at}/{key}"), found));
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter()
                .zip(b)
                .enumerate()
                .for_each(|(n, (a, b))| differences(a, b, &format!("{at}/{n}"), found));
        }
        (a, b) if a == b => {}
        _ => found.push((at.to_owned(), after.clone())),
    }
}

/// Creates a state of ten MiB and patches one machine of it. Gives chunks and bytes of both writes.
async fn change_a_machine(world: &World, values: &Values, form: MachineState) -> Result<[(usize, usize); 2]> {
    let mut options = Options::new("costs", TEN_MIB, 7);
    options.machine_state = form;
    let before = generate(&options)?;
    let mut after = before.clone();
    change_one_machine(&mut after, 100)?;
    let mut changes = Vec::new();
    differences(&before, &after, "", &mut changes);
    ensure!(!changes.is_empty(), "nothing was changed");

    world.create(&before).await?;
    let first = chunks(values).await?;
    let operation = |(path, value): &(String, Value)| json!({"op": "replace", "path": path, "value": value});
    let patch: Vec<Value> = changes.iter().map(operation).collect();
    let patched =
        world.api.patch(&path("costs"), "application/json-patch+json", &patch.into()).await?.ok()?;
    ensure!(patched["spec"] == after["spec"], "the patch did something else");
    let mut second = chunks(values).await?;
    second.retain(|key, _| !first.contains_key(key));
    world.api.delete(&path("costs")).await?.ok()?;
    let sum = |chunks: &BTreeMap<String, usize>| (chunks.len(), chunks.values().sum());
    Ok([sum(&first), sum(&second)])
}

/// States on which a change is measured: cuts hang on the random key of each.
const STATES: usize = 3;

/// The same for several states: in how many chunks of how many the change was, and thousandths of the bytes; the least first.
async fn measure(world: &World, values: &Values, form: MachineState) -> Result<(Vec<usize>, Vec<usize>)> {
    let (mut counts, mut parts) = (Vec::new(), Vec::new());
    for _ in 0..STATES {
        let [(all, all_bytes), (new, new_bytes)] = change_a_machine(world, values, form).await?;
        println!("{all} chunks, {all_bytes} bytes; one machine changed: {new} chunks, {new_bytes} bytes");
        ensure!(all >= 10 && new > 0, "{new} of {all} chunks were written for one machine");
        counts.push(new);
        parts.push(new_bytes * 1000 / all_bytes);
    }
    counts.sort_unstable();
    parts.sort_unstable();
    Ok((counts, parts))
}

#[test]
fn a_patch_of_one_machine_writes_a_few_chunks_of_ten_mebibytes() {
    run(async |env| {
        let mut world = World::garden_on_etcd(env).await?;
        let values = Values::new(world.etcd.as_mut().context("etcd")?)?;
        let (counts, parts) = measure(&world, &values, MachineState::Plain).await?;
        // One or two chunks mostly; now and then it takes a few until cuts fall into step again.
        ensure!(counts[STATES / 2] <= 3 && counts[STATES - 1] <= 6, "{counts:?} chunks for one machine");
        ensure!(parts[STATES / 2] <= 100, "{parts:?} thousandths were written for one machine");
        // Behind the change every byte of a gzip stream differs, and before it none does.
        let (_, parts) = measure(&world, &values, MachineState::Gzip).await?;
        ensure!(parts[STATES - 1] <= 500, "{parts:?} thousandths were written for one machine");
        Ok(())
    });
}
