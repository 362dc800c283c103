//! What is known of the owner record of an Etcd.

use std::{fmt::Write, time::Duration};

use kube::{Api, Client, ResourceExt, api::ListParams};
use repot_extension::kinds::DNSRecord;

use crate::{
    etcd::api::Etcd,
    migration::{
        error::{Error, Result},
        seed::owner::{OwnerRecordOf, ServerAnswer, parse},
    },
};

/// Who the owner is, as far as this side can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All servers that answer name this side, and nobody else.
    Owner,
    /// All servers that answer say the same, and it is not this side. No values: there is no record.
    Other(Vec<String>),
    /// No server answers, or servers contradict each other.
    Unknown(String),
}

/// What the owner record of an Etcd says, and who says it.
#[derive(Clone, Debug)]
pub struct Report {
    /// Namespace and name of the Etcd.
    pub etcd: String,
    /// Name of the record in DNS.
    pub record: String,
    /// ID under which this Etcd may serve.
    pub id: String,
    /// What each server of the zone says, or why none is known.
    pub servers: std::result::Result<Vec<ServerAnswer>, String>,
    /// The DNSRecord of this cluster that writes the record.
    pub writer: Option<DNSRecord>,
    /// Another DNSRecord of the same zone, from which provider and credentials can be taken.
    pub like: Option<DNSRecord>,
    /// How long a member may believe in an earlier record.
    pub wait: Duration,
}

impl Report {
    /// Reads the Etcd and its DNSRecords, and asks all servers: these, or those that the Etcd names where there are none.
    ///
    /// # Errors
    /// [`Error`]; servers that do not answer are a part of the report.
    pub async fn read(
        client: &Client,
        (namespace, name): (&str, &str),
        servers: &[String],
    ) -> Result<(Self, Etcd)> {
        let what = || format!("Etcd {namespace}/{name}");
        let etcds = Api::<Etcd>::namespaced(client.clone(), namespace);
        let etcd = etcds.get_opt(name).await.map_err(Error::read(what()))?;
        let etcd = etcd.ok_or_else(|| Error::Missing(what()))?;
        let owner = OwnerRecordOf::asking(&etcd, servers)?;
        let records = Api::<DNSRecord>::namespaced(client.clone(), namespace);
        let records = records.list(&ListParams::default()).await;
        let records = records.map_err(Error::read(format!("DNSRecords of {namespace}")))?.items;
        let (mut own, others): (Vec<_>, Vec<_>) = records.into_iter().partition(|record| owner.is_of(record));
        let report = Self {
            etcd: format!("{namespace}/{name}"),
            record: owner.name().to_owned(),
            id: owner.id().to_owned(),
            servers: owner.each().await,
            writer: own.pop(),
            like: others.into_iter().next(),
            wait: owner.wait(),
        };
        Ok((report, etcd))
    }

    /// Who the owner is.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let servers = match &self.servers {
            Ok(servers) => servers,
            Err(why) => return Verdict::Unknown(why.clone()),
        };
        let mut said = servers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        let Some(first) = said.next() else { return Verdict::Unknown("no server answers".to_owned()) };
        if said.any(|other| other != first) {
            Verdict::Unknown("servers do not say the same".to_owned())
        } else if *first == [self.id.clone()] {
            Verdict::Owner
        } else {
            Verdict::Other(first.clone())
        }
    }

    /// The highest epoch that anything says, servers that contradict each other included.
    #[must_use]
    pub fn highest_epoch(&self) -> u64 {
        let answers = self.servers.iter().flatten().filter_map(|(_, answer)| answer.as_ref().ok()).flatten();
        let written = self.writer.iter().flat_map(|record| &record.spec.values);
        let all = answers.chain(written).chain([&self.id]);
        all.filter_map(|text| Some(parse(text)?.epoch)).max().unwrap_or_default()
    }

    /// Addresses of servers that taught nothing.
    #[must_use]
    pub fn silent(&self) -> Vec<String> {
        let silent = self.servers.iter().flatten().filter(|(_, answer)| answer.is_err());
        silent.map(|(server, _)| server.to_string()).collect()
    }

    /// The report as lines of text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |what: &str, says: &str| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{what:<22} {says}");
        };
        line("Etcd", &format!("{}, which may serve as {:?}", self.etcd, self.id));
        line("Record", &format!("{} TXT", self.record));
        match &self.servers {
            Ok(servers) => {
                for (server, answer) in servers {
                    let says = answer
                        .as_ref()
                        .map_or_else(|why| format!("teaches nothing: {why}"), |values| values_of(values));
                    line(&format!("Server {server}"), &says);
                }
            }
            Err(why) => line("Servers", &format!("are not known: {why}")),
        }
        line("DNSRecord", &self.writer_text());
        line(
            "Fenced after",
            &format!("{} s: a member may believe in an earlier record for that long", self.wait.as_secs()),
        );
        line("Owner", &self.verdict_text());
        text
    }

    /// Who the owner is, in one line.
    #[must_use]
    pub fn line(&self) -> String {
        format!("The owner of {} is {}.\n", self.etcd, self.verdict_text())
    }

    fn writer_text(&self) -> String {
        let Some(record) = &self.writer else { return "none in this cluster writes the record".to_owned() };
        let (name, values) = (record.name_any(), values_of(&record.spec.values));
        let ends = if record.metadata.deletion_timestamp.is_some() { ", and is being deleted" } else { "" };
        format!("{name} writes {values}{ends}")
    }

    fn verdict_text(&self) -> String {
        match self.verdict() {
            Verdict::Owner => "this Etcd".to_owned(),
            Verdict::Other(values) if values.is_empty() => "nobody: no member may serve".to_owned(),
            Verdict::Other(values) => format!("not this Etcd, but {}", values_of(&values)),
            Verdict::Unknown(why) => format!("unknown: {why}"),
        }
    }
}

/// Values of a record, for people.
pub(super) fn values_of(values: &[String]) -> String {
    match values {
        [] => "nothing".to_owned(),
        all => all.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Of an Etcd that may serve as `seed-a/2`, with what two servers say.
    pub fn report(answers: [std::result::Result<&str, &str>; 2]) -> Report {
        let server = |port| ([127, 0, 0, 1], port).into();
        let values = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let [one, other] = answers.map(|answer| answer.map(values).map_err(str::to_owned));
        Report {
            etcd: "shoot/etcd-main".to_owned(),
            record: "owner.a.org".to_owned(),
            id: "seed-a/2".to_owned(),
            servers: Ok(vec![(server(1), one), (server(2), other)]),
            writer: None,
            like: None,
            wait: Duration::from_secs(114),
        }
    }

    #[test]
    fn owner_is_who_all_servers_name_that_answer() {
        assert_eq!(report([Ok("seed-a/2"), Ok("seed-a/2")]).verdict(), Verdict::Owner);
        assert_eq!(report([Ok("seed-a/2"), Err("no answer")]).verdict(), Verdict::Owner);
        assert_eq!(report([Ok(""), Ok("")]).verdict(), Verdict::Other(Vec::new()));
        let other = |text: &str| Verdict::Other(vec![text.to_owned()]);
        // Neither an earlier epoch of this seed nor a prefix is this side.
        assert_eq!(report([Ok("seed-a/1"), Ok("seed-a/1")]).verdict(), other("seed-a/1"));
        assert_eq!(report([Ok("seed-a/22"), Ok("seed-a/22")]).verdict(), other("seed-a/22"));
        for unknown in [[Ok("seed-a/2"), Ok("seed-b/3")], [Ok("seed-a/2"), Ok("")], [Err("a"), Err("b")]] {
            assert!(matches!(report(unknown).verdict(), Verdict::Unknown(_)), "{unknown:?}");
        }
    }

    #[test]
    fn highest_epoch_counts_servers_that_contradict_each_other() {
        assert_eq!(report([Err("a"), Err("b")]).highest_epoch(), 2);
        assert_eq!(report([Ok("seed-a/2"), Ok("seed-b/7")]).highest_epoch(), 7);
        assert_eq!(report([Ok("seed-a/1"), Ok("words")]).highest_epoch(), 2);
    }

    #[test]
    fn report_names_each_server_and_the_owner() {
        let text = report([Ok("seed-b/3"), Err("no answer within 3s")]).text();
        for says in
            ["127.0.0.1:1", "\"seed-b/3\"", "no answer within 3s", "114 s", "not this Etcd, but \"seed-b/3\""]
        {
            assert!(text.contains(says), "{says}: {text}");
        }
    }
}
