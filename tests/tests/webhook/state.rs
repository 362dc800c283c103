//! Who may write states, ownership and what holds an etcd together, and the bad case: seen to allow and to deny, through kubectl.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join;
use repot_rules::table::{Judge, RULES};
use repot_rules::watch::HomeCluster;
use repot_tests::kubectl::Kubectl;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::heard::{hear, was_heard};
use super::world::{OURS, TestNamespace, World, owner_record, shared};

/// kubectl as a user in one group.
fn as_user(world: &World, name: &str, group: &str) -> Result<Kubectl> {
    Ok(world.garden.kubectl_tool().with(world.garden.user_kubeconfig(name, &[group])?))
}

fn gardenlet(world: &World, seed: &str) -> Result<Kubectl> {
    as_user(world, &format!("gardener.cloud:system:seed:{seed}"), "gardener.cloud:system:seeds")
}

async fn applies(kubectl: &Kubectl, object: &Value) -> Result<(bool, String)> {
    let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    let out = kubectl.run_with(args, object.to_string().as_bytes()).await?;
    Ok((out.succeeded(), format!("{}{}", String::from_utf8_lossy(&out.stdout), out.stderr)))
}

async fn may(kubectl: &Kubectl, object: &Value) -> Result<String> {
    let (done, said) = applies(kubectl, object).await?;
    ensure!(done, "{object} was refused: {said}");
    Ok(said)
}

async fn may_not(kubectl: &Kubectl, object: &Value, rule: &str) -> Result<String> {
    let (done, said) = applies(kubectl, object).await?;
    hear(&said);
    ensure!(!done && said.contains(&format!("({rule})")), "{object}: {said}");
    Ok(said)
}

#[test]
fn states_are_written_by_gardenlets_of_both_seeds_and_deleted_on_confirmation() {
    run(async |_| {
        let place = TestNamespace::make("states").await?;
        place.put(&place.shoot("one")).await?;
        let world = &place.world;
        let state = |data: &str| {
            let metadata = json!({"namespace": "states", "name": "one"});
            json!({"apiVersion": OURS, "kind": "ShootState", "metadata": metadata, "spec": {"gardener": [{"name": data}]}})
        };
        let said = may_not(&world.person, &state("x"), "state-writer").await?;
        ensure!(said.contains("user \"mallory\" is no controller"), "{said}");
        let said = may_not(&gardenlet(world, "elsewhere")?, &state("x"), "state-writer").await?;
        ensure!(
            said.contains(
                "the Shoot is on seed states-a and states-a, and seed \"elsewhere\" has no part in it"
            ),
            "{said}"
        );
        may(&gardenlet(world, "states-a")?, &state("x")).await?;
        let shoot = place.get("one").await?;
        let get = ["get", "shootstates.migration.gardener.cloud", "one", "-n", "states", "-o", "json"];
        let kept = world.garden.kubectl(get).await?.json()?;
        ensure!(kept["metadata"]["ownerReferences"][0]["uid"] == shoot["metadata"]["uid"], "{kept}");
        ensure!(kept["metadata"]["annotations"]["gardener.cloud/timestamp"].is_string(), "{kept}");
        place.allows("one", &json!({"spec": {"seedName": "states-b"}})).await?;
        may(&gardenlet(world, "states-b")?, &state("y")).await?;

        let delete = ["delete", "shootstates.migration.gardener.cloud", "one", "-n", "states"];
        let out = world.person.run(delete).await?;
        ensure!(out.code != 0 && out.stderr.contains("(state-deletion-confirmed)"), "{}", out.stderr);
        let confirm = "confirmation.gardener.cloud/deletion=true";
        world
            .person
            .run(["annotate", "shootstates.migration.gardener.cloud", "one", "-n", "states", confirm])
            .await?
            .text()?;
        world.person.run(delete).await?.text()?;
        Ok(())
    });
}

#[test]
fn every_rule_of_seed_clusters_is_heard() {
    run(async |_| {
        let workflows = an_etcd_has_one_workflow_and_its_record_is_left_to_controllers();
        let members = members_of_an_etcd_and_owners_of_a_control_plane_are_left_to_controllers();
        try_join(workflows, members).await?;
        let seed = RULES.iter().filter(|rule| {
            let asked = rule.watches.iter().any(|watch| watch.place == HomeCluster::Seed);
            matches!(rule.judge, Judge::Validate(_)) && asked
        });
        let missing: Vec<&str> = seed.map(|rule| rule.name).filter(|rule| !was_heard(rule)).collect();
        ensure!(missing.is_empty(), "nothing met {missing:?}");
        Ok(())
    });
}

async fn an_etcd_has_one_workflow_and_its_record_is_left_to_controllers() -> Result<()> {
    let place = TestNamespace::make("etcds").await?;
    let world = &place.world;
    let object = |kind: &str, name: &str| {
        let spec = match kind {
            "HostedEtcd" => {
                json!({"etcdRef": {"name": "main"}, "apiServerRef": {"name": "kube-apiserver"}})
            }
            "EtcdRestore" => json!({"clusterRef": {"name": "main"}, "source": {"backupName": "b"}}),
            "EtcdMigration" => json!({"clusterRef": {"name": "main"}, "settings": {"replicas": 3}}),
            _ => json!({"clusterRef": {"name": "main"}}),
        };
        let metadata = json!({"namespace": "etcds", "name": name});
        json!({"apiVersion": OURS, "kind": kind, "metadata": metadata, "spec": spec})
    };
    let said = may(&world.person, &object("EtcdMigration", "early")).await?;
    ensure!(said.contains("there is no HostedEtcd \"main\""), "{said}");
    world
        .person
        .run(["delete", "etcdmigrations.migration.gardener.cloud", "early", "-n", "etcds"])
        .await?
        .text()?;
    may(&world.person, &object("HostedEtcd", "main")).await?;
    may(&world.person, &object("EtcdMigration", "first")).await?;
    let said = may_not(&world.person, &object("EtcdRestore", "second"), "one-workflow").await?;
    ensure!(
        said.contains("HostedEtcd \"main\" is in use by EtcdMigration \"first\"; wait until that is over"),
        "{said}"
    );
    let said = may(&world.person, &object("EtcdBackup", "beside")).await?;
    ensure!(said.contains("Warning:") && said.contains("in use by EtcdMigration"), "{said}");

    let status = |uid: &str| json!({"status": {"currentWorkflow": {"kind": "EtcdMigration", "name": uid, "uid": uid}}});
    let set = async |kubectl: &Kubectl, status: &Value| {
        let text = status.to_string();
        let main =
            ["patch", "hostedetcds.migration.gardener.cloud", "main", "-n", "etcds", "--subresource=status"];
        let out = kubectl.run(main.iter().chain(&["--type=merge", "-p", &text])).await?;
        hear(&out.stderr);
        anyhow::Ok((out.succeeded(), out.stderr))
    };
    let (done, said) = set(&world.person, &status("1")).await?;
    ensure!(!done && said.contains("(workflow-status)"), "{said}");
    let controller = gardenlet(world, "etcds-a")?;
    ensure!(set(&controller, &status("1")).await?.0, "a controller was refused");
    let (done, said) = set(&controller, &status("2")).await?;
    ensure!(!done && said.contains("(workflow-lock)"), "{said}");
    ensure!(
        set(&controller, &json!({"status": {"currentWorkflow": null}})).await?.0,
        "the lock cannot be given back"
    );
    ensure!(set(&controller, &status("2")).await?.0, "the lock cannot be taken");
    etcd_stays_while_a_workflow_works_on_it(world).await
}

async fn etcd_stays_while_a_workflow_works_on_it(world: &World) -> Result<()> {
    let etcd = json!({
        "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": {"namespace": "etcds", "name": "main"},
        "spec": {},
    });
    may(&world.person, &etcd).await?;
    let delete = async || world.garden.kubectl(["delete", "etcd", "main", "-n", "etcds"]).await;
    let refused = delete().await?;
    hear(&refused.stderr);
    ensure!(refused.code != 0 && refused.stderr.contains("(etcd-in-use)"), "{}", refused.stderr);
    ensure!(
        refused.stderr.contains("EtcdMigration") && refused.stderr.contains("HostedEtcd"),
        "{}",
        refused.stderr
    );
    let confirm = "confirmation.gardener.cloud/deletion=true";
    world.garden.kubectl(["annotate", "etcd", "main", "-n", "etcds", confirm]).await?.text()?;
    delete().await?.text().map(drop)
}

async fn members_of_an_etcd_and_owners_of_a_control_plane_are_left_to_controllers() -> Result<()> {
    let place = TestNamespace::make("owners").await?;
    let world = &place.world;
    let etcd = |annotations: Value, spec: Value| {
        let metadata = json!({"namespace": "owners", "name": "main", "annotations": annotations});
        json!({"apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": metadata, "spec": {"etcd": spec}})
    };
    may(&world.person, &etcd(json!({}), json!({}))).await?;
    let suspended = json!({"druid.gardener.cloud/suspend-etcd-spec-reconcile": "true"});
    may_not(&world.person, &etcd(suspended.clone(), json!({})), "etcd-lifecycle").await?;
    let peers = json!({"additionalAdvertisePeerURLs": [{"memberName": "m", "urls": ["https://x:2380"]}]});
    may_not(&world.person, &etcd(json!({}), peers.clone()), "etcd-membership").await?;
    let mut anew = etcd(json!({}), peers.clone());
    anew["metadata"]["name"] = json!("anew");
    may_not(&world.person, &anew, "etcd-membership").await?;
    let joined = json!({"status": {"bootstrapWithExistingCluster": {"members": [], "released": false}}});
    let patch = ["patch", "etcd", "main", "-n", "owners", "--subresource=status", "--type=merge", "-p"];
    world.garden.kubectl(patch.into_iter().chain([joined.to_string().as_str()])).await?.text()?;
    let deleted = world.garden.kubectl(["delete", "etcd", "main", "-n", "owners"]).await?;
    hear(&deleted.stderr);
    ensure!(deleted.code != 0 && deleted.stderr.contains("(etcd-handing-over)"), "{}", deleted.stderr);
    // The other side, which those members have joined.
    let needed = json!({"status": {
        "bootstrapWithExistingCluster": null, "unknownMembers": {"voters": 5, "dependOnOwn": true, "members": []},
    }});
    world.garden.kubectl(patch.into_iter().chain([needed.to_string().as_str()])).await?.text()?;
    let deleted = world.garden.kubectl(["delete", "etcd", "main", "-n", "owners"]).await?;
    ensure!(deleted.code != 0 && deleted.stderr.contains("(etcd-handing-over)"), "{}", deleted.stderr);
    may(&world.person, &etcd(json!({"migration.gardener.cloud/without-gateways": "true"}), json!({})))
        .await?;
    let controller = gardenlet(world, "owners-a")?;
    may(&controller, &etcd(suspended, peers)).await?;
    let skips = json!({"peerUrlTls": {
        "tlsCASecretRef": {"name": "ca"}, "serverTLSSecretRef": {"name": "peer"}, "skipClientSANVerification": true,
    }});
    let mut skipping = etcd(json!({}), skips);
    skipping["metadata"]["name"] = json!("skips");
    let said = may(&world.person, &skipping).await?;
    hear(&said);
    ensure!(said.contains("Warning") && said.contains("(etcd-version)"), "{said}");
    let insists = json!({"confirmation.gardener.cloud/takeover": "true", "druid.gardener.cloud/suspend-etcd-spec-reconcile": null});
    let said = may(&world.person, &etcd(insists, json!({}))).await?;
    ensure!(said.contains("Warning"), "{said}");

    let record = |value: &str| owner_record("owners", value);
    may_not(&world.person, &record("a"), "owner-record").await?;
    may(&controller, &record("a")).await?;
    may_not(&world.person, &record("b"), "owner-record").await?;
    let said = may(world.garden.kubectl_tool(), &record("b")).await?;
    ensure!(said.contains("Warning"), "an administrator is warned: {said}");
    Ok(())
}

#[test]
fn a_restore_is_forced_only_against_a_silent_source_and_on_purpose() {
    run(async |_| {
        let place = TestNamespace::make("forced").await?;
        ensure!(shared()?.url == place.world.url, "one world");
        place.put(&place.shoot("one")).await?;
        let force = json!({"metadata": {"annotations": {
            "shoot.gardener.cloud/force-restore": "true", "confirmation.gardener.cloud/force-restore": "forced-a",
        }}});
        place.refuses("one", &force, &["forced-restore"]).await?;
        place.allows("one", &json!({"spec": {"seedName": "forced-b"}})).await?;
        let said = place.refuses("one", &force, &["forced-restore"]).await?;
        ensure!(said.contains("seed \"forced-a\" answers (its condition GardenletReady is True)"), "{said}");
        let mut silent = place.seed("a");
        silent["status"]["conditions"][0]["status"] = json!("Unknown");
        place.put(&silent).await?;
        let alone = json!({"metadata": {"annotations": {"shoot.gardener.cloud/force-restore": "true"}}});
        let said = place.refuses("one", &alone, &["forced-restore"]).await?;
        ensure!(
            said.contains("confirm by annotation confirmation.gardener.cloud/force-restore=forced-a"),
            "{said}"
        );
        place.allows("one", &force).await?;
        Ok(())
    });
}

#[test]
fn what_gives_up_data_needs_a_verb_of_its_own() {
    run(async |_| {
        let place = TestNamespace::make("forcing").await?;
        let garden = &place.world.garden;
        let rbac = "rbac.authorization.k8s.io";
        let bound = |group: &str, role: &str| {
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
                "metadata": {"namespace": place.namespace, "name": role},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": rbac, "kind": "Group", "name": group}],
            })
        };
        let role = json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "shoot-editor"},
            "rules": [{"apiGroups": ["core.gardener.cloud"], "resources": ["shoots"], "verbs": ["get", "patch", "update"]}],
        });
        garden.apply(&[role, bound("editors", "shoot-editor")]).await?;
        let editor = as_user(&place.world, "eve", "editors")?;
        place.put(&place.shoot("one")).await?;
        place.allows("one", &json!({"spec": {"seedName": "forcing-b"}})).await?;
        let mut silent = place.seed("a");
        silent["status"]["conditions"][0]["status"] = json!("Unknown");
        place.put(&silent).await?;
        let force = json!({"metadata": {"annotations": {
            "shoot.gardener.cloud/force-restore": "true", "confirmation.gardener.cloud/force-restore": "forcing-a",
        }}})
        .to_string();
        let patch = ["patch", "shoot", "one", "-n", &place.namespace, "--type=merge", "-p", &force];
        let denied = editor.run(patch).await?;
        ensure!(!denied.succeeded() && denied.stderr.contains("(force-permitted)"), "{}", denied.stderr);
        garden.apply(&[bound("editors", "repot-force-migration")]).await?;
        until("the role to be known", Duration::from_secs(30), async || {
            let allowed = editor.run(patch).await?;
            ensure!(allowed.succeeded(), "{}", allowed.stderr);
            Ok(())
        })
        .await
    });
}
