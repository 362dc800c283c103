use super::*;

fn mk_options(bytes: usize) -> Options {
    Options::new("pot", bytes, 7)
}

fn kinds_of(object: &Value) -> std::collections::BTreeSet<&str> {
    let states = object["spec"]["extensions"].as_array().expect("a list");
    states.iter().filter_map(|state| state["kind"].as_str()).collect()
}

/// How many of the first bytes two texts have in common, and how many of the last.
fn common_ends(a: &[u8], b: &[u8]) -> (usize, usize) {
    let start = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    (start, a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count())
}

#[test]
fn repeats_itself_for_a_seed_and_differs_for_another() {
    let first = generate_json(&mk_options(100_000)).expect("a state");
    assert_eq!(first, generate_json(&mk_options(100_000)).expect("a state"));
    let other = Options { rng_seed: 8, ..mk_options(100_000) };
    assert_ne!(first, generate_json(&other).expect("a state"));
}

#[test]
fn hits_every_size_in_every_form() {
    for bytes in [10 << 10, 32 << 10, 100_000, 1_000_000, 15 << 20] {
        for payload in [Payload::Realistic, Payload::Compressible, Payload::Incompressible] {
            for machine_state in [MachineState::Gzip, MachineState::Plain] {
                let options = Options { payload, machine_state, ..mk_options(bytes) };
                let made = generate_json(&options).expect("a state").len();
                assert!(made.abs_diff(bytes) * 100 <= bytes, "{made} bytes for {options:?}");
            }
        }
    }
}

#[test]
fn refuses_sizes_that_it_cannot_hit() {
    assert!(generate(&mk_options(9_000)).is_err());
}

#[test]
fn holds_what_gardener_stores() {
    let object = generate(&mk_options(1_000_000)).expect("a state");
    let expected =
        "ContainerRuntime ControlPlane DNSRecord Extension Infrastructure Network OperatingSystemConfig";
    assert_eq!(kinds_of(&object), expected.split(' ').collect());
    let entries = object["spec"]["gardener"].as_array().expect("a list");
    let ca = entries.iter().find(|entry| entry["labels"]["name"] == "ca-client").expect("a CA");
    assert_eq!(ca["labels"]["managed-by"], "secrets-manager");
    assert!(ca["data"]["data"]["ca.key"].as_str().expect("base64").len() > 2000);
    let dns = object["spec"]["extensions"].as_array().expect("a list").iter();
    let dns = dns.filter_map(|state| state["state"]["entries"].as_array()).next().expect("DNS entries");
    assert!(dns.len() > 500, "{} DNS entries", dns.len());
    assert!(!object["spec"]["resources"].as_array().expect("a list").is_empty());
}

#[test]
fn is_accepted_as_a_shoot_state() {
    use repot_api::shoot_state::{normalise, validate};
    use repot_apimachinery::json::{Findings, decode};
    let kind = &repot_api::shoot_state::KIND_INFO;
    for machine_state in [MachineState::Gzip, MachineState::Plain] {
        let json = generate_json(&Options { machine_state, ..mk_options(100_000) }).expect("a state");
        let mut findings = Findings::default();
        let mut node = decode(&json.into(), kind.schema, &mut findings).expect("JSON");
        assert_eq!(findings, Findings::default());
        assert_eq!(normalise(&mut node), [""; 0]);
        assert_eq!(validate(&node), []);
    }
}

#[test]
fn changes_one_machine_and_nothing_else_in_plain_state() {
    let options = Options { machine_state: MachineState::Plain, ..mk_options(1_000_000) };
    let before = generate(&options).expect("a state");
    let mut after = before.clone();
    change_one_machine(&mut after, 300).expect("a machine");
    let (before, after) = (before.to_string(), after.to_string());
    let (start, end) = common_ends(before.as_bytes(), after.as_bytes());
    assert!(start + end > before.len() - 2000, "{} of {} bytes stay", start + end, before.len());
    assert_ne!(before, after);
}

#[test]
fn changes_one_machine_in_gzipped_state() {
    let before = generate(&mk_options(1_000_000)).expect("a state");
    let mut after = before.clone();
    change_one_machine(&mut after, 0).expect("a machine");
    assert_eq!(before["spec"]["extensions"], after["spec"]["extensions"]);
    assert_ne!(before["spec"]["gardener"][0], after["spec"]["gardener"][0]);
    assert_eq!(before["spec"]["gardener"][1], after["spec"]["gardener"][1]);
    assert!(change_one_machine(&mut after, 1_000_000).is_err());
}
