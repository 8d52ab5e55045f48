//! Graphs: nodes in the order in which they were added or captured, which is one in which they may run.

use super::{api, memory::order_with_default, module, out, out_if};
use crate::error::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use crate::exec::grid::Launch;
use crate::state::{Graph, Object, driver};
use crate::stream::{Copy, End, Fill, Operation, lock};
use std::ffi::{c_char, c_uint, c_void};
use std::sync::{Arc, Mutex};

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[derive(Debug)]
#[repr(C)]
pub struct KernelNode {
    function: u64,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: u64,
    context: u64,
}

/// One end in a `CUDA_MEMCPY3D`.
#[derive(Debug)]
#[repr(C)]
pub struct CopyEnd {
    x_bytes: usize,
    y: usize,
    z: usize,
    lod: usize,
    kind: c_uint,
    host: *const c_void,
    device: u64,
    array: u64,
    reserved: u64,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[derive(Debug)]
#[repr(C)]
pub struct CopyNode {
    from: CopyEnd,
    to: CopyEnd,
    width_bytes: usize,
    height: usize,
    depth: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Debug)]
#[repr(C)]
pub struct FillNode {
    address: u64,
    pitch: usize,
    value: c_uint,
    unit: c_uint,
    width: usize,
    height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[derive(Debug)]
#[repr(C)]
pub struct HostNode {
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
}

/// Host 1, device 2, unified 4; arrays are not modelled.
fn end(end: &CopyEnd) -> Answer<End> {
    if end.y != 0 || end.z != 0 {
        return Err(NOT_SUPPORTED);
    }
    match end.kind {
        1 => Ok(End::Host(end.host.expose_provenance() + end.x_bytes)),
        2 => Ok(End::Device(end.device + end.x_bytes as u64)),
        4 => {
            let known = driver().memory()?.find(end.device).is_some();
            let at = end.device + end.x_bytes as u64;
            Ok(if known { End::Device(at) } else { End::Host(at as usize) })
        }
        _ => Err(NOT_SUPPORTED),
    }
}

/// # Safety
/// `params` is null or points to a `CUDA_MEMCPY3D`.
unsafe fn copy_of(params: *const CopyNode) -> Answer<Operation> {
    // SAFETY: the caller's promise.
    let node = unsafe { params.as_ref() }.ok_or(INVALID_VALUE)?;
    if node.height != 1 || node.depth != 1 {
        return Err(if node.height == 0 || node.depth == 0 { INVALID_VALUE } else { NOT_SUPPORTED });
    }
    let copy = Copy { to: end(&node.to)?, from: end(&node.from)?, bytes: node.width_bytes };
    for end in [&copy.to, &copy.from] {
        if let End::Device(address) = end {
            driver().memory()?.range(*address, copy.bytes as u64).ok_or(INVALID_VALUE)?;
        }
    }
    Ok(Operation::Copy(copy))
}

/// # Safety
/// `params` is null or points to a `CUDA_KERNEL_NODE_PARAMS_v2` whose own pointers are those of a launch.
unsafe fn kernel_of(params: *const KernelNode) -> Answer<Operation> {
    // SAFETY: the caller's promise.
    let node = unsafe { params.as_ref() }.ok_or(INVALID_VALUE)?;
    let function = driver().function(node.function)?;
    // SAFETY: the caller's promise.
    let launch: Arc<Launch> =
        unsafe { module::launch(&function, node.grid, node.block, node.shared, (node.params, node.extra)) }?;
    Ok(Operation::Kernel(launch))
}

/// # Safety
/// `params` is null or points to a `CUDA_MEMSET_NODE_PARAMS`.
unsafe fn fill_of(params: *const FillNode) -> Answer<Operation> {
    // SAFETY: the caller's promise.
    let node = unsafe { params.as_ref() }.ok_or(INVALID_VALUE)?;
    let unit = u8::try_from(node.unit).map_err(|_| INVALID_VALUE)?;
    if !matches!(unit, 1 | 2 | 4) || node.height == 0 {
        return Err(INVALID_VALUE);
    }
    Ok(Operation::Fill(Fill {
        address: node.address,
        value: node.value,
        unit,
        width: node.width,
        height: node.height,
        pitch: node.pitch,
    }))
}

/// Adds a node. What it depends on must be there: so the order of adding is one in which the nodes may run.
///
/// # Safety
/// `dependencies` is null or points to `count` handles; `node` is an out pointer.
unsafe fn add(
    node: *mut u64,
    graph: u64,
    dependencies: *const u64,
    count: usize,
    operation: Operation,
) -> Answer {
    let graph = driver().graph(graph)?;
    if node.is_null() || (dependencies.is_null() && count > 0) {
        return Err(INVALID_VALUE);
    }
    let mut nodes = lock(&graph.nodes);
    for i in 0..count {
        // SAFETY: the caller gives `count` handles.
        let wanted = unsafe { dependencies.add(i).read() };
        if !nodes.iter().any(|n| n.0 == wanted) {
            return Err(INVALID_VALUE);
        }
    }
    let handle = driver().new_handle();
    nodes.push((handle, operation));
    // SAFETY: not null, an out pointer of the caller.
    unsafe { out(node, handle) }
}

/// Changes a node of an executable graph into another of its kind.
fn change(exec: u64, node: u64, operation: Operation) -> Answer {
    let exec = driver().exec(exec)?;
    let mut nodes = lock(&exec.nodes);
    let found = nodes.iter_mut().find(|n| n.0 == node).ok_or(INVALID_VALUE)?;
    if std::mem::discriminant(&found.1) != std::mem::discriminant(&operation) {
        return Err(INVALID_VALUE);
    }
    if let (Operation::Kernel(old), Operation::Kernel(new)) = (&found.1, &operation) {
        // The driver lets a node change its kernel within limits; the parameters' layout must fit the new one, checked above.
        debug_assert!(!old.kernel.code.is_empty() && !new.kernel.code.is_empty(), "kernels have code");
    }
    found.1 = operation;
    Ok(())
}

fn instantiate(exec: *mut u64, graph: u64) -> Answer {
    driver().current()?;
    let graph = driver().graph(graph)?;
    let nodes = lock(&graph.nodes).clone();
    let made = driver().add(Object::Exec(Arc::new(Graph { nodes: Mutex::new(nodes) })));
    // SAFETY: an out pointer of the caller.
    unsafe { out(exec, made) }
}

api! {
    /// An empty graph.
    fn cuGraphCreate(graph: *mut u64, flags: c_uint) {
        driver().check_initialised()?;
        if flags != 0 || graph.is_null() {
            return Err(INVALID_VALUE);
        }
        let made = driver().add(Object::Graph(Arc::new(Graph::default())));
        // SAFETY: an out pointer of the caller.
        unsafe { out(graph, made) }
    }

    /// Forgets it. Executable graphs made of it stay.
    fn cuGraphDestroy(graph: u64) {
        driver().graph(graph)?;
        driver().remove(graph);
        Ok(())
    }

    /// A kernel.
    fn cuGraphAddKernelNode_v2(node: *mut u64, graph: u64, dependencies: *const u64, count: usize, params: *const KernelNode) {
        // SAFETY: the caller's structures.
        unsafe { add(node, graph, dependencies, count, kernel_of(params)?) }
    }

    /// A copy of one row.
    fn cuGraphAddMemcpyNode(
        node: *mut u64,
        graph: u64,
        dependencies: *const u64,
        count: usize,
        params: *const CopyNode,
        context: u64,
    ) {
        driver().context(context)?;
        // SAFETY: the caller's structures.
        unsafe { add(node, graph, dependencies, count, copy_of(params)?) }
    }

    /// A fill.
    fn cuGraphAddMemsetNode(
        node: *mut u64,
        graph: u64,
        dependencies: *const u64,
        count: usize,
        params: *const FillNode,
        context: u64,
    ) {
        driver().context(context)?;
        // SAFETY: the caller's structures.
        unsafe { add(node, graph, dependencies, count, fill_of(params)?) }
    }

    /// Nothing.
    fn cuGraphAddEmptyNode(node: *mut u64, graph: u64, dependencies: *const u64, count: usize) {
        // SAFETY: the caller's structures.
        unsafe { add(node, graph, dependencies, count, Operation::Nothing) }
    }

    /// A function of the host.
    fn cuGraphAddHostNode(node: *mut u64, graph: u64, dependencies: *const u64, count: usize, params: *const HostNode) {
        // SAFETY: the caller's structure.
        let host = unsafe { params.as_ref() }.ok_or(INVALID_VALUE)?;
        let function = host.function.ok_or(INVALID_VALUE)?;
        let operation = Operation::Host(function, host.data.expose_provenance());
        // SAFETY: the caller's structures.
        unsafe { add(node, graph, dependencies, count, operation) }
    }

    /// The nodes, in order; without a place for them, their number.
    fn cuGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize) {
        let graph = driver().graph(graph)?;
        let found = lock(&graph.nodes);
        if nodes.is_null() {
            // SAFETY: an out pointer of the caller.
            return unsafe { out(count, found.len()) };
        }
        if count.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null; in and out pointer of the caller.
        let room = unsafe { count.read() };
        for i in 0..room {
            // SAFETY: the caller has room for `room` handles.
            unsafe { out(nodes.add(i), found.get(i).map_or(0, |n| n.0)) }?;
        }
        // SAFETY: not null.
        unsafe { out(count, found.len().min(room)) }
    }

    /// Kernel 0, copy 1, fill 2, host function 3, nothing 5.
    fn cuGraphNodeGetType(node: u64, kind: *mut c_uint) {
        let operation = driver().node(node).ok_or(INVALID_HANDLE)?;
        let number = match operation {
            Operation::Kernel(_) => 0,
            Operation::Copy(_) => 1,
            Operation::Fill(_) => 2,
            Operation::Host(..) => 3,
            _ => 5,
        };
        // SAFETY: an out pointer of the caller.
        unsafe { out(kind, number) }
    }

    /// A graph that can be launched.
    fn cuGraphInstantiateWithFlags(exec: *mut u64, graph: u64, flags: u64) {
        // Launching graphs from the device (4) is not modelled.
        if flags & 4 != 0 { Err(INVALID_VALUE) } else { instantiate(exec, graph) }
    }

    /// As `cuGraphInstantiateWithFlags`, with places for an error that does not happen.
    fn cuGraphInstantiate_v2(exec: *mut u64, graph: u64, failed: *mut u64, log: *mut c_char, room: usize) {
        // SAFETY: null or out pointers of the caller, the log with room.
        unsafe {
            out_if(failed, 0);
            if room > 0 {
                out_if(log, 0);
            }
        }
        instantiate(exec, graph)
    }

    /// Forgets it; launches that were made run.
    fn cuGraphExecDestroy(exec: u64) {
        driver().exec(exec)?;
        driver().remove(exec);
        Ok(())
    }

    /// Changes a kernel's node for later launches.
    fn cuGraphExecKernelNodeSetParams_v2(exec: u64, node: u64, params: *const KernelNode) {
        // SAFETY: the caller's structure.
        change(exec, node, unsafe { kernel_of(params) }?)
    }

    /// Changes a copy's node for later launches.
    fn cuGraphExecMemcpyNodeSetParams(exec: u64, node: u64, params: *const CopyNode, context: u64) {
        driver().context(context)?;
        // SAFETY: the caller's structure.
        change(exec, node, unsafe { copy_of(params) }?)
    }

    /// Changes a fill's node for later launches.
    fn cuGraphExecMemsetNodeSetParams(exec: u64, node: u64, params: *const FillNode, context: u64) {
        driver().context(context)?;
        // SAFETY: the caller's structure.
        change(exec, node, unsafe { fill_of(params) }?)
    }

    /// Launches all nodes, in order, as one operation of the stream.
    fn cuGraphLaunch(exec: u64, stream: u64) {
        let stream = driver().stream(stream)?;
        let exec = driver().exec(exec)?;
        let nodes = lock(&exec.nodes).iter().map(|n| n.1.clone()).collect();
        order_with_default(&stream)?;
        stream.submit(Operation::Graph(Arc::new(nodes))).map(|_| ())
    }

    /// There is nothing to upload.
    fn cuGraphUpload(exec: u64, stream: u64) {
        driver().stream(stream)?;
        driver().exec(exec).map(|_| ())
    }
}
