use super::*;

fn of(method: &str, path: &str) -> Result<Target, NotForwarded> {
    target(&Method::from_bytes(method.as_bytes()).expect("a method"), path)
}

fn in_shoot(part: Part) -> Result<Target, NotForwarded> {
    Ok(Target::Namespace { namespace: "shoot--a--b".to_owned(), part })
}

fn object([group, version, resource, name]: [&str; 4]) -> Result<Target, NotForwarded> {
    in_shoot(Part::Object(ObjectPath {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
    }))
}

#[test]
fn writes_are_found_in_their_namespace() {
    let core = |resource, name| object(["", "v1", resource, name]);
    for (method, path, expected) in [
        ("POST", "/api/v1/namespaces/shoot--a--b/secrets", in_shoot(Part::Collection)),
        ("DELETE", "/api/v1/namespaces/shoot--a--b/secrets", in_shoot(Part::Collection)),
        ("PUT", "/api/v1/namespaces/shoot--a--b/secrets/x", core("secrets", "x")),
        ("POST", "/api/v1/namespaces/shoot--a--b/pods/x/eviction", core("pods", "x")),
        ("DELETE", "/api/v1/namespaces/shoot--a--b", in_shoot(Part::Itself)),
        ("PUT", "/api/v1/namespaces/shoot--a--b/finalize", in_shoot(Part::Itself)),
        ("PATCH", "/api/v1/namespaces/shoot--a--b/status", in_shoot(Part::Itself)),
        ("PATCH", "/api/v1/%6eamespaces/shoot%2d-a--b/secrets/x", core("secrets", "x")),
        ("PATCH", "/api/v1/namespaces/shoot--a--b/", in_shoot(Part::Itself)),
        (
            "PATCH",
            "/apis/extensions.gardener.cloud/v1alpha1/namespaces/shoot--a--b/workers/w/status",
            object(["extensions.gardener.cloud", "v1alpha1", "workers", "w"]),
        ),
    ] {
        assert_eq!(of(method, path), expected, "{method} {path}");
    }
}

#[test]
fn writes_in_no_namespace_are_found_by_their_name() {
    let named = |name: &str| Ok(Target::Cluster(name.to_owned()));
    for (method, path, expected) in [
        ("PATCH", "/apis/dns.gardener.cloud/v1alpha1/dnsowners/shoot--a--b-x", named("shoot--a--b-x")),
        ("POST", "/apis/dns.gardener.cloud/v1alpha1/dnsowners", Ok(Target::NewInCluster)),
        ("POST", "/api/v1/namespaces", Ok(Target::NewInCluster)),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Ok(Target::Review)),
        ("DELETE", "/apis/dns.gardener.cloud/v1alpha1/dnsowners", Err(NotForwarded::ClusterCollection)),
    ] {
        assert_eq!(of(method, path), expected, "{method} {path}");
    }
    assert!(matches!(of("DELETE", "/apis/authorization.k8s.io/v1/x/y"), Ok(Target::Cluster(_))));
}

#[test]
fn reads_pass_but_for_those_that_connect() {
    for path in [
        "/",
        "/api/",
        "/openapi/v3",
        "/api/v1/namespaces/shoot--a--b/secrets",
        "/api/v1/watch/namespaces/shoot--a--b/secrets",
        "/api/v1/namespaces/shoot--a--b/pods/x/log",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
        // A Secret of this name.
        "/api/v1/namespaces/shoot--a--b/secrets/proxy",
    ] {
        assert_eq!(of("GET", path), Ok(Target::Read), "{path}");
    }
    for path in [
        "/api/v1/namespaces/shoot--a--b/pods/x/exec",
        "/api/v1/namespaces/shoot--a--b/pods/x/%65xec",
        "/api/v1/namespaces/shoot--a--b/services/x/proxy/any",
        "/api/v1/proxy/namespaces/shoot--a--b/pods/x",
        "/api/v1/nodes/x/proxy/run",
    ] {
        for method in ["GET", "POST"] {
            assert_eq!(of(method, path), Err(NotForwarded::Connect), "{method} {path}");
        }
    }
}

#[test]
fn paths_with_two_readings_are_refused() {
    for path in [
        "/api/v1//namespaces/shoot--a--b/secrets",
        "//api/v1/namespaces/shoot--a--b/secrets",
        "/api/v1/x/../namespaces/shoot--a--b/secrets",
        "/api/v1/%2e%2e/namespaces/shoot--a--b/secrets",
        "/api/v1/namespaces/shoot--a--b%2fsecrets",
        "/api/v1/namespaces/shoot--a--b%252fsecrets",
        "/api/v1/namespaces/shoot--a--b/secrets/x%00",
        "/api/v1/namespaces/shoot--a--b/secrets/%zz",
        "/api/v1/namespaces/shoot--a--b/secrets/x//",
        "*",
        "",
    ] {
        for method in ["POST", "GET"] {
            assert!(matches!(of(method, path), Err(NotForwarded::Path(_))), "{method} {path}");
        }
    }
    assert_eq!(of("POST", "/logs"), Err(NotForwarded::OutsideOfApi));
    assert_eq!(of("POST", "/API/v1/namespaces/shoot--a--b/secrets"), Err(NotForwarded::OutsideOfApi));
    assert_eq!(of("BREW", "/api/v1/secrets"), Err(NotForwarded::Method));
    assert_eq!(of("CONNECT", "/api/v1/secrets"), Err(NotForwarded::Method));
    assert!(of("POST", "/api/v1/watch/namespaces/shoot--a--b/secrets").is_err());
}
