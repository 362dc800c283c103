//! Prints a ShootState as Gardener makes them: `generate-shootstate --bytes 12MiB --rng-seed 7 --name big > big.json`.

use std::io::Write;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use repot_tests::states::{self, MachineState, Options, Payload};

/// Print a ShootState of a size, as compact JSON. The same flags print the same bytes.
#[derive(Parser)]
struct Flags {
    /// Size of the object as JSON, such as 100KB, 12MiB or 1000000; from 10KiB to 256MiB
    #[arg(long, default_value = "1MiB", value_parser = size)]
    bytes: usize,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    rng_seed: u64,
    /// metadata.name
    #[arg(long, default_value = "big")]
    name: String,
    /// metadata.namespace
    #[arg(long, default_value = "default")]
    namespace: String,
    /// How machines are written down: as gardenlet does, or as JSON in the state of the Worker
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

/// Units of Kubernetes and of disks: KB is a thousand, KiB is 1024.
const UNITS: [(&str, usize); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("KB", 1_000), ("MB", 1_000_000)];

fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) =
        UNITS.iter().find_map(|&(name, unit)| Some((text.strip_suffix(name)?, unit))).unwrap_or((text, 1));
    let count: usize =
        digits.trim().parse().map_err(|_| "must be like 100KB, 12MiB or 1000000".to_owned())?;
    let bytes = count.checked_mul(unit).filter(|bytes| states::SIZES.contains(bytes));
    bytes.ok_or_else(|| "must be from 10KiB to 256MiB".to_owned())
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let machine_state = match flags.machine_state {
        Machines::Gzip => MachineState::Gzip,
        Machines::Plain => MachineState::Plain,
    };
    let payload = match flags.payload {
        Content::Realistic => Payload::Realistic,
        Content::Compressible => Payload::Compressible,
        Content::Incompressible => Payload::Incompressible,
    };
    let Flags { name, namespace, bytes, rng_seed, .. } = flags;
    let json = states::generate_json(&Options { name, namespace, bytes, rng_seed, machine_state, payload })?;
    std::io::stdout().write_all(&json).context("failed to print it")
}
