//! The forwarder's end of the control socket: requests that wait, and who answers them.

use crate::console::answer::{Answer, Refusal};
use crate::console::grammar::request::Request;
use crossbeam_channel::{Receiver, Sender};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Requests of the own user and root, and requests of others, that may wait for the forwarder; further ones are refused.
pub(super) const WAITING_MAX: usize = 64;

/// Answers requests: the forwarder on its control thread.
pub(crate) trait Steer {
    /// Does what is asked for, or refuses and changes nothing.
    ///
    /// # Errors
    /// [`Refusal`], which the client is shown.
    fn answer(&mut self, request: Request) -> Result<Answer, Refusal>;
}

/// Requests that wait for an answer.
pub(crate) struct Inbox {
    /// Of root and the own user.
    waiting: Receiver<ClientCommand>,
    /// Of members of groups.
    of_others: Receiver<ClientCommand>,
}

impl Inbox {
    pub(super) fn new(waiting: Receiver<ClientCommand>, of_others: Receiver<ClientCommand>) -> Self {
        Self { waiting, of_others }
    }

    /// The next request: one of root or the own user, else with `others` one of another user. Does not wait.
    pub(crate) fn next(&self, others: bool) -> Option<ClientCommand> {
        let next = || if others { self.of_others.try_recv().ok() } else { None };
        self.waiting.try_recv().ok().or_else(next)
    }

    /// Answers requests that wait, `at_most` so many, in the order they came. Returns how many that were. Does not wait.
    #[cfg(test)]
    pub(crate) fn serve(&self, steer: &mut impl Steer, at_most: usize) -> usize {
        let commands = std::iter::from_fn(|| self.next(true)).take(at_most);
        commands.map(|command| command.answer_by(|request| steer.answer(request))).count()
    }

    /// The requests of root and the own user.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> &Receiver<ClientCommand> {
        &self.waiting
    }
}

/// A request, the open file that came with it, and the way back to its client. A command that is dropped is answered with [`Refusal::Ended`].
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

    /// The request.
    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// Takes the file, if one came that the request needs.
    pub(crate) fn take_file(&mut self) -> Option<File> {
        self.file.take()
    }

    /// Sends the answer. Does not wait.
    pub(crate) fn answer(self, result: Result<Answer, Refusal>) {
        self.answer_by(|_| result);
    }

    /// Sends the answer that `answer` gives to the request. Does not wait.
    pub(crate) fn answer_by(self, answer: impl FnOnce(Request) -> Result<Answer, Refusal>) {
        let Self { request, mut way_back, .. } = self;
        way_back.send(answer(request));
    }
}

/// Where answers go: to the server's thread, which is woken up.
#[derive(Clone, Debug)]
pub(super) struct Replies {
    /// Unbounded, yet no longer than the clients and [`WAITING_MAX`]: each answer belongs to a command.
    pub(super) sender: Sender<(u64, Result<Answer, Refusal>)>,
    /// The server polls its other end.
    pub(super) waker: Arc<UnixStream>,
}

impl Replies {
    pub(super) fn wake(&self) {
        // A full socket wakes as well.
        let _ = (&*self.waker).write(&[0]);
    }
}

#[derive(Debug)]
struct WayBack {
    client: u64,
    /// `None` once the answer is sent.
    replies: Option<Replies>,
}

impl WayBack {
    fn send(&mut self, result: Result<Answer, Refusal>) {
        if let Some(replies) = self.replies.take() {
            // A server that has ended needs no answers.
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
