//! How Pods of a seed resolve names: at the server of the zone, and through a cache of the seed, each over a wire of its own.

use std::net::SocketAddr;

use anyhow::Result;

use super::dns::{Dns, Resolver, ZONE};
use crate::dns::{Fate, Wire};
use crate::dns_cache::{DnsCache, Kind};
use crate::test_env::TestEnv;

/// The ways of one seed to the zone.
pub struct SeedNames {
    zone: Wire,
    zone_of_cache: Wire,
    cache: DnsCache,
}

impl SeedNames {
    /// Starts a cache that keeps on answering what it knows for an hour when the server of the zone does not answer it, as CoreDNS does
    /// with `serve_stale`: whoever believes it would be deceived.
    pub async fn start(env: &TestEnv, dns: &Dns) -> Result<Self> {
        let [zone, zone_of_cache] = [Wire::start(dns.address()).await?, Wire::start(dns.address()).await?];
        let cache = DnsCache::start_for(env, (ZONE, zone_of_cache.address()), Kind::CoreDnsStale).await?;
        Ok(Self { zone, zone_of_cache, cache })
    }

    /// The port on 127.0.0.1 that leads to the server of the zone over UDP.
    pub fn zone_port(&self) -> u16 {
        self.zone.address().port()
    }

    /// The address of the cache.
    pub fn cache(&self) -> SocketAddr {
        self.cache.address()
    }

    /// A resolver that asks the cache of the seed.
    pub fn resolver_of_cache(&self) -> Resolver {
        Resolver::new(self.cache())
    }

    /// What happens to answers of the zone to Pods from now on.
    pub fn set_zone(&self, fate: Fate) {
        self.zone.set(fate);
    }

    /// Cuts the cache off from the zone, or lets it ask again.
    pub fn cut_cache(&self, is_cut: bool) {
        self.zone_of_cache.set(if is_cut { Fate::Lost } else { Fate::Pass });
    }
}
