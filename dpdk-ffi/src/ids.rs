//! Newtypes for indices that are easily mixed up.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A port's number, assigned by DPDK.
    PortId(u16)
);
id!(
    /// A queue's number within its port and direction, from 0.
    QueueId(u16)
);
id!(
    /// A logical core of EAL: the number in `-l` and `--lcores`.
    LcoreId(u32)
);
id!(
    /// A NUMA node, or [`SocketId::ANY`].
    SocketId(i32)
);

impl SocketId {
    /// Any node (`SOCKET_ID_ANY`): DPDK takes the first with free memory.
    pub const ANY: SocketId = SocketId(-1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_as_their_number_and_keep_the_width_asked() {
        assert_eq!(format!("{:>4}|{}|{}", PortId(7), QueueId(3), SocketId::ANY), "   7|3|-1");
    }
}
