//! Writing XML.

/// How every document starts. No byte order mark: some parsers do not expect one.
pub(crate) const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>";

/// Writes text between tags. Characters that XML cannot hold at all become U+FFFD.
pub(crate) fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\r' => out.push_str("&#xD;"),
            c if is_xml(c) => out.push(c),
            _ => out.push('\u{FFFD}'),
        }
    }
}

/// Writes an element that holds text; `<name />` if the text is empty.
pub(crate) fn push_element(out: &mut String, name: &str, text: &str) {
    if text.is_empty() {
        for piece in ["<", name, " />"] {
            out.push_str(piece);
        }
        return;
    }
    for piece in ["<", name, ">"] {
        out.push_str(piece);
    }
    push_escaped(out, text);
    for piece in ["</", name, ">"] {
        out.push_str(piece);
    }
}

/// True if XML 1.0 allows the character in a document.
pub(crate) fn is_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{FFFD}' | '\u{10000}'..)
}
