use crate::valid_prefix;
use rowhouse_types::{Etag, Timestamp};
use rowhouse_wire::version::ApiVersion;
use rowhouse_wire::{media, select::Select, token};

/// Short values of headers and parameters: versions, formats, projections, tokens, ETags, times.
///
/// A value that parses survives being written and parsed again.
pub fn header(data: &[u8]) {
    let text = valid_prefix(data);
    let _ = media::negotiate(Some(text), None);
    let _ = media::negotiate(None, Some(text));
    let _ = media::prefer(text);
    let _ = Select::parse(text);
    if let Some(version) = ApiVersion::parse(text) {
        assert_eq!(version.as_str(), text);
    }
    let _ = token::decode(text);
    assert_eq!(token::decode(&token::encode(text)).as_deref(), Some(text));
    if let Ok(etag) = text.parse::<Etag>()
        && let Some(stamp) = etag.timestamp()
    {
        assert!(etag.matches(stamp));
        assert_eq!(Etag::new(stamp).to_string().parse::<Etag>(), Ok(Etag::new(stamp)));
    }
    let _ = Timestamp::parse_date_or_iso(text);
    if let Ok(stamp) = Timestamp::parse_iso(text) {
        assert_eq!(Timestamp::parse_iso(&stamp.to_string()), Ok(stamp));
    }
    if let Ok(stamp) = Timestamp::parse_rfc1123(text) {
        assert_eq!(Timestamp::parse_rfc1123(&stamp.rfc1123()), Ok(stamp));
    }
}
