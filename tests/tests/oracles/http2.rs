//! h2spec: the cases of the HTTP/2 and HPACK standards against a server with TLS.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use repot_tests::binaries;
use repot_tests::repot::Dev;
use repot_tests::run;
use repot_tests::tool::{self, Output};
use tokio::process::Command;

/// Seconds that a case has. Most cases send a request without its end and then a frame that is an error: the server may answer before
/// it reads that frame, goes on reading the stream, and so meets the error each time (`certs/src/unread.rs`). Not so in [`WINDOW`].
const PATIENCE: &str = "--timeout=5";
/// The same for a case that failed beside others on a busy machine. It has to pass then, at the first try.
const MUCH_PATIENCE: &str = "--timeout=60";
/// h2spec makes a frame that is too large out of five headers of this length; our frames may have 256 KiB.
const LARGE_HEADER: &str = "--max-header-length=60000";
const LARGE_FRAME: &str = "http2/4.2/3";
/// The window of a stream grows too large by two frames behind the request. A server that has answered by then has nothing left to
/// send, and ignores them. Which is first depends on how quickly h2spec runs, so this case has several tries.
const WINDOW: &str = "http2/6.9.1/3";
const TRIES_FOR_WINDOW: usize = 10;

async fn h2spec(port: u16, patience: &str, args: &[&str], report: &Path) -> Result<Output> {
    let mut command = Command::new(binaries::find("h2spec")?);
    command.args(["--tls", "--insecure", "--path=/healthz", patience, "--port"]).arg(port.to_string());
    command.arg("--junit-report").arg(report).args(args);
    tool::run(command, b"").await
}

/// What a report in JUnit's form says: the number of cases, and which failed, such as `http2/5.1/8`.
fn read_report(text: &str) -> (usize, Vec<String>) {
    let (mut cases, mut failed) = (0, Vec::new());
    for suite in text.split("<testsuite ").skip(1) {
        let section = suite.split("package=\"").nth(1).and_then(|rest| rest.split('"').next());
        for (index, case) in suite.split("<testcase ").skip(1).enumerate() {
            cases += 1;
            if case.contains("<failure") || case.contains("<error") {
                failed.push(format!("{}/{}", section.unwrap_or_default(), index + 1));
            }
        }
    }
    (cases, failed)
}

/// What a report says of the cases that have failed, in one line.
fn what_failed(text: &str) -> String {
    let cases = text.split("<testcase ").skip(1);
    let failed = cases.filter(|case| case.contains("<failure") || case.contains("<error"));
    failed.map(|case| case.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("; ")
}

/// Runs one case again that failed beside the others.
async fn passes_alone(port: u16, case: &str, report: &Path) -> Result<()> {
    let flags: &[&str] = if case == LARGE_FRAME { &[LARGE_HEADER, case] } else { &[case] };
    let (tries, patience) = if case == WINDOW { (TRIES_FOR_WINDOW, PATIENCE) } else { (1, MUCH_PATIENCE) };
    for _ in 0..tries {
        let output = h2spec(port, patience, flags, report).await?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(said.contains("1 tests,"), "{case} is not one case: {said}");
        if said.contains("1 tests, 1 passed") {
            return Ok(());
        }
    }
    bail!("{case} fails, tries: {tries}: {}", what_failed(&std::fs::read_to_string(report)?));
}

#[test]
fn keeps_to_the_standards_of_http2_and_hpack() {
    run(async |env| {
        let mut dev = Dev::start(env, [""; 0]).await?;
        let port = dev.repot().port()?;
        let report = env.path().join("h2spec.xml");
        h2spec(port, PATIENCE, &[], &report).await?;
        let text = std::fs::read_to_string(&report).context("h2spec wrote no report")?;
        let (cases, failed) = read_report(&text);
        ensure!(cases > 140, "only {cases} cases were run");
        for case in failed {
            passes_alone(port, &case, &report).await?;
        }
        let ready = dev.api()?.get("/readyz").await?;
        ensure!(ready.status == 200, "{ready}");
        dev.repot().stop().await
    });
}
