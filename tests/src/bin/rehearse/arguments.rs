//! What a person asks for on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use repot_apimachinery::duration;

use crate::faults::FaultRequest;

/// Seeds farther from each other than this are no landscape of anybody.
const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(2);
const MB: u64 = 1_000_000;
/// An etcd takes 2 GB where nothing else is said.
const LARGEST: u64 = 1000 * MB;

/// Rehearse a flow on this machine: a garden, two seeds and a Shoot under load, with real programs, and a report of what was seen.
///
/// Everything is in one directory, and ends with the rehearsal or on Ctrl-C. Progress goes to standard error, the report to standard
/// output. Only root can run it, because Pods get network namespaces. It needs about 4 GiB of memory, and three to eight minutes.
/// Exit codes: 0 everything that is promised was seen, 3 it was not, 2 bad usage, 1 failure, 130 ended by a signal.
///
///     repot rehearse live --rtt 180ms
///     repot rehearse classic --size 200MB --fault SourceApiStopped=kill
///     repot rehearse live --fault SixMemberETCDReady=never --keep
#[derive(Parser, Debug)]
#[command(name = "rehearse", bin_name = "repot rehearse", verbatim_doc_comment)]
pub struct Arguments {
    /// Which flow is rehearsed
    #[arg(value_enum)]
    pub flow: Flow,
    /// Round trip between the seeds, such as 180ms
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = parse_round_trip)]
    pub rtt: Duration,
    /// Bytes in the etcd of the Shoot before the flow, such as 200MB [default: nothing but what Kubernetes stores]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// What goes wrong when a step begins; `--fault list` shows the steps and what can go wrong in each
    #[arg(long, value_name = "STEP=KIND", value_parser = FaultRequest::parse)]
    pub fault: Option<FaultRequest>,
    /// Directory for kubeconfig files, logs and the report; it is made when missing
    #[arg(long, value_name = "DIR", default_value = "rehearsal")]
    pub directory: PathBuf,
    /// Let everything run on after the report, until Ctrl-C
    #[arg(long)]
    pub keep: bool,
    /// Requests a second to the API of the Shoot
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub requests_per_second: u32,
    /// Form of the report on standard output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Flows that can be rehearsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Flow {
    /// A control plane moves while both seeds serve
    Live,
    /// A control plane stops at one seed and starts at the other
    Classic,
    /// A control plane leaves a seed that does not answer
    Forced,
    /// A zone is left and used again
    Isolate,
}

/// Form of the report on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

impl Flow {
    /// The word by which it is asked for.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Classic => "classic",
            Self::Forced => "forced",
            Self::Isolate => "isolate",
        }
    }
}

fn parse_round_trip(text: &str) -> Result<Duration, String> {
    let found = duration::parse(text).ok_or("it is no duration such as 180ms")?;
    match found <= LONGEST_ROUND_TRIP {
        true => Ok(found),
        false => Err(format!("it is longer than {LONGEST_ROUND_TRIP:?}")),
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let unit = match unit {
        "MB" => MB,
        "GB" => 1000 * MB,
        _ => return Err("it is no number of MB or GB, such as 200MB".to_owned()),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match bytes {
        Some(bytes) if (MB..=LARGEST).contains(&bytes) => Ok(bytes),
        _ => Err("it is not between 1MB and 1GB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn page_has_each_flag() {
        let page = include_str!("../../../../docs/operate/rehearse.md");
        let command = Arguments::command();
        let flags: Vec<_> = command.get_opts().filter_map(clap::Arg::get_long).collect();
        assert!(flags.len() > 5, "{flags:?}");
        for flag in flags {
            assert!(page.contains(&format!("\n| `--{flag}")), "--{flag} is not on the page");
        }
    }

    #[test]
    fn values_have_their_units() {
        let found = parse("rehearse live --rtt 180ms --size 200MB --requests-per-second 7").expect("valid");
        assert_eq!(found.rtt, Duration::from_millis(180));
        assert_eq!(found.size, Some(200_000_000));
        assert_eq!((found.flow, found.requests_per_second), (Flow::Live, 7));
        assert_eq!(parse("rehearse classic").expect("valid").rtt, Duration::ZERO);
        assert_eq!(parse_size("1GB"), Ok(LARGEST));
    }

    #[test]
    fn values_out_of_bounds_and_without_units_are_refused() {
        for wrong in [
            "sideways",
            "live --rtt 3s",
            "live --rtt fast",
            "live --size 200",
            "live --size 0MB",
            "live --size 2GB",
            "live --size 99999999999999999999MB",
            "live --requests-per-second 0",
            "live --requests-per-second 501",
            "live --fault ApiServes",
            "live --fault =kill",
        ] {
            assert!(parse(&format!("rehearse {wrong}")).is_err(), "{wrong}");
        }
    }
}
