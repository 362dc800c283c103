use k8s_openapi::api::core::v1::Secret;
use kube::{ResourceExt, api::DynamicObject};
use repot_api::names::{ROTATE_AUTHORITIES, ROTATED_FOR};
use serde_json::json;
use time::Duration;

use super::{
    Lifetimes, ServingSecret, Target, authorities::Authorities, pass::now, published::with_foreign, secrets,
    serving::Serving,
};

const LIFE: Duration = Duration::days(900);

fn authorities() -> Authorities {
    let mut authorities = Authorities::read("repot-authorities", None);
    authorities.add(now(), LIFE).expect("an authority");
    authorities
}

/// As an API server gives it back.
fn stored(secret: &Secret) -> Secret {
    let mut secret: Secret =
        serde_json::from_value(serde_json::to_value(secret).expect("JSON")).expect("a Secret");
    secret.metadata.resource_version = Some("7".to_owned());
    secret
}

fn serving(secret: Option<Secret>) -> Serving {
    let names = ["repot-apiserver.repot-system.svc".to_owned(), "repot-apiserver".to_owned()].to_vec();
    Serving::new(ServingSecret { name: "repot-apiserver-tls".to_owned(), names }, secret)
}

#[test]
fn authorities_are_read_as_they_were_written() {
    let mut written = authorities();
    assert!(written.trust(now()) && !written.trust(now()));
    written.add(now(), LIFE).expect("a second authority");
    let read = Authorities::read("repot-authorities", Some(stored(written.secret())));
    assert_eq!(read.states(), written.states());
    assert_eq!(
        read.states().iter().map(|one| one.trusted_since.is_some()).collect::<Vec<_>>(),
        [true, false]
    );
    assert_eq!(read.bundle(), secrets::text(written.secret(), "ca-bundle.crt"));
    assert_eq!(read.bundle().matches("BEGIN CERTIFICATE").count(), 2);
}

#[test]
fn authority_with_the_key_of_another_is_refused_and_no_key_is_printed() {
    let (one, other) = (authorities(), authorities());
    let mut secret = stored(one.secret());
    let key = stored(other.secret()).data.expect("data")["1.key"].clone();
    secret.data.as_mut().expect("data").insert("1.key".to_owned(), key);
    let mut damaged = Authorities::read("repot-authorities", Some(secret));
    let errors = damaged.damages();
    assert!(
        errors[0].to_string().contains("authority 1 in Secret repot-authorities is damaged: its key"),
        "{errors:?}"
    );
    // It keeps its number and its data, and another one may be made.
    assert_eq!(damaged.add(now(), LIFE).expect("another one"), 2);
    assert!(damaged.secret().data.as_ref().expect("data").contains_key("1.crt"));
    let key = &one.secret().data.as_ref().expect("data")["1.key"];
    let printed = format!("{one:?}");
    assert!(!printed.contains("PRIVATE KEY") && !printed.contains(&format!("{:?}", &key.0[30..40])[1..30]));
}

#[test]
fn request_for_an_authority_is_carried_out_once() {
    let mut authorities = authorities();
    let mut asked = stored(authorities.secret());
    asked.annotations_mut().insert(ROTATE_AUTHORITIES.to_owned(), "a".to_owned());
    authorities.written(asked);
    assert!(authorities.is_requested());
    authorities.add(now(), LIFE).expect("a second authority");
    assert!(!authorities.is_requested());
    assert_eq!(authorities.secret().annotations()[ROTATED_FOR], "a");
}

#[test]
fn certificate_is_usable_for_its_names_by_its_key_and_until_somebody_asks_for_another() {
    let authorities = authorities();
    let signer = authorities.signer(1).expect("readable").expect("there");
    let missing = serving(None).state(&authorities, None);
    assert_eq!((missing.validity, missing.signer), (None, None));
    let secret = serving(None).sign(&signer, None, now(), Duration::days(90)).expect("signed");
    let request = "b".to_owned();
    let good = serving(Some(secret.clone()));
    let state = good.state(&authorities, None);
    assert_eq!(
        (state.validity.map(|validity| validity.until), state.signer),
        (Some(now() + Duration::days(90)), Some(1))
    );
    assert!(good.state(&authorities, Some(&request)).is_requested);
    let renewed = good.sign(&signer, Some(&request), now(), Duration::days(90)).expect("signed");
    assert!(!serving(Some(renewed.clone())).state(&authorities, Some(&request)).is_requested);
    let names = ServingSecret { name: "repot-apiserver-tls".to_owned(), names: vec!["other".to_owned()] };
    assert_eq!(Serving::new(names, Some(secret.clone())).state(&authorities, None).validity, None);
    let mut mixed = secret;
    let key = renewed.data.expect("data")["tls.key"].clone();
    mixed.data.as_mut().expect("data").insert("tls.key".to_owned(), key);
    assert_eq!(serving(Some(mixed)).state(&authorities, None).validity, None);
}

#[test]
fn bundle_of_others_stays_behind_ours_and_nothing_is_there_twice() {
    let ours = authorities().bundle();
    let foreign = authorities().bundle();
    let both = with_foreign(&ours, &foreign);
    assert!(both.starts_with(&ours) && both.contains(foreign.trim_end()));
    assert_eq!(with_foreign(&ours, &both), both);
    assert_eq!(with_foreign(&ours, "-----BEGIN CERTIFICATE-----\nhalf"), ours);
    assert_eq!(with_foreign(&ours, ""), ours);
}

#[test]
fn targets_are_told_by_kind_and_name() {
    let target: Target = "apiservice/v1alpha1.core.gardener.cloud".parse().expect("a target");
    assert_eq!(target.to_string(), "apiservice/v1alpha1.core.gardener.cloud");
    for wrong in ["", "apiservice", "apiservice/", "secret/a", "APIService/a"] {
        let error = wrong.parse::<Target>().expect_err(wrong);
        assert!(error.contains("must be KIND/NAME"), "{error}");
    }
}

#[test]
fn apiservice_that_takes_no_bundle_is_refused_with_what_to_do() {
    let target: Target = "apiservice/a".parse().expect("a target");
    for (spec, expected) in [
        (json!({}), "name an APIService with a service"),
        (json!({"service": {"name": "a"}, "insecureSkipTLSVerify": true}), "remove that field"),
    ] {
        let object = DynamicObject {
            types: None,
            metadata: kube::api::ObjectMeta::default(),
            data: json!({"spec": spec}),
        };
        let error = target.changes(&object, "x", false).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn validities_that_leave_no_time_to_replace_are_refused() {
    let hours = |hours: u64| std::time::Duration::from_secs(hours * 3600);
    let lifetimes = |authority, serving, overlap| Lifetimes {
        authority: hours(authority),
        serving: hours(serving),
        overlap: hours(overlap),
        is_short_allowed: false,
    };
    lifetimes(43_800, 2160, 1).check().expect("the defaults");
    for wrong in [lifetimes(100, 0, 0), lifetimes(100, 10, 2), lifetimes(50, 10, 1)] {
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}

#[test]
fn number_of_an_authority_of_which_a_trace_is_left_is_not_given_again() {
    let mut authorities = authorities();
    authorities.trust(now());
    let mut secret = stored(authorities.secret());
    secret.data = None;
    let mut read = Authorities::read("repot-authorities", Some(secret));
    assert_eq!(read.add(now(), LIFE).expect("another one"), 2);
    assert_eq!(read.states()[0].trusted_since, None);
}

#[test]
fn addresses_are_compared_as_certificates_write_them() {
    let authorities = authorities();
    let signer = authorities.signer(1).expect("readable").expect("there");
    let names = ["2001:DB8::1", "Name.example", "name.example"].map(str::to_owned).to_vec();
    let wanted = ServingSecret { name: "tls".to_owned(), names };
    let signed = Serving::new(wanted.clone(), None).sign(&signer, None, now(), Duration::days(90));
    let state = Serving::new(wanted, Some(signed.expect("signed"))).state(&authorities, None);
    assert!(state.validity.is_some());
}
