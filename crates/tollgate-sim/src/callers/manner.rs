//! How a client reacts to refusals.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Method, Uri};
use schemars::JsonSchema;
use serde::Serialize;
use tollgate::Sleeper;
use tollgate_client::{Call, Client};

use super::CallersScenario;
use super::service::Service;
use super::world::Timers;
use crate::executor::lock;

/// The waits of clients that ignore `Retry-After`: the first one, which doubles, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How a client reacts to refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CallerManner {
    /// Retries with exponential backoff from 100 ms, and ignores `Retry-After`.
    Backoff,
    /// Retries after `Retry-After`.
    RetryAfter,
    /// Paces calls with `tollgate-client`.
    Paced,
}

impl CallerManner {
    /// All manners.
    pub const ALL: [Self; 3] = [Self::Backoff, Self::RetryAfter, Self::Paced];

    /// Returns the word on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Backoff => "backoff",
            Self::RetryAfter => "retry-after",
            Self::Paced => "paced",
        }
    }

    /// Returns the manner of a word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|manner| manner.word() == word)
    }
}

/// One client.
pub(super) struct Caller {
    manner: CallerManner,
    service: Arc<Service>,
    timers: Timers,
    client: Client,
    timeout: Duration,
    rng: Mutex<fastrand::Rng>,
}

impl Caller {
    pub(super) fn new(
        manner: CallerManner,
        service: &Arc<Service>,
        timers: Timers,
        scenario: &CallersScenario,
        number: u32,
    ) -> Self {
        let timeout: Duration = scenario.timeout.into();
        let sleeper = {
            let timers = timers.clone();
            Sleeper::new(move |time| timers.sleep(time))
        };
        let seed = scenario.seed.wrapping_mul(1_000).wrapping_add(number.into());
        let client = Client::builder()
            .settings(|it| (it.timeout, it.max_waiting) = (timeout, usize::MAX))
            .clock(timers.clock())
            .sleeper(sleeper)
            .seed(seed)
            .build();
        let rng = Mutex::new(fastrand::Rng::with_seed(seed));
        Self { manner, service: Arc::clone(service), timers, client, timeout, rng }
    }

    /// Makes a call. Returns whether it was admitted in time.
    pub(super) async fn call(&self) -> bool {
        if self.manner == CallerManner::Paced {
            let (uri, headers) = (Uri::from_static("http://service/"), HeaderMap::new());
            let call = Call::new(&Method::GET, &uri, &headers);
            let answer =
                self.client.call(&call, |_| async { Ok::<_, Infallible>(self.service.answer().await) });
            return answer.await.is_ok_and(|it| it.status().is_success());
        }
        let deadline = self.timers.now() + self.timeout.into();
        let mut backoff = BACKOFF.0;
        loop {
            let response = self.service.answer().await;
            if response.status().is_success() {
                return true;
            }
            let retry_after =
                response.headers().get("retry-after").and_then(|it| it.to_str().ok()?.parse().ok());
            // Full jitter for the backoff; up to a tenth above `Retry-After`.
            let random = lock(&self.rng).f64();
            let wait = match self.manner {
                CallerManner::RetryAfter => {
                    Duration::from_secs(retry_after.unwrap_or(1)).mul_f64(1.0 + random / 10.0)
                }
                _ => backoff.mul_f64(random),
            };
            backoff = (backoff * 2).min(BACKOFF.1);
            if self.timers.now() + wait.into() > deadline {
                return false;
            }
            self.timers.sleep(wait).await;
        }
    }
}
