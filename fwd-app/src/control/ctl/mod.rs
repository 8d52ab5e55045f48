//! Steering a running forwarder over a local socket, with testpmd's words.
//!
//! ```text
//! client --line of JSON--> socket -> [server: words -> Request] --bounded channel--> Inbox -> Steer (the control thread)
//!        <--line of JSON--           [bytes <- Answer]          <-----channel-----
//! ```
//!
//! The protocol is one line of JSON for each request, and one for each reply, in the order of the requests:
//!
//! ```text
//! {"line": "show drops", "json": true}                        json is optional: text is the default
//! {"ok":true,"data":{"no_route":7}}                           with "json": true
//! {"ok":true,"text":"no_route  7\n"}                          without
//! {"ok":false,"error":"'dropz' is not understood here, .."}   refused, nothing has changed
//! ```
//!
//! So any program can be a client: `echo '{"line": "show drops"}' | socat - UNIX-CONNECT:/run/fwd-app/rte.sock`.
//!
//! The server has a thread of its own, which polls all clients and never waits for one of them. It shares nothing with lcores, and
//! with the control thread only the two channels. The control thread takes requests when it gets round to it ([`Inbox::serve`]);
//! nobody but the client waits for the answer. What a client may cost is bounded: clients, bytes of a request and of a reply,
//! requests on their way to the session (one a client), and how long a client may neither write nor read.
//!
//! | module | what lives there |
//! |---|---|
//! | [`request`] | [`Request`]: what the session is asked for |
//! | [`words`], [`table`] | the grammar: parser, help and completion over one table of commands |
//! | [`answer`], [`columns`] | [`Answer`], [`Refusal`]: the value behind a reply, and lists as text |
//! | [`inbox`] | [`Inbox`], [`Steer`]: the session's end |
//! | [`wire`] | requests and replies as bytes |
//! | [`connection`] | one client, without its socket: bytes in, requests and bytes out |
//! | [`socket`] | the socket file: who may use it, who owns it, when it is removed |
//! | [`server`] | the thread that polls all clients |
//! | [`client`] | asks a forwarder |

pub(crate) mod answer;
pub(crate) mod client;
pub(crate) mod columns;
pub(crate) mod connection;
pub(crate) mod inbox;
pub(crate) mod request;
pub(crate) mod server;
#[cfg(test)]
mod server_test;
pub(crate) mod socket;
mod table;
pub(crate) mod wire;
pub(crate) mod words;
#[cfg(test)]
mod words_test;

pub(crate) use answer::{Answer, Refusal};
pub(crate) use inbox::{Command, Inbox, Steer};
pub(crate) use request::Request;
pub(crate) use server::Server;
