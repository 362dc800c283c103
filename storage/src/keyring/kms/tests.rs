use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use zeroize::Zeroizing;

use super::{service::Failure, *};

const PATH: &[u8] = b"/registry/g/r/ns/name";
const SECOND: Duration = Duration::from_secs(1);

/// A service whose key is its id: what it encrypts is the plaintext behind the id.
#[derive(Default)]
struct Fake {
    key_id: Mutex<String>,
    encrypts_under: Mutex<Option<String>>,
    version: Mutex<Option<&'static str>>,
    healthz: Mutex<Option<&'static str>>,
    failing: AtomicBool,
    forgetful: AtomicBool,
    statuses: AtomicUsize,
    encrypts: AtomicUsize,
    decrypts: AtomicUsize,
}

impl Fake {
    fn with_key(id: &str) -> Arc<Self> {
        let fake = Self::default();
        *fake.key_id.lock() = id.into();
        Arc::new(fake)
    }

    fn works(&self, count: &AtomicUsize) -> Result<(), Failure> {
        count.fetch_add(1, Ordering::Relaxed);
        if self.failing.load(Ordering::Relaxed) { Err(Failure::of_test("Call")) } else { Ok(()) }
    }
}

#[async_trait]
impl Service for Arc<Fake> {
    async fn status(&self) -> Result<StatusResponse, Failure> {
        self.works(&self.statuses)?;
        Ok(StatusResponse {
            version: self.version.lock().unwrap_or("v2").into(),
            healthz: self.healthz.lock().unwrap_or("ok").into(),
            key_id: self.key_id.lock().clone(),
        })
    }

    async fn encrypt(&self, plaintext: &[u8]) -> Result<Source, Failure> {
        self.works(&self.encrypts)?;
        let key_id = self.encrypts_under.lock().clone().unwrap_or(self.key_id.lock().clone());
        let encrypted = [key_id.as_bytes(), plaintext].concat().into();
        Ok(Source { key_id, encrypted, annotations: [("a.b".to_owned(), vec![1])].into() })
    }

    async fn decrypt(&self, source: &Source) -> Result<Zeroizing<Vec<u8>>, Failure> {
        tokio::task::yield_now().await;
        self.works(&self.decrypts)?;
        assert_eq!(source.annotations.len(), 1, "annotations come back");
        let plain = source.encrypted.strip_prefix(source.key_id.as_bytes()).unwrap();
        let flip = u8::from(self.forgetful.load(Ordering::Relaxed));
        Ok(Zeroizing::new(plain.iter().map(|byte| byte ^ flip).collect()))
    }
}

fn mk_kms(fake: &Arc<Fake>, second: Duration) -> Arc<Kms> {
    let metrics = Arc::new(Metrics::new(String::new()).unwrap());
    Arc::new(Kms::with_service("main", Box::new(Arc::clone(fake)), second, &metrics))
}

async fn opened(kms: &Kms, path: &[u8], wrapped: &[u8]) -> DataKey {
    match kms.unwrap(path, wrapped).await.unwrap() {
        Tried::Opened(key) => key,
        Tried::Refused | Tried::Doubted => panic!("refused"),
        Tried::NotMine => panic!("not mine"),
    }
}

#[tokio::test]
async fn a_thousand_writes_cost_one_call_and_reading_them_elsewhere_another() {
    let fake = Fake::with_key("1");
    let (kms, other) = (mk_kms(&fake, SECOND), mk_kms(&fake, SECOND));
    kms.probe().await;
    other.probe().await;
    fake.decrypts.store(0, Ordering::Relaxed);
    let mut wraps = Vec::new();
    for n in 0..1000u32 {
        let (key, path) = (DataKey::random().unwrap(), n.to_be_bytes());
        let wrapped = kms.wrap(&path, &key).unwrap();
        assert!(wrapped.starts_with(b"k8s:enc:kms:v2:main:"));
        assert_eq!(opened(&kms, &path, &wrapped).await.bytes(), key.bytes());
        wraps.push((path, key, wrapped));
    }
    assert_eq!(fake.encrypts.load(Ordering::Relaxed), 2, "one for each server");
    assert_eq!(fake.decrypts.load(Ordering::Relaxed), 0);
    let reads = wraps.iter().map(|(path, _, wrapped)| opened(&other, path, wrapped));
    for (read, (_, key, _)) in futures::future::join_all(reads).await.iter().zip(&wraps) {
        assert_eq!(read.bytes(), key.bytes());
    }
    assert_eq!(fake.decrypts.load(Ordering::Relaxed), 1, "all at once, and it was asked once");
}

#[tokio::test]
async fn binds_a_wrapped_key_to_its_path() {
    let kms = mk_kms(&Fake::with_key("1"), SECOND);
    kms.probe().await;
    let wrapped = kms.wrap(PATH, &DataKey::random().unwrap()).unwrap();
    assert!(matches!(kms.unwrap(b"/registry/g/r/ns/other", &wrapped).await, Ok(Tried::Refused)));
    let mut bad = wrapped.to_vec();
    // Inside the sealed data, which comes first; elsewhere the service would be asked for another seed.
    bad[kms.prefix.len() + 40] ^= 1;
    assert!(matches!(kms.unwrap(PATH, &bad).await, Ok(Tried::Refused)));
    assert!(matches!(kms.unwrap(PATH, b"k8s:enc:kms:v2:other:").await, Ok(Tried::NotMine)));
    assert!(matches!(kms.unwrap(PATH, b"k8s:enc:kms:v2:main:xyz").await, Ok(Tried::Refused)));
}

#[tokio::test]
async fn another_key_of_the_service_makes_a_new_seed_and_the_old_data_stale() {
    let fake = Fake::with_key("1");
    let kms = mk_kms(&fake, SECOND);
    kms.probe().await;
    let key = DataKey::random().unwrap();
    let old = kms.wrap(PATH, &key).unwrap();
    kms.probe().await;
    assert!(kms.is_current(&old));
    assert_eq!(fake.encrypts.load(Ordering::Relaxed), 1, "the same key, the same seed");
    *fake.key_id.lock() = "2".into();
    kms.probe().await;
    assert!(!kms.is_current(&old));
    assert_eq!(opened(&kms, PATH, &old).await.bytes(), key.bytes());
    let new = kms.wrap(PATH, &key).unwrap();
    assert!(kms.is_current(&new) && key_id_hash(&new[kms.prefix.len()..]) == Some(object::hash("2")));
}

#[tokio::test]
async fn writes_end_three_minutes_after_the_last_good_status_and_reads_go_on() {
    let fake = Fake::with_key("1");
    // A second is twenty milliseconds: even a very busy machine gets from a probe to a write within three minutes of those.
    let kms = mk_kms(&fake, SECOND / 50);
    kms.probe().await;
    let key = DataKey::random().unwrap();
    let wrapped = kms.wrap(PATH, &key).unwrap();
    let until = kms.writing().unwrap().until;
    assert!(until <= Instant::now() + Duration::from_millis(3_600));
    fake.failing.store(true, Ordering::Relaxed);
    kms.probe().await;
    assert_eq!(kms.writing().unwrap().until, until, "a failure moves nothing");
    assert!(kms.failing().unwrap().contains("kms provider main: Call failed"), "{:?}", kms.failing());
    tokio::time::sleep_until((until + Duration::from_millis(1)).into()).await;
    assert!(matches!(kms.wrap(PATH, &key), Err(Error::Unavailable { .. })));
    assert_eq!(opened(&kms, PATH, &wrapped).await.bytes(), key.bytes());
    fake.failing.store(false, Ordering::Relaxed);
    kms.probe().await;
    assert_eq!(kms.failing(), None);
    assert!(kms.wrap(PATH, &key).is_ok());
    assert_eq!(fake.encrypts.load(Ordering::Relaxed), 1, "the seed is used on");
}

#[tokio::test]
async fn a_service_is_held_to_what_it_says() {
    type Change = fn(&Fake);
    let cases: [(&str, Change); 8] = [
        ("version is \"v3\"", |fake| *fake.version.lock() = Some("v3")),
        ("healthz is \"ill\"", |fake| *fake.healthz.lock() = Some("ill")),
        ("id of the key is empty", |fake| fake.key_id.lock().clear()),
        ("more than 1024 bytes", |fake| *fake.key_id.lock() = "k".repeat(1025)),
        ("ciphertext has more", |fake| *fake.key_id.lock() = "k".repeat(1000)),
        ("another key than Status", |fake| *fake.encrypts_under.lock() = Some("2".into())),
        ("does not give back", |fake| fake.forgetful.store(true, Ordering::Relaxed)),
        ("Call failed: Unknown: told to fail", |fake| fake.failing.store(true, Ordering::Relaxed)),
    ];
    for (what, change) in cases {
        let fake = Fake::with_key("1");
        change(&fake);
        let kms = mk_kms(&fake, SECOND);
        kms.probe().await;
        let why = kms.failing().unwrap_or_default();
        assert!(why.contains(what), "{what}: {why}");
        assert!(
            matches!(kms.wrap(PATH, &DataKey::random().unwrap()), Err(Error::Unavailable { .. })),
            "{what}"
        );
    }
    let fake = Fake::with_key("1");
    let kms = mk_kms(&fake, SECOND);
    kms.probe().await;
    *fake.version.lock() = Some("v2beta1");
    kms.probe().await;
    assert!(kms.failing().unwrap().contains("changed while running"));
}

#[tokio::test]
async fn an_unwell_service_does_not_prolong_writing_although_it_names_a_key() {
    let fake = Fake::with_key("1");
    let kms = mk_kms(&fake, SECOND);
    kms.probe().await;
    let until = kms.writing().unwrap().until;
    *fake.healthz.lock() = Some("ill");
    kms.probe().await;
    assert_eq!(kms.writing().unwrap().until, until);
}

#[tokio::test]
async fn a_failing_service_is_not_asked_for_each_object() {
    let fake = Fake::with_key("1");
    let writer = mk_kms(&fake, SECOND);
    writer.probe().await;
    let wrapped = writer.wrap(PATH, &DataKey::random().unwrap()).unwrap();
    let reader = mk_kms(&fake, SECOND * 3600);
    fake.failing.store(true, Ordering::Relaxed);
    fake.decrypts.store(0, Ordering::Relaxed);
    for _ in 0..100 {
        assert!(matches!(reader.unwrap(PATH, &wrapped).await, Err(Error::Unavailable { .. })));
    }
    assert_eq!(fake.decrypts.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn asks_a_failing_service_more_often_than_one_that_is_well() {
    let fake = Fake::with_key("1");
    let kms = mk_kms(&fake, SECOND);
    assert_eq!(kms.pause(), Duration::from_secs(10), "it was not asked yet");
    kms.probe().await;
    assert_eq!(kms.pause(), Duration::from_secs(60));
    fake.failing.store(true, Ordering::Relaxed);
    kms.probe().await;
    assert_eq!(kms.pause(), Duration::from_secs(10));
}

#[tokio::test]
async fn polling_finds_a_service_that_came_back_and_its_new_key() {
    let fake = Fake::with_key("1");
    let kms = mk_kms(&fake, SECOND / 1000);
    let stop = CancellationToken::new();
    fake.failing.store(true, Ordering::Relaxed);
    let polling = tokio::spawn(Arc::clone(&kms).poll(stop.clone()));
    let until = async |holds: &dyn Fn() -> bool| {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    until(&|| fake.statuses.load(Ordering::Relaxed) > 2).await;
    fake.failing.store(false, Ordering::Relaxed);
    until(&|| kms.failing().is_none()).await;
    *fake.key_id.lock() = "2".into();
    until(&|| kms.writing().is_ok_and(|writing| writing.source.key_id == "2")).await;
    stop.cancel();
    polling.await.unwrap();
}
