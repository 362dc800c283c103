//! The API servers that the controller of a side talks to.

use kube::Client;

/// Clients of the controller of one side.
#[derive(Clone)]
pub enum Clients {
    /// In the garden.
    Garden(Client),
    /// On a seed.
    Seed {
        /// The seed's API server.
        seed: Client,
        /// The garden's, where the seed belongs to one. Flows over several seeds have their object there.
        garden: Option<Client>,
    },
}

impl Clients {
    /// For a cluster without a garden.
    #[must_use]
    pub fn seed_alone(seed: Client) -> Self {
        Self::Seed { seed, garden: None }
    }

    /// The client of the cluster that this controller acts on.
    #[must_use]
    pub fn own(&self) -> &Client {
        match self {
            Self::Garden(client) | Self::Seed { seed: client, .. } => client,
        }
    }

    /// The client of the garden; `None` where there is none.
    #[must_use]
    pub fn garden(&self) -> Option<&Client> {
        match self {
            Self::Garden(client) => Some(client),
            Self::Seed { garden, .. } => garden.as_ref(),
        }
    }
}
