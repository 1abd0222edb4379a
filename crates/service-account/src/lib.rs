//! Accounts, their keys and their service properties, free of HTTP.
//!
//! An account is data: it is created, its keys are rotated and it is removed while the server runs. The
//! store keeps the keys sealed and the properties as bytes; here they are opened, and an
//! [`AccountView`] is what the rest of the server works with.
//!
//! What a signature proves is the business of `auth`, tables that of the table service.

mod error;
mod key;
mod quota;
mod seal;
mod service;
mod settings;

pub use error::AccountError;
pub use key::{AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, KeyError, KeySlot, KeySlotError};
pub use quota::{AccountLimits, OwnLimits};
pub use rowhouse_store::AccountId;
pub use seal::{KeyForm, Sealer};
pub use service::{AccountService, AccountView, Resealed};
