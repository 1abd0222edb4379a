//! Statistics of the service.

use super::text::{DECLARATION, push_element};
use rowhouse_types::Timestamp;

/// The body of Get Service Stats: how far the secondary is, and when it last caught up.
pub fn write(status: &str, last_sync: Option<Timestamp>) -> String {
    let mut out = String::from(DECLARATION);
    out.push_str("<StorageServiceStats><GeoReplication>");
    push_element(&mut out, "Status", status);
    push_element(&mut out, "LastSyncTime", &last_sync.map_or(String::new(), Timestamp::rfc1123));
    out.push_str("</GeoReplication></StorageServiceStats>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_and_without_a_time() {
        let time = Timestamp::parse_iso("2021-10-18T23:44:02Z").unwrap();
        assert_eq!(
            write("live", Some(time)),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><StorageServiceStats><GeoReplication><Status>live</Status><LastSyncTime>Mon, 18 Oct 2021 23:44:02 GMT</LastSyncTime></GeoReplication></StorageServiceStats>"
        );
        assert!(write("unavailable", None).contains("<LastSyncTime />"));
    }
}
