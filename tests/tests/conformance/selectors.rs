//! Label and field selectors, wherever they are taken.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use repot_tests::run;
use reqwest::Method;
use serde_json::json;

use super::namespace::{JSON, TestNamespace, expect, names};

/// What is selected of: a (tier=one, app=etcd), b (tier=two), c (no labels).
const CASES: &[(&str, &[&str])] = &[
    ("labelSelector=tier%3Done", &["a"]),
    ("labelSelector=tier%3D%3Dtwo", &["b"]),
    ("labelSelector=tier!%3Done", &["b", "c"]),
    ("labelSelector=tier%20in%20(one%2Ctwo)", &["a", "b"]),
    ("labelSelector=tier%20notin%20(one)", &["b", "c"]),
    ("labelSelector=app", &["a"]),
    ("labelSelector=!app", &["b", "c"]),
    ("labelSelector=app%2Ctier%3Dtwo", &[]),
    ("labelSelector=tier%2Capp%3Detcd", &["a"]),
    ("fieldSelector=metadata.name%3Db", &["b"]),
    ("fieldSelector=metadata.name!%3Db", &["a", "c"]),
    ("fieldSelector=metadata.name%3D%3Dnobody", &[]),
    ("fieldSelector=metadata.namespace%3Delsewhere", &[]),
    ("fieldSelector=metadata.name!%3Da&labelSelector=tier", &["b"]),
];

async fn fill(place: &TestNamespace) -> Result<()> {
    place.create_with("a", json!({"labels": {"tier": "one", "app": "etcd"}})).await?;
    place.create_with("b", json!({"labels": {"tier": "two"}})).await?;
    place.create("c").await?;
    Ok(())
}

#[test]
fn a_selector_means_the_same_everywhere() {
    run(async |_| {
        for (at, (query, expected)) in CASES.iter().enumerate() {
            let place = TestNamespace::new(&format!("selected-{at}"))?;
            let version = place.version().await?;
            fill(&place).await?;
            let list = place.list(&format!("?{query}")).await?;
            ensure!(names(&list) == *expected, "{query} lists {:?}", names(&list));
            // Both halves of a watch: what is there, and what happens.
            for begin in [String::new(), format!("&resourceVersion={version}")] {
                let mut events = place.watch(&format!("&{query}{begin}&timeoutSeconds=60"), JSON).await?;
                let mut seen = BTreeSet::new();
                for _ in 0..expected.len() {
                    seen.insert(events.next().await?["object"]["metadata"]["name"].to_string());
                }
                let wanted: BTreeSet<_> = expected.iter().map(|name| format!("\"{name}\"")).collect();
                ensure!(seen == wanted, "{query}{begin} watches {seen:?}");
            }
            place.api.delete(&place.all(&format!("?{query}"))).await?.ok()?;
            let left = names(&place.list("").await?);
            let spared: Vec<_> =
                ["a", "b", "c"].into_iter().filter(|name| !expected.contains(name)).collect();
            ensure!(left == spared, "{query} spares {left:?}");
        }
        Ok(())
    });
}

#[test]
fn fields_that_are_not_selectable_are_refused() {
    run(async |_| {
        let place = TestNamespace::new("unselectable")?;
        place.create("a").await?;
        for (query, word) in [
            ("fieldSelector=spec.nodeName%3Dx", "field label not supported: spec.nodeName"),
            ("fieldSelector=metadata.uid%3Dx", "field label not supported: metadata.uid"),
            ("fieldSelector=metadata.name%3Da%2Cstatus.phase%3Dx", "status.phase"),
            ("labelSelector=a%20b", "a b"),
            ("labelSelector=a%20in%20(b", ""),
            ("labelSelector=a%3Db%20c", ""),
        ] {
            let watch = place.all(&format!("?watch=true&{query}"));
            let all = place.all(&format!("?{query}"));
            for (method, path) in [(Method::GET, &all), (Method::GET, &watch), (Method::DELETE, &all)] {
                let answer = repot_tests::http::send(place.api.request(method, path)).await?;
                let status = expect(&answer, 400, "BadRequest")?;
                ensure!(status["message"].as_str().is_some_and(|m| m.contains(word)), "{word:?}: {status}");
            }
        }
        ensure!(names(&place.list("").await?) == ["a"], "something was deleted");
        Ok(())
    });
}
