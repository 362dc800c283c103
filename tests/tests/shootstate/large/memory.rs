//! The memory of the server stays within its budget and a base, however much is written and read at once.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use repot_tests::cgroup::MemoryLimit;
use repot_tests::repot::Dev;
use repot_tests::wait::until;
use repot_tests::{TestEnv, run};
use reqwest::Method;

use super::blob::{Blob, noise};
use super::is_soak;
use crate::shootstate::world::{collection, path};

pub const MIB: u64 = 1 << 20;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const SIZE: usize = 24 << 20;
const DEADLINE: Duration = Duration::from_secs(60);
/// Gigabytes take their time on a machine that is busy with other tests.
const PATIENT: &str = "--request-timeout=20m";
/// What is resident beside the budget: the program, windows of connections, pieces of answers on their way, what the allocator
/// keeps.
pub const BASE: u64 = 128 * MIB;

/// The most that was ever resident, in bytes, as the kernel counts.
pub fn peak(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

/// Begins anew to look for the most that is resident.
pub fn forget_peak(pid: u32) -> Result<()> {
    // See proc(5), clear_refs.
    fs::write(format!("/proc/{pid}/clear_refs"), "5").map_err(Into::into)
}

/// Writes and reads all at once; whether the kernel ends the server that takes more than its budget and [`BASE`].
async fn write_and_read(env: &TestEnv, limited: bool) -> Result<()> {
    // Together they are more than the budget, even if each were held once.
    let (count, size, budget) = if is_soak() { (32, 64 * MIB, 320 * MIB) } else { (8, 24 * MIB, 132 * MIB) };
    let flags = [
        format!("--max-object-bytes={}", size + MIB),
        format!("--max-inflight-bytes={budget}"),
        PATIENT.to_owned(),
    ];
    let mut dev = Dev::start(env, flags).await?;
    let (api, pid) = (dev.api()?, dev.repot().process().pid());
    let group = limited.then(|| MemoryLimit::impose(pid, budget + BASE - peak(pid)?)).transpose()?;
    let noise = noise(usize::try_from(size)?);
    let blobs: Vec<Blob> = (0..count).map(|number| Blob::new(number, &noise)).collect();
    try_join_all(blobs.iter().map(|blob| blob.create(&api))).await?;
    let written = peak(pid)?;
    try_join_all(blobs.iter().map(|blob| blob.get(&api))).await?;
    let read = peak(pid)?;
    println!(
        "{count} writes of {} MiB at once, then as many reads, with a budget of {} MiB: {} and {} MiB resident at most",
        size / MIB,
        budget / MIB,
        written / MIB,
        read / MIB
    );
    if let Some(group) = group {
        println!("in a control group that had {} MiB at most, page cache included", group.peak()? / MIB);
    }
    ensure!(read <= budget + BASE, "{read} bytes were resident, and the budget is {budget}");
    let list = api.get(&collection("default")).await?.ok()?;
    ensure!(list["items"].as_array().is_some_and(|items| items.len() == count), "{list}");
    Ok(())
}

#[test]
fn many_large_writes_and_reads_at_once_stay_within_the_budget() {
    run(async |env| write_and_read(env, false).await);
}

#[test]
#[ignore = "needs a control group that it may write: make soak"]
fn the_kernel_finds_nothing_to_end_in_a_control_group_of_the_budget() {
    run(async |env| write_and_read(env, true).await);
}

/// A server with a budget of 132 MiB, and an object of [`SIZE`].
async fn start_with_one(env: &TestEnv) -> Result<(Dev, Blob)> {
    let limit = SIZE as u64 + MIB;
    let flags = [format!("--max-object-bytes={limit}"), format!("--max-inflight-bytes={}", 132 * MIB)];
    let dev = Dev::start(env, flags).await?;
    let blob = Blob::new(0, &noise(SIZE));
    blob.create(&dev.api()?).await?;
    Ok((dev, blob))
}

#[test]
fn clients_that_do_not_read_hold_no_more_than_a_piece_each() {
    run(async |env| {
        let (mut dev, blob) = start_with_one(env).await?;
        let (api, pid) = (dev.api()?, dev.repot().process().pid());
        // All answers have begun, and nobody reads on. One more and the next is within the share of one user.
        let idle = dev.api()?;
        let waiting =
            try_join_all((0..12).map(|_| idle.request(Method::GET, &path(&blob.name)).send())).await?;
        blob.get(&api).await?;
        let read = peak(pid)?;
        ensure!(waiting.iter().all(|answer| answer.status() == 200), "not all began");
        ensure!(read <= 132 * MIB + BASE, "{} MiB were resident for 12 clients that do not read", read / MIB);
        // Nor do they keep anybody from writing.
        Blob::new(1, &noise(SIZE)).create(&api).await
    });
}

#[test]
fn more_clients_that_do_not_read_are_sent_away_and_cost_no_memory() {
    run(async |env| {
        let (mut dev, blob) = start_with_one(env).await?;
        let (api, pid) = (dev.api()?, dev.repot().process().pid());
        // As the administrator, whom no number of requests holds back.
        let idle = (0..4).map(|_| dev.api()).collect::<Result<Vec<_>>>()?;
        let asked = (0..200).map(|at| idle[at % idle.len()].request(Method::GET, &path(&blob.name)).send());
        let answers = try_join_all(asked).await?;
        let begun = answers.iter().filter(|answer| answer.status() == 200).count();
        let refused = answers.iter().filter(|answer| answer.status() == 429);
        let told = refused.filter(|answer| answer.headers().contains_key("retry-after")).count();
        // A half of 48 MiB is for one user, 1.5 MiB for each answer.
        ensure!(begun >= 16 && told > 0 && begun + told == 200, "{begun} began, {told} were sent away");
        let most = peak(pid)?;
        ensure!(most <= 132 * MIB + BASE, "{} MiB were resident for 200 that do not read", most / MIB);
        // What is short has its own way meanwhile.
        api.request(Method::GET, &collection("default"))
            .header("accept", METADATA)
            .send()
            .await?
            .error_for_status()?;
        drop((answers, idle));
        until("their places to be free", DEADLINE, async || blob.get(&api).await).await
    });
}

#[test]
fn a_list_is_sent_object_by_object_and_never_held_as_a_whole() {
    const LENGTH: usize = 12 << 20;
    const COUNT: usize = 20;
    run(async |env| {
        let mut dev = Dev::start(env, Vec::<String>::new()).await?;
        let (api, pid) = (dev.api()?, dev.repot().process().pid());
        let noise = noise(LENGTH);
        for number in 0..COUNT {
            Blob::new(number, &noise).create(&api).await?;
        }
        forget_peak(pid)?;
        let before = peak(pid)?;
        let mut list = api.request(Method::GET, &collection("default")).send().await?.error_for_status()?;
        let mut length = 0;
        while let Some(piece) = list.chunk().await? {
            length += piece.len();
        }
        let most = peak(pid)?;
        let grown = most - before;
        println!("{} MiB more were resident for a list of {} MiB", grown / MIB, length >> 20);
        ensure!(length > COUNT * LENGTH, "the list has {length} bytes");
        ensure!(most < length as u64, "{most} bytes were resident, so the list may have been");
        ensure!(grown < 2 * LENGTH as u64, "{grown} bytes more were resident for a list of {length}");
        Ok(())
    });
}

#[test]
fn what_can_never_be_worked_on_is_refused_with_the_flag_that_says_so() {
    run(async |env| {
        let limit = format!("--max-object-bytes={}", 64 * MIB);
        let little = format!("--max-inflight-bytes={}", 128 * MIB);
        let Err(error) = Dev::start(env, [&limit, &little]).await else { anyhow::bail!("it started") };
        ensure!(format!("{error:#}").contains("--max-inflight-bytes=134217728 is too little"), "{error:#}");
        // A patch holds itself, what it changes, and what comes of it.
        let flags =
            [format!("--max-object-bytes={}", 25 * MIB), format!("--max-inflight-bytes={}", 132 * MIB)];
        let dev = Dev::start(env, flags).await?;
        let (api, noise) = (dev.api()?, noise(20 << 20));
        let blob = Blob::new(0, &noise);
        blob.create(&api).await?;
        let patch = [&br#"{"spec":{"x": ""#[..], &noise, br#""}}"#].concat();
        let request = api.request(Method::PATCH, &path(&blob.name)).body(patch);
        let answer =
            repot_tests::http::send(request.header("Content-Type", "application/merge-patch+json")).await?;
        ensure!(answer.status == 413 && answer.to_string().contains("--max-inflight-bytes"), "{answer}");
        blob.get(&api).await
    });
}
