//! `repot snapshots import`.

use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use repot_etcd::{
    backup::{Backups, import, store_ref},
    snapshot::store::{Environment, Store},
};

use super::{AskedFlags, StoreFlags, environment, open, print_json, source_environment};

/// Copy the newest state of another store into a named backup below <store>/backups/<name>, with a record of it in backup.json.
///
/// The Jobs of an EtcdRestore with source.store run this. The newest state is what was taken last: by an agent, into the store
/// itself, with the deltas after it, or as a backup below it. It is read with all checks, and the source is never written to. What is
/// sealed there is opened, and the backup is sealed with the keys of --store where it has some. It may be run again after any
/// interruption; a backup that is in the store is left alone. The record is printed.
///
/// Files with credentials, keys and endpoints are those of --store alone; for the source, put SOURCE_ before the names of the
/// variables, such as SOURCE_AWS_APPLICATION_CREDENTIALS and SOURCE_STORE_ENCRYPTION_PROVIDER_CONFIG.
///
///     repot snapshots import --source s3://seed-a/shoot--p--a --store s3://seed-b/shoot--p--b --name b-1 --owner $UID
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// The store to copy from
    #[arg(long, value_name = "URL")]
    source: String,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    asked: AskedFlags,
}

/// Copies the newest state of another store into a named backup and prints its record as JSON.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let all = environment();
    let store = match open("--store", &flags.store.store, &all) {
        Ok(store) => store,
        Err(code) => return Ok(code),
    };
    let source = || Store::open(&flags.source, &of_source(all));
    let taken = import::import(&Backups::of(&store), &flags.asked.get(), source, Timestamp::now()).await?;
    print_json(&serde_json::to_value(taken)?)?;
    Ok(ExitCode::SUCCESS)
}

/// What belongs to the one store is not sent to the other.
fn of_source(mut all: Environment) -> Environment {
    all.retain(|name, _| !store_ref::VARIABLES.contains(&name.as_str()));
    source_environment(all)
}

#[cfg(test)]
mod tests {
    use repot_etcd::backup::store_ref::StoreRef;

    use super::*;

    #[test]
    fn credentials_and_endpoint_of_the_store_are_not_those_of_the_source() {
        let pairs = [
            ("AWS_APPLICATION_CREDENTIALS", "/store"),
            ("AWS_ENDPOINT", "https://store"),
            ("STORE_SECRET", "/store"),
            ("STORE_ENCRYPTION_PROVIDER_CONFIG", "/keys"),
            ("SOURCE_AWS_APPLICATION_CREDENTIALS", "/source"),
            ("STORE_PATIENCE_SECONDS", "5"),
        ];
        let source = of_source(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(source["AWS_APPLICATION_CREDENTIALS"], "/source");
        assert_eq!(source["STORE_PATIENCE_SECONDS"], "5");
        let names = ["AWS_ENDPOINT", "STORE_SECRET", "STORE_ENCRYPTION_PROVIDER_CONFIG"];
        assert!(names.iter().all(|name| !source.contains_key(*name)), "{source:?}");
    }

    #[test]
    fn variables_of_each_provider_are_listed() {
        for provider in ["S3", "GCS", "ABS", "Local"] {
            let store_ref = serde_json::json!({
                "provider": provider, "container": "b", "prefix": "p", "endpoint": "http://e", "secretRef": {"name": "s"},
            });
            let store_ref: StoreRef = serde_json::from_value(store_ref).expect("a store");
            for name in store_ref.environment("/mounted").keys() {
                assert!(store_ref::VARIABLES.contains(&name.as_str()), "{name} of {provider}");
            }
        }
    }
}
