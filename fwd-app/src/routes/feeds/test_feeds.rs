//! For tests: feeds without threads.

use super::*;

impl Feeds {
    pub(crate) fn ignoring_foreign(self) -> Self {
        Self { foreign: ForeignRoutes::Ignore, ..self }
    }

    /// Feeds fed by `receiver`, without threads; the first `before_files` of two are preferred to files.
    pub(crate) fn for_test(receiver: Receiver<ChangeSet>, before_files: u8, interfaces: Interfaces) -> Self {
        let mut order: Vec<_> = (0..2).map(SourceId::of_feed).collect();
        order.insert(before_files.into(), SourceId::FILES);
        Self {
            receiver,
            feeds: Vec::new(),
            order,
            routes_max: ROUTES_MAX,
            interfaces,
            foreign: ForeignRoutes::default(),
        }
    }
}
