//! Tells over HTTP how far a copy of snapshots is. It shows counts and times, and nothing of what is copied, to whoever reaches the
//! port; it takes no orders.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use repot_etcd_core::copy_progress::{CopyPhase, CopyProgress, PATH};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::task::AbortOnDropHandle;

use crate::snapshot::{copy::Progress, store::SentBytes};

/// Connections at a time: there is one operator, which asks every few seconds.
const CONNECTIONS: usize = 16;
/// How long a connection may last.
const LONGEST: Duration = Duration::from_secs(5);

/// Counts of one copy.
#[derive(Debug)]
pub struct CopyCounter {
    counted: Mutex<CopyProgress>,
    sent: Arc<SentBytes>,
}

impl CopyCounter {
    /// Nothing is done yet. `sent`: what the target counts.
    #[must_use]
    pub fn new(sent: Arc<SentBytes>) -> Self {
        let counted = CopyProgress {
            phase: CopyPhase::default(),
            snapshots: 0,
            snapshots_total: 0,
            bytes: 0,
            bytes_total: 0,
            bytes_sent: 0,
            failed: 0,
            last_progress: Timestamp::now(),
        };
        Self { counted: Mutex::new(counted), sent }
    }

    /// It is about this now.
    pub fn enter(&self, phase: CopyPhase) {
        self.change(|counted| counted.phase = phase);
    }

    /// Counts what a copy tells.
    pub fn count(&self, progress: &Progress) {
        self.change(|counted| match progress {
            Progress::Begun { snapshots, bytes } => {
                (counted.snapshots_total, counted.bytes_total) = (*snapshots as u64, *bytes);
            }
            Progress::Done { bytes, .. } => {
                counted.snapshots += 1;
                counted.bytes += bytes;
            }
            Progress::Failed { .. } => counted.failed += 1,
        });
    }

    fn change(&self, change: impl FnOnce(&mut CopyProgress)) {
        let mut counted = self.counted.lock();
        change(&mut counted);
        counted.last_progress = Timestamp::now();
    }

    /// How far it is.
    #[must_use]
    pub fn get(&self) -> CopyProgress {
        let counted = *self.counted.lock();
        let (bytes_sent, last_sent) = self.sent.get();
        let last_progress = last_sent.map_or(counted.last_progress, |sent| sent.max(counted.last_progress));
        CopyProgress { bytes_sent, last_progress, ..counted }
    }

    /// What consists of numbers and times becomes JSON in any case.
    fn text(&self) -> String {
        serde_json::to_string(&self.get()).unwrap_or_default()
    }

    /// Tells it at this address until the handle is dropped.
    ///
    /// # Errors
    /// Where the address cannot be listened at.
    pub async fn serve(self: Arc<Self>, address: SocketAddr) -> std::io::Result<AbortOnDropHandle<()>> {
        let listener = TcpListener::bind(address).await?;
        Ok(AbortOnDropHandle::new(tokio::spawn(self.answer(listener))))
    }

    async fn answer(self: Arc<Self>, listener: TcpListener) {
        let router =
            Router::new().route(PATH, get(async move || ([(CONTENT_TYPE, "application/json")], self.text())));
        let router = router.fallback(async || StatusCode::NOT_FOUND);
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            // The semaphore is never closed.
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(repot_certs::http::ACCEPT_PAUSE).await;
                continue;
            };
            let service = hyper_util::service::TowerToHyperService::new(router.clone());
            tokio::spawn(async move {
                let _place = place;
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(hyper_util::rt::TokioIo::new(stream), service);
                // Whoever does not read or ask in time is let go.
                let _ = tokio::time::timeout(LONGEST, connection).await;
            });
        }
    }
}
