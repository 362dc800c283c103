//! Reading one object and many: versions, order, pages.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use repot_tests::repot::Dev;
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};

use super::namespace::{JSON, METADATA_LIST, TestNamespace, ask, expect, header, names, number, text};
use crate::shootstate::etcd_values::Values;
use crate::shootstate::world::World;

fn token(list: &Value) -> Result<String> {
    text(&list["metadata"]["continue"]).with_context(|| format!("{}", list["metadata"]))
}

#[test]
fn versions_are_numbers_that_grow() {
    run(async |_| {
        let (one, other) = (TestNamespace::new("versions-one")?, TestNamespace::new("versions-other")?);
        let empty = one.list("").await?;
        ensure!(empty["items"] == json!([]), "{empty}");
        let mut last = number(&empty["metadata"]["resourceVersion"])?;
        for place in [&one, &other, &one, &other] {
            let created = place.create(&format!("s-{last}")).await?;
            let version = number(&created["metadata"]["resourceVersion"])?;
            ensure!(version > last, "{version} came after {last}");
            last = version;
        }
        // What selects nothing still shows the state of now, and so does a namespace without changes.
        for list in
            [one.list("?labelSelector=a%3Db").await?, TestNamespace::new("versions-none")?.list("").await?]
        {
            let version = number(&list["metadata"]["resourceVersion"])?;
            ensure!(version >= last && list["items"] == json!([]), "{list} was read after {last}");
        }
        let seen = one.list("").await?;
        for item in seen["items"].as_array().context("items")? {
            let version = number(&item["metadata"]["resourceVersion"])?;
            ensure!(
                version <= number(&seen["metadata"]["resourceVersion"])?,
                "{item} is newer than its list"
            );
        }
        Ok(())
    });
}

#[test]
fn a_read_is_as_new_as_it_was_asked_to_be() {
    run(async |_| {
        let place = TestNamespace::new("freshness")?;
        let first = text(&place.create("a").await?["metadata"]["resourceVersion"])?;
        let second = text(&place.create("b").await?["metadata"]["resourceVersion"])?;
        for version in ["0", &first, &second] {
            let read = place.api.get(&format!("{}?resourceVersion={version}", place.one("b"))).await?.ok()?;
            ensure!(read["metadata"]["resourceVersion"] == second, "{read}");
        }
        let future = format!("{}?resourceVersion=9999999999", place.one("a"));
        let late = place.api.get(&future).await?;
        let status = expect(&late, 504, "Timeout")?;
        ensure!(status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge", "{status}");
        ensure!(status["details"]["retryAfterSeconds"] == 1 && header(&late, "retry-after") == "1", "{late}");
        expect(&place.api.get(&format!("{}?resourceVersion=x", place.one("a"))).await?, 400, "BadRequest")?;

        let (old, both) = (vec!["a"], vec!["a", "b"]);
        for (query, expected) in [
            (String::new(), &both),
            ("?resourceVersion=0".to_owned(), &both),
            (format!("?resourceVersion={first}"), &both),
            (format!("?resourceVersion={first}&resourceVersionMatch=NotOlderThan"), &both),
            (format!("?resourceVersion={first}&resourceVersionMatch=NotOlderThan&limit=5"), &both),
            (format!("?resourceVersion={first}&resourceVersionMatch=Exact"), &old),
            (format!("?resourceVersion={first}&resourceVersionMatch=Exact&limit=5"), &old),
            // A limit and no match mean exactly, for clients from before there was a match.
            (format!("?resourceVersion={first}&limit=5"), &old),
            (format!("?resourceVersion={second}&limit=5"), &both),
        ] {
            let list = place.list(&query).await?;
            ensure!(names(&list) == **expected, "{query:?}: {:?}", names(&list));
            let shown = number(&list["metadata"]["resourceVersion"])?;
            ensure!(**expected == both || shown == first.parse::<u64>()?, "{query:?} shows {shown}");
        }
        Ok(())
    });
}

#[test]
fn lists_are_sorted_across_namespaces() {
    run(async |_| {
        let (late, early) = (TestNamespace::new("sorted-b")?, TestNamespace::new("sorted-a")?);
        for (place, name) in [(&late, "a"), (&early, "b"), (&late, "c"), (&early, "a")] {
            place.create_with(name, json!({"labels": {"sorted": "yes"}})).await?;
        }
        let everywhere = "/apis/core.gardener.cloud/v1alpha1/shootstates?labelSelector=sorted";
        let mut seen = Vec::new();
        let mut query = String::new();
        loop {
            let page = late.api.get(&format!("{everywhere}&limit=1{query}")).await?.ok()?;
            ensure!(page["metadata"]["remainingItemCount"].is_null(), "counted with a selector: {page}");
            for item in page["items"].as_array().context("items")? {
                let meta = &item["metadata"];
                seen.push((text(&meta["namespace"])?, text(&meta["name"])?));
            }
            let Some(next) = page["metadata"]["continue"].as_str() else { break };
            query = format!("&continue={next}");
        }
        let expected = [("sorted-a", "a"), ("sorted-a", "b"), ("sorted-b", "a"), ("sorted-b", "c")];
        ensure!(seen.iter().map(|(a, b)| (a.as_str(), b.as_str())).eq(expected), "{seen:?}");

        // Counted by the cache, which is built when it is first asked.
        let page = until("the rest to be counted", Duration::from_secs(30), async || {
            let page = late.list("?limit=1").await?;
            ensure!(page["metadata"]["remainingItemCount"] == 1, "{}", page["metadata"]);
            Ok(page)
        })
        .await?;
        let rest = late.list(&format!("?limit=1&continue={}", token(&page)?)).await?;
        ensure!(rest["metadata"].get("continue").is_none_or(|token| token == ""), "{}", rest["metadata"]);
        ensure!(rest["metadata"]["remainingItemCount"].is_null(), "{}", rest["metadata"]);
        ensure!(names(&late.list("?limit=0").await?) == ["a", "c"], "limit 0 is not all");
        ensure!(names(&late.list("?limit=2").await?) == ["a", "c"], "a full page is not all");
        Ok(())
    });
}

#[test]
fn a_limit_counts_for_any_version() {
    run(async |_| {
        let place = TestNamespace::new("limited")?;
        place.create("a").await?;
        place.create("b").await?;
        // Version 0 is that of the cache, which may be older. A list of the newest version ends when the cache has reached it.
        ensure!(names(&place.list("").await?) == ["a", "b"], "both are there");
        let page = place.list("?resourceVersion=0&limit=1").await?;
        ensure!(names(&page) == ["a"], "{page}");
        let rest = place.list(&format!("?limit=1&continue={}", token(&page)?)).await?;
        ensure!(names(&rest) == ["b"], "{rest}");
        Ok(())
    });
}

#[test]
fn tokens_belong_to_what_was_listed() {
    run(async |_| {
        let (one, other) = (TestNamespace::new("tokens-one")?, TestNamespace::new("tokens-other")?);
        for name in ["a", "b"] {
            one.create(name).await?;
        }
        let given = token(&one.list("?limit=1").await?)?;
        let everywhere = "/apis/core.gardener.cloud/v1alpha1/shootstates?limit=1";
        let wide = token(&one.api.get(everywhere).await?.ok()?)?;
        let bytes = URL_SAFE_NO_PAD.decode(&given).context("a token is base64 that fits into a URL")?;
        let forged = String::from_utf8_lossy(&bytes).replace("\"a\"", "\"../../other/a\"");
        ensure!(forged.as_bytes() != bytes, "the token does not say where to go on: {forged}");
        for path in [
            other.all(&format!("?limit=1&continue={given}")),
            one.all(&format!("?limit=1&continue={wide}")),
            format!("{everywhere}&continue={given}"),
            one.all(&format!("?continue={}", URL_SAFE_NO_PAD.encode(forged))),
            one.all(&format!("?continue={}", &given[1..])),
            one.all(&format!("?continue={given}&resourceVersion=1")),
        ] {
            expect(&one.api.get(&path).await?, 400, "BadRequest")?;
        }
        // Old clients send version 0 along; any state means the token's.
        ensure!(
            names(&one.list(&format!("?continue={given}")).await?) == ["b"],
            "the token itself is refused"
        );
        Ok(())
    });
}

#[test]
fn tokens_survive_a_restart() {
    run(async |env| {
        let mut dev = Dev::start(env, [""; 0]).await?;
        let place = TestNamespace::of(dev.api()?, "restarted");
        for name in ["a", "b", "c"] {
            place.create(name).await?;
        }
        let page = place.list("?limit=1").await?;
        place.create("b-later").await?;
        dev.repot().restart().await?;
        let place = TestNamespace::of(dev.api()?, "restarted");
        let rest = place.list(&format!("?continue={}", token(&page)?)).await?;
        ensure!(names(&rest) == ["b", "c"], "{:?}", names(&rest));
        ensure!(
            rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"],
            "{}",
            rest["metadata"]
        );
        Ok(())
    });
}

#[test]
fn a_page_that_comes_too_late_is_told_where_to_go_on() {
    run(async |env| {
        let mut world = World::garden_on_etcd(env).await?;
        let place = TestNamespace::of(world.api.clone(), "default");
        for name in ["a", "b", "c"] {
            place.create(name).await?;
        }
        let page = place.list("?limit=1").await?;
        for name in ["d", "e"] {
            place.create(name).await?;
        }
        Values::new(world.etcd.as_mut().context("etcd")?)?.compact().await?;
        let late = place.api.get(&place.all(&format!("?limit=2&continue={}", token(&page)?))).await?;
        let status = expect(&late, 410, "Expired")?;
        let rest = place.list(&format!("?limit=9&continue={}", token(&status)?)).await?;
        ensure!(names(&rest) == ["b", "c", "d", "e"], "{:?}", names(&rest));
        let newer = number(&rest["metadata"]["resourceVersion"])?;
        ensure!(newer > number(&page["metadata"]["resourceVersion"])?, "it shows the version that is gone");
        Ok(())
    });
}

#[test]
fn pages_are_bounded_in_bytes() {
    run(async |_| {
        let place = TestNamespace::new("heavy")?;
        let heavy = "x".repeat(14 << 20);
        for n in 0..10 {
            let mut object = place.object(&format!("s{n}"));
            object["spec"]["extensions"][0]["state"] = json!(heavy);
            let answer = place.api.post(&place.all(""), &object).await?;
            ensure!(answer.status == 201, "{answer}");
        }
        let page = place.api.get(&place.all("?limit=500")).await?;
        ensure!(page.body.len() < 150 << 20, "a page has {} bytes", page.body.len());
        let page = page.ok()?;
        let first = names(&page);
        ensure!((1..10).contains(&first.len()), "{first:?}");
        ensure!(page["metadata"]["remainingItemCount"] == 10 - first.len(), "{}", page["metadata"]);
        let rest = place.list(&format!("?limit=500&continue={}", token(&page)?)).await?;
        let all: Vec<_> = first.into_iter().chain(names(&rest)).collect();
        ensure!(all == (0..10).map(|n| format!("s{n}")).collect::<Vec<_>>(), "{all:?}");
        // Metadata weighs nothing.
        let light = ask(&place.api, Method::GET, &place.all("?limit=500"), METADATA_LIST).await?.ok()?;
        ensure!(names(&light).len() == 10, "{:?}", names(&light));
        place.api.delete(&place.all("")).await?.ok().map(drop)
    });
}

#[test]
fn a_list_has_whole_objects() {
    run(async |_| {
        let place = TestNamespace::new("whole")?;
        for name in ["a", "b"] {
            place.create_with(name, json!({"annotations": {"example.com/note": name}})).await?;
        }
        let list = ask(&place.api, Method::GET, &place.all(""), JSON).await?.ok()?;
        ensure!(
            list["kind"] == "ShootStateList" && list["apiVersion"] == "core.gardener.cloud/v1alpha1",
            "{list}"
        );
        for item in list["items"].as_array().context("items")? {
            let object = place.get(&text(&item["metadata"]["name"])?).await?;
            ensure!(item["metadata"] == object["metadata"] && item["spec"] == object["spec"], "{item}");
        }
        Ok(())
    });
}

#[test]
fn a_shard_selector_is_not_known() {
    run(async |_| {
        let place = TestNamespace::new("sharded")?;
        place.create("a").await?;
        let query = "shardSelector=shardRange(object.metadata.uid,%270x0%27,%270x1%27)";
        ensure!(names(&place.list(&format!("?{query}")).await?) == ["a"], "a list was cut");
        let event = place.watch(&format!("&{query}"), JSON).await?.next().await?;
        ensure!(event["object"]["metadata"]["name"] == "a", "{event}");
        Ok(())
    });
}
