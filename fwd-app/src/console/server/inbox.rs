//! The control thread's end of the control socket.

use crate::console::answer::{Answer, Refusal};
use crate::console::grammar::request::Request;
use crossbeam_channel::{Receiver, Sender};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Limit of each queue, for root and the own user and for others; further requests are refused.
pub(super) const WAITING_MAX: usize = 64;

pub(crate) trait Steer {
    /// Carries out a request, or refuses it and changes nothing.
    ///
    /// # Errors
    /// [`Refusal`], which is shown to the client.
    fn answer(&mut self, request: Request) -> Result<Answer, Refusal>;
}

pub(crate) struct Inbox {
    /// From root and the own user.
    waiting: Receiver<ClientCommand>,
    /// From members of groups.
    of_others: Receiver<ClientCommand>,
}

impl Inbox {
    pub(super) fn new(waiting: Receiver<ClientCommand>, of_others: Receiver<ClientCommand>) -> Self {
        Self { waiting, of_others }
    }

    /// The next request, if there is one: first from root or the own user, then with `others` from other users.
    pub(crate) fn next(&self, others: bool) -> Option<ClientCommand> {
        let next = || if others { self.of_others.try_recv().ok() } else { None };
        self.waiting.try_recv().ok().or_else(next)
    }

    /// Answers queued requests in order, up to `at_most`. Returns their number.
    #[cfg(test)]
    pub(crate) fn serve(&self, steer: &mut impl Steer, at_most: usize) -> usize {
        let commands = std::iter::from_fn(|| self.next(true)).take(at_most);
        commands.map(|command| command.answer_by(|request| steer.answer(request))).count()
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> &Receiver<ClientCommand> {
        &self.waiting
    }
}

/// A request, the file passed with it, and the way to its client. Dropping it answers [`Refusal::Ended`].
#[derive(Debug)]
pub(crate) struct ClientCommand {
    request: Request,
    file: Option<File>,
    way_back: WayBack,
}

impl ClientCommand {
    pub(super) fn new(request: Request, file: Option<File>, client: u64, replies: &Replies) -> Self {
        Self { request, file, way_back: WayBack { client, replies: Some(replies.clone()) } }
    }

    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    pub(crate) fn take_file(&mut self) -> Option<File> {
        self.file.take()
    }

    /// Sends the answer; does not block.
    pub(crate) fn answer(self, result: Result<Answer, Refusal>) {
        self.answer_by(|_| result);
    }

    /// Sends the result of `answer`; does not block.
    pub(crate) fn answer_by(self, answer: impl FnOnce(Request) -> Result<Answer, Refusal>) {
        let Self { request, mut way_back, .. } = self;
        way_back.send(answer(request));
    }
}

/// Sends answers to the server's thread, and wakes it.
#[derive(Clone, Debug)]
pub(super) struct Replies {
    /// Unbounded, but limited by the clients and [`WAITING_MAX`]: each answer belongs to a command.
    pub(super) sender: Sender<(u64, Result<Answer, Refusal>)>,
    pub(super) waker: Arc<UnixStream>,
}

impl Replies {
    pub(super) fn wake(&self) {
        // A full socket also wakes the server.
        let _ = (&*self.waker).write(&[0]);
    }
}

#[derive(Debug)]
struct WayBack {
    client: u64,
    replies: Option<Replies>,
}

impl WayBack {
    fn send(&mut self, result: Result<Answer, Refusal>) {
        if let Some(replies) = self.replies.take() {
            let _ = replies.sender.send((self.client, result));
            replies.wake();
        }
    }
}

impl Drop for WayBack {
    fn drop(&mut self) {
        self.send(Err(Refusal::Ended));
    }
}
