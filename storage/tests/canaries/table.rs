//! What each canary does wrong, and who has to find it.

/// The program that a test is in: beside the code, or the one from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    Lib,
    It,
}

/// A wrong that is planted.
pub struct Wrong {
    /// Its name in `src/canary.rs`.
    pub name: &'static str,
    /// The source it is in, under `src`.
    pub place: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Where the test is that finds it.
    pub program: Program,
    /// Its name.
    pub test: &'static str,
    /// Whether there was no such test before there was the canary.
    pub new: bool,
}

macro_rules! wrongs {
    ($($name:ident $place:literal $what:literal => $([$new:ident])? $program:ident $test:literal;)*) => {
        &[$(Wrong {
            name: stringify!($name),
            place: $place,
            what: $what,
            program: Program::$program,
            test: $test,
            new: !stringify!($($new)?).is_empty(),
        },)*]
    };
}

/// All of them.
#[rustfmt::skip]
pub const ALL: &[Wrong] = wrongs! {
    // Sealing.
    WrapNonceRepeats "keyring/local.rs" "`aesgcm` wraps every data key under the same nonce"
        => [new] Lib "keyring::tests::wraps_otherwise_each_time";
    CbcCodeUnchecked "keyring/local.rs" "`aescbc` does not check the code over what it unwraps"
        => Lib "keyring::tests::unwraps_what_it_wrapped_with_every_provider";
    SecretboxPlaceUnchecked "keyring/local.rs" "`secretbox` unwraps a data key at any path"
        => Lib "keyring::tests::binds_a_wrapped_key_to_its_path_with_every_provider";
    WrapsWithLastKey "keyring/provider.rs" "the last key of a provider wraps, not the first"
        => It "store::keys::on_embedded::an_object_read_before_a_change_of_keys_is_written_under_the_new_one";
    StaleKeyKept "keyring/ring.rs" "a data key stays as it is wrapped although another key wraps now"
        => Lib "keyring::tests::keeps_a_wrapped_key_only_where_the_same_key_wraps_now";
    RecordForgetsPath "record/mod.rs" "the path is not part of what a record is bound to"
        => It "store::tampering::binds_records_whatever_wraps_their_keys";
    ChunkForgetsUid "chunk/mod.rs" "the uid is not part of what a chunk is bound to"
        => Lib "chunk::tests::opens_only_as_what_it_was_sealed_as";
    ChunkForgetsName "chunk/mod.rs" "the name is not part of what a chunk is bound to"
        => Lib "chunk::tests::opens_only_as_what_it_was_sealed_as";
    // Keys while running.
    ReloadWithoutHealth "keyring/follow.rs" "a configuration is taken before its services have shown that they are well"
        => [new] It "store::keys::on_embedded::a_configuration_that_does_not_work_is_not_taken";
    KmsGraceTooLong "keyring/kms/mod.rs" "a seed is used for hours after the last good status"
        => Lib "keyring::kms::tests::writes_end_three_minutes_after_the_last_good_status_and_reads_go_on";
    KmsTrustsEncrypt "keyring/kms/mod.rs" "a seed is used that the service cannot decrypt"
        => Lib "keyring::kms::tests::a_service_is_held_to_what_it_says";
    RewriteEndsEarly "store/rewrite.rs" "`rewrite` ends after the first page"
        => [new] It "store::keys::on_embedded::rewrites_and_counts_more_than_a_page";
    UnreadableNotCounted "store/rewrite.rs" "`status` leaves out objects that do not open"
        => [new] It "store::keys::on_embedded::counts_what_does_not_open";
    // Records.
    MapWithGapsAccepted "record/wire.rs" "a chunk map is taken that does not add up to the payload"
        => Lib "record::tests::a_map_that_does_not_add_up_is_refused";
    InlineLengthUnchecked "record/wire.rs" "a payload in a record may have another length than the record says"
        => Lib "record::tests::a_map_that_does_not_add_up_is_refused";
    // Chunks.
    LastPieceDropped "chunk/split.rs" "what is left at the end of a payload is not cut off as a piece"
        => Lib "chunk::split::tests::pieces_are_the_payload_again";
    CutsDrift "chunk/split.rs" "where a text is cut hangs on its length"
        => Lib "chunk::split::tests::a_change_within_a_long_segment_changes_few_pieces";
    HashUnderWrongKey "store/prepare.rs" "chunks are named by the key that cuts"
        => It "store::checking::on_embedded::finds_nothing_wrong_with_what_is_whole";
    NamesNotFresh "store/intent.rs" "two writes under one intent use the same names"
        => [new] It "store::collecting::on_embedded::a_write_that_loses_takes_nothing_from_the_one_that_won";
    // Commits.
    RevisionNotCompared "store/write.rs" "the transaction does not compare the state that it replaces"
        => It "store::basics::on_embedded::replaces_only_the_newest";
    IntentNotCompared "store/write.rs" "the transaction does not compare the intent of its chunks"
        => It "store::collecting::on_embedded::makes_a_forgotten_upload_start_again";
    ChunksGoBeforeRecord "store/write.rs" "chunks that are named no more go before the transaction"
        => It "store::outcomes::on_embedded::an_update_that_fails_takes_nothing_away";
    UnknownTakenForFailed "store/commit.rs" "a write of unknown outcome is said not to have happened"
        => It "store::outcomes::on_embedded::recognises_its_own_writes";
    UnknownTakenForDone "store/commit.rs" "a write of unknown outcome is acknowledged"
        => It "store::outcomes::on_embedded::sends_lost_writes_again";
    FullTakenForFailed "store/commit.rs" "a write that a full etcd applied is said not to have happened"
        => [new] It "store::outcomes::on_embedded::finds_what_a_full_backend_did_all_the_same";
    FailureBelieved "store/commit.rs" "a write that a proxy delivered twice is said not to have happened"
        => [new] It "store::outcomes::on_embedded::a_write_that_was_delivered_twice_is_done";
    FenceLeftOut "store/commit.rs" "nothing keeps a creation that was given up from happening later"
        => It "store::outcomes::on_embedded::what_was_answered_does_not_happen_later";
    EarlierRemovalTaken "store/commit.rs" "a removal takes an earlier one for its own"
        => It "store::outcomes::on_embedded::takes_no_earlier_removal_for_its_own";
    // What goes, and when.
    CollectorIgnoresIntents "store/collect.rs" "chunks go that are being written"
        => It "store::collecting::on_embedded::leaves_an_upload_that_is_under_way";
    CollectorForgetsUnreadable "store/collect.rs" "chunks go whose record does not open"
        => It "store::tampering::on_embedded::an_unreadable_object_ends_only_what_touches_it";
    ManifestLeftOut "store/upload.rs" "nothing tells the collector of chunks that are put before their record"
        => [new] It "store::collecting::on_embedded::removes_what_a_dropped_write_left";
    WindowTooShort "store/housekeeping.rs" "history goes after a tenth of its window"
        => [new] Lib "store::housekeeping::tests::history_stays_for_its_window";
    QuarantineLeavesOwner "store/quarantine.rs" "nothing protects the chunks of a record in quarantine"
        => It "store::checking::on_embedded::puts_away_what_cannot_be_read_and_gives_it_back";
    OrphansTakenYoung "backend/tiered/collect.rs" "objects go to which somebody is about to point"
        => [new] It "backend::tiered::a_young_object_is_left_alone";
    ObjectsGoBeforeTheirWindow "backend/tiered/collect.rs" "objects go to which a revision points that can be read"
        => It "backend::tiered::an_object_goes_when_no_revision_needs_it";
    RetentionIgnored "backend/tiered/collect.rs" "objects go to which a snapshot may point that can be restored"
        => [new] It "backend::retention::an_object_stays_for_its_retention_whoever_looks";
    PassNotCompared "backend/tiered/write.rs" "a pointer is put although its object may have been removed since it was put"
        => [new] It "backend::chunk_store::a_write_whose_objects_were_removed_meanwhile_puts_them_again";
    TwiceTakenForFailed "backend/tiered/write.rs" "objects go to which the first delivery of a transaction points"
        => [new] It "backend::tiered::a_transaction_that_is_delivered_twice_keeps_its_objects";
    UploadFailureIgnored "backend/tiered/mod.rs" "a pointer is put although its object could not be"
        => [new] It "backend::tiered::what_cannot_be_put_is_not_pointed_to";
    // The embedded backend.
    AcknowledgedBeforeSync "backend/embedded/commit.rs" "a commit is acknowledged that is not synced"
        => It "backend::sync::what_is_not_synced_is_not_acknowledged";
    GroupIsBlind "backend/embedded/commit.rs" "transactions of one group do not see each other"
        => It "backend::embedded::conformance::two_writers_with_one_revision_have_one_winner";
    RevisionToldEarly "backend/embedded/commit.rs" "a revision can be read before it is committed"
        => It "backend::embedded::the_newest_revision_is_not_behind_what_was_read";
    CompactionDropsNewest "backend/embedded/compact.rs" "compaction removes a version that is current"
        => It "backend::embedded::conformance::compaction_keeps_what_is_current";
    WatchSkipsAtBorder "backend/embedded/read.rs" "a watch leaves out the transaction after a full batch"
        => It "backend::embedded::conformance::a_slow_watch_misses_nothing_and_delays_nobody";
    PageOverfull "backend/embedded/read.rs" "a page holds one key more than was asked for"
        => It "backend::embedded::conformance::range_pages_meet_at_the_seam";
    // The etcd backend.
    EtcdReadsNow "backend/etcd/kv.rs" "a page of several requests is not read at one revision"
        => It "backend::etcd::conformance::a_revision_is_held_still_while_compaction_runs";
    EtcdBelieved "backend/etcd/link.rs" "an object is made twice where etcd says wrongly that it did not begin"
        => [new] It "backend::etcd_errors::an_object_is_made_once_whatever_etcd_says";
    EtcdSendsAgain "backend/etcd/link.rs" "a transaction without an answer is sent again"
        => It "backend::lost_answer::a_write_whose_answer_is_lost_is_unknown_and_not_sent_again";
    EtcdHandsOnFragments "backend/etcd/watch.rs" "a watch hands on parts of a transaction"
        => It "backend::etcd::conformance::a_transaction_is_never_split_in_a_watch";
    // Lists and watches.
    EventsReversed "store/hub/follow.rs" "the cache takes in several events the wrong way round"
        => It "store::watches::on_embedded::tells_everything_once_under_writers";
    CacheListStale "store/hub/mod.rs" "a list from the cache does not wait for what was acknowledged"
        => It "store::lists::on_embedded::cached_lists_show_every_acknowledged_write";
    BookmarkAhead "store/hub/subscribe.rs" "a bookmark tells a version whose events are still to come"
        => It "store::watches::on_embedded::bookmarks_never_run_ahead";
    OverrunNotTold "store/hub/subscribe.rs" "a watcher that fell out of the ring goes on behind the gap"
        => It "store::watches::on_embedded::a_slow_watcher_is_let_go_and_delays_nobody";
    PageDropsLast "store/read.rs" "going on with a list skips an object"
        => It "store::lists::on_embedded::pages_are_bounded_in_bytes";
    PastPageShowsNow "store/hub/page.rs" "a page as of a past version shows what is there now"
        => [new] It "store::memory_pages::on_embedded::pages_from_memory_are_those_of_the_backend";
    LockedTakenForDamaged "error.rs" "an object whose key is missing counts as damaged"
        => [new] It "store::healing::on_embedded::what_did_not_open_for_want_of_a_key_is_whole_once_the_key_is_there";
    // The rest of the store.
    OffsetNotRaised "store/epoch.rs" "versions are not raised past a mark"
        => It "store::basics::on_embedded::raises_versions_past_a_mark";
    EpochsOverlap "store/epoch.rs" "a watch goes on from a version of before a restore"
        => It "backend::rollback::versions_of_what_was_lost_mean_nothing_after_a_restore";
    RollbackUnnoticed "store/core.rs" "a store goes on over a backend that was put back to an older copy"
        => It "backend::rollback::a_store_that_runs_notices_that_etcd_went_back";
    RolledBackCommitTakenForFailed "store/commit.rs" "a commit at a revision of before is said not to have happened"
        => [new] It "store::outcomes::on_embedded::a_commit_in_a_store_that_went_back_takes_nothing_away";
    CutArchiveAccepted "store/archive.rs" "an archive is imported whose hash is not that of its content"
        => It "store::archives::on_tiered::refuses_what_is_not_whole";
    ImportMakesUid "store/archive.rs" "an imported object gets another uid"
        => It "store::archives::on_tiered::brings_objects_to_the_other_backend";
    FsckSkipsLastChunk "store/payload.rs" "fsck does not read the last chunk of an object"
        => [new] It "store::checking::on_embedded::finds_each_chunk_that_is_damaged";
    UsageKeepsRemoved "store/usage.rs" "what was removed or replaced is not subtracted from the usage"
        => It "store::usage::on_embedded::usage_follows_every_write";
};
