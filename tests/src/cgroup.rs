//! A control group that gives a process so much memory and no more: the kernel kills what goes beyond.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where the memory controller is mounted, in the older hierarchy and in the unified one.
const OLDER: &str = "/sys/fs/cgroup/memory";
const UNIFIED: &str = "/sys/fs/cgroup";

/// A group with one process, which is free again when this is dropped.
pub struct MemoryLimit {
    dir: PathBuf,
    older: bool,
    pid: u32,
}

impl MemoryLimit {
    /// Puts a process into a group of its own with so many bytes, page cache included, which the kernel gives up first. What
    /// it had before is not counted.
    ///
    /// Errors: without the right to make groups, or where the kernel has no memory controller.
    pub fn impose(pid: u32, bytes: u64) -> Result<Self> {
        let older = Path::new(OLDER).join("memory.limit_in_bytes").exists();
        let root = if older { OLDER } else { UNIFIED };
        let dir = Path::new(root).join(format!("repot-test-{pid}"));
        if !older {
            write(&Path::new(root).join("cgroup.subtree_control"), "+memory")?;
        }
        fs::create_dir(&dir).with_context(|| format!("failed to make the group {}", dir.display()))?;
        let limit = Self { dir, older, pid };
        let file = if older { "memory.limit_in_bytes" } else { "memory.max" };
        write(&limit.dir.join(file), &bytes.to_string())?;
        write(&limit.dir.join("cgroup.procs"), &pid.to_string())?;
        Ok(limit)
    }

    /// The most that the group ever had, in bytes: at most its limit.
    pub fn peak(&self) -> Result<u64> {
        let file = self.dir.join(if self.older { "memory.max_usage_in_bytes" } else { "memory.peak" });
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Ok(text.trim().parse()?)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Fails where the process is gone, and then the group is empty, too.
        if let Some(root) = self.dir.parent() {
            let _ = fs::write(root.join("cgroup.procs"), self.pid.to_string());
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("failed to write {text} to {}", file.display()))
}
