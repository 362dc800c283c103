//! `repot preflight isolate`: which control planes a zone of a seed touches.

use std::{fmt::Write as _, io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Context, ensure};
use clap::Args;
use repot_apiserver::delegation;
use repot_controllers::isolation::seed_zone::{self, SeedZone, Touched};

use super::{Output, REFUSED};

/// Say which control planes have something in a zone of a seed, and what they lose with it.
///
/// An isolation takes a zone away from the machines of a Shoot. Members of its etcd and its API servers run in the seed, where no
/// isolation moves them: this counts, by the Nodes of the zone, what would be left. Nothing is changed.
/// Exit codes: 0 all control planes serve on without the zone, 3 some do not, 2 bad usage, 1 failure.
///
///     repot preflight isolate --zone eu-central-1a --kubeconfig seed.yaml
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// Zone of the seed, as its Nodes have it in label topology.kubernetes.io/zone
    #[arg(long, value_name = "ZONE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    zone: String,
    /// kubeconfig of the seed [default: as kubectl finds it]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the answer; the exit code says whether all control planes serve on.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let seed = delegation::client(flags.kubeconfig.as_deref()).await?;
    let zones = seed_zone::zones(&seed).await.context("failed to read the zones of the seed")?;
    let known: Vec<&str> = zones.iter().map(String::as_str).collect();
    ensure!(
        zones.contains(&flags.zone),
        "the seed has no Node in zone {}; it has {}",
        flags.zone,
        known.join(", ")
    );
    let found = seed_zone::read(&seed, &flags.zone).await;
    let found = found.with_context(|| format!("failed to read zone {}", flags.zone))?;
    let text = match flags.output {
        Output::Json => serde_json::to_string_pretty(&found)? + "\n",
        Output::Text => text(&flags.zone, &found),
    };
    std::io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")?;
    let is_lost = found.control_planes.iter().any(|one| !one.losses().is_empty());
    Ok(if is_lost { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
}

fn text(zone: &str, found: &SeedZone) -> String {
    let SeedZone { nodes, control_planes } = found;
    let mut text =
        format!("Zone {zone}: {nodes} nodes, {} control planes have something there\n", control_planes.len());
    for one in control_planes {
        let _ = writeln!(text, "  {}: {}", one.namespace, verdict(one));
        for etcd in &one.etcds {
            let (name, here, members, left) = (&etcd.name, etcd.here, etcd.members, etcd.left);
            let _ = writeln!(text, "    {name}: {here} of {members} members here, {left} ready elsewhere");
        }
        let (here, left) = (one.api_servers_here, one.api_servers_left);
        if here > 0 {
            let _ = writeln!(text, "    kube-apiserver: {here} here, {left} ready elsewhere");
        }
    }
    text
}

fn verdict(one: &Touched) -> String {
    let losses = one.losses();
    if losses.is_empty() { "serves on".to_owned() } else { losses.join(", ") }
}

#[cfg(test)]
mod tests {
    use repot_controllers::isolation::seed_zone::TouchedEtcd;

    use super::*;

    #[test]
    fn answer_says_what_is_lost() {
        let etcd = |name: &str, members, left| TouchedEtcd { name: name.to_owned(), members, here: 1, left };
        let control_plane = |namespace: &str, etcd, left| Touched {
            namespace: namespace.to_owned(),
            etcds: vec![etcd],
            api_servers_here: 1,
            api_servers_left: left,
        };
        let control_planes = vec![
            control_plane("shoot--dev--a", etcd("etcd-main", 3, 2), 1),
            control_plane("shoot--dev--b", etcd("etcd-main", 1, 0), 0),
        ];
        let expected = "Zone z: 4 nodes, 2 control planes have something there\n\
            \x20 shoot--dev--a: serves on\n\
            \x20   etcd-main: 1 of 3 members here, 2 ready elsewhere\n\
            \x20   kube-apiserver: 1 here, 1 ready elsewhere\n\
            \x20 shoot--dev--b: etcd-main loses its quorum, no API server is left\n\
            \x20   etcd-main: 1 of 1 members here, 0 ready elsewhere\n\
            \x20   kube-apiserver: 1 here, 0 ready elsewhere\n";
        assert_eq!(text("z", &SeedZone { nodes: 4, control_planes }), expected);
    }
}
