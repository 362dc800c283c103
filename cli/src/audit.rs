//! Flags about the audit log.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use repot_apiserver::audit::{
    Auditor,
    delivery::{Batch, Mode, Throttle},
    log::Log,
    policy::Policy,
    rotation::Rotation,
};

use crate::serving::duration;

/// What is recorded of requests.
#[derive(Args)]
pub struct AuditFlags {
    /// Policy of audit.k8s.io/v1 [default: metadata of all requests]. Payload is never recorded, whatever it says
    #[arg(long, requires = "audit_log_path", value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// Where events are written as JSON lines; `-` is standard output [default: nowhere]
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// Days for which full files are kept; 0: for ever
    #[arg(long, default_value_t = 0, value_name = "DAYS")]
    audit_log_maxage: u64,
    /// Full files that are kept; 0: all
    #[arg(long, default_value_t = 0, value_name = "N")]
    audit_log_maxbackup: usize,
    /// Megabytes at which a file is full
    #[arg(long, default_value_t = 100, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    audit_log_maxsize: u64,
    /// What a request does until its events are written: blocking (it waits), blocking-strict (and it fails with 500 when its
    /// arrival cannot be recorded), batch (it goes on; events that find no place in the buffer are lost and counted)
    #[arg(long, default_value = "blocking", value_name = "MODE")]
    audit_log_mode: Mode,
    /// Events of authenticated requests that wait in a buffer; anonymous requests and those that get 401 or 429 have a tenth of
    /// that for themselves. In batch mode only
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    audit_log_batch_buffer_size: usize,
    /// Most events that are written at a time. In batch mode only
    #[arg(long, default_value_t = 1, value_name = "N")]
    audit_log_batch_max_size: usize,
    /// How long a batch that is not full waits for more events. In batch mode only
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    audit_log_batch_max_wait: Duration,
    /// Whether the number of batches per second is limited. In batch mode only
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = ArgAction::Set, value_name = "BOOL")]
    audit_log_batch_throttle_enable: bool,
    /// Batches per second, on average. In batch mode only
    #[arg(long, default_value_t = 0.0, value_name = "N")]
    audit_log_batch_throttle_qps: f32,
    /// Batches at once, after a time with fewer of them. In batch mode only
    #[arg(long, default_value_t = 0, value_name = "N")]
    audit_log_batch_throttle_burst: u32,
}

impl AuditFlags {
    /// The auditor that they describe.
    pub fn auditor(&self) -> anyhow::Result<Auditor> {
        let batch = self.batch()?;
        let Some(path) = &self.audit_log_path else { return Ok(Auditor::off()) };
        let policy = match &self.audit_policy_file {
            None if self.audit_log_mode == Mode::BlockingStrict => Policy::default_with_arrival(),
            None => Policy::default(),
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("--audit-policy-file: failed to read {}", file.display()))?;
                Policy::parse(&text).with_context(|| format!("--audit-policy-file: {}", file.display()))?
            }
        };
        let rotation = Rotation {
            most_bytes: self.audit_log_maxsize << 20,
            backups: self.audit_log_maxbackup,
            age: Duration::from_secs(self.audit_log_maxage * 86_400),
        };
        let log = Log::open(path, rotation, self.audit_log_mode, batch)
            .with_context(|| format!("--audit-log-path: {}", path.display()))?;
        Ok(Auditor::new(policy, Some(log)))
    }

    /// As kube-apiserver checks them: only where they count.
    fn batch(&self) -> anyhow::Result<Batch> {
        let batch = Batch {
            buffer_size: self.audit_log_batch_buffer_size,
            max_size: self.audit_log_batch_max_size,
            max_wait: self.audit_log_batch_max_wait,
            throttle: self.audit_log_batch_throttle_enable.then_some(Throttle {
                qps: self.audit_log_batch_throttle_qps,
                burst: self.audit_log_batch_throttle_burst,
            }),
        };
        if self.audit_log_mode != Mode::Batch {
            return Ok(batch);
        }
        if batch.buffer_size == 0 {
            bail!("--audit-log-batch-buffer-size must be a positive number");
        }
        if batch.max_size == 0 {
            bail!("--audit-log-batch-max-size must be a positive number");
        }
        match batch.throttle {
            Some(Throttle { qps, .. }) if qps.is_nan() || qps <= 0.0 => {
                bail!("--audit-log-batch-throttle-qps must be a positive number")
            }
            Some(Throttle { burst: 0, .. }) => {
                bail!("--audit-log-batch-throttle-burst must be a positive number")
            }
            _ => Ok(batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        audit: AuditFlags,
    }

    fn refusal(flags: &[&str]) -> String {
        let args = ["repot"].into_iter().chain(flags.iter().copied());
        let command = match Command::try_parse_from(args) {
            Ok(command) => command,
            Err(error) => return error.to_string(),
        };
        command.audit.batch().err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn flags_of_batches_are_checked_where_they_count() {
        let batch = "--audit-log-mode=batch";
        for (flag, named) in [
            ("--audit-log-batch-buffer-size=0", "buffer-size must be a positive number"),
            ("--audit-log-batch-max-size=0", "max-size must be a positive number"),
            ("--audit-log-batch-throttle-enable", "throttle-qps must be a positive number"),
        ] {
            let refused = refusal(&[batch, flag]);
            assert!(refused.contains(named), "{flag}: {refused}");
            assert_eq!(refusal(&[flag]), "", "{flag} counts in blocking mode");
        }
        let throttled = ["--audit-log-batch-throttle-enable=true", "--audit-log-batch-throttle-qps=5"];
        assert!(refusal(&[batch, throttled[0], throttled[1]]).contains("throttle-burst"));
        let burst = "--audit-log-batch-throttle-burst=10";
        assert_eq!(refusal(&[batch, throttled[0], throttled[1], burst]), "");
        assert!(refusal(&["--audit-log-mode=async"]).contains("batch,blocking,blocking-strict"));
    }
}
