//! The types of problem documents (RFC 9457), with the start of their JSON.
//!
//! Type, title and status of a refusal are constant together, so they are one piece of the body.

use http::StatusCode;

/// A problem type, which has a fixed status unless the status was replaced for a proxy.
#[derive(Debug)]
pub(super) struct ProblemType {
    kind: &'static str,
    title: &'static str,
    status: StatusCode,
    /// The start of the JSON body with these values.
    start: &'static str,
}

/// The problem type without semantics beyond the status (RFC 9457, 4.2.1).
const ABOUT_BLANK: &str = "about:blank";

pub(super) static QUOTA_EXCEEDED: ProblemType = ProblemType {
    kind: "https://iana.org/assignments/http-problem-types#quota-exceeded",
    title: "Quota Exceeded",
    status: StatusCode::TOO_MANY_REQUESTS,
    start: concat!(
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
        r#""title":"Quota Exceeded","status":429,"detail":"#
    ),
};

pub(super) static REDUCED_CAPACITY: ProblemType = ProblemType {
    kind: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
    title: "Temporary Reduced Capacity",
    status: StatusCode::SERVICE_UNAVAILABLE,
    start: concat!(
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","#,
        r#""title":"Temporary Reduced Capacity","status":503,"detail":"#
    ),
};

pub(super) static TOO_MANY_REQUESTS: ProblemType = ProblemType {
    kind: ABOUT_BLANK,
    title: "Too Many Requests",
    status: StatusCode::TOO_MANY_REQUESTS,
    start: r#"{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"#,
};

pub(super) static FORBIDDEN: ProblemType = ProblemType {
    kind: ABOUT_BLANK,
    title: "Forbidden",
    status: StatusCode::FORBIDDEN,
    start: r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":"#,
};

pub(super) static BAD_REQUEST: ProblemType = ProblemType {
    kind: ABOUT_BLANK,
    title: "Bad Request",
    status: StatusCode::BAD_REQUEST,
    start: r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"#,
};

impl ProblemType {
    /// Writes the JSON body up to the value of `detail`.
    pub(super) fn write_start(&self, status: StatusCode, json: &mut Vec<u8>) {
        if status == self.status {
            json.extend_from_slice(self.start.as_bytes());
            return;
        }
        let parts = [
            r#"{"type":""#,
            self.kind,
            r#"","title":""#,
            self.title,
            r#"","status":"#,
            status.as_str(),
            r#","detail":"#,
        ];
        for part in parts {
            json.extend_from_slice(part.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prepared_start_has_the_values_of_its_type() {
        for problem in [&QUOTA_EXCEEDED, &REDUCED_CAPACITY, &TOO_MANY_REQUESTS, &FORBIDDEN, &BAD_REQUEST] {
            let (mut prepared, mut written) = (Vec::new(), Vec::new());
            problem.write_start(problem.status, &mut prepared);
            problem.write_start(StatusCode::IM_A_TEAPOT, &mut written);
            let written = String::from_utf8(written).unwrap().replace("418", problem.status.as_str());
            assert_eq!(String::from_utf8(prepared).unwrap(), written);
        }
    }
}
