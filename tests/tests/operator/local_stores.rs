//! Stores on directories of nodes: only where the operator allows it.

use anyhow::{Result, ensure};
use repot_tests::{operator, run};
use serde_json::{Value, json};

use super::world::{TestNamespace, etcd, spec};

/// Waits until a store is refused for this reason, and checks that nothing was made for the Etcd.
pub async fn is_refused(place: &TestNamespace, name: &str, why: &str) -> Result<()> {
    let refused = |object: &Value| {
        let error = &object["status"]["lastErrors"][0];
        let told = error["description"].as_str().is_some_and(|text| text.contains(why));
        error["code"] == "ERR_LOCAL_STORE" && told
    };
    place.pods.until("etcd", name, why, refused).await?;
    for kind in ["statefulset", "job", "pod", "configmap", "service"] {
        let made = place.names(kind).await?;
        let made: Vec<_> = made.iter().filter(|made| made.starts_with(name)).collect();
        ensure!(made.is_empty(), "{kind}: {made:?}");
    }
    Ok(())
}

#[test]
#[ignore = "minutes, in make soak"]
fn stores_outside_of_the_allowed_directory_are_refused_and_nothing_is_made() {
    run(async |env| {
        let place = TestNamespace::make("operator-local").await?;
        let own = operator::make_store(env)?.display().to_string();
        let local = |container: &str, prefix: &str| json!({"provider": "Local", "container": container, "prefix": prefix});
        let above = format!("{own}/../../../../etc");
        for (name, store, source, why) in [
            ("elsewhere", local("/etc", "a"), None, "spec.backup.store is refused: container \"/etc\""),
            ("above", local(&above, "a"), None, "without \"..\""),
            ("climbing", local(&own, "a/../../b"), None, "prefix \"a/../../b\""),
            ("source", local(&own, "a"), Some(local("/", "etc")), "spec.backup.sourceStore is refused"),
        ] {
            let mut wanted = spec(1);
            wanted["backup"]["store"] = store;
            if let Some(source) = source {
                wanted["backup"]["sourceStore"] = source;
            }
            place.pods.apply(&[etcd(name, wanted)]).await?;
            is_refused(&place, name, why).await?;
        }
        // What is refused can be mended, and what runs is not touched by a store that is refused.
        let mend = json!({"spec": {"backup": {"store": {"container": own}}}}).to_string();
        place.pods.kubectl(&["patch", "etcd", "elsewhere", "--type=merge", "-p", &mend]).await?;
        place.until_of("elsewhere", "a member", |status| status["readyReplicas"] == 1).await?;
        let harm = json!({"spec": {"backup": {"store": {"container": "/root"}}}}).to_string();
        place.pods.kubectl(&["patch", "etcd", "elsewhere", "--type=merge", "-p", &harm]).await?;
        let refused = |object: &Value| object["status"]["lastErrors"][0]["code"] == "ERR_LOCAL_STORE";
        place.pods.until("etcd", "elsewhere", "refused", refused).await?;
        let set = place.pods.get("statefulset", "elsewhere").await?;
        let mounted = set["spec"]["template"]["spec"]["volumes"].to_string();
        ensure!(mounted.contains(&own) && !mounted.contains("/root"), "{mounted}");
        Ok(())
    });
}
