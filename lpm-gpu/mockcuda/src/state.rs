//! The driver's state: the primary context of each device, and all objects by checked handle.

use crate::control::control;
use crate::error::{
    CallResult, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, NOT_INITIALIZED, OUT_OF_MEMORY,
};
use crate::memory::{self, MockMemory};
use crate::ptx::code::PtxKernel;
use crate::stream::{Fate, MockEvent, MockStream, lock};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Handles start here; nothing is mapped at these addresses.
const HANDLES: u64 = 0x0666_0000_0000;

#[derive(Debug, Default)]
pub(crate) struct Context {
    id: u64,
    pub(crate) fate: Arc<Fate>,
    pub(crate) streams: Mutex<Vec<Arc<MockStream>>>,
    pub(crate) streams_most: AtomicUsize,
}

#[derive(Clone, Debug)]
pub(crate) enum Object {
    Module(Arc<Vec<(String, u64)>>),
    Function(Arc<PtxKernel>),
    Stream(Arc<MockStream>),
    MockEvent(Arc<MockEvent>),
}

#[derive(Debug, Default)]
pub(crate) struct MockDriver {
    initialised: AtomicBool,
    next: AtomicU64,
    objects: Mutex<HashMap<u64, Object>>,
    /// Primary context and retain count of each device.
    primary: Mutex<HashMap<i32, (Arc<Context>, u32)>>,
}

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn driver() -> &'static MockDriver {
    static DRIVER: OnceLock<MockDriver> = OnceLock::new();
    DRIVER.get_or_init(MockDriver::default)
}

macro_rules! getters {
    ($($name:ident: $variant:ident($type:ty);)*) => {
        $(
            pub(crate) fn $name(&self, handle: u64) -> CallResult<Arc<$type>> {
                match lock(&self.objects).get(&handle) {
                    Some(Object::$variant(object)) => Ok(Arc::clone(object)),
                    _ => Err(INVALID_HANDLE),
                }
            }
        )*
    };
}

impl MockDriver {
    getters! {
        module: Module(Vec<(String, u64)>);
        function: Function(PtxKernel);
        event: MockEvent(MockEvent);
        any_stream: Stream(MockStream);
    }

    pub(crate) fn initialise(&self) {
        self.initialised.store(true, Ordering::Release);
    }

    pub(crate) fn check_initialised(&self) -> CallResult {
        if self.initialised.load(Ordering::Acquire) { Ok(()) } else { Err(NOT_INITIALIZED) }
    }

    pub(crate) fn check_device(&self, device: i32) -> CallResult {
        self.check_initialised()?;
        if (0..control().devices()).contains(&device) { Ok(()) } else { Err(INVALID_DEVICE) }
    }

    pub(crate) fn memory(&self) -> CallResult<&'static MockMemory> {
        memory::memory().ok_or(OUT_OF_MEMORY)
    }

    pub(crate) fn new_handle(&self) -> u64 {
        HANDLES + 16 * (1 + self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn put(&self, handle: u64, object: Object) {
        lock(&self.objects).insert(handle, object);
    }

    pub(crate) fn add(&self, object: Object) -> u64 {
        let handle = self.new_handle();
        self.put(handle, object);
        handle
    }

    pub(crate) fn remove(&self, handle: u64) {
        lock(&self.objects).remove(&handle);
    }

    pub(crate) fn retain_primary(&self, device: i32) -> u64 {
        let mut primary = lock(&self.primary);
        let (context, retains) = primary.entry(device).or_insert_with(|| {
            let context = Context { id: self.new_handle(), ..Context::default() };
            (Arc::new(context), 0)
        });
        *retains += 1;
        context.id
    }

    /// Releases the primary context; the last release, or `at_once`, ends it.
    pub(crate) fn release_primary(&self, device: i32, at_once: bool) -> CallResult {
        let mut primary = lock(&self.primary);
        let others = primary.len() > 1;
        let Some((context, retains)) = primary.get_mut(&device) else {
            return if at_once { Ok(()) } else { Err(INVALID_CONTEXT) };
        };
        *retains -= 1;
        if *retains == 0 || at_once {
            self.end(context, others);
            primary.remove(&device);
        }
        Ok(())
    }

    /// Ends a context: stops its streams and frees its memory and objects. With `others`, memory is freed with the last of them.
    fn end(&self, context: &Context, others: bool) {
        context.fate.leave();
        let streams = lock(&context.streams).clone();
        for stream in &streams {
            stream.close();
        }
        // Before memory is freed, because running kernels use it.
        for stream in &streams {
            stream.join();
        }
        if others {
            return;
        }
        if let Ok(memory) = self.memory() {
            memory.free_all();
        }
        lock(&self.objects).clear();
    }

    pub(crate) fn context(&self, handle: u64) -> CallResult<Arc<Context>> {
        self.check_initialised()?;
        let primary = lock(&self.primary);
        let context = primary.values().map(|(context, _)| context).find(|context| context.id == handle);
        context.map(Arc::clone).ok_or(INVALID_CONTEXT)
    }

    /// The thread's context; an error without one, or if it is lost.
    pub(crate) fn current(&self) -> CallResult<Arc<Context>> {
        let context = self.context(CURRENT.get())?;
        context.fate.check()?;
        Ok(context)
    }

    pub(crate) fn stream(&self, handle: u64) -> CallResult<Arc<MockStream>> {
        let context = self.current()?;
        let stream = self.any_stream(handle)?;
        if Arc::ptr_eq(&context.fate, &stream.fate) { Ok(stream) } else { Err(INVALID_HANDLE) }
    }
}

pub(crate) fn current_handle() -> u64 {
    CURRENT.get()
}

pub(crate) fn set_current(handle: u64) {
    CURRENT.set(handle);
}
