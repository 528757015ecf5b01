//! The span of a call.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use http::{HeaderMap, Method, Response, StatusCode, Uri};
use tollgate_client::Call;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::servers::client;

/// Keeps everything that was recorded.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Visit for Recorder {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.lock().unwrap().push(format!("{field}={value:?}"));
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        self.0.lock().unwrap().push(attributes.metadata().name().to_owned());
        attributes.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_span_has_the_server_the_status_and_the_retries() {
    let recorder = Recorder::default();
    // If there is one subscriber only, tracing asks the thread that first comes to a span whether it is enabled, and
    // tests without a subscriber run on other threads.
    let _second = tracing::Dispatch::new(Recorder::default());
    let _guard = tracing::subscriber::set_default(recorder.clone());
    let (client, _) = client(|_| {});
    let (uri, headers): (Uri, _) = (Uri::from_static("https://api.test/items"), HeaderMap::new());
    let call = Call::new(&Method::GET, &uri, &headers);
    let answer = client.call(&call, |number| async move {
        let mut response = Response::new(());
        if number == 1 {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert("retry-after", "1".parse().unwrap());
        }
        Ok::<_, std::io::Error>(response)
    });
    assert!(answer.await.is_ok());
    let recorded = recorder.0.lock().unwrap();
    for expected in [
        "call",
        "http.request.method=\"GET\"",
        "server.address=\"api.test\"",
        "tollgate.waited_ms=0.0",
        "http.response.status_code=429",
        "message=a limit of the server refused the attempt",
        "http.request.resend_count=1",
        "http.response.status_code=200",
    ] {
        assert!(recorded.iter().any(|it| it == expected), "{expected} in {recorded:?}");
    }
}
