//! The namespaces whose objects are reconciled.
//!
//! With a list, nothing outside of these namespaces is read, so that a Role in each of them is enough. Controllers run once for
//! each namespace then, since a watch is for one namespace or for all.

use std::collections::BTreeSet;

use kube::{Api, Client, Resource, core::NamespaceResourceScope};

/// All namespaces of the cluster, or those of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(BTreeSet<String>);

/// What one watch follows: a namespace, or the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces.
    Cluster,
    /// One namespace.
    Namespace(String),
}

impl Namespaces {
    /// Takes these namespaces, each once; all of the cluster where there are none.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let names = names.into_iter().map(|name| name.trim().to_owned());
        Self(names.filter(|name| !name.is_empty()).collect())
    }

    /// Gives the scopes of watches: one for each namespace, or one for the cluster.
    #[must_use]
    pub fn scopes(&self) -> Vec<Scope> {
        if self.0.is_empty() {
            return vec![Scope::Cluster];
        }
        self.0.iter().cloned().map(Scope::Namespace).collect()
    }
}

impl Scope {
    /// Makes the API of a kind in this scope.
    #[must_use]
    pub fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self {
            Self::Cluster => Api::all(client.clone()),
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_each_namespace_once_and_the_cluster_without_any() {
        let scopes = |names: &[&str]| Namespaces::new(names.iter().map(ToString::to_string)).scopes();
        assert_eq!(scopes(&[]), [Scope::Cluster]);
        assert_eq!(scopes(&["", " "]), [Scope::Cluster]);
        let both = ["a", "b"].map(|name| Scope::Namespace(name.to_owned()));
        assert_eq!(scopes(&["b", " a", "b"]), both);
    }
}
