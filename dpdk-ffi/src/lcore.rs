//! lcores: EAL's threads. Calls with an lcore that EAL lacks fail with [`DpdkError::UnknownLcore`].

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::eal::{Eal, Token};
use crate::error::DpdkError;
use crate::ids::{LcoreId, SocketId};
use crate::sys;

/// Serializes launches: checking that an lcore is free and sending it the job must be one step.
static LAUNCH: Mutex<()> = Mutex::new(());

/// Waiting for the outcome sleeps, whereas `rte_eal_wait_lcore` spins and takes the CPU from an lcore that shares it.
struct JobOutcome<T> {
    result: Mutex<Option<Result<T, Box<dyn Any + Send>>>>,
    set: Condvar,
}

impl<T> JobOutcome<T> {
    fn result(&self) -> MutexGuard<'_, Option<Result<T, Box<dyn Any + Send>>>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let none = |result: &mut Option<_>| result.is_none();
        drop(self.set.wait_while(self.result(), none).unwrap_or_else(PoisonError::into_inner));
    }
}

struct SentJob {
    run: Box<dyn FnOnce() + Send>,
}

impl Eal {
    /// All lcores of EAL, including the main lcore, in the order of their numbers.
    #[must_use]
    pub fn lcores(&self) -> Vec<LcoreId> {
        (0..sys::DFFI_MAX_LCORES).map(LcoreId).filter(|lcore| is_lcore(*lcore)).collect()
    }

    /// The main lcore, whose thread called [`Eal::init`].
    #[must_use]
    pub fn main_lcore(&self) -> LcoreId {
        // SAFETY: reads EAL's configuration.
        LcoreId(unsafe { sys::rte_get_main_lcore() })
    }

    /// The NUMA node of an lcore.
    pub fn lcore_socket(&self, lcore: LcoreId) -> Result<SocketId, DpdkError> {
        self.known(lcore)?;
        // SAFETY: the lcore's number is in range.
        let socket = unsafe { sys::rte_lcore_to_socket_id(lcore.0) };
        Ok(SocketId(socket.cast_signed()))
    }

    /// The CPUs that an lcore may run on. Two lcores that share one CPU must yield to each other.
    pub fn lcore_cpus(&self, lcore: LcoreId) -> Result<Vec<u16>, DpdkError> {
        self.known(lcore)?;
        let mut cpus = vec![0; 1024]; // CPU_SETSIZE: the most that a cpu_set_t can name
        // SAFETY: the array has room for 1,024 numbers.
        let count = unsafe { sys::dffi_lcore_cpus(lcore.0, cpus.as_mut_ptr(), 1024) };
        cpus.truncate(count as usize);
        Ok(cpus)
    }

    fn known(&self, lcore: LcoreId) -> Result<(), DpdkError> {
        if is_lcore(lcore) { Ok(()) } else { Err(DpdkError::UnknownLcore { lcore, known: self.lcores() }) }
    }

    /// Runs `work` on a worker lcore. A panic in it is caught and returned by [`LcoreJob::wait`].
    ///
    /// # Errors
    /// [`DpdkError::LcoreBusy`] if the lcore is running a job or is the main lcore.
    pub fn launch<T, F>(&self, lcore: LcoreId, work: F) -> Result<LcoreJob<T>, DpdkError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.known(lcore)?;
        if lcore == self.main_lcore() {
            return Err(DpdkError::LcoreBusy { lcore, main: true });
        }
        let outcome = Arc::new(JobOutcome { result: Mutex::new(None), set: Condvar::new() });
        let job_outcome = Arc::clone(&outcome);
        let run = Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(work));
            *job_outcome.result() = Some(result);
            job_outcome.set.notify_all();
        });
        let _launch = LAUNCH.lock().unwrap_or_else(PoisonError::into_inner);
        let job = Box::into_raw(Box::new(SentJob { run }));
        // SAFETY: run_job takes ownership of the box, exactly once, on the lcore; it is not used before that.
        let answer = unsafe { sys::rte_eal_remote_launch(Some(run_job), job.cast(), lcore.0) };
        if answer == 0 {
            return Ok(LcoreJob { lcore, outcome, waited: false, _token: self.token() });
        }
        // SAFETY: the launch was refused, so the box is still ours.
        drop(unsafe { Box::from_raw(job) });
        if -answer == EBUSY {
            return Err(DpdkError::LcoreBusy { lcore, main: false });
        }
        Err(DpdkError::call("rte_eal_remote_launch", answer))
    }
}

const EBUSY: i32 = 16;

fn is_lcore(lcore: LcoreId) -> bool {
    // SAFETY: takes any number and returns 0 or 1.
    unsafe { sys::rte_lcore_is_enabled(lcore.0) != 0 }
}

/// Called by EAL on the lcore's thread. Never unwinds, because the job catches panics.
unsafe extern "C" fn run_job(job: *mut c_void) -> c_int {
    // SAFETY: the pointer is the box that `launch` gave away for this one call.
    let job = unsafe { Box::from_raw(job.cast::<SentJob>()) };
    (job.run)();
    0
}

/// A function running on an lcore. Dropping it waits for the function to finish.
#[must_use = "dropping a job waits for its end"]
pub struct LcoreJob<T> {
    lcore: LcoreId,
    outcome: Arc<JobOutcome<T>>,
    waited: bool,
    _token: Token,
}

impl<T> LcoreJob<T> {
    /// The lcore it runs on.
    #[must_use]
    pub fn lcore(&self) -> LcoreId {
        self.lcore
    }

    /// Returns whether it has finished, so that [`LcoreJob::wait`] returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.outcome.result().is_some()
    }

    /// Waits for it to finish and returns its value, or [`DpdkError::Panicked`] with the panic's message.
    pub fn wait(mut self) -> Result<T, DpdkError> {
        self.join();
        let outcome = self.outcome.result().take();
        match outcome {
            Some(Ok(value)) => Ok(value),
            Some(Err(panic)) => Err(self.panicked(&panic_message(panic.as_ref()))),
            None => Err(self.panicked("the job left no answer")),
        }
    }

    fn panicked(&self, message: &str) -> DpdkError {
        DpdkError::Panicked { lcore: self.lcore, message: message.into() }
    }

    fn join(&mut self) {
        if !std::mem::replace(&mut self.waited, true) {
            self.outcome.wait();
            // The job is done; EAL needs only a few more instructions before the lcore can be launched again. SAFETY: the lcore exists;
            // EAL runs. A second waiter on the same lcore is allowed.
            unsafe { sys::rte_eal_wait_lcore(self.lcore.0) };
        }
    }
}

impl<T> Drop for LcoreJob<T> {
    fn drop(&mut self) {
        self.join();
    }
}

/// The message of a panic if its payload is a string.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panics_message_is_found_in_both_its_forms() {
        let caught = catch_unwind(|| panic!("plain")).unwrap_err();
        assert_eq!(panic_message(caught.as_ref()), "plain");
        let caught = catch_unwind(|| panic!("number {}", 7)).unwrap_err();
        assert_eq!(panic_message(caught.as_ref()), "number 7");
        assert_eq!(panic_message(&7_u8), "no message");
    }
}
