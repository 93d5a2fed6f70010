//! Defines devices, and reads their properties from the driver.

use std::fmt;
use std::sync::OnceLock;

use crate::sys::{ContextHandle, device_attribute as attribute};
use crate::{Capability, Driver, Error};

/// The minimum compute capability of a supported device.
const NEEDED_CAPABILITY: Capability = Capability { major: 7, minor: 5 };

/// The data of a device. Except for the handle and the capability, it is read at its first use.
pub(crate) struct DeviceSlot {
    pub(crate) handle: i32,
    pub(crate) capability: Capability,
    pub(crate) primary: OnceLock<ContextHandle>,
    properties: OnceLock<Properties>,
}

impl DeviceSlot {
    pub(crate) fn new(driver: &Driver, ordinal: u32) -> Result<Self, Error> {
        let handle = driver.device_handle(ordinal)?;
        let capability = Capability {
            major: driver.device_attribute(handle, attribute::CAPABILITY_MAJOR)?,
            minor: driver.device_attribute(handle, attribute::CAPABILITY_MINOR)?,
        };
        Ok(Self { handle, capability, primary: OnceLock::new(), properties: OnceLock::new() })
    }
}

/// The properties of a device. Memory sizes are in bytes, clock rates in kHz.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Properties {
    /// The product's name.
    pub name: String,
    /// The compute capability.
    pub capability: Capability,
    /// The size of global memory.
    pub memory: usize,
    /// The number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// The number of threads of a warp.
    pub warp_size: u32,
    /// The maximum number of threads of a block.
    pub max_threads_per_block: u32,
    /// The maximum number of resident threads of a multiprocessor.
    pub max_threads_per_multiprocessor: u32,
    /// The maximum number of resident blocks of a multiprocessor.
    pub max_blocks_per_multiprocessor: u32,
    /// The shared memory of a block whose kernel has not opted in to more.
    pub shared_memory_per_block: u32,
    /// The maximum shared memory of a block whose kernel has opted in, as
    /// [`crate::Function::configure`] does (`max_shared_mem` of Triton).
    pub shared_memory_per_block_optin: u32,
    /// The shared memory of a multiprocessor.
    pub shared_memory_per_multiprocessor: u32,
    /// The shared memory of each block that the driver reserves for itself.
    pub reserved_shared_memory_per_block: u32,
    /// The maximum number of 32-bit registers of a block (`max_num_regs` of Triton).
    pub registers_per_block: u32,
    /// The number of 32-bit registers of a multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// The peak clock rate of the multiprocessors (`sm_clock_rate` of Triton).
    pub clock_rate: u32,
    /// The peak clock rate of the memory (`mem_clock_rate` of Triton).
    pub memory_clock_rate: u32,
    /// The width of the memory bus in bits (`mem_bus_width` of Triton).
    pub memory_bus_width: u32,
    /// The size of the second-level cache.
    pub l2_cache: u32,
    /// True if the device has cooperative launches.
    pub has_cooperative_launch: bool,
    /// True if the device has thread block clusters.
    pub has_clusters: bool,
    /// True if the device has tensor maps.
    pub has_tensor_maps: bool,
}

impl Properties {
    fn read(driver: &Driver, handle: i32, capability: Capability) -> Result<Self, Error> {
        let get = |name: i32| driver.device_attribute(handle, name);
        // The driver returns an error for an attribute that is newer than itself.
        let has = |name: i32| get(name).unwrap_or(0) != 0;
        Ok(Self {
            name: driver.device_name(handle)?,
            capability,
            memory: driver.device_memory(handle)?,
            multiprocessors: get(attribute::MULTIPROCESSOR_COUNT)?,
            warp_size: get(attribute::WARP_SIZE)?,
            max_threads_per_block: get(attribute::MAX_THREADS_PER_BLOCK)?,
            max_threads_per_multiprocessor: get(attribute::MAX_THREADS_PER_MULTIPROCESSOR)?,
            max_blocks_per_multiprocessor: get(attribute::MAX_BLOCKS_PER_MULTIPROCESSOR)?,
            shared_memory_per_block: get(attribute::SHARED_MEMORY_PER_BLOCK)?,
            shared_memory_per_block_optin: get(attribute::SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            shared_memory_per_multiprocessor: get(attribute::SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            reserved_shared_memory_per_block: get(attribute::RESERVED_SHARED_MEMORY_PER_BLOCK)?,
            registers_per_block: get(attribute::REGISTERS_PER_BLOCK)?,
            registers_per_multiprocessor: get(attribute::REGISTERS_PER_MULTIPROCESSOR)?,
            clock_rate: get(attribute::CLOCK_RATE)?,
            memory_clock_rate: get(attribute::MEMORY_CLOCK_RATE)?,
            memory_bus_width: get(attribute::MEMORY_BUS_WIDTH)?,
            l2_cache: get(attribute::L2_CACHE_SIZE)?,
            has_cooperative_launch: has(attribute::COOPERATIVE_LAUNCH),
            has_clusters: has(attribute::CLUSTER_LAUNCH),
            has_tensor_maps: has(attribute::TENSOR_MAP_ACCESS),
        })
    }
}

/// A GPU.
#[derive(Clone, Copy)]
pub struct Device {
    driver: &'static Driver,
    ordinal: u32,
}

impl Device {
    pub(crate) fn new(driver: &'static Driver, ordinal: u32) -> Self {
        Self { driver, ordinal }
    }

    /// Returns the driver of the device.
    pub fn driver(self) -> &'static Driver {
        self.driver
    }

    /// Returns the ordinal of the device, counted from 0.
    pub fn ordinal(self) -> u32 {
        self.ordinal
    }

    /// Returns the compute capability of the device.
    pub fn capability(self) -> Capability {
        self.slot().capability
    }

    /// Returns the properties of the device. The first call reads them from the driver.
    pub fn properties(self) -> Result<&'static Properties, Error> {
        let slot = self.slot();
        if let Some(properties) = slot.properties.get() {
            return Ok(properties);
        }
        let properties = Properties::read(self.driver, slot.handle, slot.capability)?;
        Ok(slot.properties.get_or_init(|| properties))
    }

    /// Returns an error if the device is older than `sm_75`.
    pub fn check_supported(self) -> Result<(), Error> {
        let found = self.capability();
        if found >= NEEDED_CAPABILITY {
            return Ok(());
        }
        let name = self.driver.device_name(self.slot().handle)?;
        Err(Error::UnsupportedDevice { ordinal: self.ordinal, name, found })
    }

    pub(crate) fn slot(self) -> &'static DeviceSlot {
        self.driver.slot(self.ordinal)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.driver, other.driver) && self.ordinal == other.ordinal
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.ordinal)
    }
}
