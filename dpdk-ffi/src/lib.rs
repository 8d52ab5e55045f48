//! The part of DPDK that a forwarder needs, as a safe Rust interface.
//!
//! `sys` (private) has the symbols of bindgen and the C shim; the modules below turn them into owned types with typed errors.
//!
//! # Soundness
//! - Bindings of one release of DPDK never run on another: [`Eal::init`] compares the two.
//! - Every handle holds a token of [`Eal`]; `rte_eal_cleanup` runs when the last one is dropped.
//! - A packet has one owner: an [`Mbuf`], a [`Burst`], a ring or a driver (the tables of [`ready`] keep a second reference and leave the
//!   packet alone until its owner has freed it). No handle clones an mbuf, so `&mut` to a packet's bytes is unique as long as the driver
//!   keeps DPDK's rule that receiving transfers ownership.
//! - A queue has one handle at a time, taken from a started port; a port with queues taken refuses to stop.
//! - Mempools live until EAL ends, because packets may stay in a driver's queue long after their sender is gone.
//!
//! ```no_run
//! use dpdk_ffi::{Burst, Eal, Mempool, MempoolConfig, Port, PortConfig, QueueId};
//! let eal = Eal::init(&["--no-huge", "-m", "256", "--no-pci"])?;
//! eal.vdev_create("net_null0", "")?;
//! let pool = Mempool::new(&eal, "packets", &MempoolConfig::default())?;
//! let port = Port::by_name(&eal, "net_null0")?;
//! port.configure(&PortConfig::default(), &[pool])?;
//! port.start()?;
//! let (mut rx, mut tx) = (port.take_rx_queue(QueueId(0))?, port.take_tx_queue(QueueId(0))?);
//! let mut burst = Burst::with_capacity(&eal, 32);
//! rx.rx_burst(&mut burst);
//! tx.tx_burst(&mut burst);
//! burst.free_all();
//! # Ok::<(), dpdk_ffi::DpdkError>(())
//! ```

pub mod burst;
mod c_text;
pub mod cycles;
mod device;
pub mod eal;
mod error;
pub mod fib;
mod fib_libraries;
mod ids;
pub mod lcore;
mod log;
pub mod mbuf;
pub mod mempool;
pub mod port;
pub mod port_config;
pub mod port_life;
pub mod port_state;
pub mod queue;
pub mod ready;
pub mod ring;
mod shared_port;
pub mod simd;
mod sys;
pub mod tap;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod vector;
pub mod version;

pub use burst::{Burst, DROP, PacketRef};
pub use cycles::{pause, tsc, tsc_hz};
pub use eal::Eal;
pub use error::DpdkError;
pub use ids::{LcoreId, PortId, QueueId, SocketId};
pub use lcore::{LcoreJob, panic_message};
pub use log::{DpdkLogLevel, listen_to_log};
pub use mbuf::Mbuf;
pub use mempool::{Mempool, MempoolConfig};
pub use port::Port;
pub use port_config::{Granted, PortConfig, RssTypes, RxOffloads, TxOffloads};
pub use port_life::{PortEvents, PortView};
pub use port_state::{DeviceInfo, LinkState, PortStats};
pub use queue::{RxQueue, TxQueue};
pub use ready::ReadyPackets;
pub use ring::{Ring, RingConsumer, RingPort, RingProducer, RingSync};
pub use tap::Tap;
pub use version::version;
