//! Reads the requests that an upstream receives, with a parser of its own that is stricter than the standard.

use tokio::io::{AsyncRead, AsyncReadExt, BufReader};

/// A request as an upstream received it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordedRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    /// All headers in order, with names in lower case and without spaces around the values.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body is complete.
    pub(crate) is_whole: bool,
}

impl RecordedRequest {
    /// Returns the values of a header.
    pub(crate) fn values<'r>(&'r self, name: &'r str) -> impl Iterator<Item = &'r [u8]> {
        self.headers.iter().filter(move |it| it.0 == name).map(|it| &*it.1)
    }

    /// Returns the values of a header as text.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        self.values(name).map(|it| String::from_utf8_lossy(it).into_owned()).collect()
    }
}

/// Shows a mistake and the bytes that contain it.
pub(crate) fn shown(wrong: &str, bytes: &[u8]) -> String {
    format!("{wrong}: {:?}", String::from_utf8_lossy(bytes))
}

/// Reads the next request. `None`: the connection ended before its head was complete. An error is a request that no
/// proxy may send.
pub(crate) async fn read(
    stream: &mut BufReader<impl AsyncRead + Unpin>,
) -> Result<Option<RecordedRequest>, String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return Ok(None) };
        head.push(byte);
    }
    let (mut request, framing) = checked(&head).map_err(|wrong| shown(&wrong, &head))?;
    request.is_whole = match framing {
        Framing::Length(length) => take(stream, length, &mut request.body).await,
        Framing::Chunked => chunked(stream, &mut request.body).await.map_err(|wrong| shown(&wrong, &head))?,
    };
    Ok(Some(request))
}

enum Framing {
    Length(u64),
    Chunked,
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&it))
}

/// Splits a head into lines, which must end in CRLF.
fn lines(head: &[u8]) -> Result<Vec<&[u8]>, String> {
    let mut pieces: Vec<_> = head.split(|it| *it == b'\n').collect();
    let count = pieces.len();
    for piece in &mut pieces[..count - 1] {
        *piece = piece.strip_suffix(b"\r").ok_or("a line feed without a carriage return")?;
    }
    let is_split = pieces.iter().any(|it| it.contains(&b'\r'));
    if is_split { Err("a carriage return without a line feed".into()) } else { Ok(pieces) }
}

/// Checks a head and the framing of its body.
fn checked(head: &[u8]) -> Result<(RecordedRequest, Framing), String> {
    let head = &head[..head.len() - 4];
    let mut lines = lines(head)?.into_iter();
    let start =
        std::str::from_utf8(lines.next().unwrap_or_default()).map_err(|_| "the start is not UTF-8")?;
    let [method, target, "HTTP/1.1"] = start.split(' ').collect::<Vec<_>>()[..] else {
        return Err("the start line".into());
    };
    let is_path = target.starts_with('/') || (target == "*" && method == "OPTIONS");
    if !is_token(method) || !is_path || !target.bytes().all(|it| it > b' ' && it != 0x7f) {
        return Err("the method or the target".into());
    }
    let mut request =
        RecordedRequest { method: method.to_owned(), target: target.to_owned(), ..Default::default() };
    let mut framing = None;
    for line in lines {
        let colon = line.iter().position(|it| *it == b':').ok_or("a line without a colon")?;
        let name = std::str::from_utf8(&line[..colon]).map_err(|_| "a name is not ASCII")?;
        let value = line[colon + 1..].trim_ascii();
        if !is_token(name) || value.iter().any(|it| (*it < b' ' && *it != b'\t') || *it == 0x7f) {
            return Err(format!("the header {name:?}"));
        }
        let name = name.to_ascii_lowercase();
        match &*name {
            "content-length" => {
                let text = std::str::from_utf8(value).map_err(|_| "a length")?;
                // Leading zeros, signs and lists are read differently.
                let length: u64 = text.parse().map_err(|_| "a length")?;
                if length.to_string() != text || framing.replace(Framing::Length(length)).is_some() {
                    return Err("a length that is not canonical, or a second length or encoding".into());
                }
            }
            "transfer-encoding" if value != b"chunked" || framing.replace(Framing::Chunked).is_some() => {
                return Err("a second length or encoding".into());
            }
            _ => {}
        }
        request.headers.push((name, value.to_vec()));
    }
    if request.values("host").count() != 1 {
        return Err("not one host".into());
    }
    Ok((request, framing.unwrap_or(Framing::Length(0))))
}

/// Reads a number of bytes. `false`: the connection ended before.
async fn take(stream: &mut BufReader<impl AsyncRead + Unpin>, length: u64, body: &mut Vec<u8>) -> bool {
    let before = body.len() as u64;
    stream.take(length).read_to_end(body).await.is_ok() && body.len() as u64 - before == length
}

/// Reads a chunked body. `false`: the connection ended within it.
async fn chunked(stream: &mut BufReader<impl AsyncRead + Unpin>, body: &mut Vec<u8>) -> Result<bool, String> {
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            match stream.read_u8().await {
                Ok(byte) => line.push(byte),
                Err(_) => return Ok(false),
            }
        }
        let text = std::str::from_utf8(&line[..line.len() - 2]).map_err(|_| "a size")?;
        let is_size = !text.is_empty() && text.bytes().all(|it| it.is_ascii_hexdigit());
        let size =
            u64::from_str_radix(text, 16).ok().filter(|_| is_size).ok_or_else(|| shown("a size", &line))?;
        if size == 0 {
            return trailers(stream).await;
        }
        if !take(stream, size, body).await {
            return Ok(false);
        }
        let mut end = [0; 2];
        match stream.read_exact(&mut end).await {
            Ok(_) if end == *b"\r\n" => {}
            Ok(_) => return Err(shown("the end of a chunk", &end)),
            Err(_) => return Ok(false),
        }
    }
}

/// Reads the trailers of a chunked body. `false`: the connection ended within them.
async fn trailers(stream: &mut BufReader<impl AsyncRead + Unpin>) -> Result<bool, String> {
    let mut bytes = Vec::new();
    while bytes != b"\r\n" && !bytes.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => bytes.push(byte),
            Err(_) => return Ok(false),
        }
    }
    for line in lines(&bytes)?.iter().filter(|it| !it.is_empty()) {
        let name = line.split(|it| *it == b':').next().map(String::from_utf8_lossy).unwrap_or_default();
        if !line.contains(&b':') || !is_token(&name) {
            return Err(shown("a trailer", line));
        }
    }
    Ok(true)
}
