//! The outbound gateway: one listener for each service, and a client that all calls to it share.

use std::convert::Infallible;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::{self, Client as Pool};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{sleep, timeout};
use tollgate::Sleeper;
use tollgate_client::{Client, ClientLayer, ClientService, Error, GaveUpCause};
use tollgate_net::{Connector, Drain, HttpServer};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::RequestBody;
use crate::problem::{ResponseBody, problem};
use crate::settings::{Authorities, Credential, OutboundSettings};

/// The reason why an outbound gateway cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A file of certificates or of a credential cannot be read.
    #[error("cannot read {}", .0.display())]
    Unreadable(PathBuf, #[source] io::Error),
    /// The authorities are invalid.
    #[error("cannot verify the service `{0}` of `outbound` with its `ca`")]
    Authorities(String, #[source] rustls::Error),
    /// The file of a credential has no value that a header can carry.
    #[error("{} has no credential: write it as one line of text", .0.display())]
    Credential(PathBuf),
    /// The URL cannot be a target of requests.
    #[error("the `upstream` of `{0}` cannot be called")]
    Url(String, #[source] http::Error),
}

/// Forwards the calls of workers to one service.
#[derive(Clone)]
pub struct Outbound(Arc<Shared>);

struct Shared {
    settings: OutboundSettings,
    scheme: Scheme,
    authority: Authority,
    host: HeaderValue,
    credential: Option<(HeaderName, HeaderValue)>,
    client: Client,
    service: ClientService<Pool<Connector, RequestBody>>,
}

fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    fs::read(path).map_err(|error| StartError::Unreadable(path.to_owned(), error))
}

/// Reads a credential. A bare token in `Authorization` is a bearer token.
fn read_credential(credential: &Credential) -> Result<(HeaderName, HeaderValue), StartError> {
    let Credential { file, header } = credential;
    let wrong = || StartError::Credential(file.clone());
    let text = String::from_utf8(read(file)?).map_err(|_| wrong())?;
    let text = text.trim();
    let is_token = *header == header::AUTHORIZATION && !text.contains(' ');
    let value = if is_token { format!("Bearer {text}") } else { text.to_owned() };
    let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
    if text.is_empty() {
        return Err(wrong());
    }
    value.set_sensitive(true);
    Ok((header.clone(), value))
}

/// Headers that belong to one connection (RFC 9110, 7.6.1), besides those that `Connection` names.
const HOP_BY_HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

impl Outbound {
    /// Creates the gateway of one service.
    pub fn new(settings: OutboundSettings) -> Result<Self, StartError> {
        let tls = match &settings.authorities {
            Authorities::Public => tollgate_net::client_tls(None),
            Authorities::System => tollgate_net::system_tls(),
            Authorities::File(path) => tollgate_net::client_tls(Some(&read(path)?)),
        };
        let mut tls = tls.map_err(|error| StartError::Authorities(settings.name.clone(), error))?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let connector = Connector::new(settings.upstream.clone(), Some(Arc::new(tls)));
        let url = |error: http::Error| StartError::Url(settings.name.clone(), error);
        let authority = Authority::try_from(settings.upstream.authority()).map_err(|it| url(it.into()))?;
        let host = settings.host.as_deref().unwrap_or(authority.as_str());
        let host = HeaderValue::try_from(host).map_err(|it| url(it.into()))?;
        let credential = settings.credential.as_ref().map(read_credential).transpose()?;
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .retry_canceled_requests(false)
            .build(connector);
        let client = Client::builder()
            .settings(|it| {
                (it.timeout, it.tries, it.learn) = (settings.timeout, settings.tries, settings.learn);
            })
            .sleeper(Sleeper::new(sleep))
            .build();
        let service = ClientLayer::new(client.clone()).layer(pool);
        let scheme = if settings.upstream.is_secure() { Scheme::HTTPS } else { Scheme::HTTP };
        Ok(Self(Arc::new(Shared { settings, scheme, authority, host, credential, client, service })))
    }

    /// Returns the client, which has the counts and the learned limits.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// Returns the settings.
    pub fn settings(&self) -> &OutboundSettings {
        &self.0.settings
    }

    /// Serves a listener until draining has ended.
    pub async fn serve(&self, listener: TcpListener, drain: Drain) -> io::Result<()> {
        let outbound = self.clone();
        let make = move |_: &tollgate_net::Connection| {
            let outbound = outbound.clone();
            service_fn(move |request: Request<Incoming>| {
                let outbound = outbound.clone();
                async move { Ok::<_, Infallible>(outbound.answer(request).await) }
            })
        };
        HttpServer::default().serve(listener, make, drain).await
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let name = &self.0.settings.name;
        let forwarded = async {
            let (mut parts, body) = request.into_parts();
            parts.uri = match self.target(&parts.uri) {
                Ok(uri) => uri,
                Err(error) => return problem(StatusCode::BAD_REQUEST, &error, None),
            };
            parts.version = Version::HTTP_11;
            strip_hop_by_hop(&mut parts.headers);
            parts.headers.insert(header::HOST, self.0.host.clone());
            if let Some((name, value)) = &self.0.credential {
                parts.headers.insert(name, value.clone());
            }
            parts.extensions.clear();
            let Ok(body) = RequestBody::of(body).await else {
                return problem(StatusCode::BAD_REQUEST, &"the body of the request broke off", None);
            };
            let answer = self.0.service.clone().call(Request::from_parts(parts, body)).await;
            answer.map_or_else(|error| self.failure(&error), pass_back)
        };
        // Boxed: the future of a call is large, and moved by the timeout.
        timeout(self.0.settings.timeout, Box::pin(forwarded)).await.unwrap_or_else(|_| {
            let time = self.0.settings.timeout;
            let detail = format!("no response from `{name}` within {time:?} (`timeout` of `outbound`)");
            problem(StatusCode::GATEWAY_TIMEOUT, &detail, None)
        })
    }

    fn target(&self, uri: &Uri) -> Result<Uri, http::Error> {
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = self.0.settings.upstream.target(path);
        Uri::builder()
            .scheme(self.0.scheme.clone())
            .authority(self.0.authority.clone())
            .path_and_query(path)
            .build()
    }

    fn failure(&self, error: &Error<legacy::Error>) -> Response<ResponseBody> {
        let name = &self.0.settings.name;
        if let Error::GaveUp(gave_up) = error {
            tracing::info!(outbound = %name, %gave_up, "a call was not sent");
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let wait = match gave_up.cause {
                GaveUpCause::QueueFull => Some(std::time::Duration::from_secs(1)),
                _ => gave_up.cause.ready_in(),
            };
            problem(status, gave_up, wait)
        } else {
            tracing::warn!(outbound = %name, error = %in_full(error), "a call failed");
            problem(StatusCode::BAD_GATEWAY, &format!("`{name}` could not be reached, or broke off"), None)
        }
    }
}

fn pass_back(response: Response<Incoming>) -> Response<ResponseBody> {
    let mut response = response.map(BodyExt::boxed);
    *response.version_mut() = Version::HTTP_11;
    strip_hop_by_hop(response.headers_mut());
    response
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').filter_map(|name| name.trim().parse().ok()))
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Returns an error with its causes.
fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
