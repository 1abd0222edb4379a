//! Fuzz targets: one function for each parser of bytes from clients, files and disks.
//!
//! A target takes any bytes. It returns if the parser keeps its promises and panics if it does not.
//! `tests/it` replays the seeds and mutations of them in `make test`; `scripts/fuzz` gives the same
//! functions to libFuzzer. A new target needs a module here, its name in `tests/it/main.rs`, a
//! wrapper in `fuzz/targets`, and seeds in `fuzz/seeds`; the tests report what is missing.

mod auth;
mod backup;
mod batch;
mod entity;
mod filter;
mod header;
mod message;
mod path;
mod queue;
mod record;
mod xml;

pub use auth::auth;
pub use backup::backup;
pub use batch::batch;
pub use entity::entity;
pub use filter::filter;
pub use header::header;
pub use message::message;
pub use path::path;
pub use queue::queue;
pub use record::record;
pub use xml::xml;

/// The longest prefix that is UTF-8: an invalid byte shortens the text instead of ending the run.
/// libFuzzer does the same for a target that takes `&str`.
fn valid_prefix(data: &[u8]) -> &str {
    match str::from_utf8(data) {
        Ok(text) => text,
        Err(error) => str::from_utf8(&data[..error.valid_up_to()]).expect("checked as UTF-8"),
    }
}
