//! A client with a persistent connection that reports how much of a response arrived before it broke
//! off.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// A timeout that only failing tests reach.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to a server.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether the server announced that it closes the connection.
    pub(crate) closes: bool,
    /// The headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns the value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
    }
}

/// The progress of a response when the connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// No byte arrived.
    BeforeIt,
    /// A part arrived.
    WithinIt,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Answer, Broken> {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    pub(crate) fn ask(&mut self, request: &str) -> Result<Answer, Broken> {
        self.send(request).map_err(|_gone| Broken::BeforeIt)?;
        self.answer()
    }

    pub(crate) fn send(&mut self, text: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(text.as_bytes())
    }

    pub(crate) fn answer(&mut self) -> Result<Answer, Broken> {
        let start = self.line().filter(|line| !line.is_empty()).ok_or(Broken::BeforeIt)?;
        let status = start.split(' ').nth(1).and_then(|status| status.parse().ok());
        let (mut length, mut closes, mut headers) = (0, false, Vec::new());
        loop {
            let line = self.line().filter(|line| line.ends_with('\n')).ok_or(Broken::WithinIt)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().expect("a length is a number"),
                "connection" => closes = value.to_ascii_lowercase().contains("close"),
                "transfer-encoding" => panic!("chunked responses are not expected"),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).map_err(|_gone| Broken::WithinIt)?;
        let status = status.unwrap_or_else(|| panic!("no status in {start:?}"));
        Ok(Answer { status, closes, headers, body })
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).ok().map(|_count| line)
    }
}

/// Sends one request on a new connection.
#[track_caller]
pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    let answer = Client::connect(address).map(|mut client| client.get(path));
    answer.expect("the server accepts connections").expect("the server answers")
}

/// Returns a resource of the API as JSON.
#[track_caller]
pub(crate) fn get_json(api: SocketAddr, path: &str) -> Value {
    serde_json::from_slice(&get(api, path).body).unwrap()
}

/// Posts to the API, and returns the response as JSON.
#[track_caller]
pub(crate) fn post_json(api: SocketAddr, path: &str, question: &str) -> Value {
    let length = question.len();
    let request =
        format!("POST {path} HTTP/1.1\r\nHost: {api}\r\nContent-Length: {length}\r\n\r\n{question}");
    let answer = Client::connect(api).unwrap().ask(&request).expect("the server answers");
    assert_eq!(answer.status, 200, "{path} {question}: {}", String::from_utf8_lossy(&answer.body));
    serde_json::from_slice(&answer.body).unwrap()
}
