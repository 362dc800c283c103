use anyhow::{Result, ensure};
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{TestNamespace, etcd, spec};

#[test]
fn objects_are_made_put_right_and_collected_with_their_etcd() {
    run(async |_| {
        let place = TestNamespace::make("operator-objects").await?;
        place.apply(spec(1)).await?;
        place.until_members(1, "main").await?;
        for (kind, name) in [
            ("statefulset", "main"),
            ("service", "main-client"),
            ("service", "main-peer"),
            ("configmap", "main-config"),
            ("poddisruptionbudget", "main"),
            ("serviceaccount", "main"),
        ] {
            let object = place.pods.get(kind, name).await?;
            ensure!(object["metadata"]["ownerReferences"][0]["kind"] == "Etcd", "{kind} {name} has no owner");
        }
        let edit = json!({"data": {"agent.yaml": "{}"}}).to_string();
        place.pods.kubectl(&["patch", "configmap", "main-config", "--type=merge", "-p", &edit]).await?;
        let told = |object: &Value| {
            object["data"]["agent.yaml"].as_str().is_some_and(|text| text.contains("main-0"))
        };
        place.pods.until("configmap", "main-config", "put right", told).await?;

        place.pods.kubectl(&["delete", "etcd", "main"]).await?;
        place.pods.until_gone("statefulset", "main").await?;
        place.pods.until_gone("service", "main-peer").await?;
        ensure!(place.names("pvc").await? == ["main-main-0"], "the volume went with its Etcd");
        Ok(())
    });
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    run(async |_| {
        let place = TestNamespace::make("operator-refused").await?;
        let store = json!({"provider": "S3", "container": "b", "prefix": "p"});
        let tls = json!({
            "tlsCASecretRef": {"name": "a"}, "serverTLSSecretRef": {"name": "b"}, "clientTLSSecretRef": {"name": "c"},
        });
        for (name, spec, why) in [
            ("two", json!({"replicas": 2}), "take an odd number"),
            ("Main", json!({}), "Invalid value"),
            ("0main", json!({}), "begins with a letter"),
            (
                "flags",
                json!({"etcd": {"extraFlags": {"initial-cluster-state": "new"}}}),
                "are the operator's",
            ),
            ("dashes", json!({"etcd": {"extraFlags": {"--metrics": "basic"}}}), "without dashes"),
            ("source", json!({"backup": {"sourceStore": store}}), "backup.store, which is missing"),
            ("agent", json!({"backup": {"tls": tls}}), "etcd.clientUrlTls"),
            (
                "local",
                json!({"backup": {"store": {"provider": "Local", "container": "b", "prefix": "p"}}}),
                "absolute path",
            ),
            ("lzw", json!({"backup": {"compression": {"policy": "lzw"}}}), "gzip"),
            ("milliseconds", owned(&json!({"interval": "500ms"})), "spec.backup.ownerCheck.interval"),
            ("nothing", owned(&json!({"timeout": "0s"})), "longer than nothing"),
            ("short", owned(&json!({"grace": "40s"})), "at least the timeout and the 11s"),
            ("slow", owned(&json!({"timeout": "1m"})), "at least the timeout and the 11s"),
            ("plain", owned(&json!({"id": "seed-a"})), "must end with a slash and an epoch"),
            ("zero", owned(&json!({"id": "seed-a/0"})), "must end with a slash and an epoch"),
            ("words", owned(&json!({"id": "seed-a/7b"})), "must end with a slash and an epoch"),
            ("nameless", owned(&json!({"id": "/7"})), "must end with a slash and an epoch"),
            (
                "huge",
                owned(&json!({"id": "seed-a/1000000000000000000"})),
                "must end with a slash and an epoch",
            ),
            ("itself", owned(&json!({"joinedID": "a/7"})), "of an earlier epoch than id"),
            ("later", owned(&json!({"joinedID": "b/8"})), "of an earlier epoch than id"),
            ("timeless", owned(&json!({"joinedID": "b"})), "of an earlier epoch than id"),
            ("nobody", owned(&json!({"servers": []})), "spec.backup.ownerCheck.servers"),
            ("default", owned(&json!({"servers": null})), "missing required field \"servers\""),
            (
                "twice",
                json!({"etcd": {"additionalAdvertisePeerURLs": [], "additionalAdvertisePeerUrls": []}}),
                "two spellings of one field",
            ),
        ] {
            let said = refusal(&place, &etcd(name, spec)).await?;
            ensure!(said.contains(why), "{name}: {said}");
        }
        let owned = owned(&json!({"timeout": "29s", "grace": "40s", "interval": "1m1s", "joinedID": "b/6"}));
        place.pods.apply(&[etcd("owned", json!({"replicas": 0, "backup": owned["backup"]}))]).await?;
        epochs_rise(&place).await?;
        let first = json!({
            "replicas": 0, "memberNamePrefix": "a", "backup": {"store": {"provider": "S3", "container": "b", "prefix": "p"}},
        });
        place.apply(first).await?;
        let joins = json!({"members": [{"name": "a", "peerUrls": ["http://a:2380"]}], "clientEndpoints": ["http://a:2379"]});
        for (patch, why) in [
            (json!({"memberNamePrefix": "b"}), "keep their names for life"),
            (json!({"backup": {"store": {"prefix": "q"}}}), "lie in one place"),
            (json!({"etcd": {"bootstrapWithExistingCluster": joins}}), "only when the Etcd is made"),
        ] {
            let said = format!(
                "{:#}",
                place
                    .patch(json!({"spec": patch}))
                    .await
                    .err()
                    .unwrap_or_else(|| anyhow::anyhow!("it was allowed"))
            );
            ensure!(said.contains(why), "{said}");
        }
        // Unlike elsewhere, volumes may be changed. No member has founded anything on those.
        place.patch(json!({"spec": {"volumeClaimTemplate": "other"}})).await?;
        let joins_etcd = json!({"bootstrapWithExistingCluster": joins});
        place
            .patch(json!({"spec": {"volumeClaimTemplate": "another", "etcd": joins_etcd, "replicas": 1}}))
            .await?;
        what_is_given_up_stays_so(&place, &joins).await
    });
}

/// Members that gave the etcd up that they were in have data of it: they never run again on the same volumes.
async fn what_is_given_up_stays_so(place: &TestNamespace, joins: &Value) -> Result<()> {
    let joining = |existing: Value, more: Value| {
        let mut spec = json!({"etcd": {"bootstrapWithExistingCluster": existing}});
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        json!({"spec": spec})
    };
    let abandoned = || json!({"abandoned": true});
    let refused = |said: Result<()>, why: &str| match said {
        Ok(()) => anyhow::bail!("it was allowed, and not refused by {why:?}"),
        Err(error) => {
            let said = format!("{error:#}");
            ensure!(said.contains(why), "{said}");
            Ok(())
        }
    };
    refused(place.patch(joining(abandoned(), json!({}))).await, "abandoned needs replicas 0")?;
    // The field was removed where members of the other seed were to leave; to give up, it is set once more.
    place.patch(joining(Value::Null, json!({"replicas": 0}))).await?;
    refused(place.patch(joining(joins.clone(), json!({}))).await, "only when the Etcd is made")?;
    let mut whole = joins.clone();
    whole["abandoned"] = true.into();
    place.patch(joining(whole, json!({}))).await?;
    for (existing, more) in [
        (json!({"abandoned": false}), json!({})),
        (json!({"abandoned": null}), json!({})),
        (Value::Null, json!({})),
        (json!({}), json!({"replicas": 1})),
        (Value::Null, json!({"replicas": 1})),
    ] {
        refused(place.patch(joining(existing, more)).await, "until it has another volumeClaimTemplate")?;
    }
    place.patch(joining(Value::Null, json!({"replicas": 1, "volumeClaimTemplate": "third"}))).await
}

/// Changes the id of the Etcd `owned`, which has the epoch 7.
async fn epochs_rise(place: &TestNamespace) -> Result<()> {
    for (id, why) in [
        ("a/8", None),
        ("a/8", None),
        // As numbers, not as texts.
        ("b/10", None),
        ("a/9", Some("needs a later epoch")),
        ("a/10", Some("needs a later epoch")),
        ("b", Some("must end with a slash and an epoch")),
        ("a/b/11", None),
    ] {
        let patch = json!({"spec": {"backup": {"ownerCheck": {"id": id}}}}).to_string();
        let patched = place.pods.kubectl(&["patch", "etcd", "owned", "--type=merge", "-p", &patch]).await;
        match (patched, why) {
            (Ok(_), None) => {}
            (Ok(_), Some(_)) => anyhow::bail!("{id} was allowed"),
            (Err(error), why) => {
                let said = format!("{error:#}");
                ensure!(why.is_some_and(|why| said.contains(why)), "{id}: {said}");
            }
        }
    }
    Ok(())
}

/// With fields of its own for the record of the owner; one that is `null` is left out.
fn owned(fields: &Value) -> Value {
    let mut check = json!({"name": "owner.example.org", "id": "a/7", "servers": ["ns:example.org"]});
    for (field, value) in fields.as_object().into_iter().flatten() {
        check[field] = value.clone();
    }
    if let Some(check) = check.as_object_mut() {
        check.retain(|_, value| !value.is_null());
    }
    json!({"backup": {"ownerCheck": check}})
}

async fn refusal(place: &TestNamespace, object: &Value) -> Result<String> {
    let refused = place.pods.apply(std::slice::from_ref(object)).await;
    Ok(refused.map_or_else(|error| format!("{error:#}"), |()| "it was allowed".to_owned()))
}
