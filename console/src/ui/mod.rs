//! `repot ui`: a web page for operators, served to browsers of this machine with the rights of the user's kubeconfig.
//!
//! The garden is followed by one watch for each kind, whatever number of pages is open. The page reads rows of JSON, and asks for one
//! migration at a time. What it changes goes the way of the command line: [`crate::steer`] says what is possible, and asks the same
//! questions.
//!
//! | file | has |
//! |---|---|
//! | `access.rs` | who may ask |
//! | `gate.rs` | what every request passes |
//! | `listen.rs` | connections |
//! | `routes.rs` | paths and what answers them |
//! | `events.rs` | the stream of changes |
//! | `state/` | what the garden has, as rows |
//! | `detail.rs` | one migration |
//! | `tracks.rs` | members of the etcd and owners, over time |
//! | `requests.rs` | requests to a migration |
//! | `moves.rs` | a new migration |
//! | `assets.rs`, `assets/` | the files of the page |
//! | `reply.rs`, `error.rs` | JSON, and what goes wrong |

mod access;
mod assets;
mod detail;
mod error;
mod events;
mod gate;
mod listen;
mod moves;
mod reply;
mod requests;
mod routes;
mod state;
mod tracks;

use std::{net::Ipv4Addr, sync::Arc};

use repot_rules::facts::Settings;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::{access::Access, events::Pages, gate::Gate, state::State};
use crate::garden::Garden;

/// The page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port is not free, mostly.
    #[error("failed to listen on 127.0.0.1:{port}")]
    Listen {
        /// Which.
        port: u16,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The system has no random numbers.
    #[error("failed to make a token")]
    Token,
}

/// What is served, and how.
pub struct Options {
    /// Port on 127.0.0.1; 0 takes any free one.
    pub port: u16,
    /// The garden in words, such as the address of its API server.
    pub name: String,
    /// The one namespace that is shown; `None` shows all.
    pub namespace: Option<String>,
    /// Settings of the rules that say whether a Shoot may move.
    pub settings: Settings,
}

/// A page that is about to be served: its port is taken, and nothing is answered yet.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// What all requests share.
struct Shared {
    garden: Garden,
    name: String,
    namespace: Option<String>,
    settings: Settings,
    state: State,
    pages: Pages,
    gate: Arc<Gate>,
}

impl Server {
    /// Takes the port.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn bind(garden: Garden, options: Options) -> Result<Self, StartError> {
        let Options { port, name, namespace, settings } = options;
        let failed = |source| StartError::Listen { port, source };
        // No other address: the page is for this machine.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let gate = Arc::new(Gate::new(Access::new(port).ok_or(StartError::Token)?));
        let (state, pages) = (State::new(), Pages::default());
        Ok(Self {
            listener,
            shared: Arc::new(Shared { garden, name, namespace, settings, state, pages, gate }),
        })
    }

    /// What a person opens. Who has it acts with the rights of the user.
    #[must_use]
    pub fn link(&self) -> String {
        self.shared.gate.access.link()
    }

    /// Serves until `stop`.
    pub async fn serve(self, stop: CancellationToken) {
        let Self { listener, shared } = self;
        let router = routes::router(shared.clone());
        tokio::join!(
            listen::serve(listener, router, stop.clone()),
            state::follow_all(shared.garden.client(), shared.namespace.as_deref(), &shared.state, &stop),
            state::publish(&shared.state, &stop),
        );
    }
}
