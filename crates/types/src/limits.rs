//! Every limit of the product, once, with its unit and where it comes from.
//!
//! "Azure" means the published limit of the original service, which we enforce exactly. "Ours" means
//! a bound that the original leaves open or does not publish and that keeps memory finite.

/// Shortest table name, in characters. Azure.
pub const TABLE_NAME_CHARS_MIN: usize = 3;
/// Longest table name, in characters. Azure.
pub const TABLE_NAME_CHARS_MAX: usize = 63;
/// Shortest account name, in characters. Azure.
pub const ACCOUNT_NAME_CHARS_MIN: usize = 3;
/// Longest account name, in characters. Azure.
pub const ACCOUNT_NAME_CHARS_MAX: usize = 24;

/// Shortest name of a queue, in characters. Azure.
pub const QUEUE_NAME_CHARS_MIN: usize = 3;
/// Longest name of a queue, in characters. Azure.
pub const QUEUE_NAME_CHARS_MAX: usize = 63;
/// Longest text of a message, in bytes of UTF-8. Azure.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Longest text of a message before version 2011-08-18, in bytes of UTF-8. Azure.
pub const MESSAGE_BYTES_MAX_2009: usize = 8 * 1024;
/// Largest body with a message, in bytes. Ours: every character of the longest text written as `&quot;`, and room for tags.
pub const MESSAGE_BODY_BYTES_MAX: usize = 6 * MESSAGE_BYTES_MAX + 16 * 1024;
/// Most messages that one request gets or peeks at. Azure.
pub const MESSAGES_MAX: usize = 32;
/// Longest time that a message is not visible, in seconds: 7 days. Azure.
pub const VISIBILITY_SECONDS_MAX: u64 = 7 * 24 * 60 * 60;
/// The same before version 2011-08-18: 2 hours. Azure.
pub const VISIBILITY_SECONDS_MAX_2009: u64 = 2 * 60 * 60;
/// How long whoever gets a message has it for, unless they say, in seconds. Azure.
pub const VISIBILITY_SECONDS_DEFAULT: u64 = 30;
/// How long a message lives unless whoever puts it says, and at most before version 2017-07-29, in seconds: 7 days. Azure.
pub const MESSAGE_LIFE_SECONDS_DEFAULT: u64 = 7 * 24 * 60 * 60;
/// Longest life of a message that does not live for ever, in seconds. Azure.
pub const MESSAGE_LIFE_SECONDS_MAX: u64 = i32::MAX as u64;
/// Most names and values of a queue's metadata together, in bytes. Azure.
pub const METADATA_BYTES_MAX: usize = 8 * 1024;
/// Most queues in a page. Azure.
pub const QUEUES_PAGE_MAX: usize = 5000;

/// Longest PartitionKey or RowKey, in UTF-16 code units. Azure documents "1 KiB" and "1,024 characters".
pub const KEY_UTF16_UNITS_MAX: usize = 1024;
/// Longest property name, in UTF-16 code units. Azure.
pub const PROPERTY_NAME_UTF16_UNITS_MAX: usize = 255;
/// Most properties of an entity beside PartitionKey, RowKey and Timestamp. Azure.
pub const PROPERTIES_MAX: usize = 252;
/// Most members of the JSON of an entity: properties, their types, nulls. Ours: twice what an
/// entity can hold, so that a body of nothing but ignored members stays cheap.
pub const ENTITY_MEMBERS_MAX: usize = 1024;
/// Longest String property, in UTF-16 code units: 64 KiB. Azure.
pub const STRING_UTF16_UNITS_MAX: usize = 32 * 1024;
/// Longest Binary property, in bytes. Azure.
pub const BINARY_BYTES_MAX: usize = 64 * 1024;
/// Largest entity, in bytes of the published size formula (`Record::size`). Azure.
pub const ENTITY_BYTES_MAX: usize = 1024 * 1024;

/// Most operations in an entity group transaction. Azure.
pub const BATCH_OPERATIONS_MAX: usize = 100;
/// Largest body of an entity group transaction, in bytes. Azure.
pub const BATCH_BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest body of any other request, in bytes. Ours: the largest legal entity in JSON with every
/// character escaped as `\uXXXX` would be longer, but no SDK escapes so; the original's cap is unpublished.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest XML body (access policies, service properties), in bytes. Ours.
pub const XML_BODY_BYTES_MAX: usize = 64 * 1024;

/// Most entities or tables in a page. Azure.
pub const PAGE_ITEMS_MAX: usize = 1000;
/// Longest time a query works on one page, in milliseconds. Azure: "5 seconds".
pub const PAGE_MILLIS_MAX: u64 = 5_000;
/// Most bytes of stored records in one page. Ours: keeps a page of 1,000 entities of 1 MiB in bounds.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes of JSON in one page, beyond the entity that reaches it. Ours: escapes, metadata and selected
/// properties that are not there make JSON many times larger than what is stored.
pub const PAGE_REPLY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most bytes of stored records in a page that is written at once and sent with its length; a larger one is written while it
/// is sent. Ours: so much is written in 30 to 150 us, and nobody notices who waits for that.
pub const PAGE_WHOLE_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of a page that a task of the runtime writes itself, and most bytes that it searches for selected properties, once
/// for every name. Ours: so much takes up to 2 ms, and what takes longer is done on another thread.
pub const PAGE_INLINE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of JSON that are written of such a page at a time, beyond the entity that reaches them. Ours: what a socket takes
/// at once, written in 30 to 150 us.
pub const PAGE_PIECE_BYTES: usize = 64 * 1024;

/// Longest wait for a change, in seconds. Ours: shorter than clients and proxies wait for an answer.
pub const CHANGES_WAIT_SECONDS_MAX: u64 = 30;
/// Most requests that wait for a change at a time. Ours.
pub const CHANGES_WAITING_MAX: usize = 256;

/// Longest `$filter`, in bytes after decoding. Ours: twice what fits into a URL of the original,
/// so that no filter that works there is refused here.
pub const FILTER_BYTES_MAX: usize = 32 * 1024;
/// Longest `$filter` that a task of the runtime parses itself, in bytes after decoding. A thread with
/// a low priority parses a longer one. Ours: parsing takes about 30 us for each KiB.
pub const FILTER_INLINE_BYTES_MAX: usize = 4 * 1024;
/// Deepest nesting of parentheses, `not` and functions in a `$filter`. Ours.
pub const FILTER_DEPTH_MAX: usize = 128;
/// Most functions in a `$filter`, each counted for every literal that it is compared with. Ours: each goes through a
/// whole text for every entity.
pub const FILTER_FUNCTIONS_MAX: usize = 128;
/// Most values in all lists (`in`) of a `$filter`. Ours: each is a comparison for every entity.
pub const FILTER_LIST_VALUES_MAX: usize = 2000;
/// Most key ranges that a plan keeps apart; a filter that names more is read as one range. Ours.
pub const PLAN_RANGES_MAX: usize = 256;
/// Most secondary indexes of a table. Ours: every write keeps each of them.
pub const INDEXES_MAX: usize = 16;
/// Most properties of an index. Ours.
pub const INDEX_PROPERTIES_MAX: usize = 4;
/// Longest name of an index, in characters. Ours.
pub const INDEX_NAME_CHARS_MAX: usize = 63;
/// Largest definition of an index, in bytes. Ours.
pub const INDEX_BODY_BYTES_MAX: usize = 16 * 1024;
/// Most bytes of a value in an entry of an index, as it is written there; what is longer is cut. Ours: an entry must fit
/// into a btree of any engine.
pub const INDEX_VALUE_BYTES_MAX: usize = 256;
/// Longest life of an entity, in seconds. Ours: a hundred years.
pub const TTL_SECONDS_MAX: u64 = 3_155_760_000;
/// Time between a table's TTL being set and the first removal of an expired entity, in seconds, unless configured. Ours:
/// within it, taking the TTL back brings every entity back.
pub const TTL_GRACE_SECONDS: u64 = 60;
/// Largest body that says when entities expire, in bytes. Ours.
pub const TTL_BODY_BYTES_MAX: usize = 4 * 1024;
/// Most parameters of a query string. Ours: the server decodes and sorts them before it knows the caller, and no operation
/// has more than a few dozen.
pub const QUERY_PARAMETERS_MAX: usize = 256;
/// Most names in `$select`. Azure.
pub const SELECT_NAMES_MAX: usize = 255;

/// Most stored access policies of a table. Azure.
pub const POLICIES_MAX: usize = 5;
/// Longest identifier of a stored access policy, in characters. Azure.
pub const POLICY_ID_CHARS_MAX: usize = 64;
/// Most CORS rules of a service. Azure.
pub const CORS_RULES_MAX: usize = 5;
/// Longest text of all CORS rules together, without tags, in bytes. Azure.
pub const CORS_TEXT_BYTES_MAX: usize = 2 * 1024;
/// Longest origin or header in a CORS rule, in characters. Azure.
pub const CORS_ITEM_CHARS_MAX: usize = 256;
/// Most literal headers in a list of a CORS rule. Azure.
pub const CORS_LITERAL_HEADERS_MAX: usize = 64;
/// Most prefixed headers (`x-ms-meta*`) in a list of a CORS rule. Azure.
pub const CORS_PREFIX_HEADERS_MAX: usize = 2;
/// Longest retention of logs and metrics, in days. Azure.
pub const RETENTION_DAYS_MAX: u32 = 365;

/// Longest `x-ms-client-request-id` that is echoed, in characters. Azure.
pub const CLIENT_REQUEST_ID_CHARS_MAX: usize = 1024;
/// Longest `AuthenticationErrorDetail`, in bytes before it is escaped; what is longer is cut. Ours: nobody who is not known
/// should get back all that a head can hold.
pub const AUTHENTICATION_DETAIL_BYTES_MAX: usize = 8 * 1024;
/// Most lines about failed authentication in the log in a second; the next one says how many were left out. Ours.
pub const AUTHENTICATION_LINES_PER_SECOND_MAX: u32 = 10;
/// Most characters of an account name in such a line. Ours: strangers choose them.
pub const LOGGED_ACCOUNT_CHARS_MAX: usize = 64;
/// How far a signed date may be from the server's clock, in seconds. Azure: 15 minutes.
pub const CLOCK_SKEW_SECONDS: u64 = 15 * 60;
/// How far the Timestamps of a store may be ahead of the server's clock before the log warns of it, in seconds. Ours.
pub const STORE_AHEAD_SECONDS_WARN: u64 = 1;
/// The largest database of an older format that the server rewrites with checksums while it starts, in bytes: some ten
/// seconds. Larger ones wait for `rowhouse check --add-checksums`. Ours.
pub const REWRITE_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Free space that an embedded store whose disk was full waits for before it takes writes again, in bytes. Ours.
pub const ROOM_BYTES_MIN: u64 = 16 * 1024 * 1024;
/// How long a client that takes a backup may keep it waiting in all, beyond what [`BACKUP_BYTES_PER_SECOND_MIN`] takes,
/// in seconds: the store cannot let go of old pages meanwhile. Ours.
pub const BACKUP_WAIT_SECONDS_MAX: u64 = 5 * 60;
/// How fast a client that takes a backup has to read it, on average, in bytes per second. Ours.
pub const BACKUP_BYTES_PER_SECOND_MIN: u64 = 256 * 1024;
/// How far a server's clock may be from that of the database for the server to remove expired entities, in seconds. Ours.
pub const DATABASE_CLOCK_SECONDS_MAX: u64 = 2;

/// Most connections of a listener at a time, unless configured. Ours.
pub const CONNECTIONS_MAX: usize = 8 * 1024;
/// Most connections from one address at a time, unless configured. Ours: load tests and proxies come from
/// one address, a single faulty client should leave room for others.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = 4 * 1024;
/// Most connections from one address that had no request with a valid credential, unless configured. Ours: more than a
/// test suite opens at once before its first requests are answered.
pub const ANONYMOUS_CONNECTIONS_PER_ADDRESS_MAX: usize = 1024;
/// Largest head of a request on such a connection that is read unasked, in bytes. Ours: of larger ones few are read at a time.
pub const ANONYMOUS_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most larger heads that are read at a time on such connections of a listener. Ours.
pub const ANONYMOUS_HEADS_MAX: usize = 256;
/// Most of them from one address. Ours.
pub const ANONYMOUS_HEADS_PER_ADDRESS_MAX: usize = 16;
/// Longest time that the head of a request may take on such a connection, in seconds. Ours.
pub const ANONYMOUS_HEAD_SECONDS_MAX: u64 = 10;
/// Longest silence on such a connection, in seconds. Ours.
pub const ANONYMOUS_IDLE_SECONDS_MAX: u64 = 10;
/// Largest head of a request, in bytes. Ours: the longest target that the HTTP library takes (64 KiB) and
/// 32 KiB of headers.
pub const HEAD_BYTES_MAX: usize = 96 * 1024;
/// Most headers of a request. Ours.
pub const HEADERS_MAX: usize = 100;
/// The same of a request to the Queue service. Ours: [`METADATA_BYTES_MAX`] in pairs with the shortest names are 3,081, and
/// clients and proxies add theirs. [`HEAD_BYTES_MAX`] bounds what they hold.
pub const QUEUE_HEADERS_MAX: usize = 4096;
/// Longest time that the head of a request may take, in seconds. Ours.
pub const HEAD_SECONDS_MAX: u64 = 30;
/// Least rate at which a client takes an answer that it keeps waiting, in bytes a second. Ours.
pub const SEND_BYTES_PER_SECOND_MIN: u64 = 32 * 1024;
/// Longest silence on a connection, in seconds. Ours: longer than SDKs keep connections in their pools.
pub const IDLE_SECONDS_MAX: u64 = 5 * 60;
/// Longest TLS handshake, in seconds. Ours.
pub const HANDSHAKE_SECONDS_MAX: u64 = 10;
/// Longest time that running requests get when the server stops, in seconds, unless configured. Ours: below
/// the ten seconds after which container runtimes kill.
pub const DRAIN_SECONDS_MAX: u64 = 8;
/// Largest body of a request to the admin API, in bytes. Ours.
pub const ADMIN_BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest time that such a body may take, in seconds. Ours.
pub const ADMIN_BODY_SECONDS_MAX: u64 = 10;
/// Most tables of an account, unless configured. Ours: the embedded engine keeps what it knows of each in memory.
pub const TABLES_PER_ACCOUNT_MAX: u64 = 50_000;
/// Most queues of an account, unless configured. Ours: likewise, with up to [`METADATA_BYTES_MAX`] of metadata each.
pub const QUEUES_PER_ACCOUNT_MAX: u64 = 20_000;
/// Most memory of an embedded store for what it keeps of an account's tables and queues, in bytes, unless
/// [`CATALOGUE_BYTES_PER_ITEM`] allows more. Ours: 20,000 queues with full metadata would take 400 MB.
pub const CATALOGUE_BYTES_PER_ACCOUNT_MAX: u64 = 64 * 1024 * 1024;
/// So much of that memory each table and queue may always take on average, in bytes. Ours: more than one takes that has
/// no metadata, few access policies and few indexes, so that an operator can allow any number of them.
pub const CATALOGUE_BYTES_PER_ITEM: u64 = 1024;
/// How often a change of an account is made before its caller is told to try later: again whenever another server has changed
/// the account meanwhile. Ours.
pub const ACCOUNT_CHANGE_ATTEMPTS_MAX: usize = 16;
/// Most accounts whose names a server on PostgreSQL remembers, of about 20 bytes each. Ours: beyond that the database is
/// asked for each unknown name.
pub const ACCOUNT_NAMES_REMEMBERED_MAX: usize = 1_000_000;
/// Most memory for what a server on PostgreSQL remembers of accounts, tables and queues, in bytes. Ours: what is used
/// least is forgotten, and read again when it is needed.
pub const CATALOGUE_CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Shortest key that an account is given, in bytes. Ours: Azure's have 64. Shorter keys from before go on working.
pub const ACCOUNT_KEY_BYTES_MIN: usize = 32;
/// How long one request of the admin API seals keys of accounts anew, in seconds; the rest is left for the next. Ours.
pub const RESEAL_SECONDS_MAX: u64 = 2;
/// Shortest token of the admin API, in characters. Ours.
pub const ADMIN_TOKEN_CHARS_MIN: usize = 16;
/// Most requests worked on at a time, unless configured. Ours.
pub const REQUESTS_MAX: usize = 1024;
/// Most queries among them, unless configured. Ours: a query may hold a page in memory and a reader for seconds.
pub const SCANS_MAX: usize = 16;
/// Most memory for bodies of requests, in bytes, unless configured. Ours.
pub const BODIES_BYTES_MAX: usize = 256 * 1024 * 1024;
