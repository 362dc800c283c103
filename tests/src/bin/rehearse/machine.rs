//! What this machine is, and how busy it was: a machine that has too much to do fails requests by itself.

use serde::Serialize;

/// A machine with so many times as much to do as it has cores makes elections and leases late.
const BUSY: f64 = 8.0;

/// This machine during a rehearsal.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// How many cores it has.
    pub cores: usize,
    /// The highest load average over a minute that was seen: processes that ran or wanted to.
    pub highest_load: f64,
}

impl Machine {
    /// One whose load was not looked at.
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { cores, highest_load: 0.0 }
    }

    /// Looks at the load now. Nothing is seen where the kernel does not tell it.
    pub fn look(&mut self) {
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        self.highest_load = self.highest_load.max(load(&text).unwrap_or_default());
    }

    /// Cores and load in one line.
    pub fn text(&self) -> String {
        let Self { cores, highest_load } = self;
        format!("{cores} cores, load average up to {highest_load:.1}")
    }

    /// Whether it had so much to do that requests may have failed for that alone.
    #[expect(clippy::cast_precision_loss, reason = "there are few cores")]
    pub fn was_busy(&self) -> bool {
        self.highest_load > BUSY * self.cores as f64
    }
}

fn load(text: &str) -> Option<f64> {
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_the_average_over_a_minute() {
        assert_eq!(load("4.76 15.97 14.23 2/345 1234\n"), Some(4.76));
        assert_eq!(load(""), None);
    }

    #[test]
    fn machine_is_busy_with_eight_times_as_much_as_it_has_cores() {
        let of = |highest_load| Machine { cores: 2, highest_load };
        assert!(of(16.1).was_busy() && !of(15.9).was_busy());
    }
}
