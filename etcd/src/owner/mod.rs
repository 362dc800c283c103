//! Looks at the record in DNS that says who may serve.
//!
//! A look gives what [`repot_etcd_core::ownership`] decides by; what is decided is done by the agent. A lease counts from when the
//! look *began*, and an answer counts only where it is young enough ([`freshness`]). (A cache that keeps answers for longer than their
//! TTL cannot be noticed. So nobody is asked by default; the zone's own servers can be asked: [`servers::Servers::OfZone`].)

mod all_servers;
pub mod freshness;
pub mod handover;
mod lookup;
pub mod message;
mod resolver;
pub mod servers;
mod wire;

use std::time::Duration;

use repot_apimachinery::duration;
use repot_etcd_core::{
    agent::config::Owner,
    ownership::Answer,
    timing::{Timing, epoch},
};
use tokio::time::timeout;

use freshness::Freshness;
use message::Name;
use resolver::{Failure, ask};
use servers::Servers;

/// The record, and how it is looked at.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the TXT record in DNS.
    pub name: Name,
    /// Id of this side; the record names this side where this id is its only value.
    pub id: String,
    /// Id of the owner whose etcd this side has joined, if it has.
    pub joined_id: Option<String>,
    /// Whom to ask. There is no default: the resolver of a machine may be a cache that hands out old answers.
    pub servers: Vec<Servers>,
    /// When to look, and for how long that counts.
    pub timing: Timing,
    /// How long members look for a quorum to take the final snapshot from.
    pub quorum: Duration,
}

/// How long members look for a quorum where nothing else is said.
const QUORUM: Duration = Duration::from_secs(300);

/// Whether one owner comes before another one, as far as both have an epoch.
fn is_before(joined: &str, own: &str) -> bool {
    let epochs = epoch(joined).zip(epoch(own));
    !joined.is_empty() && joined != own && epochs.is_none_or(|(joined, own)| joined < own)
}

impl Settings {
    /// Reads them; `stop` is how long etcd may take to end. All that is wrong is said.
    ///
    /// # Errors
    /// One text for each field.
    pub fn new(owner: &Owner, stop: Duration) -> Result<Self, Vec<String>> {
        let mut wrong = Vec::new();
        let name = Name::parse(&owner.name).map_err(|error| wrong.push(format!("name: {error}"))).ok();
        if owner.id.is_empty() {
            wrong.push("id is empty".to_owned());
        }
        if owner.joined_id.as_deref().is_some_and(|joined| !is_before(joined, &owner.id)) {
            wrong.push(
                "joinedId: it has to be the id of another owner, of an earlier epoch than id".to_owned(),
            );
        }
        if owner.servers.is_empty() {
            wrong.push(
                "servers is empty: name the zone of the record, such as ns:example.org, or servers that hand out no old answers"
                    .to_owned(),
            );
        }
        let mut servers = Vec::new();
        for text in &owner.servers {
            match Servers::parse(text) {
                Some(server) => servers.push(server),
                None => wrong.push(format!(
                    "servers: {text:?} is no address such as 10.0.0.10:53, and no zone such as ns:example.org"
                )),
            }
        }
        let mut time = |field: &str, text: &str| {
            let time = duration::parse(text).filter(|time| time.subsec_nanos() == 0);
            time.unwrap_or_else(|| {
                wrong.push(format!("{field}: {text:?} is no duration of whole seconds such as 30s"));
                Duration::from_secs(1)
            })
        };
        let quorum = owner.quorum_timeout.as_deref().map_or(QUORUM, |text| time("quorumTimeout", text));
        let timing = Timing {
            ttl: time("ttl", &owner.ttl),
            interval: time("interval", &owner.interval),
            timeout: time("timeout", &owner.timeout),
            stop,
            grace: time("grace", &owner.grace),
        };
        if let (true, Err(why)) = (wrong.is_empty(), timing.check()) {
            wrong.push(why.message);
        }
        match name {
            Some(name) if wrong.is_empty() => {
                let (id, joined_id) = (owner.id.clone(), owner.joined_id.clone());
                Ok(Self { name, id, joined_id, servers, timing, quorum })
            }
            _ => Err(wrong),
        }
    }

    /// Whether an answer gives the own id and nothing else.
    #[must_use]
    pub fn is_named_by(&self, answer: &Answer) -> bool {
        matches!(answer, Answer::Record(values) if *values == [self.id.clone()])
    }

    /// One look, and for people why it taught nothing. It ends within the timeout.
    pub async fn look(&self, freshness: &Freshness) -> (Answer, Option<String>) {
        let limit = self.limit();
        let found = async {
            // Finding them takes half of the time at most.
            let servers = servers::all(&self.servers, limit / 4).await?;
            ask(&servers, &self.name, freshness, limit).await
        };
        answered(limit, found).await
    }

    /// How long a look may take. Deadlines are in whole seconds, rounded down: what is left of the last second must not end etcd.
    fn limit(&self) -> Duration {
        let limit = self.timing.timeout;
        limit.saturating_sub(Duration::from_secs(1)).max(limit / 2)
    }
}

/// What was found within the limit, as an answer.
async fn answered(
    limit: Duration,
    found: impl Future<Output = Result<Vec<String>, Failure>>,
) -> (Answer, Option<String>) {
    match timeout(limit, found).await {
        Ok(Ok(values)) => (Answer::Record(values), None),
        Ok(Err(Failure::Own(error))) => (Answer::ContextError, Some(error.to_string())),
        Ok(Err(Failure::Servers(why))) => (Answer::Unresolvable, Some(why)),
        Err(_) => (Answer::Slow, Some(format!("no answer within {limit:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        let text = "{name: owner.a.org, id: seed-a, servers: ['127.0.0.1:53'], ttl: 60s, interval: 30s, timeout: 10s, grace: 21s}";
        serde_saphyr::from_str(text).expect("a file")
    }

    #[test]
    fn what_is_wrong_is_said_all_at_once() {
        let stop = Duration::from_secs(11);
        let settings = Settings::new(&owner(), stop).expect("good");
        assert_eq!((settings.timing.wait().as_secs(), settings.quorum), (114, QUORUM));
        let mut bad = owner();
        (bad.name, bad.id) = (String::new(), String::new());
        (bad.servers, bad.ttl) = (vec!["dns.org:53".into()], "1.5s".into());
        let wrong = Settings::new(&bad, stop).expect_err("bad").join("; ");
        for says in ["name: ", "id is empty", "\"dns.org:53\" is no address", "ttl: \"1.5s\""] {
            assert!(wrong.contains(says), "{says}: {wrong}");
        }
        bad = Owner { servers: Vec::new(), ..owner() };
        let wrong = Settings::new(&bad, stop).expect_err("bad").join("; ");
        assert!(wrong.contains("servers is empty"), "{wrong}");
        for (id, joined) in
            [("seed-a", "seed-a"), ("seed-a", ""), ("seed-b/2", "seed-a/2"), ("seed-b/2", "seed-a/3")]
        {
            bad = Owner { id: id.into(), joined_id: Some(joined.into()), ..owner() };
            let wrong = Settings::new(&bad, stop).expect_err("bad").join("; ");
            assert!(wrong.contains("joinedId: it has to be the id of another owner"), "{joined}: {wrong}");
        }
        let good = Owner { id: "seed-b/2".into(), joined_id: Some("seed-a/1".into()), ..owner() };
        assert!(Settings::new(&good, stop).is_ok());
        bad = Owner { grace: "20s".into(), ..owner() };
        let wrong = Settings::new(&bad, stop).expect_err("bad").join("; ");
        assert!(wrong.contains("grace of 20 seconds is shorter"), "{wrong}");
    }
}
