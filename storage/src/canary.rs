//! Canaries: small wrongs, each where somebody might make it by mistake, to see that the tests find them.
//!
//! `Canary::Name.is_planted()` stands at the place, and is never true: a build without the feature `canaries` compiles it to `false`. With
//! the feature, which nothing turns on but the test that goes through all of them, the one is planted that `REPOT_CANARY` names.
//! `tests/canaries/table.rs` says of each what it does wrong, and which test has to find it.

#[cfg(all(feature = "canaries", not(debug_assertions)))]
compile_error!("the feature `canaries` plants wrongs: it is for tests, and never for a release");

macro_rules! canaries {
    ($($name:ident)*) => {
        /// A small wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Canary {
            $($name,)*
        }

        #[cfg(feature = "canaries")]
        const ALL: &[(&str, Canary)] = &[$((stringify!($name), Canary::$name),)*];
    };
}

canaries! {
    AcknowledgedBeforeSync
    BookmarkAhead
    CacheListStale
    CbcCodeUnchecked
    ChunkForgetsName
    ChunkForgetsUid
    ChunksGoBeforeRecord
    CollectorForgetsUnreadable
    CollectorIgnoresIntents
    CompactionDropsNewest
    CutArchiveAccepted
    CutsDrift
    EarlierRemovalTaken
    EpochsOverlap
    EtcdBelieved
    EtcdHandsOnFragments
    EtcdReadsNow
    EtcdSendsAgain
    EventsReversed
    FailureBelieved
    FenceLeftOut
    FsckSkipsLastChunk
    FullTakenForFailed
    GroupIsBlind
    HashUnderWrongKey
    ImportMakesUid
    InlineLengthUnchecked
    IntentNotCompared
    KmsGraceTooLong
    KmsTrustsEncrypt
    LastPieceDropped
    LockedTakenForDamaged
    ManifestLeftOut
    MapWithGapsAccepted
    NamesNotFresh
    ObjectsGoBeforeTheirWindow
    OffsetNotRaised
    OrphansTakenYoung
    OverrunNotTold
    PageDropsLast
    PageOverfull
    PassNotCompared
    PastPageShowsNow
    QuarantineLeavesOwner
    RecordForgetsPath
    ReloadWithoutHealth
    RetentionIgnored
    RevisionNotCompared
    RevisionToldEarly
    RewriteEndsEarly
    RollbackUnnoticed
    RolledBackCommitTakenForFailed
    SecretboxPlaceUnchecked
    StaleKeyKept
    TwiceTakenForFailed
    UnknownTakenForDone
    UnknownTakenForFailed
    UnreadableNotCounted
    UploadFailureIgnored
    UsageKeepsRemoved
    WatchSkipsAtBorder
    WindowTooShort
    WrapNonceRepeats
    WrapsWithLastKey
}

impl Canary {
    /// Whether this wrong is to be done.
    #[cfg(not(feature = "canaries"))]
    pub(crate) const fn is_planted(self) -> bool {
        false
    }

    /// Whether this wrong is to be done.
    #[cfg(feature = "canaries")]
    pub(crate) fn is_planted(self) -> bool {
        static SINGS: std::sync::LazyLock<Option<Canary>> = std::sync::LazyLock::new(|| {
            let named = std::env::var("REPOT_CANARY").ok()?;
            ALL.iter().find(|(name, _)| *name == named).map(|(_, canary)| *canary)
        });
        *SINGS == Some(self)
    }
}
