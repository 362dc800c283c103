//! What leads connections through a Gateway that all members of a seed share: its name, and the routes to one member.

use std::str::FromStr;

/// Name of a Gateway, with its namespace. It passes TLS through, at a port for the peers of each member of an etcd and at one for clients,
/// and obeys routes of the namespaces of control planes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayName {
    /// Namespace of the Gateway.
    pub namespace: String,
    /// Name of the Gateway.
    pub name: String,
}

impl FromStr for GatewayName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("{text:?} is not <namespace>/<name> of a Gateway")),
        }
    }
}

impl std::fmt::Display for GatewayName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gateway {}/{}", self.namespace, self.name)
    }
}

/// A route that is wanted: connections to a port of the Gateway that ask for a host go to a port of a Service.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// What the name of an object ends with that is for this route alone.
    pub suffix: &'a str,
    /// The host that connections ask for.
    pub host: &'a str,
    /// Name of the Service.
    pub service: &'a str,
    /// Port of the Gateway.
    pub gateway_port: u16,
    /// Port of the Service.
    pub port: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_gateway_has_a_namespace() {
        assert!("edge/members".parse::<GatewayName>().is_ok());
        for bad in ["members", "/members", "edge/", "a/b/c", ""] {
            assert!(bad.parse::<GatewayName>().is_err(), "{bad}");
        }
    }
}
