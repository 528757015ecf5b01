//! Well-known field names of JSON and CSV logs.
//!
//! They cover variables of nginx, Caddy, Traefik, Envoy, the Elastic Common Schema, and the load balancers and
//! gateways of AWS, Google Cloud and Cloudflare. Names are in lower case and compared without case. If a line has
//! several of them, the first in the list counts. The cost has no well-known name: only the user knows the cost of a
//! request.

/// Properties as `--field` names them, each with its well-known field names, separated by blanks.
pub(super) const KNOWN: [(&str, &str); 13] = [
    (
        "time",
        "msec startutc start_time @timestamp timestamp ts time_iso8601 time_local datetime requesttimeepoch \
         requesttime edgestarttimestamp request_creation_time event_time eventtime time date",
    ),
    (
        "ip",
        "client_ip clientip remote_addr remote_ip request.client_ip request.remote_ip client.ip source.ip \
         clienthost httprequest.clientip httprequest.remoteip downstream_remote_address identity.sourceip \
         client:port client_address remote_address source_ip src_ip c-ip remote_host remoteip ip client \
         x_forwarded_for http_x_forwarded_for",
    ),
    ("request", "request request_line"),
    (
        "method",
        "request_method method http_method httpmethod request.method http.request.method requestmethod \
         clientrequestmethod httprequest.httpmethod httprequest.requestmethod request_verb verb cs-method",
    ),
    (
        "path",
        "request_uri x-envoy-original-path uri path request.uri request_url requestpath request_path \
         url.original url.path url http.url clientrequesturi httprequest.requesturl httprequest.uri \
         resourcepath cs-uri-stem",
    ),
    ("query", "query_string args query url.query httprequest.args cs-uri-query"),
    (
        "host",
        "http_host request.host requesthost authority :authority host vhost url.domain clientrequesthost \
         domain_name server_name cs-host",
    ),
    ("user", "remote_user user_id userid user username user_name user.id user.name clientusername"),
    ("api_key", "api_key apikey http_x_api_key x_api_key identity.apikeyid"),
    ("tenant", "tenant tenant_id tenantid organization_id org_id customer_id"),
    (
        "status",
        "status status_code response_code response_status downstreamstatus elb_status_code \
         http.response.status_code httprequest.status edgeresponsestatus sc-status",
    ),
    (
        "header:user-agent",
        "http_user_agent user_agent request.headers.user-agent user_agent.original request_user-agent \
         httprequest.useragent clientrequestuseragent useragent agent",
    ),
    (
        "header:referer",
        "http_referer referer referrer request.headers.referer http.request.referrer request_referer \
         httprequest.referer clientrequestreferer",
    ),
];
