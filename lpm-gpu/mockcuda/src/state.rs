//! What the driver keeps: the device's primary context, and all that was made in it, by handles that are checked.

use crate::control::control;
use crate::error::{Answer, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, NOT_INITIALIZED, OUT_OF_MEMORY};
use crate::memory::{self, Memory};
use crate::ptx::code::Kernel;
use crate::stream::{Event, Fate, Operation, Stream, lock};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Handles look like addresses and are none: nothing is mapped here.
const HANDLES: u64 = 0x0666_0000_0000;
/// `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) id: u64,
    pub(crate) fate: Arc<Fate>,
    /// The default stream.
    pub(crate) null: Arc<Stream>,
    pub(crate) streams: Mutex<Vec<Arc<Stream>>>,
    /// Limits by number, as they were set.
    pub(crate) limits: Mutex<HashMap<u32, u64>>,
}

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: u64,
    pub(crate) kernels: Vec<(String, u64)>,
    /// Name, address, bytes.
    pub(crate) variables: Vec<(String, u64, u64)>,
}

/// A kernel of a module.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) module: u64,
    /// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
    pub(crate) shared_dynamic_max: AtomicU32,
}

/// A graph, or an executable one: nodes in an order in which they may run.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Mutex<Vec<(u64, Operation)>>,
}

/// Anything with a handle.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    Context(Arc<Context>),
    Module(Arc<Module>),
    Function(Arc<Function>),
    Stream(Arc<Stream>),
    Event(Arc<Event>),
    Graph(Arc<Graph>),
    Exec(Arc<Graph>),
}

/// The driver.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    initialised: AtomicBool,
    next: AtomicU64,
    objects: Mutex<HashMap<u64, Object>>,
    /// The primary context's handle and how often it is retained.
    primary: Mutex<(u64, u32)>,
}

thread_local! {
    /// The contexts of this thread, the current one last.
    static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The process's driver.
pub(crate) fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(Driver::default)
}

macro_rules! getters {
    ($($name:ident: $variant:ident($type:ty);)*) => {
        $(
            /// The object behind a handle of that kind.
            pub(crate) fn $name(&self, handle: u64) -> Answer<Arc<$type>> {
                match lock(&self.objects).get(&handle) {
                    Some(Object::$variant(object)) => Ok(Arc::clone(object)),
                    _ => Err(INVALID_HANDLE),
                }
            }
        )*
    };
}

impl Driver {
    getters! {
        context: Context(Context);
        module: Module(Module);
        function: Function(Function);
        event: Event(Event);
        graph: Graph(Graph);
        exec: Exec(Graph);
        stream_made: Stream(Stream);
    }

    pub(crate) fn initialise(&self) {
        self.initialised.store(true, Ordering::Release);
    }

    /// `Err` before `cuInit`.
    pub(crate) fn check_initialised(&self) -> Answer {
        if self.initialised.load(Ordering::Acquire) { Ok(()) } else { Err(NOT_INITIALIZED) }
    }

    /// Checks the number of a device.
    pub(crate) fn check_device(&self, device: i32) -> Answer {
        self.check_initialised()?;
        if device == 0 && !control().no_device() { Ok(()) } else { Err(INVALID_DEVICE) }
    }

    /// The memory there is.
    pub(crate) fn memory(&self) -> Answer<&'static Memory> {
        memory::memory().ok_or(OUT_OF_MEMORY)
    }

    /// A fresh handle.
    pub(crate) fn new_handle(&self) -> u64 {
        HANDLES + 16 * (1 + self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn put(&self, handle: u64, object: Object) {
        lock(&self.objects).insert(handle, object);
    }

    /// Adds an object under a fresh handle.
    pub(crate) fn add(&self, object: Object) -> u64 {
        let handle = self.new_handle();
        self.put(handle, object);
        handle
    }

    pub(crate) fn remove(&self, handle: u64) {
        lock(&self.objects).remove(&handle);
    }

    /// Makes a context.
    pub(crate) fn new_context(&self) -> u64 {
        let id = self.new_handle();
        let fate = Arc::new(Fate::default());
        let null = Stream::new(0, id, Arc::clone(&fate), 0, 0);
        let context = Context {
            id,
            fate,
            null: Arc::clone(&null),
            streams: Mutex::new(vec![null]),
            limits: Mutex::default(),
        };
        self.put(id, Object::Context(Arc::new(context)));
        id
    }

    /// Ends a context: its streams stop, its memory and objects are freed.
    pub(crate) fn destroy_context(&self, id: u64) -> Answer {
        let context = self.context(id).map_err(|_| INVALID_CONTEXT)?;
        context.fate.leave();
        let streams = lock(&context.streams).clone();
        for stream in &streams {
            stream.close();
        }
        // Before its memory goes: a kernel must not find it gone under it.
        for stream in &streams {
            stream.join();
        }
        if let Ok(memory) = self.memory() {
            memory.free_context(id);
        }
        let mut objects = lock(&self.objects);
        let modules: Vec<u64> = objects
            .iter()
            .filter(|(_, object)| matches!(object, Object::Module(module) if module.context == id))
            .map(|(handle, _)| *handle)
            .collect();
        objects.retain(|handle, object| match object {
            Object::Function(function) => !modules.contains(&function.module),
            Object::Stream(stream) => stream.context != id,
            Object::Module(_) | Object::Context(_) => *handle != id && !modules.contains(handle),
            Object::Event(_) | Object::Graph(_) | Object::Exec(_) => true,
        });
        Ok(())
    }

    pub(crate) fn retain_primary(&self) -> u64 {
        let mut primary = lock(&self.primary);
        if primary.1 == 0 {
            primary.0 = self.new_context();
        }
        primary.1 += 1;
        primary.0
    }

    pub(crate) fn release_primary(&self) -> Answer {
        let mut primary = lock(&self.primary);
        primary.1 = primary.1.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        if primary.1 == 0 { self.destroy_context(primary.0) } else { Ok(()) }
    }

    pub(crate) fn reset_primary(&self) -> Answer {
        let mut primary = lock(&self.primary);
        if primary.1 == 0 {
            return Ok(());
        }
        let id = primary.0;
        *primary = (0, 0);
        self.destroy_context(id)
    }

    pub(crate) fn primary_active(&self) -> bool {
        lock(&self.primary).1 > 0
    }

    /// The current thread's context, alive and well.
    pub(crate) fn current(&self) -> Answer<Arc<Context>> {
        let context = self.current_even_lost()?;
        context.fate.check()?;
        Ok(context)
    }

    /// The current thread's context, though an error may have ended it.
    pub(crate) fn current_even_lost(&self) -> Answer<Arc<Context>> {
        self.check_initialised()?;
        self.context(current_handle()).map_err(|_| INVALID_CONTEXT)
    }

    /// The stream of a handle, 0 and the special ones among them.
    pub(crate) fn stream(&self, handle: u64) -> Answer<Arc<Stream>> {
        let context = self.current()?;
        match handle {
            0 | LEGACY | PER_THREAD => Ok(Arc::clone(&context.null)),
            _ => self.stream_made(handle).inspect(|_| ()).and_then(|s| s.fate.check().map(|()| s)),
        }
    }
}

/// The handle of this thread's context, 0 without.
pub(crate) fn current_handle() -> u64 {
    CURRENT.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

/// Makes `handle` this thread's context; 0: none.
pub(crate) fn set_current(handle: u64) {
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
    });
}

/// Makes `handle` this thread's context until [`pop_current`].
pub(crate) fn push_current(handle: u64) {
    CURRENT.with_borrow_mut(|stack| stack.push(handle));
}

/// Back to the context before.
pub(crate) fn pop_current() -> Option<u64> {
    CURRENT.with_borrow_mut(Vec::pop)
}

impl Driver {
    /// What a node of any graph does.
    pub(crate) fn node(&self, handle: u64) -> Option<Operation> {
        let graphs: Vec<Arc<Graph>> = lock(&self.objects)
            .values()
            .filter_map(|object| match object {
                Object::Graph(graph) => Some(Arc::clone(graph)),
                _ => None,
            })
            .collect();
        graphs.iter().find_map(|graph| lock(&graph.nodes).iter().find(|n| n.0 == handle).map(|n| n.1.clone()))
    }
}
