//! Graphs of kernels and copies. Nodes run in the order of their creation, which respects their dependencies.

use super::module::Launched;
use super::{api, out, unsupported};
use crate::error::{CallResult, INVALID_VALUE};
use crate::state::{Nodes, Object, driver};
use crate::stream::{Copy, CopyPlace, Operation, lock};
use std::ffi::{c_uint, c_void};
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

/// One end of a copy in `CUDA_MEMCPY3D`.
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

/// Memory types: host is 1, device is 2.
fn end(end: &CopyEnd, bytes: usize) -> CallResult<CopyPlace> {
    match end {
        CopyEnd { x_bytes: 0, y: 0, z: 0, kind: 1, host, .. } => {
            Ok(CopyPlace::Host(host.expose_provenance()))
        }
        CopyEnd { x_bytes: 0, y: 0, z: 0, kind: 2, device, .. } => {
            driver().memory()?.range(*device, bytes as u64).ok_or(INVALID_VALUE)?;
            Ok(CopyPlace::Device(*device))
        }
        _ => unsupported("a copy in a graph of anything but one row between host and device"),
    }
}

/// # Safety
/// `params` is null or points to a `CUDA_MEMCPY3D`.
unsafe fn copy_of(params: *const CopyNode) -> CallResult<Operation> {
    // SAFETY: the caller's promise.
    let node = unsafe { params.as_ref() }.ok_or(INVALID_VALUE)?;
    if (node.height, node.depth) != (1, 1) {
        return unsupported("a copy in a graph of more or less than one row");
    }
    let bytes = node.width_bytes;
    Ok(Operation::Copy(Copy { to: end(&node.to, bytes)?, from: end(&node.from, bytes)?, bytes }))
}

/// # Safety
/// `params` is null or points to a `CUDA_KERNEL_NODE_PARAMS_v2` with valid pointers for a launch.
unsafe fn kernel_of(params: *const KernelNode) -> CallResult<Operation> {
    // SAFETY: the caller's promise.
    let node = unsafe { params.as_ref() }.ok_or(INVALID_VALUE)?;
    let asked = Launched {
        grid: node.grid,
        block: node.block,
        shared: node.shared,
        params: node.params,
        extra: node.extra,
    };
    // SAFETY: the caller's promise.
    unsafe { asked.check(node.function) }
}

/// Adds a node. Its dependencies must exist, so creation order is a valid order of execution.
///
/// # Safety
/// `dependencies` is null or points to `count` handles; `node` is an out pointer.
unsafe fn add(
    node: *mut u64,
    graph: u64,
    dependencies: *const u64,
    count: usize,
    operation: Operation,
) -> CallResult {
    let graph = driver().graph(graph)?;
    if node.is_null() || (dependencies.is_null() && count > 0) {
        return Err(INVALID_VALUE);
    }
    let mut nodes = lock(&graph);
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

fn change(exec: u64, node: u64, operation: Operation) -> CallResult {
    let exec = driver().exec(exec)?;
    let mut nodes = lock(&exec);
    let found = nodes.iter_mut().find(|n| n.0 == node).ok_or(INVALID_VALUE)?;
    if std::mem::discriminant(&found.1) != std::mem::discriminant(&operation) {
        return Err(INVALID_VALUE);
    }
    found.1 = operation;
    Ok(())
}

api! {
    fn cuGraphCreate(graph: *mut u64, flags: c_uint) {
        driver().current()?;
        if flags != 0 || graph.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: an out pointer of the caller.
        unsafe { out(graph, driver().add(Object::Graph(Arc::new(Nodes::default())))) }
    }

    /// Executable graphs made from it stay valid.
    fn cuGraphDestroy(graph: u64) {
        driver().graph(graph)?;
        driver().remove(graph);
        Ok(())
    }

    fn cuGraphAddKernelNode_v2(node: *mut u64, graph: u64, dependencies: *const u64, count: usize, params: *const KernelNode) {
        // SAFETY: the caller's structures.
        unsafe { add(node, graph, dependencies, count, kernel_of(params)?) }
    }

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

    fn cuGraphInstantiateWithFlags(exec: *mut u64, graph: u64, flags: u64) {
        driver().current()?;
        if flags != 0 {
            return unsupported("flags of a graph");
        }
        let nodes = lock(&*driver().graph(graph)?).clone();
        // SAFETY: an out pointer of the caller.
        unsafe { out(exec, driver().add(Object::Exec(Arc::new(Mutex::new(nodes))))) }
    }

    /// Launches already made still run.
    fn cuGraphExecDestroy(exec: u64) {
        driver().exec(exec)?;
        driver().remove(exec);
        Ok(())
    }

    fn cuGraphExecKernelNodeSetParams_v2(exec: u64, node: u64, params: *const KernelNode) {
        // SAFETY: the caller's structure.
        change(exec, node, unsafe { kernel_of(params) }?)
    }

    fn cuGraphExecMemcpyNodeSetParams(exec: u64, node: u64, params: *const CopyNode, context: u64) {
        driver().context(context)?;
        // SAFETY: the caller's structure.
        change(exec, node, unsafe { copy_of(params) }?)
    }

    /// Launches all nodes as one operation of the stream.
    fn cuGraphLaunch(exec: u64, stream: u64) {
        let stream = driver().stream(stream)?;
        let exec = driver().exec(exec)?;
        let nodes = lock(&exec).iter().map(|n| n.1.clone()).collect();
        stream.submit(Operation::Graph(Arc::new(nodes))).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{device, memory, module, streams};
    use std::ptr::{null, null_mut};

    const NOWHERE: CopyEnd = CopyEnd {
        x_bytes: 0,
        y: 0,
        z: 0,
        lod: 0,
        kind: 2,
        host: null(),
        device: 0,
        array: 0,
        reserved: 0,
        pitch: 0,
        height: 1,
    };

    #[test]
    fn what_is_no_graph_is_refused() {
        let text = c".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
        let (mut context, mut stream, mut module, mut function, mut word) = (0, 0, 0, 0, 0);
        let (mut graph, mut exec, mut node, mut lost, missing) = (0, 0, 0, 0, 77);
        // SAFETY: out pointers to locals, C strings, and structures whose pointers live as long as the test.
        unsafe {
            let none = (null_mut(), null_mut());
            let made = [
                device::cuInit(0),
                device::cuDevicePrimaryCtxRetain(&raw mut context, 0),
                device::cuCtxSetCurrent(context),
                streams::cuStreamCreateWithPriority(&raw mut stream, 1, 0),
                module::cuModuleLoadDataEx(&raw mut module, text.as_ptr().cast(), 0, none.0, none.1),
                module::cuModuleGetFunction(&raw mut function, module, c"k".as_ptr()),
                memory::cuMemAlloc_v2(&raw mut word, 8),
                cuGraphCreate(&raw mut graph, 0),
            ];
            assert_eq!(made, [0; 8]);
            let end = |device| CopyEnd { device, ..NOWHERE };
            let copy =
                |height| CopyNode { from: end(word), to: end(word + 4), width_bytes: 4, height, depth: 1 };
            let (grid, params) = ([1; 3], null_mut());
            let kernel = KernelNode {
                function,
                grid,
                block: grid,
                shared: 0,
                params,
                extra: params,
                kernel: 0,
                context,
            };
            let (row, rows) = (copy(1), copy(2));
            let (row, rows, kernel) = (&raw const row, &raw const rows, &raw const kernel);
            assert_eq!(cuGraphAddMemcpyNode(&raw mut node, graph, null(), 0, row, context), 0);
            assert_eq!(cuGraphAddKernelNode_v2(&raw mut lost, graph, &raw const missing, 1, kernel), 1);
            assert_eq!(cuGraphAddMemcpyNode(&raw mut lost, graph, null(), 0, rows, context), 1);
            assert_eq!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0), 0);
            assert_eq!(cuGraphDestroy(graph), 0);
            assert_eq!(
                cuGraphExecKernelNodeSetParams_v2(exec, node, kernel),
                1,
                "a copy node takes only copies"
            );
            assert_eq!([cuGraphLaunch(exec, stream), cuGraphExecDestroy(exec)], [0, 0]);
            assert_eq!(cuGraphLaunch(exec, stream), 400);
        }
    }
}
