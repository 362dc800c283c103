//! Addresses of Shoot and seed. Only IPv6 counts: IPv4 networks may overlap, the tunnel between them translates.

use core::net::Ipv6Addr;

use repot_apimachinery::value::{at, items_at, text_at};
use serde_json::Value;

use crate::{change::Change, facts::Facts, finding::Finding, migration::SEED_NAME};

const KINDS: [&str; 3] = ["nodes", "pods", "services"];

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((_, to)) = change.seed_change().heads() else { return Vec::new() };
    let Some(seed) = facts.seed(to) else { return Vec::new() };
    let theirs = at(seed, "/spec/networks").unwrap_or(&Value::Null);
    let mut findings = Vec::new();
    for section in ["spec", "status"] {
        let Some(ours) = at(&change.new, &format!("/{section}/networking")) else { continue };
        for (kind, network) in KINDS.iter().flat_map(|kind| networks(ours, kind).map(move |n| (kind, n))) {
            let clash =
                KINDS.iter().flat_map(|kind| networks(theirs, kind)).find(|other| overlap(network, other));
            findings.extend(clash.map(|other| {
                let reason = format!("network {network} of the Shoot overlaps with {other} of seed {to:?}");
                let field = if section == "spec" {
                    SEED_NAME.to_owned()
                } else {
                    format!("status.networking.{kind}")
                };
                Finding::refuse(field, reason, "choose a seed with other networks")
            }));
        }
    }
    findings
}

/// One network as text, or a list of them.
fn networks<'a>(section: &'a Value, kind: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let pointer = format!("/{kind}");
    let list = items_at(section, &pointer).iter().filter_map(Value::as_str);
    text_at(section, &pointer).into_iter().chain(list)
}

fn overlap(one: &str, other: &str) -> bool {
    let (Some((a, len_a)), Some((b, len_b))) = (parse(one), parse(other)) else { return false };
    let shift = 128 - u32::from(len_a.min(len_b));
    // A shift by all bits is none that Rust knows.
    shift == 128 || a >> shift == b >> shift
}

fn parse(network: &str) -> Option<(u128, u8)> {
    let (address, length) = network.split_once('/')?;
    let length = length.parse().ok().filter(|length| *length <= 128)?;
    Some((address.parse::<Ipv6Addr>().ok()?.into(), length))
}
