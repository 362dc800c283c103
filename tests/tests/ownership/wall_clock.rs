//! Wall clocks of some processes, which a test sets (libfaketime). Other clocks are those of the machine.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use repot_tests::test_env::TestEnv;
use repot_tests::tool;
use tokio::process::Command;

/// How much a measured speed may differ from the one that was set.
const PRECISION: f64 = 0.004;

/// A wall clock that runs wrong for one process.
pub struct WallClock {
    file: PathBuf,
}

impl WallClock {
    /// Shows what the clock of the machine shows.
    pub fn new(env: &TestEnv, name: &str) -> Result<Self> {
        let clock = Self { file: env.make_dir(name)?.join("offset") };
        clock.set_forward(0)?;
        Ok(clock)
    }

    /// So many seconds, as seen from the clock of the machine.
    pub fn set_forward(&self, seconds: u32) -> Result<()> {
        self.write(&format!("+{seconds}"))
    }

    /// So many seconds back, as seen from the clock of the machine.
    pub fn set_back(&self, seconds: u32) -> Result<()> {
        self.write(&format!("-{seconds}"))
    }

    /// Runs at this speed from the start of each process on; 1 is that of the machine.
    ///
    /// Errors: where a process that goes by it is not told so.
    pub async fn set_speed(&self, speed: f64) -> Result<()> {
        self.write(&format!("+0 x{speed}"))?;
        // A pair of times is taken again where the process stood still between its halves.
        let measure = "import time\n\
            def now():\n\
            \x20 while True:\n\
            \x20   before, wall, after = time.monotonic(), time.time(), time.monotonic()\n\
            \x20   if after - before < 0.0002: return wall, before\n\
            wall, machine = now()\n\
            while time.monotonic() < machine + 0.5: pass\n\
            later, end = now()\n\
            print((later - wall) / (end - machine))";
        let mut command = Command::new("python3");
        command.args(["-c", measure]).envs(self.variables()?);
        let measured: f64 = tool::run(command, b"").await?.text()?.trim().parse()?;
        ensure!((measured - speed).abs() < PRECISION, "the clock runs at {measured}, and not at {speed}");
        Ok(())
    }

    /// What makes a process go by it.
    pub fn variables(&self) -> Result<Vec<(&'static str, String)>> {
        let mut dirs = fs::read_dir("/usr/lib")?.filter_map(|dir| Some(dir.ok()?.path()));
        let library = dirs.find_map(|dir| {
            let library = dir.join("faketime/libfaketimeMT.so.1");
            library.exists().then_some(library)
        });
        let library = library.context("libfaketime is missing: install it by `make tools`")?;
        Ok(vec![
            ("LD_PRELOAD", library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ])
    }

    /// Never seen half written.
    fn write(&self, text: &str) -> Result<()> {
        let new = self.file.with_extension("new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, &self.file)?)
    }
}
