//! What the system knows of this process.

use prometheus::{Gauge, core::Collector};

/// Gauges under the names of Prometheus' own clients.
pub(super) struct Process {
    start: Gauge,
    resident: Gauge,
    virtual_size: Gauge,
    cpu: Gauge,
    open_files: Gauge,
    most_files: Gauge,
}

impl Process {
    pub(super) fn new() -> prometheus::Result<Self> {
        let process = Self {
            start: Gauge::new("process_start_time_seconds", "When the process began, since the epoch.")?,
            resident: Gauge::new("process_resident_memory_bytes", "Resident memory.")?,
            virtual_size: Gauge::new("process_virtual_memory_bytes", "Virtual memory.")?,
            cpu: Gauge::new("process_cpu_seconds_total", "User and system CPU time.")?,
            open_files: Gauge::new("process_open_fds", "Open file descriptors.")?,
            most_files: Gauge::new("process_max_fds", "How many file descriptors may be open.")?,
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        process.start.set(now.as_secs_f64());
        Ok(process)
    }

    pub(super) fn collectors(&self) -> Vec<Box<dyn Collector>> {
        let gauges =
            [&self.start, &self.resident, &self.virtual_size, &self.cpu, &self.open_files, &self.most_files];
        gauges.into_iter().map(|gauge| Box::new(gauge.clone()) as Box<dyn Collector>).collect()
    }

    /// Looks again. What the system does not say stays as it was.
    pub(super) fn refresh(&self) {
        const PAGE: f64 = 4096.0;
        const TICKS: f64 = 100.0;
        if let Ok(stat) = std::fs::read_to_string("/proc/self/stat") {
            // The name of the process stands in parentheses and may hold anything; the numbers come after it.
            let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            let fields: Vec<f64> = fields.map(|field| field.parse().unwrap_or(0.0)).collect();
            let field = |at: usize| fields.get(at).copied().unwrap_or(0.0);
            self.resident.set(field(21) * PAGE);
            self.virtual_size.set(field(20));
            self.cpu.set((field(11) + field(12)) / TICKS);
        }
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
            self.open_files.set(entries.count() as f64);
        }
        if let Ok(limits) = std::fs::read_to_string("/proc/self/limits") {
            let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
            let soft = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            soft.into_iter().for_each(|soft| self.most_files.set(soft));
        }
    }
}
