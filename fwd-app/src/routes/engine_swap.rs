//! Replaces the engine of a VRF while its routes change.
//!
//! A thread builds the engine from a copy of the committed RIB; the VRF records changed prefixes. Then the control thread brings copy and
//! engine up to date with one delta, and gives lcores readers of the new engine. The copy needs the RIB's memory once more.
//!
//! No packet gets a result that is not in service. All stores to the new table precede the first reader: the join of the thread makes the
//! build's stores visible, and the control thread itself applies the delta. A reader reaches its lcore by
//! [`Handle::move_to`](crate::topology::Handle::move_to) between two batches, so a batch uses one engine; before this switch the lcore reads
//! the old one. The control thread commits nothing between that delta and the last lcore's switch, so the old engine's last generation has
//! the same routes as the new engine's first. Later changes go to the new engine alone, which all lcores then read. So each result belongs
//! to a generation between submit and collect.

use super::Vrf;
use super::vrf::never_forwarded;
use crate::engines::{EngineSpec, Made};
use crate::notice;
use crate::threads::join_within;
use crate::topology::Handle;
use anyhow::Context as _;
use fib::{EngineWriter, Family, IpPrefix, Rib, Routes};
use lpm_core::pair::Service;
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// When to warn of a long build. Slow engines take a minute for a full table.
const LATE: Duration = Duration::from_secs(120);
/// How long shutdown waits for a build.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Handling of routes of a family that the next engine lacks a table for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostFamilies {
    Refused,
    /// Leave out routes of feeds and addresses. Refuse the new engine if files or the control socket have such routes.
    LeftOut,
}

pub(crate) struct VrfEngine {
    pub(crate) spec: EngineSpec,
    /// The engine; with a fallback, the pair of engines.
    pub(super) writer: Box<dyn EngineWriter>,
    /// The previous engine, which stopping stages may still read.
    pub(super) retired: Option<Box<dyn EngineWriter>>,
    pub(super) building: Option<Building>,
    /// Which of the two engines answers; `None` without a fallback.
    pub(crate) failover: Option<Arc<Service>>,
    /// Whether other VRFs share its memory.
    pub(crate) is_shared: bool,
}

impl VrfEngine {
    /// The batch size measured for a latency target, the smaller of both families; `None` without a measurement.
    pub(crate) fn batch_measured(&self) -> Option<u32> {
        let details = self.writer.stats().details;
        let keys = f64::min(details.get("batch")?, details.get("batch_v6")?);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count; saturates")]
        self.spec.latency_target_us.map(|_| keys as u32)
    }

    /// # Errors
    /// When an engine is being built.
    pub(crate) fn check_not_building(&self) -> anyhow::Result<()> {
        if let Some(Building { spec, .. }) = &self.building {
            anyhow::bail!("engine {} is being built; try again when it is in service", spec.name);
        }
        Ok(())
    }

    pub(crate) fn is_building_part(&self) -> bool {
        self.building.as_ref().is_some_and(|building| building.is_shared && !building.is_finished())
    }
}

pub(super) struct Building {
    spec: EngineSpec,
    lost: LostFamilies,
    is_shared: bool,
    /// Prefixes set since the copy was made.
    pub(super) changed: FxHashSet<IpPrefix>,
    /// Returns the engine, its routes and the build time in seconds; `None` once joined.
    thread: Option<JoinHandle<anyhow::Result<(Made, Rib, f64)>>>,
    since: Instant,
    is_late: bool,
    end_limit: Duration,
}

impl Building {
    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn notice(&mut self) {
        if self.since.elapsed() >= LATE && !std::mem::replace(&mut self.is_late, true) {
            let (name, s) = (&self.spec.name, self.since.elapsed().as_secs());
            notice::warn(format_args!(
                "engine {name} has been under construction for {s} s; the engine in service stays"
            ));
        }
    }
}

impl Drop for Building {
    /// Waits for the build, since an engine may use a device that must outlive it. A stuck build is abandoned.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && join_within(thread, self.end_limit).is_err()
        {
            notice::warn(format_args!("engine {} is still being built, and is abandoned", self.spec.name));
        }
    }
}

impl Vrf {
    /// Commits pending updates, then begins to build `made`, or an engine of `spec`. [`Self::finish_engine`] switches to it.
    ///
    /// # Errors
    /// When another one is being built, the commit fails, or the system refuses a thread.
    pub(crate) fn build_engine(
        &mut self,
        spec: EngineSpec,
        lost: LostFamilies,
        made: Option<Made>,
    ) -> anyhow::Result<()> {
        self.engine.check_not_building()?;
        self.commit()?;
        let (mut rib, make) = (self.rib.clone(), spec.clone());
        let is_shared = made.as_ref().is_some_and(|made| made.is_shared);
        let build = move || {
            let mut made = made.map_or_else(|| make.make_with_fallback(), Ok)?;
            let start = Instant::now();
            leave_out(&mut rib, made.engine.as_ref());
            rib.move_to(made.engine.as_mut()).with_context(|| too_large(&made, &rib))?;
            Ok((made, rib, start.elapsed().as_secs_f64()))
        };
        // It inherits this thread's CPU set, which excludes the lcores.
        let thread = Builder::new().name("engine".into()).spawn(build).context("cannot build an engine")?;
        self.engine.building = Some(Building {
            spec,
            lost,
            is_shared,
            changed: FxHashSet::default(),
            thread: Some(thread),
            since: Instant::now(),
            is_late: false,
            end_limit: END_LIMIT,
        });
        Ok(())
    }

    /// Switches to an engine whose build has ended, and gives its readers to the lcores of `running`; `None` until then.
    ///
    /// # Errors
    /// [`EngineError`](fib::EngineError) for an engine that could not be made or cannot hold the table,
    /// [`NoAnswer`](crate::topology::handle::NoAnswer) when an lcore does not switch in time. The engine in service then stays.
    pub(crate) fn finish_engine(&mut self, running: &Handle) -> Option<anyhow::Result<()>> {
        self.engine.building.iter_mut().for_each(Building::notice);
        let building = self.engine.building.take_if(|building| building.is_finished())?;
        Some(self.take_over(building, running))
    }

    fn take_over(&mut self, mut building: Building, running: &Handle) -> anyhow::Result<()> {
        let thread = building.thread.take().context("the engine has been joined")?;
        let built =
            thread.join().map_err(|_| anyhow::anyhow!("the thread that builds an engine has panicked"))?;
        let (mut made, mut rib, build_s) = built?;
        self.commit()?;
        self.check_families(made.engine.as_ref(), building.lost)?;
        // One delta, since the changes may be as many as the routes of a full table.
        let (info, before) = (made.engine.info(), self.engine().info());
        for prefix in building.changed.drain().filter(|prefix| info.has_family(prefix.family())) {
            rib.set(prefix, self.rib.get(prefix));
        }
        let has_other_tables = Family::ALL.iter().any(|of| info.has_family(*of) != before.has_family(*of));
        rib.commit_to(made.engine.as_mut()).with_context(|| too_large(&made, &rib))?;
        debug_assert!(
            has_other_tables || rib.v4.iter().eq(self.rib.v4.iter()) && rib.v6.iter().eq(self.rib.v6.iter())
        );
        // Where the new engine lacks a table for a family, its answers differ.
        let moved = self.audit.during(|| running.move_to(self.egress.number, made.engine.as_ref()));
        moved.context("lcores keep their current engine")?;
        self.tally.build_s = build_s;
        let VrfEngine { spec, writer, retired, failover, is_shared, .. } = &mut self.engine;
        let before = std::mem::replace(writer, made.engine);
        // Stopping stages may still hold the last batches of the previous engine.
        *retired = Some(before).filter(|_| running.is_stopping());
        (self.rib, *failover, *spec, *is_shared) = (rib, made.service, building.spec.clone(), made.is_shared);
        self.refused.retry_now();
        self.egress.neighbours_have_changed();
        self.set_families();
        self.follow_audit();
        Ok(())
    }

    /// Refuses an engine that lacks a table for routes of files or the control socket; for routes of feeds and addresses, unless `lost`
    /// allows it.
    fn check_families(&self, engine: &dyn EngineWriter, lost: LostFamilies) -> anyhow::Result<()> {
        let (info, before) = (engine.info(), self.engine().info());
        for family in Family::ALL.into_iter().filter(|family| !info.has_family(*family)) {
            let routes = self.user_routes[family as usize];
            anyhow::ensure!(
                routes == 0,
                "engine {} has no table for {family}, and {routes} routes of files and ctl are of this family",
                info.name
            );
            let others = if before.has_family(family) { self.forwarded_len(family) } else { 0 };
            anyhow::ensure!(
                others == 0 || lost == LostFamilies::LeftOut,
                "engine {} has no table for {family}, and {others} routes of feeds and addresses are of this family; \
                 'set engine {} force' leaves them out",
                info.name,
                info.name
            );
        }
        Ok(())
    }

    /// The number of routes of a family, without routes within [`never_forwarded`].
    fn forwarded_len(&self, family: Family) -> usize {
        let len = if family == Family::V4 { self.rib.v4.len() } else { self.rib.v6.len() };
        let local = never_forwarded().into_iter().filter(|wide| wide.family() == family);
        let within = |wide: IpPrefix| {
            self.rib.starting_at(wide).take_while(move |(prefix, _)| wide.covers(*prefix)).count()
        };
        len - local.map(within).sum::<usize>()
    }
}

/// Removes the routes of families that `engine` lacks a table for from `rib`, which has no uncommitted changes.
fn leave_out(rib: &mut Rib, engine: &dyn EngineWriter) {
    let mut gone = Routes::default();
    if !engine.info().has_family(Family::V4) {
        gone.v4 = rib.v4.withdrawn();
    }
    if !engine.info().has_family(Family::V6) {
        gone.v6 = rib.v6.withdrawn();
    }
    rib.announce(&gone);
    rib.take_delta();
}

fn too_large(made: &Made, rib: &Rib) -> String {
    format!("engine {} cannot hold this table of {} routes", made.engine.info().name, rib.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::test_vrf::vrf;
    use fib::faulty::{Call, Faults, FaultyEngine, How};
    use fib::feed::{Action, Hop, Update};
    use fib::{Keys, NextHopId, Prefix4};
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    fn prefix(number: u32) -> IpPrefix {
        IpPrefix::V4(Prefix4::truncating(0xc612_0000 + (number << 8), 24))
    }

    fn set(vrf: &mut Vrf, number: u32, id: Option<u32>) {
        let action = id.map_or(Action::Withdraw, |id| Action::Announce(Hop::Id(NextHopId::new(id).unwrap())));
        vrf.update(&Update { time_s: 0.0, prefix: prefix(number), action, peer: None }).unwrap();
        vrf.commit().unwrap();
    }

    fn lookup(vrf: &Vrf, number: u32) -> u32 {
        let mut answer = [NextHopId::NONE];
        let key = 0xc612_0001 + (number << 8);
        vrf.engine().reader(1, 1).unwrap().lookup(Keys::V4(&[key]), &mut answer).unwrap();
        answer[0].get()
    }

    /// Begins to build an engine whose `apply` blocks until `faults` releases it.
    fn build_slowly(vrf: &mut Vrf, faults: &Arc<Faults>) {
        faults.hang_in_apply.store(true, Ordering::SeqCst);
        let made = Made { engine: Box::new(FaultyEngine::new(faults)), service: None, is_shared: false };
        vrf.build_engine(EngineSpec::named("oracle"), LostFamilies::Refused, Some(made)).unwrap();
    }

    fn finish(vrf: &mut Vrf, faults: &Faults) -> anyhow::Result<()> {
        faults.hang_in_apply.store(false, Ordering::SeqCst);
        loop {
            if let Some(result) = vrf.finish_engine(&Handle::default()) {
                return result;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn changes_while_an_engine_is_built_are_in_both() {
        let mut vrf = vrf();
        let faults = Arc::new(Faults::default());
        (0..100).for_each(|number| set(&mut vrf, number, Some(1000 + number)));
        build_slowly(&mut vrf, &faults);
        assert!(vrf.finish_engine(&Handle::default()).is_none(), "it is being built");
        let refused = vrf
            .build_engine(EngineSpec::named("oracle"), LostFamilies::Refused, None)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("is being built"), "{refused}");
        // Replaced, withdrawn, added, added and withdrawn, changed and restored.
        (0..50).for_each(|number| set(&mut vrf, number, Some(2000 + number)));
        (50..70).for_each(|number| set(&mut vrf, number, None));
        (100..150).for_each(|number| set(&mut vrf, number, Some(3000 + number)));
        (140..150).for_each(|number| set(&mut vrf, number, None));
        (70..80).for_each(|number| set(&mut vrf, number, Some(1)));
        (70..80).for_each(|number| set(&mut vrf, number, Some(1000 + number)));
        let wanted: Vec<_> = (0..160).map(|number| lookup(&vrf, number)).collect();
        assert_eq!((wanted[0], wanted[70], wanted[100]), (2000, 1070, 3100), "they are in service at once");
        assert_eq!(vrf.engine().info().name, "oracle");

        finish(&mut vrf, &faults).unwrap();
        assert_eq!(vrf.engine().info().name, "fake");
        assert_eq!((0..160).map(|number| lookup(&vrf, number)).collect::<Vec<_>>(), wanted);
        assert_eq!(faults.calls(Call::Apply), 2, "the table, and what has changed since");
        set(&mut vrf, 0, Some(7));
        assert_eq!(lookup(&vrf, 0), 7);
        assert!(vrf.finish_engine(&Handle::default()).is_none());
    }

    #[test]
    fn an_engine_that_cannot_be_built_or_catch_up_is_not_taken() {
        for at in [0, 1] {
            let mut vrf = vrf();
            let faults = Arc::new(Faults::default());
            build_slowly(&mut vrf, &faults);
            faults.fail_from(Call::Apply, at, How::Full);
            set(&mut vrf, 0, Some(9));
            let error = finish(&mut vrf, &faults).unwrap_err();
            assert!(format!("{error:#}").contains("engine fake cannot hold this table"), "{error:#}");
            assert_eq!((vrf.engine().info().name, lookup(&vrf, 0)), ("oracle", 9));
            set(&mut vrf, 0, Some(10));
            assert_eq!(lookup(&vrf, 0), 10);
        }
    }

    #[test]
    fn a_build_that_is_stuck_does_not_hold_up_the_end() {
        let mut vrf = vrf();
        let faults = Arc::new(Faults::default());
        build_slowly(&mut vrf, &faults);
        let building = vrf.engine.building.as_mut().unwrap();
        building.end_limit = Duration::from_millis(20);
        building.since = Instant::now().checked_sub(LATE).unwrap();
        assert!(vrf.finish_engine(&Handle::default()).is_none());
        assert!(vrf.engine.building.as_ref().unwrap().is_late, "there was a warning");
        drop(vrf);
        faults.hang_in_apply.store(false, Ordering::SeqCst);
    }

    #[test]
    fn a_build_that_panics_is_an_error() {
        let mut vrf = vrf();
        let faults = Arc::new(Faults::default());
        faults.die_in_apply.store(true, Ordering::SeqCst);
        build_slowly(&mut vrf, &faults);
        assert!(finish(&mut vrf, &faults).unwrap_err().to_string().contains("panicked"));
        assert_eq!(vrf.engine().info().name, "oracle");
    }
}
