//! SubnetIsolation: a rule of the cloud that cuts the networks of one zone of a Shoot off.

use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use repot_extension::kinds::SubnetIsolation;
use repot_extension::{Context, Failure, Outcome, Provider};
use serde_json::json;
use std::time::Duration;

use super::infrastructure::CloudNetworks;
use super::journal::Log;
use super::worker::render::zone_of_id;

/// How soon it looks again whether machines of the zone are gone.
const RETRY: Duration = Duration::from_secs(1);

/// Makes and deletes rules of the cloud.
pub(super) struct SubnetIsolationProvider {
    pub(super) networks: CloudNetworks,
    pub(super) log: Log,
}

impl SubnetIsolationProvider {
    /// Machines of the zone end first: their deployments are named by the index of the zone, and the class names the zone itself.
    async fn wait_for_machines(
        &self,
        zone: &str,
        object: &SubnetIsolation,
        context: &Context<SubnetIsolation>,
    ) -> Result<(), Failure> {
        let resource = |kind: &str, plural: &str| ApiResource {
            group: "machine.sapcloud.io".to_owned(),
            version: "v1alpha1".to_owned(),
            api_version: "machine.sapcloud.io/v1alpha1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let namespace = object.namespace().unwrap_or_default();
        let all = |kind: &str, plural: &str| {
            Api::<DynamicObject>::namespaced_with(
                context.client().clone(),
                &namespace,
                &resource(kind, plural),
            )
        };
        let failed = |error: kube::Error| Failure::new(format!("the API server of the seed: {error}"));
        let classes =
            all("MachineClass", "machineclasses").list(&ListParams::default()).await.map_err(failed)?;
        let machines = all("Machine", "machines").list(&ListParams::default()).await.map_err(failed)?;
        let of_zone = |class: &&DynamicObject| class.data["nodeTemplate"]["zone"] == zone;
        let names: Vec<String> = classes.iter().filter(of_zone).map(ResourceExt::name_any).collect();
        let is_left = |machine: &&DynamicObject| {
            machine.data["spec"]["class"]["name"]
                .as_str()
                .is_some_and(|name| names.iter().any(|it| it == name))
        };
        match machines.iter().filter(is_left).count() {
            0 => Ok(()),
            left => Err(Failure::new(format!("{left} machines are left in zone {zone}")).retry_after(RETRY)),
        }
    }
}

impl Provider for SubnetIsolationProvider {
    type Object = SubnetIsolation;

    async fn reconcile(
        &self,
        object: &SubnetIsolation,
        context: &Context<SubnetIsolation>,
    ) -> Result<Outcome, Failure> {
        self.log.record("reconcile", object);
        let zone = zone_of_id(&object.spec.isolated_zone_id);
        self.wait_for_machines(&zone, object, context).await?;
        let id = self.networks.isolate(&object.namespace().unwrap_or_default(), &zone).await?;
        let status = json!({
            "apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "SubnetIsolationStatus",
            "isolatedZoneCode": zone, "aclID": id, "aclStatus": "created",
        });
        Ok(Outcome::new().provider_status(&status)?)
    }

    async fn restore(
        &self,
        object: &SubnetIsolation,
        context: &Context<SubnetIsolation>,
    ) -> Result<Outcome, Failure> {
        self.reconcile(object, context).await
    }

    async fn migrate(
        &self,
        object: &SubnetIsolation,
        _: &Context<SubnetIsolation>,
    ) -> Result<Outcome, Failure> {
        self.log.record("migrate", object);
        Ok(Outcome::new())
    }

    /// What it has made is found by the Shoot: it does not depend on what was recorded.
    async fn delete(
        &self,
        object: &SubnetIsolation,
        _: &Context<SubnetIsolation>,
    ) -> Result<Outcome, Failure> {
        self.log.record("delete", object);
        self.networks.release(&object.namespace().unwrap_or_default()).await?;
        Ok(Outcome::new())
    }
}
