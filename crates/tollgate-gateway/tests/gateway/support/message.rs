//! A request or a response as received.

/// A request or a response as received.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The first line.
    pub(crate) start: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// Whether the body ended as its framing says.
    pub(crate) is_whole: bool,
}

impl Message {
    pub(crate) fn from_head(head: &[u8]) -> Self {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.trim_end().split("\r\n");
        let start = lines.next().unwrap().to_owned();
        let headers = lines.map(|line| Self::header_of(line.as_bytes())).collect();
        Self { start, headers, body: Vec::new(), trailers: Vec::new(), is_whole: true }
    }

    /// Parses a header line; the name is in lower case.
    pub(crate) fn header_of(line: &[u8]) -> (String, String) {
        let line = String::from_utf8_lossy(line);
        let (name, value) = line.trim_end().split_once(':').unwrap_or((&line, ""));
        (name.to_ascii_lowercase(), value.trim().to_owned())
    }

    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or_default()
    }

    /// Returns the only header of a name.
    #[track_caller]
    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} twice in {self:?}");
        value
    }

    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        self.find(name).unwrap_or("absent")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn frames_its_body(&self) -> bool {
        self.find("content-length").is_some() || self.find("transfer-encoding").is_some()
    }

    /// Checks that the message is a problem of the gateway with this status.
    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16) {
        assert_eq!(self.status(), status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        assert!(self.text().contains(&format!(r#""status":{status},"#)), "{}", self.text());
        assert!(self.is_whole);
    }
}
