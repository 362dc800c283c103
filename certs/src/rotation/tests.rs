use time::{Duration, OffsetDateTime};

use super::*;
use crate::inspect::Validity;

const OVERLAP: Duration = Duration::hours(1);
const AUTHORITY_LIFE: Duration = Duration::days(900);
const LIFE: Duration = Duration::days(90);

/// Days and hours after an arbitrary start.
fn at(days: i64, hours: i64) -> OffsetDateTime {
    let start = OffsetDateTime::from_unix_timestamp(1_795_000_000).expect("a time");
    start + Duration::days(days) + Duration::hours(hours)
}

fn authority(number: u32, made: OffsetDateTime, trusted_since: Option<OffsetDateTime>) -> AuthorityState {
    AuthorityState {
        number,
        validity: Validity { issued: made, until: made + AUTHORITY_LIFE },
        trusted_since,
    }
}

fn certificate(name: &str, signer: u32, issued: OffsetDateTime) -> CertificateState {
    let validity = Some(Validity { issued, until: issued + LIFE });
    CertificateState { name: name.to_owned(), validity, signer: Some(signer), is_requested: false }
}

fn given(now: OffsetDateTime) -> Circumstances {
    Circumstances { is_requested: false, is_published: true, overlap: OVERLAP, now }
}

fn next(authorities: &[AuthorityState], certificates: &[CertificateState], now: OffsetDateTime) -> Next {
    decide(authorities, certificates, &given(now))
}

fn missing(name: &str) -> CertificateState {
    CertificateState { name: name.to_owned(), validity: None, signer: None, is_requested: false }
}

#[test]
fn first_authority_signs_at_once_though_nobody_trusts_it_yet() {
    let wanted = [missing("api")];
    let first = next(&[], &wanted, at(0, 0));
    assert_eq!(first, Next { make_authority: true, ..Next::default() });
    let second = next(&[authority(1, at(0, 0), None)], &wanted, at(0, 0));
    assert_eq!(second, Next { signer: Some(1), sign: vec!["api".to_owned()], ..Next::default() });
}

#[test]
fn nothing_is_done_before_two_thirds_of_a_life_are_over() {
    let authorities = [authority(1, at(0, 0), Some(at(0, 0)))];
    let certificates = [certificate("api", 1, at(0, 0))];
    let settled = Next { signer: Some(1), is_settled: true, ..Next::default() };
    assert_eq!(next(&authorities, &certificates, at(59, 23)), settled);
    assert_eq!(next(&authorities, &certificates, at(60, 0)).sign, ["api"]);
}

#[test]
fn new_authority_signs_after_the_overlap_and_the_old_one_leaves_after_another() {
    let old = authority(1, at(0, 0), Some(at(0, 0)));
    assert!(next(&[old], &[certificate("api", 1, at(590, 0))], at(600, 0)).make_authority);
    let current = [certificate("api", 1, at(590, 0)), certificate("webhook", 1, at(590, 0))];
    // Not yet in every bundle.
    let made = [old, authority(2, at(600, 0), None)];
    assert_eq!(
        next(&made, &current, at(601, 0)),
        Next { signer: Some(1), is_settled: true, ..Next::default() }
    );
    let published = [old, authority(2, at(600, 0), Some(at(601, 0)))];
    assert_eq!(next(&published, &current, at(601, 0)).signer, Some(1));
    let signs = next(&published, &current, at(601, 1));
    assert_eq!((signs.signer, signs.sign.len(), signs.remove.len()), (Some(2), 2, 0));
    let renewed = [certificate("api", 2, at(601, 1)), certificate("webhook", 2, at(601, 2))];
    assert_eq!(next(&published, &renewed, at(601, 2)), Next { signer: Some(2), ..Next::default() });
    assert_eq!(next(&published, &renewed, at(601, 3)).remove, [1]);
}

#[test]
fn authority_that_has_ended_signs_nothing_even_where_the_next_is_not_published() {
    let authorities = [authority(1, at(0, 0), Some(at(0, 0))), authority(2, at(800, 0), None)];
    let certificates = [certificate("api", 1, at(850, 0))];
    assert_eq!(next(&authorities, &certificates, at(899, 21)).signer, Some(1));
    let ending = next(&authorities, &certificates, at(899, 22));
    assert_eq!((ending.signer, ending.sign), (Some(2), vec!["api".to_owned()]));
    let ended = next(&authorities, &certificates, at(900, 0));
    assert_eq!((ended.signer, ended.sign), (Some(2), vec!["api".to_owned()]));
    let none = next(&authorities, &certificates, at(1700, 0));
    assert_eq!(none, Next { make_authority: true, ..Next::default() });
}

#[test]
fn certificate_of_an_unknown_signer_and_one_that_is_asked_for_are_signed_anew() {
    let authorities = [authority(7, at(0, 0), Some(at(0, 0)))];
    let unknown = CertificateState { signer: None, ..certificate("unknown", 7, at(1, 0)) };
    let asked = CertificateState { is_requested: true, ..certificate("asked", 7, at(1, 0)) };
    let next = next(&authorities, &[unknown, asked, certificate("good", 7, at(1, 0))], at(2, 0));
    assert_eq!(next.sign, ["unknown", "asked"]);
}

#[test]
fn request_for_a_new_authority_makes_one_beside_the_old_one() {
    let authorities = [authority(1, at(0, 0), Some(at(0, 0)))];
    let asked = Circumstances { is_requested: true, ..given(at(2, 0)) };
    let next = decide(&authorities, &[certificate("api", 1, at(0, 0))], &asked);
    assert!(next.make_authority && next.sign.is_empty());
    assert_eq!(next.signer, Some(1));
}

#[test]
fn valid_certificate_of_an_authority_that_is_lost_stays_until_the_new_one_is_trusted() {
    let lost = CertificateState { signer: None, ..certificate("api", 9, at(0, 0)) };
    let (made, known) = (authority(1, at(10, 0), None), authority(1, at(10, 0), Some(at(10, 0))));
    assert!(next(&[made], std::slice::from_ref(&lost), at(10, 0)).sign.is_empty());
    assert!(next(&[known], std::slice::from_ref(&lost), at(10, 0)).sign.is_empty());
    // The bundle is not everywhere at this moment: nobody may meet a certificate that it does not cover.
    let unpublished = Circumstances { is_published: false, ..given(at(10, 1)) };
    assert!(decide(&[known], std::slice::from_ref(&lost), &unpublished).sign.is_empty());
    assert_eq!(next(&[known], std::slice::from_ref(&lost), at(10, 1)).sign, ["api"]);
    // One that has ended is worth nothing to anybody.
    assert_eq!(next(&[authority(1, at(90, 0), None)], &[lost], at(90, 0)).sign, ["api"]);
}

#[test]
fn certificate_and_authority_of_a_clock_that_was_ahead_are_replaced() {
    let authorities = [authority(1, at(0, 0), Some(at(0, 0)))];
    assert_eq!(next(&authorities, &[certificate("api", 1, at(40, 0))], at(1, 0)).sign, ["api"]);
    assert!(next(&[authority(1, at(40, 0), None)], &[], at(1, 0)).make_authority);
}

#[test]
fn request_waits_until_the_last_authority_is_trusted() {
    let authorities = [authority(1, at(0, 0), Some(at(0, 0))), authority(2, at(1, 0), None)];
    let asked = Circumstances { is_requested: true, ..given(at(2, 0)) };
    assert!(!decide(&authorities, &[certificate("api", 1, at(0, 0))], &asked).make_authority);
}

#[test]
fn untrusted_authority_signs_before_the_old_one_ends() {
    let authorities = [authority(1, at(0, 0), Some(at(0, 0))), authority(2, at(800, 0), None)];
    assert_eq!(next(&authorities[..1], &[], at(899, 23)).signer, Some(1));
    let trusted_by_none = [authority(1, at(0, 0), None), authority(2, at(800, 0), None)];
    assert_eq!(next(&trusted_by_none, &[], at(899, 21)).signer, Some(1));
    assert_eq!(next(&trusted_by_none, &[], at(899, 23)).signer, Some(2));
}

/// What a client trusts and what a server shows, hour by hour over several lives of authorities, each of them as late as the overlap
/// allows.
#[test]
fn clients_trust_what_they_are_shown_in_each_hour_of_ten_years() {
    let (mut authorities, mut certificates): (Vec<AuthorityState>, Vec<_>) =
        (Vec::new(), vec![missing("api")]);
    let (mut trusted, mut shown): (Vec<Vec<u32>>, Vec<Option<u32>>) = (Vec::new(), Vec::new());
    let mut replaced = 0;
    for hour in 0..10 * 365 * 24 {
        let now = at(0, hour);
        let next = next(&authorities, &certificates, now);
        authorities.retain(|authority| !next.remove.contains(&authority.number));
        if next.make_authority {
            let number = authorities.iter().map(|authority| authority.number).max().unwrap_or(0) + 1;
            replaced += u32::from(number > 1);
            authorities.push(authority(number, now, None));
        } else if let Some(unpublished) = authorities.iter_mut().find(|one| one.trusted_since.is_none()) {
            unpublished.trusted_since = Some(now);
        }
        if let (Some(signer), false) = (next.signer, next.sign.is_empty()) {
            certificates = vec![certificate("api", signer, now)];
        }
        trusted.push(authorities.iter().map(|authority| authority.number).collect());
        shown.push(certificates[0].signer);
        // A client may have the bundle, and a server the certificate, of the hour before or of this one.
        if hour > 2 {
            let (bundles, signers) = (&trusted[trusted.len() - 2..], &shown[shown.len() - 2..]);
            for (bundle, signer) in
                bundles.iter().flat_map(|bundle| signers.iter().map(move |one| (bundle, one)))
            {
                let signer = signer.expect("a certificate");
                assert!(bundle.contains(&signer), "hour {hour}: {signer} is shown, {bundle:?} are trusted");
            }
        }
        assert!(
            certificates[0].validity.is_none_or(|validity| hour < 2 || validity.holds(now)),
            "hour {hour}"
        );
    }
    assert!(replaced >= 4, "authorities were replaced {replaced} times");
}
