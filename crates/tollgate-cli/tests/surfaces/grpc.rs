//! `ShouldRateLimit`, with `curl` and handwritten messages.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use tollgate_testkit::{ProgramOutput, Scratch};

const METHOD: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A descriptor of one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) domain: &'a str,
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
}

impl Question<'_> {
    /// Returns the message with the prefix of gRPC.
    fn frame(self) -> Vec<u8> {
        let entry = [field(1, self.key.as_bytes()), field(2, self.value.as_bytes())].concat();
        let message = [field(1, self.domain.as_bytes()), field(2, &field(1, &entry))].concat();
        [&[0, 0, 0, 0, short(&message)][..], &message].concat()
    }

    /// Returns the number of responses with OK. Every request must get a response.
    #[track_caller]
    pub(crate) fn admitted(self, rls: SocketAddr, times: usize) -> usize {
        let (files, server) = (Scratch::new(), format!("http://{rls}"));
        let mut admitted = 0;
        for _ in 0..times {
            // On a new connection each, because some versions of `curl` do not reuse them.
            let finished = self.ask(&server, &files, &["--http2-prior-knowledge"]);
            assert_eq!(finished.code, Some(0), "{}", finished.stderr);
            admitted += usize::from(code(&files) == 1);
        }
        admitted
    }

    /// Sends a request, with these arguments for `curl`; the response is written to files.
    pub(crate) fn ask(self, server: &str, files: &Scratch, arguments: &[&str]) -> ProgramOutput {
        let frame = files.path().join("frame");
        fs::write(&frame, self.frame()).unwrap();
        let mut command = Command::new("curl");
        command.args([
            "-sS",
            "--max-time",
            "60",
            "-H",
            "content-type: application/grpc",
            "-H",
            "te: trailers",
        ]);
        command.arg("--data-binary").arg(format!("@{}", frame.display())).args(arguments);
        command.arg("-D").arg(files.path().join("head")).arg("-o").arg(files.path().join("answer"));
        command.arg(format!("{server}/{METHOD}"));
        ProgramOutput::of(command)
    }
}

/// Returns the overall code of the response: 1 is OK, 2 is `OVER_LIMIT`, which is not an error of gRPC.
#[track_caller]
pub(crate) fn code(files: &Scratch) -> u8 {
    let head = fs::read_to_string(files.path().join("head")).unwrap();
    assert!(head.contains("grpc-status: 0\r\n"), "{head}");
    let answer = fs::read(files.path().join("answer")).unwrap();
    // The first field, after the prefix.
    assert_eq!(answer.get(5), Some(&8), "{answer:?}");
    answer[6]
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, short(bytes)][..], bytes].concat()
}

fn short(bytes: &[u8]) -> u8 {
    u8::try_from(bytes.len()).ok().filter(|length| *length < 128).expect("questions of tests are short")
}
