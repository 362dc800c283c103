//! `repot example`: prints objects to try Repot with.

use std::io::Write;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use repot_samples::{MachineState, Options, Payload, SIZES, generate_json};

/// Print sample objects as JSON, to try Repot with or to measure it
///
/// For example: repot example shootstate --bytes 12MiB --name big | kubectl create -f -
#[derive(Parser)]
pub struct Flags {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Subcommand)]
enum Kind {
    Shootstate(ShootState),
}

/// Print a ShootState of the given size, shaped as Gardener writes it
///
/// It holds no real key. The same flags print the same bytes.
#[derive(Parser)]
struct ShootState {
    /// Size of the object as JSON, such as 100KB, 12MiB or 1000000; from 10KiB to 256MiB
    #[arg(long, default_value = "1MiB", value_parser = parse_size)]
    bytes: usize,
    /// metadata.name
    #[arg(long, default_value = "big")]
    name: String,
    /// metadata.namespace
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Seed of the pseudo-random content
    #[arg(long, default_value_t = 1)]
    rng_seed: u64,
    /// Form of the machine state: gzip as gardenlet writes it, or plain JSON in the state of the Worker
    #[arg(long, value_enum, default_value_t = Machines::Gzip)]
    machine_state: Machines,
    /// What most of the object consists of
    #[arg(long, value_enum, default_value_t = Content::Realistic)]
    payload: Content,
}

#[derive(Clone, Copy, ValueEnum)]
enum Machines {
    Gzip,
    Plain,
}

#[derive(Clone, Copy, ValueEnum)]
enum Content {
    Realistic,
    Compressible,
    Incompressible,
}

/// Decimal and binary units: KB is 1,000 bytes, KiB is 1,024.
const UNITS: [(&str, usize); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("KB", 1_000), ("MB", 1_000_000)];

fn parse_size(text: &str) -> Result<usize, String> {
    let with_unit = UNITS.iter().find_map(|&(name, unit)| Some((text.strip_suffix(name)?, unit)));
    let (digits, unit) = with_unit.unwrap_or((text, 1));
    let count: usize =
        digits.trim().parse().map_err(|_| "must be like 100KB, 12MiB or 1000000".to_owned())?;
    let bytes = count.checked_mul(unit).filter(|bytes| SIZES.contains(bytes));
    bytes.ok_or_else(|| "must be from 10KiB to 256MiB".to_owned())
}

/// Prints the object on stdout.
///
/// # Errors
/// When stdout cannot be written.
pub fn run(flags: Flags) -> Result<()> {
    let Kind::Shootstate(flags) = flags.kind;
    let options = Options {
        name: flags.name,
        namespace: flags.namespace,
        bytes: flags.bytes,
        rng_seed: flags.rng_seed,
        machine_state: match flags.machine_state {
            Machines::Gzip => MachineState::Gzip,
            Machines::Plain => MachineState::Plain,
        },
        payload: match flags.payload {
            Content::Realistic => Payload::Realistic,
            Content::Compressible => Payload::Compressible,
            Content::Incompressible => Payload::Incompressible,
        },
    };
    let json = generate_json(&options)?;
    let mut out = std::io::stdout().lock();
    match out.write_all(&json).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        // The reader has seen enough, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("failed to write to stdout"),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_have_units_and_bounds() {
        for (text, bytes) in
            [("12MiB", 12 << 20), ("100KB", 100_000), ("1000000", 1_000_000), ("10 KiB", 10 << 10)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "1", "9KiB", "257MiB", "-1MB", "1GiB", "99999999999999999999MiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
