//! DNSRecord: one record set in the zone of the landscape.

use std::net::Ipv4Addr;

use repot_extension::kinds::{DNSRecord, DNSRecordSpec};
use repot_extension::status::ErrorCode;
use repot_extension::{Context, Failure, Outcome, Provider};

use super::journal::Log;
use crate::landscape::dns::{Updater, ZONE};
use crate::landscape::dns_message::Values;

/// Seconds that a record may be cached where its object does not say it, as in Gardener.
const DEFAULT_TTL: i64 = 120;

/// Writes record sets, and removes those that it wrote.
pub(super) struct DnsRecordProvider {
    pub(super) dns: Updater,
    pub(super) log: Log,
}

impl DnsRecordProvider {
    async fn write(&self, record: &DNSRecord) -> Result<Outcome, Failure> {
        let (spec, values) = (&record.spec, values(&record.spec)?);
        let ttl = u32::try_from(spec.ttl.unwrap_or(DEFAULT_TTL));
        let ttl = ttl.map_err(|_| Failure::new("spec.ttl is no number of seconds").code(CONFIGURATION))?;
        self.dns.set(&spec.name, ttl, &values).await.map_err(failure)?;
        Ok(Outcome::new().field("zone", ZONE)?)
    }
}

impl Provider for DnsRecordProvider {
    type Object = DNSRecord;

    async fn reconcile(&self, record: &DNSRecord, _: &Context<DNSRecord>) -> Result<Outcome, Failure> {
        self.log.record("reconcile", record);
        self.write(record).await
    }

    async fn restore(&self, record: &DNSRecord, _: &Context<DNSRecord>) -> Result<Outcome, Failure> {
        self.log.record("restore", record);
        self.write(record).await
    }

    async fn migrate(&self, record: &DNSRecord, _: &Context<DNSRecord>) -> Result<Outcome, Failure> {
        self.log.record("migrate", record);
        Ok(Outcome::new())
    }

    /// Removes the record set only while it has the values of the object: a late deletion must not remove what the other seed wrote.
    async fn delete(&self, record: &DNSRecord, _: &Context<DNSRecord>) -> Result<Outcome, Failure> {
        self.log.record("delete", record);
        self.dns.remove(&record.spec.name, &values(&record.spec)?).await.map_err(failure)?;
        Ok(Outcome::new())
    }
}

const CONFIGURATION: ErrorCode = ErrorCode::ConfigurationProblem;

fn failure(error: anyhow::Error) -> Failure {
    Failure::new(format!("{error:#}"))
}

fn values(spec: &DNSRecordSpec) -> Result<Values, Failure> {
    let wrong = |what: String| Failure::new(what).code(CONFIGURATION);
    match (spec.record_type.as_str(), spec.values.as_slice()) {
        (_, []) => Err(wrong("spec.values is empty".to_owned())),
        ("A", addresses) => {
            let parsed = addresses.iter().map(|address| address.parse());
            let parsed = parsed.collect::<Result<Vec<Ipv4Addr>, _>>();
            Ok(Values::A(parsed.map_err(|_| wrong(format!("{addresses:?} are no addresses")))?))
        }
        ("CNAME", [target]) => Ok(Values::Cname(target.clone())),
        ("TXT", texts) => Ok(Values::Txt(texts.to_vec())),
        (kind, values) => Err(wrong(format!("{} values of type {kind} are not supported", values.len()))),
    }
}
