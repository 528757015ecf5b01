//! A minimal XML reader that rejects malformed markup.

/// Returns the names of the elements, or the error.
pub(crate) fn elements(text: &str) -> Result<Vec<String>, String> {
    let mut open: Vec<String> = Vec::new();
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let between = &rest[..start];
        if between.contains('>') {
            return Err(format!("a loose > in {between:?}"));
        }
        let inside = &rest[start + 1..];
        let end = inside.find('>').ok_or("an element that does not end")?;
        let tag = &inside[..end];
        if tag.contains('<') || !tag.matches('"').count().is_multiple_of(2) {
            return Err(format!("a broken element {tag:?}"));
        }
        let name: String =
            tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        if tag.starts_with('/') {
            if open.pop().as_deref() != Some(name.as_str()) {
                return Err(format!("{name} is closed and not open"));
            }
        } else {
            all.push(name.clone());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        rest = &inside[end + 1..];
    }
    if open.is_empty() { Ok(all) } else { Err(format!("still open: {open:?}")) }
}
