//! Where the newest resource version is recorded, outside of the store: the flags of roles that serve it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::bail;
use clap::Args;
use repot_apiserver::delegation::{Client, LeaseMark};
use repot_storage::store::high_water::{FileMark, Guard, MarkStore, ObjectMark, OnRollback};

use crate::{
    serving::duration,
    store::{StoreFlags, server},
};

/// Flags of the high-water mark: where it is, how often it is recorded, and what follows from a rollback.
#[derive(Args)]
pub struct MarkFlags {
    /// Where the newest resource version is recorded outside of the store, so that a server notices at its start that the store was
    /// put back to an older copy: `lease:NAME` or `lease:NAMESPACE/NAME` in the kube-apiserver, `chunk-store`, `file:PATH` or `none`.
    /// `auto`: the chunk store where there is one, else a Lease in the namespace of the Pod, else none
    #[arg(long, default_value = "auto", value_name = "WHERE", value_parser = location)]
    high_water_mark: Location,
    /// How often it is recorded while there are writes. Where every server was killed, a rollback by less is not noticed
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = interval)]
    high_water_mark_interval: Duration,
    /// How long a server waits at its start for a record that cannot be read, before it ends with an error
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    high_water_mark_timeout: Duration,
    /// What to do at the start where the store is older than recorded: `refuse` ends the server with an error; `continue` raises
    /// resource versions above all that were given out and serves what is left
    #[arg(long, default_value = "refuse", value_name = "WHAT")]
    on_rollback: Rollback,
}

/// As [`OnRollback`], for the command line.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Rollback {
    Refuse,
    Continue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Location {
    Auto,
    None,
    ChunkStore,
    File(PathBuf),
    Lease { namespace: Option<String>, name: String },
}

fn location(text: &str) -> Result<Location, String> {
    let is_name = |name: &str| repot_apimachinery::validation::dns_subdomain(name).is_ok();
    let lease = |namespace: Option<&str>, name: &str| {
        let good = is_name(name) && namespace.is_none_or(is_name);
        let lease = Location::Lease { namespace: namespace.map(str::to_owned), name: name.to_owned() };
        good.then_some(lease).ok_or_else(|| format!("{text:?} does not name a Lease"))
    };
    match text.split_once(':') {
        None if text == "auto" => Ok(Location::Auto),
        None if text == "none" => Ok(Location::None),
        None if text == "chunk-store" => Ok(Location::ChunkStore),
        Some(("file", path)) if !path.is_empty() => Ok(Location::File(path.into())),
        Some(("lease", path)) => match path.split_once('/') {
            Some((namespace, name)) => lease(Some(namespace), name),
            None => lease(None, path),
        },
        _ => Err("must be `auto`, `none`, `chunk-store`, `file:PATH` or `lease:[NAMESPACE/]NAME`".to_owned()),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let read = duration(text)?;
    if read < Duration::from_secs(1) { Err("must not be shorter than 1s".to_owned()) } else { Ok(read) }
}

impl MarkFlags {
    /// The guard of a store. `in_cluster`: whether the client is that of a Pod.
    pub fn guard(
        &self,
        store: &StoreFlags,
        client: Client,
        in_cluster: bool,
    ) -> anyhow::Result<Option<Guard>> {
        let lease = |namespace, name| Arc::new(LeaseMark::new(client, namespace, name, server()));
        let chunks = store.chunk_objects()?;
        let marks: Arc<dyn MarkStore> = match (self.high_water_mark.clone(), chunks) {
            (Location::None, _) => return Ok(None),
            (Location::Auto | Location::ChunkStore, Some(place)) => {
                Arc::new(ObjectMark::new(place.objects, &place.root, place.url))
            }
            (Location::ChunkStore, None) => bail!("--high-water-mark=chunk-store needs --chunk-store"),
            (Location::File(path), _) => Arc::new(FileMark::new(path)),
            (Location::Lease { namespace, name }, _) => lease(namespace, name),
            (Location::Auto, None) if in_cluster => lease(None, format!("{}-high-water-mark", store.name())),
            (Location::Auto, None) => {
                tracing::warn!(
                    "no high-water mark is kept: a server that starts does not notice that the store was put back to an older \
                     copy; see --high-water-mark"
                );
                return Ok(None);
            }
        };
        let on_rollback = match self.on_rollback {
            Rollback::Refuse => OnRollback::Refuse,
            Rollback::Continue => OnRollback::Continue,
        };
        tracing::info!(location = marks.location(), "high-water mark");
        let (patience, every) = (self.high_water_mark_timeout, self.high_water_mark_interval);
        Ok(Some(Guard { marks, on_rollback, patience, every }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_where_a_mark_is() {
        let lease = |namespace: Option<&str>, name: &str| Location::Lease {
            namespace: namespace.map(Into::into),
            name: name.into(),
        };
        for (text, expected) in [
            ("auto", Location::Auto),
            ("none", Location::None),
            ("chunk-store", Location::ChunkStore),
            ("file:/a/b", Location::File("/a/b".into())),
            ("lease:mark", lease(None, "mark")),
            ("lease:ns/mark", lease(Some("ns"), "mark")),
        ] {
            assert_eq!(location(text), Ok(expected), "{text}");
        }
        for text in
            ["", "file:", "lease:", "lease:/a", "lease:a/", "lease:a/b/c", "lease:A", "configmap:a", "other"]
        {
            assert!(location(text).is_err(), "{text}");
        }
    }
}
