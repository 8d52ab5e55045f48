//! Access control of the control socket.
//!
//! The kernel gives the client's user (`SO_PEERCRED`). Root and the forwarder's own user have all rights; two groups have all rights or
//! read rights. A separate thread looks up groups, since a name service may block (LDAP).

use crate::threads::spawn;
use crossbeam_channel::{Receiver, Sender, bounded};
use nix::unistd::{Gid, Uid, User, getgrouplist};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::ffi::CString;
use std::io;
use std::os::unix::net::UnixStream;

/// Clients that may wait for a lookup.
const LOOKUPS_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientRights {
    None,
    Read,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientUser {
    /// Root or the forwarder's own user, with all rights.
    Own,
    /// Another user, and the group of its process.
    Other { user: u32, group: u32 },
}

/// Groups with access, in addition to root and the forwarder's own user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CtlGroups {
    pub(crate) all: Option<u32>,
    pub(crate) read: Option<u32>,
}

impl CtlGroups {
    /// Whether a group is set, so that the socket's mode must let others connect.
    pub(super) const fn is_some(self) -> bool {
        self.all.is_some() || self.read.is_some()
    }

    pub(super) fn user_of(self, stream: &UnixStream) -> io::Result<ClientUser> {
        // Without groups the socket's mode keeps other users away.
        if !self.is_some() {
            return Ok(ClientUser::Own);
        }
        let peer = socket_peercred(stream)?;
        let user = peer.uid.as_raw();
        let is_own = user == 0 || user == geteuid().as_raw();
        Ok(if is_own { ClientUser::Own } else { ClientUser::Other { user, group: peer.gid.as_raw() } })
    }

    /// Looks up the rights of another user whose process has the group `group`. May block on a name service.
    fn rights_of(self, user: u32, group: u32) -> ClientRights {
        self.rights(&groups_of(user, group))
    }

    fn rights(self, groups: &[u32]) -> ClientRights {
        let is_in = |group: Option<u32>| group.is_some_and(|group| groups.contains(&group));
        match (is_in(self.all), is_in(self.read)) {
            (true, _) => ClientRights::All,
            (false, true) => ClientRights::Read,
            (false, false) => ClientRights::None,
        }
    }
}

#[derive(Debug)]
pub(super) struct GroupLookups {
    asked: Sender<(UnixStream, u32, u32)>,
    pub(super) found: Receiver<(UnixStream, ClientRights)>,
}

impl GroupLookups {
    /// Starts the thread, which calls `wake` after each lookup. It ends with this value, unless a name service blocks it.
    pub(super) fn start(groups: CtlGroups, wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (asked, to_look_up) = bounded::<(UnixStream, u32, u32)>(LOOKUPS_MAX);
        let (sender, found) = bounded(LOOKUPS_MAX);
        spawn("ctl-groups", move || {
            for (stream, user, group) in to_look_up {
                if sender.send((stream, groups.rights_of(user, group))).is_err() {
                    return;
                }
                wake();
            }
        })?;
        Ok(Self { asked, found })
    }

    /// Queues a lookup; returns the client when the queue is full.
    pub(super) fn ask(&self, stream: UnixStream, user: u32, group: u32) -> Result<(), UnixStream> {
        self.asked.try_send((stream, user, group)).map_err(|refused| refused.into_inner().0)
    }
}

fn groups_of(user: u32, group: u32) -> Vec<u32> {
    let name =
        User::from_uid(Uid::from_raw(user)).ok().flatten().and_then(|user| CString::new(user.name).ok());
    let listed = name.and_then(|name| getgrouplist(&name, Gid::from_raw(group)).ok());
    listed.into_iter().flatten().map(Gid::as_raw).chain([group]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_the_groups_may_do_what_these_may() {
        let groups = CtlGroups { all: Some(10), read: Some(20) };
        for (of, rights) in [
            (&[5, 10][..], ClientRights::All),
            (&[20, 10], ClientRights::All),
            (&[20, 5], ClientRights::Read),
            (&[5], ClientRights::None),
        ] {
            assert_eq!(groups.rights(of), rights, "{of:?}");
        }
        assert_eq!(CtlGroups { all: None, read: Some(20) }.rights(&[10]), ClientRights::None);
    }

    #[test]
    fn a_process_has_its_own_group_whoever_its_user_is() {
        assert!(groups_of(0, 4_000_000).contains(&4_000_000));
        assert_eq!(groups_of(3_999_999, 7), [7]);
    }

    #[test]
    fn the_own_user_may_do_everything() {
        let (one, _other) = UnixStream::pair().unwrap();
        let groups = CtlGroups { all: None, read: Some(1) };
        assert_eq!(groups.user_of(&one).unwrap(), ClientUser::Own);
        assert_eq!(CtlGroups::default().user_of(&one).unwrap(), ClientUser::Own);
    }
}
