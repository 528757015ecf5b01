//! Calls of `reqwest`.

use http::{HeaderMap, Response, StatusCode, Uri};
use reqwest::Request;

use crate::call::CallOptions;
use crate::client::{Answer, Call, Client};
use crate::error::Error;

impl Answer for reqwest::Response {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
}

impl Client {
    /// Executes a request with a client of `reqwest`, paced and retried. A request whose body is a stream is sent once.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let (client, http) = (tollgate_client::Client::default(), reqwest::Client::new());
    /// let request = http.get("http://127.0.0.1:8080/items").build()?;
    /// let response = client.execute(&http, request, Default::default()).await?;
    /// println!("{}", response.status());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn execute(
        &self,
        http: &reqwest::Client,
        request: Request,
        options: CallOptions,
    ) -> Result<reqwest::Response, Error<reqwest::Error>> {
        let uri: Uri = request.url().as_str().parse().unwrap_or_default();
        let (method, headers) = (request.method().clone(), request.headers().clone());
        let call = Call::new(&method, &uri, &headers).options(options);
        let copy = request.try_clone();
        let is_repeatable = copy.is_some();
        let mut first = Some(request);
        let send = |_| {
            let request = first.take().or_else(|| copy.as_ref().and_then(Request::try_clone));
            // A call that is not repeatable is sent once, so that there is a request for every attempt.
            let sent = request.map(|request| http.execute(request));
            async {
                match sent {
                    Some(sent) => sent.await,
                    None => Ok(Response::new("").into()),
                }
            }
        };
        self.run(&call, send, is_repeatable).await
    }
}
