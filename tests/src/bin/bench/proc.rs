//! What the kernel tells about a process and the machine.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Clock ticks a second in /proc; Linux shows 100 to user space on every architecture.
const TICKS: f64 = 100.0;

/// Resident memory of a process, in MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// Resident memory now, in MiB (VmRSS).
    pub now: f64,
    /// The most since its start or the latest [`forget_peak`] (VmHWM).
    pub peak: f64,
}

/// Reads the memory of a process.
///
/// Errors: when it does not run.
pub fn memory(pid: u32) -> Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.trim().split(' ').next()?.parse::<f64>().ok());
        kib.map(|kib| kib / 1024.0).with_context(|| format!("process {pid} tells no {name}"))
    };
    Ok(Memory { now: field("VmRSS:")?, peak: field("VmHWM:")? })
}

/// Lets the peak of a process start again from what it uses now.
///
/// Errors: where the kernel does not offer it, or the process is somebody else's.
pub fn forget_peak(pid: u32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
        .with_context(|| format!("failed to reset the peak of process {pid}"))
}

/// CPU time that a process has used, in seconds; 0 when it does not run.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, may contain spaces.
    let after_name = stat.rsplit_once(") ").map(|(_, rest)| rest).unwrap_or_default();
    let ticks = |at: usize| after_name.split(' ').nth(at).and_then(|text| text.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / TICKS
}

/// CPU time of the whole machine since its start, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineCpu {
    /// Of all processes and the kernel.
    pub busy: f64,
    /// CPU time of all kinds, idle time included.
    pub total: f64,
}

/// Reads the CPU time of the machine; zeros where the kernel does not tell.
pub fn machine_cpu() -> MachineCpu {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user.
    let ticks: Vec<f64> =
        first.split_whitespace().skip(1).take(8).filter_map(|text| text.parse().ok()).collect();
    let total: f64 = ticks.iter().sum();
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    MachineCpu { busy: (total - idle) / TICKS, total: total / TICKS }
}

/// Bytes of all files below a directory.
pub fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => disk_bytes(&entry.path()),
        // Blocks, not length: etcd's log is longer than what is in it.
        Ok(data) => std::os::unix::fs::MetadataExt::blocks(&data) * 512,
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

/// The machine as a reader needs to know it: cores, CPU, kernel, load, and the disk under `dir`.
pub fn describe_machine(dir: &Path) -> Result<Value> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model =
        cpu.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    let memory = read("/proc/meminfo");
    let kib = memory.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok());
    let mut sync = sync_latencies(dir)?;
    sync.sort_by(f64::total_cmp);
    Ok(json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "cpu": model, "memoryGiB": kib.map(|kib| kib >> 20),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "loadBefore": load(), "disk": describe_disk(dir),
        "fdatasync4KiBMillis": { "p50": percentile(&sync, 50.0), "p99": percentile(&sync, 99.0), "n": sync.len() },
    }))
}

/// Load averages of 1, 5 and 15 minutes.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Milliseconds of 4 KiB written and forced to disk, one after another.
fn sync_latencies(dir: &Path) -> Result<Vec<f64>> {
    use std::io::Write;
    let path = dir.join("fdatasync");
    let mut file = fs::File::create(&path)?;
    let mut latencies = Vec::new();
    for _ in 0..300 {
        let start = std::time::Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        latencies.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    fs::remove_file(path)?;
    Ok(latencies)
}

/// File system and device of the longest mount point above `dir`.
fn describe_disk(dir: &Path) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let above = fields.filter(|mount| mount.len() > 2 && dir.starts_with(mount[1]));
    let Some(mount) = above.max_by_key(|mount| mount[1].len()) else { return "unknown".to_owned() };
    let device = mount[0].trim_start_matches("/dev/");
    let rotational = fs::read_to_string(format!("/sys/block/{device}/queue/rotational")).unwrap_or_default();
    let kind = if rotational.trim() == "1" { ", rotational" } else { "" };
    format!("{} on {}{kind}", mount[2], mount[0])
}

/// The value below which so many percent of sorted values lie (nearest rank); 0 without values.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}
