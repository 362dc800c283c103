//! What the members of a hosted etcd hold, asked of themselves.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use repot_etcd::{digest, link};
use repot_etcd_core::{digest::Digest, volumes::VolumeSet};
use tokio::time::timeout;

use crate::errors::causes;

use super::{
    api::HostedEtcd,
    error::{Error, Result},
    site::{ControlPlane, etcd_name},
};

/// How long a quorum may take for its answer. A pass is not held up for longer by an etcd that is ill.
const ANSWER: Duration = Duration::from_secs(5);
const CLIENT_PORT: u16 = 2379;

/// How members are reached, and by which Secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Client URLs of members, with scheme and port.
    pub endpoints: Vec<String>,
    /// Secret with the authority of the members' certificates, and the key in it.
    pub ca: Option<(String, String)>,
    /// Secret with the certificate of clients.
    pub client: Option<String>,
}

impl Reach {
    /// Members on these volumes that are ready.
    #[must_use]
    pub fn of(site: &ControlPlane, volumes: &VolumeSet) -> Self {
        let members = site.etcd.as_ref().map(|etcd| &etcd.spec.etcd);
        let tls = members.and_then(|members| members.client_url_tls.as_ref());
        let port = members.and_then(|members| members.client_port).unwrap_or(CLIENT_PORT);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (service, namespace) = (service(site), site.namespace());
        let url = |pod: String| format!("{scheme}://{pod}.{service}.{namespace}.svc:{port}");
        let ca = tls.map(|tls| tls.ca.clone()).filter(|ca| !ca.name.is_empty());
        Self {
            endpoints: site.ready(volumes).map(|pod| url(pod.name_any())).collect(),
            ca: ca.map(|ca| (ca.name, ca.data_key.unwrap_or_else(|| "ca.crt".to_owned()))),
            client: tls.and_then(|tls| tls.client.as_ref()).map(|client| client.name.clone()),
        }
    }

    async fn options(&self, client: &Client, namespace: &str) -> Result<link::Options> {
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        let value = async |name: &str, key: &str| {
            let what = || format!("Secret {namespace}/{name}");
            let secret = secrets.get(name).await.map_err(|source| Error::Read { what: what(), source })?;
            let value = secret.data.and_then(|mut data| data.remove(key));
            value.map(|bytes| bytes.0).ok_or_else(|| Error::Missing(format!("key {key} of {}", what())))
        };
        let ca = match &self.ca {
            Some((name, key)) => Some(value(name, key).await?),
            None => None,
        };
        let identity = match &self.client {
            Some(name) => Some((value(name, "tls.crt").await?, value(name, "tls.key").await?)),
            None => None,
        };
        Ok(link::Options { endpoints: self.endpoints.clone(), ca, identity, ..link::Options::default() })
    }
}

/// The headless Service that gives members their names.
fn service(site: &ControlPlane) -> String {
    let own = site.set.as_ref().filter(|_| site.etcd.is_none());
    let named = own.and_then(|set| set.spec.as_ref()?.service_name.clone());
    named.unwrap_or_else(|| format!("{}-peer", etcd_name(&site.hosted)))
}

type MemberLocation = (String, VolumeSet);

/// Digests that were made: all keys of an etcd are read only when its revision is another one.
#[derive(Debug, Default)]
pub struct Digests(Mutex<HashMap<MemberLocation, Digest>>);

impl Digests {
    /// What the members of these volumes hold, by a linearizable read; nothing without a quorum. All keys are read only where
    /// `wholly`; else the hash is empty, which equals that of nothing.
    pub async fn ask(
        &self,
        client: &Client,
        site: &ControlPlane,
        volumes: &VolumeSet,
        wholly: bool,
    ) -> Option<Digest> {
        match self.try_ask(client, site, volumes, wholly).await {
            Ok(found) => found,
            Err(error) => {
                let error = causes(&error);
                tracing::info!(hosted_etcd = place(&site.hosted), error, "no quorum of the etcd answers");
                None
            }
        }
    }

    async fn try_ask(
        &self,
        client: &Client,
        site: &ControlPlane,
        volumes: &VolumeSet,
        wholly: bool,
    ) -> Result<Option<Digest>> {
        let reach = Reach::of(site, volumes);
        if reach.endpoints.is_empty() {
            return Ok(None);
        }
        let options = reach.options(client, &site.namespace()).await?;
        let etcd = link::connect(&options).await.map_err(Error::Connect)?;
        let seen = timeout(ANSWER, digest::glance(&etcd)).await.map_err(|_| Error::NoQuorum)??;
        if !wholly {
            return Ok(Some(seen));
        }
        let place = (place(&site.hosted), volumes.clone());
        if let Some(known) = self.known(&place).filter(|known| known.revision == seen.revision) {
            return Ok(Some(known));
        }
        let digest = digest::digest(&etcd).await?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(place, digest.clone());
        Ok(Some(digest))
    }

    fn known(&self, place: &MemberLocation) -> Option<Digest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(place).cloned()
    }

    /// Forgets an etcd that is no more.
    pub fn forget(&self, hosted: &HostedEtcd) {
        let gone = place(hosted);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(place, _), _| *place != gone);
    }
}

/// Namespace, name and UID: one that is made anew under a name is another one.
fn place(hosted: &HostedEtcd) -> String {
    let uid = hosted.uid().unwrap_or_default();
    format!("{}/{} {uid}", hosted.namespace().unwrap_or_default(), hosted.name_any())
}
