//! One test per promise of the contract, for every engine.
//!
//! An engine implements [`Engine`], its test file calls
//! [`conformance_suite!`](crate::conformance_suite) once, and every promise becomes a test of its own
//! name. The same list is [`PROMISES`], from which the table of guarantees in the documentation is
//! made, so a promise without a test cannot be documented.
//!
//! The suite asks only what the contract says. Where the contract leaves freedom (how often a read of
//! a dropped table says so, how far a scan looked ahead) every permitted answer passes.

use crate::Store;
use async_trait::async_trait;
use rowhouse_env::SimulatedClock;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub mod accounts;
pub mod batches;
pub mod changes;
pub mod entities;
pub mod extremes;
pub mod indexes;
pub mod isolation;
pub mod lifecycle;
pub mod lookups;
pub mod messages;
pub mod outbox;
pub mod outside;
pub mod queues;
pub mod random;
pub mod scans;
pub mod selects;
pub mod snapshots;
pub mod sorts;
pub mod tables;
pub mod timestamps;
pub mod ttl;
pub mod unique;

pub mod fixture;
pub mod indexed;
pub mod queued;

/// Makes stores of one kind for the suite.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// A new and empty store that reads the time from [`Engine::clock`].
    async fn open(&self) -> Arc<dyn Store>;

    /// Closes the store and opens the same data again; `None`, leaving the store as it is, if the
    /// engine keeps nothing.
    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>>;

    /// The clock of the stores it opens.
    fn clock(&self) -> &SimulatedClock;
}

/// For which engines a promise holds. Each passes the whole suite as long as one server of one node has the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every engine.
    All,
    /// Engines of one node; engines of several keep it within a partition or not at all.
    SingleNode,
    /// Engines of one server; where several share the data, each keeps it for itself.
    SingleServer,
}

/// One promise of the contract.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The name of its test.
    pub name: &'static str,
    /// Where it holds.
    pub scope: Scope,
    /// What it says to a user.
    pub sentence: &'static str,
}

/// Makes a test of every promise for the engine that the expression gives; it is evaluated once per
/// test. For an engine of several nodes there are tests of the promises that hold for all engines; they are
/// ignored unless asked for, because they need what the text names.
#[macro_export]
macro_rules! conformance_suite {
    (@list $then:ident { $($args:tt)* }) => {
        $crate::conformance_suite! { @$then { $($args)* }
            All entities::conditions_decide
                "A write happens exactly when its condition holds, and a refusal names what did not hold.";
            All entities::put_replaces_everything
                "A put leaves exactly what it was given.";
            All entities::merge_keeps_and_overwrites
                "A merge overwrites the properties it names and keeps the others, in their order.";
            All entities::merge_is_held_to_limits
                "A merge whose result would exceed the limits of an entity is refused and changes nothing.";
            All entities::delete_removes
                "A deleted entity is gone for reads, scans and conditions.";
            All batches::batch_is_all_or_none
                "A batch takes effect as a whole or not at all, and the first failing command is named by position.";
            All batches::later_commands_see_earlier_ones
                "Commands of a batch see the effects of those before them.";
            All batches::batch_spans_tables_and_partitions
                "A batch may change entities of several tables and partitions, all or none.";
            SingleServer batches::sequence_rises_in_a_partition
                "The sequence number rises with every commit of a partition.";
            SingleServer batches::sequence_rises_in_the_store
                "The sequence number rises with every commit of the store.";
            All timestamps::timestamps_are_those_stored
                "The Timestamps that a commit answers are those that reads return.";
            All timestamps::etag_of_an_entity_never_repeats
                "An ETag never repeats for one key, not even after a delete or a clock set back.";
            All timestamps::etag_never_repeats_after_reopening
                "An ETag never repeats for one key after a restart, whatever the wall clock says.";
            SingleServer timestamps::timestamps_rise_over_the_store
                "Timestamps rise strictly from commit to commit over the whole store, across restarts and a clock set back.";
            All timestamps::timestamps_follow_the_clock
                "A Timestamp is the time of the commit as long as the clock goes forward.";
            All scans::scan_is_in_key_order
                "Scans return entities in the byte order of PartitionKey, then RowKey.";
            All scans::scan_reads_its_ranges_only
                "Scans return what is in their ranges and examine nothing else.";
            All scans::scan_applies_its_filter
                "Scans return exactly the entities that satisfy the filter.";
            All scans::functions_judge_texts_alike
                "Functions of a filter judge the texts of every language alike, whatever the language of the database.";
            All scans::functions_look_at_every_page
                "A filter with functions loses and repeats nothing, however small the pages and however many entities it rejects.";
            All scans::scan_goes_backwards
                "A descending scan returns what an ascending one does, the other way round, however small its pages.";
            All scans::scan_only_counts
                "A scan that counts finds as many entities as one that returns them, and a part of them when its time is over.";
            All scans::scan_ends_at_its_limit
                "A page holds at most as many entities as asked for and names where the next one starts.";
            All scans::scan_ends_at_its_bytes
                "A page ends with the entity that reaches the bytes asked for.";
            All scans::next_is_a_match
                "After a full page, the place to resume is the next entity that satisfies the filter; without one there is none.";
            All scans::scan_past_its_deadline_makes_progress
                "A page whose time is over has still examined an entity and says where to resume.";
            All scans::scan_resumes_at_a_deleted_entity
                "Resuming works whether or not the entity at that place still exists.";
            All scans::scan_counts_what_it_examined
                "A page says how many entities were looked at.";
            All selects::what_is_selected_is_exact
                "A page that looks at some properties finds the same entities with the same values of them, whatever it filters by.";
            All isolation::page_is_a_snapshot_of_a_partition
                "A page shows each partition at one moment: no batch half there.";
            SingleNode isolation::page_is_one_snapshot
                "A page shows all partitions at one moment.";
            All isolation::increments_by_etag_lose_nothing
                "Concurrent read-modify-write with ETags loses no update.";
            All isolation::batches_are_serialisable
                "There is one order of batches that explains every answer.";
            All isolation::answered_writes_are_seen
                "A read that starts after a write was answered sees it.";
            All isolation::one_of_many_inserts_wins
                "Of concurrent inserts of one key exactly one succeeds.";
            All tables::table_names_ignore_case
                "Tables are found whatever the case of the name, and keep the case they were created with.";
            All tables::tables_are_listed_in_order
                "Tables are listed in the order of their names, page by page.";
            All tables::recreated_table_is_empty
                "A table created under an old name has a new id and none of the old entities.";
            All tables::dropped_table_takes_no_writes
                "No write into a table is acknowledged after its drop was.";
            All tables::placement_is_kept
                "The placement of a table is kept as it was given.";
            All tables::an_account_has_no_more_tables_than_it_may
                "An account never has more tables than it may, however many are created at the same time; those that are there stay.";
            All tables::policies_are_replaced
                "Access policies are kept in order and replaced as a whole.";
            All tables::a_table_begins_with_its_policies
                "A table that is made with access policies is never found without them.";
            All accounts::account_is_kept_as_given
                "An account is found by name with its keys; a second one of the same name is refused.";
            All accounts::account_version_rises
                "The version of an account rises with every change of its keys and settings.";
            All accounts::account_change_compares_the_version
                "A change of an account that names a version takes effect only on that version: of two made for the same one, one is refused.";
            All accounts::removed_account_takes_its_tables_along
                "Removing an account removes its tables; its id is never used again.";
            All accounts::accounts_do_not_share_tables
                "Tables of the same name in two accounts have nothing in common.";
            All extremes::longest_keys_are_kept
                "Every legal key is kept: up to 1,024 UTF-16 units in each half, of any characters.";
            All extremes::similar_keys_stay_apart
                "Keys that are prefixes of each other or differ in one character are different entities.";
            All extremes::every_value_is_kept
                "Every value of every type comes back bit for bit.";
            All extremes::largest_entities_are_kept
                "Entities of 1 MiB and of 252 properties are kept.";
            All snapshots::snapshot_stays_as_it_was
                "A snapshot shows everything as it was, whatever is written, dropped or removed meanwhile.";
            All snapshots::snapshot_cuts_no_batch
                "A snapshot shows each partition at one moment: no batch half there.";
            SingleNode snapshots::snapshot_is_one_moment
                "A snapshot shows all partitions at one moment.";
            All snapshots::restored_records_keep_their_timestamps
                "A restored entity has the Timestamp and ETag that it had, and every later one is greater.";
            SingleNode changes::changes_are_kept_when_asked
                "Changes are kept from when that is asked for, and not otherwise.";
            SingleNode changes::every_change_is_told_in_order
                "Every change is told: what each entity became, in the order in which it was changed, no batch cut.";
            SingleNode changes::changes_of_a_snapshot_follow_it
                "A snapshot and the changes after its place give what is there now.";
            SingleNode changes::changes_are_waited_for
                "Whoever waits for a change hears of it when it is committed, and of none when the time is over.";
            SingleNode changes::concurrent_changes_are_all_told
                "No change is missed or told twice while others are being made.";
            SingleNode changes::old_changes_are_forgotten
                "A change is kept as long as was asked for; a place before what is kept is refused.";
            SingleNode changes::kept_changes_survive_reopening
                "What was kept, and for how long, is the same after a restart.";
            All indexes::index_is_kept_as_declared
                "An index is listed with its table, with the name and properties it was declared with; a second one of that name is refused.";
            All indexes::index_follows_every_write
                "An index is kept in the commit that changes the entity, by every kind of write; a batch that fails leaves it as it was.";
            All indexes::index_enters_what_was_there
                "Entities that were there before an index are entered in the background, every one; then it is ready.";
            All indexes::index_is_built_while_others_write
                "An index that is built while others write holds every entity that belongs into it, and no other.";
            All indexes::indexes_survive_reopening
                "Indexes are there after a restart, and one that was being built goes on; their ids are never used again.";
            All indexes::dropped_index_is_gone
                "A dropped index is not read, not kept and refuses nothing; its name is free at once.";
            All indexes::dropped_table_takes_its_indexes_along
                "Dropping a table drops its indexes; a table created under its name has none.";
            All indexes::indexes_are_limited
                "A table has up to 16 indexes, all of them kept; one more is refused.";
            All indexes::every_value_is_indexed
                "Every value of every type can be in an index; long ones that share a beginning stay apart.";
            All indexes::longest_keys_are_indexed
                "Entities of every legal key can be in an index, with values of any length.";
            All indexes::snapshot_shows_indexes
                "A snapshot shows which indexes there were.";
            All indexes::close_refuses_indexes
                "A closed store declares and drops no index.";
            All lookups::lookup_finds_what_the_filter_finds
                "A scan through indexes finds what the filter finds without, in key order, in both directions, however small the pages; so does a count.";
            All lookups::lookup_takes_each_entity_once
                "A scan through parts of indexes takes every entity that is in one of them, and each once.";
            All lookups::lookup_examines_little
                "Looking for equal values through an index examines at most one entry more than it finds.";
            All lookups::lookup_is_a_snapshot_of_a_partition
                "A page read through an index shows each partition at one moment, entity and entry alike.";
            All lookups::lookup_sees_answered_writes
                "A lookup that starts after a write was answered sees it.";
            All lookups::lookup_resumes_where_an_entity_was
                "A lookup resumes whether or not the entity at that place is still there or still has the value.";
            All lookups::walk_is_in_the_order_of_the_index
                "Entities are read in the order of an index, those of equal values in key order, in both directions, however small the pages.";
            All lookups::walk_applies_its_filter
                "A page in the order of an index holds what satisfies the filter, and names the next that does.";
            All lookups::walk_resumes_anywhere
                "Reading in the order of an index resumes at any place, whatever has become of the entity there.";
            All lookups::walk_follows_the_timestamp
                "Keys and Timestamp can be in an index, as properties can.";
            All sorts::sort_has_the_order_of_an_index
                "Entities are sorted without an index as one would have them, in both directions, whatever narrows them and however small the pages.";
            All sorts::sort_goes_through_everything
                "A sorted page is of all that is wanted, however much that is.";
            All sorts::sort_goes_through_large_entities
                "A sorted page is of all that is wanted, however large the entities are.";
            All sorts::sort_is_a_snapshot_of_a_partition
                "A sorted page shows each partition at one moment, however much is read for it.";
            All sorts::sort_is_whole_or_refused
                "A page that there is not enough time to sort is refused, never a part of it given.";
            All lookups::weigh_counts_few
                "How much a plan would examine is counted exactly when it is little, and never beyond the bound.";
            All outside::nothing_outside_the_ranges_shows
                "No page, count, order, estimate or place to resume depends on what is outside the ranges of keys that are read.";
            All outside::many_outside_the_ranges_do_not_show
                "However many entries of an index are outside the ranges of keys, none is counted or named.";
            All unique::unique_refuses_values_of_another
                "A unique index with PartitionKey refuses a write that would give two entities the same values, and the command is named by position.";
            All unique::unique_values_become_free
                "A value of a unique index is free as soon as its entity is deleted or has another one.";
            All unique::unique_is_judged_in_order
                "Commands of a batch are held to a unique index one by one, in order.";
            All unique::unique_leaves_out_incomplete_entities
                "Any number of entities may lack a property of a unique index.";
            All unique::unique_tells_values_apart
                "Values of a unique index are compared whole and with their type.";
            All unique::one_of_many_equal_values_wins
                "Of concurrent writes of one value of a unique index exactly one succeeds.";
            SingleNode unique::unique_holds_over_the_table
                "A unique index without PartitionKey holds over all partitions.";
            All unique::unique_without_a_partition_is_kept_or_refused
                "A unique index that an engine cannot keep, because the table is spread over nodes and PartitionKey is not in it, is refused.";
            All unique::duplicates_end_a_unique_index
                "A unique index over values that repeat says so, is not read and refuses nothing.";
            All ttl::ttl_is_kept_as_set
                "When entities expire is kept with the table as it was set, across restarts, until it is set again or the table is dropped.";
            All ttl::expired_entities_do_not_exist
                "What has expired does not exist, removed or not: no read, scan, count or index finds it, no condition holds on it, and it can be inserted anew.";
            All ttl::entities_expire_by_a_property
                "Entities expire by a DateTime property of their own; one without it, or with another type there, never does.";
            All ttl::ttl_holds_from_when_it_is_set
                "A setting holds for everything that is asked after it was answered; writing an entity again prolongs its life.";
            All ttl::expired_values_are_free
                "The values that an expired entity has of a unique index are free, and it is gone for good when another entity takes them.";
            All ttl::indexes_are_built_without_what_expired
                "A unique index that is declared later does not mind the values of expired entities.";
            All ttl::snapshot_has_what_comes_back
                "A snapshot has what had not expired when it was taken, however long it is read, and what had if it comes back because it is to live longer.";
            SingleNode ttl::expired_entities_are_removed
                "What has expired is removed in the background, also after a restart; the changes tell of it as of any delete.";
            All ttl::removing_spares_what_is_written_again
                "Removing what has expired spares what is written again meanwhile, and indexes agree with the entities throughout.";
            All queues::queue_is_kept_as_created
                "A queue is found by its name with its metadata; a second one of that name is refused.";
            All queues::metadata_and_policies_are_replaced
                "Metadata and access policies of a queue are kept in order and replaced as a whole.";
            All queues::queues_are_listed_in_order
                "Queues are listed in the order of their names, from any text on.";
            All queues::an_account_has_no_more_queues_than_it_may
                "An account never has more queues than it may, however many are created at the same time; those that are there stay.";
            All queues::recreated_queue_is_empty
                "A queue created under an old name has none of the old messages; no command for a dropped queue is acknowledged.";
            All queues::removed_account_takes_its_queues_along
                "Removing an account removes its queues.";
            All queues::queue_ids_are_not_reused_after_reopening
                "Ids of queues are never used again, across restarts too.";
            All queues::queues_survive_reopening
                "Queues and messages are there after a restart, with their order, times and receipts.";
            All queues::close_refuses_queues
                "A closed store changes no queue and no message.";
            All messages::message_comes_back_as_put
                "A message comes back as it was put: every text up to 64 KiB, with its times.";
            SingleServer messages::messages_come_in_order
                "Messages come in the order in which they became visible; one that returns goes behind those that are visible already.";
            All messages::hidden_messages_are_not_given_out
                "A message that was taken, or put or updated with a delay, is given to nobody before its time has passed.";
            All messages::peek_changes_nothing
                "Peeking at messages changes nothing.";
            All messages::only_the_latest_receipt_works
                "A message is updated and deleted with its latest receipt only; every take and update gives it a later one.";
            All messages::receipt_outlives_the_visibility
                "A receipt stays valid after the message has become visible again, until somebody takes it; that of a put is valid at once.";
            All messages::update_keeps_what_it_is_not_given
                "An update without a text keeps the text; when a message was put, when it expires and how often it was taken stay.";
            All messages::expired_message_is_gone
                "An expired message is gone for every operation, visible or not; one without an expiry stays for ever.";
            All messages::expired_messages_are_stepped_over
                "However many messages have expired, those behind them are given out.";
            All messages::takes_are_counted
                "A message says how often it was taken.";
            All messages::clear_removes_all
                "Clearing a queue removes all its messages, visible or not.";
            All messages::count_is_never_too_low
                "The number of messages of a queue is never too low, and exact as long as none has expired.";
            All messages::no_message_goes_to_two
                "Of concurrent takers no two get the same message.";
            All messages::time_of_messages_never_goes_back
                "A clock that is set back gives no message out again and no receipt twice.";
            All outbox::messages_are_in_the_batch
                "A batch of entities and messages takes effect as a whole or not at all, and the first failing command is named by position.";
            All outbox::later_commands_see_earlier_messages
                "Commands on messages see the effects of those before them, in every queue of the batch.";
            All outbox::snapshot_shows_messages
                "A snapshot shows all queues and messages as they were, whatever is done to them meanwhile.";
            All outbox::pages_of_messages_are_bounded
                "Messages of a snapshot are read in pages of as many, and as many bytes, as asked for.";
            SingleNode outbox::snapshot_cuts_no_batch_of_messages
                "A snapshot shows entities and the messages of all queues at one moment.";
            All outbox::restored_messages_are_as_they_were
                "A restored message has the times, the receipt and the count that it had, and every later receipt is greater.";
            All lifecycle::everything_survives_reopening
                "Whatever was answered is there after a restart.";
            All lifecycle::ids_are_not_reused_after_reopening
                "Ids of accounts and tables are never used again, across restarts too.";
            All lifecycle::close_refuses_writes
                "A closed store refuses writes and says that it is not ready; closing again does nothing.";
            All lifecycle::close_finishes_what_it_accepted
                "A write that was answered while the store closed is there afterwards; one that was refused left nothing.";
            All random::behaves_as_the_model
                "On random sequences of operations every answer is that of the naive model.";
        }
    };
    (@table {} $($scope:ident $module:ident :: $name:ident $sentence:literal;)*) => {
        /// Every promise, in the order of the contract.
        pub const PROMISES: &[Promise] = &[$(
            Promise { name: stringify!($name), scope: Scope::$scope, sentence: $sentence },
        )*];

        /// The test of each promise, compiled here once and not again in the tests of every engine.
        pub mod promise {
            use super::{Engine, Outcome};
            $(
                #[doc = $sentence]
                pub fn $name(engine: &dyn Engine) -> Outcome<'_> {
                    Box::pin(super::$module::$name(engine))
                }
            )*
        }
    };
    (@tests { $engine:expr } $($scope:ident $module:ident :: $name:ident $sentence:literal;)*) => {
        $(
            #[doc = $sentence]
            #[test]
            fn $name() {
                $crate::conformance::run(|| $engine, $crate::conformance::promise::$name);
            }
        )*
    };
    (@of_all { $needs:literal $engine:expr }
        $($scope:ident $module:ident :: $name:ident $sentence:literal;)*) => {
        $($crate::conformance_suite! {
            @one $scope { $needs $engine } $module :: $name $sentence
        })*
    };
    (@one All { $needs:literal $engine:expr } $module:ident :: $name:ident $sentence:literal) => {
        #[doc = $sentence]
        #[test]
        #[ignore = $needs]
        fn $name() {
            $crate::conformance::run(|| $engine, $crate::conformance::promise::$name);
        }
    };
    (@one $scope:ident $($rest:tt)*) => {};
    ($engine:expr) => { $crate::conformance_suite! { @list tests { $engine } } };
    (several nodes: $engine:expr, needs $needs:literal) => {
        $crate::conformance_suite! { @list of_all { $needs $engine } }
    };
}

conformance_suite! { @list table {} }

/// A test under way.
pub type Outcome<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs one test of the suite on a runtime of its own, so that an engine's test file needs none.
pub fn run<E: Engine>(engine: impl FnOnce() -> E, test: fn(&dyn Engine) -> Outcome<'_>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async { test(&engine()).await });
}
