//! Which seeds could take a Shoot.

use std::collections::BTreeMap;

use serde_json::Value;

/// A seed that could take a Shoot, the best one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Why it would not be asked.
    pub against: Option<String>,
}

/// The seeds in the order in which they are asked: those of the region of `from` first, then those with the fewest Shoots. Where some are
/// named, these alone. The rules of the webhooks say afterwards whether a Shoot may go there.
#[must_use]
pub fn candidates(
    seeds: &[Value],
    from: &str,
    named: &[String],
    shoots: &BTreeMap<String, usize>,
) -> Vec<Candidate> {
    let name = |seed: &Value| seed["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let of =
        |seed: &Value, field: &str| seed["spec"]["provider"][field].as_str().unwrap_or_default().to_owned();
    let source = seeds.iter().find(|seed| name(seed) == from);
    let region = source.map(|seed| of(seed, "region"));
    let others = seeds.iter().filter(|seed| name(seed) != from);
    let wanted = others.filter(|seed| named.is_empty() || named.contains(&name(seed)));
    let mut found: Vec<(bool, bool, usize, Candidate)> = wanted
        .map(|seed| {
            let against = against(seed, source, named.is_empty());
            let count = shoots.get(&name(seed)).copied().unwrap_or_default();
            let is_far = region.as_ref() != Some(&of(seed, "region"));
            (against.is_some(), is_far, count, Candidate { name: name(seed), against })
        })
        .collect();
    found.sort_by(|a, b| (a.0, a.1, a.2, &a.3.name).cmp(&(b.0, b.1, b.2, &b.3.name)));
    found.into_iter().map(|(.., candidate)| candidate).collect()
}

/// What is against a seed: one that is named by a person may be invisible to the scheduler.
fn against(seed: &Value, source: Option<&Value>, is_chosen: bool) -> Option<String> {
    if !seed["metadata"]["deletionTimestamp"].is_null() {
        return Some("it is being deleted".to_owned());
    }
    let kind = |seed: &Value| seed["spec"]["provider"]["type"].as_str().map(str::to_owned);
    if let Some(source) = source.filter(|source| kind(source) != kind(seed)) {
        return Some(format!("its provider is not {}", kind(source).unwrap_or_default()));
    }
    if is_chosen && seed["spec"]["settings"]["scheduling"]["visible"] == Value::Bool(false) {
        return Some("the scheduler does not see it".to_owned());
    }
    let taints = seed["spec"]["taints"].as_array().map_or(0, Vec::len);
    (is_chosen && taints > 0).then(|| "it has taints".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seed(name: &str, region: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"provider": {"type": "local", "region": region}}})
    }

    #[test]
    fn near_and_empty_seeds_come_first_and_unfit_ones_last() {
        let mut hidden = seed("hidden", "eu");
        hidden["spec"]["settings"] = json!({"scheduling": {"visible": false}});
        let mut other = seed("other", "eu");
        other["spec"]["provider"]["type"] = json!("aws");
        let seeds =
            [seed("a", "eu"), hidden, seed("far", "us"), seed("full", "eu"), seed("free", "eu"), other];
        let shoots = BTreeMap::from([("full".to_owned(), 9), ("free".to_owned(), 2)]);
        let names = |named: &[String]| {
            let all = candidates(&seeds, "a", named, &shoots);
            all.into_iter().map(|one| (one.name, one.against.is_none())).collect::<Vec<_>>()
        };
        let of = |name: &str, fits| (name.to_owned(), fits);
        let expected =
            [of("free", true), of("full", true), of("far", true), of("hidden", false), of("other", false)];
        assert_eq!(names(&[]), expected);
        assert_eq!(names(&["hidden".to_owned()]), [of("hidden", true)]);
    }
}
