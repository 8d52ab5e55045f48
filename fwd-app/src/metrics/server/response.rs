//! Parses requests and builds responses.

use super::super::exposition::{MetricFamily, TextFormat};
use super::super::snapshot::{BuildFacts, Snapshot};
use super::super::{SharedSnapshot, families};
use crate::report::output::JsonDocument;
use httparse::{EMPTY_HEADER, Error, Request, Status};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

const HEADERS_MAX: usize = 64;
/// The page. NONCE is replaced in each response.
const PAGE: &str = include_str!("../page.html");

type StatusLine = &'static str;
const OK: StatusLine = "200 OK";
const BAD_REQUEST: StatusLine = "400 Bad Request";
const NOT_FOUND: StatusLine = "404 Not Found";
const NOT_ALLOWED: StatusLine = "405 Method Not Allowed";
const TOO_LARGE: StatusLine = "431 Request Header Fields Too Large";
const UNAVAILABLE: StatusLine = "503 Service Unavailable";

struct Response {
    status: StatusLine,
    content_type: &'static str,
    /// Additional headers, each with its line end.
    headers: String,
    body: String,
}

impl Response {
    fn text(status: StatusLine, body: &str) -> Self {
        let headers = String::new();
        Self { status, content_type: "text/plain; charset=utf-8", headers, body: format!("{body}\n") }
    }

    /// Serialises the response; without the body for HEAD.
    fn bytes(self, is_head: bool) -> Vec<u8> {
        let Self { status, content_type, headers, body } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             {headers}\r\n"
        );
        let mut bytes = head.into_bytes();
        if !is_head {
            bytes.extend_from_slice(body.as_bytes());
        }
        bytes
    }
}

struct FixedText {
    snapshot: Arc<Snapshot>,
    format: TextFormat,
    text: String,
}

pub(super) struct Responder {
    shared: SharedSnapshot,
    build: BuildFacts,
    fixed: Vec<FixedText>,
}

impl Responder {
    pub(super) fn new(shared: SharedSnapshot) -> Self {
        Self { shared, build: BuildFacts::here(), fixed: Vec::new() }
    }

    /// The response to a request of which `bytes` have arrived; `None` while it is incomplete. A body is ignored.
    pub(super) fn answer(&mut self, bytes: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let mut headers = [EMPTY_HEADER; HEADERS_MAX];
        let mut request = Request::new(&mut headers);
        let wrong = match request.parse(bytes) {
            Ok(Status::Complete(head)) if head <= bytes_max => {
                return Some(self.answer_to(&request).bytes(request.method == Some("HEAD")));
            }
            Ok(Status::Partial) if bytes.len() < bytes_max => return None,
            Ok(_) => {
                Response::text(TOO_LARGE, &format!("a request has at most {bytes_max} bytes of headers"))
            }
            Err(Error::TooManyHeaders) => {
                Response::text(TOO_LARGE, &format!("a request has at most {HEADERS_MAX} headers"))
            }
            Err(error) => Response::text(BAD_REQUEST, &format!("this is not an HTTP/1 request: {error}")),
        };
        Some(wrong.bytes(false))
    }

    fn answer_to(&mut self, request: &Request<'_, '_>) -> Response {
        if !matches!(request.method, Some("GET" | "HEAD")) {
            let headers = "Allow: GET, HEAD\r\n".to_owned();
            return Response { headers, ..Response::text(NOT_ALLOWED, "only GET and HEAD are answered") };
        }
        let path = request.path.unwrap_or_default();
        match path.split('?').next().unwrap_or_default() {
            "/" => Self::page(),
            "/metrics" => self.metrics(accepted(request)),
            "/snapshot.json" => self.json(),
            _ => Response::text(NOT_FOUND, "not found; the paths are /, /metrics and /snapshot.json"),
        }
    }

    fn page() -> Response {
        // Each `RandomState` has different keys.
        let nonce = format!("{:016x}", RandomState::new().build_hasher().finish());
        let policy = format!(
            "Content-Security-Policy: default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n"
        );
        let body = PAGE.replace("NONCE", &nonce);
        Response { status: OK, content_type: "text/html; charset=utf-8", headers: policy, body }
    }

    fn json(&self) -> Response {
        let content_type = "application/json";
        let shown = self.shared.load_full();
        let Some(shown) = shown else {
            let body = "{\"error\":\"the forwarder is starting\"}\n".to_owned();
            return Response { status: UNAVAILABLE, content_type, headers: String::new(), body };
        };
        match serde_json::to_string(&JsonDocument::new("snapshot", &*shown)) {
            Ok(text) => Response { status: OK, content_type, headers: String::new(), body: text + "\n" },
            Err(error) => Response::text("500 Internal Server Error", &error.to_string()),
        }
    }

    fn metrics(&mut self, format: TextFormat) -> Response {
        let mut body = String::new();
        write(&families::of_program(&self.build), format, &mut body);
        if let Some(snapshot) = self.shared.load_full() {
            write(&families::ages(&snapshot), format, &mut body);
            body.push_str(self.fixed(&snapshot, format));
        }
        body.push_str(format.end());
        Response {
            status: OK,
            content_type: format.content_type(),
            headers: "Vary: Accept\r\n".to_owned(),
            body,
        }
    }

    fn fixed(&mut self, snapshot: &Arc<Snapshot>, format: TextFormat) -> &str {
        self.fixed.retain(|fixed| Arc::ptr_eq(&fixed.snapshot, snapshot));
        let at = self.fixed.iter().position(|fixed| fixed.format == format).unwrap_or_else(|| {
            let mut text = String::new();
            write(&families::of_snapshot(snapshot), format, &mut text);
            self.fixed.push(FixedText { snapshot: Arc::clone(snapshot), format, text });
            self.fixed.len() - 1
        });
        &self.fixed[at].text
    }
}

fn write(families: &[MetricFamily], format: TextFormat, text: &mut String) {
    families.iter().for_each(|family| family.write(format, text));
}

fn accepted(request: &Request<'_, '_>) -> TextFormat {
    let accepts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let types: Vec<_> = accepts.filter_map(|header| std::str::from_utf8(header.value).ok()).collect();
    TextFormat::accepted(&types.join(","))
}
